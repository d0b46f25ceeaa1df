"""Auctions ⋈ bids ⋈ payments with no window: what metadata keep live, against what any join would have to keep.

The ids of auctions and of payments are keys, and a row of bids flagged `is_end` closes its auction. Wanted: live rows
at most 1.3 times what is needed from ten minutes on, the results of the finished files, and batches at the end that
take at most 1.2 times as long as those after half of the run. Beside it the same join without metadata, for as long as
is bearable. The exit code is 1 if something wanted is missed.

python bench/metadata/auctions.py --minutes 120 --rate 50 --ids both
python bench/metadata/auctions.py --minutes 120 --core    # without Spark: what the join itself takes
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, get_args

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench.common import RESULTS, console, listing, save
from bench.measurement import report, run_all
from bench.metadata.plots import draw
from bench.metadata.reference import batches, needed, outcome, reference
from bench.metadata.run import Figures
from watersmeet.workload import auctions, write_batches
from watersmeet.workload.auctions import Ids

SECONDS_PER_BATCH = 5
WARM_UP_BATCHES = 10 * 60 // SECONDS_PER_BATCH
"""Batches until live rows are judged."""
MOST_LIVE, MOST_SLOWER = 1.3, 1.2
COMPARED = 50
"""Batches whose median time is compared."""
DAYS = 2 * 86_400.0
"""Seconds after which a run counts as hung; each ends itself when its own time is up."""
SHOWN_POINTS = 10
"""Batches in the table; the CSV has all of them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run showed; None where it was too short to say.

    Attributes:
        most_live: The largest ratio of live rows to needed ones, once settled.
        usual_live: The median of these ratios.
        slower: How many times as long batches took at the end as after half of the run.
        slower_cpu: The same of the join's CPU time, which others on the machine disturb less; nothing is wanted of it.
        purge_of_cpu: The share of the join's CPU time that purging took in the second half of the run.
        purge_of_batch: The same against how long batches took: too low where others share the machine.
        same: Whether the results are those of the finished files.
        differing: Batches in which the run without metadata found another number of results.
    """

    most_live: float | None
    usual_live: float | None
    slower: float | None
    slower_cpu: float | None
    purge_of_cpu: float
    purge_of_batch: float
    same: bool
    differing: int

    @property
    def missed_goals(self) -> list[str]:
        """What was wanted and isn't so."""
        sentences = []
        if not self.same:
            sentences.append("the results differ from those of the finished files")
        if self.differing:
            sentences.append(f"{self.differing} batches have other numbers of results than without metadata")
        if self.most_live is not None and self.most_live > MOST_LIVE:
            sentences.append(f"live rows are up to {self.most_live:.2f} times what is needed, wanted {MOST_LIVE}")
        if self.slower is not None and self.slower > MOST_SLOWER:
            sentences.append(f"batches at the end take {self.slower:.2f} times as long, wanted {MOST_SLOWER}")
        return sentences


def judge(figures: Sequence[Figures], needed_rows: Sequence[int], without: Sequence[Figures], same: bool) -> Verdict:
    """Judge a run by its batches, the rows that were needed after each, and those of the run without metadata."""
    live = [one.live / max(1, rows) for one, rows in zip(figures, needed_rows, strict=True)][WARM_UP_BATCHES:]
    later = figures[len(figures) // 2 :]
    purging = sum(one.purge_ms for one in later)
    return Verdict(
        most_live=max(live, default=None),
        usual_live=median(live) if live else None,
        slower=slower([one.ms for one in figures]),
        slower_cpu=slower([one.cpu_ms for one in figures]),
        purge_of_cpu=purging / max(1e-9, sum(one.cpu_ms for one in later)),
        purge_of_batch=purging / max(1e-9, sum(one.ms for one in later)),
        same=same,
        differing=sum(one.results != other.results for one, other in zip(figures, without, strict=False)),
    )


def slower(times: Sequence[float]) -> float | None:
    """How many times as long batches took at the end as after half of the run; None if these would be the same."""
    half = len(times) // 2
    if len(times) - half < 2 * COMPARED:
        return None
    return median(times[-COMPARED:]) / median(times[half : half + COMPARED])


def by_batch(
    figures: Sequence[Figures], needed_rows: Sequence[int], without: Sequence[Figures]
) -> list[dict[str, Any]]:
    """A row a batch, those of the run without metadata beside it."""
    plain = {one.batch: one for one in without}
    rows = []
    for one, count in zip(figures, needed_rows, strict=True):
        other = plain.get(one.batch)
        rows.append(
            {
                "minutes": (one.batch + 1) * SECONDS_PER_BATCH / 60,
                "needed": count,
                "live": one.live,
                "ratio": one.live / max(1, count),
                "without": other.live if other else "",
                "ms": one.ms,
                "ms_without": other.ms if other else "",
                "cpu_ms": one.cpu_ms,
                "purge_ms": one.purge_ms,
                "chunks": one.chunks,
                "marks": one.marks,
                "mark_bytes": one.mark_bytes,
                "results": one.results,
            }
        )
    return rows


def read(out: Path, kind: str) -> list[Figures]:
    """Read what a run wrote of its batches; nothing if it failed."""
    path = out / kind / "batches.json"
    return [Figures(**one) for one in json.loads(path.read_text())] if path.exists() else []


def measure(ids: Ids, options: argparse.Namespace, folder: Path) -> Verdict:
    """Run with metadata and without, each in a process of its own, and print and write what came out."""
    files, out = folder / "files", folder / "out"
    write_batches(auctions(options.rate, 60 * options.minutes, np.random.default_rng(0), ids=ids), files)
    limits: Mapping[str, float] = {"metadata": options.timeout, "none": options.seconds}
    shared = ["--files", str(files)]
    runs = {
        kind: (
            "bench.metadata.core" if options.core else "bench.metadata.run",
            [*shared, "--out", str(out / kind), "--seconds", str(seconds)],
        )
        for kind, seconds in limits.items()
        if seconds > 0
    }
    report(f"Auctions with no window, {ids} ids", f"metadata-{ids}-runs", run_all("Metadata", runs, DAYS), "metadata")
    figures, without = read(out, "metadata"), read(out, "none")
    needed_rows = [one.total for one in needed(batches(files))]
    if len(figures) < len(needed_rows):
        raise SystemExit(f"The run with metadata ended after {len(figures)} of {len(needed_rows)} batches.")
    rows = by_batch(figures, needed_rows, without)
    save(RESULTS / f"metadata-{ids}-batches.csv", rows)
    points = np.unique(np.linspace(0, len(rows) - 1, SHOWN_POINTS).round().astype(int))
    listing(f"Some batches, {ids} ids", f"metadata-{ids}", [rows[point] for point in points])
    verdict = judge(figures, needed_rows, without, outcome(out / "metadata" / "results") == reference(files))
    how = ", without Spark" if options.core else ""
    title = f"{options.rate:g} auctions a second, {ids} ids{how}; {machine()}"
    draw(RESULTS / f"metadata-{ids}.png", rows, title)
    print_verdict(ids, verdict, len(without))
    return verdict


def machine() -> str:
    """Return how busy the machine is: times mean little where others share it."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end"


def print_verdict(ids: str, verdict: Verdict, compared: int) -> None:
    """Print what a run showed."""

    def text(value: float | None) -> str:
        return "too short to say" if value is None else f"{value:.2f}"

    console.print(f"Machine: {machine()}.")
    console.print(f"Live rows against needed: at most {text(verdict.most_live)}, usually {text(verdict.usual_live)}.")
    cpu = text(verdict.slower_cpu)
    console.print(f"Batches at the end against the middle: {text(verdict.slower)}, by the join's CPU {cpu}.")
    console.print(f"Purging: {verdict.purge_of_cpu:.0%} of the join's CPU, {verdict.purge_of_batch:.0%} of batch time.")
    console.print(f"Results equal those of the finished files: {'yes' if verdict.same else 'NO'}.")
    console.print(f"Without metadata, {compared} batches: {verdict.differing} with other numbers of results.")
    for sentence in verdict.missed_goals:
        console.print(f"Missed, {ids} ids: {sentence}.", style="bold red")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120, help="event time")
    parser.add_argument("--rate", type=float, default=50, help="auctions a second")
    parser.add_argument("--ids", choices=[*get_args(Ids), "both"], default="both")
    parser.add_argument("--seconds", type=float, default=300, help="of the clock for the run without metadata; 0: none")
    parser.add_argument("--core", action="store_true", help="run the join without Spark, in one process")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds of the clock for the run with metadata")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run for each kind of ids; return the exit code."""
    options, missed_goals = parse(arguments), False
    for ids in get_args(Ids) if options.ids == "both" else (options.ids,):
        with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
            missed_goals |= bool(measure(ids, options, Path(folder)).missed_goals)
    return int(missed_goals)


if __name__ == "__main__":
    sys.exit(main())
