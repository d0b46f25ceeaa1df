"""Draws the spilling thesis' figures 5.3 to 5.20: means over seeds, with the least and the most as bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.spilling.runs import CEILING, Measure

Curves = Mapping[str, Mapping[Measure, NDArray[np.int64]]]
"""By name of a curve: for each measure a row a seed, with a value for each batch."""
COLOURS = ("#2a6f97", "#e07a5f", "#81b29a", "#9a8c98", "#f2cc8f")
LABELS: Mapping[Measure, str] = {
    "results": "results so far",
    "spilled": "tuples spilled so far",
    "unspilled": "tuples unspilled so far",
    "purged": "tuples invalidated so far",
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the thesis' plots.

    Attributes:
        figure: Its number.
        measure: What is drawn.
        bars: Whether only the end of the run is.
    """

    figure: str
    measure: Measure
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Plots beside each other.

    Attributes:
        name: What they are of.
        curves: The curves, the same in each.
        panels: The plots.
        batch: Seconds of a batch.
        phase: Seconds of a phase.
    """

    name: str
    curves: Curves
    panels: Sequence[Panel]
    batch: float
    phase: float


def draw(path: Path, title: str, rows: Sequence[Row]) -> None:
    """Write rows of plots as one PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    wide = max(len(row.panels) for row in rows)
    figure, axes = pyplot.subplots(
        len(rows), wide, figsize=(4.6 * wide, 4.2 * len(rows) + 0.4), constrained_layout=True, squeeze=False
    )
    for line, row in zip(axes, rows, strict=True):
        for axis, panel in zip(line, row.panels, strict=True):
            (_draw_bars if panel.bars else _draw_curves)(axis, panel, row)
            axis.set_title(f"Figure {panel.figure}: {row.name}", fontsize=10)
            axis.yaxis.set_major_formatter("{x:,.0f}")
            axis.grid(alpha=0.3)
    figure.suptitle(title)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def _colour(at: int, name: str) -> str:
    return "#555555" if name == CEILING else COLOURS[at % len(COLOURS)]


def _draw_curves(axis: Any, panel: Panel, row: Row) -> None:
    for at, (name, series) in enumerate(row.curves.items()):
        rows = series[panel.measure]
        if name == CEILING and panel.measure in ("spilled", "unspilled"):
            continue
        minutes = row.batch / 60 * np.arange(1, rows.shape[1] + 1)
        line = "--" if name == CEILING else "-"
        axis.plot(minutes, rows.mean(axis=0), color=_colour(at, name), ls=line, lw=1.6, label=name)
        axis.fill_between(minutes, rows.min(axis=0), rows.max(axis=0), color=_colour(at, name), alpha=0.15, lw=0)
    for start in np.arange(row.phase, row.batch * rows.shape[1], 2 * row.phase):
        axis.axvspan(start / 60, (start + row.phase) / 60, color="#000000", alpha=0.05, lw=0)
    axis.set(xlabel="minutes of stream time (grey: slow)", ylabel=LABELS[panel.measure])
    axis.set_xlim(0)
    axis.set_ylim(0)
    axis.legend(frameon=False, loc="upper left", fontsize=8)


def _draw_bars(axis: Any, panel: Panel, row: Row) -> None:
    """Draw the ends of runs as shares of the same seed's run without a limit: seeds differ more than curves do."""
    curves = row.curves
    whole = curves[CEILING][panel.measure][:, -1]
    percentages = {name: 100 * curve[panel.measure][:, -1] / whole for name, curve in curves.items() if name != CEILING}
    means = np.array([values.mean() for values in percentages.values()])
    apart = np.array([(m - v.min(), v.max() - m) for m, v in zip(means, percentages.values(), strict=True)]).T
    bars = axis.bar(
        [*percentages], means, yerr=apart, capsize=4, color=[_colour(at, "") for at in range(len(percentages))]
    )
    axis.bar_label(bars, [f"{mean:.1f}" for mean in means], label_type="center", fontsize=8, color="white")
    axis.set(ylabel=f"{LABELS[panel.measure].removesuffix(' so far')} at the end, % of the run with no limit")
    axis.tick_params("x", labelsize=8)
    axis.set_ylim(0, 100)
