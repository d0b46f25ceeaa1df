"""A join of Spark frames, as users hold it: what it looks like, how it runs, how its results are read."""

import atexit
import logging
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.adapt.findings import Finding
from watersmeet.batch.operator import Operator
from watersmeet.batch.plan import start, view
from watersmeet.errors import DefinitionError
from watersmeet.exchange.stages import told
from watersmeet.observe.dashboard.notebook import render_definition, stream_table
from watersmeet.observe.explain import explain
from watersmeet.observe.why.answer import Answer
from watersmeet.observe.why.question import Values
from watersmeet.ordering import Given, Ordering
from watersmeet.placement import Strategy
from watersmeet.predicate.model import Column, Conjunct
from watersmeet.query.continuation import continue_join, describe_kept_delays
from watersmeet.query.query import OWN_TIME, RESULT_TIME, Output, Query, Tracing
from watersmeet.query.windows import Window
from watersmeet.spark.api.asking import given_by
from watersmeet.spark.api.asking_static import why_static
from watersmeet.spark.api.writer import JoinWriter
from watersmeet.spark.output.identity import ID, identified
from watersmeet.spark.output.lost import Columns
from watersmeet.spark.run import checks, tasks
from watersmeet.spark.run.cases import case_columns, results
from watersmeet.spark.run.content import parts
from watersmeet.spark.run.exchange import SparkStage
from watersmeet.spark.run.frames import (
    Computing,
    Told,
    arrow_schema,
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
from watersmeet.spark.run.tree import FrameTree
from watersmeet.spark.run.workers import save_address_space
from watersmeet.spark.sql.dialect import dialect_of
from watersmeet.spark.sql.select import Selection
from watersmeet.spark.sql.where import Where
from watersmeet.spilling.decisions import planned
from watersmeet.spilling.options import Spill
from watersmeet.state.store.store import Store

STATIC = "static"
"""The origin of the results of static frames: they have no checkpoint, and are all in one batch."""


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
        spill: When work is put off, here and in inner joins; None for never.
        identity: Whether results have an `_id`, to be shown or for the SELECT list to read.
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
    spill: Spill | None = None
    identity: bool = False

    @property
    def leaves(self) -> list[tuple[str, DataFrame]]:
        """All streams that are frames, those of inner joins included."""
        named = zip(self.query.streams, self.frames, strict=True)
        own = [(stream.name, frame) for stream, frame in named if frame is not None]
        return own + [leaf for join in self.inner.values() for leaf in join.leaves]

    @property
    def sources(self) -> list[tuple[str, DataFrame]]:
        """All streams that are frames and no tables, those of inner joins included."""
        named = zip(self.query.streams, self.frames, strict=True)
        own = [(stream.name, frame) for stream, frame in named if frame is not None and not stream.table]
        return own + [leaf for join in self.inner.values() for leaf in join.sources]

    @property
    def stream_schemas(self) -> list[tuple[str, pa.Schema]]:
        """The names and columns of its streams, and of those of the joins within it; each such pair once; no tables."""
        own = [(stream.name, stream.schema) for stream in self.query.streams if not stream.table]
        within = [named for join in self.inner.values() for named in join.stream_schemas]
        return list(dict.fromkeys([*own, *within]))

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
            own = [pa.field(ID, pa.string())] if self.identity else []
            return pa.schema([*self.query.output_schema, *own])
        return arrow_schema(self._selected(self._no_results()))

    def _no_results(self) -> DataFrame:
        own = [T.StructField(ID, T.StringType())] if self.identity else []
        return self.spark.createDataFrame([], T.StructType([*spark_schema(self.query.output_schema), *own]))

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
        known = self.query.is_time(column) and column.stream in self.query.members and not self.query.is_full
        return window if known and window.span is not None else None

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

    def tree(self, path: str = "j", never_idle: bool = False, spill: Spill | None = None) -> FrameTree:
        """Return the join and its inner joins as the runtime takes them.

        Args:
            path: Where the join stands in the tree.
            never_idle: Whether idle timeouts are left out: under availableNow a silent stream has ended.
            spill: When work is put off in the whole tree, if it is not this join that says so.
        """
        tracing: Tracing = "results" if spill is not None else "pending" if self.spill is not None else "none"
        spill = spill or self.spill
        inner = {at: join.tree(f"{path}_{at}", never_idle, spill) for at, join in self.inner.items()}
        streams = tuple(replace(s, idle=None) if never_idle else s for s in self.query.streams)
        query = replace(self.query, streams=streams, tracing=tracing)
        run = replace(self, query=query)
        reads = (run.read_results, run.decide)
        how = (self.strategy, self.ordering, *reads, self.computed(), inner, path)
        tables = {at for at, stream in enumerate(query.streams) if stream.table}
        frames = tuple(None if at in tables else frame for at, frame in enumerate(self.frames))
        made = FrameTree(query, frames, *how, self.told, self.purge_every, self.remember, spill)
        known = {at: frame for at in tables if (frame := self.frames[at]) is not None}
        return replace(made, tables=known, columns=self._columns)

    def continued(self, stored: Mapping[str, Any]) -> "Join":
        """Return the join as it goes on from a checkpoint, inner joins included; say which delays that keeps.

        Args:
            stored: The description in the checkpoint; empty if there is none yet.
        """
        query = continue_join(self.query, stored)
        for sentence in describe_kept_delays(self.query, query):
            logging.getLogger("watersmeet").warning(sentence)
        names = {at: f"join '{self.query.streams[at].name}'" for at in self.inner}
        inner = {at: join.continued(stored.get(names[at], {})) for at, join in self.inner.items()}
        same = query is self.query and all(join is self.inner[at] for at, join in inner.items())
        return self if same else replace(self, query=query, inner=inner)

    @cached_property
    def _columns(self) -> dict[int, Columns]:
        """What is known of the columns of refreshed tables, from one start to the next."""
        return {at: Columns(stream.name) for at, stream in enumerate(self.query.streams) if stream.refreshed}

    def computed(self) -> list[Computing]:
        """Return for each stream what computes its hidden columns."""
        return [
            Computing(
                {tried_name(made.column.field): made.tried for made in stream if made.tried is not None},
                [made.value for made in stream],
            )
            for stream in self.where.computed or [()] * len(self.query.streams)
        ]

    def __repr__(self) -> str:
        query = self.query
        streams = ", ".join(f"{stream.name} [{query.kind_of(at)}]" for at, stream in enumerate(query.streams))
        return f"Join({streams}; where {query.where or 'TRUE'}; {self.strategy.describe()})"

    def _repr_html_(self) -> str:
        facts = [("where", self.query.where), ("select", self.query.select), ("strategy", self.strategy.describe())]
        return render_definition(facts, stream_table(self.query))

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

    def check(self, samples: Mapping[str, DataFrame] | None = None) -> list[Finding]:
        """Return what is worth knowing before the join starts; `start()` logs its warnings.

        Without samples: state that grows without bound, promises that are of no use, streams that no condition ties to
        the others, more nodes than tasks run at once. With samples: delays that are shorter than the disorder, and, if
        there is one of each stream, Python predicates that take most of the time.

        Args:
            samples: Static frames by stream, their rows in the order in which they came.

        Raises:
            DefinitionError: If a sample is of no stream, or lacks a column.
        """
        from watersmeet.spark.api.checking import check  # it needs this class

        return check(self, samples)

    def explain(self) -> None:
        """Print how the join runs: streams, strategy, join orders, where each conjunct is decided, what is put off."""
        where = host(self.spark, shared=is_local(self.spark))
        print(explain(self.query, self.strategy, self.ordering, host=where))
        if self.spill is not None:
            seen = view(self.query, start(self.query), where, self.spill.partitions)
            placement = self.strategy.plan(seen).placement
            print("\n".join(planned(self.spill, placement.buckets if placement.apart else 1)))

    def read_results(self, batch: DataFrame, files: Sequence[str], origin: str) -> DataFrame:
        """Return result files as a frame of the output's schema; results that carry traces come with them, first.

        Args:
            batch: The batch's input.
            files: All results of the batch.
            origin: What no result of another batch has; see `identified`.
        """
        beside = [self.query.trace_name] if self.query.tracing == "results" else []
        found = _files(batch, files, self.query.file_schema)
        if files or not self.identity:
            return self._selected(self._identified(found, origin, stored=True), *beside)
        # [!] Spark takes an empty frame for the largest there is, and would deal it out to thousands of tasks.
        return self._selected(found.withColumn(ID, F.lit("")), *beside)

    def _identified(self, frame: DataFrame, origin: str, stored: bool) -> DataFrame:
        """Return results, as files hold them, with their `_id` if it is needed."""
        return identified(frame, self._content, origin, stored) if self.identity else frame

    @cached_property
    def _content(self) -> list[SparkColumn]:
        """What to hash of results, as files hold them; it is kept, as to make it takes many calls of the JVM."""
        return parts([(F.col(quoted(f.name)), f.dataType) for f in spark_schema(self.query.output_schema)])

    def decide(self, batch: DataFrame, files: Sequence[str]) -> DataFrame:
        """Return those of the combinations in some files that Spark finds to be results."""
        return self._decided(_files(batch, files, self.query.pending_schema))

    def _decided(self, frame: DataFrame) -> DataFrame:
        """Keep the combinations, given as rows of the pending schema, for which every conjunct left to Spark holds."""
        query = self.query
        shown = [F.col(f"o{at}") for at in range(len(query.traced_schema))]
        parts = [F.struct(*shown).alias(hidden_name("shown")), *self._read_by(query.deferred_conjuncts)]
        if query.optional:
            kept = results(self.where, query, frame.select(*parts, *case_columns(query)))
        else:
            kept = self.where.decide(frame.select(*parts), [conjunct.clause for conjunct in query.deferred_conjuncts])
        names = query.traced_schema.names
        return kept.select(*(F.col(hidden_name("shown"))[f"o{at}"].alias(name) for at, name in enumerate(names)))

    def _read_by(self, conjuncts: Sequence[Conjunct]) -> list[SparkColumn]:
        """Return what Spark reads to decide conjuncts, of columns by generated names: streams as structs."""
        columns = sorted({column for conjunct in conjuncts for column in conjunct.columns})
        calls = {call.name for conjunct in conjuncts for call in conjunct.calls}
        parts = [F.col(name).alias(hidden_name(name)) for name in sorted(calls)]
        for position, stream in enumerate(self.query.streams):
            values = {c: restored(F.col(c.name), self._kind_of(c)) for c in columns if c.stream == position}
            own = {c: value for c, value in values.items() if c.field < len(stream.schema)}
            fields = [value.alias(stream.schema.field(c.field).name) for c, value in own.items()]
            parts += [F.struct(*fields).alias(stream.name)] if fields else []
            parts += [value.alias(hidden_name(c.name)) for c, value in values.items() if c not in own]
        return parts

    def answer(self, conjunct: Conjunct, combination: pa.Table) -> bool | None:
        """Return what Spark answers a conjunct for one combination: its columns, and what its predicates say."""
        frame = self._combination(conjunct, combination)
        answer = frame.select(self.where.conditions[conjunct.clause].cast("boolean")).first()
        assert answer is not None
        return answer[0]  # type: ignore[no-any-return]

    def compared(self, conjunct: Conjunct, combination: pa.Table) -> list[pa.Array]:
        """Return the values that a conjunct which is left to Spark compares, likewise."""
        sides = self.where.sides[conjunct.clause]
        named = [side.alias(f"c{at}") for at, side in enumerate(sides)]
        found = self._combination(conjunct, combination).select(*named).toArrow()
        return [column.combine_chunks() for column in found.columns]

    def _combination(self, conjunct: Conjunct, combination: pa.Table) -> DataFrame:
        frame = self.spark.createDataFrame(combination, spark_schema(combination.schema))
        return frame.select(*self._read_by([conjunct]))

    def _selected(self, frame: DataFrame, *beside: str) -> DataFrame:
        """Compute a SELECT list of expressions over flat results; some columns beside them come first."""
        shown = self._restored(frame, *beside)
        return shown if self.select is None else self.select.over(self._structs(shown, *beside), *beside)

    @property
    def plain(self) -> bool:
        """Whether result files hold the output as it is."""
        return self.select is None and not self._is_odd and not self.identity

    @cached_property
    def _is_odd(self) -> bool:
        """Whether some output column has another type in result files than in its stream."""
        return any(is_odd(self._kind_of(column)) for column in self.query.output_columns)

    def _restored(self, frame: DataFrame, *beside: str) -> DataFrame:
        """Return results with the types that the streams' columns have, where state keeps others."""
        if not self._is_odd:
            return frame
        own = [ID] if self.identity else []
        if self.query.outputs:
            flat = [self._column(F.col(quoted(out.name)), out.column, out.name) for out in self.query.outputs]
            return frame.select(*beside, *flat, *own)
        shown = [at for at in range(len(self.query.streams)) if at not in self.query.hidden_streams]
        structs = [self._struct(position) for position in shown]
        return frame.select(*beside, *structs, "_time", *own)

    def _struct(self, position: int) -> SparkColumn:
        stream = self.query.streams[position]
        whole = F.col(quoted(stream.name))
        columns = enumerate(stream.schema.names)
        fields = [self._column(whole.getField(name), Column(position, at), name) for at, name in columns]
        made = F.struct(*fields)
        if position in self.query.nullable_streams:  # [!] a struct of NULLs is not NULL
            made = F.when(whole.isNotNull(), made)
        return made.alias(stream.name)

    def _column(self, value: SparkColumn, column: Column, name: str) -> SparkColumn:
        return restored(value, self._kind_of(column)).alias(name)

    def _structs(self, frame: DataFrame, *beside: str) -> DataFrame:
        """Return flat results with one struct column per stream, `_time` and `_id`, as far as they are read."""
        structs = []
        for position, spec in enumerate(self.query.streams):
            mine = [out for out in self.query.outputs if out.column.stream == position]
            fields = [F.col(out.name).alias(spec.schema.field(out.column.field).name) for out in mine]
            structs += [F.struct(*fields).alias(spec.name)] if fields else []
        structs += [F.col(out.name).alias("_time") for out in self.query.outputs if out.column == RESULT_TIME]
        structs += [F.col(ID)] if self.identity else []
        return frame.select(*beside, *structs)

    def why(self, tuples: Mapping[str, Values] | None = None, /, **streams: Values) -> Answer:
        """Return what became of tuples of static inputs, and of their combination.

        Args:
            tuples: For streams that are asked about the values by which to find their tuples, as a dict or as a text.
            streams: The same, by the names of the streams: `join.why(a={"id": 17}, b="id = 4")`.

        Raises:
            DefinitionError: If an input is streaming, or there is no such stream, column or value.
        """
        return why_static(self, given_by(tuples, streams))

    def toDF(self) -> DataFrame:
        """Return the join of static inputs as a frame: lazy, and computed anew whenever it is used.

        A frame like any other: when the driver runs out of memory, PySpark's `collect()` may return fewer rows of it,
        and no error; `toArrow()` raises.

        Raises:
            DefinitionError: If an input is streaming.
        """
        if any(frame.isStreaming for _, frame in self.leaves):
            raise DefinitionError("toDF() joins static inputs; use writeStream for streaming ones.")
        if self.spill is not None:
            raise DefinitionError("toDF() computes all at once, and has nothing to put off: leave spill= out.")
        self.check_settings()
        folder = tempfile.mkdtemp(prefix="watersmeet-")
        store = Store(folder)
        save_address_space(self.spark)
        checks.workers(self.spark, store)
        where = host(self.spark, shared=True)
        run = uuid.uuid4().hex[:12]
        operator = Operator(self.query, self.strategy, store, run, self.ordering, where)
        batch = operator.plan(operator.start())
        batch = replace(batch, intake=replace(batch.intake, repeatable=True))
        shares = max(batch.placement.nodes, self.spark.sparkContext.defaultParallelism)
        rows = SparkStage(union(self.query, self.frames, False, self.computed(), self.told))
        found = self.query.pending_schema if self.query.deferred_conjuncts else self.query.output_schema
        error = tasks.error_column(found.names)
        columns = T.StructType([*spark_schema(found), T.StructField(error, T.StringType())])
        frame = told(rows, batch, shares).frame.mapInArrow(tasks.on_spark(tasks.show(batch, shares)), columns)
        raised = F.raise_error(F.col(error))
        frame = frame.where(F.col(error).isNull() | raised.isNull()).drop(error)
        decided = self._decided(frame) if self.query.deferred_conjuncts else frame
        made = self._selected(self._identified(decided, STATIC, stored=False))
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
