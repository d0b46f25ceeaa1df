"""The values that a conjunct compares, computed for some combinations, and as text.

A value whose last bits depend on Java is shown with few digits, but with enough to see why the conjunct holds or
doesn't.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.arguments import format_duration
from watersmeet.arrays import Floats
from watersmeet.formatting import abbreviate, value_at
from watersmeet.predicate.model import ComparedValue, ComparedValues, Conjunct, Relation
from watersmeet.probe.evaluators.duck import VALUE_ERRORS
from watersmeet.probe.evaluators.real_comparisons import Comparisons
from watersmeet.probe.partials import Partials
from watersmeet.query.query import Query

FEW_DIGITS, ALL_DIGITS = 6, 17
"""How many digits are shown of a value whose last ones are unknown, and how many a double has."""
LITERAL = re.compile(r"-?[\d.]+(e[+-]?\d+)?[a-z]*|r?'[^']*'|\w+|(interval|date|timestamp(_\w+)?) [^()]*", re.IGNORECASE)
"""A constant whose text shows its value."""

Render = Callable[[ComparedValue, pa.Array], str]
"""Renders a value, given as an array of one."""


@dataclass(frozen=True, slots=True)
class SideValues:
    """The values of one operand of a conjunct, for some combinations.

    Attributes:
        compared: The operand.
        values: Its values.
        radius: The largest distance of Spark's values; infinite if nothing is known.
    """

    compared: ComparedValue
    values: pa.Array
    radius: Floats

    @property
    def is_approximate(self) -> bool:
        """Whether the last bits may differ from Spark's."""
        return self.compared.term is not None

    def is_known(self, at: int) -> bool:
        """Tell whether the value of a combination is known."""
        return bool(np.isfinite(self.radius[at]))

    def plain(self, at: int) -> Any:
        """Return the value of a combination, for programs."""
        return value_at(self.values, at)


def side_values_of(comparisons: Comparisons, conjunct: Conjunct, block: Partials) -> list[SideValues]:
    """Return the values that a conjunct compares, except those that raise and those that only Spark computes."""
    operands = (_evaluate(comparisons, compared, block) for compared in conjunct.comparing.values)
    return [values for values in operands if values is not None]


def _evaluate(comparisons: Comparisons, compared: ComparedValue, block: Partials) -> SideValues | None:
    """Compute what a side of a comparison is for each row; None if only Spark can, or DuckDB raises."""
    if compared.term is not None:
        ball = comparisons.value(block, compared.term)
        value, radius, valid = (np.broadcast_to(part, len(block)) for part in (ball.value, ball.radius, ball.valid))
        return SideValues(compared, pa.array(value.astype(float), mask=~valid), radius)
    if compared.sql is None:
        return None
    columns, duck = comparisons.reader.read(block, compared.columns), comparisons.duck
    try:
        values = duck.values(columns, compared.sql, len(block))
        unsure = duck.values(columns, compared.unsure or "FALSE", len(block))
    except VALUE_ERRORS:
        return None
    return SideValues(compared, values, np.where(unsure.to_numpy(zero_copy_only=False), np.inf, 0.0))


def format_values(sides: Sequence[SideValues], at: int, render: Render) -> list[str]:
    """Return the operands of a conjunct as text, for one combination; empty if one of them is unknown.

    [!] Values that differ look different: `0.2, and it must be < 0.2` would not explain 0.2000001.

    Args:
        sides: The operands.
        at: The position of the combination.
        render: Renders exact values.
    """
    if not all(side.is_known(at) for side in sides):
        return []
    values = [side.plain(at) for side in sides]
    if None in values or not any(side.is_approximate for side in sides):
        return [_text(side, at, FEW_DIGITS, render) for side in sides]
    numbers, radii = [float(value) for value in values], [float(side.radius[at]) for side in sides]
    is_close = any(abs(numbers[0] - numbers[n]) <= radii[0] + radii[n] > 0 for n in range(1, len(sides)))
    for digits in range(FEW_DIGITS, ALL_DIGITS) if not is_close else ():
        texts = [_text(side, at, digits, render) for side in sides]
        pairs = zip(texts, sides, numbers, strict=True)
        shortened = [float(text) if side.is_approximate else number for text, side, number in pairs]
        if _order(shortened) == _order(numbers):
            return texts
    texts = [_text(side, at, FEW_DIGITS if is_close else ALL_DIGITS, render) for side in sides]
    ends = [", but for the last digits" if side.is_approximate else "" for side in sides]
    return [text + end for text, end in zip(texts, ends, strict=True)]


def _order(values: Sequence[float]) -> list[int]:
    """Return how the first value compares with each of the others."""
    return [(values[0] > other) - (values[0] < other) for other in values[1:]]


def format_plain(compared: ComparedValue, values: pa.Array) -> str:
    """Return a value, given as an array of one, as programs write it; long texts are cut off."""
    if compared.is_duration and values[0].is_valid:
        return format_duration(values[0].as_py())
    return str(value_at(values, 0))[:60]


def _text(side: SideValues, at: int, digits: int, render: Render) -> str:
    if side.is_approximate and side.values[at].is_valid:
        return _digits(side.plain(at), digits)
    return render(side.compared, side.values.slice(at, 1))


def _digits(value: float, digits: int) -> str:
    """Return a number with a number of significant digits.

    >>> _digits(0.2314567891, 6), _digits(1234567.8, 6), _digits(1.5e-12, 6)
    ('0.231457', '1234570', '1.5e-12')
    """
    shortened = float(f"{value:.{digits}g}")
    if shortened and not 1e-5 <= abs(shortened) < 1e15:
        return f"{shortened:.{digits}g}"
    return np.format_float_positional(shortened, trim="-")


# -- words


def describe_comparison(comparing: ComparedValues, texts: Sequence[str], names: Sequence[str]) -> str:
    """Return what a conjunct compares and what it requires; empty if the values of columns show it.

    Args:
        comparing: What it compares.
        texts: The operands, as text.
        names: The columns whose values are shown anyway.
    """
    values, relation = comparing.values, comparing.relation
    if not relation or len(texts) != len(values) or all(value.text in names or not value.columns for value in values):
        return ""
    parts = [_format_named(value, text) for value, text in zip(values, texts, strict=True)]
    if relation == "BETWEEN":
        return f"{parts[0]}, and it must lie between {parts[1]} and {parts[2]}"
    if not values[0].columns:
        parts, relation = parts[::-1], MIRRORED[relation]
    return f"{parts[0]}, and it must {ASKS[relation]} {parts[1]}"


MIRRORED: dict[Relation, Relation] = {
    **{"<": ">", "<=": ">=", ">": "<", ">=": "<="},
    **{"=": "=", "<>": "<>", "<=>": "<=>"},
}
ASKS: dict[Relation, str] = {
    **{"<": "be <", "<=": "be <=", ">": "be >", ">=": "be >="},
    **{"=": "equal", "<>": "differ from", "<=>": "equal"},
}


def _format_named(value: ComparedValue, text: str) -> str:
    if not value.columns and LITERAL.fullmatch(value.text):
        return value.text
    return f"{abbreviate(value.text)} = {text}"


def is_informative(query: Query, value: ComparedValue) -> bool:
    """Tell whether a value is worth showing beside the columns that users know: it is computed from columns."""
    return bool(value.columns) and not (value.is_column and query.is_named(value.columns[0]))
