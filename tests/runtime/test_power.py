"""Power fails while batches, rounds and deliveries are under way: nothing acknowledged is lost, and results stay exact.

The disk is one that keeps only what it was told to keep. At the cut, of everything that was not written through (the
bytes of a file, a name added to a folder, a name removed) dice decide whether it had reached the disk. A rename is one
step, as on journaling file systems.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from tests.budget import one_in
from tests.runtime.test_cuts import Cut
from tests.runtime.test_takeovers import Case, Driver, Drivers
from tests.spilling.dice import Dice
from tests.spilling.test_spill_cuts import MERGING, ONE, TREE
from tests.spilling.trees import Shape
from watersmeet.limits import limited
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.store import Store

pytestmark = pytest.mark.long

SEEDS = 120
CUTS = 4
"""Power failures of one query."""


@dataclass
class Disk:
    """What a disk has of the files below a folder, whatever the operating system shows.

    Attributes:
        root: The folder.
        contents: What each file held when it was last written through, by inode.
        names: What each folder named when it was last written through, by path: inodes by name.
    """

    root: Path
    contents: dict[int, bytes] = field(default_factory=dict)
    names: dict[Path, dict[str, int]] = field(default_factory=dict)

    def sync(self, descriptor: int) -> None:
        """Write a file or a folder through."""
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            self.names[path] = _listing(path)
        else:
            self.contents[os.fstat(descriptor).st_ino] = path.read_bytes()

    def fail(self, rng: Random) -> None:
        """Cut the power: the folder then holds what had reached the disk."""
        tree = dict(self._survivors(rng))
        shutil.rmtree(self.root)
        self.root.mkdir()
        self.contents, self.names = {}, {}
        for path, data in sorted(tree.items()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for folder in [self.root, *filter(Path.is_dir, self.root.rglob("*"))]:
            self.names[folder] = _listing(folder)
        self.contents = {path.stat().st_ino: path.read_bytes() for path in tree}

    def _survivors(self, rng: Random) -> Iterator[tuple[Path, bytes]]:
        shown = {path: path for path in self.root.rglob("*") if path.is_file()}
        held = {path.stat().st_ino: path.read_bytes() for path in shown}
        was = {folder / name: inode for folder, names in self.names.items() for name, inode in names.items()}
        now = {path: path.stat().st_ino for path in shown}
        kept = {path: inode for path, inode in was.items() if now.get(path) == inode}
        for path in sorted(was.keys() | now.keys()):
            if path not in kept:
                side = now if rng.random() < 0.5 else was
                if path in side:
                    kept[path] = side[path]
        for path, inode in was.items():  # a rename is one step: the file has its old name, its new one, or both
            if inode in now.values() and inode not in kept.values():
                kept[path] = inode
        for path, inode in kept.items():
            if inode in held or inode in self.contents:
                yield path, self._content(inode, held, rng)

    def _content(self, inode: int, held: dict[int, bytes], rng: Random) -> bytes:
        synced, seen = self.contents.get(inode, b""), held.get(inode)
        if seen is None or seen == synced:
            return synced
        return rng.choice([synced, seen, seen[: rng.randrange(len(seen) + 1)]])


def _listing(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir() if path.is_file()}


@dataclass
class Cutting(Drivers):
    """One driver, which ends at one of its steps."""

    last: int = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.last:
            raise Cut


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A disk that keeps only what was written through."""
    disk, sync = Disk(tmp_path / "disk"), os.fsync

    def written_through(descriptor: int) -> None:
        sync(descriptor)
        disk.sync(descriptor)

    monkeypatch.setattr(os, "fsync", written_through)
    disk.root.mkdir()
    return disk


def durable(case: Case, drivers: Drivers, dice: Dice) -> Driver:
    return case.driver(drivers, dice, durable=True)


def acknowledged(case: Case, rng: Random, start: int) -> int:
    """Run the query until it is cut, or to its end; return the last batch that Spark was told to be done."""
    drivers = Cutting(rng, 1.0, last=rng.randrange(1, 700))
    driver, done = durable(case, drivers, Dice(seed=start, spill=rng.choice([0.0, 0.5]))), -1
    try:
        protocol = driver.start()
        done = protocol.state.offered
        for batch in driver.work(protocol, lambda: rng.random() < 0.4):
            done = batch
    except Cut:
        pass
    return done


@pytest.mark.parametrize("shape", [ONE, TREE], ids=["one join", "nested"])
@pytest.mark.parametrize("seed", one_in(24, range(SEEDS)))
def test_power_fails_and_nothing_acknowledged_is_lost(tmp_path: Path, disk: Disk, shape: Shape, seed: int) -> None:
    case, rng = Case(shape, disk.root, seed), Random(seed)
    with limited(**MERGING):
        for start in range(CUTS):
            done = acknowledged(case, rng, start)
            disk.fail(rng)
            state = manifests.last(Store(str(disk.root / "store")))
            assert (-1 if state is None else state.offered) >= done
        case.check()
