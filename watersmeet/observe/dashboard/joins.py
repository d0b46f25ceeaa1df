"""One join of a query: its streams, where its pairs go, what its predicates and nodes do, which state it has where."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from watersmeet.arguments import format_duration, microseconds
from watersmeet.caching import cached_property
from watersmeet.formatting import format_bytes
from watersmeet.observe.dashboard.checkpoint_reader import Progress, RecentBatches
from watersmeet.observe.dashboard.dashboard_view import (
    NOTHING,
    Block,
    FunnelHop,
    FunnelStep,
    JoinView,
    Lane,
    Level,
    StateMap,
    Table,
    TableCell,
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
from watersmeet.observe.near_misses import describe_near_misses
from watersmeet.query.windows import BEFORE_ALL, FOREVER, Window, parse_window
from watersmeet.state.chunks.chunk import HOT, Chunk
from watersmeet.state.manifest.manifest import Manifest

COLUMNS = 120
"""Slices beyond which neighbours are drawn together."""
NODES = 16
"""Nodes beyond this are drawn as one."""
LISTED = 6
"""The most slices that are listed as expiring next."""
REFUSED = ("late", "rejected", "denied")
"""Why rows are not joined."""
UNEVEN = 2.0
"""The multiple of the average work from which on a node is called busy."""


@dataclass(slots=True)
class SliceState:
    """What state holds of a slice of a stream."""

    rows: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    bytes: int = 0
    low: int = FOREVER
    high: int = -FOREVER
    last: int = 0
    spilled: bool = False

    def add(self, chunk: Chunk) -> None:
        """Add the rows of a chunk to each of its owners, and extend the slice's span of time."""
        for node in chunk.owners:
            self.rows[node] += chunk.live
            low, high = self.spans.get(node, (chunk.low, chunk.high))
            self.spans[node] = min(low, chunk.low), max(high, chunk.high)
        self.bytes += chunk.bytes
        self.low, self.high = min(self.low, chunk.low), max(self.high, chunk.high)
        self.last = max(self.last, chunk.last_ordinal)
        self.spilled = self.spilled or chunk.unit != HOT


@dataclass(frozen=True, slots=True)
class SliceExpiry:
    """When a slice expires: once the watermark passes a time, or once more rows have come; unknown without either."""

    time: int | None = None
    rows: int | None = None

    def describe(self, settled: int | None, speed: float | None, near: int | None) -> str:
        """Return when the slice expires, in words.

        Args:
            settled: Up to where tuples may leave, in microseconds; None if that is unknown.
            speed: The seconds by which the watermark moves per second; None if that is unknown.
            near: A time whose day need not be repeated.
        """
        if self.rows is not None:
            return f"after {format_count(self.rows)} more rows"
        if self.time is None:
            return "not by time"
        remaining = self.remaining(settled, speed)
        when = f"once the watermark passes {short_time(self.time, near)}"
        return f"{when}, in about {remaining}" if remaining else when

    def remaining(self, settled: int | None, speed: float | None) -> str:
        """Return the time left if the watermark keeps its speed; empty if that is unknown."""
        if self.time is None or settled is None or not speed:
            return ""
        return short_duration(max(0.0, self.time - settled) / speed)


def expiry_of(window: Window | None, slice_state: SliceState, arrived: int) -> SliceExpiry:
    """Return when a slice expires by its stream's window.

    Args:
        window: The window; None if it is unknown.
        slice_state: The slice.
        arrived: How many tuples of the stream have arrived, which is what count windows go by.
    """
    if window is None:
        return SliceExpiry()
    if window.rows is not None:
        return SliceExpiry(rows=max(0, slice_state.last + window.rows - arrived))
    deadline = int(window.deadline(np.array([slice_state.high]))[0])
    return SliceExpiry() if deadline >= FOREVER else SliceExpiry(time=deadline)


def draw_state_map(
    manifest: Manifest, names: Sequence[str], windows: Sequence[Window | None], speed: float | None
) -> StateMap:
    """Return the map of a join's state without its tables, which have no times; empty if nothing is stored.

    Args:
        manifest: The state.
        names: The streams.
        windows: Their windows; None for one that is unknown.
        speed: The seconds by which the watermark moves per second; None if that is unknown.
    """
    # Tables have no times and come before everything that has: they would leave no room for the rest.
    chunks = [chunk for chunk in manifest.chunks.values() if chunk.stream < len(names) and chunk.low > BEFORE_ALL]
    if not chunks:
        return StateMap()
    first, last = min(chunk.low for chunk in chunks), max(chunk.high for chunk in chunks)
    slices = _group_slices(chunks, first, last)
    arrived = [stream.arrived for stream in manifest.streams]
    expiries = {key: expiry_of(windows[key[0]], rows, arrived[key[0]]) for key, rows in slices.items()}
    messages = {key: expiry.describe(manifest.settled, speed, last) for key, expiry in expiries.items()}
    mark = manifest.watermark
    return StateMap(
        _draw_lanes(slices, messages, names, first, last),
        short_time(first),
        short_time(last, first),
        (mark - first) / (last - first) if mark is not None and first < mark <= last else None,
        _list_expiring(slices, expiries, names, manifest, speed),
    )


Slices = Mapping[tuple[int, int], SliceState]


def _group_slices(chunks: Iterable[Chunk], first: int, last: int) -> dict[tuple[int, int], SliceState]:
    """Return the slices of all streams, by stream and start; more than `COLUMNS` of them are regrouped by equal spans.

    These divide the time from `first` to `last`.
    """
    chunks = list(chunks)
    is_too_many = len({chunk.start for chunk in chunks}) > COLUMNS
    width = max(1, (last - first) // COLUMNS + 1)
    slices: dict[tuple[int, int], SliceState] = defaultdict(SliceState)
    for chunk in chunks:
        slices[chunk.stream, first + (chunk.low - first) // width * width if is_too_many else chunk.start].add(chunk)
    return dict(sorted(slices.items()))


def _draw_lanes(
    slices: Slices, messages: Mapping[tuple[int, int], str], names: Sequence[str], first: int, last: int
) -> tuple[Lane, ...]:
    """Return a lane for each stream and node with state: its slices as blocks whose weight is their share of rows."""
    length = max(1, last - first)
    most = max((max(slice_state.rows.values()) for slice_state in slices.values()), default=0)
    lanes: dict[tuple[int, int], list[Block]] = defaultdict(list)
    for (at, start), slice_state in slices.items():
        for node, rows, low, high in _fold_nodes(slice_state):
            span = f"{short_time(low)} to {short_time(high, low)}"
            where = f"{names[at]}, {_node_name(node)}"
            text = f"{where}: {span}, {format_count(rows)} rows; leaves {messages[at, start]}"
            begin, end = round((low - first) / length, 4), round((high - first) / length, 4)
            weight = min(1.0, rows / most) if most else 0.0
            lanes[at, node].append(Block(begin, end, round(weight, 3), text, slice_state.spilled))
    return tuple(Lane(names[at], _node_name(node), tuple(lanes[at, node])) for at, node in sorted(lanes))


def _fold_nodes(slice_state: SliceState) -> Iterator[tuple[int, int, int, int]]:
    """Yield each node of a slice with its rows and their time span, nodes beyond `NODES` as one."""
    for at in sorted({min(node, NODES) for node in slice_state.rows}):
        nodes = [node for node in slice_state.rows if min(node, NODES) == at]
        lows, highs = zip(*(slice_state.spans[node] for node in nodes), strict=True)
        yield at, sum(slice_state.rows[node] for node in nodes), min(lows), max(highs)


def _node_name(node: int) -> str:
    return f"node {node}" if node < NODES else f"nodes {NODES}+"


def _list_expiring(
    slices: Slices,
    expiries: Mapping[tuple[int, int], SliceExpiry],
    names: Sequence[str],
    manifest: Manifest,
    speed: float | None,
) -> Table:
    """Return a table of the slices that expire next; those that expire by rows only if none expires by time."""
    by_time = sorted((expiry.time, key) for key, expiry in expiries.items() if expiry.time is not None)
    by_rows = sorted((expiry.rows, key) for key, expiry in expiries.items() if expiry.rows is not None)
    first = [key for _, key in (*by_time[:LISTED], *by_rows[: 0 if by_time else LISTED])]
    rows = {key: sum(slices[key].rows.values()) for key in first}
    return Table(
        ("stream", "leaves at", "in about", "from", "to", "rows", "bytes", "node"),
        tuple(
            (
                text_cell(names[key[0]]),
                text_cell(_format_expiry(expiries[key], slices[key].high)),
                text_cell(expiries[key].remaining(manifest.settled, speed) or NOTHING),
                text_cell(short_time(slices[key].low, slices[key].high)),
                text_cell(short_time(slices[key].high, slices[key].low)),
                TableCell(format_count(rows[key]), share=share),
                text_cell(format_bytes(slices[key].bytes)),
                text_cell(", ".join(map(str, sorted(slices[key].rows)))),
            )
            for key, share in zip(first, shares([*rows.values()]), strict=True)
        ),
        note=_note_on_expiry(bool(by_time), bool(first) or not slices),
    )


def _note_on_expiry(has_times: bool, has_rows: bool) -> str:
    if has_times:
        return "A slice leaves once the watermark has passed the time in 'leaves at'."
    return "" if has_rows else "No slice leaves by its window: state leaves by constraints and punctuations, or never."


def _format_expiry(expiry: SliceExpiry, near: int) -> str:
    return f"after {format_count(expiry.rows)} rows" if expiry.rows is not None else short_time(expiry.time, near)


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
        return f"No watermark yet: no row of '{holder}' has been accepted." if holder else "No watermark yet."
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
