"""What a conjunct answers for one combination: TRUE, FALSE or NULL."""

from dataclasses import replace
from typing import Literal

from watersmeet.predicate.model import Conjunct
from watersmeet.probe.filters import Evaluators
from watersmeet.probe.partials import Partials

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
