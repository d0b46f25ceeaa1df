"""The values that a conjunct compares, computed for some combinations, and in words.

A value whose last bits are Java's own is shown with few digits, but with as many as it takes to see why the conjunct
holds or doesn't.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arguments import format_duration
from watersmeet.formatting import abbreviate, value_at
from watersmeet.predicate.model import ComparedValue, ComparedValues, Conjunct, Relation
from watersmeet.probe.evaluators.duck import RAISED
from watersmeet.probe.evaluators.near import Comparisons
from watersmeet.probe.partials import Partials
from watersmeet.query.query import Query

FEW, ALL = 6, 17
"""How many digits are shown of a value whose last ones are not known, and how many a double has."""
LITERAL = re.compile(r"-?[\d.]+(e[+-]?\d+)?[a-z]*|r?'[^']*'|\w+|(interval|date|timestamp(_\w+)?) [^()]*", re.IGNORECASE)
"""A constant that shows its value itself."""

Render = Callable[[ComparedValue, pa.Array], str]
"""Returns the only one of some values as text."""


@dataclass(frozen=True, slots=True)
class Side:
    """A value that a conjunct compares, for some combinations.

    Attributes:
        compared: What it is.
        values: The values.
        radius: At most this far from them are Spark's; infinite where nothing is known.
    """

    compared: ComparedValue
    values: pa.Array
    radius: NDArray[np.float64]

    @property
    def near(self) -> bool:
        """Whether the last bits may be others."""
        return self.compared.term is not None

    def knows(self, at: int) -> bool:
        """Tell whether the value of a combination is known."""
        return bool(np.isfinite(self.radius[at]))

    def plain(self, at: int) -> Any:
        """Return the value of a combination, for programs."""
        return value_at(self.values, at)


def sides_of(comparisons: Comparisons, conjunct: Conjunct, block: Partials) -> list[Side]:
    """Return what a conjunct compares, but for what raises, and what only Spark computes."""
    found = (_side(comparisons, compared, block) for compared in conjunct.comparing.values)
    return [side for side in found if side is not None]


def _side(comparisons: Comparisons, compared: ComparedValue, block: Partials) -> Side | None:
    if compared.term is not None:
        ball = comparisons.value(block, compared.term)
        value, radius, valid = (np.broadcast_to(part, len(block)) for part in (ball.value, ball.radius, ball.valid))
        return Side(compared, pa.array(value.astype(float), mask=~valid), radius)
    if compared.sql is None:
        return None
    columns, duck = comparisons.reader.read(block, compared.columns), comparisons.duck
    try:
        values = duck.values(columns, compared.sql, len(block))
        unsure = duck.values(columns, compared.unsure or "FALSE", len(block))
    except RAISED:
        return None
    return Side(compared, values, np.where(unsure.to_numpy(zero_copy_only=False), np.inf, 0.0))


def texts_of(sides: Sequence[Side], at: int, render: Render) -> list[str]:
    """Return the values that a conjunct compares of a combination, as text; nothing if one of them is not known.

    [!] Values that differ look different: `0.2, and it must be < 0.2` says nothing of 0.2000001.

    Args:
        sides: The values.
        at: Which of the combinations.
        render: Shows values that are Spark's own.
    """
    if not all(side.knows(at) for side in sides):
        return []
    values = [side.plain(at) for side in sides]
    if None in values or not any(side.near for side in sides):
        return [_text(side, at, FEW, render) for side in sides]
    numbers, radii = [float(value) for value in values], [float(side.radius[at]) for side in sides]
    close = any(abs(numbers[0] - numbers[n]) <= radii[0] + radii[n] > 0 for n in range(1, len(sides)))
    for digits in range(FEW, ALL) if not close else ():
        texts = [_text(side, at, digits, render) for side in sides]
        shown = [float(text) if side.near else n for text, side, n in zip(texts, sides, numbers, strict=True)]
        if _order(shown) == _order(numbers):
            return texts
    texts = [_text(side, at, FEW if close else ALL, render) for side in sides]
    return [f"{text}, but for the last digits" if side.near else text for text, side in zip(texts, sides, strict=True)]


def _order(values: Sequence[float]) -> list[int]:
    """Return how the first value compares with each of the others."""
    return [(values[0] > other) - (values[0] < other) for other in values[1:]]


def plain_text(compared: ComparedValue, values: pa.Array) -> str:
    """Return the only one of some values as programs write it, cut off where that is long."""
    if compared.is_duration and values[0].is_valid:
        return format_duration(values[0].as_py())
    return str(value_at(values, 0))[:60]


def _text(side: Side, at: int, digits: int, render: Render) -> str:
    if side.near and side.values[at].is_valid:
        return _digits(side.plain(at), digits)
    return render(side.compared, side.values.slice(at, 1))


def _digits(value: float, digits: int) -> str:
    """Return a number with some digits.

    >>> _digits(0.2314567891, 6), _digits(1234567.8, 6), _digits(1.5e-12, 6)
    ('0.231457', '1234570', '1.5e-12')
    """
    rounded = float(f"{value:.{digits}g}")
    if rounded and not 1e-5 <= abs(rounded) < 1e15:
        return f"{rounded:.{digits}g}"
    return np.format_float_positional(rounded, trim="-")


# -- words


def sentence(comparing: ComparedValues, texts: Sequence[str], names: Sequence[str]) -> str:
    """Return what a conjunct compares, and what it asks for; empty if the values of columns alone say it.

    Args:
        comparing: What it compares.
        texts: The values, as text.
        names: The columns whose values are shown anyway.
    """
    values, relation = comparing.values, comparing.relation
    if not relation or len(texts) != len(values) or all(value.text in names or not value.columns for value in values):
        return ""
    shown = [_named(value, text) for value, text in zip(values, texts, strict=True)]
    if relation == "BETWEEN":
        return f"{shown[0]}, and it must lie between {shown[1]} and {shown[2]}"
    if not values[0].columns:
        shown, relation = shown[::-1], MIRRORED[relation]
    return f"{shown[0]}, and it must {ASKS[relation]} {shown[1]}"


MIRRORED: dict[Relation, Relation] = {
    **{"<": ">", "<=": ">=", ">": "<", ">=": "<="},
    **{"=": "=", "<>": "<>", "<=>": "<=>"},
}
ASKS: dict[Relation, str] = {
    **{"<": "be <", "<=": "be <=", ">": "be >", ">=": "be >="},
    **{"=": "equal", "<>": "differ from", "<=>": "equal"},
}


def _named(value: ComparedValue, text: str) -> str:
    if not value.columns and LITERAL.fullmatch(value.text):
        return value.text
    return f"{abbreviate(value.text)} = {text}"


def is_telling(query: Query, value: ComparedValue) -> bool:
    """Tell whether a value is worth showing beside the columns that users know: it is computed from some."""
    return bool(value.columns) and not (value.is_column and query.is_named(value.columns[0]))
