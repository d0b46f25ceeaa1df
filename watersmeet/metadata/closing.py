"""When a stream is closed for a partial result: the closing rules that follow from conjuncts and constraints."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from watersmeet.caching import cached_property
from watersmeet.metadata.closing_rules import (
    ClosingRule,
    ColumnEnd,
    ColumnLimitRule,
    ComputedBoundRule,
    ComputedEnd,
    ConstantEnd,
    End,
    Frontier,
    IntervalRule,
    PinRule,
    extreme_value,
    is_computable,
)
from watersmeet.metadata.constraints import Clustering, Constraint, Key, PunctuationScheme, SortOrder, fields_of
from watersmeet.metadata.denial import shape_of
from watersmeet.predicate.conjunct_values import value_of
from watersmeet.predicate.model import Column
from watersmeet.probe.ranges import columns_of
from watersmeet.query.query import Query

Pin = tuple[ColumnEnd | ConstantEnd, str]
"""What a column must equal, and the text of the conjuncts that require it."""
ConjunctEnd = tuple[End, str]
"""An end of an interval in which a column must lie, and the conjunct that requires it; empty for the end of a type."""


class ClosingRules:
    """All rules by which the streams of a join are closed.

    Args:
        query: The join.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._equal = EqualityClasses(query)
        streams = range(len(query.streams))
        self._frontier_rules_of = {at: [*self._frontier_rules(at)] for at in streams}
        self._rules: dict[tuple[int, frozenset[int]], list[ClosingRule]] = {}

    def rules_for(self, stream: int, joined: Collection[int]) -> list[ClosingRule]:
        """Return the rules by which a stream is closed for partial results over the joined streams; remembers them."""
        key = stream, frozenset(joined)
        if key not in self._rules:
            by_frontier = [
                rule
                for rule in self._frontier_rules_of[stream]
                if all(column.stream in joined for column in rule.columns)
            ]
            self._rules[key] = [*by_frontier, *self._mark_rules(stream, joined)]
        return self._rules[key]

    def constrains(self, column: Column, constraint: Constraint) -> bool:
        """Tell whether `where` pins a column of a constraint or, if the constraint denies ranges, bounds it."""
        others = [at for at in self._frontier_rules_of if at != column.stream]
        return all(self._interval_ends(column, others, self._has_ranges(column, constraint)))

    def _has_ranges(self, column: Column, constraint: Constraint) -> bool:
        """Tell whether a mark may cover more than one value of a column."""
        shape = shape_of(self._query, (column.stream, constraint))
        return shape.uses_spans or shape.ranges[fields_of(constraint).index(column.field)]

    def can_have_dead_rows(self, stream: int) -> bool:
        """Tell whether tuples of a stream can ever be dead: a stream is closed for them alone, or none is awaited."""
        others = self.awaited_streams((stream,))
        return not others or any(self.rules_for(other, (stream,)) for other in others)

    def awaited_streams(self, joined: Collection[int]) -> list[int]:
        """Return the streams whose tuples may still complete partial results over the joined ones; tables never do.

        The rows of a table precede all tuples or are read again, and trigger no results in either case.
        """
        return [at for at, spec in enumerate(self._query.streams) if at not in joined and not spec.table]

    @cached_property
    def relevant_columns(self) -> tuple[frozenset[Column], ...]:
        """For each stream the columns that decide whether its tuples are dead; tuples that agree in them are alike."""
        read = {column for rules in self._frontier_rules_of.values() for rule in rules for column in rule.columns}
        plain = {c for conjunct in self._query.conjuncts if not conjunct.calls for c in conjunct.columns}
        streams = range(len(self._query.streams))
        return tuple(frozenset(c for c in read | plain if c.stream == at) for at in streams)

    def _frontiers(self, stream: int) -> Iterator[Frontier]:
        """Yield the frontiers of a stream: event time, orders, hidden columns that are one of these plus a constant."""
        spec = self._query.streams[stream]
        own = [Frontier(Column(stream, spec.time))]
        orders = [constraint for constraint in spec.constraints if isinstance(constraint, SortOrder)]
        own += [Frontier(Column(stream, order.field), order.falling, (stream, order)) for order in orders]
        yield from own
        for at, hidden in enumerate(spec.hidden, len(spec.schema)):
            for frontier in own if hidden.moved is not None else ():
                if hidden.moved is not None and frontier.column.field == hidden.moved[0]:
                    yield replace(frontier, column=Column(stream, at), moved=hidden.moved[1])

    def _frontier_rules(self, stream: int) -> Iterator[ClosingRule]:
        """Yield the rules that compare limits of a column with its frontier, per conjunct only the most exact ones."""
        for frontier in self._frontiers(stream):
            exact = set[str]()
            for limit, strict, text in self._order_limits(frontier):
                if limit.stream != stream and self._query.type_of(limit) == self._query.type_of(frontier.column):
                    exact.add(text)
                    yield ColumnLimitRule(stream, (text,), frontier, limit, strict)
            for limit, micros, text in self._time_limits(frontier) if frontier.by_time else ():
                if text not in exact:
                    exact.add(text)
                    yield ColumnLimitRule(stream, (text,), replace(frontier, moved=-micros), limit, strict=False)
            for conjunct in self._query.conjuncts:
                for bound in conjunct.lasting_bounds if conjunct.text not in exact else ():
                    end = bound.low if frontier.falling else bound.high
                    # A condition over this stream alone depends on no member.
                    if bound.column == frontier.column and end is not None and columns_of([bound]):
                        yield ComputedBoundRule(stream, (conjunct.text,), frontier, bound)

    def _order_limits(self, frontier: Frontier) -> Iterator[tuple[Column, bool, str]]:
        """Yield the columns that limit a frontier's column on its denied side, and whether they do so strictly."""
        for conjunct in self._query.conjuncts:
            for order in conjunct.orders:
                mine, limit = (order.more, order.less) if frontier.falling else (order.less, order.more)
                if mine == frontier.column:
                    yield limit, order.strict, conjunct.text
        for equal, text in self._equal.equal_columns(frontier.column):
            yield equal, False, text

    def _time_limits(self, frontier: Frontier) -> Iterator[tuple[Column, int, str]]:
        """Yield the event times that a stream's own exceeds at most by a constant, and the constant in microseconds.

        [!] A condition that may raise excludes nothing before it has been evaluated.
        """
        for conjunct in self._query.conjuncts:
            cannot_raise = not conjunct.raises and not self._query.fallible_columns.intersection(conjunct.columns)
            for gap in conjunct.gaps if cannot_raise else ():
                if gap.later == frontier.column.stream and frontier.column.field == self._time(gap.later):
                    yield Column(gap.earlier, self._time(gap.earlier)), gap.micros, conjunct.text

    def _time(self, stream: int) -> int:
        return self._query.streams[stream].time

    def _mark_rules(self, stream: int, joined: Collection[int]) -> Iterator[ClosingRule]:
        """Yield the rules that depend on marks: each column of the constraint is pinned, or lies in an interval."""
        for constraint in self._query.streams[stream].constraints:
            if not isinstance(constraint, Key | Clustering | PunctuationScheme):
                continue
            columns = [Column(stream, field) for field in fields_of(constraint)]
            pins = [pin for column in columns if (pin := self._find_pin(column, joined)) is not None]
            sides = [self._interval_ends(column, joined, self._has_ranges(column, constraint)) for column in columns]
            if len(pins) == len(columns):
                yield PinRule(stream, _texts(pins), (stream, constraint), tuple(end for end, _ in pins))
            elif all(lows and highs for lows, highs in sides):
                between = tuple((_drop_texts(lows), _drop_texts(highs)) for lows, highs in sides)
                texts = _texts(end for pair in sides for side in pair for end in side)
                yield IntervalRule(stream, texts, (stream, constraint), between)

    def _interval_ends(
        self, column: Column, joined: Collection[int], wide: bool
    ) -> tuple[list[ConjunctEnd], list[ConjunctEnd]]:
        """Return the lower ends of the interval in which a column must lie, and the upper ones.

        Both are empty if the column has no pin nor, where `wide`, a bound.

        Args:
            column: The column.
            joined: The streams from whose columns the ends may be computed.
            wide: Whether marks may cover more than one value.
        """
        pin = self._find_pin(column, joined)
        if pin is not None:
            return [pin], [pin]
        lows, highs = ([*self._ends_from_conjuncts(column, joined, upper)] if wide else [] for upper in (False, True))
        if not lows and not highs:
            return [], []
        kind = self._query.type_of(column)
        return lows or _outermost_end(kind, False), highs or _outermost_end(kind, True)

    def _ends_from_conjuncts(self, column: Column, joined: Collection[int], upper: bool) -> Iterator[ConjunctEnd]:
        """Yield the lower or the upper ends that follow from conjuncts and can be computed from the joined streams."""
        kind = self._query.type_of(column)
        for conjunct in self._query.conjuncts:
            pairs = [(o.less, o.more, o.strict) if upper else (o.more, o.less, o.strict) for o in conjunct.orders]
            ends: list[End] = [
                ColumnEnd(limit, strict * (-1 if upper else 1))
                for mine, limit, strict in pairs
                if mine == column and limit.stream != column.stream and self._query.type_of(limit) == kind
            ]
            if not ends and is_computable(kind):
                bounds = [bound for bound in conjunct.lasting_bounds if bound.column == column]
                ends += [ComputedEnd(b, upper, kind) for b in bounds if (b.high if upper else b.low) is not None]
            yield from ((end, conjunct.text) for end in ends if all(read.stream in joined for read in end.columns))

    def _find_pin(self, column: Column, joined: Collection[int]) -> "Pin | None":
        """Return the constant or else the member's column that a column must equal; None if there is neither."""
        if (constant := self._equal.find_constant(column)) is not None:
            return ConstantEnd(constant[0]), constant[1]
        equal = self._equal.find_equal_column(column, joined)
        return None if equal is None else (ColumnEnd(equal[0]), equal[1])


class EqualityClasses:
    """Classes of columns that must be equal.

    Columns of a class have the same type, since 2^53 and 2^53 + 1 equal the same double.

    Args:
        query: The join.
    """

    def __init__(self, query: Query) -> None:
        self._class: dict[Column, frozenset[Column]] = {}
        self._texts: dict[frozenset[Column], str] = {}
        self._constants = {f.column: (value_of(f, query.type_of(f.column)), f.text) for f in query.fixed_columns}
        for conjunct in query.conjuncts:
            pair = conjunct.equality
            if pair is None or query.type_of(pair[0]) != query.type_of(pair[1]):
                continue
            before = [self._class.get(column, frozenset({column})) for column in pair]
            together = before[0] | before[1]
            texts = [self._texts[part] for part in dict.fromkeys(before) if part in self._texts]
            self._texts[together] = " AND ".join([*texts, conjunct.text])
            self._class |= dict.fromkeys(together, together)

    def equal_columns(self, column: Column) -> Iterator[tuple[Column, str]]:
        """Yield the columns of other streams that must equal a column, and the conjuncts that require it."""
        members = self._class.get(column, frozenset())
        for other in sorted(members):
            if other.stream != column.stream:
                yield other, self._texts[members]

    def find_equal_column(self, column: Column, streams: Collection[int]) -> tuple[Column, str] | None:
        """Return a column of these streams that must equal a column, and the conjuncts that require it, or None."""
        return next((equal for equal in self.equal_columns(column) if equal[0].stream in streams), None)

    def find_constant(self, column: Column) -> tuple[pa.Scalar, str] | None:
        """Return the constant that a column must equal, and the conjuncts that require it; None if there is none.

        A constant of any column in its class counts.
        """
        if column in self._constants:
            return self._constants[column]
        same = self._class.get(column, frozenset())
        for value, text in (self._constants[other] for other in sorted(same & self._constants.keys())):
            return value, f"{self._texts[same]} AND {text}"
        return None


def _outermost_end(kind: pa.DataType, upper: bool) -> list[ConjunctEnd]:
    """Return the end of a type as the end of an interval; empty if it can't be used as one."""
    value = extreme_value(kind, upper)
    return [] if value is None else [(ConstantEnd(value), "")]


def _drop_texts(ends: Iterable[ConjunctEnd]) -> tuple[End, ...]:
    return tuple(end for end, _ in ends)


def _texts(ends: Iterable[ConjunctEnd]) -> tuple[str, ...]:
    """Return the conjuncts that require these ends, each once."""
    return tuple(dict.fromkeys(text for _, text in ends if text))
