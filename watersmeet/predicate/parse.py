"""From the text of `where` to its conjuncts."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from sqlglot import exp

from watersmeet.predicate.bounds import bounds_of
from watersmeet.predicate.compared_terms import compared_values_of
from watersmeet.predicate.conditions import flatten
from watersmeet.predicate.constants import fixed_column_of
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.great_circles import great_circle_bounds_of
from watersmeet.predicate.macros import PRELUDE
from watersmeet.predicate.model import Column, ColumnOrder, Conjunct, Dialect, PythonPredicate
from watersmeet.predicate.scope import Scope
from watersmeet.predicate.source import Source, SqlNode
from watersmeet.predicate.terms import comparison_of
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
        SqlError: For text that is wrong or can't be translated exactly; the span is underlined.
    """
    source = Source(text or "")
    tree = source.parse()
    if tree is None:
        return ()
    translator = Translator(source, Scope(streams), predicates, dialect)
    clauses = zip(flatten(tree, exp.And), source.clauses(), strict=True)
    try:
        return tuple(conjunct(translator, node, source.text[slice(*span)]) for node, span in clauses)
    except Refusal as refusal:
        raise source.error(refusal.problem, refusal.node) from None


def conjunct(translator: Translator, node: SqlNode, text: str) -> Conjunct:
    """Carry one conjunct over to DuckDB.

    Raises:
        Refusal: If DuckDB can't answer as Spark does.
    """
    first = len(translator.calls)
    near = comparison_of(node, translator)
    if near is not None:
        columns = frozenset[Column]().union(*(comparison.columns for comparison in near))
        bounds = great_circle_bounds_of(node, translator)
        compared = compared_values_of(node, translator, near=near)
        return Conjunct(text, None, tuple(sorted(columns)), bounds=bounds, near=near, comparing=compared)
    made = translator.boolean(node)
    calls = tuple(translator.calls[first:])
    return Conjunct(
        text=text,
        sql=made.sql,
        columns=tuple(sorted(made.columns)),
        calls=calls,
        bounds=() if calls or made.unsure else (*bounds_of(node, translator), *text_bounds_of(node, translator)),
        raises=made.raises,
        equality=_equality(node.unnest(), translator),
        orders=tuple(_orders(node.unnest(), translator)),
        fixed=fixed_column_of(node.unnest(), translator, text),
        unsure=made.unsure,
        comparing=compared_values_of(node, translator, calls),
    )


def _equality(node: SqlNode, translator: Translator) -> tuple[Column, Column] | None:
    """Return the columns of a condition that is nothing but `column = column`."""
    return _bare(translator, node.this, node.expression) if isinstance(node, exp.EQ) else None


def _bare(translator: Translator, *sides: SqlNode) -> tuple[Column, Column] | None:
    """Return the columns that two sides are; None if one is more than a column."""
    made = [translator.expr(side.unnest()) for side in sides]
    bare = [column for side in made for column in side.columns if side.sql == column.name]
    return (bare[0], bare[1]) if len(bare) == 2 else None


def _orders(node: SqlNode, translator: Translator) -> Iterator[ColumnOrder]:
    """Yield what a condition says of the order of two columns."""
    if isinstance(node, exp.Between):
        limits = ((node.args["low"], node.this), (node.this, node.args["high"]))
        pairs = [(less, more, False) for less, more in limits]
    elif type(node) in _LESS:
        pairs = [(node.this, node.expression, type(node) is exp.LT)]
    elif type(node) in _MORE:
        pairs = [(node.expression, node.this, type(node) is exp.GT)]
    else:
        return
    for less, more, strict in pairs:
        if (found := _bare(translator, less, more)) is not None:
            yield ColumnOrder(*found, strict)


_LESS, _MORE = (exp.LT, exp.LTE), (exp.GT, exp.GTE)
