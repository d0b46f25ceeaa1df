"""What may happen to a join, its files, its processes, its clock and its neighbours; each counts what it really hit."""

import errno
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from tests.chaos import program
from tests.chaos.program import Steps
from tests.chaos.round import DIED, STEPS, Round, Wrong
from tests.spark import processes
from watersmeet.metadata.constraints import MARKS
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.state.chunks.chunk import CHUNKS
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.store import Store

SKEWS = (-3600, -86400, 3600, 86400 * 365)
DAEMON, EXECUTOR = "daemon pyspark.worker", "CoarseGrainedExecutorBackend"
CLUSTER = "local-cluster[2,1,1024]"

# -- in this process


def cut(round: Round) -> None:
    """The driver ends at a step, by an exception."""
    round.hit(round.cut().hit)


def dying(round: Round) -> None:
    """The Python worker that reads new rows kills itself: the batch's job is run again."""
    armed = round.folder / "armed"
    armed.touch()
    said = round.run()
    round.hit(not armed.exists())
    armed.unlink(missing_ok=True)
    if said != "done":
        raise Wrong(said)


def worker(round: Round) -> None:
    """Python workers are killed while batches run, one at a time."""
    steps = Steps(say=lambda step: round.hit(round.rng.random() < 0.7 and strike(os.getpid(), DAEMON)))
    said = round.run(steps, exchange=round.rng.choice(["local", "shuffle", "ring"]))
    if said != "done" and DIED not in said:
        raise Wrong(said)


def flip(round: Round) -> None:
    """A bit changes in a file of the store, or in what Spark wrote down of the input of a batch that is done."""
    round.damaged = True
    done = round.checkpoint / "offsets" / str(round.batch())
    kept = _needed(round) if round.rng.random() < 0.75 else round.store.rglob("*")
    files = [path for path in sorted([*kept, done]) if path.is_file() and path.stat().st_size]
    kind = round.rng.choice(sorted({(path.parent.name, path.suffix) for path in files}))
    path = round.rng.choice([path for path in files if (path.parent.name, path.suffix) == kind])
    whole = path.read_bytes()
    data = bytearray(whole)
    data[round.rng.randrange(len(data))] ^= 1 << round.rng.randrange(8)
    path.write_bytes(data)
    round.story.append(f"  in {path.relative_to(round.checkpoint)}")
    os.utime(path, (0, time.time()))
    said = round.run()
    round.hit(said != "done" or (path.exists() and path.stat().st_atime > 0))  # it was read
    _put_back(path, whole, said)


def lose(round: Round) -> None:
    """A file that state needs is gone."""
    round.damaged = True
    path = round.rng.choice(sorted(path for path in _needed(round) if path.exists()))
    whole = path.read_bytes()
    path.unlink()
    round.story.append(f"  {path.relative_to(round.store)}")
    said = round.run()
    round.hit(said != "done")
    _put_back(path, whole, said)


def _put_back(path: Path, whole: bytes, said: str) -> None:
    """Put a file back, as the sentence says; one of rows also where no batch has read it yet: a later one may."""
    if said != "done" or path.parent.name in (CHUNKS, MARKS):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(whole)


def _needed(round: Round) -> list[Path]:
    """Return the files that the state of the last batch consists of."""
    live = manifests.last(Store(str(round.store)))
    chunks = [round.store / path for path in live.files] if live else []
    return [*chunks, round.store / "query.json", *sorted(round.store.glob("manifests/*.json"))[-1:]]


def strays(round: Round) -> None:
    """Somebody leaves files lying about."""
    for folder in ("manifests", "chunks", "leases", "progress", "results", "."):
        for name in ("notes.txt", "x.json", "000000000009.json.bak", ".hidden"):
            path = round.store / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"{}")
            round.hit()
    round.cut()


def backup(round: Round) -> None:
    """An older copy of the checkpoint is restored."""
    copy = round.folder / "copy"
    shutil.copytree(round.checkpoint, copy)
    _go_on(round)
    _restore(round, copy)


def backup_under_load(round: Round) -> None:
    """The same while more input arrives, also during the start that follows."""
    copy = round.folder / "copy"
    shutil.copytree(round.checkpoint, copy)
    _go_on(round)
    feeding = threading.Timer(0.2, round.feed, [1])
    feeding.start()
    _restore(round, copy)
    try:
        if round.run() != "done":
            raise Wrong(round.story[-1])
    finally:
        feeding.join()


def backup_while_running(round: Round) -> None:
    """An operator restores an older copy while the query runs: it ends somehow, and is restored once more."""
    copy, again = round.folder / "copy", round.folder / "again"
    for folder in (copy, again):
        shutil.copytree(round.checkpoint, folder)
    at, delay = round.rng.randint(1, 8), round.rng.choice([None, 0.0, 0.05, 0.3])
    swap = threading.Timer(delay or 0, _swap, [round, copy])

    def say(step: str) -> None:
        if steps.taken == at:
            swap.start()
            if delay is None:  # the driver waits at its step
                swap.join()

    steps = Steps(say=say)
    round.feed(2)
    round.run(steps)
    if swap.ident is None:  # it had ended before
        shutil.rmtree(copy)
    else:
        swap.join()
        round.hit()
    _swap(round, again)


def torn_backup(round: Round) -> None:
    """A copy that was made while the query ran is restored: it may be of several moments."""
    copy = round.folder / "copy"
    copied = threading.Thread(target=_copy, args=(round.checkpoint, copy))
    steps = Steps(say=lambda step: copied.start() if copied.ident is None else None)
    round.run(steps)
    if copied.ident is None:  # there was nothing left to run
        return
    copied.join()
    round.damaged = True
    whole = round.folder / "whole"
    round.checkpoint.rename(whole)
    copy.rename(round.checkpoint)
    round.hit()
    if round.run() == "done":
        shutil.rmtree(whole)
    else:  # of several moments, and refused
        shutil.rmtree(round.checkpoint)
        whole.rename(round.checkpoint)


def mixed(round: Round) -> None:
    """Spark's part of the checkpoint is older than the join's."""
    if round.run() != "done":
        raise Wrong("it did not finish")
    round.damaged = True
    copy = round.folder / "copy"
    shutil.copytree(round.checkpoint, copy)
    last = max(int(path.name) for path in (round.checkpoint / "offsets").glob("[0-9]*"))
    for log in ("offsets", "commits"):
        for path in (round.checkpoint / log).glob(f"*{last}*"):
            path.unlink()
    round.hit()
    round.feed(1)
    if round.run() == "done":
        shutil.rmtree(copy)
    else:
        shutil.rmtree(round.checkpoint)
        copy.rename(round.checkpoint)


def clock(round: Round) -> None:
    """The clock jumps back and forth while batches run."""
    now, skew = time.time, [0.0]

    def jump(step: str) -> None:
        skew[0] = float(round.rng.choice([0, *SKEWS]))
        round.hit(skew[0] != 0)

    with mock.patch.object(time, "time", lambda: now() + skew[0]):
        said = round.run(Steps(say=jump))
    if said != "done":
        raise Wrong(said)


def full(round: Round) -> None:
    """The disk is full when the driver is to write something."""
    left, put = [round.rng.randint(1, 12)], Store.write

    def fill(store: Store, path: str, data: Any) -> None:
        left[0] -= not path.startswith("leases/")
        if left[0] < 0:
            round.hit()
            raise OSError(errno.ENOSPC, "No space left on device", path)
        put(store, path, data)

    with mock.patch.object(Store, "write", fill):
        said = round.run(exchange="driver")
    if said != "done" and "No space left" not in said:
        raise Wrong(said)


def five(round: Round) -> None:
    """Five queries run in one process, and one of them fails."""
    specs = [round.spec(label=label) for label in ("main", "second", "third", "fourth", "fifth")]
    victim = round.rng.randrange(5)
    steps = [Steps((round.rng.choice(STEPS), 1) if at == victim else None) for at in range(5)]
    queries: dict[int, JoinQuery] = {}

    def begin(at: int) -> None:
        with suppress(Exception):  # what it says follows when it is waited for
            queries[at] = program.begun(round.spark, round.folder, specs[at], steps[at])

    for at in range(5):
        begin(at)
    for at in range(5):
        said = round.heard(program.outcome(lambda at=at: queries[at], steps[at]))  # type: ignore[misc]
        if at != victim and said != "done":
            raise Wrong(f"{specs[at].label}: {said}")
    round.hit(steps[victim].hit)
    if round.run(label=specs[victim].label) != "done":
        raise Wrong(f"{specs[victim].label}: {round.story[-1]}")
    for spec in specs[1:]:
        round.compare(spec)
        program.remove(round.folder, spec)


# -- in processes of their own


def kill(round: Round) -> None:
    """The driver, its JVM and its workers are killed at some moment."""
    with round.process() as process:
        _wait_for(process, "started", "step")
        time.sleep(round.rng.random() * 3)
        round.hit(process.poll() is None)


def pause(round: Round) -> None:
    """The driver stands still until another has taken over; then it wakes up."""
    with round.process() as process:
        _wait_for(process, *(f"step {step}" for step in round.rng.sample(STEPS, 2)))
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            steps = Steps((round.rng.choice(STEPS), 1) if round.rng.random() < 0.5 else None)
            said = round.run(steps)
            asleep = process.poll() is None and psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
            round.hit(asleep and (steps.hit or said == "done"))
        finally:
            with suppress(ProcessLookupError):  # it had ended before it could be stopped
                os.killpg(process.pid, signal.SIGCONT)
        left = list(processes.lines(process))
        round.heard(left[-1] if left else "done")  # what it said before it stood still was read


def neighbour(round: Round) -> None:
    """Two drivers are at work at once."""
    with round.process() as process:
        _wait_for(process, "started")
        said = list[str]()

        def wait(step: str) -> None:  # the other must come while this one is at work
            if not said:
                said.append(round.last(process))

        own = round.run(Steps(say=wait))
        wait("done")
    round.hit("is in use by" in own or "is in use by" in said[0])


def cluster(round: Round) -> None:
    """Executors and Python workers are killed while the join runs on a cluster of processes."""
    with round.process(master=CLUSTER, exchange=round.rng.choice(["local", "shuffle", "ring"])) as process:
        said = ""
        for said in processes.lines(process):
            if said.startswith("step") and round.rng.random() < 0.5:
                round.hit(strike(process.pid, round.rng.choice([DAEMON, EXECUTOR])))
    round.heard(said)


def _wait_for(process: "processes.Program", *sayings: str) -> None:
    for said in processes.lines(process):
        if said.startswith(sayings):
            return


def strike(program: int, word: str) -> bool:
    """Kill a process below another that has a word in its command; return whether there was one.

    [!] PySpark's daemon makes a group and its workers are its children: only their descent tells whose they are.
    """
    for process in _below(program):
        with suppress(psutil.Error):
            if word in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                return True
    return False


def _below(program: int) -> Iterator[psutil.Process]:
    """Yield the processes that descend from one, the youngest first: workers before the daemon that made them."""
    with suppress(psutil.Error):
        yield from reversed(psutil.Process(program).children(recursive=True))


def _copy(checkpoint: Path, copy: Path) -> None:
    """Copy what is there; files may come and go meanwhile."""
    with suppress(shutil.Error):
        shutil.copytree(checkpoint, copy)


def _go_on(round: Round) -> None:
    """Run the join into its second batch from here, or to its end."""
    round.feed(1)
    round.run(Steps((round.rng.choice(STEPS), 2)))


def _restore(round: Round, copy: Path) -> None:
    """Put a copy in the place of the checkpoint."""
    newer = round.batch()
    _swap(round, copy)
    round.hit(round.batch() < newer)


def _swap(round: Round, copy: Path) -> None:
    """Put a copy in the place of the checkpoint, which may be written to meanwhile."""
    round.damaged = True
    aside = round.folder / f"aside-{copy.name}"
    round.checkpoint.rename(aside)
    copy.rename(round.checkpoint)
    shutil.rmtree(aside, ignore_errors=True)


Mishap = Callable[[Round], None]
MISHAPS: dict[str, Mishap] = {
    mishap.__name__: mishap
    for mishap in (
        cut, dying, worker, flip, lose, strays, backup, backup_under_load, backup_while_running, torn_backup, mixed,
        clock, full, five, kill, pause, neighbour, cluster,
    )
}  # fmt: skip
PROCESSES = frozenset({"kill", "pause", "neighbour", "cluster"})
"""Those that start processes, which takes long."""
RENUMBERED = frozenset({"backup", "backup_under_load", "backup_while_running", "torn_backup", "mixed"})
"""Those after which results may come again in other batches, with other ids."""
