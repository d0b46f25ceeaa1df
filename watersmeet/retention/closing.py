"""When a stream is closed for a partial result: all its rows that the conjuncts would admit are denied.

Each way to know that is an object: which members it looks at, and of which of them the stream is closed for. Leaving
out conjuncts only enlarges what could match, so every way is sound by itself. See docs/metadata.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.kernel.duck import Duck
from watersmeet.kernel.ranges import columns_of, ranges
from watersmeet.model.metadata import Clustered, Inherited, Key, Ordered, Punctuated, Speaking
from watersmeet.model.query import Query
from watersmeet.model.windows import FOREVER, NEVER
from watersmeet.predicate.constants import value_of
from watersmeet.predicate.model import Bound, Column
from watersmeet.retention.denied import Denied, Source, fields_of
from watersmeet.state.numbers import numbers

Mask = NDArray[np.bool_]
Values = Mapping[Column, pa.Array]


@dataclass(frozen=True, slots=True)
class Way(ABC):
    """A way in which a stream is closed.

    Attributes:
        stream: The stream.
        because: The conjuncts that it rests on, for people.
    """

    stream: int
    because: tuple[str, ...]

    @property
    @abstractmethod
    def reads(self) -> tuple[Column, ...]:
        """The members' columns that it looks at."""

    @abstractmethod
    def closed(self, values: Values, rows: int, denied: Denied, duck: Duck) -> Mask:
        """Tell for which partial results the stream is closed.

        Args:
            values: The members' columns that it reads.
            rows: How many partial results there are.
            denied: What was denied so far.
            duck: What evaluates expressions.
        """

    @abstractmethod
    def describe(self, query: Query) -> str:
        """Return what closes the stream, for people."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """A column of a stream all of whose values on one side of a frontier are denied.

    Attributes:
        column: The column.
        falling: Whether what is denied lies above the frontier.
        source: The promise that denies; None for the watermark.
        moved: By how many microseconds the column lies after the one that the frontier is of.
    """

    column: Column
    falling: bool = False
    source: Source | None = None
    moved: int = 0

    def value(self, denied: Denied) -> pa.Scalar | None:
        """Return the frontier; None before there is one."""
        found = denied.times.get(self.column.stream) if self.source is None else denied.frontiers.get(self.source)
        return found if found is None or not self.moved else _later(found, self.moved)

    def describe(self, query: Query) -> str:
        """Return what moves it, for people."""
        return "the watermark" if self.source is None else f"the order of {query.name_of(self.column)}"


@dataclass(frozen=True, slots=True)
class Limited(Way):
    """A member's column limits one of the stream's, and the limit lies where everything is denied.

    Attributes:
        frontier: The frontier.
        limit: The member's column: no row beyond it is admitted.
        strict: Whether rows at the limit are not admitted either.
    """

    frontier: Frontier
    limit: Column
    strict: bool

    @property
    def reads(self) -> tuple[Column, ...]:
        """The limit."""
        return (self.limit,)

    def closed(self, values: Values, rows: int, denied: Denied, duck: Duck) -> Mask:
        """[!] A frontier denies what is below it, never what is at it: y <= limit needs limit < frontier."""
        limits, frontier = values[self.limit], self.frontier.value(denied)
        if frontier is None:
            return np.zeros(rows, bool)
        found = _true(_TESTS[self.frontier.falling, self.strict](limits, frontier))
        if self.frontier.falling and pa.types.is_floating(limits.type):
            return found | _true(pc.is_nan(limits))  # above every frontier
        return found

    def describe(self, query: Query) -> str:
        """Return what closes the stream, for people."""
        return f"{_quoted(self.because)} and {self.frontier.describe(query)}"


_TESTS = {
    (False, False): pc.less,
    (False, True): pc.less_equal,
    (True, False): pc.greater,
    (True, True): pc.greater_equal,
}
"""Of a limit and a frontier, by whether denied values lie above it, and whether the limit itself is admitted."""


@dataclass(frozen=True, slots=True)
class Bounded(Way):
    """A bound computed from members' columns lies where everything is denied; in doubles, with room for rounding.

    Attributes:
        frontier: The frontier.
        bound: The bound.
    """

    frontier: Frontier
    bound: Bound

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that the bound is computed from."""
        return tuple(sorted(columns_of([self.bound])))

    def closed(self, values: Values, rows: int, denied: Denied, duck: Duck) -> Mask:
        """[!] Both ends were rounded outwards, and the frontier is rounded inwards: what is close is not closed."""
        frontier = self.frontier.value(denied)
        table = {column.name: values[column] for column in self.reads}
        asked = ranges(duck, table, [self.bound], rows)
        if frontier is None or not asked:
            return np.zeros(rows, bool)
        at = float(numbers(pa.repeat(frontier, 1))[0])
        if self.frontier.falling:
            return np.asarray(asked[0].low > np.nextafter(at, np.inf))
        return np.asarray(asked[0].high < np.nextafter(at, -np.inf))

    def describe(self, query: Query) -> str:
        """Return what closes the stream, for people."""
        return f"{_quoted(self.because)} and {self.frontier.describe(query)}"


@dataclass(frozen=True, slots=True)
class Pinned(Way):
    """Members' columns and constants say which values a row must have, and these are denied.

    Attributes:
        pins: For each column of the promise the constant or the member's column that it must equal.
        source: The promise.
    """

    pins: tuple[Column | pa.Scalar, ...]
    source: Source

    @property
    def reads(self) -> tuple[Column, ...]:
        """The pins that are columns."""
        return tuple(dict.fromkeys(pin for pin in self.pins if isinstance(pin, Column)))

    def closed(self, values: Values, rows: int, denied: Denied, duck: Duck) -> Mask:
        """Look the values up in all tables of marks."""
        if not denied.marks.get(self.source):
            return np.zeros(rows, bool)
        given = [values[pin] if isinstance(pin, Column) else pa.repeat(pin, rows) for pin in self.pins]
        return np.asarray(denied.find(self.source, given)[1] >= 0)

    def describe(self, query: Query) -> str:
        """Return what closes the stream, for people."""
        names = {
            Key: "the key",
            Clustered: "the runs",
            Punctuated: "punctuations",
            Inherited: "the join's punctuations",
        }
        columns = ", ".join(query.name_of(Column(self.stream, at)) for at in fields_of(self.source[1]))
        return f"{_quoted(self.because)} and {names[type(self.source[1])]} of {columns}"


class Closings:
    """All ways in which the streams of a join are closed.

    Args:
        query: The join.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._equal = Classes(query)
        streams = range(len(query.streams))
        self._limits = {at: [*self._limiting(at)] for at in streams}

    def ways(self, stream: int, joined: Collection[int]) -> list[Way]:
        """Return the ways in which a stream is closed for partial results over some others."""
        found: list[Way] = [way for way in self._limits[stream] if all(column.stream in joined for column in way.reads)]
        return [*found, *self._pinned(stream, joined)]

    def fixed(self, column: Column) -> bool:
        """Tell whether a constant pins a column."""
        return self._equal.constant(column) is not None

    def possible(self, stream: int) -> bool:
        """Tell whether a tuple of a stream can ever be dead: some other stream may be closed for it alone."""
        return any(self.ways(other, (stream,)) for other in self._limits if other != stream)

    @cached_property
    def relevant(self) -> tuple[frozenset[Column], ...]:
        """For each stream the columns by which its tuples are shown to be dead: those alike in them are dead alike."""
        read = {column for ways in self._limits.values() for way in ways for column in way.reads}
        plain = {c for conjunct in self._query.conjuncts if not conjunct.calls for c in conjunct.columns}
        streams = range(len(self._query.streams))
        return tuple(frozenset(c for c in read | plain if c.stream == at) for at in streams)

    def _frontiers(self, stream: int) -> Iterator[Frontier]:
        spec = self._query.streams[stream]
        own = [Frontier(Column(stream, spec.time))]
        orders = [promise for promise in spec.promises if isinstance(promise, Ordered)]
        own += [Frontier(Column(stream, order.field), order.falling, (stream, order)) for order in orders]
        yield from own
        for at, hidden in enumerate(spec.hidden, len(spec.schema)):
            for frontier in own if hidden.moved is not None else ():
                if hidden.moved is not None and frontier.column.field == hidden.moved[0]:
                    yield replace(frontier, column=Column(stream, at), moved=hidden.moved[1])

    def _limiting(self, stream: int) -> Iterator[Way]:
        """Yield the ways that rest on limits of a column."""
        for frontier in self._frontiers(stream):
            exact = set[str]()
            for limit, strict, text in self._beside(frontier):
                if limit.stream != stream and self._query.type_of(limit) == self._query.type_of(frontier.column):
                    exact.add(text)
                    yield Limited(stream, (text,), frontier, limit, strict)
            for conjunct in self._query.conjuncts:
                for bound in conjunct.bounds if conjunct.text not in exact else ():
                    end = bound.low if frontier.falling else bound.high
                    # A condition over the stream alone is bound by no member.
                    if bound.column == frontier.column and end is not None and columns_of([bound]):
                        yield Bounded(stream, (conjunct.text,), frontier, bound)

    def _beside(self, frontier: Frontier) -> Iterator[tuple[Column, bool, str]]:
        """Yield the columns that limit one from the side on which values are denied, and whether they are strict."""
        for conjunct in self._query.conjuncts:
            for order in conjunct.orders:
                mine, limit = (order.more, order.less) if frontier.falling else (order.less, order.more)
                if mine == frontier.column:
                    yield limit, order.strict, conjunct.text
        for equal, text in self._equal.others(frontier.column):
            yield equal, False, text

    def _pinned(self, stream: int, joined: Collection[int]) -> Iterator[Way]:
        for promise in self._query.streams[stream].promises:
            fields = fields_of(promise) if isinstance(promise, Key | Clustered | Speaking) else ()
            found = [self._pin(Column(stream, field), joined) for field in fields]
            known = [pin for pin in found if pin is not None]
            if fields and len(known) == len(fields):
                texts = tuple(dict.fromkeys(text for _, text in known))
                yield Pinned(stream, texts, tuple(pin for pin, _ in known), (stream, promise))

    def _pin(self, column: Column, joined: Collection[int]) -> "tuple[Column | pa.Scalar, str] | None":
        """Return the constant that a column must equal, or else a member's column; None if there is neither."""
        return self._equal.constant(column) or self._equal.among(column, joined)


class Classes:
    """Columns that must be equal, in classes; of one type only, since 2^53 and 2^53 + 1 equal the same double."""

    def __init__(self, query: Query) -> None:
        self._class: dict[Column, frozenset[Column]] = {}
        self._texts: dict[frozenset[Column], str] = {}
        self._constants = {f.column: (value_of(f, query.type_of(f.column)), f.text) for f in query.fixed}
        for conjunct in query.conjuncts:
            pair = conjunct.equality
            if pair is None or query.type_of(pair[0]) != query.type_of(pair[1]):
                continue
            before = [self._class.get(column, frozenset({column})) for column in pair]
            together = before[0] | before[1]
            known = [self._texts[part] for part in dict.fromkeys(before) if part in self._texts]
            self._texts[together] = " AND ".join([*known, conjunct.text])
            self._class |= dict.fromkeys(together, together)

    def others(self, column: Column) -> Iterator[tuple[Column, str]]:
        """Yield the columns of other streams that must equal one, and by which conjuncts."""
        found = self._class.get(column, frozenset())
        for other in sorted(found):
            if other.stream != column.stream:
                yield other, self._texts[found]

    def among(self, column: Column, streams: Collection[int]) -> tuple[Column, str] | None:
        """Return a column of some streams that must equal one, and by which conjuncts; None if there is none."""
        return next((found for found in self.others(column) if found[0].stream in streams), None)

    def constant(self, column: Column) -> tuple[pa.Scalar, str] | None:
        """Return the constant that a column must equal, and by which conjuncts; None if there is none.

        A constant of any column of its class is one of its own.
        """
        if column in self._constants:
            return self._constants[column]
        same = self._class.get(column, frozenset())
        for value, text in (self._constants[other] for other in sorted(same & self._constants.keys())):
            return value, f"{self._texts[same]} AND {text}"
        return None


def _later(time: pa.Scalar, micros: int) -> pa.Scalar | None:
    """Return a timestamp moved by some microseconds; None where there are no such times."""
    moved = time.cast(pa.int64()).as_py() + micros
    return pa.scalar(moved, pa.int64()).cast(time.type) if NEVER <= moved <= FOREVER else None


def _quoted(texts: tuple[str, ...]) -> str:
    return " and ".join(f"`{text}`" for text in texts)


def _true(found: pa.Array) -> Mask:
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask
