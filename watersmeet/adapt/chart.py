"""Charts of an advice: an SVG needs no library, other formats need matplotlib."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from watersmeet.errors import DefinitionError

COLOURS = ("#1b6ca8", "#3a9e6f", "#e0912f", "#c0392b")
AMOUNTS = (("stateBytes", "state, MB", "#5b7083"), ("networkBytesPerSecond", "network, MB/s", "#b58900"))
"""The bars: a field of the rows, its label, and its colour."""
TITLES = ("Predicted batch time, recommended nodes circled", "State and network")
WIDTH, HEIGHT = 1100, 450
TOP, BOTTOM = 40, 360
TICKS = 8
"""The approximate number of labels below the curves."""


def draw(
    path: str | os.PathLike[str],
    rows: Sequence[Mapping[str, Any]],
    curves: Mapping[int, Mapping[int, float]],
    every: float,
) -> None:
    """Write a chart: the seconds of a batch by nodes, with the recommended ones marked, and state and network by rate.

    Args:
        path: The file; its ending says in which format.
        rows: The recommendation and predictions for each multiple of the rate.
        curves: For each multiple the seconds of a batch by the number of nodes.
        every: The seconds from one batch to the next.

    Raises:
        DefinitionError: If matplotlib is missing, or doesn't know the format.
    """
    ending = Path(path).suffix.lower()
    if ending == ".svg":
        Path(path).write_text(render_svg(rows, curves, every), "utf-8")
        return
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise DefinitionError(
            f"plot('{os.fspath(path)}'): only .svg can be drawn without matplotlib; name the file "
            f"'{Path(path).with_suffix('.svg').name}', or pip install matplotlib."
        ) from None
    formats = FigureCanvasAgg.get_supported_filetypes()
    if ending.removeprefix(".") not in formats:
        raise DefinitionError(f"plot('{os.fspath(path)}'): the file's name must end in .{', .'.join(sorted(formats))}.")
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _plot_batches(left, rows, curves, every)
    _plot_amounts(right, rows)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    figure.savefig(path, dpi=120)


def label(row: Mapping[str, Any]) -> str:
    """Return a short label of the recommendation at a multiple of the rate."""
    return f"{row['factor']}x: {row['strategy']}, {row['nodes']} node{'s' * (row['nodes'] > 1)}"


# -- matplotlib


def _plot_batches(
    axes: Any, rows: Sequence[Mapping[str, Any]], curves: Mapping[int, Mapping[int, float]], every: float
) -> None:
    """Draw the seconds of a batch by number of nodes, a curve for each load; a ring marks the recommendation."""
    for row, colour in zip(rows, COLOURS, strict=True):
        curve = curves[row["factor"]]
        axes.plot(list(curve), list(curve.values()), color=colour, marker=".", label=label(row))
        axes.plot(row["nodes"], row["batchSeconds"], color=colour, marker="o", markersize=10, markerfacecolor="white")
    axes.axhline(every, color="black", linestyle="--", linewidth=1, label=f"next batch due, {every:g} s")
    axes.set(
        yscale="log",
        xlabel="nodes",
        ylabel="seconds of a batch",
        title=TITLES[0],
    )
    axes.locator_params(axis="x", integer=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)


def _plot_amounts(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw state and network as bars beside each other, by rate."""
    for (key, name, colour), shift in zip(AMOUNTS, (-0.2, 0.2), strict=True):
        values = [row[key] / 1e6 for row in rows]
        bars = axes.bar([at + shift for at in range(len(rows))], values, 0.38, color=colour, label=name)
        axes.bar_label(bars, [f"{value:.3g}" for value in values], fontsize="x-small", padding=2)
    axes.set_xticks(range(len(rows)), [f"{row['factor']}x" for row in rows])
    axes.set(yscale="log", xlabel="rate", title=TITLES[1])
    axes.margins(y=0.15)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(fontsize="small")


# -- SVG: two panels with logarithmic heights


@dataclass(frozen=True, slots=True)
class LogScale:
    """A logarithmic vertical scale; 0 is at the bottom.

    Attributes:
        low: The power of ten at the bottom.
        high: The power of ten at the top.
    """

    low: int
    high: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "LogScale":
        """Return the scale that fits the values."""
        logs = [log10(value) for value in values if value > 0] or [0.0]
        low, high = floor(min(logs)), ceil(max(logs))
        return cls(low, max(high, low + 1))

    def at(self, value: float) -> float:
        """Return the distance of a value from the top of the picture."""
        part = (log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return BOTTOM - (BOTTOM - TOP) * part


def render_svg(rows: Sequence[Mapping[str, Any]], curves: Mapping[int, Mapping[int, float]], every: float) -> str:
    """Return the seconds of a batch by nodes, and state and network by rate, as the text of an SVG."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
    style = 'font-family="sans-serif" font-size="12" fill="#222">'
    lines = [*_svg_batches(rows, curves, every), *_svg_amounts(rows)]
    return "\n".join([head + style, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *lines, "</svg>\n"])


def _svg_batches(
    rows: Sequence[Mapping[str, Any]], curves: Mapping[int, Mapping[int, float]], every: float
) -> Iterator[str]:
    """Yield a curve for each multiple of the rate."""
    left, right = 70, 620
    nodes = sorted({count for curve in curves.values() for count in curve})
    scale = LogScale.of([every, *(seconds for curve in curves.values() for seconds in curve.values())])

    def across(count: int) -> float:
        return left + (right - left) * (count - nodes[0]) / max(1, nodes[-1] - nodes[0])

    yield from _svg_frame(left, right, scale, TITLES[0], "nodes", "seconds of a batch")
    for count in nodes[:: ceil(len(nodes) / TICKS)]:
        yield _svg_text(across(count), BOTTOM + 16, str(count))
    for at, (row, colour) in enumerate(zip(rows, COLOURS, strict=True)):
        curve = curves[row["factor"]]
        points = " ".join(f"{across(count):.1f},{scale.at(seconds):.1f}" for count, seconds in curve.items())
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        for count, seconds in curve.items():
            yield f'<circle cx="{across(count):.1f}" cy="{scale.at(seconds):.1f}" r="2.5" fill="{colour}"/>'
        x, y = across(row["nodes"]), scale.at(row["batchSeconds"])
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="white" stroke="{colour}" stroke-width="1.5"/>'
        yield from _svg_legend(left + at * 140, colour, label(row))
    due = scale.at(every)
    yield f'<path d="M{left} {due:.1f}H{right}" stroke="black" stroke-dasharray="6 4"/>'
    yield _svg_text(right - 4, due - 5, f"next batch due, {every:g} s", "end")


def _svg_amounts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield bars beside each other for each multiple of the rate."""
    left, right = 700, 1080
    scale = LogScale.of([row[key] / 1e6 for row in rows for key, _, _ in AMOUNTS])
    yield from _svg_frame(left, right, scale, TITLES[1], "rate", "")
    room = (right - left) / len(rows)
    for at, row in enumerate(rows):
        middle = left + room * (at + 0.5)
        yield _svg_text(middle, BOTTOM + 16, f"{row['factor']}x")
        for (key, _, colour), shift in zip(AMOUNTS, (-0.38, 0.0), strict=True):
            value, x = row[key] / 1e6, middle + shift * room
            top = scale.at(value)
            size = f'width="{0.38 * room:.1f}" height="{BOTTOM - top:.1f}"'
            yield f'<rect x="{x:.1f}" y="{top:.1f}" {size} fill="{colour}"/>'
            yield _svg_text(x + 0.19 * room, top - 4, f"{value:.3g}")
    for at, (_, name, colour) in enumerate(AMOUNTS):
        yield from _svg_legend(left + at * 140, colour, name)


def _svg_frame(left: float, right: float, scale: LogScale, title: str, below: str, beside: str) -> Iterator[str]:
    """Yield the SVG of one panel's frame: grid lines at powers of ten, its title and the labels of its axes."""
    middle = (left + right) / 2
    for power in range(scale.low, scale.high + 1):
        y = scale.at(10.0**power)
        yield f'<path d="M{left} {y:.1f}H{right}" stroke="#ddd"/>'
        yield _svg_text(left - 6, y + 4, f"{10.0**power:g}", "end")
    yield _svg_text(middle, TOP - 16, title)
    yield _svg_text(middle, BOTTOM + 34, below)
    yield f'<g transform="translate({left - 48} {(TOP + BOTTOM) / 2}) rotate(-90)">{_svg_text(0, 0, beside)}</g>'


def _svg_legend(x: float, colour: str, name: str) -> Iterator[str]:
    yield f'<rect x="{x}" y="{HEIGHT - 32}" width="12" height="12" fill="{colour}"/>'
    yield _svg_text(x + 17, HEIGHT - 21, name, "start")


def _svg_text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
