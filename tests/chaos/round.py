"""A round of chaos: one join, run again and again as a program of its own, with mishaps between and during its runs."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.spark import processes
from tests.spark.crashing_join import CASE
from tests.spark.harness import EXCHANGES, write

STEPS = ("job", "reports", "sink", "manifest")
NODES = (3, 1, 0, -1, -2)
"""As `crashing_join` numbers strategies."""
SPILLS = (None, None, [1, "random"], [2000, "local"], [1, "synchronized"])
"""What may be hot, and what is put off first; no start need do as the one before it."""


class Wrong(Exception):
    """Neither exact nor refused in a sentence."""


class Round:
    """One join, its folder, and what happened to it.

    Args:
        folder: Empty.
        rng: Decides everything that isn't left to the moment.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.story: list[str] = []
        self.counts: Counter[str] = Counter()
        self._written = 0
        self.format = rng.choice(["parquet", "parquet", "json", "csv"])

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.format}"

    @property
    def store(self) -> Path:
        return self.checkpoint / "watersmeet"

    def play(self, mishaps: "Sequence[Callable[[Round], None]]") -> None:
        """Let mishaps happen one after the other, then let the join finish, and compare."""
        self.feed(2)
        self.run(die=[self.rng.choice(STEPS), self.rng.randint(1, 2)])
        for mishap in mishaps:
            name = mishap.__name__
            self.story.append(name)
            mishap(self)
            self.counts[name] += 1
            self.feed(1)
        self.feed(len(CASE.batches))
        said = self.run()
        if said != "done":
            raise Wrong(f"it did not finish, but said: {said}")
        found, wanted = processes.written(self.folder, self.format), processes.wanted(self.checkpoint)
        if found != wanted:
            raise Wrong(f"{(wanted - found).total()} results lost, {(found - wanted).total()} too many")

    def feed(self, batches: int) -> None:
        """Write some more input."""
        more = CASE.batches[self._written : self._written + batches]
        if more:
            write(self.folder / "in", more)
        self._written += len(more)

    def spec(self, **changes: Any) -> dict[str, Any]:
        """Return how the next program runs: like none before it, as a rule."""
        usual = {"nodes": self.rng.choice(NODES), "exchange": self.rng.choice(EXCHANGES), "formats": [self.format]}
        return {**usual, "expires": 2.0, "spill": self.rng.choice(SPILLS), **changes}

    def run(self, **changes: Any) -> str:
        """Run the program to its end and return the last it said: done, refused and why, or the step it died at."""
        said = processes.run(self.folder, **self.spec(**changes))
        return self.heard(said[-1] if said else "nothing")

    def heard(self, said: str) -> str:
        """Note what a program said last; a raw error is wrong."""
        self.story.append(f"  {said}")
        if said.startswith("raw") or said == "nothing":
            raise Wrong(said)
        self.counts[said.split()[0]] += 1
        return said

    def refused(self, said: str, *sentences: str) -> None:
        """Check that a program was refused in one of these sentences."""
        if not any(sentence in said for sentence in sentences):
            raise Wrong(f"it should have been refused, but said: {said}")
