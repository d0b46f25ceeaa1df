"""Promises in words: as the description of a query has them, and as people are told of them."""

from collections.abc import Callable

import pyarrow as pa

from watersmeet.arguments import format_seconds
from watersmeet.metadata.constraints import Clustered, ForeignKey, Inherited, Key, Ordered, Pattern, Promise, Punctuated
from watersmeet.predicate.model import Column

Name = Callable[[Column], str]


def described(stream: int, promise: Promise, name: Name, type_of: Callable[[Column], pa.DataType]) -> str:
    """Return what a stream promises, in words that are the same for the same promise only.

    Args:
        stream: The stream's position.
        promise: The promise.
        name: Returns a column as the user writes it.
        type_of: Returns a column's type.
    """
    match promise:
        case Key(fields):
            return f"key ({', '.join(name(Column(stream, field)) for field in fields)})"
        case Clustered(field, slack):
            return f"{name(Column(stream, field))} clustered, slack {slack}"
        case Ordered(field, falling):
            column = Column(stream, field)
            return f"{name(column)} {'falling' if falling else 'rising'}, slack {_slack(promise, type_of(column))}"
        case ForeignKey(field, parent):
            return f"foreign key ({name(Column(stream, field))}) references {name(parent)}"
        case Punctuated(flag, patterns, effect):
            on = " and ".join(_pattern(stream, pattern, name) for pattern in patterns)
            return f"{name(Column(stream, flag))} on {on}, effect by {effect}"
        case Inherited(_, fields, ranges):
            named = zip((name(Column(stream, field)) for field in fields), ranges, strict=True)
            return f"those of the join itself on {' and '.join(f'ranges of {n}' if r else n for n, r in named)}"


def _slack(promise: Ordered, kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return format_seconds(int(promise.slack))
    return f"{promise.slack} days" if pa.types.is_date(kind) else str(promise.slack)


def _pattern(stream: int, pattern: Pattern, name: Name) -> str:
    own, low, high = (name(Column(stream, at)) for at in (pattern.field, pattern.low, pattern.high))
    if not pattern.constant:
        return f"{own} between {low} and {high}"
    return own if pattern.field == pattern.low else f"{own} = {low}"
