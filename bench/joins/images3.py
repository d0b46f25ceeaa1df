"""Three camera streams joined by the pixel similarity of their images, against Spark's workaround with a pandas UDF.

python bench/joins/images3.py            both settings
python bench/joins/images3.py --heavy    only the heavy setting: how much of the CPU time is spent inside the predicate
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench.common import RESULTS, console, image_files
from bench.joins.band3 import MODULE, judge
from bench.measurement import INSIDE, report, run_all

CORES = 2
WARM_UPS = 3
THROUGHPUT = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
"""Images pass through the JVM in pieces of megabytes, which its default collector follows at some cost."""


def light(folder: Path) -> None:
    files = image_files(folder / "files", 5, 60, 10_000)
    names = ("watersmeet-images", "watersmeet-images-shuffle", "images-udf", "numpy-images")
    runs = {name: (MODULE, [f"--files={files}", f"--out={folder / name}"]) for name in names}
    title = "Image join of three streams, 10,000 pixels, 5 images/s each, 60 s, 10 s windows"
    measurements = run_all(title, runs)
    report(title, "images3", measurements, "watersmeet-images")
    judge(measurements, {"images-udf": 5.0})
    _print_pairs(folder / "watersmeet-images")


def _print_pairs(out: Path) -> None:
    pairs = sum(p["predicates"]["similar"]["pairs"] for p in _progress(out))
    console.print(f"The similarity was asked about {pairs:,} pairs.")


def heavy(folder: Path) -> None:
    files = image_files(folder / "heavy", 20, 30, 20_000)
    out = folder / "heavy-out"
    out.mkdir()
    os.environ[INSIDE] = str(out)
    settings = [f"--set={key}={value}" for key, value in THROUGHPUT.items()]
    runs = {"watersmeet-images": (MODULE, [f"--files={files}", f"--out={out}", f"--warm={WARM_UPS}", *settings])}
    title = f"Heavy image join: 20,000 pixels, 20 images/s each, 30 s, in a session that has run it {WARM_UPS} times"
    (measurement,) = run_all(title, runs)
    report(title, "images3-heavy", [measurement], "watersmeet-images")
    _print_pairs(out)
    used, inside, available = usage(out, _progress(out)[2:])  # by then the windows are full
    (RESULTS / "images3-heavy-share.csv").write_text(
        f"cpu_seconds,inside_seconds,seconds_of_all_cores\n{used},{inside},{available}\n"
    )
    console.print(f"{used:.1f} s of CPU time, the JVM's included, {inside:.1f} s of them inside the predicate.")
    outcome = "met" if inside >= 0.85 * used else "MISSED"
    console.print(
        f"That is {inside / used:.0%}, 85 % wanted: {outcome}; and {inside / available:.0%} of what the cores had."
    )
    console.print(f"Workers together at most {measurement.workers_rss_mb:,.0f} MB; 3,072 MB allowed.")


def usage(out: Path, batches: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Return what batches took: CPU seconds of all processes, those inside the predicate, and seconds of all cores."""
    times, *series = zip(*json.loads((out / "cpu.json").read_text()), strict=True)
    begin, last = (datetime.fromisoformat(batch["timestamp"]).timestamp() for batch in (batches[0], batches[-1]))
    end = last + batches[-1]["durationMs"]["total"] / 1000
    used, inside = (float(np.diff(np.interp([begin, end], times, seconds))[0]) for seconds in series)
    return used, inside, CORES * (end - begin)


def _progress(out: Path) -> list[dict[str, Any]]:
    batches: list[dict[str, Any]] = json.loads((out / "progress.json").read_text())
    return batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heavy", action="store_true", help="only the heavy setting")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
        if not options.heavy:
            light(Path(folder))
        heavy(Path(folder))


if __name__ == "__main__":
    main()
