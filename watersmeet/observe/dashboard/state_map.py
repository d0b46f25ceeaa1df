"""The map of state: which slices of which stream are at which node, and when they expire."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from watersmeet.formatting import format_bytes
from watersmeet.observe.dashboard.dashboard_view import Block, Lane, StateMap, Table, TableCell
from watersmeet.observe.dashboard.formats import NOTHING, format_count, shares, short_duration, short_time, text_cell
from watersmeet.query.windows import BEFORE_ALL, FOREVER, Window
from watersmeet.state.chunks.chunk import HOT, Chunk
from watersmeet.state.manifest.manifest import Manifest

COLUMNS = 120
"""Slices beyond which neighbours are drawn together."""
NODES = 16
"""Nodes beyond this are drawn as one."""
LISTED = 6
"""The most slices that are listed as expiring next."""


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
