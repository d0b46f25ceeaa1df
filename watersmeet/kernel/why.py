"""Why not? The first filter that refuses a pair of a partial result and a row, in the order of the hop itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from watersmeet.errors import PredicateError
from watersmeet.kernel.admission import ADMISSION, EVER
from watersmeet.kernel.filters import Evaluators, Filter
from watersmeet.kernel.partials import Partials
from watersmeet.kernel.probe import Probe
from watersmeet.predicate.model import Conjunct


@dataclass(frozen=True, slots=True)
class Refusal:
    """What refuses a pair.

    Attributes:
        filter: The name of the filter.
        conjunct: The conjunct that isn't TRUE; None if a window or the arrival order refuses.
        error: What the conjunct raises instead of an answer; such a pair stops the join.
    """

    filter: str
    conjunct: Conjunct | None = None
    error: str | None = None


def first_refusal(probe: Probe, row: int, filters: Sequence[Filter]) -> Refusal | None:
    """Return what first refuses a pair; None if it passes.

    Args:
        probe: The probe of the row's chunk by the partial result, which is its only one.
        row: The row.
        filters: Those of the hop.
    """
    refused = _not_admitted(probe, row)
    if refused is not None:
        return Refusal(refused)
    return first_refused(probe.longer(np.zeros(1, np.int64), np.array([row])), filters)


def _not_admitted(probe: Probe, row: int) -> str | None:
    """Return the window or arrival order that refuses a pair, by its name."""
    times, partial, ts = EVER, np.zeros(1, np.int64), probe.rows.ts[row]
    for filter_ in ADMISSION:
        times = filter_.narrow(probe, times)
        mask = filter_.mask(probe, partial, np.array([row]))
        if not times.low[0] <= ts <= times.high[0] or (mask is not None and not mask.all()):
            return filter_.name
    return None


def first_refused(combination: Partials, filters: Sequence[Filter]) -> Refusal | None:
    """Return the conjunct that first refuses a combination; None if it passes.

    Args:
        combination: A block of one.
        filters: Filters in their order, those of a hop or those of entering tuples.
    """
    for filter_ in filters:
        try:
            if len(filter_.passing(combination)):
                continue
        except PredicateError as error:
            return Refusal(filter_.name, _raised(filter_, combination), str(error))
        return Refusal(filter_.name, _denied(filter_, combination))
    return None


def _denied(filter_: Filter, combination: Partials) -> Conjunct | None:
    """Return the first conjunct that refuses a combination; what another raises for it doesn't count."""
    return next((c for c in filter_.conjuncts if _passes(filter_.alone(c), combination) is False), None)


def _raised(filter_: Filter, combination: Partials) -> Conjunct | None:
    return next((c for c in filter_.conjuncts if _passes(filter_.alone(c), combination) is None), None)


def _passes(filter_: Filter, combination: Partials) -> bool | None:
    """Tell whether a combination passes; None if the filter raises."""
    try:
        return bool(len(filter_.passing(combination)))
    except PredicateError:
        return None


Truth = Literal["TRUE", "FALSE", "NULL", "undecided"]
"""What a conjunct answers; `undecided` where only Spark can tell."""


def truth(by: Evaluators, conjunct: Conjunct, combination: Partials) -> Truth:
    """Return what a conjunct answers for a combination, which may lack streams that it does not read.

    Args:
        by: What evaluates it.
        conjunct: The conjunct; the Python predicates that it calls are there.
        combination: A block of one.

    Raises:
        PredicateError: If it raises instead of an answer.
    """
    if conjunct.near:
        if not len(by.comparisons.possible(combination, conjunct)):
            read = by.reader.read(combination, conjunct.columns)
            return "NULL" if any(values.null_count for values in read.values()) else "FALSE"
        return "undecided" if len(by.comparisons.unsure(combination, conjunct)) else "TRUE"
    if conjunct.sql is None or (conjunct.unsure is not None and len(by.sql.unsure(combination, conjunct))):
        return "undecided"
    if len(by.sql.decided(combination, (conjunct,))):
        return "TRUE"
    unknown = replace(conjunct, sql=f"(({conjunct.sql}) IS NULL)", unsure=None)
    return "NULL" if len(by.sql.decided(combination, (unknown,))) else "FALSE"
