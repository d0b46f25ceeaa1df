"""`spill=`: checks, and its weight and quotas resolved to columns and streams."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from watersmeet.errors import DefinitionError
from watersmeet.metadata.constraints import Clustering, FlaggedPunctuations, ForeignKey, Key, SortOrder
from watersmeet.predicate.model import Column
from watersmeet.predicate.types import spark_name
from watersmeet.query.query import Query
from watersmeet.runtime.tree import JoinTree
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spilling.options import Spill

LATE = "spilling changes when its results arrive; remove one of the two"
WORDS = {
    Key: "key(...)",
    SortOrder: "ordered(...)",
    Clustering: "clustered(...)",
    ForeignKey: "foreign_key(...)",
    FlaggedPunctuations: "punctuations=",
}


def with_weight(query: Query, spill: Spill | None) -> Query:
    """Return the join with the column by which spilling weighs tuples, if there is one.

    Raises:
        DefinitionError: If `spill` is no `wm.Spill`, or its weight is not a numeric column of a stream.
    """
    if spill is not None and not isinstance(spill, Spill):
        raise DefinitionError(f"spill={spill!r}: use wm.Spill(within='1 second') or wm.Spill(memory='2 GB').")
    if spill is None or spill.weight is None:
        return query
    stream, _, name = spill.weight.partition(".")
    for position, spec in enumerate(query.streams):
        names = [column.lower() for column in spec.schema.names]
        if spec.name.lower() != stream.lower():
            continue
        if name.lower() not in names:
            columns = ", ".join(spec.schema.names)
            raise DefinitionError(
                f"Spill(weight={spill.weight!r}): '{spec.name}' has no column '{name}'; it has {columns}."
            )
        column = Column(position, names.index(name.lower()))
        if not _is_number(query.type_of(column)):
            raise DefinitionError(
                f"Spill(weight={spill.weight!r}): the column is {spark_name(query.type_of(column))}, not a number."
            )
        return replace(query, weight=column)
    streams = ", ".join(f"'{spec.name}'" for spec in query.streams)
    raise DefinitionError(f"Spill(weight={spill.weight!r}): write it like 'a.priority'; the streams are {streams}.")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def quotas_of(spill: Spill, tree: JoinTree) -> dict[tuple[str, int], int]:
    """Return the quotas of streams, keyed by the path of the join and the position of the stream, in their order."""
    places = {
        stream.name.lower(): (join.path, at)
        for join in tree.walk()
        for at, stream in enumerate(join.operator.query.streams)
    }
    return {places[name.lower()]: quota for name, quota in (spill.quotas or {}).items()}


def check_spill(join: JoinDefinition) -> None:
    """Reject spilling where results depend on the timing of other results.

    Raises:
        DefinitionError: If they do, an inner join or a join with a table has `spill`, or a quota is for no stream.
    """
    joins = list(_walk(join))
    if any(inner.spill is not None for inner in joins[1:]):
        raise DefinitionError("spill= was given to an inner join: give it to the outermost join alone.")
    tables = [spec.name for one in joins for spec in one.query.streams if spec.table]
    if join.spill is not None and tables:
        raise DefinitionError(f"spill= can't be used with a table, '{tables[0]}', yet; leave one of the two out.")
    if join.spill is not None and join.spill.quotas is not None:
        names = {name.lower() for name, _ in join.stream_schemas}
        unknown = next((name for name in join.spill.quotas if name.lower() not in names), None)
        if unknown is not None:
            raise DefinitionError(f"Spill(quotas=...): there is no stream '{unknown}' in the join.")
    for outer in (one for one in joins if one.inner and join.spill is not None):
        _check_outer(outer)


def _walk(join: JoinDefinition) -> Iterator[JoinDefinition]:
    """Yield the joins of a tree, the outermost first."""
    yield join
    for inner in join.inner.values():
        yield from _walk(inner)


def _check_outer(join: JoinDefinition) -> None:
    """Raise DefinitionError if a join of joins relies on when, or in which order, inner results come."""
    for at, spec in enumerate(join.query.streams):
        if spec.window.rows is not None:
            raise DefinitionError(
                f"Stream '{spec.name}' has a count window in a join above another, and spill= changes in which order "
                "that one's results come: use a window of time, or leave spill= out."
            )
        for constraint in spec.constraints:
            if isinstance(constraint, ForeignKey) and constraint.parent.stream in join.inner:
                parent = join.query.streams[constraint.parent.stream].name
                says = f"foreign_key(...) of '{spec.name}' can't refer to '{parent}', a join, together with spill="
                raise DefinitionError(f"{says}: {LATE}.")
        if at not in join.inner:
            continue
        if spec.idle is not None:
            raise DefinitionError(f"idle= can't be used on '{spec.name}', a join, together with spill=: {LATE}.")
        if spec.nested is not None and (spec.nested.delayed or spec.nested.window is None):
            how = "delay=" if spec.nested.delayed else "A time that does not follow from the results' own"
            raise DefinitionError(f"{how} can't be used on '{spec.name}', a join, together with spill=: {LATE}.")
        for constraint in spec.constraints:
            if type(constraint) in WORDS:
                word = WORDS[type(constraint)]
                raise DefinitionError(f"{word} can't be used on '{spec.name}', a join, together with spill=: {LATE}.")
