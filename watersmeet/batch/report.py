"""What a task reports to the driver: its work, its results and its changes to the state; one record per feature."""

from dataclasses import dataclass, field

from watersmeet.batch.intake_report import IntakeReport
from watersmeet.metadata.plan import MetadataReport
from watersmeet.observe.near_misses import Misses, merge_misses
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.predicate_calls import CallCost
from watersmeet.probe.work import HopWork
from watersmeet.spilling.plan import SpillingReport
from watersmeet.state.chunks.chunk import Chunk


@dataclass(slots=True)
class WorkReport:
    """The work of a task.

    Attributes:
        hops: Work of each hop.
        node_pairs: Pairs probed, by the node at which they meet.
        costs: What each Python predicate cost.
        stray_probes: Partial results that should have stayed on their node but had to probe another node's chunk.
        near_misses: Near misses by hop, and by the text of the conjunct that rejected them.
        seconds: CPU seconds used.
        shipping: The part of them spent on sending rows to other tasks and receiving them.
        tasks: How many tasks shared the work, one after the other; 0 in the driver's process.
        messages: How many messages the node sent to its neighbour, in a ring.
        sent_bytes: Their size.
    """

    hops: dict[Hop, HopWork] = field(default_factory=dict)
    node_pairs: dict[int, int] = field(default_factory=dict)
    costs: dict[str, CallCost] = field(default_factory=dict)
    stray_probes: int = 0
    near_misses: dict[Hop, Misses] = field(default_factory=dict)
    seconds: float = 0.0
    shipping: float = 0.0
    tasks: int = 0
    messages: int = 0
    sent_bytes: int = 0

    def add(self, earlier: "WorkReport") -> None:
        """Add the work of another task."""
        for hop, work in earlier.hops.items():
            self.hops.setdefault(hop, HopWork()).add(work)
        for hop, misses in earlier.near_misses.items():
            self.near_misses[hop] = merge_misses([self.near_misses.get(hop, {}), misses])
        for node, pairs in earlier.node_pairs.items():
            self.node_pairs[node] = self.node_pairs.get(node, 0) + pairs
        for name, cost in earlier.costs.items():
            self.costs[name] = cost.plus(self.costs.get(name))
        self.stray_probes += earlier.stray_probes
        self.seconds += earlier.seconds
        self.shipping += earlier.shipping
        self.messages += earlier.messages
        self.sent_bytes += earlier.sent_bytes
        self.tasks += earlier.tasks


@dataclass(slots=True)
class ResultFiles:
    """The files of the store that hold a task's results.

    Attributes:
        rows: How many results were written.
        files: The files of results.
        pending: The files of combinations that Spark must decide.
    """

    rows: int = 0
    files: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)


@dataclass(slots=True)
class StateReport:
    """The chunks that a task wrote or changed.

    Attributes:
        fresh: The chunks of the batch's new tuples; reported by one task for all.
        merged: Chunks that the task merged, each with the ids of those it replaces.
        purged: Chunks with dead rows; each names the file that lists them.
        purging: CPU seconds spent on looking for dead rows.
    """

    fresh: list[Chunk] = field(default_factory=list)
    merged: list[tuple[Chunk, tuple[str, ...]]] = field(default_factory=list)
    purged: list[Chunk] = field(default_factory=list)
    purging: float = 0.0

    @property
    def chunks(self) -> list[Chunk]:
        """All of them."""
        return [*self.fresh, *self.purged, *(chunk for chunk, _ in self.merged)]


@dataclass(slots=True)
class TaskReport:
    """What a task that ran hops reports for a node.

    Attributes:
        node: The node.
        work: What it did.
        results: What it wrote for the sink.
        state: What it did to the state.
        metadata: How it changed the state of constraints.
        spilling: The owed probes that it made, and its counts by group.
        intakes: The reports of all intake tasks; one task passes them on.
    """

    node: int
    work: WorkReport = field(default_factory=WorkReport)
    results: ResultFiles = field(default_factory=ResultFiles)
    state: StateReport = field(default_factory=StateReport)
    metadata: MetadataReport = field(default_factory=MetadataReport)
    spilling: SpillingReport = field(default_factory=SpillingReport)
    intakes: list[IntakeReport] = field(default_factory=list)

    def add(self, earlier: "TaskReport") -> None:
        """Add the work of the tasks of earlier hops on the same node."""
        self.work.add(earlier.work)
        self.spilling.add(earlier.spilling)
