"""Advice before a join starts: a strategy, its nodes and their costs, at the current rate and at multiples of it.

Its chart is drawn without a library as SVG; other formats need matplotlib.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from watersmeet.adapt.auto import Auto
from watersmeet.adapt.forecast import FURTHEST, Forecast, SampleMeasurements, Settings
from watersmeet.adapt.pricing import describe_ring_limit
from watersmeet.errors import DefinitionError
from watersmeet.formatting import format_bytes, format_number, format_seconds, render_table, shorten

COLOURS = ("#1b6ca8", "#3a9e6f", "#e0912f", "#c0392b")
AMOUNTS = (("stateBytes", "state, MB", "#5b7083"), ("networkBytesPerSecond", "network, MB/s", "#b58900"))
"""The bars: a field of the rows, its label, and its colour."""
TITLES = ("Predicted batch time, recommended nodes circled", "State and network")
WIDTH, HEIGHT = 1100, 450
TOP, BOTTOM = 40, 360
TICKS = 8
"""The approximate number of labels below the curves."""
FACTORS = (1, 2, 5, 10)
"""The multiples of the rate that the advice covers."""
FEW_PAIRS = 10_000
"""With fewer pairs per batch, the time of a pair is dominated by the fixed cost of the batch."""
HEADINGS = (
    *("rate", "tuples/s", "results/s", "strategy", "nodes", "at least", "batch s", "fastest"),
    *("holds tuples/s", "and results/s", "state rows", "state", "network/s"),
)


@dataclass(frozen=True)
class Advice:
    """A recommendation for running a join; returned by `wm.advise`.

    Attributes:
        rows: The recommendation and predictions for each multiple of the rate.
        curves: For each multiple the seconds of a batch by the number of nodes, each under the best strategy for it.
        measured: The measurements of the sample.
        settings: The settings for which the advice holds.
        strategy: The `strategy=` with which the join runs as recommended.
        notes: Caveats, as sentences.
    """

    rows: list[dict[str, Any]]
    curves: Mapping[int, Mapping[int, float]]
    measured: Mapping[str, Any]
    settings: Settings
    strategy: Auto
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return render_advice(self.measured, self.rows, self._title(), self.notes)

    def _title(self) -> str:
        goal = "the fewest nodes that keep up" if self.settings.goal is None else f"goal {self.settings.goal}"
        return f"Advice for a batch every {self.settings.every:g} s, {goal}: strategy={self.strategy.source()}"

    def show(self) -> None:
        """Print the measurements, and the advice as a table."""
        print(self)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the advice: the seconds of a batch by nodes, and state and network by rate.

        Args:
            path: A file whose name ends in `.svg`; in another format, such as `.png`, matplotlib draws it.

        Raises:
            DefinitionError: If that needs matplotlib, which is missing, or it doesn't know the format.
        """
        draw(path, self.rows, self.curves, self.settings.every)


def build_advice(sample: SampleMeasurements, settings: Settings, own: Auto | None = None) -> Advice:
    """Return a recommendation for running a join.

    Args:
        sample: The measurements of a sample of its streams.
        settings: The settings.
        own: The join's own strategy, if it is an Auto.

    Raises:
        DefinitionError: If a stream's rate is unknown, or if the settings have a rate for an unknown stream.
    """
    check_streams("rates", settings.rates, sample.state.names)
    forecast = Forecast(sample, settings)
    curves = {factor: forecast.curve(factor) for factor in FACTORS}
    rows = [forecast.row(factor) for factor in FACTORS]
    notes = [*_sample_notes(sample), *(note for row in rows for note in _row_notes(row, settings))]
    notes += [] if own is None else _own_strategy_notes(own, forecast, rows[0])
    return Advice(rows, curves, forecast.measurements, settings, forecast.strategy, tuple(notes))


def check_streams(what: str, by_name: object, streams: Sequence[str]) -> None:
    """Reject a value that is not a dict by the names of the join's streams.

    Args:
        what: How an error calls it.
        by_name: The value.
        streams: The names.

    Raises:
        DefinitionError: If it isn't one.
    """
    if not isinstance(by_name, Mapping):
        raise DefinitionError(
            f"{what}={shorten(by_name)}: give a dict by the streams' names, such as {{'{streams[0]}': ...}}."
        )
    for name in by_name:
        if name not in streams:
            raise DefinitionError(f"{what}: the join has no stream '{name}'; it has {', '.join(streams)}.")


def _sample_notes(sample: SampleMeasurements) -> list[str]:
    """Return caveats about a sample: windows that were not full, few pairs, and streams without a time window."""
    notes, names, state = [], sample.state.names, sample.state
    longest = state.reach / 1e6
    if sample.fill_seconds < longest:
        notes.append(
            f"The sample fills windows for {sample.fill_seconds:.3g} s, the longest is {longest:g} s: the results "
            "of full windows are extrapolated."
        )
    pairs = sum(hop.pairs for hop in state.hops)
    if pairs < FEW_PAIRS:
        notes.append(
            f"There were few pairs ({pairs:.0f} per batch), so their time is a rough estimate; use a longer sample."
        )
    endless = [name for at, name in enumerate(names) if state.streams[at].window is None and at not in sample.constant]
    if endless:
        notes.append(f"{', '.join(endless)}: no time window, so the state shown is that of the sample, and will grow.")
    return notes


def _row_notes(row: Mapping[str, Any], settings: Settings) -> list[str]:
    """Return caveats at a multiple of the rate: that no allowed number of nodes keeps up, or what limits a ring."""
    notes, at = [], f"At {row['factor']}x the rate"
    nodes = f"{row['nodes']} node{'s' * (row['nodes'] > 1)}"
    late = f"{format_number(row['batchSeconds'])} s on {nodes} and the next is due after {settings.every:g} s"
    if row["nodesNeeded"] is None:
        most = max(settings.max_nodes, FURTHEST)
        notes.append(f"{at} a batch takes {late}: no strategy on up to {most} nodes keeps up.")
    elif row["nodesNeeded"] > settings.max_nodes:
        notes.append(f"{at} a batch takes {late}: {row['nodesNeeded']} nodes would keep up.")
    if row["longestRing"] is not None and row["longestRing"] < settings.max_nodes:
        notes.append(f"{at} {describe_ring_limit(row['longestRing'], settings.bandwidth)}")
    return notes


def _own_strategy_notes(own: Auto, forecast: Forecast, row: Mapping[str, Any]) -> list[str]:
    """Return a note if the join would choose something other than the recommendation."""
    choice = forecast.choose(own, 1)
    if (choice.name, choice.nodes) == (row["strategy"], row["nodes"]):
        return []
    return [
        f"The join as it is defined, with {own.source()}, would take {choice.label} at this rate: to follow the "
        "advice, give it the strategy above."
    ]


# -- as text


def render_advice(
    measurements: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], title: str, notes: Sequence[str]
) -> str:
    """Return the measurements, the rows as a table, and the notes as text."""
    lines = [*_measurement_lines(measurements), "", title, *render_table(HEADINGS, [_row_cells(row) for row in rows])]
    return "\n".join([*lines, *(f"! {note}" for note in notes)])


def _measurement_lines(measurements: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of text on what was measured: pairs, streams with their probe orders, and Python predicates."""
    yield (
        f"Measured on {measurements['tuples']:,} tuples over {measurements['seconds']:.3g} s of event time: "
        f"{format_seconds(measurements['pairSeconds'])} a pair, {measurements['rowBytes']:.0f} bytes a tuple"
    )
    for name, stream in measurements["streams"].items():
        if "rows" in stream:
            yield f"  {name}: a table of {stream['rows']:,} rows"
            continue
        order = ", then ".join(f"{to} ({part:.2%} match)" for to, part in stream["matching"].items())
        suffix = " as given" if stream["given"] else ""
        yield f"  {name}: {format_number(stream['tuplesPerSecond'])} tuples/s{suffix}, probe {order}"
    for name, cost in measurements["predicates"].items():
        each = cost["ms"] / 1000 / cost["pairs"] if cost["pairs"] else 0.0
        part = cost["matches"] / cost["pairs"] if cost["pairs"] else 0.0
        yield f"  {name}(): {format_seconds(each)} a call, {part:.2%} match"


def _row_cells(row: Mapping[str, Any]) -> list[str]:
    """Return the predictions at a multiple of the rate as the cells of a table row, in the order of `HEADINGS`."""
    numbers = [format_number(row[key]) for key in ("tuplesPerSecond", "resultsPerSecond")]
    most = [format_number(row[key]) for key in ("mostTuplesPerSecond", "mostResultsPerSecond", "stateRows")]
    bytes_ = [format_bytes(row[key]) for key in ("stateBytes", "networkBytesPerSecond")]
    nodes = [str(row["nodes"]), str(row["nodesNeeded"] or "-"), format_number(row["batchSeconds"])]
    fastest = f"{format_number(row['fastestSeconds'])} on {row['fastestNodes']}"
    return [f"{row['factor']}x", *numbers, row["strategy"], *nodes, fastest, *most, *bytes_]


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
    """Add a curve of the seconds of a batch by number of nodes for each load; a circle marks the recommendation."""
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
    """Add state and network as bars beside each other, by rate."""
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
    """Yield the SVG of the left panel: a curve for each multiple of the rate, and when the next batch is due."""
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
    """Yield the SVG of the right panel: bars for state and network beside each other, for each multiple of the rate."""
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
