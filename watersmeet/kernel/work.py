"""What a task did, counted: pairs and matches per hop, pairs per node, what Python predicates cost."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from watersmeet.kernel.calls import CallCost
from watersmeet.kernel.candidates import Path
from watersmeet.kernel.route import Seat
from watersmeet.kernel.steps import Hop, Step


@dataclass(slots=True)
class HopWork:
    """What probing one stream from certain others did; `pairs` are those in time, `shuffled` rows that came far."""

    rows_in: int = 0
    shuffled: int = 0
    pairs: int = 0
    matches: int = 0

    def add(self, other: "HopWork") -> None:
        """Add what another task did."""
        self.rows_in += other.rows_in
        self.shuffled += other.shuffled
        self.pairs += other.pairs
        self.matches += other.matches


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
