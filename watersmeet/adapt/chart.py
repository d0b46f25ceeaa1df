"""Advice as a picture."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.errors import DefinitionError

COLOURS = ("#1b6ca8", "#3a9e6f", "#e0912f", "#c0392b")


def draw(
    path: str | os.PathLike[str],
    rows: Sequence[Mapping[str, Any]],
    curves: Mapping[int, Mapping[int, float]],
    every: float,
) -> None:
    """Write a PNG: the seconds of a batch by nodes, the recommended ones marked; state and network by rate.

    Raises:
        DefinitionError: If matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise DefinitionError("A plot needs matplotlib: pip install matplotlib.") from None
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _batches(left, rows, curves, every)
    _amounts(right, rows)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    figure.savefig(path, dpi=120, format="png")


def _batches(
    axes: Any, rows: Sequence[Mapping[str, Any]], curves: Mapping[int, Mapping[int, float]], every: float
) -> None:
    for row, colour in zip(rows, COLOURS, strict=True):
        curve = curves[row["factor"]]
        label = f"{row['factor']}x: {row['strategy']}, {row['nodes']} node{'s' * (row['nodes'] > 1)}"
        axes.plot(list(curve), list(curve.values()), color=colour, marker=".", label=label)
        axes.plot(row["nodes"], row["batchSeconds"], color=colour, marker="o", markersize=10, markerfacecolor="white")
    axes.axhline(every, color="black", linestyle="--", linewidth=1, label=f"next batch due, {every:g} s")
    axes.set(
        yscale="log",
        xlabel="nodes",
        ylabel="seconds of a batch",
        title="Predicted batch time, recommended nodes circled",
    )
    axes.locator_params(axis="x", integer=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)


def _amounts(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw state and network as bars beside each other, by rate."""
    for key, label, shift, colour in (
        ("stateBytes", "state, MB", -0.2, "#5b7083"),
        ("networkBytesPerSecond", "network, MB/s", 0.2, "#b58900"),
    ):
        values = [row[key] / 1e6 for row in rows]
        bars = axes.bar([at + shift for at in range(len(rows))], values, 0.38, color=colour, label=label)
        axes.bar_label(bars, [f"{value:.3g}" for value in values], fontsize="x-small", padding=2)
    axes.set_xticks(range(len(rows)), [f"{row['factor']}x" for row in rows])
    axes.set(yscale="log", xlabel="rate", title="State and network")
    axes.margins(y=0.15)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(fontsize="small")
