"""A round of chaos: one join, started again and again, with mishaps between and during its runs."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.chaos import program
from tests.chaos.joins import STRATEGIES, subject
from tests.chaos.program import SINKS, Spec, Steps
from tests.spark import processes
from tests.spark.harness import EXCHANGES, write

DIED = "a Python worker or an executor died"
STEPS = ("job", "reports", "sink", "manifest")
ADVICE = re.compile(r"\brestore|start a new checkpoint|removed or replaced", re.I)
"""What a sentence says only of files that are damaged or gone."""
SPILLS = (None, None, (1, "random"), (2000, "local"), (1, "synchronized"))
"""What may be hot, and what is put off first; no start need do as the one before it."""


class Wrong(Exception):
    """Neither exact nor refused or stopped in a sentence."""


@dataclass
class Tally:
    """What a kind of mishap came to.

    Attributes:
        rounds: In how many rounds it was tried.
        hits: How often it really hit something: a process, a byte that was read, a write.
        ends: How its starts ended: exact, refused or stopped.
    """

    rounds: int = 0
    hits: int = 0
    ends: Counter[str] = field(default_factory=Counter)


class Round:
    """One join, its folder, and what happened to it.

    Args:
        spark: The session for starts in this process.
        folder: Empty.
        seed: Decides everything that isn't left to the moment.
        tallies: Where mishaps are counted.

    Attributes:
        damaged: Whether files of the checkpoint were changed, removed or restored: a sentence may then say so.
    """

    def __init__(self, spark: SparkSession, folder: Path, seed: int, tallies: dict[str, Tally]) -> None:
        self.spark, self.folder, self.seed, self.tallies = spark, folder, seed, tallies
        self.rng = random.Random(seed)
        self.subject = subject(seed)
        self.sink = self.rng.choice(SINKS)
        self.final = self.rng.random() < 0.3
        self.parts = self.sink != "upsert" and self.rng.random() < 0.3
        self.late = self.rng.random() < 0.5
        self.damaged = False
        self.story: list[str] = []
        self.results = 0
        self._fed = 0
        self._tally = Tally()

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint-main"

    @property
    def store(self) -> Path:
        return self.checkpoint / "watersmeet"

    def play(self, mishaps: "Sequence[Callable[[Round], None]]") -> None:
        """Let mishaps happen one after the other, then let the join finish, and compare."""
        self.feed(2)
        self.cut(2)
        if DIED in self.story[-1]:  # workers that an earlier round killed last
            self.cut(2)
        if self.story[-1].startswith("  refused"):
            raise Wrong("its first start was refused")
        for mishap in mishaps:
            self.story.append(mishap.__name__)
            self._tally = self.tallies.setdefault(mishap.__name__, Tally())
            self._tally.rounds += 1
            mishap(self)
            self.feed(1)
        self._tally = Tally()
        self.feed(len(self.subject.batches))
        said = self.run(final=self.final)
        if DIED in said:  # where a sink can't be run again, that is a sentence, and the next start goes on
            said = self.run(final=self.final)
        if said != "done":
            raise Wrong(f"it did not finish, but said: {said}")
        self.compare(replace(self.spec(), final=self.final))

    def compare(self, spec: Spec) -> None:
        """Check that an output holds what the oracle says of the batches that Spark really made."""
        batches = processes.batches(self.folder / f"checkpoint-{spec.label}", self._written)
        found, (wanted, late) = program.written(self.folder, spec), self.subject.results(batches, spec.final)
        self.results += wanted.total()
        if found != wanted:
            lost, more = wanted - found, found - wanted
            raise Wrong(f"{spec.label}: {lost.total()} of {wanted.total()} results lost, {more.total()} too many")
        if spec.late and late is not None and (side := program.late(self.folder, spec)) != late:
            gone, doubled = (late - side).total(), (side - late).total()
            raise Wrong(f"{spec.label}: {gone} of {late.total()} late rows lost, {doubled} too many")

    @property
    def _written(self) -> Any:
        return self.subject.batches[: self._fed]

    def feed(self, batches: int) -> None:
        """Write some more input."""
        more = self.subject.batches[self._fed : self._fed + batches]
        if more:
            write(self.folder / "in", more, self.subject.schema)
        self._fed += len(more)

    def hit(self, times: int = 1) -> None:
        """Count that the mishap under way really hit something."""
        self._tally.hits += times

    # -- starts

    def spec(self, **changes: Any) -> Spec:
        """Return how the next start runs: like none before it, as a rule."""
        rng = self.rng
        spill = rng.choice(SPILLS) if self.subject.spills else None
        order = rng.choice(["given", "selectivity"])
        thrown = Spec(self.seed, self.sink, rng.randrange(len(STRATEGIES)), rng.choice(EXCHANGES), order, spill)
        return replace(thrown, parts=self.parts, late=self.late, **changes)

    def run(self, steps: Steps | None = None, **changes: Any) -> str:
        """Run the join to its end in this process; return done, or refused or stopped and why."""
        steps, spec = steps or Steps(), self.spec(**changes)
        return self.heard(program.outcome(lambda: program.begun(self.spark, self.folder, spec, steps), steps))

    def cut(self, batches: int = 1) -> Steps:
        """Run the join to a step of one of the batches to come, where it ends as by a crash."""
        steps = Steps((self.rng.choice(STEPS), self.rng.randint(1, batches)))
        self.run(steps)
        return steps

    @contextmanager
    def process(self, **changes: Any) -> "Iterator[processes.Program]":
        """Start the join as a process of its own."""
        master = {"master": changes.pop("master")} if "master" in changes else {}
        spec = asdict(self.spec(**changes)) | master
        with processes.program(self.folder, "program", package="tests.chaos", **spec) as process:
            yield process

    def heard(self, said: str) -> str:
        """Note how a start ended; a raw error is wrong, and so is advice against damage where there is none."""
        self.story.append(f"  {said}")
        if said.startswith(("raw", "started", "step")) or not said:
            raise Wrong(said or "it said nothing")
        if said != "done" and not self.damaged and ADVICE.search(said):
            raise Wrong(f"nothing was damaged or restored, but it said: {said}")
        end = said.split()[0]
        self._tally.ends["exact" if end == "done" else end] += 1
        return said

    def last(self, process: "processes.Program") -> str:
        """Wait for a process to end, and note how."""
        said = ""
        for line in processes.lines(process):
            said = line
        return self.heard(said)

    def batch(self) -> int:
        """Return the last batch that Spark has finished."""
        return max((int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*")), default=-1)
