"""Auto against every fixed placement, over a grid of streams, windows, selectivities and predicate costs.

Costs are emulated by a predicate that takes its time; joins run in one session on all cores, in tasks.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from pyspark.sql import SparkSession

import watersmeet as wm
from bench.common import RESULTS, console, listing, progress, session
from watersmeet.placement import Strategy
from watersmeet.workload import numbers, write

RATE, SECONDS, NODES = 60.0, 40, 4
STREAMS = (2, 3)
WINDOWS = (5, 15)
EPSILONS = (2.0, 20.0)
COSTS = (0.0, 3e-6)
WITHIN, CELLS = 1.15, 0.9


def spend(seconds: float) -> Any:
    """Return a predicate that holds always and takes some seconds a pair."""

    @wm.predicate
    def spend(x: float, ys: Any) -> Any:
        end = time.perf_counter() + seconds * len(ys)
        while time.perf_counter() < end:
            pass
        return np.ones(len(ys), dtype=bool)

    return spend


def fixed() -> dict[str, Strategy]:
    return {
        "PSP": wm.PSP(NODES),
        "DSJ": wm.DSJ(NODES),
        "ATR": wm.ATR(NODES),
        "CTR": wm.CTR(NODES),
        "Central": wm.Central(),
    }


def run(spark: SparkSession, files: Path, out: Path, cell: tuple[int, int, float, float], strategy: Strategy) -> float:
    count, window, epsilon, cost = cell
    names = "abc"[:count]
    schema = spark.read.parquet(str(files / "a")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    streams = [
        wm.stream(n, reader.parquet(str(files / n)), time="ts", window=f"{window} seconds", delay="0 seconds")
        for n in names
    ]
    ties = [f"abs({one}.x - {two}.x) < {epsilon}" for one, two in itertools.pairwise(names)]
    calls = [f"spend({one}.x, {two}.x)" for one, two in itertools.pairwise(names)] if cost else []
    select = ", ".join(f"{n}.id AS {n}_id" for n in names)
    where = " AND ".join([*ties, *calls])
    join = wm.join(*streams, where=where, select=select, predicates=[spend(cost)], strategy=strategy)
    writer = join.writeStream.option("checkpointLocation", str(out / "checkpoint")).option("exchange", "shuffle")
    start = time.perf_counter()
    writer.trigger(availableNow=True).start(str(out / "results")).awaitTermination()
    return time.perf_counter() - start


def report(rows: list[dict[str, Any]]) -> None:
    title = f"Seconds by placement, {RATE:g} tuples/s a stream, {SECONDS} s, {NODES} nodes, exchange shuffle"
    listing(title, "auto", rows)
    good = sum(row["Auto / best"] <= WITHIN for row in rows)
    outcome = "met" if good >= CELLS * len(rows) else "MISSED"
    console.print(f"Auto is within 15 % of the best in {good} of {len(rows)} cells; 9 of 10 wanted: {outcome}")
    draw(rows)


def draw(rows: list[dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [*fixed(), "Auto"]
    figure, axis = pyplot.subplots(figsize=(11, 4), constrained_layout=True)
    for at, name in enumerate(names):
        axis.bar(np.arange(len(rows)) + 0.13 * at, [row[name] for row in rows], 0.13, label=name)
    axis.set_xticks(np.arange(len(rows)) + 0.3, [row["cell"] for row in rows], rotation=35, ha="right", fontsize=7)
    axis.set(ylabel="seconds")
    axis.legend(ncols=6, fontsize=8)
    figure.savefig(RESULTS / "auto.png", dpi=120)
    console.print(f"Written: {RESULTS / 'auto'}.csv, .png")


def main() -> None:
    spark, rows = session({}), list[dict[str, Any]]()
    cells = list(itertools.product(STREAMS, WINDOWS, EPSILONS, COSTS))
    competitors = {**fixed(), "Auto": wm.Auto(NODES)}
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name, progress("Auto", 1 + len(cells)) as bar:
        folder = Path(name)
        for at, stream in enumerate("abc"):
            write(numbers(RATE, SECONDS, np.random.default_rng((0, at))), folder / "in" / stream, 5)
        run(spark, folder / "in", folder / "warm-up", cells[0], wm.PSP(2))
        bar.advance(bar.task_ids[0])
        for at, cell in enumerate(cells):
            times = {
                n: run(spark, folder / "in", folder / f"{at}-{n}", cell, strategy)
                for n, strategy in competitors.items()
            }
            best = min(seconds for n, seconds in times.items() if n != "Auto")
            label = "{} streams, {} s, eps {:g}, {:g} us".format(*cell[:3], 1e6 * cell[3])
            rows.append({"cell": label, **times, "Auto / best": times["Auto"] / best})
            bar.advance(bar.task_ids[0])
    report(rows)


if __name__ == "__main__":
    main()
