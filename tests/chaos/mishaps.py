"""What may happen to a join, its files, its clock and its neighbours."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.round import STEPS, Round, Wrong
from tests.spark import processes

REFUSALS = ("restore it or start a new checkpoint", "restore both or start a new checkpoint", "is in use by")
SKEWS = (-3600, -86400, 3600, 86400 * 365)


def cut(round: Round) -> None:
    """The driver exits at a step."""
    round.run(die=[round.rng.choice(STEPS), round.rng.randint(1, 2)])


def kill(round: Round) -> None:
    """The driver, its JVM and its workers are killed at some moment."""
    with processes.program(round.folder, **round.spec()) as process:
        _wait_for(round, process, "started", "step")
        time.sleep(round.rng.random() * 3)


def worker(round: Round) -> None:
    """Python workers are killed while the program runs."""
    _struck(round, "pyspark.daemon", exchange=round.rng.choice(["local", "shuffle"]))


def executor(round: Round) -> None:
    """Executors are killed while the program runs on a cluster."""
    _struck(round, "CoarseGrainedExecutorBackend", master="local-cluster[2,1,1024]")


def pause(round: Round) -> None:
    """The driver stands still until another has taken over; then it wakes up."""
    with processes.program(round.folder, **round.spec()) as process:
        _wait_for(round, process, *(f"step {step}" for step in round.rng.sample(STEPS, 2)))
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            round.run(die=[round.rng.choice(STEPS), 1] if round.rng.random() < 0.5 else None)
        finally:
            os.killpg(process.pid, signal.SIGCONT)
        said = list(processes.lines(process))
        round.heard(said[-1] if said else "done")  # what it said before it stood still was read


def neighbour(round: Round) -> None:
    """Two drivers start at once."""
    with (
        processes.program(round.folder, **round.spec()) as first,
        processes.program(round.folder, **round.spec()) as second,
    ):
        for process in (first, second):
            said = list(processes.lines(process))
            round.heard(said[-1] if said else "nothing")


def flip(round: Round) -> None:
    """A bit changes in a file of the store, or in what Spark wrote down of the input of a batch that is done."""
    done = [round.checkpoint / "offsets" / path.name for path in (round.checkpoint / "commits").glob("[0-9]*")]
    kept = [*round.store.rglob("*"), *sorted(done)[-1:]]
    files = [path for path in sorted(kept) if path.is_file() and path.stat().st_size]
    kinds = sorted({(path.parent.name, path.suffix) for path in files})
    kind = round.rng.choice(kinds)
    path = round.rng.choice([path for path in files if (path.parent.name, path.suffix) == kind])
    whole = path.read_bytes()
    data = bytearray(whole)
    data[round.rng.randrange(len(data))] ^= 1 << round.rng.randrange(8)
    path.write_bytes(data)
    round.story.append(f"  in {path.relative_to(round.checkpoint)}")
    if round.run().startswith("refused"):
        path.write_bytes(whole)


def lose(round: Round) -> None:
    """A file that state needs is gone."""
    files = [round.store / "query.json", *round.store.glob("manifests/*.json"), *round.store.glob("chunks/*")]
    path = round.rng.choice(sorted(path for path in files if path.exists()))
    whole = path.read_bytes()
    path.unlink()
    round.story.append(f"  {path.relative_to(round.store)}")
    if round.run().startswith("refused"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(whole)


def strays(round: Round) -> None:
    """Somebody leaves files lying about."""
    for folder in ("manifests", "chunks", "leases", "progress", "results", "."):
        for name in ("notes.txt", "x.json", "000000000009.json.bak", ".hidden"):
            path = round.store / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"{}")
    cut(round)


def backup(round: Round) -> None:
    """An older copy of the checkpoint is restored."""
    copy = round.folder / "copy"
    shutil.copytree(round.checkpoint, copy)
    cut(round)
    shutil.rmtree(round.checkpoint)
    copy.rename(round.checkpoint)


def mixed(round: Round) -> None:
    """Spark's part of the checkpoint is older than the join's."""
    if round.run() != "done":
        raise Wrong("it did not finish")
    copy = round.folder / "copy"
    shutil.copytree(round.checkpoint, copy)
    last = max(int(path.name) for path in (round.checkpoint / "offsets").glob("[0-9]*"))
    for log in ("offsets", "commits"):
        for path in (round.checkpoint / log).glob(f"*{last}*"):
            path.unlink()
    round.feed(1)
    said = round.run()
    if said.startswith("refused"):
        round.refused(said, *REFUSALS)
        shutil.rmtree(round.checkpoint)
        copy.rename(round.checkpoint)
    else:
        shutil.rmtree(copy)


def clock(round: Round) -> None:
    """The clock is wrong, or jumps."""
    round.run(skew=round.rng.choice(SKEWS), die=[round.rng.choice(STEPS), 2])


def full(round: Round) -> None:
    """The disk is full when something is to be written."""
    said = round.run(full=round.rng.randint(1, 12))
    if said != "done" and "No space left" not in said:
        raise Wrong(said)


def _wait_for(round: Round, process: "processes.Program", *sayings: str) -> None:
    for said in processes.lines(process):
        if said.startswith(sayings):
            return


def _struck(round: Round, victim: str, **changes: Any) -> None:
    """Run the program to its end, and kill a process of its now and then: one that has this word in its command."""
    with processes.program(round.folder, **round.spec(**changes)) as process:
        said = ""
        for said in processes.lines(process):
            if said.startswith(("started", "step")) and round.rng.random() < 0.5:
                _kill_one(process.pid, victim)
    round.heard(said)


def _kill_one(group: int, victim: str) -> None:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            if victim.encode() in command and os.getpgid(int(path.name)) == group:
                os.kill(int(path.name), signal.SIGKILL)
                return
        except (OSError, ProcessLookupError):
            continue


MISHAPS: dict[str, Callable[[Round], None]] = {
    made.__name__: made
    for made in (cut, kill, worker, executor, pause, neighbour, flip, lose, strays, backup, mixed, clock, full)
}
