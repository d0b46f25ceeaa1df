"""Advice as an SVG, written by hand: two panels with logarithmic heights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Any

COLOURS = ("#1b6ca8", "#3a9e6f", "#e0912f", "#c0392b")
AMOUNTS = (("stateBytes", "state, MB", "#5b7083"), ("networkBytesPerSecond", "network, MB/s", "#b58900"))
"""What the bars show: a field of the rows, what it is called, and its colour."""
TITLES = ("Predicted batch time, recommended nodes circled", "State and network")
WIDTH, HEIGHT = 1100, 450
TOP, BOTTOM = 40, 360
TICKS = 8
"""About how many numbers of nodes are written below the curves."""


@dataclass(frozen=True, slots=True)
class Heights:
    """Where values lie, by their logarithm; what is 0 lies at the bottom.

    Attributes:
        low: The power of ten at the bottom.
        high: The power of ten at the top.
    """

    low: int
    high: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Heights":
        """Return room for values."""
        logs = [log10(value) for value in values if value > 0] or [0.0]
        low, high = floor(min(logs)), ceil(max(logs))
        return cls(low, max(high, low + 1))

    def at(self, value: float) -> float:
        """Return how far from the top of the picture a value lies."""
        part = (log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return BOTTOM - (BOTTOM - TOP) * part


def label(row: Mapping[str, Any]) -> str:
    """Return what is recommended at a multiple of the rate, in short."""
    return f"{row['factor']}x: {row['strategy']}, {row['nodes']} node{'s' * (row['nodes'] > 1)}"


def picture(rows: Sequence[Mapping[str, Any]], curves: Mapping[int, Mapping[int, float]], every: float) -> str:
    """Return the seconds of a batch by nodes, and state and network by rate, as the text of an SVG."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
    style = 'font-family="sans-serif" font-size="12" fill="#222">'
    lines = [*_batches(rows, curves, every), *_amounts(rows)]
    return "\n".join([head + style, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *lines, "</svg>\n"])


# -- the panels


def _batches(
    rows: Sequence[Mapping[str, Any]], curves: Mapping[int, Mapping[int, float]], every: float
) -> Iterator[str]:
    """Yield a curve for each multiple of the rate."""
    left, right = 70, 620
    nodes = sorted({count for curve in curves.values() for count in curve})
    heights = Heights.of([every, *(took for curve in curves.values() for took in curve.values())])

    def across(count: int) -> float:
        return left + (right - left) * (count - nodes[0]) / max(1, nodes[-1] - nodes[0])

    yield from _frame(left, right, heights, TITLES[0], "nodes", "seconds of a batch")
    for count in nodes[:: ceil(len(nodes) / TICKS)]:
        yield _text(across(count), BOTTOM + 16, str(count))
    for at, (row, colour) in enumerate(zip(rows, COLOURS, strict=True)):
        curve = curves[row["factor"]]
        points = " ".join(f"{across(count):.1f},{heights.at(took):.1f}" for count, took in curve.items())
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        for count, took in curve.items():
            yield f'<circle cx="{across(count):.1f}" cy="{heights.at(took):.1f}" r="2.5" fill="{colour}"/>'
        x, y = across(row["nodes"]), heights.at(row["batchSeconds"])
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="white" stroke="{colour}" stroke-width="1.5"/>'
        yield from _legend(left + at * 140, colour, label(row))
    due = heights.at(every)
    yield f'<path d="M{left} {due:.1f}H{right}" stroke="black" stroke-dasharray="6 4"/>'
    yield _text(right - 4, due - 5, f"next batch due, {every:g} s", "end")


def _amounts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield bars beside each other for each multiple of the rate."""
    left, right = 700, 1080
    heights = Heights.of([row[key] / 1e6 for row in rows for key, _, _ in AMOUNTS])
    yield from _frame(left, right, heights, TITLES[1], "rate", "")
    room = (right - left) / len(rows)
    for at, row in enumerate(rows):
        middle = left + room * (at + 0.5)
        yield _text(middle, BOTTOM + 16, f"{row['factor']}x")
        for (key, _, colour), shift in zip(AMOUNTS, (-0.38, 0.0), strict=True):
            value, x = row[key] / 1e6, middle + shift * room
            top = heights.at(value)
            size = f'width="{0.38 * room:.1f}" height="{BOTTOM - top:.1f}"'
            yield f'<rect x="{x:.1f}" y="{top:.1f}" {size} fill="{colour}"/>'
            yield _text(x + 0.19 * room, top - 4, f"{value:.3g}")
    for at, (_, name, colour) in enumerate(AMOUNTS):
        yield from _legend(left + at * 140, colour, name)


# -- what panels are made of


def _frame(left: float, right: float, heights: Heights, title: str, below: str, beside: str) -> Iterator[str]:
    middle = (left + right) / 2
    for power in range(heights.low, heights.high + 1):
        y = heights.at(10.0**power)
        yield f'<path d="M{left} {y:.1f}H{right}" stroke="#ddd"/>'
        yield _text(left - 6, y + 4, f"{10.0**power:g}", "end")
    yield _text(middle, TOP - 16, title)
    yield _text(middle, BOTTOM + 34, below)
    yield f'<g transform="translate({left - 48} {(TOP + BOTTOM) / 2}) rotate(-90)">{_text(0, 0, beside)}</g>'


def _legend(x: float, colour: str, name: str) -> Iterator[str]:
    yield f'<rect x="{x}" y="{HEIGHT - 32}" width="12" height="12" fill="{colour}"/>'
    yield _text(x + 17, HEIGHT - 21, name, "start")


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
