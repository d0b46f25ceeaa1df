"""Draws the pictures of these pages: `.venv/bin/python docs/figures.py` writes docs/figures/*.svg anew."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from watersmeet.placement import ATR, CTR, DSJ, PSP, Central, Hash, Placement, Strategy
from watersmeet.predicate.model import Column
from watersmeet.state.chunks.chunk import WHOLE, Bucket, Chunk, Place
from watersmeet.state.manifest.view import StateView, StreamView

FOLDER = Path(__file__).parent / "figures"
INK, PAPER, FAINT, SOFT = "#22303c", "#ffffff", "#c9ced2", "#eef1f3"
STREAM = {"a": "#e07a5f", "b": "#2a6f97", "c": "#6a994e"}
RING = ("#cfe8ea", "#9ad1d4", "#5fb0bf", "#3a86a8")


def main() -> None:
    """Draw all pictures."""
    plt.rcParams.update({"svg.hashsalt": "watersmeet", "svg.fonttype": "path", "font.size": 10, "text.color": INK})
    FOLDER.mkdir(exist_ok=True)
    for name, draw in {
        "data-flow": data_flow,
        "windows": windows,
        "disorder": disorder,
        "watermark": watermark,
        "ring": ring,
        "placement-psp": partial(placement, "PSP"),
        "placement-atr": partial(placement, "ATR"),
        "placement-ctr": partial(placement, "CTR"),
        "placement-dsj": partial(placement, "DSJ"),
        "placement-hash": partial(placement, "Hash"),
        "placement-central": partial(placement, "Central"),
    }.items():
        figure = draw()
        figure.savefig(FOLDER / f"{name}.svg", facecolor=PAPER, metadata={"Date": None})
        plt.close(figure)


def canvas(width: float, height: float) -> tuple[Any, Any]:
    """Return a figure and an axis whose unit is a tenth of an inch."""
    figure = plt.figure(figsize=(width, height), facecolor=PAPER)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_xlim(0, width * 10)
    axis.set_ylim(0, height * 10)
    axis.axis("off")
    return figure, axis


def box(
    axis: Any,
    x: float,
    y: float,
    w: float,
    h: float,
    text: str = "",
    *,
    fill: str = SOFT,
    note: str = "",
    size: float = 10,
) -> None:
    """Draw a box with a title and a note under it."""
    shape = FancyBboxPatch((x, y), w, h, boxstyle="round,pad=0,rounding_size=0.8", fc=fill, ec=INK, lw=1)
    axis.add_patch(shape)
    middle = y + h / 2
    lines = note.count("\n") + 1 if note else 0
    top = middle + 0.75 * lines
    axis.text(x + w / 2, top, text, ha="center", va="center", fontsize=size, weight="bold")
    if note:
        axis.text(x + w / 2, top - 1.3, note, ha="center", va="top", fontsize=8, linespacing=1.25)


def arrow(axis: Any, start: tuple[float, float], end: tuple[float, float], text: str = "", **style: Any) -> None:
    """Draw an arrow, with a word beside it."""
    look: dict[str, Any] = {"color": INK, "lw": 1.2, "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0} | style
    axis.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", **look))
    if text:
        axis.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.8, text, ha="center", fontsize=8)


def data_flow() -> Any:
    """A micro-batch from the sources to the sink, and the state it leaves behind."""
    figure, axis = canvas(11.6, 5.2)
    for at, (name, colour) in enumerate(STREAM.items()):
        y = 39 - 7 * at
        box(axis, 2, y, 12, 5, f"stream {name}", fill=colour + "44")
        arrow(axis, (14, y + 2.5), (19, 34.5))
    box(axis, 19, 29.5, 13, 10, "union", note="prune columns\ntag the stream\nhash the row")
    arrow(axis, (32, 34.5), (37, 34.5))
    box(axis, 37, 29.5, 14, 10, "intake", note="late? rejected?\nwho keeps it:\nwrite chunks")
    arrow(axis, (51, 34.5), (56, 34.5))
    box(axis, 56, 29.5, 12, 10, "hop 1", note="probe the\nsecond stream")
    arrow(axis, (68, 34.5), (74, 34.5), "partial")
    box(axis, 74, 29.5, 12, 10, "hop m-1", note="probe the\nlast stream")
    arrow(axis, (86, 34.5), (91, 34.5))
    box(axis, 91, 29.5, 10, 10, "fuse", note="results as\nParquet")
    arrow(axis, (101, 34.5), (105, 34.5))
    box(axis, 105, 29.5, 9, 10, "sink", note="exactly once\nfor files")
    axis.text(71, 28, "shuffle, or none\nif all tasks see\nthe store", ha="center", va="top", fontsize=8)

    axis.add_patch(FancyBboxPatch((55, 9), 32, 10.5, boxstyle="round,pad=0,rounding_size=0.8", fc="none", ec=FAINT))
    for node, colour in enumerate(RING):
        box(axis, 57 + 7.4 * node, 11, 6, 5, f"node {node}", fill=colour, size=9)
    axis.text(71, 17.2, "chunks: immutable slices of time, with owners", ha="center", fontsize=8)
    arrow(axis, (48, 29.5), (57, 19.5), lw=1)
    arrow(axis, (64, 19.5), (64, 29.5), lw=1)
    arrow(axis, (80, 19.5), (80, 29.5), lw=1)
    axis.text(54.2, 25.5, "append", ha="left", va="center", fontsize=8)
    axis.text(64.8, 22, "probe", ha="left", va="center", fontsize=8)
    axis.text(80.8, 24.5, "probe", ha="left", va="center", fontsize=8)

    box(axis, 91, 9, 23, 10.5, "manifest of batch b", note="live chunks and owners,\nwatermark, statistics")
    arrow(axis, (96, 29.5), (96, 19.5), "")
    axis.text(97, 24.5, "reports of all nodes", ha="left", va="center", fontsize=8)
    box(
        axis,
        19,
        9,
        32,
        10.5,
        "plan of batch b + 1",
        note="placement, join orders, merges:\na pure function that travels to every task",
    )
    axis.plot([102, 102, 35], [9, 5, 5], color=INK, lw=1.2)
    arrow(axis, (35, 5), (35, 9))
    axis.text(71, 5.7, "after the commit", ha="center", fontsize=8)
    arrow(axis, (44, 19.5), (44, 29.5))
    axis.text(2, 48.5, "One micro-batch", fontsize=14, weight="bold", va="center")
    axis.text(22, 48.4, "tuples flow to the right; no partial result is ever stored", fontsize=10, va="center")
    return figure


def dots(axis: Any, y: float, times: list[float], admitted: list[bool], colour: str) -> None:
    """Draw tuples on a line of time: full if the window admits them."""
    axis.plot([2, 27.4], [y, y], color=FAINT, lw=1, zorder=0)
    for time, full in zip(times, admitted, strict=True):
        axis.scatter([time], [y], s=62, fc=colour if full else PAPER, ec=colour, lw=1.4, zorder=2)


def windows() -> Any:
    """The four kinds of window, for a result at T = 24."""
    figure = plt.figure(figsize=(9, 4.3), facecolor=PAPER)
    axis = figure.add_axes((0.225, 0.13, 0.755, 0.76))
    times = [4.0, 7.0, 10.0, 13.0, 14.5, 17.0, 20.0, 22.0, 24.0, 26.0]
    rows: list[tuple[str, str, list[tuple[float, float]], Any]] = [
        ("sliding, 10 s", STREAM["a"], [(14, 24)], lambda t: 14 < t <= 24),
        ("hopping, 12 s every 6 s", STREAM["b"], [(12, 24), (18, 30)], lambda t: 12 < t <= 24),
        ("count, last 4 rows", STREAM["c"], [(16.2, 24.6)], lambda t: t in (17.0, 20.0, 22.0, 24.0)),
        ("unbounded", "#7d6b91", [(2, 24.6)], lambda t: t <= 24),
    ]
    for at, (name, colour, spans, admits) in enumerate(rows):
        y = 3.0 - at
        for lane, (low, high) in enumerate(spans):
            bottom, top = y - 0.26 + 0.09 * lane, y + 0.26 - 0.09 * lane
            axis.fill_between([low, min(high, 27.4)], bottom, top, color=colour, alpha=0.16, lw=0)
        dots(axis, y, times, [admits(time) for time in times], colour)
        axis.text(1.5, y, name, ha="right", va="center", fontsize=10)
    axis.axvline(24, color=INK, lw=1.2, ls=(0, (4, 3)), zorder=1)
    axis.text(24, 3.5, "T = 24", ha="center", va="bottom", weight="bold")
    axis.text(26, 3.34, "not yet", ha="center", va="bottom", fontsize=8)
    axis.set_xlim(1.6, 27.4)
    axis.set_ylim(-0.5, 3.55)
    axis.set_yticks([])
    axis.set_xticks(range(4, 28, 2))
    axis.spines[["left", "right", "top"]].set_visible(False)
    axis.set_xlabel("event time, seconds; tuples arrive in order of time. Full: the window admits the tuple at T")
    return figure


def disorder() -> Any:
    """The range of a tuple out of order has two sides."""
    figure, axis = canvas(8.4, 3.5)

    def x(time: float) -> float:
        return 8 + time * 2.9

    for y, name in ((22, "b"), (12, "a")):
        axis.plot([x(0), x(25)], [y, y], color=FAINT, lw=1)
        axis.text(4, y, f"stream {name}", va="center", ha="center", weight="bold", color=STREAM[name])
    for time in range(0, 26, 2):
        axis.text(x(time), 6.3, str(time), ha="center", fontsize=8)
        axis.plot([x(time)] * 2, [8, 8.6], color=FAINT, lw=1)
    axis.fill_between([x(-0.0), x(18)], 20.6, 23.4, color=STREAM["a"], alpha=0.16, lw=0)
    axis.scatter([x(12)], [22], s=90, fc=STREAM["b"], ec=INK, zorder=3)
    axis.text(x(12), 24.4, "b@12, batch 1", ha="center", fontsize=9)
    axis.scatter([x(8)], [12], s=90, fc=STREAM["a"], ec=INK, zorder=3)
    axis.text(x(8), 9.4, "a@8, batch 2", ha="center", fontsize=9)
    axis.plot([x(8), x(12)], [12, 22], color=INK, lw=1.2, zorder=2)
    axis.text(x(10.4), 17.1, "a result: T = 12", ha="left", va="center", fontsize=9)
    axis.text(
        x(9), 27.2, "what a@8 must look at: both windows are 10 s, so b.ts > 8 - 10 and b.ts < 8 + 10", ha="center"
    )
    axis.text(4, 31.8, "A tuple out of order probes both ways", fontsize=13, weight="bold")
    axis.text(x(12.5), 3.4, "event time, seconds", ha="center", fontsize=9)
    return figure


def watermark() -> Any:
    """The join's watermark over batches, held by the slowest stream."""
    figure = plt.figure(figsize=(8.4, 3.4), facecolor=PAPER)
    axis = figure.add_axes((0.08, 0.16, 0.66, 0.72))
    batches = list(range(7))
    marks: dict[str, list[float]] = {
        "a": [8, 14, 19, 27, 33, 39, 44],
        "b": [3, 9, 12, 12, 12, 24, 36],
        "c": [6, 11, 17, 22, 29, 35, 40],
    }
    for name, values in marks.items():
        axis.plot(batches, values, color=STREAM[name], lw=1.6, marker="o", ms=4)
        axis.text(6.15, values[-1], f"stream {name}: max ts - delay", va="center", fontsize=9, color=STREAM[name])
    least = [min(values[at] for values in marks.values()) for at in batches]
    axis.step(batches, least, where="post", color=INK, lw=2.4)
    axis.text(6.15, 31.5, "join watermark (black):\nthe least, never falling", va="center", fontsize=9, weight="bold")
    axis.annotate(
        "b is silent and holds it", (3, 12), (2.6, 2.5), fontsize=9, arrowprops={"arrowstyle": "-", "color": INK}
    )
    axis.set_xlabel("batch")
    axis.set_ylabel("event time, s")
    axis.spines[["right", "top"]].set_visible(False)
    axis.set_ylim(0, 46)
    return figure


def ring() -> Any:
    """PSP: each stream's state is cut by age over the ring."""
    figure, axis = canvas(8.4, 3.5)
    cuts = {"a": (10, 26, 43, 60, 78), "b": (10, 31, 47, 63, 78), "c": (10, 24, 39, 58, 78)}
    for at, (name, borders) in enumerate(cuts.items()):
        y = 21 - 6 * at
        axis.text(5, y + 2, f"stream {name}", ha="center", va="center", weight="bold", color=STREAM[name])
        for node, (low, high) in enumerate(pairwise(borders)):
            colour = RING[3 - node]
            axis.add_patch(Rectangle((low, y), high - low, 4, fc=colour, ec=PAPER, lw=1.6))
            axis.text((low + high) / 2, y + 2, f"node {3 - node}", ha="center", va="center", fontsize=9)
    arrow(axis, (10, 6.3), (78, 6.3), lw=1)
    axis.text(10, 3.6, "oldest: the tail", ha="left", fontsize=9)
    axis.text(78, 3.6, "newest: the head", ha="right", fontsize=9)
    axis.text(4, 31.5, "PSP cuts each stream's state by age; every tuple is kept once", fontsize=13, weight="bold")
    axis.text(
        4,
        27.6,
        "Borders follow the work and move with time: whole chunks change owner, no row is copied.",
        fontsize=9.5,
    )
    return figure


SECOND = 1_000_000
WINDOW, NOW = 12, 24
PLACED: dict[str, tuple[Strategy, str]] = {
    "PSP": (PSP(4), "cut by age round a ring: each slice on one node, a probe visits all nodes in its range"),
    "ATR": (
        ATR(4, segment="12 seconds", master=0),
        "stream a is the master, each segment on one node; the others follow",
    ),
    "CTR": (CTR(4, segment="3 seconds", copies=2), "segments of each stream placed on their own, here in two copies"),
    "DSJ": (DSJ(4, slices=4), "slices of time shared by all streams: what came together is together"),
    "Hash": (Hash(4), "by the hash of the join attribute: equal values meet on one node"),
    "Central": (Central(), "everything on one node"),
}


def settle(strategy: Strategy) -> tuple[StateView, Placement]:
    """Return the state and the placement after some seconds of even streams, one batch a second."""
    streams = tuple(StreamView(WINDOW * SECOND, None, 0, 0, WINDOW * SECOND, 10.0) for _ in STREAM)
    equalities = ((Column(0, 2), Column(1, 2)), (Column(1, 2), Column(2, 2)))
    ties = (frozenset({0, 1}), frozenset({1, 2}))
    state = StateView(streams, equalities=equalities, ties=ties, names=tuple(STREAM))
    for second in range(NOW):
        layout = strategy.plan(state)
        old = [c for c in layout.assign_owners(state.chunks) if c.low >= (second - WINDOW) * SECOND]
        chunks = (*old, *(chunk for stream in range(3) for chunk in write_chunks(layout.placement, stream, second)))
        view = StreamView(WINDOW * SECOND, (second + 1) * SECOND - 1, 10, SECOND, WINDOW * SECOND, 10.0)
        state = replace(state, streams=(view,) * 3, chunks=chunks)
        state = replace(state, notes=layout.keep(state))
    return state, strategy.plan(state).placement


def write_chunks(placement: Placement, stream: int, second: int) -> list[Chunk]:
    """Return the chunks of a second of a stream, as an intake task would write them."""
    chunks = []
    for half in (0, SECOND // 2):
        time = second * SECOND + half
        start = int(placement.starts(stream, np.array([time]))[0])
        fields = tuple(column.field for column in placement.stored_by(stream))
        kinds = [Bucket(fields[0], placement.nodes, n, fields) for n in range(placement.nodes)] if fields else [WHOLE]
        chunks += [
            Chunk(
                id=f"{stream}-{time}-{kind.number}",
                stream=stream,
                batch=second,
                start=start,
                end=start + placement.slice_length(stream),
                bucket=kind,
                rows=5,
                bytes=100,
                low=time,
                high=time + SECOND // 2 - 1,
                owners=placement.owners(stream, start, kind),
                place=Place("", 0, 0, 0),
            )
            for kind in kinds
        ]
    return chunks


def placement(name: str) -> Any:
    """Who keeps which tuples under a strategy, as its own code says, and where a new tuple probes."""
    strategy, words = PLACED[name]
    state, layout = settle(strategy)
    figure, axis = canvas(9, 3.1)
    axis.text(2, 28.6, name, fontsize=14, weight="bold", va="center")
    axis.text(14, 28.5, words, fontsize=9.5, va="center")
    scale, left = 70 / WINDOW, 8
    for row, (stream, colour) in enumerate(STREAM.items()):
        y = 19.5 - 6.5 * row
        axis.text(4.5, y + 2.5, stream, fontsize=12, weight="bold", color=colour, va="center", ha="center")
        for chunk in (c for c in state.chunks if c.stream == row and c.low >= (NOW - WINDOW) * SECOND):
            x, width = left + (chunk.low / SECOND - NOW + WINDOW) * scale, 0.5 * scale
            parts = chunk.bucket.of if chunk.bucket != WHOLE else len(chunk.owners)
            for at, node in enumerate(sorted(chunk.owners)):
                part = chunk.bucket.number if chunk.bucket != WHOLE else at
                height = 5 / parts
                axis.add_patch(Rectangle((x, y + part * height), width, height, fc=RING[node], ec="none"))
        axis.add_patch(Rectangle((left, y), 70, 5, fc="none", ec=INK, lw=0.8))
    arrow(axis, (left, 3.4), (left + 72, 3.4), color=FAINT)
    axis.text(left, 1.6, f"{WINDOW} s ago", fontsize=8, va="center")
    axis.text(left + 70, 1.6, "now", fontsize=8, va="center", ha="right")
    for node in range(layout.nodes):
        axis.add_patch(Rectangle((82.5, 20.8 - 4.4 * node), 2.2, 2.2, fc=RING[node], ec=INK, lw=0.6))
        axis.text(85.2, 21.9 - 4.4 * node, f"{node}", fontsize=9, va="center")
    axis.text(82.5, 24.8, "node", fontsize=8, va="center")
    return figure


if __name__ == "__main__":
    main()
