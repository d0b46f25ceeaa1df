"""`join.writeStream`: Spark's writer, as users know it."""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watersmeet.adapt.findings import check_definition
from watersmeet.arguments import bytes_of, microseconds
from watersmeet.batch.side_outputs import SIDES
from watersmeet.errors import DefinitionError, StateError
from watersmeet.observe.lateness import LATE_SHARE
from watersmeet.runtime.protocol import closed_for_good
from watersmeet.spark.api.asking import write_down
from watersmeet.spark.api.options import OWN_OPTIONS
from watersmeet.spark.api.running import JoinQuery
from watersmeet.spark.api.spill import quotas_of
from watersmeet.spark.checkpoint.lease import take
from watersmeet.spark.checkpoint.leftovers import clear
from watersmeet.spark.checkpoint.offsets import Offsets
from watersmeet.spark.checkpoint.paths import Place, absolute, place, reached, text_of
from watersmeet.spark.output import tables
from watersmeet.spark.output.delta import DeltaSink, check_jars
from watersmeet.spark.output.files import Folder
from watersmeet.spark.output.outputs import Outputs
from watersmeet.spark.output.sinks import FILE_FORMATS, FileSink, FrameSink, Sink
from watersmeet.spark.output.tables import TableSink
from watersmeet.spark.run import checks, observed
from watersmeet.spark.run.batch import BatchRunner, Checkpoint, description, what
from watersmeet.spark.run.exchange import warm_up
from watersmeet.spark.run.failures import failure
from watersmeet.spark.run.frames import host, is_local
from watersmeet.spark.run.tree import FrameTree
from watersmeet.spark.run.workers import save_address_space
from watersmeet.spilling.controller import Controller
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.claim import claim, read_description
from watersmeet.state.store.store import Store

if TYPE_CHECKING:
    from watersmeet.spark.api.join import Join

Consume = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class JoinWriter:
    """Builds a running join; every method returns a new writer.

    File formats (parquet, json, csv, orc), tables made of such files and Delta hold each result exactly once, through
    any crash; other formats and tables and foreachBatch at least once.
    """

    join: "Join"
    _format: str = "parquet"
    _options: Mapping[str, str] = field(default_factory=dict)
    _partitions: tuple[str, ...] = ()
    _trigger: Mapping[str, Any] = field(default_factory=dict)
    _name: str | None = None
    _consume: Consume | None = None
    _table: str | None = None

    def format(self, source: str) -> "JoinWriter":
        """Set the sink's format: parquet, json, csv, orc, delta, console, memory, noop, or any that Spark writes."""
        checks.text("format", source, "parquet")
        return replace(self, _format=source.lower())

    def option(self, key: str, value: Any) -> "JoinWriter":
        """Set an option: one of the writer's own, which docs/reference.md lists, or one of the format's."""
        checks.text("option", key, "checkpointLocation")
        return self.options(**{key: value})

    def options(self, **options: Any) -> "JoinWriter":
        """Set several options."""
        own = {name.lower(): name for name in OWN_OPTIONS}  # Spark doesn't look at the case of an option's name
        for key, value in options.items():
            checks.option(key, value, own)
        plain = {
            own.get(key.lower(), key): str(value).lower() if isinstance(value, bool) else text_of(value, key)
            for key, value in options.items()
            if value is not None
        }
        return replace(self, _options={**self._options, **plain})

    def outputMode(self, outputMode: str) -> "JoinWriter":
        """Accept `append`: a join only ever adds results."""
        if str(outputMode).lower() != "append":
            raise DefinitionError(f"outputMode('{outputMode}'): a join only adds results; use 'append'.")
        return self

    def partitionBy(self, *columns: str | Sequence[str]) -> "JoinWriter":
        """Lay files out in folders by these output columns."""
        several = [given if isinstance(given, list | tuple) else [given] for given in columns]
        flat: list[Any] = [name for names in several for name in names]
        for name in flat:
            checks.text("partitionBy", name, "zone")
        return replace(self, _partitions=tuple(flat))

    def trigger(self, **trigger: Any) -> "JoinWriter":
        """Set the trigger, as Spark's writer does: `processingTime`, `once` or `availableNow`."""
        checks.trigger(trigger)
        return replace(self, _trigger=trigger)

    def queryName(self, queryName: str) -> "JoinWriter":
        """Name the query."""
        checks.text("queryName", queryName, "matches")
        return replace(self, _name=queryName)

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> "JoinWriter":
        """Hand each batch's results, already computed, to a function; at least once."""
        if not callable(func):
            raise DefinitionError(f"foreachBatch({func!r}): give a function of a frame and the number of a batch.")
        return replace(self, _consume=func)

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | Sequence[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> "JoinQuery":
        """Append to a table, made if there is none, and start.

        Tables of Spark's own catalog that are files hold each result exactly once, others at least once.

        Args:
            tableName: The table.
            format: See `format`; of a table that exists, its own.
            outputMode: See `outputMode`.
            partitionBy: See `partitionBy`; of a table that exists, its own.
            queryName: See `queryName`.
            options: See `options`.
        """
        checks.text("toTable", tableName, "matches")
        writer = self.options(**options)
        writer = writer if format is None else writer.format(format)
        writer = writer if outputMode is None else writer.outputMode(outputMode)
        writer = writer if partitionBy is None else writer.partitionBy(partitionBy)
        writer = writer if queryName is None else writer.queryName(queryName)
        return replace(writer, _table=tableName).start()

    def start(self, path: str | PathLike[str] | None = None) -> "JoinQuery":
        """Start the join.

        Raises:
            DefinitionError: If something is missing or the checkpoint belongs to another query.
        """
        if path is not None:
            checks.text("start", fspath(path) if isinstance(path, PathLike) else path, "/data/matches")
        writer = self if path is None else self.option("path", path)
        given = self._options.get("path", writer._options.get("path"))
        if given != writer._options.get("path"):
            raise DefinitionError(f"The path is given twice: option('path', {given!r}) and start({str(path)!r}).")
        try:
            return writer._start()
        except OSError as error:
            raise StateError(f"The query was not started: {what(error)}; start it again once that is fixed.") from None

    def _start(self) -> "JoinQuery":
        join, spark = self.join, self.join.spark
        self._check()
        location = self._place(
            checks.location(spark, self._options.get("checkpointLocation"), self._name), "checkpointLocation"
        )
        chosen = checks.exchange(self._options.get("exchange"), is_local(spark))
        samples = checks.samples(self._options.get("samples"), join.stream_columns)
        near_misses = checks.whole("nearMisses", self._options.get("nearMisses", "0"))
        durable = checks.switch("durable", self._options.get("durable", "true"))
        late_share = checks.share("lateWarning", self._options.get("lateWarning", str(LATE_SHARE)))
        final = checks.final(self._options.get("final", "false"), self._trigger)
        opened = bytes_of(self._options["openBytes"], "option 'openBytes'") if "openBytes" in self._options else 0
        sink, sides = self._sink(), self._sides()
        kept = location.inside("watersmeet")
        checks.apart(kept.arrow, *self._outputs(sink, sides))
        store, offsets = Store(kept.arrow, durable, opened), Offsets(Store(location.arrow))
        left = manifests.last(store)
        offsets.check_done(None if left is None else left.offered)
        ends = any(self._trigger.get(name) for name in ("availableNow", "once"))
        if left is not None and left.final and not ends:
            raise StateError(closed_for_good(store.root))
        with checks.writable(location.spark):
            store.check()
            save_address_space(spark)
            checks.workers(spark, store)
            lease = take(store)
        try:
            warm_up(spark, chosen)
            before = read_description(store)
            join = join.continued(before)
            tree = join.tree(never_idle=bool(self._trigger.get("availableNow")))
            name, run = claim(store, description(tree), sink.output, sink.layout), uuid.uuid4().hex[:12]
            if before:  # else Spark's logs are no join's
                clear(offsets.checkpoint)
            outputs = Outputs(
                sink.written_by(name, run, durable),
                join.plain,
                {kind: folder.written_by(name, run, durable) for kind, folder in sides.items()},
                name,
            )
            where, told = host(spark, shared=chosen != "shuffle"), (bool(sides), samples, near_misses)
            joins = tree.operators(store, run, where, *told)
            checkpoint = Checkpoint(kept, name, store, lease, offsets)
            runner = BatchRunner(
                tree,
                joins,
                checkpoint,
                outputs,
                chosen,
                self._due(),
                name=self._name,
                late_share=late_share,
                final=final,
            )
            if tree.spill is not None:
                slots = joins.operator.host.slots or 1
                runner.spilling = Controller(tree.spill, name, slots, quotas_of(tree.spill, joins))
            runner.open()
            runner.prepare(join.stream_schemas)
            write_down(join, runner)
            _warn(tree)
            runner.observed = observed.is_listened(spark)
            rows = tree.input(bool(sides))
            rows = observed.observing(rows) if runner.observed else rows
            return JoinQuery(self._begin(rows, location, runner), join, runner, ends)
        except BaseException:
            lease.end()
            raise

    def _begin(self, rows: DataFrame, location: Place, runner: BatchRunner) -> StreamingQuery:
        """Start Spark's query.

        Raises:
            StateError: If Spark can't read or write its part of the checkpoint.
        """
        try:
            return self._stream(rows, location).foreachBatch(runner).start()
        except (Py4JJavaError, SparkRuntimeException) as error:
            raise failure(error, runner.checkpoint.offsets.checkpoint, runner.checkpoint.lease) from error

    def _outputs(self, sink: Sink, sides: Mapping[str, Folder]) -> Iterator[tuple[str, str]]:
        """Yield each folder that files are put in, with what it is for."""
        if isinstance(sink, FileSink):
            yield sink.folder.place.arrow, "path"
        for kind, folder in sides.items():
            for name, _ in self.join.stream_schemas:
                yield folder.inside(name).place.arrow, f"{kind}Path, stream '{name}'"

    def _check(self) -> None:
        """Refuse what can be seen to be wrong before anything is looked at or written."""
        join = self.join
        join.check_settings()
        checks.streaming(join.sources)
        checks.output(self._format if self._consume is None else None, join.query, join.select)
        if join.spill is not None and "punctuationPath" in self._options:
            raise DefinitionError(
                "punctuationPath does not go with spill=: what is owed may still match a punctuation; leave one out."
            )
        if self._partitions:
            checks.partitions(self._partitions, join.schema.names)

    def _stream(self, rows: DataFrame, location: Place) -> DataStreamWriter:
        stream = rows.writeStream.option("checkpointLocation", location.spark)
        if self._name:
            stream = stream.queryName(self._name)
        return stream.trigger(**self._trigger) if self._trigger else stream

    def _place(self, given: str, what: str) -> Place:
        return reached(place(self.join.spark, given, what), what)

    def _sides(self) -> dict[str, Folder]:
        """Return the folders for late, rejected and denied rows."""
        named = {kind: f"{kind}Path" for kind in SIDES if f"{kind}Path" in self._options}
        if named:
            columns = [(name, frame.columns) for name, frame in self.join.leaves]
            checks.alike(columns, "rows that are not taken are written with every column: rename one")
        return {kind: Folder(self._place(self._options[option], option), option) for kind, option in named.items()}

    def _due(self) -> float | None:
        """Return the seconds from one batch to the next, if the trigger says so; zero is as soon as possible."""
        every = self._trigger.get("processingTime")
        return (microseconds(every, "processingTime") / 1e6 or None) if every else None

    def _sink_options(self) -> dict[str, str]:
        return {key: value for key, value in self._options.items() if key not in OWN_OPTIONS}

    def _sink(self) -> Sink:
        if self._consume is not None:
            return FrameSink(self._consume)
        if self._table is not None:
            return self._into_table(self._table)
        if self._format in FILE_FORMATS:
            folder = Folder(self._place(self._path(), "path"), "path")
            checks.folder(folder)
            return FileSink(self._format, folder, self._sink_options(), self._partitions)
        if self._format == "delta":
            check_jars(self.join.spark)
            path = absolute(self.join.spark, self._path())
            return DeltaSink(self.join.spark, path, self._sink_options(), self._partitions)
        if self._format not in _CONSUMERS:
            checks.known_format(self.join.spark, self._format)
        return FrameSink(_CONSUMERS.get(self._format, JoinWriter._save)(self))

    def _into_table(self, name: str) -> Sink:
        spark, none = self.join.spark, self.join.read_results(self.join.leaves[0][1], (), "")
        options = self._sink_options()
        if not tables.exists(spark, name):
            place = {"path": absolute(spark, self._options["path"])} if "path" in self._options else {}
            tables.made(none, name, self._format, options | place, self._partitions)
        table = tables.file_table(spark, name)
        if table is None:
            return FrameSink(tables.appending(spark, name))
        table.check(none.schema)
        folder = Folder(self._place(table.location, "path"), "path")
        checks.folder(folder)
        own = (table.format, folder, {**table.options, **options}, table.partition_by)
        return TableSink(*own, table=table, spark=spark)

    def _path(self) -> str:
        if "path" not in self._options:
            raise DefinitionError(f"format('{self._format}') needs a path: .option('path', ...) or .start(path).")
        return self._options["path"]

    def _save(self) -> Consume:
        options = self._sink_options()
        if "path" in self._options:
            options["path"] = absolute(self.join.spark, self._options["path"])

        def consume(frame: DataFrame, batch: int) -> None:
            frame.write.format(self._format).mode("append").options(**options).partitionBy(*self._partitions).save()

        return consume

    def _console(self) -> Consume:
        rows = checks.whole("numRows", self._options.get("numRows", "20"))
        truncate = self._options.get("truncate", "true").lower() == "true"

        def consume(frame: DataFrame, batch: int) -> None:
            line = "-" * 43
            print(f"{line}\nBatch: {batch}\n{line}")
            frame.show(rows, truncate)

        return consume

    def _memory(self) -> Consume:
        if not self._name:
            raise DefinitionError("format('memory') needs a name: .queryName('...').")
        name, spark, kept = self._name, self.join.spark, list[pa.Table]()

        def consume(frame: DataFrame, batch: int) -> None:
            kept.append(frame.toArrow())
            spark.createDataFrame(pa.concat_tables(kept), frame.schema).createOrReplaceTempView(name)

        return consume


def _warn(tree: FrameTree) -> None:
    """Log what people are to look at before a join runs for long."""
    for node in tree.walk():
        for finding in check_definition(node.query):
            if finding.severity == "warning":
                logging.getLogger("watersmeet").warning(finding.says)


_CONSUMERS: dict[str, Callable[[JoinWriter], Consume]] = {
    "console": JoinWriter._console,
    "memory": JoinWriter._memory,
}
