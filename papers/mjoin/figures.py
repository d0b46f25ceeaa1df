"""The MJoin paper's figures 8 to 11 again, with the operator as the paper has it, in plain Python.

python papers/mjoin/figures.py            ten seeds, a minute and a half of CPU time
python papers/mjoin/figures.py --quick    two seeds

Ding, Rundensteiner and Heineman, "MJoin: A Metadata-Aware Stream Join Operator" (2003), section 6. What it leaves open
is chosen so: 2,000 news items; between two punctuations a Poisson number of records, ten on average, of the ten items
that are monitored; 64 hash buckets a stream; random order means that all news are shuffled; MJoin may read 100 news and
1,000 records in a turn, XJoin reads at random. All is queued before the start, so that no queue is empty until its
stream has ended; a schedule that reads both streams equally often comes to the end of the news after a tenth of the
records.

Times are process time, so that waiting for the disk is not counted, of the fastest of three runs on a feed, with
Python's garbage collector off.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench.common import RESULTS, console, listing, progress
from papers.mjoin.plots import PANELS, Panel, Traces, draw, values
from papers.mjoin.runs import RECORDS, Plan, by_turns

PLAN = Plan(items=2_000, marks=range(250, 19_501, 250), seeds=range(10), repeats=3)
TABLE_MARKS = (500, 2_500, 7_500, 12_500, 19_500)
"""Marks in the table."""

NOTES = """
As in the paper: batch purging is faster than immediate purging, MJoin needs a fraction of XJoin's memory once data have
grown, and priority with value-oriented scheduling is faster than random with sequential. What makes it so, and where it
is otherwise:
- Figure 8. The gain is that of the quotas, under immediate purging. Where they are in proportion to the streams, few
  news are kept that no record has asked for yet, and each purge scans few; with equal quotas priority is no faster than
  random. With batch purging it gains little if news are ordered, and loses if they are shuffled (MJoin in figure 9).
- Figure 8. While few results are out and news come shuffled it is slower: most records come before their news, and must
  be kept.
- Figure 8. Value-oriented scheduling takes hardly any time and gains none. It lets a few punctuations out a little
  earlier, and only if news come shuffled: else their item was there before them.
- Figure 9. With shuffled news XJoin is ahead at first, as in the paper, but not because of purging: MJoin that reads as
  XJoin does is level with it up to some 1,000 results, and ahead after. It is the records that priority reads before
  their news. With ordered news MJoin is ahead from the start.
- Figure 9. Where XJoin overflows it falls behind at once, by what it takes to write: all results are out before it
  reads anything again.
- Figure 10. MJoin keeps about as much as XJoin at first, since records wait for shuffled news, and less and less after.
"""


def summary(panel: Panel, plan: Plan, traces: Traces) -> list[dict[str, Any]]:
    """Return a row for each contender of a panel: the median over seeds at some marks, and how far seeds lie apart."""
    rows = []
    for name in (*panel.compared, *panel.beside):
        samples = values(traces[panel.order, name], panel)
        middle, apart = np.median(samples, axis=0), np.ptp(samples, axis=0)[-1]
        row: dict[str, Any] = {"figure": panel.figure, "news": panel.order, "contender": name}
        row |= {"of": "tuples" if panel.measure == "tuples" else "CPU ms"}
        row |= {f"at_{mark:,}": round(float(middle[plan.marks.index(mark)]), 1) for mark in TABLE_MARKS}
        rows.append(row | {"seeds_apart": round(float(apart), 1)})
    return rows


def verdict(panel: Panel, plan: Plan, traces: Traces) -> str:
    """Say at which marks the contender that the paper favours has the lower median."""
    name, other = panel.compared
    ours, theirs = (np.median(values(traces[panel.order, one], panel), axis=0) for one in panel.compared)
    lower = [mark for mark, is_lower in zip(plan.marks, ours < theirs, strict=True) if is_lower]
    where = f"{len(lower)} of {len(plan.marks)} marks"
    if lower and len(lower) < len(plan.marks) and lower == [*plan.marks][-len(lower) :]:
        where = f"{where}, from {lower[0]:,} results on"
    beginning = f"Figure {panel.figure}, news {panel.order}: {name} is below {other} at {where}"
    return f"{beginning}; at the last it has {ours[-1] / theirs[-1]:.2g} of it."


def save_runs(path: Path, plan: Plan, traces: Traces) -> None:
    """Write what was measured on each feed at each mark."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["news", "contender", "seed", "results", "cpu_ms", "tuples_in_memory", "punctuations_out"])
        for (order, name), runs in traces.items():
            for seed, trace in zip(plan.seeds, runs, strict=True):
                samples = zip(plan.marks, 1000 * trace.seconds, trace.tuples, trace.punctuations, strict=True)
                writer.writerows([order, name, seed, *(round(float(one), 2) for one in row)] for row in samples)


def report(plan: Plan, traces: Traces) -> None:
    title = f"{plan.items:,} news items, {RECORDS} records each on average: medians of {len(plan.seeds)} seeds"
    listing(f"{title}, when so many results are out", "mjoin", [r for p in PANELS for r in summary(p, plan, traces)])
    for panel in PANELS:
        console.print(verdict(panel, plan, traces), highlight=False)
    console.print(NOTES, highlight=False)
    save_runs(RESULTS / "mjoin_runs.csv", plan, traces)
    draw(RESULTS / "mjoin.png", plan.marks, traces)
    console.print(f"Written: {RESULTS / 'mjoin'}.csv, .png and {RESULTS / 'mjoin_runs'}.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds")
    plan = replace(PLAN, seeds=PLAN.seeds[:2]) if parser.parse_args().quick else PLAN
    with progress("MJoin", len(plan.seeds)) as bar:
        traces = by_turns(plan, time.process_time, lambda: bar.advance(bar.task_ids[0]))
    report(plan, traces)


if __name__ == "__main__":
    main()
