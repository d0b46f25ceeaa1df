"""What tasks report to the driver: those of the intake what came in, those of nodes what they did."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from watersmeet.metadata.collector import CollectedMetadata
from watersmeet.metadata.constraints import ConstraintId
from watersmeet.metadata.plan import MetadataReport
from watersmeet.observe.near_misses import Misses, merge_misses
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.predicate_calls import CallCost
from watersmeet.probe.work import HopWork
from watersmeet.spilling.plan import SpillingReport
from watersmeet.spilling.units import ClosedPartition
from watersmeet.state.chunks.chunk import Chunk

FRESH = 1 << 36
"""New chunks are numbered from here; numbers below are the positions of earlier chunks in the plan."""
ATTEMPTS, PER_ATTEMPT = 1 << 16, 1 << 20
"""How many task attempts of a batch have numbers of their own, and how many chunks each may number."""


@dataclass(slots=True)
class StreamIntake:
    """What became of a task's share of one stream's rows."""

    rows: int = 0
    accepted: int = 0
    late: int = 0
    rejected: int = 0
    denied: int = 0
    punctuations: int = 0
    earliest: int | None = None
    latest: int | None = None
    furthest: int | None = None
    """The latest event time that was too far ahead."""
    too_far: int = 0
    """How many rows were rejected for that; they count as rejected."""
    delays: Counter[int] = field(default_factory=Counter)
    """By delay, in microseconds: how many of the late rows it would have kept that a shorter one would not."""

    def add(self, other: "StreamIntake") -> None:
        """Add the counts of another task's share to these, in place."""
        self.rows += other.rows
        self.accepted += other.accepted
        self.late += other.late
        self.rejected += other.rejected
        self.denied += other.denied
        self.punctuations += other.punctuations
        self.earliest = min((t for t in (self.earliest, other.earliest) if t is not None), default=None)
        self.latest = max((t for t in (self.latest, other.latest) if t is not None), default=None)
        self.furthest = max((t for t in (self.furthest, other.furthest) if t is not None), default=None)
        self.too_far += other.too_far
        self.delays.update(other.delays)


@dataclass(slots=True)
class IntakeReport:
    """What an intake task reports to all tasks downstream; it travels with the data."""

    streams: list[StreamIntake]
    chunks: list[Chunk] = field(default_factory=list)
    attempt: int = 0
    """The task attempt's number, unique in the application; the chunks' numbers derive from it."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    files: list[tuple[str, int, str]] = field(default_factory=list)
    """Side outputs as (kind, stream, file); the kind is late, rejected or denied."""
    closed: set[ClosedPartition] = field(default_factory=set)
    """The buckets whose values a punctuation has closed."""
    marks: dict[ConstraintId, CollectedMetadata] = field(default_factory=dict)
    """What the rows contribute to constraints."""
    reads: list[tuple[float, int]] = field(default_factory=list)
    """For each block of input, when it was read (seconds since the epoch) and its number of rows."""

    @property
    def numbered(self) -> Iterator[tuple[int, Chunk]]:
        """The chunks with their numbers in this batch's plan."""
        return enumerate(self.chunks, FRESH + self.attempt % ATTEMPTS * PER_ATTEMPT)


def total(reports: Iterable[IntakeReport], streams: int) -> list[StreamIntake]:
    """Return the counts of all tasks together, per stream."""
    totals = [StreamIntake() for _ in range(streams)]
    for report in reports:
        for at, counts in enumerate(report.streams):
            totals[at].add(counts)
    return totals


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
        """Add the work of another task to this, in place."""
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
        """Add the work and the owed probes of the tasks of earlier hops on the same node."""
        self.work.add(earlier.work)
        self.spilling.add(earlier.spilling)
