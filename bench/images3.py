"""Three camera streams joined by the pixel similarity of their images, against Spark's workaround with a pandas UDF.

python bench/images3.py            both settings
python bench/images3.py --heavy    only the heavy setting: how much of the CPU time is spent inside the predicate
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from bench.band3 import MODULE, judge
from bench.common import RESULTS, console, image_files, report, run_all

CORES = 2


def light(folder: Path) -> None:
    files = image_files(folder / "files", 5, 60, 10_000)
    names = ("watersmeet-images", "watersmeet-images-shuffle", "images-udf", "numpy-images")
    runs = {name: (MODULE, [f"--files={files}", f"--out={folder / name}"]) for name in names}
    title = "Image join of three streams, 10,000 pixels, 5 images/s each, 60 s, 10 s windows"
    done = run_all(title, runs)
    report(title, "images3", done, "watersmeet-images")
    judge(done, {"images-udf": 5.0})
    asked = sum(p["predicates"]["similar"]["pairs"] for p in _progress(folder / "watersmeet-images"))
    console.print(f"The similarity was asked about {asked:,} pairs.")


def heavy(folder: Path) -> None:
    files = image_files(folder / "heavy", 20, 30, 20_000)
    out = folder / "heavy-out"
    runs = {"watersmeet-images": (MODULE, [f"--files={files}", f"--out={out}", "--warm"])}
    title = "Heavy image join: 20,000 pixels, 20 images/s each, 30 s, in a session that has run it once"
    (done,) = run_all(title, runs)
    report(title, "images3-heavy", [done], "watersmeet-images")
    warm = _progress(out)[2:]  # by then the windows are full
    rows = [(p["batchId"], p["predicates"]["similar"]["ms"], CORES * p["durationMs"]["job"]) for p in warm]
    for batch, inside, available in rows:
        console.print(f"batch {batch}: {inside:,.0f} ms inside the predicate of {available:,.0f} ms of all cores")
    inside = sum(inside for _, inside, _ in rows) / 1000
    share = inside / sum(available for *_, available in rows) * 1000
    used = inside / cpu_between(out, warm[0], warm[-1])
    (RESULTS / "images3-heavy-share.csv").write_text(
        "batch,inside_ms,available_ms\n" + "".join(f"{b},{i},{a}\n" for b, i, a in rows)
    )
    met = "met" if used >= 0.85 else "MISSED"
    console.print(f"{used:.0%} of the CPU time used, the JVM's included, is inside the predicate; 85 % wanted: {met}")
    console.print("To take the images that it is given out of their chunks counts as inside: about an eighth of it.")
    console.print(f"That is {share:.0%} of what {CORES} cores could have done in the time of the jobs.")
    console.print(f"Workers together at most {done.workers_rss_mb:,.0f} MB; 3,072 MB allowed.")


def cpu_between(out: Path, first: dict[str, Any], last: dict[str, Any]) -> float:
    """Return the CPU seconds of all processes from the start of one batch to the end of another."""
    series = json.loads((out / "cpu.json").read_text())
    begin = datetime.fromisoformat(first["timestamp"]).timestamp()
    end = datetime.fromisoformat(last["timestamp"]).timestamp() + last["durationMs"]["total"] / 1000
    times, used = zip(*series, strict=True)
    at_begin, at_end = np.interp([begin, end], times, used)
    return float(at_end - at_begin)


def _progress(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "progress.json").read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heavy", action="store_true", help="only the heavy setting")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
        if not given.heavy:
            light(Path(folder))
        heavy(Path(folder))


if __name__ == "__main__":
    main()
