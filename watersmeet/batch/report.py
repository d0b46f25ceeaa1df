"""What a task tells the driver: its work, the results it wrote and the chunks it made."""

from dataclasses import dataclass, field
from typing import Any

from watersmeet.batch.intake import IntakeReport
from watersmeet.batch.plan import Number
from watersmeet.metadata.constraint_state import MarkFile, Promises
from watersmeet.observe.near_misses import Misses, merge_misses
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.predicate_calls import CallCost
from watersmeet.probe.work import HopWork
from watersmeet.spilling.units import Group, Tally
from watersmeet.state.chunks.chunk import Chunk


@dataclass(slots=True)
class TaskReport:
    """What a task that ran hops tells the driver.

    Attributes:
        node: The node that it reports for.
        hops: Work per hop.
        node_pairs: Pairs looked at, by the node at which they meet.
        costs: What each Python predicate cost.
        strays: See Work.
        paid: What earlier tuples did that paid what they owed.
        missed: Near-misses, by hop and by the text of the conjunct that refused them.
        groups: Pairs looked at in chunks of each group, and the results that their rows are part of.
        paid_rows: Results written that earlier tuples had owed.
        credits: Final results, by the codes of the groups of inner joins that they came from; only at the root.
        crossings: Of results of inner joins that came in, a sample: how many came from a group, by its code, and went
            to a partition of this join; only from one task.
        rows: Results written.
        files: Where they are.
        pending: Where combinations are that Spark has yet to decide.
        intakes: What the intake tasks reported; only from one task.
        chunks: The batch's fresh chunks; only from that task.
        merged: Chunks this task made, each with the ids of those it replaces.
        purged: Chunks with rows found dead, each with the file that names them.
        promises: What the streams' promises have come to; only from one task, as what follows:
        sides: Files to be put out: (what they are, stream, file).
        told: How many rows of each kind those are.
        handed: Punctuations for an outer join, by what they are a promise of.
        samples: Some of them.
        seconds: CPU seconds used.
        shipping: Those of them that it took to send rows to other tasks and to receive them.
        purging: Those of them that it took to look for dead rows.
        tasks: How many tasks did it, one after the other; none in the driver.
    """

    node: int
    hops: dict[Hop, HopWork] = field(default_factory=dict)
    node_pairs: dict[int, int] = field(default_factory=dict)
    costs: dict[str, CallCost] = field(default_factory=dict)
    strays: int = 0
    paid: HopWork = field(default_factory=HopWork)
    missed: dict[Hop, Misses] = field(default_factory=dict)
    groups: dict[Group, Tally] = field(default_factory=dict)
    paid_rows: int = 0
    credits: dict[int, int] = field(default_factory=dict)
    crossings: dict[tuple[int, int], int] = field(default_factory=dict)
    rows: int = 0
    files: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    intakes: list[IntakeReport] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    merged: list[tuple[Chunk, tuple[str, ...]]] = field(default_factory=list)
    purged: list[Chunk] = field(default_factory=list)
    promises: Promises = ()
    sides: list[tuple[str, int, str]] = field(default_factory=list)
    told: dict[str, int] = field(default_factory=dict)
    handed: list[tuple[Number, MarkFile]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    shipping: float = 0.0
    purging: float = 0.0
    tasks: int = 0

    def add(self, earlier: "TaskReport") -> None:
        """Add what the tasks of earlier hops did on the same node."""
        for hop, work in earlier.hops.items():
            self.hops.setdefault(hop, HopWork()).add(work)
        for hop, misses in earlier.missed.items():
            self.missed[hop] = merge_misses([self.missed.get(hop, {}), misses])
        for node, pairs in earlier.node_pairs.items():
            self.node_pairs[node] = self.node_pairs.get(node, 0) + pairs
        for name, cost in earlier.costs.items():
            self.costs[name] = cost.plus(self.costs.get(name))
        for group, tally in earlier.groups.items():
            self.groups[group] = self.groups.get(group, Tally()).plus(tally)
        for code, count in earlier.credits.items():
            self.credits[code] = self.credits.get(code, 0) + count
        for crossing, count in earlier.crossings.items():
            self.crossings[crossing] = self.crossings.get(crossing, 0) + count
        self.paid.add(earlier.paid)
        self.paid_rows += earlier.paid_rows
        self.strays += earlier.strays
        self.seconds += earlier.seconds
        self.shipping += earlier.shipping
        self.tasks += earlier.tasks
