"""The cost model against the clock: batch times predicted from one ring length, measured for each from 1 to 8.

python bench/system/cost_model.py            three predicate costs, three selectivities
python bench/system/cost_model.py --quick    one cell
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from pyspark.sql import SparkSession

import watersmeet as wm
from bench.common import RESULTS, console, listing, progress
from bench.system.emulation import CAPTION, run, waiting_session
from watersmeet.cost.cost_model import psp_cost
from watersmeet.workload import numbers, write

RATE, SECONDS, STEP, WINDOW = 20.0, 14, 2, 6.0
NODES = range(1, 9)
MEASURED_NODES = 4
"""The ring length whose run the predictions are made from."""
WAITS = (2e-5, 6e-5, 1.8e-4)
EPSILONS = (1.0, 5.0, 25.0)
WARM = 4
"""Batches left out: windows are filling up, workers start."""
ERROR, CELLS = 0.2, 8


def cell(spark: SparkSession, files: Path, folder: Path, wait: float, epsilon: float, bar: Any) -> list[dict[str, Any]]:
    """Return the measured and the predicted batch time of each ring length."""
    seconds = {}
    for nodes in NODES:
        seconds[nodes] = run(spark, files, folder / str(nodes), wm.PSP(nodes), wait, epsilon, WINDOW)
        bar.advance(bar.task_ids[0])
    p = seconds[MEASURED_NODES].parameters
    return [
        {
            "wait_us": round(1e6 * wait),
            "epsilon": epsilon,
            "nodes": nodes,
            "measured": float(np.median([b["durationMs"]["job"] for b in query.progress[WARM:]])) / 1000,
            "predicted": p.advance * psp_cost(p, nodes).seconds(p),
        }
        for nodes, query in seconds.items()
    ]


def report(rows: list[dict[str, Any]]) -> None:
    title = f"Seconds of a batch by ring length: three streams of {RATE:g}/s, {WINDOW:g} s windows, batches of {STEP} s"
    listing(title, "cost_model", rows)
    errors = [abs(row["predicted"] / row["measured"] - 1) for row in rows if row["nodes"] != MEASURED_NODES]
    error = float(np.median(errors))
    console.print(f"{CAPTION} Predicted from the run with {MEASURED_NODES} nodes.")
    console.print(f"Median error {error:.0%}; at most 20 % wanted: {'met' if error <= ERROR else 'MISSED'}")
    cells = [list(group) for _, group in itertools.groupby(rows, key=lambda row: (row["wait_us"], row["epsilon"]))]
    near = sum(abs(best(group, "predicted") - best(group, "measured")) <= 1 for group in cells)
    outcome = "met" if near >= CELLS * len(cells) / 9 else "MISSED"
    console.print(f"The best length is predicted within one in {near} of {len(cells)} cells; 8 of 9 wanted: {outcome}")
    draw(cells)


def best(rows: list[dict[str, Any]], field: str) -> int:
    return int(min(rows, key=lambda row: row[field])["nodes"])


def draw(cells: list[list[dict[str, Any]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(3, len(cells))
    figure, axes = pyplot.subplots(
        -(-len(cells) // columns), columns, figsize=(10, 9), constrained_layout=True, squeeze=False
    )
    for axis, rows in zip(axes.flat, cells, strict=False):
        for field, style in (("measured", "o"), ("predicted", "-")):
            axis.plot([row["nodes"] for row in rows], [row[field] for row in rows], style, label=field)
        axis.set(title=f"{rows[0]['wait_us']} µs a pair, band {rows[0]['epsilon']:g}", xlabel="nodes", ylabel="seconds")
        axis.set_ylim(0)
    axes.flat[0].legend()
    figure.savefig(RESULTS / "cost_model.png", dpi=120)
    console.print(f"Written: {RESULTS / 'cost_model'}.csv, .png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one cell")
    quick = parser.parse_args().quick
    cells = [(WAITS[1], EPSILONS[1])] if quick else list(itertools.product(WAITS, EPSILONS))
    spark, rows = waiting_session(), list[dict[str, Any]]()
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name,
        progress("Cost model", len(cells) * len(NODES)) as bar,
    ):
        folder = Path(name)
        for at, stream in enumerate("abc"):
            write(numbers(RATE, SECONDS, np.random.default_rng((0, at))), folder / "in" / stream, STEP)
        run(spark, folder / "in", folder / "warm-up", wm.PSP(8), *cells[0], WINDOW)
        for at, (wait, epsilon) in enumerate(cells):
            rows += cell(spark, folder / "in", folder / str(at), wait, epsilon, bar)
    report(rows)


if __name__ == "__main__":
    main()
