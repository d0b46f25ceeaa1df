"""`wm.stream` and `wm.join`: from Spark frames to a checked query, and what can be done with it."""

import atexit
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.adapt.auto import Auto
from watersmeet.engine.operator import Operator
from watersmeet.engine.plan import start, view
from watersmeet.errors import DefinitionError
from watersmeet.exchange.stages import told
from watersmeet.explain import explain
from watersmeet.model.declared import Constraint, Punctuations
from watersmeet.model.duration import microseconds
from watersmeet.model.metadata import Inherited
from watersmeet.model.query import OWN_TIME, RESULT_TIME, Nested, Output, Query, StreamSpec
from watersmeet.model.statement import parse_statement
from watersmeet.model.windows import Sliding, Window
from watersmeet.ordering import Given, Ordering, ordering
from watersmeet.placement import PSP, Strategy
from watersmeet.predicate.model import Column, Dialect, PythonPredicate
from watersmeet.predicate.python import checked
from watersmeet.retention.propagation import inherited, without_useless
from watersmeet.spark import checks, tasks
from watersmeet.spark.exchange import SparkStage
from watersmeet.spark.frames import (
    OURS,
    Computing,
    Told,
    arrow_schema,
    check_frame,
    hidden_name,
    host,
    is_local,
    is_odd,
    quoted,
    restored,
    spark_schema,
    tried_name,
    union,
)
from watersmeet.spark.promises import Declared, Resolver, declared
from watersmeet.spark.select import Selection, check, check_untrusted, parse_select
from watersmeet.spark.tree import FrameTree
from watersmeet.spark.where import Where, read_where
from watersmeet.spark.writer import JoinWriter
from watersmeet.state.store import Store


@dataclass(frozen=True)
class Stream:
    """A frame with its part in a join; made by `wm.stream`."""

    name: str
    frame: "DataFrame | Join"
    schema: pa.Schema
    time: str
    window: Window
    delay: int | None
    idle: int | None
    ahead: int | None
    declared: Declared

    @property
    def streaming(self) -> bool:
        """Whether it is a stream, not a static frame."""
        return isinstance(self.frame, Join) or self.frame.isStreaming


def stream(
    name: str,
    frame: "DataFrame | Join",
    *,
    time: str = "_time",
    window: str | timedelta | Window | None = None,
    delay: str | timedelta | None = None,
    idle: str | timedelta | None = None,
    ahead: str | timedelta | None = "1 day",
    punctuations: Punctuations | Sequence[Punctuations] | None = None,
    constraints: Sequence[Constraint] = (),
) -> Stream:
    """Name a frame as a stream of a join.

    Args:
        name: Its name in `where`, `select` and the results.
        frame: A streaming frame of any source, a static one, or a join, whose results are then the tuples.
        time: The event-time column: timestamp or timestamp_ntz; of a join by default its results' `_time`.
        window: A duration for a sliding window, `wm.count(n)`, `wm.hopping(size, step)`, or None for unbounded.
        delay: How far out of order its tuples may come; by default as far as the join's largest time window. Of a join
            that is known, unless `time` is some other column than `_time` or a member's event time.
        idle: After what silence the stream no longer holds the watermark; by default never.
        ahead: How far an event time may lie ahead of the clock and of all streams of the join; a row beyond is
            rejected. None for no limit. Results of a join and static frames have none.
        punctuations: What says that some rows no longer come: `wm.punctuations(...)`, or several. See docs/metadata.md.
        constraints: What else is promised: `wm.key`, `wm.ordered`, `wm.clustered`, `wm.foreign_key`.

    Raises:
        DefinitionError: If the time column is missing, a duration is none, or the frame isn't a classic Spark frame.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise DefinitionError(f"{name!r} can't name a stream: use letters, digits and underscores.")
    if name.lower() == "_time" or name.lower().startswith(OURS):
        raise DefinitionError(f"'{name}' can't name a stream: that name is reserved; use another.")
    if not isinstance(time, str):
        raise DefinitionError(f"Stream '{name}': time={time!r} is not the name of a column, such as time='ts'.")
    if isinstance(frame, Join) and any(part.isStreaming for _, part in frame.leaves):
        frame = frame.with_time()
        schema = frame.schema
    else:
        frame = check_frame(f"Stream '{name}'", frame.toDF() if isinstance(frame, Join) else frame)
        schema = arrow_schema(frame)
    column = _time_column(name, schema.names, time)
    if isinstance(frame, Join) and delay is None and frame.times(column) is None:
        raise DefinitionError(
            f"Stream '{name}': its '{column}' is neither the results' _time nor the event time of a member with a time "
            "window, so its delay is unknown; give delay='...', how far behind the latest one a result may come, or "
            "use time='_time'."
        )
    return Stream(
        name,
        frame,
        schema,
        column,
        _window(window, f"window of stream '{name}'"),
        None if delay is None else microseconds(delay, f"delay of stream '{name}'"),
        None if idle is None else microseconds(idle, f"idle timeout of stream '{name}'"),
        None if ahead is None else microseconds(ahead, f"ahead of stream '{name}'"),
        declared(name, constraints, punctuations),
    )


def check_text(what: str, given: object, example: str) -> None:
    """Check an argument that is a text, or None.

    Raises:
        DefinitionError: If it is anything else.
    """
    if given is None or isinstance(given, str):
        return
    hint = "; to use a Python function, decorate it with @wm.predicate and call it by name" if callable(given) else ""
    raise DefinitionError(f"{what} must be a string such as '{example}', not a {type(given).__name__}{hint}.")


def _time_column(stream: str, columns: Sequence[str], time: str) -> str:
    found = [column for column in columns if column == time] or [c for c in columns if c.lower() == str(time).lower()]
    alike = [column for column in columns if found and column.lower() == found[0].lower()]
    if len(alike) > 1:
        raise DefinitionError(
            f"Stream '{stream}' has two columns called {' and '.join(alike)}; rename all but its time."
        )
    if not found:
        raise DefinitionError(f"Stream '{stream}' has no time column '{time}'; it has {', '.join(columns)}.")
    return found[0]


def _window(window: str | timedelta | Window | None, what: str) -> Window:
    if window is None:
        return Window()
    return window if isinstance(window, Window) else Sliding(microseconds(window, what))


@dataclass(frozen=True)
class Join:
    """A join of streams; made by `wm.join` or `wm.sql`.

    Attributes:
        query: The join as the core knows it.
        frames: The inputs, in the order of the streams; None where the stream is itself a join.
        strategy: Where tuples are kept.
        ordering: In which order streams are probed.
        select: A SELECT list that Spark computes over the results; None if the engine's own output is it.
        inner: The joins that are streams of this one, by position.
        where: What Spark computes of the tuples and decides of their combinations.
        told: Punctuations from frames of their own.
        purge_every: After how many batches tuples that can no longer join anything are looked for.
        remember: For how many microseconds of the watermark what streams have said is remembered; None for ever.
    """

    query: Query
    frames: tuple[DataFrame | None, ...]
    strategy: Strategy
    ordering: Ordering = field(default_factory=Given)
    select: Selection | None = None
    inner: Mapping[int, "Join"] = field(default_factory=dict)
    where: Where = field(default_factory=Where)
    told: tuple[Told, ...] = ()
    purge_every: int = 1
    remember: int | None = None

    @property
    def leaves(self) -> list[tuple[str, DataFrame]]:
        """All streams that are frames, those of inner joins included."""
        named = zip(self.query.streams, self.frames, strict=True)
        own = [(stream.name, frame) for stream, frame in named if frame is not None]
        return own + [leaf for join in self.inner.values() for leaf in join.leaves]

    @property
    def stream_columns(self) -> list[str]:
        """The columns of all streams, those of inner joins included."""
        own = [name for stream in self.query.streams for name in stream.schema.names]
        return own + [name for join in self.inner.values() for name in join.stream_columns]

    @property
    def spark(self) -> SparkSession:
        """The session of the inputs."""
        return self.leaves[0][1].sparkSession

    @cached_property
    def kinds(self) -> tuple[T.StructType, ...]:
        """The columns of each stream in Spark's terms, which say more than Arrow's: collations."""
        return tuple(self.inner[at].kind if frame is None else frame.schema for at, frame in enumerate(self.frames))

    @property
    def kind(self) -> T.StructType:
        """The columns of the results in Spark's terms."""
        return self._selected(self._no_results()).schema

    def _kind_of(self, column: Column) -> T.DataType:
        if column == RESULT_TIME:
            return T.TimestampType()
        kind = self.kinds[column.stream]
        known = len(kind.fields)
        if column.field < known:
            return kind.fields[column.field].dataType
        return self.where.computed[column.stream][column.field - known].kind

    @property
    def schema(self) -> pa.Schema:
        """The schema of the results."""
        if self.select is None:
            return self.query.output_schema
        return arrow_schema(self._selected(self._no_results()))

    def _no_results(self) -> DataFrame:
        return self.spark.createDataFrame([], spark_schema(self.query.output_schema))

    def with_time(self) -> "Join":
        """Return the join with `_time` among its output columns, as an outer join needs it."""
        if "_time" in self.schema.names:
            return self
        if self.select is not None:
            text = self.select.text
            raise DefinitionError(f"A join that is a stream of another needs its time: add _time to '{text}'.")
        outputs = (*self.query.outputs, Output("_time", RESULT_TIME))
        return replace(self, query=replace(self.query, outputs=outputs))

    def times(self, name: str) -> Window | None:
        """Return how far behind the results' own times an output column can be, as a window; None if that's not known.

        Args:
            name: An output column of timestamps.
        """
        column = self._sources.get(name.lower())
        if column is None or column == RESULT_TIME:
            return None if column is None else OWN_TIME
        window = self.query.streams[column.stream].window
        return window if self.query.is_time(column) and window.span is not None else None

    @property
    def _sources(self) -> Mapping[str, Column]:
        """The output columns that are nothing but a column, by their names in small letters."""
        if self.select is not None:
            return self.select.sources
        return {output.name.lower(): output.column for output in self.query.outputs} or {"_time": RESULT_TIME}

    @property
    def shows(self) -> dict[Column, list[int]]:
        """The positions at which results show a column as it is."""
        schema, found = self.schema, dict[Column, list[int]]()
        names = [name.lower() for name in schema.names]
        for name, column in self._sources.items():
            same = [at for at, known in enumerate(names) if known == name]
            if len(same) == 1 and schema.field(same[0]).type == self.query.type_of(column):
                found.setdefault(column, []).append(same[0])
        return found

    def tree(self, path: str = "j", never_idle: bool = False) -> FrameTree:
        """Return the join and its inner joins as the runtime takes them.

        Args:
            path: Where the join stands in the tree.
            never_idle: Whether idle timeouts are left out: under availableNow a silent stream has ended.
        """
        inner = {at: join.tree(f"{path}_{at}", never_idle) for at, join in self.inner.items()}
        streams = tuple(replace(s, idle=None) if never_idle else s for s in self.query.streams)
        query = replace(self.query, streams=streams)
        reads = (self.read_results, self.decide)
        how = (self.strategy, self.ordering, *reads, self.computed(), inner, path)
        return FrameTree(query, self.frames, *how, self.told, self.purge_every, self.remember)

    def computed(self) -> list[Computing]:
        """Return for each stream what computes its hidden columns."""
        return [
            Computing(
                {tried_name(made.column.field): made.tried for made in stream if made.tried is not None},
                [made.value for made in stream],
            )
            for stream in self.where.computed or [()] * len(self.query.streams)
        ]

    @property
    def writeStream(self) -> JoinWriter:
        """The writer that starts the join on streaming inputs; mirrors Spark's."""
        return JoinWriter(self)

    def check_settings(self) -> None:
        """Check that the session's settings are those under which the join was defined.

        Raises:
            DefinitionError: If they changed: Spark would give the condition another meaning.
        """
        now = dialect_of(self.spark)
        if now != self.query.dialect:
            raise DefinitionError(
                f"The join was defined with {self.query.dialect.describe()}, and the session now has "
                f"{now.describe()}: set it back, or define the join again."
            )
        for join in self.inner.values():
            join.check_settings()

    def explain(self) -> None:
        """Print how the join runs: streams, strategy, join orders, where each conjunct is decided."""
        where = host(self.spark, shared=is_local(self.spark))
        print(explain(self.query, self.strategy, self.ordering, host=where))

    def read_results(self, batch: DataFrame, files: Sequence[str]) -> DataFrame:
        """Return result files as a frame of the output's schema."""
        return self._selected(_files(batch, files, self.query.output_schema))

    def decide(self, batch: DataFrame, files: Sequence[str]) -> DataFrame:
        """Return those of the combinations in some files that Spark finds to be results."""
        return self._decided(_files(batch, files, self.query.pending_schema))

    def _decided(self, frame: DataFrame) -> DataFrame:
        """Keep the combinations, given as rows of the pending schema, for which every conjunct left to Spark holds."""
        query = self.query
        columns = sorted({column for conjunct in query.deferred for column in conjunct.columns})
        calls = {call.name for conjunct in query.deferred for call in conjunct.calls}
        shown = [F.col(f"o{at}") for at in range(len(query.output_schema))]
        parts = [F.struct(*shown).alias(hidden_name("shown"))]
        parts += [F.col(name).alias(hidden_name(name)) for name in sorted(calls)]
        for position, stream in enumerate(query.streams):
            values = {c: restored(F.col(c.name), self._kind_of(c)) for c in columns if c.stream == position}
            own = {c: value for c, value in values.items() if c.field < len(stream.schema)}
            fields = [value.alias(stream.schema.field(c.field).name) for c, value in own.items()]
            parts += [F.struct(*fields).alias(stream.name)] if fields else []
            parts += [value.alias(hidden_name(c.name)) for c, value in values.items() if c not in own]
        kept = self.where.decide(frame.select(*parts), [conjunct.clause for conjunct in query.deferred])
        names = query.output_schema.names
        return kept.select(*(F.col(hidden_name("shown"))[f"o{at}"].alias(name) for at, name in enumerate(names)))

    def _selected(self, frame: DataFrame) -> DataFrame:
        """Compute a SELECT list of expressions over flat results."""
        shown = self._restored(frame)
        return shown if self.select is None else self.select.over(self._structs(shown))

    @property
    def plain(self) -> bool:
        """Whether result files hold the output as it is."""
        return self.select is None and not self._is_odd

    @cached_property
    def _is_odd(self) -> bool:
        """Whether some output column has another type in result files than in its stream."""
        return any(is_odd(self._kind_of(column)) for column in self.query.shown)

    def _restored(self, frame: DataFrame) -> DataFrame:
        """Return results with the types that the streams' columns have, where state keeps others."""
        if not self._is_odd:
            return frame
        if self.query.outputs:
            return frame.select(
                *(self._column(F.col(quoted(out.name)), out.column, out.name) for out in self.query.outputs)
            )
        structs = [self._struct(position) for position in range(len(self.query.streams))]
        return frame.select(*structs, "_time")

    def _struct(self, position: int) -> SparkColumn:
        stream = self.query.streams[position]
        whole = F.col(quoted(stream.name))
        columns = enumerate(stream.schema.names)
        fields = [self._column(whole.getField(name), Column(position, at), name) for at, name in columns]
        return F.struct(*fields).alias(stream.name)

    def _column(self, value: SparkColumn, column: Column, name: str) -> SparkColumn:
        return restored(value, self._kind_of(column)).alias(name)

    def _structs(self, frame: DataFrame) -> DataFrame:
        """Return flat results with one struct column per stream, and `_time`."""
        structs = []
        for position, spec in enumerate(self.query.streams):
            mine = [out for out in self.query.outputs if out.column.stream == position]
            fields = [F.col(out.name).alias(spec.schema.field(out.column.field).name) for out in mine]
            structs += [F.struct(*fields).alias(spec.name)] if fields else []
        structs += [F.col(out.name).alias("_time") for out in self.query.outputs if out.column == RESULT_TIME]
        return frame.select(*structs)

    def toDF(self) -> DataFrame:
        """Return the join of static inputs as a frame: lazy, and computed anew whenever it is used.

        Raises:
            DefinitionError: If an input is streaming.
        """
        if any(frame.isStreaming for _, frame in self.leaves):
            raise DefinitionError("toDF() joins static inputs; use writeStream for streaming ones.")
        self.check_settings()
        folder = tempfile.mkdtemp(prefix="watersmeet-")
        store = Store(folder)
        checks.workers(self.spark, store)
        where = host(self.spark, shared=True)
        run = uuid.uuid4().hex[:12]
        operator = Operator(self.query, self.strategy, store, run, self.ordering, where)
        batch = replace(operator.plan(operator.start()), again=True)
        shares = max(batch.placement.nodes, self.spark.sparkContext.defaultParallelism)
        rows = SparkStage(union(self.query, self.frames, False, self.computed(), self.told))
        found = self.query.pending_schema if self.query.deferred else self.query.output_schema
        error = tasks.error_column(found.names)
        columns = T.StructType([*spark_schema(found), T.StructField(error, T.StringType())])
        frame = told(rows, batch, shares).frame.mapInArrow(tasks.on_spark(tasks.show(batch, shares)), columns)
        raised = F.raise_error(F.col(error))
        frame = frame.where(F.col(error).isNull() | raised.isNull()).drop(error)
        made = self._selected(self._decided(frame) if self.query.deferred else frame)
        # Tasks make the folder anew if a frame derived from this one outlives it; the end of the process clears up.
        weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return made


def _files(batch: DataFrame, files: Sequence[str], schema: pa.Schema) -> DataFrame:
    """Return files of the store, or none, as a frame of a batch's session."""
    session, columns = batch.sparkSession, spark_schema(schema)
    if not files:
        return session.createDataFrame([], columns)
    # [!] Otherwise a checkpoint in a folder like run[1] is read as a pattern.
    return session.read.option("__globPaths__", "false").schema(columns).parquet(*files)


def join(
    *streams: Stream,
    where: str | None = None,
    select: str | None = None,
    predicates: Sequence[PythonPredicate] = (),
    strategy: Strategy | None = None,
    order: str = "given",
    purge_every: int = 1,
    remember: str | timedelta | None = None,
    untrusted: bool = False,
) -> Join:
    """Join streams under any predicate.

    Args:
        *streams: Two or more, each made by `wm.stream`.
        where: The condition in Spark SQL, with Python predicates mixed in; None for every combination in the windows.
        select: A SELECT list for flat output columns; by default one struct column per stream, and `_time`.
        predicates: The Python predicates that `where` calls.
        strategy: Where tuples are kept; by default `wm.Auto()`.
        order: In which order streams are probed: `given`, `selectivity` or `histogram`.
        purge_every: After how many batches tuples are looked for that can no longer join anything, by what streams
            promise or by conditions on event times: 1 takes the least memory, more take less time.
        remember: For how long, by the watermark, values and punctuations are remembered by which rows are denied, such
            as `"1 day"`; by default for ever. See docs/metadata.md.
        untrusted: Whether `where` and `select` come from people, who may not do what the program may: then they hold
            only Spark's own functions that compute and nothing else. See docs/semantics.md.

    Raises:
        DefinitionError: If the join can't be; SQL errors underline the span.
    """
    for given in streams:
        if not isinstance(given, Stream):
            raise DefinitionError(f"wm.join takes streams made by wm.stream(...); got {type(given).__name__}.")
    check_text("where", where, "a.x < b.y")
    check_text("select", select, "a.id, b.x AS other")
    predicates = checked(predicates)
    if strategy is not None and not isinstance(strategy, Strategy):
        raise DefinitionError(f"strategy={strategy!r}: use wm.PSP(nodes=...), ATR, CTR, DSJ, Hash, Auto or Central.")
    checks.purge_every(purge_every)
    remembered = checks.remember(remember)
    frames = tuple(None if isinstance(given.frame, Join) else given.frame for given in streams)
    inner = {at: given.frame for at, given in enumerate(streams) if isinstance(given.frame, Join)}
    specs = _specs(streams)
    query = Query(specs)
    draft = Join(query, frames, PSP(1), inner=inner)
    dialect = dialect_of(draft.spark)
    read = read_where(draft.spark, where, specs, draft.kinds, tuple(predicates), dialect, untrusted)
    outputs, computed = _outputs(select, draft, untrusted)
    promised, told = _promised(_with_hidden(specs, read), streams, draft.kinds)
    whole = Query(
        promised,
        read.conjuncts,
        where or "",
        outputs,
        tuple(predicates),
        dialect,
        select or "",
        read.meaning,
        read.careful,
        read.flags,
    )
    full = without_useless(whole)
    chosen = _checked(strategy or Auto(), full)
    return Join(full, frames, chosen, ordering(order), computed, inner, read, told, purge_every, remembered)


def _with_hidden(specs: Sequence[StreamSpec], read: Where) -> tuple[StreamSpec, ...]:
    """Return the streams with what Spark computes of their tuples."""
    return tuple(
        replace(spec, hidden=tuple(made.hidden for made in computed), tests=tests)
        for spec, computed, tests in zip(specs, read.computed, read.tests, strict=True)
    )


def _promised(
    specs: Sequence[StreamSpec], streams: Sequence[Stream], kinds: Sequence[T.StructType]
) -> tuple[tuple[StreamSpec, ...], tuple[Told, ...]]:
    """Return the streams with what they promise, and the punctuations from frames of their own."""
    resolver = Resolver(specs, kinds, [given.streaming for given in streams])
    found = [resolver.resolved(at, given.declared) for at, given in enumerate(streams)]
    full = tuple(
        replace(spec, hidden=spec.hidden + made.hidden, promises=(*made.promises, *_inherited(given)))
        for spec, made, given in zip(specs, found, streams, strict=True)
    )
    return full, tuple(told for made in found for told in made.told)


def _inherited(given: Stream) -> Iterator[Inherited]:
    """Return what a stream that is a join promises by the punctuations of its own streams."""
    return inherited(given.frame.query, given.frame.shows) if isinstance(given.frame, Join) else iter(())


def _checked(strategy: Strategy, query: Query) -> Strategy:
    """Return the strategy for the streams of a join.

    Raises:
        DefinitionError: If it can't serve them.
    """
    named = strategy.named([stream.name for stream in query.streams])
    refusal = named.refusal(view(query, start(query)))
    if refusal is not None:
        raise DefinitionError(f"{named.describe()}: {refusal}")
    return named


def _specs(streams: Sequence[Stream]) -> tuple[StreamSpec, ...]:
    spans = [given.window.span for given in streams if given.window.span is not None]
    default = max(spans, default=0)
    return tuple(
        StreamSpec(
            given.name,
            given.schema,
            given.schema.names.index(given.time),
            given.window,
            default if given.delay is None else given.delay,
            given.idle,
            nested=Nested(given.frame.times(given.time), given.delay is not None)
            if isinstance(given.frame, Join)
            else None,
            ahead=None if isinstance(given.frame, Join) else given.ahead,
        )
        for given in streams
    )


def dialect_of(spark: SparkSession) -> Dialect:
    """Return what the session's settings say expressions mean."""
    ansi = str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
    return Dialect(_zone(spark, str(spark.conf.get("spark.sql.session.timeZone"))), ansi)


def _zone(spark: SparkSession, name: str) -> str:
    """Return a time zone by a name that others know, too: Spark also takes PST, and +1:00 for GMT+01:00."""
    jvm: Any = spark._jvm
    known = jvm.java.time.ZoneId.getAvailableZoneIds()
    if known.contains(name):
        return name
    zone = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(name)
    if known.contains(zone.getId()):
        return str(zone.getId())
    offset = str(zone.normalized().getId())
    return "UTC" if offset == "Z" else f"GMT{offset}"


def _outputs(select: str | None, join: Join, untrusted: bool) -> tuple[tuple[Output, ...], Selection | None]:
    """Return the engine's output columns, and the SELECT list itself if Spark must compute it from them."""
    if select is None:
        columns = [(stream.name, stream.schema.names) for stream in join.query.streams]
        checks.alike(columns, "results show every column: rename one, or say what to show with select='...'")
        return (), None
    parsed = parse_select(select, join.query, join.spark, untrusted)
    if parsed.plain is not None:
        return parsed.plain, None
    outputs = tuple(Output(column.name, column) for column in parsed.computed.columns or (RESULT_TIME,))
    trial = replace(join, query=replace(join.query, outputs=outputs))
    none = trial._structs(trial._no_results())
    if untrusted:
        return outputs, check_untrusted(parsed.computed, none)
    check(parsed.computed, none)
    return outputs, parsed.computed


def sql(
    text: str,
    streams: Mapping[str, DataFrame],
    *,
    time: str | None = None,
    delay: str | timedelta | None = None,
    ahead: str | timedelta | None = "1 day",
    predicates: Sequence[PythonPredicate] = (),
    strategy: Strategy | None = None,
    order: str = "given",
    purge_every: int = 1,
    remember: str | timedelta | None = None,
    untrusted: bool = False,
) -> Join:
    """Join streams as text: `SELECT a.id, b.id AS other FROM a [RANGE 10 SECONDS], b [ROWS 100] WHERE a.x < b.y`.

    Args:
        text: The statement. Windows are `[RANGE size]`, `[RANGE size SLIDE step]`, `[ROWS n]`, or none for unbounded;
            `WATTR column` inside a window names the stream's time column. Promises may follow, each after a comma:
            `[KEY (id), ORDERED BY seq SLACK 100, PUNCTUATED BY is_end ON auction]`; see docs/metadata.md.
        streams: The frames, by the names the statement uses.
        time: The time column of streams without WATTR.
        delay: See `wm.stream`.
        ahead: See `wm.stream`.
        predicates: See `wm.join`.
        strategy: See `wm.join`.
        order: See `wm.join`.
        purge_every: See `wm.join`.
        remember: See `wm.join`.
        untrusted: Whether the text comes from people; see `wm.join`.

    Raises:
        SqlError: If the statement can't be parsed; the span is underlined.
        DefinitionError: If the join can't be.
    """
    if text is None or not isinstance(streams, Mapping):
        what = f"text={text!r}" if text is None else f"streams={type(streams).__name__}"
        raise DefinitionError(
            f"{what}: wm.sql takes a string and a dict of frames: wm.sql('SELECT ..', {{'a': a, 'b': b}})."
        )
    check_text("text", text, "SELECT a.id FROM a [RANGE 10 SECONDS], b [ROWS 100] WHERE a.x < b.y")
    check_text("time", time, "ts")
    statement = parse_statement(text, streams)
    made = []
    for source in statement.streams:
        column = source.time or time
        if column is None:
            raise DefinitionError(f"Stream '{source.name}' has no time column: pass time='...' or write WATTR.")
        options: dict[str, Any] = {"time": column, "window": source.window, "delay": delay, "ahead": ahead}
        options |= {"punctuations": source.punctuations, "constraints": source.constraints}
        made.append(stream(source.name, streams[source.name], **options))
    return join(
        *made,
        where=statement.where,
        select=statement.select,
        predicates=predicates,
        strategy=strategy,
        order=order,
        purge_every=purge_every,
        remember=remember,
        untrusted=untrusted,
    )
