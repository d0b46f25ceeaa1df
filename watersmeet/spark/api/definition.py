"""The definition of a join of Spark frames: its streams and output, and how its results are read."""

import atexit
import logging
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.batch.operator import Operator
from watersmeet.caching import cached_property
from watersmeet.errors import DefinitionError
from watersmeet.exchange.exchanges import run_intake
from watersmeet.ordering import Given, Ordering
from watersmeet.placement import Strategy
from watersmeet.predicate.model import Column, Conjunct
from watersmeet.query.continuation import continue_join, describe_kept_delays
from watersmeet.query.query import OWN_TIME, RESULT_TIME, Output, Query, Tracing
from watersmeet.query.windows import Window
from watersmeet.spark.output.identity import ID, add_identity
from watersmeet.spark.output.lost_columns import FileColumns
from watersmeet.spark.run import checks
from watersmeet.spark.run.frame_tree import FrameTree
from watersmeet.spark.run.frames import (
    HiddenValues,
    PunctuationFrame,
    arrow_schema,
    attempt_name,
    from_stored,
    hash_input,
    hidden_name,
    host,
    is_odd,
    quote_name,
    spark_schema,
    union,
)
from watersmeet.spark.run.jobs import case_columns, decide_cases
from watersmeet.spark.run.spark_stages import SparkStage
from watersmeet.spark.run.workers import error_column, save_address_space, spark_task, static_task
from watersmeet.spark.sql.dialect import dialect_of
from watersmeet.spark.sql.select import Selection
from watersmeet.spark.sql.where import Where
from watersmeet.spilling.options import Spill
from watersmeet.state.store.store import Store

STATIC = "static"
"""The origin of the results of static frames, which have no checkpoint and are all in one batch."""


@dataclass(frozen=True)
class JoinDefinition:
    """A join of streams, before it runs; `Join` adds what users do with it.

    Attributes:
        query: The join as the core knows it.
        frames: The inputs, in the order of the streams; None where the stream is itself a join.
        strategy: Where tuples are kept.
        ordering: In which order streams are probed.
        select: The SELECT list that Spark computes over the results; None if the engine computes the output itself.
        inner: The joins that are streams of this one, by position.
        where: What Spark computes for each tuple, and decides for combinations of them.
        punctuations: Frames that hold the punctuations of a stream.
        purge_every: How many batches pass between two searches for tuples that can no longer join anything.
        remember: How many microseconds of the watermark constraints and punctuations are remembered; None for ever.
        spill: When work is spilled, here and in inner joins; None for never.
        identity: Whether results have an `_id`, in the output or for the SELECT list to read.
    """

    query: Query
    frames: tuple[DataFrame | None, ...]
    strategy: Strategy
    ordering: Ordering = field(default_factory=Given)
    select: Selection | None = None
    inner: Mapping[int, "JoinDefinition"] = field(default_factory=dict)
    where: Where = field(default_factory=Where)
    punctuations: tuple[PunctuationFrame, ...] = ()
    purge_every: int = 1
    remember: int | None = None
    spill: Spill | None = None
    identity: bool = False

    @property
    def leaves(self) -> list[tuple[str, DataFrame]]:
        """All streams that are frames, including those of inner joins."""
        inputs = zip(self.query.streams, self.frames, strict=True)
        own = [(stream.name, frame) for stream, frame in inputs if frame is not None]
        return own + [leaf for join in self.inner.values() for leaf in join.leaves]

    @property
    def sources(self) -> list[tuple[str, DataFrame]]:
        """All streams that are frames but not tables, including those of inner joins."""
        inputs = zip(self.query.streams, self.frames, strict=True)
        own = [(stream.name, frame) for stream, frame in inputs if frame is not None and not stream.table]
        return own + [leaf for join in self.inner.values() for leaf in join.sources]

    @property
    def stream_schemas(self) -> list[tuple[str, pa.Schema]]:
        """The distinct names and schemas of all streams but tables, including those of inner joins."""
        own = [(stream.name, stream.schema) for stream in self.query.streams if not stream.table]
        inner = [pair for join in self.inner.values() for pair in join.stream_schemas]
        return list(dict.fromkeys([*own, *inner]))

    @property
    def stream_columns(self) -> list[str]:
        """The columns of all streams, including those of inner joins."""
        own = [name for stream in self.query.streams for name in stream.schema.names]
        return own + [name for join in self.inner.values() for name in join.stream_columns]

    @property
    def spark(self) -> SparkSession:
        """The session of the inputs."""
        return self.leaves[0][1].sparkSession

    @cached_property
    def kinds(self) -> tuple[T.StructType, ...]:
        """The columns of each stream as Spark's types, which include collations, as Arrow's don't."""
        return tuple(self.inner[at].kind if frame is None else frame.schema for at, frame in enumerate(self.frames))

    @property
    def kind(self) -> T.StructType:
        """The columns of the results as Spark's types."""
        return self._select_output(self.empty_frame()).schema

    def _kind_of(self, column: Column) -> T.DataType:
        """Return Spark's type of a column of the input, of a column computed for `where`, or of the result time."""
        if column == RESULT_TIME:
            return T.TimestampType()
        kind = self.kinds[column.stream]
        width = len(kind.fields)
        if column.field < width:
            return kind.fields[column.field].dataType
        return self.where.computed[column.stream][column.field - width].kind

    @property
    def schema(self) -> pa.Schema:
        """The schema of the results. Spark analyses a SELECT list for it, over an empty frame."""
        if self.select is None:
            own = [pa.field(ID, pa.string())] if self.identity else []
            return pa.schema([*self.query.output_schema, *own])
        return arrow_schema(self._select_output(self.empty_frame()))

    def empty_frame(self) -> DataFrame:
        """Return a frame of flat results, as the SELECT list reads them, without rows."""
        own = [T.StructField(ID, T.StringType())] if self.identity else []
        return self.spark.createDataFrame([], T.StructType([*spark_schema(self.query.output_schema), *own]))

    def with_time(self) -> Self:
        """Return the join with `_time` in its output, as needed by a join of which it is a stream.

        Raises:
            DefinitionError: If it has a SELECT list, which lacks it.
        """
        if "_time" in self.schema.names:
            return self
        if self.select is not None:
            text = self.select.text
            raise DefinitionError(f"A join that is a stream of another needs its time: add _time to '{text}'.")
        outputs = (*self.query.outputs, Output("_time", RESULT_TIME))
        return replace(self, query=replace(self.query, outputs=outputs))

    def time_window(self, name: str) -> Window | None:
        """Return how far an output column can lie behind the results' own times, as a window; None if unknown.

        Args:
            name: An output column of timestamps.
        """
        column = self._sources.get(name.lower())
        if column is None or column == RESULT_TIME:
            return None if column is None else OWN_TIME
        window = self.query.streams[column.stream].window
        is_bounded = self.query.is_time(column) and column.stream in self.query.members and not self.query.is_full
        return window if is_bounded and window.span is not None else None

    @property
    def _sources(self) -> Mapping[str, Column]:
        """The output columns that are plain columns of streams, by their lower-case names."""
        if self.select is not None:
            return self.select.sources
        return {output.name.lower(): output.column for output in self.query.outputs} or {"_time": RESULT_TIME}

    @property
    def output_positions(self) -> dict[Column, list[int]]:
        """The positions in the output at which a stream's column appears unchanged."""
        schema, positions = self.schema, dict[Column, list[int]]()
        names = [name.lower() for name in schema.names]
        for name, column in self._sources.items():
            matches = [at for at, other in enumerate(names) if other == name]
            if len(matches) == 1 and schema.field(matches[0]).type == self.query.type_of(column):
                positions.setdefault(column, []).append(matches[0])
        return positions

    def tree(self, path: str = "j", never_idle: bool = False, spill: Spill | None = None) -> FrameTree:
        """Return the join and its inner joins in the form that the runtime takes.

        Args:
            path: Where the join stands in the tree.
            never_idle: Whether to ignore idle timeouts: under availableNow a silent stream has ended.
            spill: When work is spilled in the whole tree, if an outer join decides.
        """
        tracing: Tracing = "results" if spill is not None else "pending" if self.spill is not None else "none"
        spill = spill or self.spill
        inner = {at: join.tree(f"{path}_{at}", never_idle, spill) for at, join in self.inner.items()}
        streams = tuple(replace(s, idle=None) if never_idle else s for s in self.query.streams)
        query = replace(self.query, streams=streams, tracing=tracing)
        run = replace(self, query=query)
        reads = (run.read_results, run.decide)
        how = (self.strategy, self.ordering, *reads, self.hidden_columns(), inner, path)
        tables = {at for at, stream in enumerate(query.streams) if stream.table}
        frames = tuple(None if at in tables else frame for at, frame in enumerate(self.frames))
        tree = FrameTree(query, frames, *how, self.punctuations, self.purge_every, self.remember, spill)
        table_frames = {at: frame for at in tables if (frame := self.frames[at]) is not None}
        return replace(tree, tables=table_frames, columns=self._file_columns)

    def resume_from(self, stored: Mapping[str, Any]) -> Self:
        """Return the join as it continues from a checkpoint, including inner joins; log which delays are kept.

        Args:
            stored: The description in the checkpoint; empty if there is none yet.
        """
        query = continue_join(self.query, stored)
        for sentence in describe_kept_delays(self.query, query):
            logging.getLogger("watersmeet").warning(sentence)
        names = {at: f"join '{self.query.streams[at].name}'" for at in self.inner}
        inner = {at: join.resume_from(stored.get(names[at], {})) for at, join in self.inner.items()}
        is_same = query is self.query and all(join is self.inner[at] for at, join in inner.items())
        return self if is_same else replace(self, query=query, inner=inner)

    @cached_property
    def _file_columns(self) -> dict[int, FileColumns]:
        """The columns that the files of refreshed tables had, remembered from one start to the next."""
        return {at: FileColumns(stream.name) for at, stream in enumerate(self.query.streams) if stream.refreshed}

    def hidden_columns(self) -> list[HiddenValues]:
        """Return, for each stream, what computes its hidden columns."""
        return [
            HiddenValues(
                {attempt_name(hidden.column.field): hidden.attempt for hidden in stream if hidden.attempt is not None},
                [hidden.value for hidden in stream],
            )
            for stream in self.where.computed or [()] * len(self.query.streams)
        ]

    def check_settings(self) -> None:
        """Check that the session still has the settings under which the join was defined.

        Raises:
            DefinitionError: If they have changed: the condition would then mean something else to Spark.
        """
        now = dialect_of(self.spark)
        if now != self.query.dialect:
            raise DefinitionError(
                f"The join was defined with {self.query.dialect.describe()}, and the session now has "
                f"{now.describe()}: set it back, or define the join again."
            )
        for join in self.inner.values():
            join.check_settings()

    def read_results(self, batch: DataFrame, files: Sequence[str], origin: str) -> DataFrame:
        """Return result files as a frame of the output's schema, preceded by the traces of results that carry them.

        Args:
            batch: The batch's input.
            files: All results of the batch.
            origin: A text that distinguishes the batch from all others; see `add_identity`.
        """
        beside = [self.query.trace_name] if self.query.tracing == "results" else []
        rows = _read_files(batch, files, self.query.file_schema)
        if files or not self.identity:
            return self._select_output(self._add_identity(rows, origin, stored=True), *beside)
        # [!] Spark takes an empty frame for the largest there is, and would spread it over thousands of tasks.
        return self._select_output(rows.withColumn(ID, F.lit("")), *beside)

    def _add_identity(self, frame: DataFrame, origin: str, stored: bool) -> DataFrame:
        """Return results, as files hold them, with their `_id` if it is needed."""
        return add_identity(frame, self._content, origin, stored) if self.identity else frame

    @cached_property
    def _content(self) -> list[SparkColumn]:
        """The parts of results to hash, as files hold them; cached, since building them takes many calls to the JVM."""
        return hash_input([(F.col(quote_name(f.name)), f.dataType) for f in spark_schema(self.query.output_schema)])

    def decide(self, batch: DataFrame, files: Sequence[str]) -> DataFrame:
        """Return a frame of the combinations in files that are results, as Spark decides; see `_decide`."""
        return self._decide(_read_files(batch, files, self.query.pending_schema))

    def _decide(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the pending schema that are results, as flat results, with their traces if they have any.

        Every conjunct left to Spark holds for them; with optional streams, see `decide_cases`.
        """
        query = self.query
        output = [F.col(f"o{at}") for at in range(len(query.traced_schema))]
        parts = [F.struct(*output).alias(hidden_name("shown")), *self._inputs_of(query.deferred_conjuncts)]
        if query.optional:
            matches = decide_cases(self.where, query, frame.select(*parts, *case_columns(query)))
        else:
            matches = self.where.decide(
                frame.select(*parts), [conjunct.clause for conjunct in query.deferred_conjuncts]
            )
        names = query.traced_schema.names
        return matches.select(*(F.col(hidden_name("shown"))[f"o{at}"].alias(name) for at, name in enumerate(names)))

    def _inputs_of(self, conjuncts: Sequence[Conjunct]) -> list[SparkColumn]:
        """Return the columns that Spark reads to decide conjuncts, from those of the pending schema.

        Each stream is a struct; hidden columns and the answers of Python predicates stand beside, under hidden names.
        """
        columns = sorted({column for conjunct in conjuncts for column in conjunct.columns})
        calls = {call.name for conjunct in conjuncts for call in conjunct.calls}
        parts = [F.col(name).alias(hidden_name(name)) for name in sorted(calls)]
        for position, stream in enumerate(self.query.streams):
            values = {c: from_stored(F.col(c.name), self._kind_of(c)) for c in columns if c.stream == position}
            own = {c: value for c, value in values.items() if c.field < len(stream.schema)}
            fields = [value.alias(stream.schema.field(c.field).name) for c, value in own.items()]
            parts += [F.struct(*fields).alias(stream.name)] if fields else []
            parts += [value.alias(hidden_name(c.name)) for c, value in values.items() if c not in own]
        return parts

    def answer(self, conjunct: Conjunct, combination: pa.Table) -> bool | None:
        """Have Spark decide whether a conjunct holds for one combination, in a job of its own; None for NULL.

        Args:
            conjunct: A conjunct that is left to Spark.
            combination: One row: its columns, and the answers of its predicates.
        """
        frame = self._combination(conjunct, combination)
        answer = frame.select(self.where.conditions[conjunct.clause].cast("boolean")).first()
        assert answer is not None
        return answer[0]  # type: ignore[no-any-return]

    def compute_sides(self, conjunct: Conjunct, combination: pa.Table) -> list[pa.Array]:
        """Have Spark compute the values that a conjunct compares in one combination, each as an array; see `answer`."""
        sides = [side.alias(f"c{at}") for at, side in enumerate(self.where.sides[conjunct.clause])]
        values = self._combination(conjunct, combination).select(*sides).toArrow()
        return [column.combine_chunks() for column in values.columns]

    def _combination(self, conjunct: Conjunct, combination: pa.Table) -> DataFrame:
        frame = self.spark.createDataFrame(combination, spark_schema(combination.schema))
        return frame.select(*self._inputs_of([conjunct]))

    def _select_output(self, frame: DataFrame, *beside: str) -> DataFrame:
        """Return flat results as the output: of their own types, through the SELECT list; `beside` comes first."""
        rows = self._restore_types(frame, *beside)
        return rows if self.select is None else self.select.over(self.nest(rows, *beside), *beside)

    @property
    def plain(self) -> bool:
        """Whether result files hold the output as it is."""
        return self.select is None and not self._is_odd and not self.identity

    @cached_property
    def _is_odd(self) -> bool:
        """Whether the type of an output column in result files differs from that in its stream."""
        return any(is_odd(self._kind_of(column)) for column in self.query.output_columns)

    def _restore_types(self, frame: DataFrame, *beside: str) -> DataFrame:
        """Return results with the streams' own types where state stores others; the columns `beside` come first."""
        if not self._is_odd:
            return frame
        own = [ID] if self.identity else []
        if self.query.outputs:
            flat = [self._column(F.col(quote_name(o.name)), o.column, o.name) for o in self.query.outputs]
            return frame.select(*beside, *flat, *own)
        visible = [at for at in range(len(self.query.streams)) if at not in self.query.hidden_streams]
        structs = [self._struct(position) for position in visible]
        return frame.select(*beside, *structs, "_time", *own)

    def _struct(self, position: int) -> SparkColumn:
        """Return a stream's tuple as a struct; NULL, not a struct of NULLs, if an optional stream has no partner."""
        stream = self.query.streams[position]
        whole = F.col(quote_name(stream.name))
        columns = enumerate(stream.schema.names)
        fields = [self._column(whole.getField(name), Column(position, at), name) for at, name in columns]
        struct = F.struct(*fields)
        if position in self.query.nullable_streams:  # [!] a struct of NULLs is not NULL
            struct = F.when(whole.isNotNull(), struct)
        return struct.alias(stream.name)

    def _column(self, value: SparkColumn, column: Column, name: str) -> SparkColumn:
        return from_stored(value, self._kind_of(column)).alias(name)

    def nest(self, frame: DataFrame, *beside: str) -> DataFrame:
        """Return flat results as the SELECT list reads them.

        These are the columns `beside`, a struct per stream that is read, and `_time` and `_id` if they are.
        """
        structs = []
        for position, spec in enumerate(self.query.streams):
            outputs = [output for output in self.query.outputs if output.column.stream == position]
            fields = [F.col(output.name).alias(spec.schema.field(output.column.field).name) for output in outputs]
            structs += [F.struct(*fields).alias(spec.name)] if fields else []
        structs += [F.col(o.name).alias("_time") for o in self.query.outputs if o.column == RESULT_TIME]
        structs += [F.col(ID)] if self.identity else []
        return frame.select(*beside, *structs)

    def toDF(self) -> DataFrame:
        """Return the join of static inputs as a frame: lazy, and computed anew whenever it is used.

        As with any frame, when the driver runs out of memory, PySpark's `collect()` may return fewer rows without an
        error; `toArrow()` raises.

        Makes a temporary folder, which is removed with the frame, and checks that workers can use it.

        Raises:
            DefinitionError: If an input is streaming, the join spills, the session's settings have changed, or workers
                can't run it.
        """
        if any(frame.isStreaming for _, frame in self.leaves):
            raise DefinitionError("toDF() joins static inputs; use writeStream for streaming ones.")
        if self.spill is not None:
            raise DefinitionError("toDF() computes everything at once and never spills: leave spill= out.")
        self.check_settings()
        folder = tempfile.mkdtemp(prefix="watersmeet-")
        store = Store(folder)
        save_address_space(self.spark)
        checks.prepare_workers(self.spark, store)
        where = host(self.spark, shared=True)
        run = uuid.uuid4().hex[:12]
        operator = Operator(self.query, self.strategy, store, run, self.ordering, where)
        batch = operator.plan(operator.start())
        batch = replace(batch, intake=replace(batch.intake, repeatable=True))
        shares = max(batch.placement.nodes, self.spark.sparkContext.defaultParallelism)
        rows = SparkStage(union(self.query, self.frames, False, self.hidden_columns(), self.punctuations))
        schema = self.query.pending_schema if self.query.deferred_conjuncts else self.query.output_schema
        error = error_column(schema.names)
        columns = T.StructType([*spark_schema(schema), T.StructField(error, T.StringType())])
        frame = run_intake(rows, batch, shares).frame.mapInArrow(spark_task(static_task(batch, shares)), columns)
        raised = F.raise_error(F.col(error))
        frame = frame.where(F.col(error).isNull() | raised.isNull()).drop(error)
        matches = self._decide(frame) if self.query.deferred_conjuncts else frame
        output = self._select_output(self._add_identity(matches, STATIC, stored=False))
        # Tasks make the folder anew if a frame derived from this one outlives it; it is removed when the process ends.
        weakref.finalize(output, shutil.rmtree, folder, ignore_errors=True)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return output


def _read_files(batch: DataFrame, files: Sequence[str], schema: pa.Schema) -> DataFrame:
    """Return files of the store as a frame in the session of a batch; there may be none."""
    session, columns = batch.sparkSession, spark_schema(schema)
    if not files:
        return session.createDataFrame([], columns)
    # [!] Otherwise a checkpoint in a folder like run[1] is read as a pattern.
    return session.read.option("__globPaths__", "false").schema(columns).parquet(*files)
