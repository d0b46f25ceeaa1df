"""The map of state: which slices of which stream are at which node, and when they go."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from watersmeet.formatting import format_bytes
from watersmeet.observe.dashboard.view import Block, Cell, Lane, StateMap, Table
from watersmeet.observe.dashboard.words import NOTHING, bars, clock, count, lasting, plain
from watersmeet.query.windows import BEFORE_ALL, FOREVER, Window
from watersmeet.state.chunks.chunk import HOT, Chunk
from watersmeet.state.manifest.manifest import Manifest

COLUMNS = 120
"""More slices than this are drawn together."""
NODES = 16
"""More nodes than this are drawn as one."""
LEAVING = 6
"""Slices that are listed because they go next."""


@dataclass(slots=True)
class _Slice:
    """What is kept of a slice of a stream."""

    rows: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    bytes: int = 0
    low: int = FOREVER
    high: int = -FOREVER
    last: int = 0
    cold: bool = False

    def add(self, chunk: Chunk) -> None:
        for node in chunk.owners:
            self.rows[node] += chunk.live
            low, high = self.spans.get(node, (chunk.low, chunk.high))
            self.spans[node] = min(low, chunk.low), max(high, chunk.high)
        self.bytes += chunk.bytes
        self.low, self.high = min(self.low, chunk.low), max(self.high, chunk.high)
        self.last = max(self.last, chunk.last_ordinal)
        self.cold = self.cold or chunk.unit != HOT


@dataclass(frozen=True, slots=True)
class Leaving:
    """When a slice goes: once the watermark has passed a time, or once so many more rows have come; or nobody knows."""

    time: int | None = None
    rows: int | None = None

    def says(self, settled: int | None, speed: float | None, near: int | None) -> str:
        """Return it in words."""
        if self.rows is not None:
            return f"after {count(self.rows)} more rows"
        if self.time is None:
            return "not by time"
        soon = self.about(settled, speed)
        return f"once the watermark passes {clock(self.time, near)}{f', in about {soon}' if soon else ''}"

    def about(self, settled: int | None, speed: float | None) -> str:
        """Return in what time that will be, if the watermark moves on as it did."""
        if self.time is None or settled is None or not speed:
            return ""
        return lasting(max(0.0, self.time - settled) / speed)


def leaving(window: Window | None, found: _Slice, arrived: int) -> Leaving:
    """Return when a slice goes by its stream's window; None for a window that isn't known."""
    if window is None:
        return Leaving()
    if window.rows is not None:
        return Leaving(rows=max(0, found.last + window.rows - arrived))
    deadline = int(window.deadline(np.array([found.high]))[0])
    return Leaving() if deadline >= FOREVER else Leaving(time=deadline)


def state_map(
    manifest: Manifest, names: Sequence[str], windows: Sequence[Window | None], speed: float | None
) -> StateMap:
    """Return the map of a join's state.

    Args:
        manifest: The state.
        names: The streams.
        windows: Their windows, where they are known.
        speed: How far the watermark moves while a second passes, if that is known.
    """
    # Tables have no times, and are before all that does: they would leave no room for the rest.
    chunks = [chunk for chunk in manifest.chunks.values() if chunk.stream < len(names) and chunk.low > BEFORE_ALL]
    if not chunks:
        return StateMap()
    first, last = min(chunk.low for chunk in chunks), max(chunk.high for chunk in chunks)
    slices = _slices(chunks, first, last)
    goes = {(at, key): leaving(windows[at], found, manifest.streams[at].arrived) for (at, key), found in slices.items()}
    says = {key: found.says(manifest.settled, speed, last) for key, found in goes.items()}
    mark = manifest.watermark
    return StateMap(
        _lanes(slices, says, names, first, last),
        clock(first),
        clock(last, first),
        (mark - first) / (last - first) if mark is not None and first < mark <= last else None,
        _leaving(slices, goes, names, manifest, speed),
    )


_Slices = Mapping[tuple[int, int], _Slice]


def _slices(chunks: Iterable[Chunk], first: int, last: int) -> dict[tuple[int, int], _Slice]:
    """Return the slices of all streams, by stream and start; too many of them are cut anew."""
    chunks = list(chunks)
    many = len({chunk.start for chunk in chunks}) > COLUMNS
    width = max(1, (last - first) // COLUMNS + 1)
    found: dict[tuple[int, int], _Slice] = defaultdict(_Slice)
    for chunk in chunks:
        found[chunk.stream, first + (chunk.low - first) // width * width if many else chunk.start].add(chunk)
    return dict(sorted(found.items()))


def _lanes(
    slices: _Slices, says: Mapping[tuple[int, int], str], names: Sequence[str], first: int, last: int
) -> tuple[Lane, ...]:
    length, most = max(1, last - first), max((max(found.rows.values()) for found in slices.values()), default=0)
    lanes: dict[tuple[int, int], list[Block]] = defaultdict(list)
    for (at, start), found in slices.items():
        for node, rows, low, high in _folded(found):
            text = (
                f"{names[at]}, {_node(node)}: {clock(low)} to {clock(high, low)}, {count(rows)} rows; "
                f"leaves {says[at, start]}"
            )
            begin, end = round((low - first) / length, 4), round((high - first) / length, 4)
            weight = min(1.0, rows / most) if most else 0.0
            lanes[at, node].append(Block(begin, end, round(weight, 3), text, found.cold))
    return tuple(Lane(names[at], _node(node), tuple(lanes[at, node])) for at, node in sorted(lanes))


def _folded(found: _Slice) -> Iterator[tuple[int, int, int, int]]:
    """Yield each node of a slice with its rows and the times that they span; the last nodes as one."""
    for at in sorted({min(node, NODES) for node in found.rows}):
        nodes = [node for node in found.rows if min(node, NODES) == at]
        lows, highs = zip(*(found.spans[node] for node in nodes), strict=True)
        yield at, sum(found.rows[node] for node in nodes), min(lows), max(highs)


def _node(node: int) -> str:
    return f"node {node}" if node < NODES else f"nodes {NODES}+"


def _leaving(
    slices: _Slices,
    goes: Mapping[tuple[int, int], Leaving],
    names: Sequence[str],
    manifest: Manifest,
    speed: float | None,
) -> Table:
    """Return the slices that go next; where none goes by time, those that go by rows."""
    timed = sorted((found.time, key) for key, found in goes.items() if found.time is not None)
    counted = sorted((found.rows, key) for key, found in goes.items() if found.rows is not None)
    first = [key for _, key in (*timed[:LEAVING], *counted[: 0 if timed else LEAVING])]
    shares = bars([sum(slices[key].rows.values()) for key in first])
    return Table(
        ("stream", "leaves at", "in about", "from", "to", "rows", "bytes", "node"),
        tuple(
            (
                plain(names[key[0]]),
                plain(_when(goes[key], slices[key].high)),
                plain(goes[key].about(manifest.settled, speed) or NOTHING),
                plain(clock(slices[key].low, slices[key].high)),
                plain(clock(slices[key].high, slices[key].low)),
                Cell(count(sum(slices[key].rows.values())), share=share),
                plain(format_bytes(slices[key].bytes)),
                plain(", ".join(map(str, sorted(slices[key].rows)))),
            )
            for key, share in zip(first, shares, strict=True)
        ),
        note=_note(bool(timed), bool(first) or not slices),
    )


def _note(timed: bool, listed: bool) -> str:
    if timed:
        return "A slice leaves once the watermark has passed the time in 'leaves at'."
    return "" if listed else "No slice leaves by its window: state leaves by what streams promise, or never."


def _when(found: Leaving, near: int) -> str:
    return f"after {count(found.rows)} rows" if found.rows is not None else clock(found.time, near)
