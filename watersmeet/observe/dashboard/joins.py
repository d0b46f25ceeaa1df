"""One join of a query: its streams, where its pairs go, what its predicates and nodes do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from watersmeet.arguments import format_duration, microseconds
from watersmeet.formatting import format_bytes
from watersmeet.observe.dashboard.dashboard_view import FunnelHop, FunnelStep, JoinView, Level, Table, TableCell
from watersmeet.observe.dashboard.formats import (
    NOTHING,
    count_cell,
    format_count,
    format_milliseconds,
    format_percent,
    format_rate,
    log_shares,
    shares,
    short_duration,
    short_time,
    text_cell,
    trend_cell,
)
from watersmeet.observe.dashboard.recent_batches import Progress, RecentBatches
from watersmeet.observe.dashboard.state_map import draw_state_map
from watersmeet.observe.near_misses import describe_near_misses
from watersmeet.query.windows import BEFORE_ALL, parse_window
from watersmeet.state.manifest.manifest import Manifest

REFUSED = ("late", "rejected", "denied")
"""Why rows are not joined."""
UNEVEN = 2.0
"""The multiple of the average work from which on a node is called busy."""


@dataclass(frozen=True)
class JoinRecord:
    """One join of a checkpoint.

    Attributes:
        name: The stream that it is of another join; empty for the outermost.
        query: Its description.
        manifest: Its state.
        recent: Its last batches.
    """

    name: str
    query: Mapping[str, Any]
    manifest: Manifest
    recent: RecentBatches

    @cached_property
    def progress(self) -> Progress:
        """The progress of its last batch."""
        return self.recent.part(self.recent.progress[-1]) if self.recent.progress else {}

    @property
    def names(self) -> list[str]:
        """The names of its streams."""
        return list(self.query.get("streams", ()))

    def walk(self) -> Iterator["JoinRecord"]:
        """Yield the join and its inner joins."""
        yield self
        for at, manifest in self.manifest.inner.items():
            name = self.names[at]
            part = RecentBatches(self.recent.progress, _select_inner(self.recent.part, name))
            yield from JoinRecord(name, self.query.get(f"join '{name}'", {}), manifest, part).walk()


def _select_inner(part: Callable[[Progress], Progress], name: str) -> Callable[[Progress], Progress]:
    return lambda progress: part(progress).get("inner", {}).get(name, {})


def join_view(record: JoinRecord) -> JoinView:
    """Return what a screen shows of a join."""
    windows = [parse_window(record.query.get(f"window of '{name}'", "")) for name in record.names]
    return JoinView(
        record.name,
        record.query.get("where", "") or "no condition: every combination that the windows admit",
        describe_watermark(record),
        stream_table(record),
        draw_funnel(record.progress),
        predicate_table(record.progress),
        draw_state_map(record.manifest, record.names, windows, record.recent.watermark_speed),
        node_table(record.progress),
    )


def describe_watermark(record: JoinRecord) -> str:
    """Return the watermark of a join, and the stream that holds it back, as a sentence."""
    manifest, holder = record.manifest, record.progress.get("heldBackBy")
    if manifest.watermark is None:
        return f"No watermark yet: '{holder}' has brought no rows." if holder else "No watermark yet."
    who = f", held by '{holder}'" if holder else ""
    idle = record.progress.get("idle") or []
    idle_text = f"; idle: {', '.join(idle)}" if idle else ""
    settled_text = ""
    if manifest.settled is not None and manifest.settled < manifest.watermark:
        settled_text = f"; settled up to {short_time(manifest.settled, manifest.watermark)}, since results are owed"
    return f"Watermark {short_time(manifest.watermark)}{who}{idle_text}{settled_text}."


def stream_of(progress: Progress, name: str) -> Mapping[str, Any]:
    """Return the progress of a batch for one stream; empty if there is none."""
    part: Mapping[str, Any] = progress.get("streams", {}).get(name, {})
    return part


def count_refused(part: Mapping[str, Any]) -> int:
    """Return how many rows of a stream were refused."""
    return sum(part.get(kind, 0) for kind in REFUSED)


def stream_table(record: JoinRecord) -> Table:
    """Return the table of streams: their rows, state and times."""
    rows = tuple(_stream_row(record, at, name) for at, name in enumerate(record.names))
    arrivals = ("rows in", "per second", "trend", "late", "rejected", "denied")
    state = ("left state", "in state", "bytes", "latest", "ahead")
    return Table(("stream", "window", "delay", *arrivals, *state), rows, text_columns=3, note=_note_refused(record))


def _stream_row(record: JoinRecord, at: int, name: str) -> tuple[TableCell, ...]:
    """Return the row of a stream in the table of streams, cell by cell in the order of its columns."""
    progress, manifest, is_holder = record.progress, record.manifest, record.progress.get("heldBackBy") == name
    part, state = stream_of(progress, name), record.manifest.streams[at]
    chunks = [chunk for chunk in manifest.chunks.values() if chunk.stream == at]
    rows_stored = sum(chunk.live for chunk in chunks if chunk.bucket.first)

    def rows(progress: Progress) -> int:
        return int(progress.get("inputRows", {}).get(name, 0))

    mark = part.get("watermark")
    ahead = None if mark is None or manifest.watermark is None else mark - manifest.watermark
    table = state.latest is not None and state.latest <= BEFORE_ALL
    level: Level = "off" if state.idle and not table else ""
    role = " · table" if table else " · holds watermark" if is_holder else " · idle" if state.idle else ""
    return (
        text_cell(f"{name}{role}", level),
        text_cell(_format_window(record.query.get(f"window of '{name}'", NOTHING))),
        text_cell(_format_delay(record.query.get(f"delay of '{name}'", NOTHING))),
        count_cell(rows(progress)),
        text_cell(format_rate(record.recent.per_second(rows))),
        trend_cell(record.recent.series(rows)),
        *(count_cell(part.get(kind, 0), "watch") for kind in REFUSED),
        count_cell(_rows_purged(record, name, rows(progress))),
        count_cell(rows_stored),
        text_cell(format_bytes(sum(chunk.bytes * len(chunk.owners) for chunk in chunks))),
        text_cell(NOTHING if table else short_time(state.latest, manifest.watermark)),
        text_cell(NOTHING if ahead is None or table else short_duration(max(0, ahead))),
    )


def _rows_purged(record: JoinRecord, name: str, rows: int) -> int:
    """Return how many rows of a stream left state in the last batch, by its counts; 0 if the batch before is unknown.

    Args:
        record: The join.
        name: The stream.
        rows: How many of its rows came in.
    """
    if len(record.recent.progress) < 2:
        return 0
    earlier, latest = (stream_of(record.recent.part(progress), name) for progress in record.recent.progress[-2:])
    if "stateRows" not in earlier:
        return 0
    return max(0, int(earlier.get("stateRows", 0)) + rows - count_refused(latest) - int(latest.get("stateRows", 0)))


def _format_window(notation: str) -> str:
    """Return the window of a checkpoint's description in words; as it is if it can't be parsed."""
    window = parse_window(notation)
    return notation if window is None else window.describe()


def _format_delay(notation: str) -> str:
    return notation if notation == NOTHING else format_duration(microseconds(notation))


def _note_refused(record: JoinRecord) -> str:
    """Return how many rows all recorded batches refused, as a sentence; empty if none."""
    batches = [record.recent.part(progress).get("streams", {}).values() for progress in record.recent.progress]
    counts = {kind: sum(part.get(kind, 0) for parts in batches for part in parts) for kind in REFUSED}
    listing = ", ".join(f"{format_count(number)} {kind}" for kind, number in counts.items() if number)
    return f"In the last {format_count(len(record.recent.progress))} batches: {listing}." if listing else ""


def predicate_table(progress: Progress) -> Table:
    """Return the table of Python predicates and their cost in the last batch, the dearest first."""
    costs = sorted(progress.get("predicates", {}).items(), key=lambda pair: -pair[1]["ms"])
    total = progress.get("durationMs", {}).get("total", 0)
    return Table(
        ("predicate", "calls", "match", "time", "per 1,000", "of the batch"),
        tuple(
            (
                text_cell(f"{name}()"),
                count_cell(cost["pairs"]),
                text_cell(format_percent(cost["matches"], cost["pairs"])),
                TableCell(format_milliseconds(cost["ms"]), share=share),
                text_cell(format_milliseconds(1000 * cost["ms"] / cost["pairs"]) if cost["pairs"] else NOTHING),
                text_cell(format_percent(cost["ms"], total)),
            )
            for (name, cost), share in zip(costs, shares([cost["ms"] for _, cost in costs]), strict=True)
        ),
    )


def node_table(progress: Progress) -> Table:
    """Return the table of nodes: their work and state, with a note if one does much more than the average."""
    node_reports = progress.get("nodes", [])
    work = [node["cpuMs"] for node in node_reports]
    mean = sum(work) / len(work) if work else 0
    uneven = max(work) / mean if mean else 1.0
    return Table(
        ("node", "CPU", "pairs", "rows in", "rows kept", "bytes"),
        tuple(
            (
                text_cell(str(at)),
                TableCell(format_milliseconds(node["cpuMs"]), share=cpu),
                TableCell(format_count(node["pairs"]), share=pairs),
                count_cell(node["rowsIn"]),
                TableCell(format_count(node["rows"]), share=rows_share),
                text_cell(format_bytes(node["bytes"])),
            )
            for at, (node, cpu, pairs, rows_share) in enumerate(
                zip(
                    node_reports,
                    shares(work),
                    shares([n["pairs"] for n in node_reports]),
                    shares([n["rows"] for n in node_reports]),
                    strict=True,
                )
            )
        ),
        note=f"The busiest node does {uneven:.1f} times the average work." if uneven >= UNEVEN else "",
    )


# -- where pairs go


def draw_funnel(progress: Progress) -> tuple[FunnelHop, ...]:
    """Return the hops of a batch by their tests or, if no funnel is recorded, by their pairs alone."""
    tests = progress.get("funnel")
    hops = [*(_steps_by_test(tests) if tests else _steps_by_hop(progress.get("hops", [])))]
    lengths = iter(log_shares([number for _, steps in hops for _, number, _, _ in steps]))
    return tuple(
        FunnelHop(
            title,
            tuple(
                FunnelStep(label, format_count(number), next(lengths), note, near)
                for label, number, note, near in steps
            ),
        )
        for title, steps in hops
    )


KINDS = {"sql": "SQL", "near": "floating point", "python": "Python", "raising": "may raise an error"}
"""The kinds of tests that are shown, in words."""
Steps = list[tuple[str, int, str, tuple[str, ...]]]


def _steps_by_test(hops: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Steps]]:
    """Yield the title and steps of each hop, down to single conjuncts, if the progress has a funnel."""
    for hop in hops:
        steps: Steps = [("pairs in time", hop["inTime"], "", ()), ("pairs proposed", hop["into"], "", ())]
        for test in hop["tests"]:
            cost = f", {format_milliseconds(test['ms'])}" if test.get("ms") else ""
            kind = f"{KINDS[test['kind']]}, " if test.get("kind") in KINDS else ""
            note = f"{kind}{format_percent(test['out'], test['in'])} pass{cost}"
            steps.append((test["name"], test["out"], note, tuple(describe_near_misses(test))))
        yield f"{', '.join(hop['from'])} → {hop['stream']}", steps


def _steps_by_hop(hops: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Steps]]:
    """Yield the title and steps of each hop, from totals alone, if the progress has no funnel."""
    for number, hop in enumerate(hops, 1):
        rows_in, pairs, matches = hop["rowsIn"], hop["pairs"], hop["matches"]
        yield (
            f"Hop {number}",
            [
                ("tuples ask" if number == 1 else "partial results ask", rows_in, "", ()),
                ("pairs looked at", pairs, f"{format_count(pairs / rows_in)} for each" if rows_in else "", ()),
                ("pairs that match", matches, f"{format_percent(matches, pairs)} of them" if pairs else "", ()),
            ],
        )
