"""The ways to know that a stream is closed for a partial result: all its rows that conjuncts would admit are denied.

Leaving out conjuncts only enlarges what could match, so every way is sound by itself. See docs/metadata.md.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.arrays import Mask
from watersmeet.metadata.constraints import Clustering, FlaggedPunctuations, InheritedPunctuations, Key
from watersmeet.metadata.denial import Denied, Source, fields_of
from watersmeet.metadata.interval_ends import At, Constant, End, Values
from watersmeet.predicate.model import Bound, Column
from watersmeet.predicate.numbers import numbers
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.ranges import columns_of, ranges
from watersmeet.query.query import Query
from watersmeet.query.windows import FOREVER, NEVER


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

    @property
    @abstractmethod
    def rests_on(self) -> Source | None:
        """The promise that it rests on; None for the watermark."""


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

    @property
    def by_time(self) -> bool:
        """Whether it is that of the event time itself, which the watermark moves."""
        return self.source is None and not self.moved

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

    @property
    def rests_on(self) -> Source | None:
        """The promised order; None for the watermark."""
        return self.frontier.source


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

    @property
    def rests_on(self) -> Source | None:
        """The promised order; None for the watermark."""
        return self.frontier.source


@dataclass(frozen=True, slots=True)
class Marked(Way):
    """All that the conjuncts would admit was marked as denied.

    Attributes:
        source: The promise.
    """

    source: Source

    def describe(self, query: Query) -> str:
        """Return what closes the stream, for people."""
        names = {
            Key: "the key",
            Clustering: "the runs",
            FlaggedPunctuations: "punctuations",
            InheritedPunctuations: "the join's punctuations",
        }
        columns = ", ".join(query.name_of(Column(self.stream, at)) for at in fields_of(self.source[1]))
        return f"{_quoted(self.because)} and {names[type(self.source[1])]} of {columns}"

    @property
    def rests_on(self) -> Source:
        """The promise."""
        return self.source


@dataclass(frozen=True, slots=True)
class Pinned(Marked):
    """Members' columns and constants say which values a row must have, and these are denied.

    Attributes:
        pins: For each column of the promise the column or the constant that it must equal.
    """

    pins: tuple[At | Constant, ...]

    @property
    def reads(self) -> tuple[Column, ...]:
        """The pins that are columns."""
        return tuple(dict.fromkeys(column for pin in self.pins for column in pin.reads))

    def closed(self, values: Values, rows: int, denied: Denied, duck: Duck) -> Mask:
        """Look the values up in all tables of marks."""
        if not denied.marks.get(self.source):
            return np.zeros(rows, bool)
        given = [pin.values(values, rows, duck) for pin in self.pins]
        return np.asarray(denied.find(self.source, given)[1] >= 0)


@dataclass(frozen=True, slots=True)
class Within(Marked):
    """The intervals in which a row's values must lie are denied as a whole.

    Attributes:
        between: For each column of the promise the lower ends of its interval, and the upper ones; one or more of each.
    """

    between: tuple[tuple[tuple[End, ...], tuple[End, ...]], ...]

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that the ends are made of."""
        ends = (end for sides in self.between for side in sides for end in side)
        return tuple(dict.fromkeys(column for end in ends for column in end.reads))

    def closed(self, values: Values, rows: int, denied: Denied, duck: Duck) -> Mask:
        """Look the intervals up; the narrowest, between the last lower end and the first upper one, is among them."""
        found = np.zeros(rows, bool)
        if denied.marks.get(self.source):
            made = {end: end.values(values, rows, duck) for sides in self.between for side in sides for end in side}
            for chosen in product(*(product(*sides) for sides in self.between)):
                lows, highs = zip(*chosen, strict=True)
                found |= denied.holds(self.source, [made[end] for end in lows], [made[end] for end in highs])
        return found


def _later(time: pa.Scalar, micros: int) -> pa.Scalar | None:
    """Return a timestamp moved by some microseconds; None where there are no such times."""
    moved = time.cast(pa.int64()).as_py() + micros
    return pa.scalar(moved, pa.int64()).cast(time.type) if NEVER <= moved <= FOREVER else None


def _quoted(texts: tuple[str, ...]) -> str:
    return " and ".join(f"`{text}`" for text in texts)


def _true(found: pa.Array) -> Mask:
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask
