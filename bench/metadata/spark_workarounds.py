"""Auctions ⋈ bids ⋈ payments without windows, with what Spark offers today: how state grows, and what a TTL loses.

A TTL goes by Spark's clock, so its input is replayed at a steady pace, and the TTL is made shorter by as much. If
batches take longer than that, state lives too short and more is lost than need be; the table says how many did.

python bench/metadata/spark_workarounds.py --minutes 10 --competitors "join, bids last" TTL
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench.common import RESULTS, console, listing, save
from bench.measurement import Measurement, report, run_all
from bench.metadata.competitor import COMPETITORS, SECONDS_PER_BATCH
from bench.metadata.reference import batches, differences, lost_to_ttl, needed, outcome, reference
from watersmeet.workload import auctions, write_batches

SHOWN_POINTS = 10
"""Batches in the table; the CSV has all of them."""


def has_protobuf() -> bool:
    """Whether `transformWithState` can run: its Python side speaks protobuf, which PySpark does not install."""
    try:
        importlib.import_module("pyspark.sql.streaming.proto.StateMessage_pb2")
    except ImportError:
        return False
    return True


def measure(files: Path, out: Path, options: argparse.Namespace) -> list[Measurement]:
    """Run the competitors one after the other, each in a process of its own."""
    able = [name for name in options.competitors if not COMPETITORS[name].settings or has_protobuf()]
    shared = ["--files", str(files), "--ttl", str(60 * options.ttl), "--pace", str(options.pace)]
    shared += ["--files-per-trigger", str(options.files_per_trigger)]
    runs = {name: ("bench.metadata.competitor", [*shared, "--out", str(out / name)]) for name in able}
    measurements = run_all("Auctions", runs, timeout=options.timeout)
    unable = [name for name in options.competitors if name not in able]
    return [*measurements, *(Measurement(name, note="needs protobuf 6.33.5 or later") for name in unable)]


def by_batch(files: Path, figures: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """A row a batch: rows that came so far, rows that are needed, and what each competitor has and takes."""
    rows, rows_in = list[dict[str, Any]](), 0
    for number, (batch, count) in enumerate(zip(batches(files), needed(batches(files)), strict=True)):
        rows_in += sum(table.num_rows for table in batch.tables.values())
        row: dict[str, Any] = {"minutes": (number + 1) * SECONDS_PER_BATCH / 60, "came": rows_in, "needed": count.total}
        for name, batch_figures in figures.items():
            own = next((one for one in batch_figures if one["files"] == number + 1), None)
            row[f"{name}: rows"] = own["state_rows"] if own else ""
            row[f"{name}: MB"] = own["state_bytes"] / 2**20 if own else ""
            row[f"{name}: ms"] = own["ms"] if own else ""
        rows.append(row)
    return rows


def summary(files: Path, out: Path, name: str, figures: Sequence[Mapping[str, Any]], pace: float) -> dict[str, Any]:
    """What one competitor found, against the join of the finished files."""
    missing, surplus = differences(files, out / name / "results")
    return {
        "competitor": name,
        "results": outcome(out / name / "results").count,
        "lost": missing,
        "too_many": surplus,
        "same_content": "yes" if outcome(out / name / "results") == reference(files) else "no",
        "batches": len(figures),
        "over_pace": sum(one["ms"] > 1000 * pace for one in figures) if COMPETITORS[name].paced else "",
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="event time")
    parser.add_argument("--rate", type=float, default=50, help="auctions a second")
    parser.add_argument("--ttl", type=float, default=2, help="minutes of event time")
    parser.add_argument("--pace", type=float, default=3, help="seconds of the clock a batch, for the TTL")
    parser.add_argument("--files-per-trigger", type=int, default=1, help="more where a batch takes longer than that")
    parser.add_argument("--timeout", type=float, default=450, help="seconds, for each competitor")
    parser.add_argument("--competitors", nargs="+", choices=list(COMPETITORS), default=["join, bids last", "TTL"])
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the input, run, and print and write what came out."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
        files, out = Path(folder) / "files", Path(folder) / "out"
        write_batches(auctions(options.rate, 60 * options.minutes, np.random.default_rng(0)), files)
        measurements = measure(files, out, options)
        report("Auctions without windows", "auctions-spark", measurements, options.competitors[0])
        names = [one.name for one in measurements if one.seconds is not None]
        figures = {name: json.loads((out / name / "batches.json").read_text()) for name in names}
        rows = by_batch(files, figures)
        save(RESULTS / "auctions-spark-batches.csv", rows)
        ends = rows[options.files_per_trigger - 1 :: options.files_per_trigger]
        points = np.unique(np.linspace(0, len(ends) - 1, SHOWN_POINTS).round().astype(int))
        listing("State by batch", "auctions-spark-state", [ends[point] for point in points])
        if names:
            summaries = [summary(files, out, name, figures[name], options.pace) for name in names]
            listing("Results", "auctions-spark-results", summaries)
        console.print(f"{reference(files)}; an exact TTL would lose {lost_to_ttl(files, 60 * options.ttl):,}.")


if __name__ == "__main__":
    main()
