"""Reads a checkpoint: the description of its query, the last manifest, the recorded progress with its trends and rates.

It takes no lease and writes nothing, so it works beside a running query, after a crash, and for other users.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from watersmeet.caching import cached_property
from watersmeet.errors import DefinitionError, StateError
from watersmeet.observe.dashboard.dashboard_view import Series
from watersmeet.state.manifest import history, leases
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.claim import DESCRIPTION, is_same_folder, read_description
from watersmeet.state.manifest.leases import is_running
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store

TRIES = 3
"""How often state is read if a running query moves on meanwhile."""
TREND_BATCHES = 60
"""Batches of which trends are drawn."""
RECENT = 10
"""Batches over which rates are averaged."""
Progress = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Runner:
    """The process that last ran the query.

    Attributes:
        process: Its name; empty if unknown.
        has_ended: Whether it has ended normally.
        silence: The seconds since it last renewed its lease.
        is_running: Whether it is alive and runs this very checkpoint; None if that can't be seen from here.
    """

    process: str = ""
    has_ended: bool = False
    silence: float = 0.0
    is_running: bool | None = None


@dataclass(frozen=True, slots=True)
class CheckpointSnapshot:
    """What a checkpoint holds.

    Attributes:
        root: Where the store is.
        query: The description of the query.
        manifest: The state after the last batch; None before the first.
        progress: What the last batches did, oldest first.
        runner: The process that runs the query.
        problem: Why state can't be read; empty if it can.
    """

    root: str
    query: Mapping[str, Any] = field(default_factory=dict)
    manifest: Manifest | None = None
    progress: tuple[Mapping[str, Any], ...] = ()
    runner: Runner = field(default_factory=Runner)
    problem: str = ""


@dataclass
class CheckpointReader:
    """Reads one checkpoint repeatedly; unchanged state is not read again.

    Attributes:
        store: Its store.
    """

    store: Store
    _state: tuple[Manifest, tuple[Mapping[str, Any], ...]] | None = None
    _renewed: tuple[tuple[int, bytes | None], float] | None = None

    def read(self, now: float, clock: float | None = None) -> CheckpointSnapshot:
        """Return what the checkpoint holds now; state that can't be read becomes its `problem`.

        Args:
            now: Seconds, by a monotonic clock.
            clock: The same moment in seconds since the epoch, which tells the age of the lease on the first read.
                Without it, the lease counts as renewed just then.

        Raises:
            DefinitionError: If there is no checkpoint of a join.
        """
        if not self.store.read(DESCRIPTION):
            raise DefinitionError(
                f"{self.store.root} has no {DESCRIPTION}: give the checkpointLocation of a join that has been started."
            )
        query: Mapping[str, Any] = {}
        runner, problem = self._read_runner(now, clock), ""
        try:
            query = read_description(self.store)
            self._state = self._read_last()
        except StateError as error:
            self._state, problem = None, str(error)
        manifest, progress = self._state or (None, ())
        return CheckpointSnapshot(self.store.root, query, manifest, progress, runner, problem)

    def _read_last(self) -> tuple[Manifest, tuple[Mapping[str, Any], ...]] | None:
        """Return the last state and progress; None before the first batch.

        Tries again if the query has removed files meanwhile.

        Raises:
            StateError: If the last attempt fails, too.
        """
        for tries_left in reversed(range(TRIES)):
            try:
                path = manifests.newest_path(self.store)
                if self._state is not None and path == self._state[0].chain[-1]:
                    return self._state
                manifest = manifests.last(self.store)
                if manifest is not None:
                    return manifest, tuple(history.load(self.store, manifest.batch))
                if path is None:
                    return None
            except StateError:
                if not tries_left:
                    raise
        return self._state

    def _read_runner(self, now: float, clock: float | None) -> Runner:
        """Return which process runs the query, as its lease says, and for how long it has been silent."""
        number = leases.last_number(self.store)
        holder = leases.holder(self.store, number)
        process = f"process {holder['pid']} on {holder['name']}" if holder else ""
        has_ended = not number or self.store.read(leases.path_of(number, "ended")) is not None
        return Runner(process, has_ended, self._measure_silence(number, now, clock), self._is_run_by(holder))

    def _measure_silence(self, number: int, now: float, clock: float | None) -> float:
        """Return the seconds since a lease was last renewed.

        The file's age counts on the first read only, since clocks of other hosts may be wrong; from then on the reader
        remembers when it saw the lease change.
        """
        renewal = number, self.store.read(leases.path_of(number, "renewed"))
        if self._renewed is None:
            renewed = None if clock is None else leases.renewal_time(self.store, number)
            age = 0.0 if clock is None or renewed is None else max(0.0, clock - renewed)
            self._renewed = renewal, now - age
        elif self._renewed[0] != renewal:
            self._renewed = renewal, now
        return now - self._renewed[1]

    def _is_run_by(self, holder: Mapping[str, Any]) -> bool | None:
        """Tell whether a lease's holder is alive and runs this folder, not another of which this one is a copy.

        None if that can't be seen from here.
        """
        running, folder = is_running(holder), self.store.local
        if not running or folder is None:
            return running
        return is_same_folder(Store(holder.get("at", folder)).local or "", folder)


def start_time(progress: Progress) -> int:
    """Return when a batch was offered, in microseconds since the epoch."""
    return round(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1e6)


def end_time(progress: Progress) -> int:
    """Return when a batch's results were in the sink, in microseconds since the epoch."""
    return start_time(progress) + round(1000 * float(progress["durationMs"]["total"]))


@dataclass(frozen=True)
class RecentBatches:
    """The last batches of a query, or of a join within it.

    Attributes:
        progress: What they did, oldest first.
        part: Returns the part of a batch's progress that is the join's.
    """

    progress: Sequence[Progress]
    part: Callable[[Progress], Progress] = lambda progress: progress

    @cached_property
    def latest(self) -> Sequence[Progress]:
        """The batches to draw, rounds included."""
        return self.progress[-TREND_BATCHES:]

    @cached_property
    def with_rows(self) -> Sequence[Progress]:
        """The last batches that took input, over which rates are averaged."""
        return [progress for progress in self.progress if not progress.get("round")][-RECENT - 1 :]

    def series(self, measure: Callable[[Progress], float | None]) -> Series:
        """Return the trend of a number over the batches to draw."""
        return tuple(measure(self.part(progress)) for progress in self.latest)

    def per_second(self, measure: Callable[[Progress], float]) -> float | None:
        """Return the rate of a number per second; None if there are too few batches to tell."""
        if len(self.with_rows) < 2:
            return None
        elapsed = start_time(self.with_rows[-1]) - start_time(self.with_rows[0])
        total = sum(measure(self.part(progress)) for progress in self.with_rows[1:])
        return total / elapsed * 1e6 if elapsed > 0 else None

    @cached_property
    def watermark_speed(self) -> float | None:
        """The seconds by which the watermark moves per second; None if it doesn't move, or that is unknown."""
        parts = [(start_time(progress), self.part(progress)) for progress in self.with_rows]
        marks = [(time, mark) for time, part in parts if (mark := part.get("watermark")) is not None]
        if len(marks) < 3:
            return None
        elapsed, distance = marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]
        return distance / elapsed if elapsed > 0 and distance > 0 else None
