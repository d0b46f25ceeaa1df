"""Counting the work of a task: pairs and matches per hop, pairs per node, the cost of Python predicates."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from watersmeet.limits import limits
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.candidates import AccessPath, Seat
from watersmeet.probe.hop_steps import Hop, Step
from watersmeet.probe.predicate_calls import CallCost

Item = TypeVar("Item")
Texts = tuple[str, ...]
"""Conjuncts that are tested at once, as written."""
SAMPLE_EVERY = 16
"""Conjuncts that are tested at once are tested one by one in every so-many-th block."""


@dataclass(slots=True)
class TestCounts:
    """The pairs that came to a test and those that passed, the number of blocks, and the seconds it took."""

    pairs_in: int = 0
    pairs_out: int = 0
    blocks: int = 0
    seconds: float = 0.0

    def add(self, other: "TestCounts") -> None:
        """Add other counts of the same test to these, in place."""
        self.pairs_in += other.pairs_in
        self.pairs_out += other.pairs_out
        self.blocks += other.blocks
        self.seconds += other.seconds


def _counts_by_key() -> "defaultdict[Any, TestCounts]":
    return defaultdict(TestCounts)


@dataclass(slots=True)
class HopWork:
    """The work of probing one stream from certain others.

    Attributes:
        rows_in: Partial results that probed.
        shuffled: Those of them that came from another node.
        pairs: Pairs in time.
        matches: Pairs that passed all tests.
        search: Pairs that access paths proposed, and those that windows and the arrival order admitted.
        tests: Counts of conjuncts that are tested at once.
        single_tests: Counts of each conjunct in samples, where they are tested one by one.
    """

    rows_in: int = 0
    shuffled: int = 0
    pairs: int = 0
    matches: int = 0
    search: TestCounts = field(default_factory=TestCounts)
    tests: dict[Texts, TestCounts] = field(default_factory=_counts_by_key)
    single_tests: dict[str, TestCounts] = field(default_factory=_counts_by_key)

    def add(self, other: "HopWork") -> None:
        """Add the work of another task to this, in place."""
        self.rows_in += other.rows_in
        self.shuffled += other.shuffled
        self.pairs += other.pairs
        self.matches += other.matches
        self.search.add(other.search)
        for texts, counts in other.tests.items():
            self.tests[texts].add(counts)
        for text, counts in other.single_tests.items():
            self.single_tests[text].add(counts)

    def count_scan(self, texts: Texts, scan: TestCounts) -> None:
        """Count a scan, which tests conjuncts on all pairs in time while it searches."""
        # Its seconds have been counted as search.
        self.search.add(TestCounts(scan.pairs_in, scan.pairs_in, seconds=-scan.seconds))
        self.tests[texts].add(scan)

    def is_sampled(self, texts: Texts, pairs: int) -> bool:
        """Tell whether to test conjuncts one by one in the next block, of this many pairs."""
        if len(texts) == 1 or pairs < limits().sampled_pairs:
            return False
        return self.single_tests[texts[0]].blocks * SAMPLE_EVERY <= self.tests[texts].blocks


def texts_of(conjuncts: Iterable[Conjunct]) -> Texts:
    """Return the key by which conjuncts that are tested at once are counted."""
    return tuple(conjunct.text for conjunct in conjuncts)


def time_iterator(values: Iterator[Item], counts: TestCounts, clock: Callable[[], float]) -> Iterator[Item]:
    """Yield the values of an iterator, up to the first None, and add the seconds that it takes to the counts."""
    while True:
        start = clock()
        value = next(values, None)
        counts.seconds += clock() - start
        if value is None:
            return
        yield value


@dataclass(slots=True)
class Work:
    """The work of a task, reported to the driver.

    Attributes:
        hops: The work of each hop.
        paid: The work of tuples of earlier batches that now made the probes they owed.
        node_pairs: Pairs examined, by the node at which they meet.
        chunk_pairs: Pairs examined, by the number of the chunk.
        stray_probes: Partial results that should have stayed on their node but had to probe another node's chunk.
        costs: The cost of each Python predicate.
    """

    hops: dict[Hop, HopWork] = field(default_factory=lambda: defaultdict(HopWork))
    paid: HopWork = field(default_factory=HopWork)
    node_pairs: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    chunk_pairs: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    stray_probes: int = 0
    costs: dict[str, CallCost] = field(default_factory=lambda: defaultdict(CallCost))

    def of(self, step: Step) -> HopWork:
        """Return the counter of a step's work."""
        return self.paid if step.role.old else self.hops[step.hop]

    def count(self, step: Step, chunk: int, seat: Seat, path: AccessPath) -> None:
        """Count the pairs that partial results examine in one chunk, for the step and for the nodes at which they do.

        Args:
            step: The hop.
            chunk: The number of the chunk.
            seat: The node of each partial result; see `Seat`.
            path: The access path by time.
        """
        self.of(step).pairs += path.pairs
        self.chunk_pairs[chunk] += path.pairs
        if isinstance(seat, int):
            self.node_pairs[seat] += path.pairs
            return
        for node, pairs in enumerate(np.bincount(np.maximum(seat, 0), path.count).astype(int).tolist()):
            self.node_pairs[node] += pairs
