"""From the text of `where` to its conjuncts."""

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from watersmeet.predicate.bounds import bounds_of
from watersmeet.predicate.conditions import flat
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.macros import NOT_SURE, PRELUDE
from watersmeet.predicate.model import Column, Conjunct, Dialect, PythonPredicate
from watersmeet.predicate.scope import Scope
from watersmeet.predicate.source import Node, Source
from watersmeet.predicate.text_bounds import text_bounds_of
from watersmeet.predicate.translate import Translator

__all__ = ["PRELUDE", "parse_where"]


def parse_where(
    text: str | None,
    streams: Sequence[tuple[str, pa.Schema]],
    predicates: Sequence[PythonPredicate],
    dialect: Dialect,
) -> tuple[Conjunct, ...]:
    """Split `where` into its conjuncts, in written order, each carried over to DuckDB.

    Args:
        text: The condition in Spark SQL; None or empty for a cross join.
        streams: The join's streams, name and schema, in their order.
        predicates: The Python predicates it may call.
        dialect: The Spark session's settings.

    Raises:
        SqlError: For text that is wrong or can't be carried over exactly; the span is underlined.
    """
    source = Source(text or "")
    tree = source.parse()
    if tree is None:
        return ()
    translator = Translator(source, Scope(streams), predicates, dialect)
    spans = source.clauses()
    return tuple(_conjunct(translator, node, span) for node, span in zip(flat(tree, exp.And), spans, strict=True))


def _conjunct(translator: Translator, node: Node, span: tuple[int, int]) -> Conjunct:
    source, first = translator.source, len(translator.calls)
    try:
        made = translator.boolean(node)
    except Refusal as refusal:
        raise source.error(refusal.problem, refusal.node or node) from None
    calls = tuple(translator.calls[first:])
    sql = f"(CASE WHEN {made.unsure} THEN {NOT_SURE} ELSE {made.sql} END)" if made.unsure else made.sql
    return Conjunct(
        text=source.text[slice(*span)],
        sql=sql,
        columns=tuple(sorted(made.columns)),
        calls=calls,
        bounds=() if calls else (*bounds_of(node, translator), *text_bounds_of(node, translator)),
        raises=made.raises or made.unsure is not None,
        equality=_equality(node.unnest(), translator),
    )


def _equality(node: Node, translator: Translator) -> tuple[Column, Column] | None:
    """Return the columns of a condition that is nothing but `column = column`."""
    if not isinstance(node, exp.EQ):
        return None
    sides = [translator.expr(side.unnest()) for side in (node.this, node.expression)]
    bare = [column for side in sides for column in side.columns if side.sql == column.name]
    return (bare[0], bare[1]) if len(bare) == 2 else None
