"""Rates double in mid-run, as in the PSP paper's experiment 3: response time and balance with adaptation and without.

With it, the ring has as few nodes as are in time, and borders follow the counts; without it, the ring keeps the length
that was right at first, and its borders their ages. Files arrive as time passes, whether the join keeps up or not: the
response time is that from a file's arrival to its results.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa
from pyarrow.parquet import read_metadata
from pyspark.sql import SparkSession

import watersmeet as wm
from bench.common import RESULTS, console, listing, progress
from bench.system.emulation import CAPTION, SLOTS, run, waiting_session
from watersmeet.placement import Strategy
from watersmeet.workload import START, numbers, write

RATE, SECONDS, STEP, WINDOW = 50.0, 120, 3, 10.0
"""Tuples a second at first, twice as many from the middle on; files of `STEP` seconds."""
WAIT, EPSILON, WITHIN = 1.2e-5, 1.0, "1600 ms"
"""Seconds a pair, how close numbers must be, and how long a batch may take."""
EARLY = 0.25
"""Seconds from the arrival of files to Spark's next look, so that it sees those of both streams at once."""
WARM = 10
"""Files until windows are full, the workers have started and the first choice has settled."""
BALANCE, RETURN = 1.25, 1.3
Row = dict[str, Any]


def stream(seed: int) -> pa.Table:
    rng, half = np.random.default_rng((0, seed)), SECONDS // 2
    first = numbers(RATE, half, rng)
    return pa.concat_tables([first, numbers(2 * RATE, half, rng, start=START + half * 1_000_000)])


def feed(source: Path, target: Path) -> list[float]:
    """Let the files of all streams arrive, one a stream every few seconds; return when each did."""
    arrived: list[float] = []
    start = (time.time() // STEP + 1) * STEP - EARLY
    for at, files in enumerate(zip(*(sorted((source / name).iterdir()) for name in "ab"), strict=True)):
        time.sleep(max(0.0, start + at * STEP - time.time()))
        for file in files:
            shutil.copy(file, target / file.parent.name / f".{file.name}")
            (target / file.parent.name / f".{file.name}").rename(target / file.parent.name / file.name)
        arrived.append(time.time())
    return arrived


def live(spark: SparkSession, source: Path, out: Path, strategy: Strategy, name: str) -> list[Row]:
    """Join what arrives until all is joined; return what each batch did."""
    for letter in "ab":
        (out / "in" / letter).mkdir(parents=True)
    query = run(spark, source, out, strategy, WAIT, EPSILON, WINDOW, "ab", live=(out / "in", STEP))
    arrived = feed(source, out / "in")
    query.processAllAvailable()
    query.stop()
    sizes = {letter: [read_metadata(file).num_rows for file in sorted((source / letter).iterdir())] for letter in "ab"}
    return rows(name, finishing(query.progress, sizes), arrived)


def finishing(batches: list[Any], sizes: dict[str, list[int]]) -> list[Any]:
    """Return for each file the batch that was the first to have it of both streams."""
    finished = [
        np.searchsorted(np.cumsum([p["inputRows"][name] for p in batches]), np.cumsum(rows))
        for name, rows in sizes.items()
    ]
    return [batches[at] for at in np.max(finished, axis=0).tolist()]


def rows(name: str, batches: list[Any], arrived: list[float]) -> list[Row]:
    return [
        {
            "run": name,
            "file": at,
            "batch": p["batchId"],
            "seconds": p["durationMs"]["total"] / 1000,
            "response": datetime.fromisoformat(p["timestamp"]).timestamp() + p["durationMs"]["total"] / 1000 - arrival,
            "nodes": len(p["nodes"]),
            "balance": balance([node["cpuMs"] for node in p["nodes"]]),
            "decision": "; ".join(decision["after"] for decision in p["placement"].get("decisions", ())),
        }
        for at, (p, arrival) in enumerate(zip(batches, arrived, strict=True))
    ]


def balance(work: list[float]) -> float:
    return max(work) / (sum(work) / len(work)) if sum(work) else 1.0


def report(rows: list[Row]) -> None:
    title = f"Two streams, {RATE:g}/s and from the middle on {2 * RATE:g}/s each, {WINDOW:g} s windows"
    listing(title, "adapt", rows)
    console.print(CAPTION)
    middle, last = SECONDS // STEP // 2, SECONDS // STEP
    for name in dict.fromkeys(row["run"] for row in rows):
        mine = [row for row in rows if row["run"] == name]
        before = float(np.median([row["response"] for row in mine[WARM:middle]]))
        after = float(np.median([row["response"] for row in mine[last - 6 : last]]))
        uneven = float(np.median([row["balance"] for row in mine[WARM:last]]))
        even = float(np.mean([row["balance"] <= BALANCE for row in mine[WARM:last]]))
        console.print(f"{name}: {before:.2f} s to respond before, {after:.2f} s at the end: {after / before:.2f} times")
        console.print(
            f"  busiest node to mean: {uneven:.2f} in the median, at most {BALANCE} in {even:.0%} of the batches"
        )
        if name == "adaptive":
            console.print(f"  {BALANCE} wanted in all: {'met' if even == 1 else 'MISSED'}")
            outcome = "met" if after <= RETURN * before else "MISSED"
            console.print(f"  back within {RETURN} times the earlier response time: {outcome}")
    draw(rows)


def draw(rows: list[Row]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = {"response": "response time, s", "balance": "busiest node / mean", "nodes": "nodes"}
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(9, 8), sharex=True, constrained_layout=True)
    for axis, (field, label) in zip(axes, panels.items(), strict=True):
        for name in dict.fromkeys(row["run"] for row in rows):
            mine = [row for row in rows if row["run"] == name]
            axis.plot([row["file"] * STEP for row in mine], [row[field] for row in mine], label=name)
        axis.axvline(SECONDS / 2, color="grey", linestyle=":")
        axis.set_ylabel(label)
    axes[0].legend()
    axes[1].axhline(BALANCE, color="grey", linewidth=0.5)
    axes[-1].set_xlabel("event time, s (rates double at the dotted line)")
    figure.savefig(RESULTS / "adapt.png", dpi=120)
    console.print(f"Written: {RESULTS / 'adapt'}.csv, .png")


def main() -> None:
    spark, rows = waiting_session(), list[Row]()
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name, progress("Adaptation", 3) as bar:
        folder = Path(name)
        for at, letter in enumerate("ab"):
            write(stream(at), folder / "in" / letter, STEP)
        run(spark, folder / "in", folder / "warm-up", wm.PSP(SLOTS), 0.0, EPSILON, WINDOW, "ab")
        bar.advance(bar.task_ids[0])
        adaptive = wm.Auto(SLOTS, among=("PSP",), within=WITHIN, interval=3)
        rows += live(spark, folder / "in", folder / "adaptive", adaptive, "adaptive")
        bar.advance(bar.task_ids[0])
        fixed = wm.PSP(rows[SECONDS // STEP // 2 - 1]["nodes"], smooth=False)
        rows += live(spark, folder / "in", folder / "fixed", fixed, "fixed")
        bar.advance(bar.task_ids[0])
    report(rows)


if __name__ == "__main__":
    main()
