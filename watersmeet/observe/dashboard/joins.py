"""One join of a query: its streams, where its pairs go, what its predicates and nodes do."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from watersmeet.arguments import format_duration, microseconds
from watersmeet.formatting import format_bytes
from watersmeet.observe.dashboard.course import Course, Progress
from watersmeet.observe.dashboard.pair_flow import funnel
from watersmeet.observe.dashboard.slices import state_map
from watersmeet.observe.dashboard.view import Cell, JoinView, Level, Table
from watersmeet.observe.dashboard.words import (
    NOTHING,
    bars,
    clock,
    count,
    counted,
    course,
    lasting,
    milliseconds,
    percent,
    plain,
    rate,
)
from watersmeet.query.windows import BEFORE_ALL, parse_window
from watersmeet.state.manifest.manifest import Manifest

REFUSED = ("late", "rejected", "denied")
"""Why rows are not joined."""
UNEVEN = 2.0
"""How many times the average work of a node is worth a look."""


@dataclass(frozen=True)
class JoinRecord:
    """What is recorded of one join.

    Attributes:
        name: The stream that it is of another join; empty for the outermost.
        query: Its description.
        manifest: Its state.
        course: Its batches.
    """

    name: str
    query: Mapping[str, Any]
    manifest: Manifest
    course: Course

    @cached_property
    def progress(self) -> Progress:
        """What its last batch did."""
        return self.course.own(self.course.batches[-1]) if self.course.batches else {}

    @property
    def names(self) -> list[str]:
        """Its streams."""
        return list(self.query.get("streams", ()))

    def walk(self) -> Iterator["JoinRecord"]:
        """Yield the join, and those within it."""
        yield self
        for at, manifest in self.manifest.inner.items():
            name = self.names[at]
            own = Course(self.course.batches, _within(self.course.own, name))
            yield from JoinRecord(name, self.query.get(f"join '{name}'", {}), manifest, own).walk()


def _within(own: Callable[[Progress], Progress], name: str) -> Callable[[Progress], Progress]:
    return lambda progress: own(progress).get("inner", {}).get(name, {})


def join_view(record: JoinRecord) -> JoinView:
    """Return what a screen shows of a join."""
    windows = [parse_window(record.query.get(f"window of '{name}'", "")) for name in record.names]
    return JoinView(
        record.name,
        record.query.get("where", "") or "no condition: every combination that the windows admit",
        watermark(record),
        streams(record),
        funnel(record.progress),
        predicates(record.progress),
        state_map(record.manifest, record.names, windows, record.course.speed),
        nodes(record.progress),
    )


def watermark(record: JoinRecord) -> str:
    """Return how far a join is, and who holds it."""
    manifest, held = record.manifest, record.progress.get("heldBackBy")
    if manifest.watermark is None:
        return f"No watermark yet: '{held}' has brought no rows." if held else "No watermark yet."
    who = f", held by '{held}'" if held else ""
    idle = record.progress.get("idle") or []
    asleep = f"; idle: {', '.join(idle)}" if idle else ""
    behind = ""
    if manifest.settled is not None and manifest.settled < manifest.watermark:
        behind = f"; settled up to {clock(manifest.settled, manifest.watermark)}, since results are owed"
    return f"Watermark {clock(manifest.watermark)}{who}{asleep}{behind}."


def stream_of(progress: Progress, name: str) -> Mapping[str, Any]:
    """Return what a batch did with a stream."""
    found: Mapping[str, Any] = progress.get("streams", {}).get(name, {})
    return found


def refused(part: Mapping[str, Any]) -> int:
    """Return how many rows of a stream were not joined."""
    return sum(part.get(kind, 0) for kind in REFUSED)


def streams(record: JoinRecord) -> Table:
    """Return what streams bring, and how far each has come."""
    rows = tuple(_stream(record, at, name) for at, name in enumerate(record.names))
    arrivals = ("rows in", "per second", "trend", "late", "rejected", "denied")
    state = ("left state", "in state", "bytes", "latest", "ahead")
    return Table(("stream", "window", "delay", *arrivals, *state), rows, texts=3, note=_refused(record))


def _stream(record: JoinRecord, at: int, name: str) -> tuple[Cell, ...]:
    now, manifest, held = record.progress, record.manifest, record.progress.get("heldBackBy") == name
    part, state = stream_of(now, name), record.manifest.streams[at]
    chunks = [chunk for chunk in manifest.chunks.values() if chunk.stream == at]
    kept = sum(chunk.live for chunk in chunks if chunk.bucket.first)

    def rows(progress: Progress) -> int:
        return int(progress.get("inputRows", {}).get(name, 0))

    mark = part.get("watermark")
    ahead = None if mark is None or manifest.watermark is None else mark - manifest.watermark
    table = state.latest is not None and state.latest <= BEFORE_ALL
    level: Level = "off" if state.idle and not table else ""
    role = " · table" if table else " · holds watermark" if held else " · idle" if state.idle else ""
    return (
        plain(f"{name}{role}", level),
        plain(_window(record.query.get(f"window of '{name}'", NOTHING))),
        plain(_delay(record.query.get(f"delay of '{name}'", NOTHING))),
        counted(rows(now)),
        plain(rate(record.course.per_second(rows))),
        course(record.course.series(rows)),
        *(counted(part.get(kind, 0), "watch") for kind in REFUSED),
        counted(_gone(record, name, rows(now))),
        counted(kept),
        plain(format_bytes(sum(chunk.bytes * len(chunk.owners) for chunk in chunks))),
        plain(NOTHING if table else clock(state.latest, manifest.watermark)),
        plain(NOTHING if ahead is None or table else lasting(max(0, ahead))),
    )


def _gone(record: JoinRecord, name: str, rows: int) -> int:
    """Return how many rows of a stream the last batch let go."""
    if len(record.course.batches) < 2:
        return 0
    before, now = (stream_of(record.course.own(found), name) for found in record.course.batches[-2:])
    if "stateRows" not in before:
        return 0
    return max(0, int(before.get("stateRows", 0)) + rows - refused(now) - int(now.get("stateRows", 0)))


def _window(notation: str) -> str:
    """Return the window of a checkpoint's description as people say it."""
    window = parse_window(notation)
    return notation if window is None else window.describe()


def _delay(notation: str) -> str:
    return notation if notation == NOTHING else format_duration(microseconds(notation))


def _refused(record: JoinRecord) -> str:
    """Return how many rows were not joined, in all batches that are known."""
    batches = [record.course.own(found).get("streams", {}).values() for found in record.course.batches]
    lost = {kind: sum(part.get(kind, 0) for parts in batches for part in parts) for kind in REFUSED}
    told = ", ".join(f"{count(number)} {kind}" for kind, number in lost.items() if number)
    return f"In the last {count(len(record.course.batches))} batches: {told}." if told else ""


def predicates(progress: Progress) -> Table:
    """Return what Python predicates cost."""
    found = sorted(progress.get("predicates", {}).items(), key=lambda pair: -pair[1]["ms"])
    total = progress.get("durationMs", {}).get("total", 0)
    return Table(
        ("predicate", "calls", "match", "time", "per 1,000", "of the batch"),
        tuple(
            (
                plain(f"{name}()"),
                counted(cost["pairs"]),
                plain(percent(cost["matches"], cost["pairs"])),
                Cell(milliseconds(cost["ms"]), share=share),
                plain(milliseconds(1000 * cost["ms"] / cost["pairs"]) if cost["pairs"] else NOTHING),
                plain(percent(cost["ms"], total)),
            )
            for (name, cost), share in zip(found, bars([cost["ms"] for _, cost in found]), strict=True)
        ),
    )


def nodes(progress: Progress) -> Table:
    """Return what nodes keep and do."""
    found = progress.get("nodes", [])
    work = [node["cpuMs"] for node in found]
    mean = sum(work) / len(work) if work else 0
    uneven = max(work) / mean if mean else 1.0
    return Table(
        ("node", "CPU", "pairs", "rows in", "rows kept", "bytes"),
        tuple(
            (
                plain(str(at)),
                Cell(milliseconds(node["cpuMs"]), share=cpu),
                Cell(count(node["pairs"]), share=pairs),
                counted(node["rowsIn"]),
                Cell(count(node["rows"]), share=kept),
                plain(format_bytes(node["bytes"])),
            )
            for at, (node, cpu, pairs, kept) in enumerate(
                zip(found, bars(work), bars([n["pairs"] for n in found]), bars([n["rows"] for n in found]), strict=True)
            )
        ),
        note=f"The busiest node does {uneven:.1f} times the average work." if uneven >= UNEVEN else "",
    )
