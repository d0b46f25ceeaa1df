"""The question: tuples named by values of some of their columns, as a program or a command line gives them.

Values are converted to the types of their columns here, and compared as Spark compares them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from watersmeet.arrays import Mask
from watersmeet.errors import DefinitionError
from watersmeet.observe.why.answer import format_literal
from watersmeet.predicate.types import spark_name
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.query.query import Query, StreamSpec

Values = Mapping[str, Any] | str
"""Values by column, or a text such as `id = 17 AND zone = 'x'`."""
_FORM = "only equalities are taken, joined by AND"
_CONNECTIVE = re.compile(r"\s(and|or)\s", re.IGNORECASE)
"""What shows that a value was meant as a condition."""


@dataclass(frozen=True, slots=True)
class TupleSelector:
    """Selects the tuples of a stream that have certain values.

    Attributes:
        stream: The stream's position.
        values: The values by the positions of their columns, each in its column's type.
        text: The condition as people read it, such as `id = 17`.
    """

    stream: int
    values: Mapping[int, pa.Scalar]
    text: str

    def mask(self, columns: Mapping[int, pa.Array | pa.ChunkedArray]) -> Mask:
        """Return which rows have the values in these columns, of which there is at least one."""
        mask: Mask = np.logical_and.reduce([equals(values, self.values[at]) for at, values in columns.items()])
        return mask


def find_join(joins: Mapping[str, Query], values_by_stream: Mapping[str, Values]) -> str:
    """Return the path of the join in a tree that has all the streams of a question.

    Args:
        joins: The joins by path, the outermost first.
        values_by_stream: The question.

    Raises:
        DefinitionError: If no join has them all.
    """
    streams = {path: [stream.name for stream in query.streams] for path, query in joins.items()}
    for path, names in streams.items():
        if {name.lower() for name in values_by_stream} <= {name.lower() for name in names}:
            return path
    options = "; ".join(format_list(names) for names in streams.values())
    all_names = {name.lower() for names in streams.values() for name in names}
    unknown = [name for name in values_by_stream if name.lower() not in all_names]
    if unknown:
        raise DefinitionError(f"There is no stream '{unknown[0]}'; the streams are {options}.")
    in_question = format_list(list(values_by_stream))
    raise DefinitionError(f"{in_question} are not streams of one join; those of each are {options}.")


def parse_question(query: Query, values_by_stream: Mapping[str, Values], duck: Duck) -> tuple[TupleSelector, ...]:
    """Return the selectors of a question, in the order of the join's streams.

    Args:
        query: The join.
        values_by_stream: The values by which to find a tuple of each stream; `find_join` has checked the names.
        duck: Converts times given as text, in the session's time zone.

    Raises:
        DefinitionError: If no tuple is named, a column does not exist, or a value does not fit its column.
    """
    if not values_by_stream:
        raise DefinitionError(f"why() needs a tuple to ask about, such as why({query.streams[0].name}={{'id': 17}}).")
    positions = {stream.name.lower(): at for at, stream in enumerate(query.streams)}
    by_position = {positions[name.lower()]: values for name, values in values_by_stream.items()}
    return tuple(_build_selector(query.streams[at], at, by_position[at], duck) for at in sorted(by_position))


def _build_selector(spec: StreamSpec, at: int, text_or_pairs: Values, duck: Duck) -> TupleSelector:
    """Return the selector of one tuple, its values cast to the types of their columns.

    Raises:
        DefinitionError: If no value or an unknown column is named, or a value doesn't fit its column.
    """
    pairs = parse_values(spec.name, text_or_pairs) if isinstance(text_or_pairs, str) else text_or_pairs
    if not isinstance(pairs, Mapping) or not pairs:
        raise DefinitionError(
            f"{spec.name}: name the tuple by some of its values, such as {{'id': 17}} or 'id = 17'; got {pairs!r}."
        )
    fields = {_find_field(spec, name): value for name, value in pairs.items()}
    values = {field: _convert_to_column(spec, field, value, duck) for field, value in fields.items()}
    conditions = [f"{spec.schema.names[f]} {_format_condition(fields[f], value)}" for f, value in values.items()]
    return TupleSelector(at, values, " AND ".join(conditions))


def _format_condition(original: Any, value: pa.Scalar) -> str:
    """Return the condition on a column; times appear as they were entered."""
    if not value.is_valid:
        return "IS NULL"
    return f"= {original if pa.types.is_timestamp(value.type) else format_literal(value.as_py())}"


def parse_values(stream: str, text: str) -> dict[str, Any]:
    """Return the values by column in a text such as `id = 17 AND zone = 'x'`.

    Numbers and times stay text; booleans are Python's, and NULL is None.

    Raises:
        DefinitionError: If it is not of this form.
    """
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except sqlglot.errors.SqlglotError:
        raise _form_error(stream, text) from None
    whole = tree.unnest()
    conditions = [part.unnest() for part in whole.flatten()] if isinstance(whole, exp.And) else [whole]
    return dict(_parse_condition(stream, text, condition) for condition in conditions)


def _parse_condition(stream: str, text: str, condition: exp.Expr) -> tuple[str, Any]:
    """Return the column and value of a condition such as `id = 17`; see `parse_values`.

    Raises:
        DefinitionError: If it has another form, or names another stream.
    """
    column, value = condition.args.get("this"), condition.args.get("expression")
    if not isinstance(condition, exp.EQ | exp.Is) or not isinstance(column, exp.Column):
        raise _form_error(stream, text)
    if column.table and column.table.lower() != stream.lower():
        raise _form_error(stream, text)
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
    raise _form_error(stream, text)


def _form_error(stream: str, text: str) -> DefinitionError:
    return DefinitionError(f"{stream}: '{text}' is not of the form \"id = 17 AND zone = 'x'\": {_FORM}.")


def _find_field(spec: StreamSpec, name: str) -> int:
    """Return the position of a column, by its exact name or else regardless of case.

    Raises:
        DefinitionError: If there is not exactly one.
    """
    names = spec.schema.names
    own = [column for at, column in enumerate(names) if not (spec.table and at == spec.time)]
    alike = [at for at, column in enumerate(names) if column in own and column.lower() == str(name).lower()]
    exact = [at for at in alike if names[at] == name] or alike
    if len(exact) != 1:
        raise DefinitionError(
            f"{spec.noun.capitalize()} '{spec.name}' has no column '{name}'; it has {format_list(own)}."
        )
    return exact[0]


def format_list(names: Sequence[str]) -> str:
    """Return names as a list within a sentence.

    >>> format_list(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _convert_to_column(spec: StreamSpec, field: int, value: Any, duck: Duck) -> pa.Scalar:
    """Return a value converted to the type of its column.

    Raises:
        DefinitionError: If it doesn't fit, or values of the type can't be compared.
    """
    kind, column = spec.schema.field(field).type, f"{spec.name}.{spec.schema.field(field).name}"
    if value is not None and not is_comparable(kind):
        raise DefinitionError(
            f"{column} is of type {spark_name(kind)}, and maps can't be compared; name the tuple by other columns."
        )
    try:
        return convert_value(value, kind, duck)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        hint = f": {_FORM}" if isinstance(value, str) and _CONNECTIVE.search(value) else ""
        raise DefinitionError(
            f"{column} is of type {spark_name(kind)}, and {value!r} is no such value{hint}."
        ) from None


def is_comparable(kind: pa.DataType) -> bool:
    """Tell whether values of a type can be compared; as in Spark, types that contain maps can't."""
    if pa.types.is_map(kind):
        return False
    return all(is_comparable(kind.field(at).type) for at in range(kind.num_fields))


def convert_value(value: Any, kind: pa.DataType, duck: Duck) -> pa.Scalar:
    """Return a value converted to a type. Text is accepted for every type, as JSON for arrays and structs.

    Args:
        value: The value, as a program or a command line gives it.
        kind: The type.
        duck: Converts times given as text, in the session's time zone.

    Raises:
        ValueError: If the value does not fit the type; TypeError, OverflowError and Arrow's errors mean the same.
    """
    if value is None:
        return pa.scalar(None, kind)
    if pa.types.is_nested(kind):
        return pa.scalar(_convert_parts(json.loads(value) if isinstance(value, str) else value, kind, duck), kind)
    if pa.types.is_timestamp(kind) and isinstance(value, str | date):
        text = value.isoformat(" ") if isinstance(value, datetime) else str(value)
        sql = "TIMESTAMPTZ" if kind.tz is not None else "TIMESTAMP"
        return duck.cast(text, sql).cast(kind)
    if isinstance(value, float) and pa.types.is_integer(kind) and not value.is_integer():
        raise ValueError
    return pa.array([str(value) if pa.types.is_decimal(kind) else value]).cast(kind)[0]


def _convert_parts(value: Any, kind: pa.DataType, duck: Duck) -> Any:
    """Return an array or a struct as Arrow accepts it, with its parts converted.

    Raises:
        ValueError: If the value has another form; or as `convert_value` does, for a part.
    """
    if pa.types.is_struct(kind):
        fields = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
        parts = value if isinstance(value, Mapping) else dict(zip(fields, value, strict=True))
        if {*parts} != {*fields}:
            raise ValueError
        return {name: convert_value(parts[name], of, duck).as_py() for name, of in fields.items()}
    if not isinstance(value, Sequence | np.ndarray):
        raise ValueError
    return [convert_value(part, kind.value_type, duck).as_py() for part in value]


def equals(values: pa.Array | pa.ChunkedArray, value: pa.Scalar) -> Mask:
    """Return where values equal one: NaN equals NaN, as in Spark, and NULL equals NULL."""
    if not value.is_valid:
        matches = pc.is_null(values)
    elif pa.types.is_nested(values.type):
        return _parts_equal(values, value)
    elif pa.types.is_floating(values.type) and value.as_py() != value.as_py():
        matches = pc.is_nan(values)
    else:
        matches = pc.equal(values, value)
    return np.asarray(pc.fill_null(matches, False), bool)


def _parts_equal(values: pa.Array | pa.ChunkedArray, value: pa.Scalar) -> Mask:
    """Return where arrays or structs equal one, comparing each part only where those before it are equal."""
    struct = pa.types.is_struct(values.type)
    fits = pc.is_valid(values) if struct else pc.equal(pc.list_value_length(values), len(value))
    matches = np.flatnonzero(pc.fill_null(fits, False))
    for at in range(len(value)):
        rest = values.take(pa.array(matches))
        matches = matches[equals(pc.struct_field(rest, [at]) if struct else pc.list_element(rest, at), value[at])]
    return np.isin(np.arange(len(values)), matches)
