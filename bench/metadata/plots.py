"""The picture of the bench of metadata: live rows, batch times, purging and marks over event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]
WITH, WITHOUT, NEEDED = "#2a6f97", "#e07a5f", "#22303c"


def draw(path: Path, rows: Rows, title: str) -> None:
    """Draw what `bench.metadata.auctions.by_batch` returned."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(2, 2, figsize=(13, 8), sharex=True)
    _live(axes[0][0], rows)
    _times(axes[0][1], rows)
    _ratio(axes[1][0], rows)
    _marks(axes[1][1], rows)
    for axis in axes[1]:
        axis.set_xlabel("minutes of event time")
    figure.suptitle(f"Auctions ⋈ bids ⋈ payments with no window: {title}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _line(axis: Axes, rows: Rows, name: str, **style: Any) -> None:
    there = [row for row in rows if row[name] != ""]
    if there:
        axis.plot([row["minutes"] for row in there], [row[name] for row in there], **style)


def _live(axis: Axes, rows: Rows) -> None:
    axis.set_title("rows in state", loc="left")
    _line(axis, rows, "without", color=WITHOUT, label="without metadata, as far as it was run")
    _line(axis, rows, "live", color=WITH, label="with metadata")
    _line(axis, rows, "needed", color=NEEDED, linestyle="--", linewidth=1, label="needed by any join")
    axis.yaxis.set_major_formatter("{x:,.0f}")
    _from_zero(axis)


def _times(axis: Axes, rows: Rows) -> None:
    axis.set_title("milliseconds a batch of 5 s of events, log scale", loc="left")
    _line(axis, rows, "ms_without", color=WITHOUT, linewidth=0.8, label="without metadata")
    _line(axis, rows, "ms", color=WITH, linewidth=0.8, label="with metadata")
    _line(axis, rows, "cpu_ms", color="#81b29a", linewidth=0.8, label="CPU of the join, with metadata")
    _line(axis, rows, "purge_ms", color="#9c6644", linewidth=0.8, label="CPU of purging in it")
    # A batch that others on the machine hold up would flatten all others.
    axis.set_yscale("log")
    axis.legend(fontsize=8)


def _ratio(axis: Axes, rows: Rows) -> None:
    axis.set_title("rows in state with metadata, against those needed", loc="left")
    _line(axis, rows, "ratio", color=WITH)
    axis.axhline(1.3, color=NEEDED, linestyle=":", linewidth=1, label="wanted from ten minutes on: at most 1.3")
    _from_zero(axis)


def _marks(axis: Axes, rows: Rows) -> None:
    axis.set_title("kB of marks: what keys and punctuations deny", loc="left")
    axis.plot([row["minutes"] for row in rows], [row["mark_bytes"] / 1000 for row in rows], color=WITH, label="marks")
    _from_zero(axis)


def _from_zero(axis: Axes) -> None:
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8)
