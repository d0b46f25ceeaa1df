"""What a condition can't do without: columns that, being NULL, keep it from being TRUE."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from watersmeet.spark.sql.catalyst import Part
from watersmeet.spark.sql.names import ATTRIBUTE, FUNCTION

COMPARISONS = {"EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"}
STRICT = {"Add", "Subtract", "Multiply", "Divide", "UnaryMinus", "Cast"}
"""What is NULL if something in it is."""


class Attribute(NamedTuple):
    """A column of a stream, both in small letters."""

    stream: str
    column: str


Resolve = Callable[[list[str]], Attribute | None]
"""Returns the column that a name means; None if that can't be told."""


def null_rejected(condition: Part, resolve: Resolve) -> frozenset[Attribute]:
    """Return columns whose NULL keeps a condition from being TRUE; there may be others."""
    return frozenset(_rejected(condition, resolve))


def _rejected(part: Part, resolve: Resolve) -> Iterator[Attribute]:
    if part.kind in COMPARISONS:
        for side in part.children:
            yield from _strict(side, resolve)
    elif part.kind in ("In", "IsNotNull") or _is_between(part):
        yield from _strict(part.children[0], resolve)
    elif part.kind == "Not" and (part.children[0].kind in {*COMPARISONS, "In"} or _is_between(part.children[0])):
        yield from _rejected(part.children[0], resolve)


def _strict(value: Part, resolve: Resolve) -> Iterator[Attribute]:
    """Yield columns whose NULL makes a value NULL."""
    if value.kind == ATTRIBUTE:
        attribute = resolve(value.names)
        yield from () if attribute is None else (attribute,)
    elif value.kind in STRICT or (value.kind == FUNCTION and value.names == ["abs"]):
        for child in value.children:
            yield from _strict(child, resolve)


def _is_between(part: Part) -> bool:
    return part.kind == FUNCTION and part.names == ["between"]
