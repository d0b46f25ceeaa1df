"""What a task did, counted: pairs and matches per hop, pairs per node, what Python predicates cost."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from watersmeet.limits import limits
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.candidates import Path
from watersmeet.probe.hop_steps import Hop, Step
from watersmeet.probe.predicate_calls import CallCost
from watersmeet.probe.routing import Seat

Found = TypeVar("Found")
Texts = tuple[str, ...]
"""Conjuncts that are tested at once, as they are written."""
SAMPLED = 16
"""Of so many blocks, conjuncts that are tested at once are tested one by one in the first."""


@dataclass(slots=True)
class Tested:
    """What a test let through: how many pairs came and passed, in how many blocks, and how long it took."""

    came: int = 0
    passed: int = 0
    blocks: int = 0
    seconds: float = 0.0

    def add(self, other: "Tested") -> None:
        """Add what it did elsewhere."""
        self.came += other.came
        self.passed += other.passed
        self.blocks += other.blocks
        self.seconds += other.seconds


def _tested() -> "defaultdict[Any, Tested]":
    return defaultdict(Tested)


@dataclass(slots=True)
class HopWork:
    """What probing one stream from certain others did.

    Attributes:
        rows_in: Partial results that probed.
        shuffled: Those of them that came from another node.
        pairs: Pairs in time.
        matches: Pairs that passed all tests.
        search: Pairs that access paths proposed and those that windows and the arrival order let pass.
        tests: What conjuncts let through that are tested at once.
        alone: Of these, what each did where a sample was tested one by one.
    """

    rows_in: int = 0
    shuffled: int = 0
    pairs: int = 0
    matches: int = 0
    search: Tested = field(default_factory=Tested)
    tests: dict[Texts, Tested] = field(default_factory=_tested)
    alone: dict[str, Tested] = field(default_factory=_tested)

    def add(self, other: "HopWork") -> None:
        """Add what another task did."""
        self.rows_in += other.rows_in
        self.shuffled += other.shuffled
        self.pairs += other.pairs
        self.matches += other.matches
        self.search.add(other.search)
        for texts, tested in other.tests.items():
            self.tests[texts].add(tested)
        for text, tested in other.alone.items():
            self.alone[text].add(tested)

    def scanned(self, texts: Texts, scan: Tested) -> None:
        """Note what a scan did, which tests conjuncts while it looks for pairs: those in time have come to them."""
        self.search.add(Tested(scan.came, scan.came, seconds=-scan.seconds))  # it was counted as time to find them
        self.tests[texts].add(scan)

    def is_sampled(self, texts: Texts, pairs: int) -> bool:
        """Tell whether conjuncts that are tested at once are tested one by one in the next block, of so many pairs."""
        if len(texts) == 1 or pairs < limits().sampled_pairs:
            return False
        return self.alone[texts[0]].blocks * SAMPLED <= self.tests[texts].blocks


def texts_of(conjuncts: Iterable[Conjunct]) -> Texts:
    """Return conjuncts as what they let through is counted."""
    return tuple(conjunct.text for conjunct in conjuncts)


def timed(found: Iterator[Found], tested: Tested, clock: Callable[[], float]) -> Iterator[Found]:
    """Yield what is found, and note how long it took."""
    while True:
        started = clock()
        one = next(found, None)
        tested.seconds += clock() - started
        if one is None:
            return
        yield one


@dataclass(slots=True)
class Work:
    """What a task did, reported to the driver.

    Attributes:
        hops: By the streams joined and the stream probed.
        paid: What tuples of earlier batches did that now asked what they owed.
        node_pairs: Pairs looked at, by the node at which they meet.
        chunk_pairs: Pairs looked at, by the number of the chunk.
        costs: What each Python predicate cost.
        strays: Partial results that were to stay where they are and yet had to look at another node's chunk.
    """

    hops: dict[Hop, HopWork] = field(default_factory=lambda: defaultdict(HopWork))
    paid: HopWork = field(default_factory=HopWork)
    node_pairs: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    chunk_pairs: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    strays: int = 0
    costs: dict[str, CallCost] = field(default_factory=lambda: defaultdict(CallCost))

    def of(self, step: Step) -> HopWork:
        """Return where the work of a step is counted."""
        return self.paid if step.role.old else self.hops[step.hop]

    def count(self, step: Step, chunk: int, seat: Seat, path: Path) -> None:
        """Note the pairs that partial results look at in one chunk, for the nodes at which they do."""
        self.of(step).pairs += path.pairs
        self.chunk_pairs[chunk] += path.pairs
        if isinstance(seat, int):
            self.node_pairs[seat] += path.pairs
            return
        for node, tested in enumerate(np.bincount(np.maximum(seat, 0), path.count).astype(int).tolist()):
            self.node_pairs[node] += tested
