"""Draws the MJoin paper's figures 8 to 11: the median over seeds as a line, the least and the most as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from papers.mjoin.feed import Order
from papers.mjoin.runs import ROOM, Trace

Traces = Mapping[tuple[Order, str], Sequence[Trace]]
COLOURS = ("#2a6f97", "#e07a5f", "#81b29a", "#9a8c98")


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the paper's plots.

    Attributes:
        figure: Its number in the paper.
        title: What it compares.
        order: In which order the news come.
        compared: The contenders that the paper compares: the one it favours, then the other.
        beside: Contenders of our own that tell why.
        measure: What is drawn.
    """

    figure: int
    title: str
    order: Order
    compared: tuple[str, str]
    beside: tuple[str, ...] = ()
    measure: Literal["seconds", "tuples"] = "seconds"


SCHEDULES = ("priority, value-oriented", "random, sequential")
APART = ("priority, sequential", "priority, equal quotas")
JOINS = ("MJoin", "XJoin")
OVERFLOW = f"XJoin, room for {ROOM:,}"
PANELS = (
    Panel(8, "schedules, news ordered", "ordered", SCHEDULES, APART),
    Panel(8, "schedules, news random", "random", SCHEDULES, APART),
    Panel(11, "purge every 100 or 1, news random", "random", ("MJoin", "MJoin, purge every 1")),
    Panel(9, "MJoin and XJoin, news ordered", "ordered", JOINS, ("MJoin, random streams", OVERFLOW)),
    Panel(9, "MJoin and XJoin, news random", "random", JOINS, ("MJoin, random streams", OVERFLOW)),
    Panel(10, "memory, news random", "random", JOINS, ("MJoin, random streams",), "tuples"),
)


def values(traces: Sequence[Trace], panel: Panel) -> Any:
    """Return a row a seed: milliseconds, or tuples."""
    return np.array([trace.tuples if panel.measure == "tuples" else 1000 * trace.seconds for trace in traces])


def draw(path: Path, marks: Sequence[int], traces: Traces) -> None:
    """Write all panels as one PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(15, 8.5), constrained_layout=True)
    for axis, panel in zip(axes.flat, PANELS, strict=True):
        _draw_panel(axis, marks, panel, traces)
    figure.suptitle("MJoin on a news feed: the paper's comparisons (solid) and what explains them (dashed)")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _draw_panel(axis: Any, marks: Sequence[int], panel: Panel, traces: Traces) -> None:
    from matplotlib.ticker import MaxNLocator

    for colour, name in zip(COLOURS, (*panel.compared, *panel.beside), strict=False):
        rows, main = values(traces[panel.order, name], panel), name in panel.compared
        axis.plot(
            marks, np.median(rows, axis=0), color=colour, ls="-" if main else "--", lw=2 if main else 1.2, label=name
        )
        axis.fill_between(marks, rows.min(axis=0), rows.max(axis=0), color=colour, alpha=0.25, lw=0)
    unit = "tuples in memory" if panel.measure == "tuples" else "CPU ms since the start"
    axis.set(title=f"Figure {panel.figure}: {panel.title}", xlabel="results so far", ylabel=unit)
    axis.set_xlim(0)
    axis.set_ylim(0)
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="upper left")
