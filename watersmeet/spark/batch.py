"""The batch protocol: plan, job, reports, sink, manifest, return to Spark; in this order, and safe to cut anywhere.

A replay after a crash finds either no manifest of its batch, and does everything again (chunk names are new, the sink
replaces), or the manifest, and returns at once: then only Spark's own commit was lost.
"""

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from watersmeet.engine.commit import next_manifest
from watersmeet.engine.fuse import RESULTS
from watersmeet.engine.intake import SIDES, IntakeReport
from watersmeet.engine.plan import BatchPlan, plan, start
from watersmeet.errors import DefinitionError, StateError
from watersmeet.placement import Strategy
from watersmeet.query import Query
from watersmeet.spark.exchange import EXCHANGES, Outcome
from watersmeet.spark.files import Folder
from watersmeet.spark.sinks import Results, Sink
from watersmeet.state import manifest as manifests
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store
from watersmeet.state.write import CHUNKS

DESCRIPTION = "query.json"


@dataclass
class BatchRunner:
    """Runs the batches of one start of a query; what Spark's foreachBatch calls.

    Attributes:
        query: The join.
        strategy: Where tuples are kept.
        store: Where state is kept.
        sink: Where results go.
        read: Reads result files as a frame of the output's schema.
        plain: Whether result files hold the output as it is.
        exchange: How partial results travel.
        sides: Folders for late and rejected rows, by kind.
        select: The SELECT list that Spark computes over the results, if any; part of what must not change.
        after: Called at each step of the protocol with its name; tests cut the run there.
    """

    query: Query
    strategy: Strategy
    store: Store
    sink: Sink
    read: Callable[[DataFrame, Sequence[str]], DataFrame]
    plain: bool
    exchange: str
    sides: Mapping[str, Folder] = field(default_factory=dict)
    select: str | None = None
    after: Callable[[str], None] = lambda step: None
    history: list[Mapping[str, Any]] = field(default_factory=list)
    error: BaseException | None = None
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _resumed: Manifest = field(default_factory=lambda: Manifest(-1, ()))
    _last: Manifest | None = None
    _garbage: frozenset[str] = frozenset()

    def open(self) -> None:
        """Check that the store belongs to this query, claim it if it is new, and read the state it holds.

        Raises:
            DefinitionError: If it belongs to another query; the message says what changed.
            StateError: If its newest manifest is damaged.
        """
        mine = self.query.description() | ({"select": self.select} if self.select else {})
        if not self.store.publish(DESCRIPTION, json.dumps(mine).encode()):
            self._compare(json.loads(self.store.read(DESCRIPTION) or b"{}"), mine)
        newest = manifests.newest(self.store)
        found = None if newest is None else manifests.load(self.store, newest)
        self._resumed = found or start(self.query)
        self.history = list(self._resumed.all_progress)

    def _compare(self, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
        changed = [key for key in {**theirs, **mine} if theirs.get(key) != mine.get(key)]
        if changed:
            what = "; ".join(f"{key} was {_shown(theirs.get(key))} and is {_shown(mine.get(key))}" for key in changed)
            raise DefinitionError(
                f"The checkpoint at {self.store.root} belongs to another query: {what}. "
                "Use a new checkpointLocation, or the old query; nodes, strategy, order and trigger may change."
            )

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Run one batch; called by Spark."""
        try:
            self._protocol(batch, number)
        except BaseException as error:
            self.error = error
            raise

    def _protocol(self, batch: DataFrame, number: int) -> None:
        began = time.time()
        before = self._before(number)
        if before is None:
            return
        planned = plan(self.query, before, self.strategy, self.store, self._run, bool(self.sides))
        planned_at = time.time()
        outcome = self._job(batch, planned)
        self.after("job")
        manifest = next_manifest(before, planned, *outcome, now=int(began * 1e6))
        self.after("reports")
        ran_at = time.time()
        self._publish(batch, number, outcome)
        self.after("sink")
        times = {"plan": planned_at - began, "job": ran_at - planned_at, "commit": time.time() - ran_at}
        manifest = self._with_times(manifest, outcome[0], began, times)
        if not manifests.publish(self.store, manifest, before):
            raise StateError(
                f"Batch {number} was committed by somebody else: two runs share the checkpoint at {self.store.root}; "
                "stop one of them."
            )
        self.after("manifest")
        # Still needed if Spark's own commit gets lost; gone once the next batch starts.
        self._garbage |= before.files - manifest.files | manifests.superseded(number)
        self._last = manifest
        self.history = [*self.history, manifest.progress][-manifests.HISTORY :]

    def _before(self, number: int) -> Manifest | None:
        """Return the state the batch builds on, or None if the batch is already done."""
        if self._last is None:
            return self._first(number, self._resumed)
        self.store.remove(self._garbage)
        self._garbage = frozenset()
        return self._last

    def _first(self, number: int, found: Manifest) -> Manifest | None:
        """Return the same for the first batch of a run, which an earlier run may have half done."""
        if found.batch not in (number - 1, number):
            newest = f"of batch {found.batch}" if found.batch >= 0 else "missing"
            raise StateError(
                f"Spark runs batch {number}, but the newest state at {self.store.root} is {newest}: Spark's part of "
                "the checkpoint and the join's do not belong together; restore both or start a new checkpoint."
            )
        self._sweep(found)
        if found.batch == number:
            self._last = found
            return None
        self.sink.restarted(number)
        for folder in self.sides.values():
            folder.withdraw(number)
        return found

    def _sweep(self, live: Manifest) -> None:
        """Remove what earlier runs left and the live manifest does not need."""
        needed = live.files | manifests.chain(live.batch)
        for folder in (CHUNKS, RESULTS, "sides", manifests.FOLDER):
            self.store.remove(name for name in self.store.names(folder) if name not in needed)

    def _job(self, batch: DataFrame, planned: BatchPlan) -> Outcome:
        session = batch.sparkSession
        session.conf.set("spark.sql.adaptive.enabled", "false")
        return EXCHANGES[self.exchange](batch, planned)

    def _publish(self, batch: DataFrame, number: int, outcome: Outcome) -> None:
        intakes, tasks = outcome
        root = self.store.local or self.store.root
        names = [file for task in tasks for file in task.files]
        paths = [f"{root}/{name}" for name in names]
        self.sink.write(Results(batch.sparkSession, number, paths, lambda: self.read(batch, paths), self.plain))
        for kind, folder in self.sides.items():
            for at, stream in enumerate(self.query.streams):
                files = [f"{root}/{f}" for report in intakes for k, s, f in report.files if k == kind and s == at]
                Folder(f"{folder.path}/{stream.name}").take(files, number)
        self.store.remove(names)

    def _with_times(
        self, manifest: Manifest, intakes: Sequence[IntakeReport], began: float, times: Mapping[str, float]
    ) -> Manifest:
        now = time.time()
        progress = {
            **manifest.progress,
            "timestamp": datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds"),
            "strategy": self.strategy.describe(),
            "exchange": self.exchange,
            "latencyMs": latency(intakes, now),
            "durationMs": {name: round(1000 * took, 1) for name, took in times.items()}
            | {"total": round(1000 * (now - began), 1)},
        }
        return replace(manifest, progress=progress)


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


def _shown(part: Any) -> str:
    return "not there" if part is None else repr(part)


def side_folders(options: Mapping[str, str]) -> dict[str, Folder]:
    """Return the folders for late and rejected rows that the options `latePath` and `rejectedPath` name."""
    return {kind: Folder(options[f"{kind}Path"]) for kind in SIDES if f"{kind}Path" in options}


def check_location(location: str) -> Store:
    """Return the store under a checkpoint location."""
    root = location.removeprefix("file:") if location.startswith("file:/") else location
    if "://" not in location:
        root = os.path.abspath("/" + root.lstrip("/") if location.startswith("file:") else root)
        Path(root).mkdir(parents=True, exist_ok=True)
    return Store(f"{root.rstrip('/')}/watersmeet")
