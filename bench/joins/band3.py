"""Three streams, a band predicate: Watersmeet against what one does with Spark alone, on the same files in one run.

python bench/joins/band3.py            both settings, everything
python bench/joins/band3.py --quick    without Spark's dummy key, which takes minutes
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.common import band_files, console
from bench.measurement import Measurement, report, run_all

MODULE = "bench.joins.competitor"
SETTINGS = {
    "band3": (100.0, 5.0, ("watersmeet", "watersmeet-shuffle", "buckets", "dummy-key", "duckdb", "numpy")),
    "band3-1000": (1000.0, 0.5, ("watersmeet", "watersmeet-shuffle", "buckets", "duckdb", "numpy")),
}
TARGETS = {"band3": {"dummy-key": 12.0, "buckets": 2.0}, "band3-1000": {"buckets": 3.0}}


def bench(slug: str, quick: bool, folder: Path) -> None:
    rate, epsilon, names = SETTINGS[slug]
    files = band_files(folder / f"files-{rate:g}", rate)
    contenders = [name for name in names if not (quick and name == "dummy-key")]
    runs = {
        name: (MODULE, [f"--files={files}", f"--out={folder / slug / name}", f"--epsilon={epsilon}"])
        for name in contenders
    }
    title = f"Band join of three streams, {rate:g} tuples/s each, 60 s, 10 s windows, |x - y| < {epsilon:g}"
    measurements = run_all(title, runs)
    report(title, slug, measurements, "watersmeet")
    judge(measurements, TARGETS[slug])


def judge(measurements: list[Measurement], targets: dict[str, float]) -> None:
    """Say for each target whether the first of the runs meets it, and whether all found the same number of results."""
    seconds = {m.name: m.seconds for m in measurements}
    for name, target in targets.items():
        theirs, ours = seconds.get(name), measurements[0].seconds
        if theirs and ours:
            outcome = "met" if theirs / ours >= target else "MISSED"
            console.print(f"{name}: {theirs / ours:.1f} times our time; at least {target:g} wanted: {outcome}")
    counts = {m.rows for m in measurements if m.rows is not None}
    console.print("All found the same number of results." if len(counts) == 1 else f"RESULTS DIFFER: {counts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out Spark's dummy key")
    parser.add_argument("--only", choices=list(SETTINGS), help="one setting")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
        for slug in [options.only] if options.only else list(SETTINGS):
            bench(slug, options.quick, Path(folder))


if __name__ == "__main__":
    main()
