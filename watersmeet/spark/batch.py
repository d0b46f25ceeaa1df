"""The batch protocol: plan, job, reports, sink, manifest, return to Spark; in this order, and safe to cut anywhere.

A replay after a crash finds either no manifest of its batch, and does everything again (chunk names are new, the sink
replaces), or the manifest, and returns at once: then only Spark's own commit was lost.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from watersmeet.adapt.controller import OVERDUE
from watersmeet.adapt.overload import overload
from watersmeet.cost.parameters import Parameters, measured
from watersmeet.engine.fuse import RESULTS
from watersmeet.engine.intake import IntakeReport
from watersmeet.engine.operator import Operator
from watersmeet.engine.plan import BatchPlan, Host, start
from watersmeet.engine.probe import TaskReport
from watersmeet.engine.warnings import Notice, news
from watersmeet.errors import PredicateError, StateError, WatersmeetError
from watersmeet.explain import explain
from watersmeet.spark import tasks
from watersmeet.spark.catalyst import quiet, said
from watersmeet.spark.clock import Clock
from watersmeet.spark.exchange import EXCHANGES
from watersmeet.spark.files import Folder
from watersmeet.spark.lease import Lease
from watersmeet.spark.offsets import Offsets
from watersmeet.spark.paths import Place
from watersmeet.spark.sinks import Results, Sink
from watersmeet.spark.tree import Node
from watersmeet.state import history
from watersmeet.state import manifest as manifests
from watersmeet.state.chunk import CHUNKS
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store

DATA_ERROR = r"SQLSTATE: (22|38|39|P0)|PythonException|Python worker"
"""How errors look that come of the data, or of functions of the user's."""
JOB_TRIES = 4
CANNOT_ROLL_BACK = "A shuffle map stage with indeterminate output was failed and retried"


@dataclass
class BatchRunner:
    """Runs the batches of one start of a query; what Spark's foreachBatch calls.

    Attributes:
        tree: The join, with its inner joins.
        place: Where the store is.
        store: Where state is kept.
        lease: What says that the store is this run's.
        offsets: Where Spark keeps the offsets of its batches.
        sink: Where results go.
        plain: Whether result files hold the output as it is.
        exchange: How partial results travel.
        host: Where the join runs.
        run: The name of this run, unique for ever; part of every file's name.
        due: The seconds from one batch to the next, if the trigger says so.
        sides: Folders for late and rejected rows, by kind.
        clock: The driver's clock.
        samples: The columns that samples of late and rejected rows show; None for all.
        after: Called at each step of the protocol with its name; tests cut the run there.
    """

    tree: Node
    place: Place
    store: Store
    lease: Lease
    offsets: Offsets
    sink: Sink
    plain: bool
    exchange: str
    host: Host
    run: str
    due: float | None = None
    sides: Mapping[str, Folder] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    samples: frozenset[str] | None = None
    after: Callable[[str], None] = lambda step: None
    history: list[Mapping[str, Any]] = field(default_factory=list)
    error: BaseException | None = None
    _resumed: Manifest = field(default_factory=lambda: Manifest(-1, ()))
    _last: Manifest | None = None
    _garbage: frozenset[str] = frozenset()
    _told: frozenset[str] = frozenset()
    _unwithdrawn: int | None = None

    def open(self) -> None:
        """Read the state that the store holds.

        Raises:
            StateError: If its newest manifest is damaged.
        """
        newest = manifests.newest(self.store)
        found = None if newest is None else manifests.load(self.store, newest)
        self._resumed = found or start(self.tree.query)
        self.history = history.load(self.store, found.batch) if found else []

    def explained(self) -> str:
        """Return how the join runs now, inner joins included."""
        return "\n".join(self._explained(self.tree, self._last or self._resumed))

    def parameters(self) -> Parameters:
        """Return what the last batches measured, as the cost model takes it."""
        return measured(self._operator(self.tree).view(self._last or self._resumed))

    def _explained(self, node: Node, state: Manifest) -> list[str]:
        inner = [self._explained(child, state.inner.get(at) or start(child.query)) for at, child in node.inner.items()]
        return [
            explain(node.query, node.strategy, node.ordering, state, self.host),
            *(line for lines in inner for line in lines),
        ]

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Run one batch; called by Spark."""
        try:
            self._protocol(batch, number)
        except BaseException as error:
            self.error = self._said(error, number)
            raise

    def _said(self, error: BaseException, number: int) -> BaseException:
        """Return an error as people are told of it: who has lost the lease may find files gone, whatever it does."""
        if isinstance(error, WatersmeetError):
            return error
        try:
            self.lease.check()
        except StateError as lost:
            return lost
        except OSError:  # where not even the lease can be looked at, the error itself says why
            pass
        if isinstance(error, PySparkException) and re.search(DATA_ERROR, str(error)):
            return PredicateError(f"Spark raised an error while reading new tuples: {said(error)}.")
        told = StateError(f"Batch {number} was not written: {_what(error)}; start the query again once that is fixed.")
        told.__cause__ = error
        return told if isinstance(error, Exception) else error

    def _protocol(self, batch: DataFrame, number: int) -> None:
        began = self.clock()
        before = self._before(number)
        if before is None:
            return
        batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        ran = self._ran(self.tree, batch, before, began)
        manifest = ran[0].manifest
        self.after("reports")
        ran_at = self.clock()
        self.lease.check()
        self._publish(batch, number, ran)
        self.after("sink")
        planned = sum(part.planning for part in ran)
        times = {"plan": planned, "job": ran_at - began - planned, "commit": self.clock() - ran_at}
        intakes = [intake for part in ran for intake in part.intakes]
        manifest = self._with_warnings(self._with_times(manifest, before, intakes, began, times), ran)
        manifest = self._commit(replace(manifest, input=self.offsets.of(number) or ""), before)
        self.after("manifest")
        # Still needed if Spark's own commit gets lost; gone once the next batch starts.
        self._garbage |= before.files - manifest.files | manifests.superseded(number)
        self._garbage |= history.kept(before.batch) - history.kept(number)
        self._last = manifest
        self.history = [*self.history, manifest.progress][-history.HISTORY :]

    def _commit(self, manifest: Manifest, before: Manifest) -> Manifest:
        """Publish the manifest of a batch whose results are in the sink.

        Raises:
            StateError: If another run has taken the store over; the results of this one are retracted.
        """
        history.keep(self.store, manifest.batch, self.history)
        self.store.sync(manifest.files - before.files)
        published = manifests.publish(self.store, manifest, before) if self.lease.held() else None
        if published is None:
            self.sink.retract(manifest.batch)
            for folder in self.sides.values():
                folder.retract(manifest.batch)
            self.lease.check()
            raise StateError(f"Another run has committed batch {manifest.batch} at {self.store.root}; stop that one.")
        return published

    def _before(self, number: int) -> Manifest | None:
        """Return the state the batch builds on, or None if the batch is already done."""
        if self._last is None:
            return self._first(number, self._resumed)
        self.store.remove(self._garbage)
        self._garbage = frozenset()
        return self._last

    def _first(self, number: int, found: Manifest) -> Manifest | None:
        """Return the same for the first batch of a run, which an earlier run may have half done."""
        self.offsets.check_begun(number, found)
        self.lease.check()
        self._sweep(found)
        self._unwithdrawn = found.batch + 1
        if found.batch == number:
            self._last = found
            return None
        return found

    def _sweep(self, live: Manifest) -> None:
        """Remove what earlier runs left and the live manifest does not need."""
        needed = live.files | manifests.chain(live.batch) | history.kept(live.batch)
        for folder in (CHUNKS, RESULTS, "sides", manifests.FOLDER, history.FOLDER):
            self.store.remove(name for name in self.store.names(folder) if name not in needed)

    def _ran(self, node: Node, batch: DataFrame, before: Manifest, began: float) -> "list[Ran]":
        """Run a join's part of a batch, its inner joins first; return what each did, this one's first."""
        inner = {
            at: self._ran(child, batch, before.inner.get(at) or start(child.query), began)
            for at, child in node.inner.items()
        }
        results = {at: self._read(node.inner[at], batch, ran[0].files) for at, ran in inner.items()}
        rows = node.rows(batch, results, bool(self.sides))
        planning = self.clock()
        operator = self._operator(node)
        planned = operator.plan(before, int(self.clock.latest() * 1e6))
        planning = self.clock() - planning
        running = self.clock()
        reports = self._job(rows, planned)
        self._decide(node, batch, planned, reports)
        took = self.clock() - running
        self.after("job")
        states = {at: ran[0].manifest for at, ran in inner.items()}
        manifest = operator.commit(before, planned, reports, int(began * 1e6), states, took)
        files = [file for report in reports for file in report.files]
        intakes = [intake for report in reports for intake in report.intakes]
        return [Ran(node, manifest, intakes, files, planning), *(part for ran in inner.values() for part in ran)]

    def _operator(self, node: Node) -> Operator:
        """Return a join of the tree as this run works at it."""
        run, sides = f"{self.run}{node.path}", bool(self.sides)
        return Operator(node.query, node.strategy, self.store, run, node.ordering, self.host, sides, self.samples)

    def _decide(self, node: Node, batch: DataFrame, planned: BatchPlan, reports: Sequence[TaskReport]) -> None:
        """Let Spark decide the combinations that tasks left to it; those that are results join the reports.

        Raises:
            PredicateError: If a conjunct raises.
        """
        files = [file for report in reports for file in report.pending]
        if not files:
            return
        keep = tasks.decided(self.store, node.query.output_schema, f"{planned.name}-decided")
        try:
            with quiet():
                frame = node.decide(batch, [place.spark for place in self._places(files)]).mapInArrow(
                    keep, tasks.REPORT_DDL
                )
                found = tasks.outcome(row.body for row in frame.collect())
        except (PySparkException, Py4JError) as error:
            raise PredicateError(f"`where` raised {said(error)}; the batch was not written.") from None
        reports[0].rows += sum(rows for rows, _ in found)
        reports[0].files += [file for _, written in found for file in written]
        self.store.remove(files)

    def _job(self, rows: DataFrame, planned: BatchPlan) -> list[TaskReport]:
        """Run a join's job, from the start again if Spark gave it up.

        [!] Reports name the files of the task attempt, so a stage that runs again (its shuffle files were lost) answers
        in other words than the first time. Spark sees that by checksum and, since it can't undo tasks that have
        finished meanwhile, gives the whole job up. A new try shares nothing with the old one: all file names are new.
        """
        for left in reversed(range(JOB_TRIES)):
            try:
                return EXCHANGES[self.exchange](rows, planned)
            except Exception as error:
                if not left or CANNOT_ROLL_BACK not in str(error):
                    raise
        raise AssertionError("unreachable")

    def _places(self, files: Sequence[str]) -> list[Place]:
        return [self.place.inside(file) for file in files]

    def _read(self, node: Node, batch: DataFrame, files: Sequence[str]) -> DataFrame:
        return node.read(batch, [place.spark for place in self._places(files)])

    def _publish(self, batch: DataFrame, number: int, ran: "Sequence[Ran]") -> None:
        self._withdraw()
        files = ran[0].files
        read = partial(self._read, self.tree, batch, files)
        self.sink.write(Results(batch.sparkSession, number, self._places(files), read, self.plain))
        for kind, folder in self.sides.items():
            for name, found in _side_files(ran, kind).items():
                folder.inside(name).take(self._places(found), number)
        self.store.remove(file for part in ran for file in part.files)

    def _withdraw(self) -> None:
        """Remove what earlier runs left of the run's first batch and of later ones, once, before the first is written.

        [!] Not before its job is done: state that turns out to be damaged must not have cost results.
        """
        if self._unwithdrawn is not None:
            self.sink.restarted(self._unwithdrawn)
            for folder in self.sides.values():
                folder.withdraw(self._unwithdrawn)
            self._unwithdrawn = None

    def _with_times(
        self,
        manifest: Manifest,
        before: Manifest,
        intakes: Sequence[IntakeReport],
        began: float,
        times: Mapping[str, float],
    ) -> Manifest:
        now = self.clock()
        progress = {
            **manifest.progress,
            "timestamp": datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds"),
            "strategy": self.tree.strategy.describe(),
            "exchange": self.exchange,
            "latencyMs": latency(intakes, time.time()),
            "durationMs": {name: round(1000 * took, 1) for name, took in times.items()}
            | {"total": round(1000 * (now - began), 1)},
        }
        return self._with_overload(replace(manifest, progress=progress), before, now - began)

    def _with_warnings(self, manifest: Manifest, ran: "Sequence[Ran]") -> Manifest:
        """Tell the warnings of all joins of the tree; log those that are new."""
        found = [
            Notice(f"{kind} in {part.node.path}", says)
            for part in ran
            for kind, says in zip(part.manifest.learned.warned, part.manifest.progress["warnings"], strict=True)
        ]
        new, self._told = news(found, self._told)
        for notice in new:
            logging.getLogger("watersmeet").warning(notice.says)
        return replace(manifest, progress={**manifest.progress, "warnings": [notice.says for notice in found]})

    def _with_overload(self, manifest: Manifest, before: Manifest, took: float) -> Manifest:
        """Note whether a batch was late; tell people if several were, one after the other."""
        if self.due is None:
            return manifest
        overdue = before.learned.overdue + 1 if took > self.due else 0
        manifest = _noted(manifest, overdue)
        strategy = self.tree.strategy
        told = overload(strategy, self._operator(self.tree).view(manifest), self.due, took)
        if told is None:
            return manifest
        if overdue == OVERDUE:
            logging.getLogger("watersmeet").warning(told["says"])
        return replace(manifest, progress={**manifest.progress, "overload": told})


def _what(error: BaseException) -> str:
    """Return what an error says, of files those that it was about."""
    if isinstance(error, OSError):
        files = [name for name in (error.filename, error.filename2) if name]
        return f"{error.strerror or error}{f' ({files[-1]})' if files else ''}"
    if isinstance(error, PySparkException | Py4JError):
        return re.sub(r"^java[\w.]*: ", "", said(error))
    return f"{type(error).__name__}: {error}"


def _side_files(ran: "Sequence[Ran]", kind: str) -> dict[str, list[str]]:
    """Return the files of late or of rejected rows, by stream; a nested join may have one of the same name."""
    found: dict[str, list[str]] = {}
    for part in ran:
        for report in part.intakes:
            for of, stream, file in report.files:
                if of == kind:
                    found.setdefault(part.node.query.streams[stream].name, []).append(file)
    return found


def _noted(manifest: Manifest, overdue: int) -> Manifest:
    """Return a manifest that says, in inner joins too, for how many batches on end the join has been late."""
    inner = {at: _noted(state, overdue) for at, state in manifest.inner.items()}
    return replace(manifest, learned=replace(manifest.learned, overdue=overdue), inner=inner)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a join of the tree did in a batch: its new state, intake reports, result files, and seconds of planning."""

    node: Node
    manifest: Manifest
    intakes: Sequence[IntakeReport]
    files: Sequence[str]
    planning: float


def description(tree: Node) -> dict[str, Any]:
    """Return what must not change between two runs of one checkpoint, inner joins included."""
    inner = {f"join '{tree.query.streams[at].name}'": description(node) for at, node in tree.inner.items()}
    return tree.query.description() | inner


def latency(intakes: Sequence[IntakeReport], now: float) -> dict[str, float]:
    """Return percentiles of the time from a tuple's arrival in the engine to its results' commit."""
    read = sorted((now - moment, rows) for report in intakes for moment, rows in report.read)
    total = sum(rows for _, rows in read)
    shown = {}
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        seen = 0
        for waited, rows in read:
            seen += rows
            if seen >= share * total:
                shown[name] = round(1000 * waited, 1)
                break
    return shown
