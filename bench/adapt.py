"""Rates double in mid-run, as in the PSP paper's experiment 3: response time and balance with adaptation and without.

With it, the ring's length is chosen anew as the join runs and borders follow the counts; without it, the ring keeps the
length that was right at first, and its borders their ages.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import pyarrow as pa

import watersmeet as wm
from bench.common import RESULTS, console, listing, progress
from bench.waiting import SAID, SLOTS, run, waiting_session
from watersmeet.workload import START, numbers, write

RATE, SECONDS, STEP, WINDOW = 50.0, 80, 2, 10.0
"""Tuples a second at first, twice as many from the middle on."""
WAIT, EPSILON = 4e-6, 1.0
WARM = 6
"""Batches until windows are full and the workers have started."""
BALANCE, RETURN = 1.25, 1.3
Row = dict[str, Any]


def stream(seed: int) -> pa.Table:
    rng, half = np.random.default_rng((0, seed)), SECONDS // 2
    first = numbers(RATE, half, rng)
    return pa.concat_tables([first, numbers(2 * RATE, half, rng, start=START + half * 1_000_000)])


def rows(name: str, batches: list[Any]) -> list[Row]:
    return [
        {
            "run": name,
            "batch": p["batchId"],
            "seconds": p["durationMs"]["total"] / 1000,
            "nodes": len(p["nodes"]),
            "balance": balance([node["cpuMs"] for node in p["nodes"]]),
            "decision": "; ".join(decision["after"] for decision in p["placement"].get("decisions", ())),
        }
        for p in batches
    ]


def balance(work: list[float]) -> float:
    return max(work) / (sum(work) / len(work)) if sum(work) else 1.0


def report(found: list[Row]) -> None:
    title = f"Two streams, {RATE:g}/s and from the middle on {2 * RATE:g}/s each, {WINDOW:g} s windows"
    listing(title, "adapt", found)
    console.print(SAID)
    middle, last = SECONDS // STEP // 2, SECONDS // STEP
    for name in dict.fromkeys(row["run"] for row in found):
        mine = [row for row in found if row["run"] == name]
        before = float(np.median([row["seconds"] for row in mine[WARM:middle]]))
        after = float(np.median([row["seconds"] for row in mine[last - 6 : last]]))
        uneven = float(np.median([row["balance"] for row in mine[WARM:last]]))
        worst = max(row["balance"] for row in mine[WARM:last])
        console.print(f"{name}: {before:.2f} s a batch before, {after:.2f} s at the end: {after / before:.2f} times")
        console.print(f"  busiest node to mean: {uneven:.2f} in the median, {worst:.2f} at worst; {BALANCE} wanted")
        if name == "adaptive":
            met = "met" if after <= RETURN * before else "MISSED"
            console.print(f"  back within {RETURN} times the earlier response time: {met}")
    draw(found)


def draw(found: list[Row]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = {"seconds": "response time, s", "balance": "busiest node / mean", "nodes": "nodes"}
    figure, axes = pyplot.subplots(len(shown), 1, figsize=(9, 8), sharex=True, constrained_layout=True)
    for axis, (field, label) in zip(axes, shown.items(), strict=True):
        for name in dict.fromkeys(row["run"] for row in found):
            mine = [row for row in found if row["run"] == name]
            axis.plot([row["batch"] * STEP for row in mine], [row[field] for row in mine], label=name)
        axis.axvline(SECONDS / 2, color="grey", linestyle=":")
        axis.set_ylabel(label)
    axes[0].legend()
    axes[1].axhline(BALANCE, color="grey", linewidth=0.5)
    axes[-1].set_xlabel("event time, s (rates double at the dotted line)")
    figure.savefig(RESULTS / "adapt.png", dpi=120)
    console.print(f"Written: {RESULTS / 'adapt'}.csv, .png")


def main() -> None:
    spark, found = waiting_session(), list[Row]()
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name, progress("Adaptation", 3) as bar:
        folder = Path(name)
        for at, letter in enumerate("ab"):
            write(stream(at), folder / "in" / letter, STEP)
        adaptive = wm.Auto(SLOTS, among=("PSP",), interval=3)
        run(spark, folder / "in", folder / "warm-up", wm.PSP(SLOTS), 0.0, EPSILON, WINDOW, "ab")
        bar.advance(bar.task_ids[0])
        batches = run(spark, folder / "in", folder / "adaptive", adaptive, WAIT, EPSILON, WINDOW, "ab").progress
        found += rows("adaptive", batches)
        bar.advance(bar.task_ids[0])
        fixed = wm.PSP(found[SECONDS // STEP // 2 - 1]["nodes"], smooth=False)
        batches = run(spark, folder / "in", folder / "fixed", fixed, WAIT, EPSILON, WINDOW, "ab").progress
        found += rows("fixed", batches)
        bar.advance(bar.task_ids[0])
    report(found)


if __name__ == "__main__":
    main()
