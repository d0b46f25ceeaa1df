"""Drivers that are suspended at any moment, while others take over: one history counts, and each result appears once.

Drivers share a store and an output folder. Each works in a thread of its own, one at a time: at each step (of the
store, the lease, the sink) dice decide which of them goes on, and whether another one takes the lease meanwhile, as it
may when a lease is not renewed. A driver that has lost its lease may fail as it likes, but must not harm; one that has
it must not fail.
"""

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore

from tests.budget import one_in
from tests.spilling.dice import Dice
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
from watersmeet.spark.output.files import Folder, Mover
from watersmeet.state.manifest import leases, rounds
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.claim import DESCRIPTION, claim
from watersmeet.state.manifest.delivery import STAGING, Delivery
from watersmeet.state.manifest.generations import Fence, generation_of, last_fence
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import Round, SpillPlan
from watersmeet.state.store import remote
from watersmeet.state.store.store import Store

pytestmark = pytest.mark.long

DRIVERS = 4
BATCHES = 4
SEEDS = 240
MOMENTS = 190
"""A driver that does it all has a few more steps."""
OPTIONS: dict[str, Sequence[Any]] = {
    "kind": ("local", "object", "rename"),
    "output": ("files", "staged", "partitioned"),
    "final": (False, True),
    "snapshots": (1, 2, 3, 32),
}
FAR = "far://host/store"
Kind = Literal["local", "object", "rename"]
"""How a store gives a file its name: by a link, a conditional put or a rename that does not replace."""


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
        if self.begin is not None and self.rng.random() < 0.01:
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


@dataclass
class Sleeping(Drivers):
    """A driver that is suspended at one of its steps until another one has worked to its end."""

    moment: int = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.moment and self.begin is not None:
            own = self._waiting[threading.current_thread()]
            own.clear()
            self.begin()
            [*self._waiting.values()][-1].set()
            own.wait()


@dataclass(frozen=True)
class SharedStore(Store):
    """A store each of whose steps may be the last for a long while."""

    drivers: Drivers = field(default_factory=lambda: Drivers(Random(), 1.0), compare=False)

    def write(self, path: str, data: Any) -> None:
        self.drivers.step()
        super().write(path, data)

    def read(self, path: str) -> bytes | None:
        content = super().read(path)
        self.drivers.step()
        return content

    def overwrite(self, path: str, data: bytes) -> None:
        self.drivers.step()
        super().overwrite(path, data)
        self.drivers.step()

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


class Renames:
    """The client of a file system that renames without replacing, as HDFS does; a step lies before each rename."""

    def __init__(self, root: Path, drivers: Drivers) -> None:
        self._root, self._drivers = root, drivers

    def pipe_file(self, path: str, content: bytes) -> None:
        (self._root / path).parent.mkdir(parents=True, exist_ok=True)
        (self._root / path).write_bytes(content)

    def mv(self, draft: str, target: str, overwrite: bool) -> None:
        assert not overwrite
        self._drivers.step()
        os.link(self._root / draft, self._root / target)
        self.rm_file(draft)

    def rm_file(self, path: str) -> None:
        (self._root / path).unlink()


@dataclass
class Driver(TreeRun):
    """One start of the query: it takes the lease, and goes on from what it finds.

    Attributes:
        drivers: All of them.
        folder: The output folder.
        rows: Those of each batch.
        output: Whether files go to it as they are in the store, are staged in it, or staged in partition folders.
    """

    drivers: Drivers = field(default_factory=lambda: Drivers(Random(), 1.0))
    folder: Folder = field(default_factory=lambda: Folder(Location("", ""), "path"))
    rows: Sequence[Mapping[str, Any]] = field(default_factory=list)
    output: str = "files"
    number: int = 0

    @property
    def place(self) -> Location:
        return Location(self.store.root, self.store.root)

    @property
    def token(self) -> str:
        return self.name[:8]

    @property
    def generation(self) -> str:
        return generation_of(self.number, self.token)

    def is_last(self) -> bool:
        store = Store(self.store.root)
        return leases.last_number(store) == self.number and store.read(leases.path_of(self.number)) == self._lease

    @property
    def _lease(self) -> bytes:
        return self.token.encode()

    def check_lease(self) -> None:
        self.drivers.step()
        if not self.is_last():
            raise StateError("Another run has taken over.")
        self.drivers.step()

    def start(self) -> Protocol:
        self.number = max(leases.last_number(self.store), last_fence(self.store).number) + 1
        while not self.store.publish(leases.path_of(self.number), self._lease):
            self.number += 1
        owner = claim(self.store, {"streams": []}, self.folder.location.arrow, self.output, self.check_lease)
        self.folder = self.folder.for_run(owner, f"run{self.number}{self.token}", self.store.durable)
        state = manifests.last(self.store)
        number = 0 if state is None else state.batch + 1
        tree = self._tree("j", STRATEGIES[number % 3], GIVEN_ORDER)
        protocol = Protocol(tree, state or tree.start(), spilling=self.spilling, generation=self.generation)
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
            self.go(protocol, batch)
            yield batch
            while lulls():
                self._arrivals = {}
                self.offer(protocol, QuietPeriod(seconds=1.0))

    def go(self, protocol: Protocol, batch: int) -> Manifest:
        """Run one batch, and return the state after it."""
        self._arrivals = self.rows[batch]
        self.offer(protocol, BatchOffered(batch))
        return protocol.state

    def settle(self, protocol: Protocol, final: bool = False) -> None:
        """Pay all that is owed, and maybe close everything for good; spill nothing more."""
        self._arrivals, before, protocol.spilling = {}, None, Dice(spill=0.0)
        while before != protocol.state.batch:
            before = protocol.state.batch
            self.offer(protocol, QuietPeriod(all=True, final=final))

    def withdraw(self, action: Withdraw) -> None:
        self.folder.withdraw(action.first, self.check_lease)

    def publish(self, action: Publish) -> ResultsPublished:
        self.check_lease()
        delivery = self._stage(action)
        self.store.remove({*action.temporary_files} - {*delivery.stored})
        return ResultsPublished(deliveries=(delivery,))

    def _stage(self, action: Publish) -> Delivery:
        if self.output == "files":
            return self.folder.delivery_of_files(action.files, self.place, action.batch)
        is_partitioned = self.output == "partitioned"
        staged = self.folder.staging(action.batch, self.place if is_partitioned else Location(FAR, FAR))
        root = Path(self.folder.locate_staged(staged, self.place).arrow)
        for at, file in enumerate(action.files):
            self.drivers.step()
            path = root / (f"k={at % 2}" if is_partitioned else "") / Path(file).name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.store.read(file) or b"")
        return self.folder.delivery_of_staged(staged, self.place, action.batch, ".parquet")

    def deliver(self, action: Deliver) -> None:
        for delivery in action.deliveries:
            self.folder.deliver(delivery, self.place)

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
        kind: How the store gives names.
        output: See `Driver`.
        final: Whether drivers close everything for good at the end.
    """

    shape: Shape
    root: Path
    seed: int
    kind: Kind = "local"
    output: str = "files"
    final: bool = False
    failures: list[BaseException] = field(default_factory=list)
    begun: int = 0

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.drivers = Drivers(self.rng, self.rng.choice([0.5, 0.9, 0.98]), self.begin)
        self.setting: Setting = setting_of(self.shape)
        self.batches = batches_of(self.shape, self.seed, BATCHES)
        for folder in ("store/results", "out"):  # far stores make no folders
            (self.root / folder).mkdir(parents=True)

    @property
    def store(self) -> Store:
        """The store, without drivers' steps."""
        return Store(str(self.root / "store") if self.kind == "local" else FAR)

    def connect(self, root: str) -> remote.Remote:
        """Open the far store."""
        assert root.startswith("far://host/")
        system = pafs.SubTreeFileSystem(str(self.root), pafs.LocalFileSystem())
        put = remote.create_by_put(lambda: LocalStore(self.root / "store"))
        rename = partial(remote._create_by_rename, Renames(self.root, self.drivers), "store")
        return remote.Remote(system, "store", put if self.kind == "object" else rename)

    def driver(self, drivers: Drivers, dice: Dice, durable: bool = False) -> Driver:
        queries, out = self.setting.queries(), str(self.root / "out")
        store = SharedStore(self.store.root, durable, drivers=drivers)
        folder = Folder(Location(out, out), "path")
        rows = [given(self.shape, rows) for rows in self.batches]
        run = Driver(queries.pop("j"), store, inner=queries, spilling=dice, drivers=drivers, folder=folder, rows=rows)
        run.output = self.output
        return run

    def alone(self, drivers: int) -> list[Driver]:
        """Return drivers that are suspended nowhere, and spill nothing."""
        self.drivers = Drivers(Random(0), calm=1.0)
        return [self.driver(self.drivers, Dice(spill=0.0)) for _ in range(drivers)]

    def begin(self) -> None:
        """Begin another driver."""
        self.begun += 1
        if self.begun == DRIVERS:
            self.drivers.begin = None
        driver = self.driver(self.drivers, Dice(seed=self.begun, spill=self.rng.choice([0.0, 0.5]), split=True))
        self.drivers.add(lambda: self.run(driver))

    def run(self, driver: Driver) -> None:
        try:
            protocol = driver.start()
            for _ in driver.work(protocol, lambda: self.rng.random() < 0.4):
                pass
            if self.final:
                driver.settle(protocol, final=True)
        except BaseException as error:
            if driver.is_last():
                self.failures.append(error)

    def finish(self) -> Driver:
        """Start the query once more, alone, and run it to its end."""
        (driver,) = self.alone(1)
        protocol = driver.start()
        for _ in driver.work(protocol, lambda: False):
            pass
        driver.settle(protocol, self.final)
        return driver

    def results(self, driver: Driver) -> Counter[Any]:
        """Return the results in the output folder; other files are not there."""
        driver.results = Counter()
        for path in sorted(filter(Path.is_file, (self.root / "out").rglob("*"))):
            assert path.name.startswith("part-b") and STAGING not in path.parts, f"{path.name} was left"
            for rows in pq.read_table(path, partitioning=None).to_batches():
                driver.add(rows)
        return driver.results

    def keep(self) -> None:
        """Make a copy of the store."""
        shutil.copytree(self.root / "store", self.root / "copy")

    def restore(self) -> None:
        """Replace the store by its copy."""
        shutil.rmtree(self.root / "store")
        shutil.copytree(self.root / "copy", self.root / "store")

    def check(self) -> None:
        """Finish the query; compare its results with those of brute force, and see that no other files are left."""
        results = self.results(self.finish())
        expected = brute_force(self.setting, self.batches)["j"].results()
        assert results == expected, f"{(expected - results).total()} lost, {(results - expected).total()} too many"
        state = manifests.last(self.store)
        assert state is not None and not state.has_spilled_units and state.final == self.final
        assert state.offered == BATCHES - 1
        assert not [name for name in self.store.names("") if name.endswith(".draft")]


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Case], Case]:
    """Let far:// lead to a case's store, and let steps lie between the files of a delivery."""
    move = Mover.move

    def stage(case: Case) -> Case:
        def move_in_time(mover: Mover, *file: Any) -> None:
            case.drivers.step()
            move(mover, *file)

        monkeypatch.setattr(Mover, "move", move_in_time)
        monkeypatch.setattr(remote, "connect", case.connect)
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "copies"))
        return case

    return stage


def options_of(seed: int) -> dict[str, Any]:
    """Return what varies between cases, by dice of its own."""
    rng = Random(f"options {seed}")
    return {name: rng.choice(values) for name, values in OPTIONS.items()}


@pytest.mark.parametrize("shape", [ONE, TREE], ids=["one join", "nested"])
@pytest.mark.parametrize("seed", one_in(24, range(SEEDS)))
def test_of_suspended_drivers_one_history_counts(
    tmp_path: Path,
    shape: Shape,
    seed: int,
    staged: Callable[[Case], Case],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = options_of(seed)
    monkeypatch.setattr(manifests, "SNAPSHOT_EVERY", options.pop("snapshots"))
    case = staged(Case(shape, tmp_path, seed, **options))
    with limited(**MERGING):
        case.begin()
        case.drivers.play()
        for error in case.failures:
            raise error
        case.check()
    assert not [record.message for record in caplog.records if "rows are lost" in record.message]


@pytest.mark.parametrize("kind", OPTIONS["kind"])
@pytest.mark.parametrize("moment", one_in(10, range(2, MOMENTS, 5)))
def test_a_driver_that_sleeps_while_another_one_does_it_all(
    tmp_path: Path, moment: int, kind: Kind, staged: Callable[[Case], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "SNAPSHOT_EVERY", 2)
    case = Case(ONE, tmp_path, 100, kind, OPTIONS["output"][moment % 3], final=moment % 2 == 0)
    case.drivers = Sleeping(case.rng, 1.0, case.begin, moment=moment)
    with limited(**MERGING):
        staged(case).begin()
        case.drivers.play()
        for error in case.failures:
            raise error
        assert case.begun == 2
        case.check()


def test_what_a_suspended_driver_publishes_behind_a_fence_does_not_count(tmp_path: Path) -> None:
    case = Case(ONE, tmp_path, 0)
    first, second = case.alone(2)
    suspended = first.start()
    known = first.go(suspended, 0)
    second.start()
    late = manifests.publish(case.store, known.follow(offered=1), known, first.generation)
    assert late is not None and manifests.last(case.store) == known, "the fence stands behind batch 0"
    assert last_fence(case.store) == Fence(second.generation, 1)
    with pytest.raises(StateError, match="taken over"):
        first.go(suspended, 1)
    case.check()
    assert late.chain[-1] not in case.store.names(manifests.FOLDER), "what did not count is swept"


def test_a_round_that_was_begun_stays_begun_and_one_that_is_intended_too_late_does_not_count(tmp_path: Path) -> None:
    """[!] A sink may have seen some of the one, and a batch of another driver under the number of the other."""
    case = Case(ONE, tmp_path, 0)
    first, second, third = case.alone(3)
    first.start()
    begun = Round(0, {"j": SpillPlan()})
    rounds.write_intent(case.store, begun, first.generation)
    assert second.start().begun == begun, "it is found"
    assert third.start().begun == begun, "and still is, though the second fence has made the first one's file void"
    case.store.remove([rounds.path_of(0, third.generation)])
    rounds.write_intent(case.store, begun, second.generation)
    assert rounds.read_intent(case.store, 0) is None, "the third driver may run a batch under that number"


def test_an_intent_that_is_cut_while_it_is_written_anew_is_not_forgotten(tmp_path: Path) -> None:
    """[!] Where there are no hard links, an empty file is left; what was begun may have reached the sink."""
    store, begun = Store(str(tmp_path)), Round(4, {"j": SpillPlan(pay={1: 2})})
    rounds.write_intent(store, begun, generation_of(1, "0123abcd"))
    store.publish(rounds.path_of(4, generation_of(2, "0123abcd")), b"")
    assert rounds.read_intent(store, 4) == begun


def test_checkpoints_of_before_generations_had_tokens_go_on(tmp_path: Path) -> None:
    case = Case(ONE, tmp_path, 0)
    (first,) = case.alone(1)
    first.go(first.start(), 0)
    for path in sorted((tmp_path / "store").glob("*/*-*-*.*")):
        if path.parent.name in ("manifests", "fences"):
            path.rename(path.with_name(path.name.replace(f"-{first.token}", "")))
    state = manifests.last(case.store)
    assert state is not None and state.batch == 0 and state.chain == (f"manifests/{0:012d}-{1:012d}.json",)
    assert last_fence(case.store) == Fence("000000000001", 0)
    late = manifests.publish(case.store, state.follow(), state, "000000000001")
    assert manifests.last(case.store) == late, "its own driver may have gone on"
    case.store.remove([manifests.path_of(1, "000000000001")])
    case.check()


@pytest.mark.parametrize("kind", OPTIONS["kind"])
def test_drafts_that_a_kill_left_are_swept(tmp_path: Path, kind: Kind, staged: Callable[[Case], Case]) -> None:
    case = staged(Case(ONE, tmp_path, 0, kind))
    for name in (DESCRIPTION, "why.json", "try", manifests.path_of(3)):
        path = tmp_path / "store" / f"{name}.{'0f' * 16}.draft"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    case.check()


# -- a failure in the midst of a commit


@dataclass
class Unlucky(Driver):
    """A driver that once fails right after a commit."""

    failure: BaseException | None = None

    def check_lease(self) -> None:
        if self.failure is not None and manifests.newest(self.store) == 1:
            failure, self.failure = self.failure, None
            raise failure
        super().check_lease()


@pytest.mark.parametrize("failure", [OSError(5, "Input/output error"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_a_manifest_is_not_taken_for_another_run_s_after_a_failure(tmp_path: Path, failure: BaseException) -> None:
    """[!] A round that fails is tried again by the same run: it would take back what its own manifest names."""
    case = Case(ONE, tmp_path, 0, output="staged")
    (driver,) = case.alone(1)
    unlucky = Unlucky(**{part.name: getattr(driver, part.name) for part in fields(driver) if part.init})
    protocol = unlucky.start()
    unlucky.go(protocol, 0)
    unlucky.failure = failure
    with pytest.raises(type(failure)):
        unlucky.go(protocol, 1)
    with pytest.raises(StateError, match=r"^Batch 1 may be committed at .* start the query again, which finds out"):
        unlucky.go(protocol, 1)
    case.check()


def test_a_manifest_that_a_remote_store_writes_late_is_not_taken_for_another_run_s(
    tmp_path: Path, staged: Callable[[Case], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """[!] Right after the failure it can't be read yet."""
    case = staged(Case(ONE, tmp_path, 0, "object", "staged"))
    (driver,) = case.alone(1)
    protocol = driver.start()
    driver.go(protocol, 0)
    honest, late = case.connect(FAR), list[tuple[str, bytes]]()

    def create(path: str, content: bytes) -> bool:
        late.append((path, content))
        raise OSError("the request has timed out")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="has timed out"):
        patch.setattr(remote, "connect", lambda root: remote.Remote(honest.system, honest.base, create))
        driver.go(protocol, 1)
    assert [path for path, _ in late] == [manifests.path_of(1, driver.generation)]
    assert honest.create(*late[0])
    with pytest.raises(StateError, match=r"^Batch 1 may be committed at far://.* start the query again"):
        driver.go(protocol, 1)
    case.check()


# -- an older copy that is restored while a driver is suspended


def test_beside_an_older_copy_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[!] What a driver no longer needs, the state that was restored may need."""
    monkeypatch.setattr(manifests, "SNAPSHOT_EVERY", 2)
    case = Case(ONE, tmp_path, 0)
    first, second = case.alone(2)
    with limited(**MERGING):
        suspended = first.start()
        first.go(suspended, 0)
        first.go(suspended, 1)
        case.keep()
        first.go(suspended, 2)
        case.restore()
        second.start()
        with pytest.raises(StateError, match="taken over"):
            first.go(suspended, 3)
        case.check()


@pytest.mark.parametrize("starts", [1, 2])
def test_beside_an_older_copy_a_manifest_of_a_higher_number_does_not_count(tmp_path: Path, starts: int) -> None:
    """[!] Leases are numbered anew there: a driver that was suspended may have a higher number, or the same one."""
    case = Case(ONE, tmp_path, 0)
    first, second, third, *others = case.alone(3 + starts)
    state = first.go(first.start(), 0)
    case.keep()
    second.start()
    suspended = third.start()
    case.restore()
    for driver in others:
        protocol = driver.start()
    late = manifests.publish(case.store, state.follow(offered=1), state, third.generation)
    assert late is not None and manifests.last(case.store) == state
    others[-1].go(protocol, 1)
    with pytest.raises(StateError, match="taken over"):
        third.go(suspended, 1)
    case.check()


def test_a_fence_that_comes_too_late_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[!] In an older copy that was restored meanwhile, it would be the last one for several starts."""
    case = Case(ONE, tmp_path, 0)
    first, second, third, fourth = case.alone(4)
    first.go(first.start(), 0)
    case.keep()
    second.start()
    publish = Fence.publish

    def publish_late(fence: Fence, store: Store) -> None:
        if fence.generation == third.generation:
            case.restore()
            fourth.go(fourth.start(), 1)
        publish(fence, store)

    monkeypatch.setattr(Fence, "publish", publish_late)
    with pytest.raises(StateError, match="taken over"):
        third.start()
    assert last_fence(case.store).generation == fourth.generation
    case.check()
