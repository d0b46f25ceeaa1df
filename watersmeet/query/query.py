"""A join: streams, windows, conjuncts, output. Immutable, and free of Spark."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from watersmeet.arguments import format_seconds
from watersmeet.caching import cached_property
from watersmeet.errors import DefinitionError
from watersmeet.metadata.constraints import (
    Constraint,
    ForeignKey,
    InheritedPunctuations,
    PunctuationScheme,
    describe_constraint,
    fields_read_by,
)
from watersmeet.predicate.model import Column, Conjunct, Dialect, FixedColumn, HiddenColumn, PythonPredicate
from watersmeet.predicate.numbers import can_hash, has_numbers
from watersmeet.predicate.types import spark_name
from watersmeet.query import cases
from watersmeet.query.windows import Sliding, Window

TRACE_TYPE = pa.list_(pa.int64())
"""The type of a trace: codes of the groups that a result came from, of the join itself and then of those within it."""
How = Literal["inner", "left", "semi", "anti", "full", "asof", "asof left"]
"""How a stream is joined: with a tuple in every result; with one if there is one; if there is one; if there is none;
with one if there is one, its tuples without a match having results of their own; with the newest no later than the
others, in every result or if there is one."""
DelayFrom = Literal["given", "watermark", "windows", "conditions"]
"""Where a stream's delay comes from: the user, its frame's watermark, the largest window, conditions on event times."""
Tracing = Literal["none", "pending", "results"]
"""What carries traces: nothing; combinations that Spark must decide; results as well."""


@dataclass(frozen=True, slots=True)
class NestedTimes:
    """How the event times of a stream that is itself a join follow from that join's watermark.

    Attributes:
        window: The window in that join of the member whose event time they are, `OWN_TIME` if they are the results'
            own, or None if they are something else.
        delayed: Whether the user set a delay of the stream.
        waits: If results of that join wait for partners, for each of its `sides` the windows of the required streams.
    """

    window: Window | None
    delayed: bool
    waits: tuple[tuple[Window, ...], ...] = ()

    def bound(self, mark: int | None) -> int | None:
        """Return the earliest time that a later result may have; None if unbounded.

        Args:
            mark: The join's watermark or, if results wait for partners, the time before which deadlines have passed.
        """
        if mark is None or self.window is None or self.window.span is None:
            return None
        earliest = [max(_earliest_time(window, mark) for window in side) for side in self.waits]
        return _earliest_time(self.window, min(earliest, default=mark))


def _earliest_time(window: Window, high: int) -> int:
    return int(window.earliest(np.array([high]))[0])


OWN_TIME = Sliding(1)
"""A window that admits only tuples of the result's own time."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One stream of a join.

    Attributes:
        name: Its name in `where` and in the results.
        schema: Its columns.
        time: The position of the event-time column.
        window: Which of its tuples a result admits.
        delay: How far behind its latest event time a tuple may arrive, in microseconds.
        idle: After how long a silence it no longer holds back the watermark, in microseconds; None for never.
        hidden: Columns computed from these at intake; their positions follow those of the schema.
        tests: Conjuncts over this stream alone, tested at intake; a tuple that fails one is not stored.
        nested: How its times follow from its join, if the stream is one.
        ahead: How far an event time may lie ahead of the clock and of all streams, in microseconds; None for any.
        constraints: What limits which of its rows can still come.
        table: Whether it is a table: all its rows come in the first batch, at a time before any other.
        refreshed: Whether it is a table that is read for each batch, and its rows replaced.
        derived: Whether its window follows from conditions on event times.
        delay_from: Where its delay comes from.
    """

    name: str
    schema: pa.Schema
    time: int
    window: Window
    delay: int
    idle: int | None = None
    hidden: tuple[HiddenColumn, ...] = ()
    tests: "tuple[Test, ...]" = ()
    nested: NestedTimes | None = None
    ahead: int | None = None
    constraints: tuple[Constraint, ...] = ()
    table: bool = False
    refreshed: bool = False
    derived: bool = False
    delay_from: DelayFrom = "given"

    def __post_init__(self) -> None:
        """Raise DefinitionError if the time column is no timestamp."""
        kind = self.schema.field(self.time).type
        if not pa.types.is_timestamp(kind):
            raise DefinitionError(
                f"Stream '{self.name}': its time column '{self.schema.field(self.time).name}' is of type "
                f"{spark_name(kind)}; an event time is a timestamp or timestamp_ntz: cast the column first."
            )

    def watermark(self, latest: int | None, inner: int | None) -> int | None:
        """Return the stream's watermark, in microseconds; None if there is none yet.

        Args:
            latest: Its latest event time.
            inner: If it is a join, how far that has come; see `NestedTimes.bound`.
        """
        own = None if latest is None else latest - self.delay
        if self.nested is None:
            return own
        marks = [self.nested.bound(inner), own if self.nested.delayed else None]
        return max((mark for mark in marks if mark is not None), default=None)

    @property
    def inherited_punctuations(self) -> frozenset[tuple[int, int]]:
        """The punctuations that it inherits from its join; see `Inherited`."""
        return frozenset(
            constraint.source for constraint in self.constraints if isinstance(constraint, InheritedPunctuations)
        )

    @property
    def columns(self) -> list[pa.Field]:
        """Its columns for users: without the time of a table's rows."""
        return [field for at, field in enumerate(self.schema) if not (self.table and at == self.time)]

    @property
    def noun(self) -> str:
        """`table` or `stream`, for messages."""
        return "table" if self.table else "stream"

    @property
    def time_type(self) -> pa.DataType:
        """The type of the event time."""
        return self.schema.field(self.time).type


@dataclass(frozen=True, slots=True)
class Test:
    """A conjunct over one stream alone, as hidden columns.

    Attributes:
        holds: The position of the column with its answer.
        failed: The position of the column that is TRUE where computing it raised; None if it can't.
        fixed: The column and its one value, if it is nothing but that equality.
    """

    holds: int
    failed: int | None = None
    fixed: FixedColumn | None = None


NAME = re.compile(r"[\w`]+(\.[\w`]+)*")
"""A column, or a field of one, as users write it."""
RESULT_TIME = Column(-1, 0)
"""A result's own time, `_time`, in a SELECT list."""


@dataclass(frozen=True, slots=True)
class Output:
    """A flat output column: its name and the column it shows."""

    name: str
    column: Column


@dataclass(frozen=True)
class Query:
    """A join, checked and ready to run.

    Attributes:
        streams: In the user's order; a stream is identified by its position.
        conjuncts: The conjuncts of `where`.
        where: The text of `where`, for people.
        outputs: The flat columns of a SELECT list; empty for one struct column per stream and `_time`.
        predicates: The Python predicates that `where` calls.
        dialect: The session settings on which expressions depend.
        select: The text of the SELECT list, for people.
        meaning: `where` as Spark reads it.
        careful: The conjuncts as they are decided if computing a hidden column raised for some tuple,
            including those tested at intake; empty if none can raise.
        flags: The hidden columns that are TRUE for such tuples.
        weight: The column by which spilling ranks results.
        tracing: What carries the groups of its members: where spilling ranks the groups of a tree of joins, the results
            of inner joins, and at the root what Spark must decide. Users never see traces.
        how: How each stream is joined; empty if all are required.
        filter: A condition on results with their optional streams, NULL where they lack one; Spark decides it.
    """

    streams: tuple[StreamSpec, ...]
    conjuncts: tuple[Conjunct, ...] = ()
    where: str = ""
    outputs: tuple[Output, ...] = ()
    predicates: tuple[PythonPredicate, ...] = ()
    dialect: Dialect = field(default_factory=Dialect)
    select: str = ""
    meaning: str = ""
    careful: tuple[Conjunct, ...] = ()
    flags: tuple[Column, ...] = ()
    weight: Column | None = None
    tracing: Tracing = "none"
    how: tuple[How, ...] = ()
    filter: str = ""

    def __post_init__(self) -> None:
        """Raise DefinitionError if the streams, by their number, names or types of event time, can't be joined."""
        names = [stream.name for stream in self.streams]
        if len(names) < 2:
            raise DefinitionError("A join needs at least two streams, or a stream and a table.")
        if all(stream.table for stream in self.streams):
            raise DefinitionError("A join needs a stream beside its tables; join tables alone with Spark itself.")
        twice = next((name for at, name in enumerate(names) if name.lower() in map(str.lower, names[:at])), None)
        if twice is not None:
            raise DefinitionError(f"Two streams are called '{twice}'; give each a name of its own.")
        zoned = {stream.time_type.tz is not None for stream in self.streams}
        if len(zoned) > 1:
            raise DefinitionError(
                "Event times of timestamp and timestamp_ntz can't be mixed in one join; cast them to one of the two."
            )

    # -- optional streams

    @cached_property
    def members(self) -> tuple[int, ...]:
        """The streams that every result has a tuple of."""
        return tuple(at for at in range(len(self.streams)) if at not in self.optional)

    @cached_property
    def optional(self) -> dict[int, How]:
        """The streams that results may lack or don't show, and how they are joined."""
        return {at: how for at, how in enumerate(self.how) if how != "inner"}

    @cached_property
    def nullable_streams(self) -> frozenset[int]:
        """The streams that results may lack."""
        return frozenset(range(len(self.streams))) if self.is_full else frozenset(self.optional)

    @cached_property
    def hidden_streams(self) -> frozenset[int]:
        """The streams that results don't show: those of semi and anti joins."""
        return frozenset(at for at, how in self.optional.items() if how in ("semi", "anti"))

    @cached_property
    def as_of_streams(self) -> frozenset[int]:
        """The streams of which only the newest partner counts that isn't later than the combination."""
        return frozenset(at for at, how in self.optional.items() if how in ("asof", "asof left"))

    @cached_property
    def closes_at_its_time(self) -> bool:
        """Whether a combination is closed once the watermark has passed its own time, as later partners don't count."""
        return bool(self.optional) and self.as_of_streams == self.optional.keys()

    @cached_property
    def hashed_streams(self) -> frozenset[int]:
        """The streams that are stored with content hashes, which order tuples of equal times."""
        return self.as_of_streams.union(self.counted_streams)

    @cached_property
    def emits_combinations(self) -> bool:
        """Whether combinations of all streams are results, emitted at once."""
        return not self.optional or [*self.optional.values()] in (["left"], ["full"])

    @cached_property
    def sides(self) -> "tuple[Query, ...]":
        """The joins whose combinations may lack partners: this one and, for a full join, its mirror image.

        Empty if all streams are required.
        """
        if not self.is_full:
            return (self,) if self.optional else ()
        mirrored: dict[How, How] = {"inner": "full", "full": "inner"}
        return self, replace(self, how=tuple(mirrored[how] for how in self.how))

    def as_left_join(self, streams: Collection[int]) -> "Query":
        """Return a full join as the left join from one of some streams, which describes all results that have it.

        Any other join is returned as it is.
        """
        if not self.is_full:
            return self
        (first,) = self.members if self.members[0] in streams else self.optional
        return replace(self, how=tuple("inner" if at == first else "left" for at in range(len(self.streams))))

    @cached_property
    def waits(self) -> tuple[tuple[Window, ...], ...]:
        """For each of its sides the windows whose end results without a partner wait for; empty if none wait."""
        if [*self.optional.values()] == ["semi"]:
            return ()
        if self.closes_at_its_time:
            return ((OWN_TIME,),)
        return tuple(tuple(self.streams[at].window for at in side.members) for side in self.sides)

    @cached_property
    def is_full(self) -> bool:
        """Whether it is a full outer join: each of its two streams has results without the other."""
        return "full" in self.how

    def kind_of(self, at: int) -> str:
        """Describe a stream: its window, or that it is a table, and how it is joined."""
        stream = self.streams[at]
        own = stream.window.describe() if not stream.table else f"table{', refreshed' if stream.refreshed else ''}"
        return f"{own}, {self.optional[at]}" if at in self.optional else own

    # -- columns

    @cached_property
    def stored_columns(self) -> tuple[tuple[Column, ...], ...]:
        """For each stream the columns that state keeps: those that predicates or the output need, without the time."""
        return self._by_stream(self.needed_columns)

    @cached_property
    def needed_columns(self) -> frozenset[Column]:
        """Every column that a conjunct reads or the output shows."""
        conjuncts = (*self.conjuncts, *self.careful)
        read = {column for conjunct in conjuncts for column in conjunct.columns} | {*self.output_columns}
        return frozenset(read if self.weight is None else read | {self.weight})

    @cached_property
    def indexed_columns(self) -> tuple[tuple[Column, ...], ...]:
        """For each stream the columns that an access path may look up."""
        return self._by_stream({bound.column for conjunct in self.conjuncts for bound in conjunct.bounds})

    @cached_property
    def zoned_columns(self) -> tuple[tuple[Column, ...], ...]:
        """For each stream the columns with zone maps: those that access paths look up or are computed from."""
        bounds = [bound for conjunct in self.conjuncts for bound in conjunct.bounds]
        columns = {column for bound in bounds for column in (bound.column, *bound.columns)}
        columns |= self.needed_columns.intersection(self.flags) | ({self.weight} if self.weight is not None else set())
        return self._by_stream({column for column in columns if has_numbers(self.type_of(column))})

    def _by_stream(self, columns: Collection[Column]) -> tuple[tuple[Column, ...], ...]:
        """Return the columns of each stream, without its time."""
        return tuple(
            tuple(sorted(c for c in columns if c.stream == position and c.field != stream.time))
            for position, stream in enumerate(self.streams)
        )

    @cached_property
    def output_columns(self) -> tuple[Column, ...]:
        """The columns that the output shows."""
        if self.outputs:
            return tuple(dict.fromkeys(o.column for o in self.outputs if o.column != RESULT_TIME))
        return tuple(
            Column(position, field)
            for position, stream in enumerate(self.streams)
            for field in range(len(stream.schema) if position not in self.hidden_streams else 0)
        )

    @cached_property
    def equalities(self) -> tuple[tuple[Column, Column], ...]:
        """The pairs of columns of two streams that must be equal, and whose values hash alike."""
        pairs = (conjunct.equality for conjunct in self.conjuncts if conjunct.equality is not None)
        return tuple(
            (one, two)
            for one, two in pairs
            if one.stream != two.stream
            and not {one, two} & self.fallible_columns
            and not (self.is_time(one) or self.is_time(two))
            and can_hash(self.type_of(one), self.type_of(two))
        )

    @cached_property
    def fixed_columns(self) -> tuple[FixedColumn, ...]:
        """The columns that have one value in every result."""
        tests = (test.fixed for stream in self.streams for test in stream.tests)
        all_fixed = (*tests, *(conjunct.fixed for conjunct in self.conjuncts))
        return tuple(fixed for fixed in all_fixed if fixed is not None)

    @cached_property
    def required_columns(self) -> tuple[tuple[Column, ...], ...]:
        """For each stream the columns whose NULL keeps a tuple out of every result: those of equalities.

        [!] Not those that may lack a value because computing it raised. All tuples of a count window are stored, since
        their ordinals count what is stored. An equality with an optional stream keeps out only tuples of that stream,
        and in a full join none.
        """
        pairs = [conjunct.equality for conjunct in self.conjuncts if conjunct.equality is not None]
        apart = [{c for c in pair if c.stream in self.optional} or {*pair} for pair in pairs if not self.is_full]
        by_stream = self._by_stream(frozenset[Column]().union(*apart) - self.fallible_columns)
        return tuple(() if at in self.counted_streams else columns for at, columns in enumerate(by_stream))

    @cached_property
    def fallible_columns(self) -> frozenset[Column]:
        """Hidden columns that may lack a value because computing it raised: those before their flags."""
        return frozenset(Column(flag.stream, flag.field - 1) for flag in self.flags)

    # -- what Spark must decide

    @cached_property
    def deferred_conjuncts(self) -> tuple[Conjunct, ...]:
        """The conjuncts that Spark decides for combinations left open here, in this order: those that may raise last.

        [!] While one of them is open for a combination, none that may raise can be decided. They are the careful ones,
        if any: Spark need not know whether computing a hidden column raised for some tuple.
        """
        conjuncts = self.careful or self.conjuncts
        if all(conjunct.exact for conjunct in conjuncts):
            return ()
        cannot_raise = [c for c in conjuncts if not (c.exact or c.opaque or c.raises)]
        return (*cannot_raise, *(c for c in conjuncts if c.opaque or c.raises))

    @cached_property
    def needs_spark(self) -> bool:
        """Whether Spark must decide every combination."""
        return any(conjunct.opaque for conjunct in self.conjuncts)

    @cached_property
    def pending_schema(self) -> pa.Schema:
        """The schema of combinations that Spark must decide: the output, and what deferred conjuncts read."""
        columns = sorted({column for conjunct in self.deferred_conjuncts for column in conjunct.columns})
        fields = [pa.field(column.name, self.type_of(column)) for column in columns]
        calls = [pa.field(call.name, pa.bool_()) for conjunct in self.deferred_conjuncts for call in conjunct.calls]
        output = [pa.field(f"o{at}", field.type) for at, field in enumerate(self.traced_schema)]
        case = [
            *(cases.FIELDS if self.optional else ()),
            *(cases.AS_OF_FIELDS if self.as_of_streams else ()),
        ]
        return pa.schema([*output, *fields, *calls, *case])

    def careful_query(self) -> "Query":
        """Return the join with its careful conjuncts, used if computing a hidden column raised for some tuple."""
        return replace(self, conjuncts=self.careful)

    @cached_property
    def constrained_streams(self) -> frozenset[int]:
        """The streams with constraints."""
        return frozenset(at for at, stream in enumerate(self.streams) if stream.constraints)

    @cached_property
    def constraint_columns(self) -> tuple[frozenset[int], ...]:
        """For each stream the columns of new rows that constraints read, including those of other streams."""
        columns = [
            {at for constraint in stream.constraints for at in fields_read_by(constraint)} for stream in self.streams
        ]
        for constraint in (constraint for stream in self.streams for constraint in stream.constraints):
            if isinstance(constraint, ForeignKey):
                columns[constraint.parent.stream].add(constraint.parent.field)
        return tuple(map(frozenset, columns))

    @cached_property
    def counted_streams(self) -> tuple[int, ...]:
        """The streams with a count window."""
        return tuple(at for at, stream in enumerate(self.streams) if stream.window.rows is not None)

    def type_of(self, column: Column) -> pa.DataType:
        """Return the Arrow type of a column."""
        if column == RESULT_TIME:
            return self.streams[0].time_type
        stream = self.streams[column.stream]
        if column.field < len(stream.schema):
            return stream.schema.field(column.field).type
        return stream.hidden[column.field - len(stream.schema)].type

    def reaches(self, among: Collection[int]) -> dict[tuple[int, int], int]:
        """Return by how many microseconds one stream's time can be later than another's, by (later, earlier).

        All conditions together bound it: if `b` is at most 5 seconds later than `a`, and `c` at most 3 later than `b`,
        `c` is at most 8 later than `a`. Pairs that may be any distance apart are missing.

        Args:
            among: The streams; only conditions over these count.
        """
        longest: dict[tuple[int, int], int] = {}
        for conjunct in (conjunct for conjunct in self.conjuncts if conjunct.streams <= {*among}):
            for gap in conjunct.gaps:
                pair = gap.later, gap.earlier
                longest[pair] = min(gap.micros, longest.get(pair, gap.micros))
        for through in among:
            for later, earlier in permutations([at for at in among if at != through], 2):
                if (later, through) in longest and (through, earlier) in longest:
                    micros = longest[later, through] + longest[through, earlier]
                    longest[later, earlier] = min(micros, longest.get((later, earlier), micros))
        return longest

    def name_of(self, column: Column) -> str:
        """Return a column as the user writes it."""
        if column == RESULT_TIME:
            return "_time"
        stream = self.streams[column.stream]
        if column.field >= len(stream.schema):
            return stream.hidden[column.field - len(stream.schema)].text
        return f"{stream.name}.{stream.schema.field(column.field).name}"

    def is_named(self, column: Column) -> bool:
        """Tell whether a column is one of the users' own, or a field of one."""
        hidden = column.field >= len(self.streams[column.stream].schema)
        return not hidden or (column not in self.flags and NAME.fullmatch(self.name_of(column)) is not None)

    def is_time(self, column: Column) -> bool:
        """Tell whether a column is its stream's event time, which state keeps as `ts`."""
        return column.field == self.streams[column.stream].time

    def time_shift(self, column: Column) -> int | None:
        """Return by how many microseconds a column is later than its stream's event time; None if it isn't constant."""
        stream = self.streams[column.stream]
        if column.field == stream.time:
            return 0
        hidden = stream.hidden[column.field - len(stream.schema)] if column.field >= len(stream.schema) else None
        moved = None if hidden is None else hidden.moved
        return None if moved is None or moved[0] != stream.time else moved[1]

    @cached_property
    def output_schema(self) -> pa.Schema:
        """The schema of the results."""
        if self.outputs:
            return pa.schema([pa.field(output.name, self.type_of(output.column)) for output in self.outputs])
        streams = [stream for at, stream in enumerate(self.streams) if at not in self.hidden_streams]
        structs = [pa.field(stream.name, pa.struct(list(stream.schema))) for stream in streams]
        return pa.schema([*structs, pa.field("_time", self.streams[0].time_type)])

    @cached_property
    def trace_name(self) -> str:
        """The name of the column of traces: one that no output column or stream has."""
        name, others = "_trace", {*self.output_schema.names, *(stream.name for stream in self.streams)}
        while name in map(str.lower, others):
            name = f"_{name}"
        return name

    @cached_property
    def traced_schema(self) -> pa.Schema:
        """The schema of results with their traces, if any, which come first."""
        if self.tracing == "none":
            return self.output_schema
        return pa.schema([pa.field(self.trace_name, TRACE_TYPE), *self.output_schema])

    @property
    def file_schema(self) -> pa.Schema:
        """The schema of the files that results are written to."""
        return self.traced_schema if self.tracing == "results" else self.output_schema

    def description(self) -> dict[str, Any]:
        """Return what must not change between two runs of one checkpoint, each part under a name for people."""
        parts: dict[str, Any] = {"where": self.where, "time zone": self.dialect.time_zone, "ANSI": self.dialect.ansi}
        parts["where, as Spark reads it"] = self.meaning
        parts["streams"] = [stream.name for stream in self.streams]
        parts["select"] = self.select
        if self.optional:
            parts["how"] = {self.streams[at].name: how for at, how in self.optional.items()}
        if self.filter:
            parts["filter"] = self.filter
        for conjunct in (conjunct for conjunct in self.conjuncts if conjunct.on):
            parts.setdefault("after ON", []).append(conjunct.text)
        for at, stream in enumerate(self.streams):
            if not stream.table:
                parts[f"window of '{stream.name}'"] = stream.window.notation
                parts[f"delay of '{stream.name}'"] = format_seconds(stream.delay)
                parts[f"time column of '{stream.name}'"] = stream.schema.field(stream.time).name
            if stream.refreshed:
                parts[f"refresh of '{stream.name}'"] = True
            parts[f"columns of '{stream.name}'"] = [f"{field.name} {field.type}" for field in stream.columns]
            computed = [hidden for hidden in stream.hidden if not hidden.punctuation]
            parts[f"computed of '{stream.name}'"] = [f"{hidden.text} {hidden.type}" for hidden in computed]
            for constraint in stream.constraints:
                kind = "punctuations" if isinstance(constraint, PunctuationScheme) else "constraints"
                parts.setdefault(f"{kind} of '{stream.name}'", []).append(self.describe_constraint(at, constraint))
        return parts

    def describe_constraint(self, stream: int, constraint: Constraint) -> str:
        """Return a constraint of a stream in words."""
        return describe_constraint(stream, constraint, self.name_of, self.type_of)
