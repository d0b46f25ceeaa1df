"""The shapes of a store's documents, checked when they are read (`shape.py`).

A class named `...Document` is a whole file, an `...Entry` a part of one. Only fields that are read are listed.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NotRequired, TypedDict

from watersmeet.metadata.constraints import MarkFile
from watersmeet.spilling.units import Group, OwingBatch, Tally, Unit
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.manifest.view import HopView, StoredNotes, Usage
from watersmeet.state.store.shape import Rule


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).utcoffset() is not None
    except (ValueError, OverflowError):
        return False


Name = Annotated[str, Rule(re.compile(r"[0-9a-f]{8}").fullmatch, "8 hexadecimal digits")]
"""A checkpoint's name: part of the names of files."""
Folder = Annotated[str, Rule(lambda path: "\0" not in path, "a path")]
Count = Annotated[int, Rule(lambda number: number >= 0, "a number that is not negative")]
Finite = Annotated[float, Rule(math.isfinite, "a finite number")]
Number = Annotated[float, Rule(lambda number: math.isfinite(number) and number >= 0, "a number that is not negative")]
Moment = Annotated[str, Rule(_is_moment, "a time such as 2026-01-31T12:00:00Z")]
Position = Annotated[str, Rule(re.compile(r"\d{1,6}").fullmatch, "a stream's position")]
Notes = Mapping[str, Any]
"""Notes of strategies and the like, which check them themselves."""


class DescriptionEntry(TypedDict, total=False):
    """The description of a join; its other parts have names of their own."""

    streams: list[str]
    where: str


class ClaimDocument(TypedDict):
    """`query.json`: the query that a store belongs to."""

    name: Name
    query: DescriptionEntry
    at: Folder
    output: str | None
    layout: NotRequired[str | None]
    origins: NotRequired[list[Folder]]


class LeaseDocument(TypedDict):
    """A lease: the process that holds it, and the folder that it is for."""

    host: str | None
    name: str
    pid: Count
    born: str | None
    token: str
    at: Folder


# -- progress


class DurationsEntry(TypedDict):
    """How long a batch took, in milliseconds; negative if the clock was set back."""

    plan: NotRequired[Finite]
    job: NotRequired[Finite]
    commit: NotRequired[Finite]
    total: Finite


class LatencyEntry(TypedDict, total=False):
    """The age of results, by clocks that may differ."""

    p50: Finite
    p95: Finite
    p99: Finite


class SampleEntry(TypedDict):
    """A row that was turned away, or an orphan."""

    kind: str
    stream: str
    reason: str
    row: Mapping[str, str | None]


class StreamEntry(TypedDict, total=False):
    """What became of a stream's rows."""

    rows: Count
    late: Count
    rejected: Count
    denied: Count
    stateRows: Count
    latest: int | None
    watermark: int | None
    neededDelayMs: Mapping[str, Finite]


class HopEntry(TypedDict):
    """The work of a hop."""

    rowsIn: Count
    rowsShuffled: Count
    pairs: Count
    matches: Count


TestEntry = TypedDict(
    "TestEntry",
    {
        "name": str,
        "kind": str,
        "in": Count,
        "out": Count,
        "ms": Number,
        "missed": NotRequired[list[Mapping[str, str | Mapping[str, str | None]]]],
    },
)
FunnelEntry = TypedDict(
    "FunnelEntry", {"stream": str, "from": list[str], "inTime": Count, "into": Count, "tests": list[TestEntry]}
)


class CostEntry(TypedDict):
    """What a predicate cost."""

    pairs: Count
    matches: Count
    ms: Number


class NodeEntry(TypedDict):
    """What a node did."""

    rows: Count
    bytes: Count
    cpuMs: Number
    pairs: Count
    rowsIn: Count


class MovesEntry(TypedDict, total=False):
    """Chunks that changed owners before a batch."""

    rows: Count
    why: str


class DecisionEntry(TypedDict):
    """A decision of a strategy."""

    before: str
    after: str
    why: str
    made: NotRequired[bool]


class PlacementEntry(TypedDict, total=False):
    """What a strategy reports about a batch, as far as it is shown."""

    moved: MovesEntry
    decisions: list[DecisionEntry]


class OverloadEntry(TypedDict):
    """That batches take too long."""

    says: str


class UnitsEntry(TypedDict):
    """The units of the state."""

    hot: Count
    cold: Count


class SpillDecisionEntry(TypedDict, total=False):
    """A decision on spilling."""

    why: str
    routine: bool


class SpillingEntry(TypedDict):
    """What is spilled, owed and paid."""

    hotBytes: Number
    spilledBytes: Number
    owedProbes: Number
    owedResults: Number
    oldestOwed: NotRequired[Number | None]
    paidResults: Number
    units: UnitsEntry
    decision: NotRequired[SpillDecisionEntry | None]
    overload: NotRequired[str]


class ProgressEntry(TypedDict, total=False):
    """What a batch did, as far as it is shown; the reference lists all."""

    batchId: Count
    timestamp: Moment
    round: bool
    final: bool
    triggerMs: Number | None
    durationMs: DurationsEntry
    name: str | None
    lateWarning: Number
    latencyMs: LatencyEntry | None
    strategy: str
    exchange: str
    process: str
    warnings: list[str]
    inputRows: Mapping[str, Count]
    lateRows: Count
    rejectedRows: Count
    deniedRows: Count
    samples: list[SampleEntry]
    streams: Mapping[str, StreamEntry]
    watermark: int | None
    settled: int | None
    heldBackBy: str | None
    idle: list[str]
    outputRows: Count
    stateRows: Count
    stateBytes: Count
    stateChunks: Count
    hops: list[HopEntry]
    funnel: list[FunnelEntry]
    predicates: Mapping[str, CostEntry]
    nodes: list[NodeEntry]
    placement: PlacementEntry
    changes: Mapping[str, tuple[Any, Any]]
    overload: OverloadEntry
    spilling: SpillingEntry
    inner: "Mapping[str, ProgressEntry]"


ProgressBlock = list[ProgressEntry]
"""A file of recorded progress."""


# -- manifests


class LedgerEntry(TypedDict):
    """What is owed; see `units.Ledger`."""

    units: list[Unit]
    taken: list[tuple[int, OwingBatch]]
    made: Count
    worth: list[tuple[Group, Tally]]
    fed: list[tuple[str, int, int, int]]
    closed: list[tuple[int, int]]
    notes: Notes


class StatisticsEntry(TypedDict):
    """Measurements and notes; see `view.RunningStatistics`."""

    strategy: StoredNotes
    ordering: StoredNotes
    usage: list[Usage]
    hops: list[HopView]
    shipping: tuple[float, float] | None
    hop_seconds: float | None
    tasks: Count
    overdue: Count
    warned: list[str]
    clock: int | None


ConstraintEntry = tuple[list[MarkFile], list[list[MarkFile]], int | str | None, int, list[MarkFile]]
StreamStateEntry = tuple[int | None, Count, bool, int | None, Count, int, float]
"""The state of a stream after a batch; see `manifest.StreamState`."""


class JoinStateEntry(TypedDict):
    """One join's part of a manifest."""

    batch: int
    streams: list[StreamStateEntry]
    chunks: NotRequired[list[Chunk]]
    added: NotRequired[list[Chunk]]
    removed: NotRequired[list[str]]
    moved: NotRequired[Mapping[str, list[int]]]
    watermark: int | None
    unpurged: Count
    ledger: LedgerEntry
    settled: int | None
    offered: int
    final: NotRequired[bool]
    promises: list[list[ConstraintEntry]]
    learned: StatisticsEntry
    progress: ProgressEntry
    inner: "Mapping[Position, JoinStateEntry]"


class ManifestDocument(JoinStateEntry):
    """A manifest: the entry of the outermost join, and what holds for all joins."""

    input: str
    follows: str
    deliveries: list[tuple[str, tuple[str, str], list[tuple[str, str]]]]


# -- rounds


class PaymentEntry(TypedDict):
    """What a join pays in a round."""

    pay: list[tuple[int, int]]
    back: list[int]


class RoundDocument(TypedDict):
    """What a round is about to do."""

    batch: int
    choices: Mapping[str, PaymentEntry]
    final: NotRequired[bool]
