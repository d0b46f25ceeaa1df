"""Drivers that are suspended at any moment, while others take over: one history counts, and each result appears once.

Drivers share a store and an output folder. Each works in a thread of its own, one at a time: at each step (of the
store, the lease, the sink) dice decide which of them goes on, and whether another one takes the lease meanwhile, as it
may when a lease is not renewed. A driver that has lost its lease may fail as it likes, but must not harm; one that has
it must not fail.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.budget import one_in
from tests.spilling.test_spill_cuts import MERGING, ONE, STRATEGIES, TREE, batches_of, setting_of
from tests.spilling.trees import Setting, Shape, TreeRun, brute_force, given
from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.errors import StateError
from watersmeet.limits import limited
from watersmeet.runtime.commit_protocol import (
    BatchOffered,
    Deliver,
    Protocol,
    Publish,
    QuietPeriod,
    ResultsPublished,
    Retract,
    StateLoaded,
    Withdraw,
)
from watersmeet.spark.checkpoint.paths import Location
from watersmeet.spark.output.files import Folder
from watersmeet.state.manifest import leases, rounds
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.delivery import STAGING
from watersmeet.state.manifest.generations import Fence, last_fence
from watersmeet.state.manifest.rounds import Round, SpillPlan
from watersmeet.state.store.store import Store
from watersmeet.testing.dice import Dice

pytestmark = pytest.mark.long

DRIVERS = 4
BATCHES = 4
SEEDS = 240


@dataclass
class Drivers:
    """Threads of which one goes on at a time: whose turn it is, is thrown by dice at each step.

    Attributes:
        rng: The dice.
        calm: How likely a driver goes on with its next step.
        begin: Begins another driver; None once there are enough.
    """

    rng: Random
    calm: float
    begin: Callable[[], None] | None = None
    steps: int = 0
    _waiting: dict[threading.Thread, threading.Event] = field(default_factory=dict)
    _idle: threading.Event = field(default_factory=threading.Event)

    def add(self, work: Callable[[], None]) -> None:
        """Add a driver, who waits for its turn."""
        turn = threading.Event()

        def run() -> None:
            turn.wait()
            try:
                work()
            finally:
                del self._waiting[threading.current_thread()]
                self._hand_over()

        thread = threading.Thread(target=run)
        self._waiting[thread] = turn
        thread.start()

    def play(self) -> None:
        """Let all drivers work to their ends."""
        self._hand_over()
        assert self._idle.wait(120), "a driver hangs"

    def step(self) -> None:
        """Suspend the driver that calls it, maybe, until its turn comes again."""
        self.steps += 1
        if self.begin is not None and self.rng.random() < 0.02:
            self.begin()
        if self.rng.random() >= self.calm:
            own = self._waiting[threading.current_thread()]
            own.clear()
            self._hand_over()
            own.wait()

    def _hand_over(self) -> None:
        threads = [*self._waiting]
        if threads:
            self._waiting[self.rng.choice(threads)].set()
        else:
            self._idle.set()


@dataclass(frozen=True)
class SharedStore(Store):
    """A store each of whose steps may be the last for a long while."""

    drivers: Drivers = field(default_factory=lambda: Drivers(Random(), 1.0), compare=False)

    def write(self, path: str, data: Any) -> None:
        self.drivers.step()
        super().write(path, data)

    def publish(self, path: str, data: bytes) -> bool:
        self.drivers.step()
        published = super().publish(path, data)
        self.drivers.step()
        return published

    def names(self, folder: str) -> list[str]:
        names = super().names(folder)
        self.drivers.step()
        return names

    def remove(self, paths: Iterable[str]) -> None:
        listed = sorted(paths)
        self.drivers.step()
        super().remove(listed[::2])
        self.drivers.step()
        super().remove(listed[1::2])


@dataclass
class Driver(TreeRun):
    """One start of the query: it takes the lease, and goes on from what it finds.

    Attributes:
        drivers: All of them.
        folder: The output folder.
        rows: Those of each batch.
    """

    drivers: Drivers = field(default_factory=lambda: Drivers(Random(), 1.0))
    folder: Folder = field(default_factory=lambda: Folder(Location("", ""), "path"))
    rows: Sequence[Mapping[str, Any]] = field(default_factory=list)
    number: int = 0

    @property
    def place(self) -> Location:
        return Location(self.store.root, self.store.root)

    def is_last(self) -> bool:
        return leases.last_number(Store(self.store.root)) == self.number

    def check_lease(self) -> None:
        self.drivers.step()
        if not self.is_last():
            raise StateError("Another run has taken over.")
        self.drivers.step()

    def start(self) -> Protocol:
        self.number = max(leases.last_number(self.store), last_fence(self.store).generation) + 1
        while not self.store.publish(leases.path_of(self.number), b"{}"):
            self.number += 1
        self.folder = self.folder.for_run("owner", f"run{self.number}", self.store.durable)
        state = manifests.last(self.store)
        number = 0 if state is None else state.batch + 1
        tree = self._tree("j", STRATEGIES[number % 3], GIVEN_ORDER)
        protocol = Protocol(tree, state or tree.start(), spilling=self.spilling, generation=self.number)
        protocol.begun = rounds.read_intent(self.store, number)
        self.offer(protocol, StateLoaded())
        return protocol

    def work(self, protocol: Protocol, lulls: Callable[[], bool]) -> Iterator[int]:
        """Run batches, and rounds after them; yield the batches that are done.

        The first one may be one that Spark does not know to be done.
        """
        if protocol.begun is not None:
            self._arrivals = {}
            self.offer(protocol, QuietPeriod())
        for batch in range(max(0, protocol.state.offered), len(self.rows)):
            self._arrivals = self.rows[batch]
            self.offer(protocol, BatchOffered(batch))
            yield batch
            while lulls():
                self._arrivals = {}
                self.offer(protocol, QuietPeriod(seconds=1.0))

    def settle(self, protocol: Protocol) -> None:
        """Pay all that is owed."""
        self._arrivals, before = {}, None
        while before != protocol.state.batch:
            before = protocol.state.batch
            self.offer(protocol, QuietPeriod(all=True))

    def withdraw(self, action: Withdraw) -> None:
        self.folder.withdraw(action.first, self.check_lease)

    def publish(self, action: Publish) -> ResultsPublished:
        self.check_lease()
        delivery = self.folder.delivery_of_files(action.files, self.place, action.batch)
        self.store.remove({*action.temporary_files} - {*delivery.stored})
        return ResultsPublished(deliveries=(delivery,))

    def deliver(self, action: Deliver) -> None:
        for delivery in action.deliveries:
            for move in delivery.moves:
                self.drivers.step()
                self.folder.deliver(type(delivery)(delivery.output, delivery.folder, (move,)), self.place)

    def retract(self, action: Retract) -> None:
        self.folder.retract(action.batch)
        self.check_lease()


@dataclass
class Case:
    """A store and a folder that several drivers work at.

    Attributes:
        shape: The join.
        root: Where both are.
        seed: Of all dice.
    """

    shape: Shape
    root: Path
    seed: int
    failures: list[BaseException] = field(default_factory=list)
    begun: int = 0

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.drivers = Drivers(self.rng, self.rng.choice([0.5, 0.9, 0.98]), self.begin)
        self.setting: Setting = setting_of(self.shape)
        self.batches = batches_of(self.shape, self.seed, BATCHES)
        for folder in ("store", "out"):
            (self.root / folder).mkdir()

    def driver(self, drivers: Drivers, dice: Dice, durable: bool = False) -> Driver:
        queries, out = self.setting.queries(), str(self.root / "out")
        store = SharedStore(str(self.root / "store"), durable, drivers=drivers)
        folder = Folder(Location(out, out), "path")
        rows = [given(self.shape, rows) for rows in self.batches]
        return Driver(queries.pop("j"), store, inner=queries, spilling=dice, drivers=drivers, folder=folder, rows=rows)

    def begin(self) -> None:
        """Begin another driver."""
        self.begun += 1
        if self.begun == DRIVERS:
            self.drivers.begin = None
        driver = self.driver(self.drivers, Dice(seed=self.begun, spill=self.rng.choice([0.0, 0.5]), split=True))
        self.drivers.add(lambda: self.run(driver))

    def run(self, driver: Driver) -> None:
        try:
            for _ in driver.work(driver.start(), lambda: self.rng.random() < 0.4):
                pass
        except BaseException as error:
            if driver.is_last():
                self.failures.append(error)

    def finish(self) -> Driver:
        """Start the query once more, alone, and run it to its end."""
        driver = self.driver(Drivers(Random(0), calm=1.0), Dice(spill=0.0))
        protocol = driver.start()
        for _ in driver.work(protocol, lambda: False):
            pass
        driver.settle(protocol)
        return driver

    def output(self, driver: Driver) -> Counter[Any]:
        """Return the results in the output folder; other files are not there."""
        driver.results = Counter()
        for path in sorted((self.root / "out").rglob("*")):
            assert path.name.startswith("part-b"), f"{path.name} was left"
            for rows in pq.read_table(path).to_batches():
                driver.add(rows)
        return driver.results


@pytest.mark.parametrize("shape", [ONE, TREE], ids=["one join", "nested"])
@pytest.mark.parametrize("seed", one_in(48, range(SEEDS)))
def test_of_suspended_drivers_one_history_counts(
    tmp_path: Path, shape: Shape, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(shape, tmp_path, seed)
    with limited(**MERGING):
        case.begin()
        case.drivers.play()
        for error in case.failures:
            raise error
        last = case.finish()
    results, expected = case.output(last), brute_force(case.setting, case.batches)["j"].results()
    assert results == expected, f"{(expected - results).total()} lost, {(results - expected).total()} too many"
    assert not [record.message for record in caplog.records if "rows are lost" in record.message]
    store = Store(str(tmp_path / "store"))
    state = manifests.last(store)
    assert state is not None and not state.has_spilled_units


def test_what_a_suspended_driver_publishes_behind_a_fence_does_not_count(tmp_path: Path) -> None:
    case = Case(ONE, tmp_path, 0)
    alone = Drivers(Random(0), calm=1.0)
    first, second = (case.driver(alone, Dice(spill=0.0)) for _ in range(2))
    suspended = first.start()
    first._arrivals = first.rows[0]
    first.offer(suspended, BatchOffered(0))
    known = suspended.state
    second.start()
    store = Store(str(tmp_path / "store"))
    late = manifests.publish(store, known.follow(offered=1), known, generation=1)
    assert late is not None and manifests.last(store) == known, "the fence stands behind batch 0"
    assert last_fence(store) == Fence(2, 1)
    with pytest.raises(StateError, match="taken over"):
        first._arrivals = first.rows[1]
        first.offer(suspended, BatchOffered(1))
    case.finish()
    state = manifests.last(store)
    assert state is not None and state.offered == BATCHES - 1
    assert late.chain[-1] not in store.names(manifests.FOLDER), "what did not count is swept"


def test_a_round_that_was_begun_stays_begun_and_one_that_is_intended_too_late_does_not_count(tmp_path: Path) -> None:
    """[!] A sink may have seen some of the one, and a batch of another driver under the number of the other."""
    case = Case(ONE, tmp_path, 0)
    alone = Drivers(Random(0), calm=1.0)
    first, second, third = (case.driver(alone, Dice(spill=0.0)) for _ in range(3))
    first.start()
    store = Store(str(tmp_path / "store"))
    begun = Round(0, {"j": SpillPlan()})
    rounds.write_intent(store, begun, first.number)
    assert second.start().begun == begun, "it is found"
    assert third.start().begun == begun, "and still is, though the second fence has made the first one's file void"
    store.remove([rounds.path_of(0, third.number)])
    rounds.write_intent(store, begun, second.number)
    assert rounds.read_intent(store, 0) is None, "the third driver may run a batch under that number"


def test_an_intent_that_is_cut_while_it_is_written_anew_is_not_forgotten(tmp_path: Path) -> None:
    """[!] Where there are no hard links, an empty file is left; what was begun may have reached the sink."""
    store, begun = Store(str(tmp_path)), Round(4, {"j": SpillPlan(pay={1: 2})})
    rounds.write_intent(store, begun, 1)
    store.publish(rounds.path_of(4, 2), b"")
    assert rounds.read_intent(store, 4) == begun


@dataclass
class Unlucky(Driver):
    """A driver that makes results ready in the output folder, and once fails right after a commit."""

    failure: BaseException | None = None

    def publish(self, action: Publish) -> ResultsPublished:
        staged = self.folder.staging(action.batch, Location("s3a://store", "s3://store"))
        folder = Path(self.folder.location.arrow, staged)
        for file in action.files:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / Path(file).name).write_bytes(self.store.read(file) or b"")
        return ResultsPublished(
            deliveries=(self.folder.delivery_of_staged(staged, self.place, action.batch, ".parquet"),)
        )

    def check_lease(self) -> None:
        if self.failure is not None and manifests.newest(self.store) == 1:
            failure, self.failure = self.failure, None
            raise failure
        super().check_lease()


@pytest.mark.parametrize("failure", [OSError(5, "Input/output error"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_a_manifest_is_not_taken_for_another_run_s_after_a_failure(tmp_path: Path, failure: BaseException) -> None:
    """[!] A round that fails is tried again by the same run: it would take back what its own manifest names."""
    case = Case(ONE, tmp_path, 0)
    driver = case.driver(Drivers(Random(0), calm=1.0), Dice(spill=0.0))
    unlucky = Unlucky(**{part.name: getattr(driver, part.name) for part in fields(driver) if part.init})
    protocol = unlucky.start()
    unlucky._arrivals = unlucky.rows[0]
    unlucky.offer(protocol, BatchOffered(0))
    unlucky._arrivals, unlucky.failure = unlucky.rows[1], failure
    with pytest.raises(type(failure)):
        unlucky.offer(protocol, BatchOffered(1))
    with pytest.raises(StateError, match=r"^Batch 1 may be committed at .* start the query again, which finds out"):
        unlucky.offer(protocol, BatchOffered(1))
    last = case.finish()
    (tmp_path / "out" / STAGING).rmdir()
    assert case.output(last) == brute_force(case.setting, case.batches)["j"].results()
