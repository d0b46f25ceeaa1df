"""From the text of `where` to its conjuncts, by a fixed sequence of passes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from watersmeet.predicate.bounds import bounds_of, text_bounds_of
from watersmeet.predicate.conditions import flatten
from watersmeet.predicate.conjunct_values import compared_values_of, equality_of, fixed_column_of, orders_of
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.great_circles import great_circle_bounds_of
from watersmeet.predicate.model import Column, Conjunct, Dialect, PythonPredicate
from watersmeet.predicate.numeric import numeric_comparisons_of
from watersmeet.predicate.scope import Scope
from watersmeet.predicate.source import Source, SqlNode
from watersmeet.predicate.terms import comparison_of
from watersmeet.predicate.translate import Translator


def parse_where(
    text: str | None,
    streams: Sequence[tuple[str, pa.Schema]],
    predicates: Sequence[PythonPredicate],
    dialect: Dialect,
) -> tuple[Conjunct, ...]:
    """Split `where` into its conjuncts, in written order, each translated to DuckDB's SQL.

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
        return tuple(parse_conjunct(translator, node, source.text[slice(*span)]) for node, span in clauses)
    except Refusal as refusal:
        raise source.error(refusal.problem, refusal.node) from None


def parse_conjunct(translator: Translator, node: SqlNode, text: str) -> Conjunct:
    """Translate one conjunct to DuckDB's SQL, with all that is known of it; adds its calls to the translator's.

    Raises:
        Refusal: If DuckDB can't answer as Spark does.
    """
    conjunct = Conjunct(text, None, ())
    for run in PASSES:
        conjunct = run(conjunct, node, translator)
    return conjunct


def _read_comparisons(conjunct: Conjunct, node: SqlNode, translator: Translator) -> Conjunct:
    """Return the conjunct with its comparisons and columns, if it consists of ones whose last bits are Java's own."""
    near = comparison_of(node, translator) or ()
    columns = frozenset[Column]().union(*(comparison.columns for comparison in near))
    return replace(conjunct, near=near, columns=tuple(sorted(columns)))


def _translate(conjunct: Conjunct, node: SqlNode, translator: Translator) -> Conjunct:
    """Return the conjunct with its SQL, unless it consists of such comparisons; adds its calls to the translator's.

    Raises:
        Refusal: If DuckDB can't answer as Spark does.
    """
    if conjunct.near:
        return conjunct
    first = len(translator.calls)
    expr = translator.boolean(node)
    return replace(
        conjunct,
        sql=expr.sql,
        columns=tuple(sorted(expr.columns)),
        calls=tuple(translator.calls[first:]),
        raises=expr.raises,
        unsure=expr.unsure,
    )


def _find_bounds(conjunct: Conjunct, node: SqlNode, translator: Translator) -> Conjunct:
    """Return the conjunct with its access paths: none where Python or Spark must see the rows that they would skip."""
    if conjunct.near:
        return replace(conjunct, bounds=great_circle_bounds_of(node, translator))
    if conjunct.calls or conjunct.unsure:
        return conjunct
    return replace(conjunct, bounds=(*bounds_of(node, translator), *text_bounds_of(node, translator)))


def _read_numbers(conjunct: Conjunct, node: SqlNode, translator: Translator) -> Conjunct:
    """Return the conjunct with the comparisons of numbers that it is, if it is nothing else and can't raise."""
    if conjunct.near or conjunct.calls or conjunct.unsure or conjunct.raises:
        return conjunct
    return replace(conjunct, numeric=numeric_comparisons_of(node, translator))


def _compare_columns(conjunct: Conjunct, node: SqlNode, translator: Translator) -> Conjunct:
    """Return the conjunct with what it requires of bare columns: an equality, orders, or one value."""
    if conjunct.near:
        return conjunct
    bare = node.unnest()
    return replace(
        conjunct,
        equality=equality_of(bare, translator),
        orders=tuple(orders_of(bare, translator)),
        fixed=fixed_column_of(bare, translator, conjunct.text),
    )


def _describe_values(conjunct: Conjunct, node: SqlNode, translator: Translator) -> Conjunct:
    """Return the conjunct with the values that people ask for."""
    return replace(conjunct, comparing=compared_values_of(node, translator, conjunct.calls, conjunct.near))


PASSES: tuple[Callable[[Conjunct, SqlNode, Translator], Conjunct], ...] = (
    _read_comparisons,
    _translate,
    _find_bounds,
    _read_numbers,
    _compare_columns,
    _describe_values,
)
"""What is done with each conjunct, in this order; a pass relies on those before it."""
