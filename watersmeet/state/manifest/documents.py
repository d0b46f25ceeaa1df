"""What the documents of a store consist of, as they are read back; see `shape.py`."""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NotRequired, TypedDict

from watersmeet.metadata.constraint_state import MarkFile
from watersmeet.spilling.units import Group, Taken, Tally, Unit
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.manifest.notes import Kept
from watersmeet.state.manifest.view import HopView, Usage
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
Part = Mapping[str, Any]
"""What strategies and the like keep, and read back themselves."""


class Join(TypedDict, total=False):
    """The description of a join; beside these, each part under a name of its own."""

    streams: list[str]
    where: str


class Claim(TypedDict):
    """`query.json`: which query a store belongs to."""

    name: Name
    query: Join
    at: Folder
    output: str | None
    layout: NotRequired[str | None]
    origins: NotRequired[list[Folder]]


class Holder(TypedDict):
    """A lease: who has it, and the folder that it took."""

    host: str | None
    name: str
    pid: Count
    born: str | None
    token: str
    at: Folder


# -- progress


class Took(TypedDict):
    """How long a batch took, in milliseconds; a clock that is set back makes that less than nothing."""

    plan: NotRequired[Finite]
    job: NotRequired[Finite]
    commit: NotRequired[Finite]
    total: Finite


class Latency(TypedDict, total=False):
    """How old results were, by clocks that may differ."""

    p50: Finite
    p95: Finite
    p99: Finite


class Sample(TypedDict):
    """A row that was not taken, or an orphan."""

    kind: str
    stream: str
    reason: str
    row: Mapping[str, str | None]


class Stream(TypedDict, total=False):
    """What became of a stream's rows."""

    rows: Count
    late: Count
    rejected: Count
    denied: Count
    stateRows: Count
    latest: int | None
    watermark: int | None
    neededDelayMs: Mapping[str, Finite]


class Hop(TypedDict):
    """The work of a hop."""

    rowsIn: Count
    rowsShuffled: Count
    pairs: Count
    matches: Count


Test = TypedDict(
    "Test",
    {
        "name": str,
        "kind": str,
        "in": Count,
        "out": Count,
        "ms": Number,
        "missed": NotRequired[list[Mapping[str, str | Mapping[str, str | None]]]],
    },
)
Funnel = TypedDict("Funnel", {"stream": str, "from": list[str], "inTime": Count, "into": Count, "tests": list[Test]})


class Cost(TypedDict):
    """What a predicate cost."""

    pairs: Count
    matches: Count
    ms: Number


class Node(TypedDict):
    """What a node did."""

    rows: Count
    bytes: Count
    cpuMs: Number
    pairs: Count
    rowsIn: Count


class Moved(TypedDict, total=False):
    """What moved before a batch."""

    rows: Count
    why: str


class Decision(TypedDict):
    """What a strategy decided."""

    before: str
    after: str
    why: str
    made: NotRequired[bool]


class Placed(TypedDict, total=False):
    """What a strategy says of a batch, as far as it is shown."""

    moved: Moved
    decisions: list[Decision]


class Overload(TypedDict):
    """That batches take too long."""

    says: str


class Units(TypedDict):
    """The units of the state."""

    hot: Count
    cold: Count


class Spilled(TypedDict, total=False):
    """What a decision on spilling was."""

    why: str
    routine: bool


class Spilling(TypedDict):
    """What is put off."""

    hotBytes: Number
    spilledBytes: Number
    owedProbes: Number
    owedResults: Number
    oldestOwed: NotRequired[Number | None]
    paidResults: Number
    units: Units
    decision: NotRequired[Spilled | None]
    overload: NotRequired[str]


class Progress(TypedDict, total=False):
    """What a batch did, as far as it is shown; the reference lists all."""

    batchId: Count
    timestamp: Moment
    round: bool
    final: bool
    triggerMs: Number | None
    durationMs: Took
    name: str | None
    lateWarning: Number
    latencyMs: Latency | None
    strategy: str
    exchange: str
    process: str
    warnings: list[str]
    inputRows: Mapping[str, Count]
    lateRows: Count
    rejectedRows: Count
    deniedRows: Count
    samples: list[Sample]
    streams: Mapping[str, Stream]
    watermark: int | None
    settled: int | None
    heldBackBy: str | None
    idle: list[str]
    outputRows: Count
    stateRows: Count
    stateBytes: Count
    stateChunks: Count
    hops: list[Hop]
    funnel: list[Funnel]
    predicates: Mapping[str, Cost]
    nodes: list[Node]
    placement: Placed
    changes: Mapping[str, tuple[Any, Any]]
    overload: Overload
    spilling: Spilling
    inner: "Mapping[str, Progress]"


Block = list[Progress]
"""A block of the diary."""


# -- manifests


class Ledger(TypedDict):
    """What is owed; see `units.Ledger`."""

    units: list[Unit]
    taken: list[tuple[int, Taken]]
    made: Count
    worth: list[tuple[Group, Tally]]
    fed: list[tuple[str, int, int, int]]
    closed: list[tuple[int, int]]
    notes: Part


class Learned(TypedDict):
    """What was learned; see `learned.Learned`."""

    strategy: Kept
    ordering: Kept
    usage: list[Usage]
    hops: list[HopView]
    shipping: tuple[float, float] | None
    hop_seconds: float | None
    tasks: Count
    overdue: Count
    warned: list[str]
    clock: int | None


Promise = tuple[list[MarkFile], list[list[MarkFile]], int | str | None, int, list[MarkFile]]
State = tuple[int | None, Count, bool, int | None, Count, int, float]
"""What a batch leaves behind of a stream; see `manifest.StreamState`."""


class Body(TypedDict):
    """What a manifest says of one join."""

    batch: int
    streams: list[State]
    chunks: NotRequired[list[Chunk]]
    added: NotRequired[list[Chunk]]
    removed: NotRequired[list[str]]
    moved: NotRequired[Mapping[str, list[int]]]
    watermark: int | None
    unpurged: Count
    ledger: Ledger
    settled: int | None
    offered: int
    final: NotRequired[bool]
    promises: list[list[Promise]]
    learned: Learned
    progress: Progress
    inner: "Mapping[Position, Body]"


class Manifest(Body):
    """A manifest: what it says of the outermost join, and what it says once."""

    input: str
    follows: str
    deliveries: list[tuple[str, tuple[str, str], list[tuple[str, str]]]]


# -- rounds


class Paid(TypedDict):
    """What a join pays in a round."""

    pay: list[tuple[int, int]]
    back: list[int]


class Round(TypedDict):
    """What a round is about to do."""

    batch: int
    choices: Mapping[str, Paid]
    final: NotRequired[bool]
