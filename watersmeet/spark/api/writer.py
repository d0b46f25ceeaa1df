"""`join.writeStream`: Spark's writer, as users know it."""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame

from watersmeet.adapt.findings import check_definition
from watersmeet.arguments import bytes_of, microseconds
from watersmeet.batch.side_outputs import SIDES
from watersmeet.errors import DefinitionError, StateError
from watersmeet.observe.lateness import LATE_SHARE
from watersmeet.runtime.commit_protocol import closed_for_good
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.spark.api.spill import quotas_of
from watersmeet.spark.api.why_running import store_description
from watersmeet.spark.checkpoint.lease import Lease, take
from watersmeet.spark.checkpoint.offsets import Offsets, start_on
from watersmeet.spark.checkpoint.paths import Location, absolute, check_reachable, locate, text_of
from watersmeet.spark.output import tables
from watersmeet.spark.output.files import Folder
from watersmeet.spark.output.outputs import Outputs
from watersmeet.spark.output.sinks import FILE_FORMATS, FileSink, FrameSink, Sink
from watersmeet.spark.output.tables import DeltaSink, TableSink, check_jars
from watersmeet.spark.run import checks, jobs
from watersmeet.spark.run.batch import BatchRunner, Checkpoint, description
from watersmeet.spark.run.failures import describe_error, failure
from watersmeet.spark.run.frame_tree import FrameTree
from watersmeet.spark.run.frames import host, is_local
from watersmeet.spark.run.spark_stages import warm_up
from watersmeet.spark.run.workers import save_address_space
from watersmeet.spilling.controller import Controller
from watersmeet.state.manifest.claim import claim, read_description
from watersmeet.state.store.store import Store

OWN_OPTIONS: Mapping[str, str] = {
    "checkpointLocation": "where Spark's progress and the join's state are stored; required",
    "path": "the folder for results, for formats of files and Delta",
    "latePath": "a folder for late tuples, with one subfolder per stream, as for the other four",
    "rejectedPath": "a folder for rejected rows; see docs/semantics.md",
    "deniedPath": "a folder for rows that contradict a constraint; see docs/metadata.md",
    "orphanPath": "a folder for orphans; see docs/metadata.md",
    "punctuationPath": "a folder for punctuations of the output; see docs/metadata.md",
    "samples": "the columns that `progress` shows of a few late, rejected and denied rows: `all` (the default), `none` "
    "or a list such as `id, name`; samples stay in the checkpoint for 500 batches",
    "nearMisses": "how many near-misses `progress` shows of each condition and batch, by default 0; see docs/asking.md",
    "lateWarning": "the share of a stream's rows that must be late for a warning, by default 0.05; see "
    "docs/semantics.md",
    "exchange": "how a batch's job runs: `driver` (the default on `local[...]`), `local`, `shuffle` (the default "
    "on a cluster) or `ring`; see docs/architecture.md",
    "openBytes": "how much state a process keeps open, such as `512 MB`; by default a share of the host's memory; see "
    "docs/cluster.md",
    "final": "`true` to close everything for good once `availableNow` has read all input; by default `false`; see "
    "docs/outer-joins.md",
    "durable": "`true` (the default), or `false` to skip flushing writes to disk; see docs/guarantees.md",
}
"""The options of a join. Any other is an option of the format."""
CONSOLE_OPTIONS: Mapping[str, str] = {
    "numRows": "how many results of a batch are printed, by default 20",
    "truncate": "`true` (the default) to cut long values, or `false`",
}
"""The options of the format `console`, as in Spark."""


Consume = Callable[[DataFrame, int], None]


class WriterSettings(NamedTuple):
    """The options of the writer's own that a run needs, checked.

    Attributes:
        exchange: How a batch's job runs.
        samples: The columns that samples of late, rejected and denied rows show; None for all.
        near_misses: How many near-misses are shown of each condition and batch.
        durable: Whether writes are flushed to disk.
        late_share: The share of late rows from which on a warning is due.
        final: Whether to close everything for good at the end.
        open_bytes: How much state a process keeps open; 0 for the default.
    """

    exchange: checks.Exchange
    samples: frozenset[str] | None
    near_misses: int
    durable: bool
    late_share: float
    final: bool
    open_bytes: int


@dataclass(frozen=True)
class JoinWriter:
    """Builds a running join; every method returns a new writer.

    File formats (parquet, json, csv, orc), tables of such files, and Delta contain each result exactly once, in spite
    of crashes; other formats, other tables and foreachBatch receive it at least once.
    """

    join: JoinDefinition
    _format: str = "parquet"
    _options: Mapping[str, str] = field(default_factory=dict)
    _partitions: tuple[str, ...] = ()
    _trigger: Mapping[str, Any] = field(default_factory=dict)
    _name: str | None = None
    _consume: Consume | None = None
    _table: str | None = None

    def format(self, source: str) -> "JoinWriter":
        """Set the sink's format: parquet, json, csv, orc, delta, console, memory, noop, or any that Spark writes."""
        checks.require_text("format", source, "parquet")
        return replace(self, _format=source.lower())

    def option(self, key: str, value: Any) -> "JoinWriter":
        """Set an option: one of the writer's own, which docs/reference.md lists, or one of the format's."""
        checks.require_text("option", key, "checkpointLocation")
        return self.options(**{key: value})

    def options(self, **options: Any) -> "JoinWriter":
        """Set several options at once; those that are None stay as they are.

        Raises:
            DefinitionError: If one looks like a misspelled option of the writer's own, or is a path that isn't one.
        """
        own = {name.lower(): name for name in OWN_OPTIONS}  # Spark ignores the case of an option's name
        for key, value in options.items():
            checks.check_option(key, value, own)
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
        """Partition files into folders by these output columns."""
        lists = [column if isinstance(column, list | tuple) else [column] for column in columns]
        names: list[Any] = [name for names in lists for name in names]
        for name in names:
            checks.require_text("partitionBy", name, "zone")
        return replace(self, _partitions=tuple(names))

    def trigger(self, **trigger: Any) -> "JoinWriter":
        """Set the trigger, as Spark's writer does: `processingTime`, `once` or `availableNow`."""
        checks.require_one_trigger(trigger)
        return replace(self, _trigger=trigger)

    def queryName(self, queryName: str) -> "JoinWriter":
        """Name the query."""
        checks.require_text("queryName", queryName, "matches")
        return replace(self, _name=queryName)

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> "JoinWriter":
        """Pass the computed results of each batch to a function, at least once."""
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
    ) -> JoinQuery:
        """Append to a table, created if it does not exist, and start.

        Tables of Spark's own catalog that are files contain each result exactly once, others at least once.

        Args:
            tableName: The table.
            format: See `format`; an existing table keeps its own.
            outputMode: See `outputMode`.
            partitionBy: See `partitionBy`; an existing table keeps its own.
            queryName: See `queryName`.
            options: See `options`.

        Raises:
            DefinitionError: If results don't fit the table; see also `start`.
        """
        checks.require_text("toTable", tableName, "matches")
        writer = self.options(**options)
        writer = writer if format is None else writer.format(format)
        writer = writer if outputMode is None else writer.outputMode(outputMode)
        writer = writer if partitionBy is None else writer.partitionBy(partitionBy)
        writer = writer if queryName is None else writer.queryName(queryName)
        return replace(writer, _table=tableName).start()

    def start(self, path: str | PathLike[str] | None = None) -> JoinQuery:
        """Start the join, with results to `path` if one is given, and return the handle of its query.

        Raises:
            DefinitionError: If something is missing or the checkpoint belongs to another query.
            StateError: If the checkpoint is in use or damaged, or the query was closed for good.
        """
        if path is not None:
            checks.require_text("start", fspath(path) if isinstance(path, PathLike) else path, "/data/matches")
        writer = self if path is None else self.option("path", path)
        first = self._options.get("path", writer._options.get("path"))
        if first != writer._options.get("path"):
            raise DefinitionError(f"The path is given twice: option('path', {first!r}) and start({str(path)!r}).")
        try:
            return writer._start()
        except OSError as error:
            raise StateError(
                f"The query was not started: {describe_error(error)}; start it again once that is fixed."
            ) from None

    def _start(self) -> JoinQuery:
        """Take the checkpoint's lease, resume the join that it describes, and start Spark's query.

        Checks all settings before; if anything fails, the lease is given back.
        """
        self._check()
        spark = self.join.spark
        location = self._locate(
            checks.checkpoint_location(spark, self._options.get("checkpointLocation"), self._name), "checkpointLocation"
        )
        settings = self._read_settings()
        sink, sides = self._sink(), self._sides()
        store, offsets = self._open_checkpoint(location, settings, self._folders(sink, sides))
        lease = self._take_lease(location, store)
        try:
            warm_up(spark, settings.exchange)
            stored = read_description(store)
            join = self.join.resume_from(stored)
            tree = join.tree(never_idle=bool(self._trigger.get("availableNow")))
            name = claim(store, description(tree), sink.output, sink.layout, lease.check)
            if stored:  # else Spark's logs belong to no join
                offsets.remove_unfinished(lease.check)
            checkpoint = Checkpoint(location.inside("watersmeet"), name, store, lease, offsets)
            runner = self._open_runner(join, tree, checkpoint, settings, sink, sides)
            _log_warnings(tree)
            return self._run(join, tree, runner, location)
        except BaseException:
            lease.end()
            raise

    def _read_settings(self) -> WriterSettings:
        """Return the options of the writer's own; raises DefinitionError if one is invalid."""
        return WriterSettings(
            checks.choose_exchange(self._options.get("exchange"), is_local(self.join.spark)),
            checks.parse_samples(self._options.get("samples"), self.join.stream_columns),
            checks.parse_whole("nearMisses", self._options.get("nearMisses", "0")),
            checks.parse_switch("durable", self._options.get("durable", "true")),
            checks.parse_share("lateWarning", self._options.get("lateWarning", str(LATE_SHARE))),
            checks.parse_final(self._options.get("final", "false"), self._trigger),
            bytes_of(self._options["openBytes"], "option 'openBytes'") if "openBytes" in self._options else 0,
        )

    def _open_checkpoint(
        self, location: Location, settings: WriterSettings, folders: Iterator[tuple[str, str]]
    ) -> tuple[Store, Offsets]:
        """Open both parts of a checkpoint, without changing anything.

        Args:
            location: The checkpoint.
            settings: The writer's options.
            folders: The output folders, each with its option.

        Raises:
            DefinitionError: If it lies in an output folder, or the other way round.
            StateError: If its parts don't belong together, or the query was closed for good.
        """
        root = location.inside("watersmeet").arrow
        checks.require_separate_folders(root, *folders)
        store, offsets = Store(root, settings.durable, settings.open_bytes), Offsets(Store(location.arrow))
        newest = offsets.load_state(store)
        if newest is not None and newest.final and not self._ends:
            raise StateError(closed_for_good(store.root))
        return store, offsets

    def _take_lease(self, location: Location, store: Store) -> Lease:
        """Check that the driver and the workers can use the store, and take its lease.

        Makes workers reserve little memory where that is limited.

        Raises:
            DefinitionError: If somebody can't use it.
            StateError: If another run holds the lease.
        """
        with checks.explain_write_errors(location.spark):
            store.check()
            save_address_space(self.join.spark)
            checks.prepare_workers(self.join.spark, store)
            return take(store)

    def _open_runner(
        self,
        join: JoinDefinition,
        tree: FrameTree,
        checkpoint: Checkpoint,
        settings: WriterSettings,
        sink: Sink,
        sides: Mapping[str, Folder],
    ) -> BatchRunner:
        """Return what runs the batches, after reading the state and finishing the delivery of its last batch.

        Makes output folders, and stores what `watersmeet why` needs.
        """
        run, name, durable = uuid.uuid4().hex[:12], checkpoint.name, settings.durable
        folders = {kind: folder.for_run(name, run, durable) for kind, folder in sides.items()}
        outputs = Outputs(sink.for_run(name, run, durable), join.plain, folders, name)
        where = host(join.spark, shared=settings.exchange in ("driver", "local"))
        options = (bool(sides), settings.samples, settings.near_misses, self._ends)
        joins = tree.operators(checkpoint.store, run, where, *options)
        runner = BatchRunner(
            tree,
            joins,
            checkpoint,
            outputs,
            settings.exchange,
            self._interval(),
            name=self._name,
            late_share=settings.late_share,
            final=settings.final,
        )
        if tree.spill is not None:
            slots = joins.operator.host.slots or 1
            runner.spilling = Controller(tree.spill, name, slots, quotas_of(tree.spill, joins))
        runner.open()
        runner.prepare(join.stream_schemas)
        store_description(join, runner)
        return runner

    def _run(self, join: JoinDefinition, tree: FrameTree, runner: BatchRunner, location: Location) -> JoinQuery:
        """Start Spark's query and return its handle; figures of batches are observed if the session has listeners.

        Raises:
            StateError: If Spark can't read or write its part of the checkpoint.
        """
        runner.observed = jobs.has_listeners(join.spark)
        rows = tree.input(bool(runner.outputs.sides))
        rows = jobs.observe_figures(rows) if runner.observed else rows
        stream = rows.writeStream.option("checkpointLocation", location.spark)
        stream = stream.queryName(self._name) if self._name else stream
        stream = stream.trigger(**self._trigger) if self._trigger else stream
        try:
            query = start_on(location, stream.foreachBatch(runner.callback()), join.spark)
        except (Py4JJavaError, SparkRuntimeException) as error:
            raise failure(error, runner.checkpoint.offsets.checkpoint, runner.checkpoint.lease) from error
        return JoinQuery(query, join, runner, self._ends)

    @property
    def _ends(self) -> bool:
        """Whether the query ends once it has read all there is."""
        return any(self._trigger.get(name) for name in ("availableNow", "once"))

    def _folders(self, sink: Sink, sides: Mapping[str, Folder]) -> Iterator[tuple[str, str]]:
        """Yield the folders that files are written to, each with its option, for errors."""
        if isinstance(sink, FileSink):
            yield sink.folder.location.arrow, "path"
        for kind, folder in sides.items():
            for name, _ in self.join.stream_schemas:
                yield folder.inside(name).location.arrow, f"{kind}Path, stream '{name}'"

    def _check(self) -> None:
        """Check what can be checked before anything is read or written; raises DefinitionError."""
        join = self.join
        join.check_settings()
        checks.require_streaming(join.sources)
        checks.require_flat_columns(self._format if self._consume is None else None, join.query, join.select)
        if join.spill is not None and "punctuationPath" in self._options:
            raise DefinitionError(
                "punctuationPath does not go with spill=: what is owed may still match a punctuation; leave one out."
            )
        if self._partitions:
            checks.require_partition_columns(self._partitions, join.schema.names)

    def _locate(self, path: str, what: str) -> Location:
        return check_reachable(locate(self.join.spark, path, what), what)

    def _sides(self) -> dict[str, Folder]:
        """Return the folders of side outputs by kind; raises DefinitionError if rows can't be written to one."""
        options = {kind: f"{kind}Path" for kind in SIDES if f"{kind}Path" in self._options}
        if options:
            columns = [(name, frame.columns) for name, frame in self.join.leaves]
            checks.require_distinct_columns(
                columns, "rows that are not accepted are written with all columns: rename one"
            )
        return {kind: Folder(self._locate(self._options[option], option), option) for kind, option in options.items()}

    def _interval(self) -> float | None:
        """Return the seconds from one batch to the next; None for as soon as possible."""
        every = self._trigger.get("processingTime")
        return (microseconds(every, "processingTime") / 1e6 or None) if every else None

    def _sink_options(self) -> dict[str, str]:
        return {key: value for key, value in self._options.items() if key not in OWN_OPTIONS}

    def _sink(self) -> Sink:
        """Return what writes the results, as the settings say; creates the table if there is none of its name.

        Raises:
            DefinitionError: If the settings don't go together, or results can't be written there.
        """
        if self._consume is not None:
            return FrameSink(self._consume)
        if self._table is not None:
            return self._table_sink(self._table)
        if self._format in FILE_FORMATS:
            folder = Folder(self._locate(self._path(), "path"), "path")
            checks.refuse_file_sink(folder)
            return FileSink(self._format, folder, self._sink_options(), self._partitions)
        if self._format == "delta":
            check_jars(self.join.spark)
            path = absolute(self.join.spark, self._path())
            return DeltaSink(self.join.spark, path, self._sink_options(), self._partitions)
        if self._format not in _CONSUMERS:
            checks.require_format(self.join.spark, self._format)
        return FrameSink(_CONSUMERS.get(self._format, JoinWriter._saver)(self))

    def _table_sink(self, name: str) -> Sink:
        """Return what appends to a table, created if there is none; raises DefinitionError if results don't fit it."""
        spark, empty = self.join.spark, self.join.read_results(self.join.leaves[0][1], (), "")
        options = self._sink_options()
        if not tables.exists(spark, name):
            path = {"path": absolute(spark, self._options["path"])} if "path" in self._options else {}
            tables.create(empty, name, self._format, options | path, self._partitions)
        table = tables.file_table(spark, name)
        if table is None:
            return FrameSink(tables.appender(spark, name))
        table.check(empty.schema)
        folder = Folder(self._locate(table.location, "path"), "path")
        checks.refuse_file_sink(folder)
        own = (table.format, folder, {**table.options, **options}, table.partition_by)
        return TableSink(*own, table=table, spark=spark)

    def _path(self) -> str:
        if "path" not in self._options:
            raise DefinitionError(f"format('{self._format}') needs a path: .option('path', ...) or .start(path).")
        return self._options["path"]

    def _saver(self) -> Consume:
        """Return a function that appends the results of a batch with Spark's writer for the format."""
        options = self._sink_options()
        if "path" in self._options:
            options["path"] = absolute(self.join.spark, self._options["path"])

        def consume(frame: DataFrame, batch: int) -> None:
            frame.write.format(self._format).mode("append").options(**options).partitionBy(*self._partitions).save()

        return consume

    def _console_printer(self) -> Consume:
        """Return a function that prints the results of a batch as Spark's console sink does."""
        rows = checks.parse_whole("numRows", self._options.get("numRows", "20"))
        truncate = self._options.get("truncate", "true").lower() == "true"

        def consume(frame: DataFrame, batch: int) -> None:
            line = "-" * 43
            print(f"{line}\nBatch: {batch}\n{line}")
            frame.show(rows, truncate)

        return consume

    def _memory_collector(self) -> Consume:
        """Return a function that keeps all results on the driver, in a temporary view with the query's name.

        Raises:
            DefinitionError: If the query has no name.
        """
        if not self._name:
            raise DefinitionError("format('memory') needs a name: .queryName('...').")
        name, spark, batches = self._name, self.join.spark, list[pa.Table]()

        def consume(frame: DataFrame, batch: int) -> None:
            batches.append(frame.toArrow())
            spark.createDataFrame(pa.concat_tables(batches), frame.schema).createOrReplaceTempView(name)

        return consume


def _log_warnings(tree: FrameTree) -> None:
    """Log the warnings about a join's definition."""
    for node in tree.walk():
        for finding in check_definition(node.query):
            if finding.severity == "warning":
                logging.getLogger("watersmeet").warning(finding.says)


_CONSUMERS: dict[str, Callable[[JoinWriter], Consume]] = {
    "console": JoinWriter._console_printer,
    "memory": JoinWriter._memory_collector,
}
