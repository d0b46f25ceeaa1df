"""What is asked: tuples by the values of some of their columns, as a program or a command line gives them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp

from watersmeet.errors import DefinitionError
from watersmeet.observe.why.answer import shown_value
from watersmeet.observe.why.values import converted, is_comparable, same
from watersmeet.predicate.type_names import spark_name
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.query.query import Query, StreamSpec

Values = Mapping[str, Any] | str
"""Values by column, or a text such as `id = 17 AND zone = 'x'`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The tuples of a stream that have some values.

    Attributes:
        stream: The stream's position.
        values: The values by the positions of their columns, each in its column's type.
        text: The same as people read it.
    """

    stream: int
    values: Mapping[int, pa.Scalar]
    text: str

    def mask(self, columns: Mapping[int, pa.Array | pa.ChunkedArray]) -> NDArray[np.bool_]:
        """Return which rows have the values of those columns that are given; there is at least one."""
        found = [same(values, self.values[field]) for field, values in columns.items()]
        every: NDArray[np.bool_] = np.logical_and.reduce(found)
        return every


def chosen(joins: Mapping[str, Query], given: Mapping[str, Values]) -> str:
    """Return where the join of a tree stands that has all the streams that are asked about.

    Args:
        joins: The joins, by where they stand; the outermost first.
        given: What is asked, by stream.

    Raises:
        DefinitionError: If there is none.
    """
    streams = {path: [stream.name for stream in query.streams] for path, query in joins.items()}
    for path, names in streams.items():
        if {name.lower() for name in given} <= {name.lower() for name in names}:
            return path
    known = "; ".join(listed(names) for names in streams.values())
    unknown = [name for name in given if name.lower() not in {n.lower() for names in streams.values() for n in names}]
    if unknown:
        raise DefinitionError(f"There is no stream '{unknown[0]}'; the streams are {known}.")
    raise DefinitionError(f"{listed(list(given))} are not streams of one join; those of each are {known}.")


def asked(query: Query, given: Mapping[str, Values], duck: Duck) -> tuple[Asked, ...]:
    """Return what is asked of a join, in the order of its streams.

    Args:
        query: The join.
        given: For each stream that is asked about the values by which to find its tuple.
        duck: Reads values that are given as text: in the session's time zone.

    Raises:
        DefinitionError: If there is no such stream or column, or a value is none of its type.
    """
    if not given:
        raise DefinitionError(f"why() needs a tuple to ask about, such as why({query.streams[0].name}={{'id': 17}}).")
    positions = {stream.name.lower(): at for at, stream in enumerate(query.streams)}
    made = {positions[name.lower()]: values for name, values in given.items()}
    return tuple(_of_stream(query.streams[at], at, made[at], duck) for at in sorted(made))


def _of_stream(spec: StreamSpec, at: int, given: Values, duck: Duck) -> Asked:
    pairs = parsed(spec.name, given) if isinstance(given, str) else given
    if not isinstance(pairs, Mapping) or not pairs:
        raise DefinitionError(
            f"{spec.name}: name the tuple by some of its values, such as {{'id': 17}} or 'id = 17'; got {given!r}."
        )
    fields = {_field(spec, name): value for name, value in pairs.items()}
    values = {field: _typed(spec, field, value, duck) for field, value in fields.items()}
    shown = [f"{spec.schema.names[f]} {_shown(fields[f], value)}" for f, value in values.items()]
    return Asked(at, values, " AND ".join(shown))


def _shown(given: Any, value: pa.Scalar) -> str:
    """Return what a value is compared with, as people read it."""
    if not value.is_valid:
        return "IS NULL"
    return f"= {given if pa.types.is_timestamp(value.type) else shown_value(value.as_py())}"


def parsed(stream: str, text: str) -> dict[str, Any]:
    """Return the values by column in a text such as `id = 17 AND zone = 'x'`.

    Raises:
        DefinitionError: If it is not of this form.
    """
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except sqlglot.errors.SqlglotError:
        raise _not_simple(stream, text) from None
    bare = tree.unnest()
    parts = [part.unnest() for part in bare.flatten()] if isinstance(bare, exp.And) else [bare]
    return dict(_pair(stream, text, part) for part in parts)


def _pair(stream: str, text: str, part: exp.Expr) -> tuple[str, Any]:
    column, value = part.args.get("this"), part.args.get("expression")
    if not isinstance(part, exp.EQ | exp.Is) or not isinstance(column, exp.Column):
        raise _not_simple(stream, text)
    if column.table and column.table.lower() != stream.lower():
        raise _not_simple(stream, text)
    match value:
        case exp.Null():
            return column.name, None
        case exp.Boolean():
            return column.name, bool(value.this)
        case exp.Literal():
            return column.name, str(value.this)
        case exp.Neg(this=exp.Literal()):
            return column.name, f"-{value.this.this}"
        case exp.Cast(this=exp.Literal()):  # TIMESTAMP '2026-01-01 12:00:00'
            return column.name, str(value.this.this)
    raise _not_simple(stream, text)


def _not_simple(stream: str, text: str) -> DefinitionError:
    return DefinitionError(f"{stream}: '{text}' is not of the form \"id = 17 AND zone = 'x'\".")


def _field(spec: StreamSpec, name: str) -> int:
    own = [known for at, known in enumerate(spec.schema.names) if not (spec.table and at == spec.time)]
    same = [at for at, known in enumerate(spec.schema.names) if known in own and known.lower() == str(name).lower()]
    exact = [at for at in same if spec.schema.names[at] == name] or same
    if len(exact) != 1:
        raise DefinitionError(f"{spec.noun.capitalize()} '{spec.name}' has no column '{name}'; it has {listed(own)}.")
    return exact[0]


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _typed(spec: StreamSpec, field: int, value: Any, duck: Duck) -> pa.Scalar:
    """Return a value in the type of its column."""
    kind, column = spec.schema.field(field).type, f"{spec.name}.{spec.schema.field(field).name}"
    if value is not None and not is_comparable(kind):
        raise DefinitionError(
            f"{column} is of type {spark_name(kind)}, and maps can't be compared; name the tuple by other columns."
        )
    try:
        return converted(value, kind, duck)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        raise DefinitionError(f"{column} is of type {spark_name(kind)}, and {value!r} is no such value.") from None
