"""What intake tasks report: the counts of each stream, the chunks they wrote, what the rows said about constraints."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from watersmeet.metadata.collector import CollectedMetadata
from watersmeet.metadata.constraints import ConstraintId
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
        """Add another task's share."""
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
