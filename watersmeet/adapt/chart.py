"""Advice as a picture: an SVG needs nothing, other formats matplotlib."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from watersmeet.adapt import svg
from watersmeet.errors import DefinitionError

COLOURS = svg.COLOURS


def draw(
    path: str | os.PathLike[str],
    rows: Sequence[Mapping[str, Any]],
    curves: Mapping[int, Mapping[int, float]],
    every: float,
) -> None:
    """Write the seconds of a batch by nodes, the recommended ones marked, and state and network by rate.

    Raises:
        DefinitionError: If matplotlib is missing, or doesn't know the format.
    """
    ending = Path(path).suffix.lower()
    if ending == ".svg":
        Path(path).write_text(svg.picture(rows, curves, every), "utf-8")
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
    _batches(left, rows, curves, every)
    _amounts(right, rows)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    figure.savefig(path, dpi=120)


def _batches(
    axes: Any, rows: Sequence[Mapping[str, Any]], curves: Mapping[int, Mapping[int, float]], every: float
) -> None:
    for row, colour in zip(rows, COLOURS, strict=True):
        curve = curves[row["factor"]]
        axes.plot(list(curve), list(curve.values()), color=colour, marker=".", label=svg.label(row))
        axes.plot(row["nodes"], row["batchSeconds"], color=colour, marker="o", markersize=10, markerfacecolor="white")
    axes.axhline(every, color="black", linestyle="--", linewidth=1, label=f"next batch due, {every:g} s")
    axes.set(
        yscale="log",
        xlabel="nodes",
        ylabel="seconds of a batch",
        title=svg.TITLES[0],
    )
    axes.locator_params(axis="x", integer=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)


def _amounts(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw state and network as bars beside each other, by rate."""
    for (key, label, colour), shift in zip(svg.AMOUNTS, (-0.2, 0.2), strict=True):
        values = [row[key] / 1e6 for row in rows]
        bars = axes.bar([at + shift for at in range(len(rows))], values, 0.38, color=colour, label=label)
        axes.bar_label(bars, [f"{value:.3g}" for value in values], fontsize="x-small", padding=2)
    axes.set_xticks(range(len(rows)), [f"{row['factor']}x" for row in rows])
    axes.set(yscale="log", xlabel="rate", title=svg.TITLES[1])
    axes.margins(y=0.15)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(fontsize="small")
