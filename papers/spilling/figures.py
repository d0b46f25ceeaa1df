"""The spilling thesis' figures 5.3 to 5.20 again: intervals, correlation and policies, five seeds each, with spread.

python papers/spilling/figures.py                        all
python papers/spilling/figures.py policies intervals     some of: policies, correlation, intervals, appendix
python papers/spilling/figures.py --quick                two seeds, one phase

Jbantova, "State spilling policies for state intensive continuous query plan evaluation" (2007), chapter 5. What is as
there: windows of 60 s every 80 s (40 s every 90 s), fast and slow phases of Poisson streams, join ratios, marks, the
interval and correlation. What is not:

- Clock: stream time alone. A batch holds 10 s of it. Nothing is too slow here; only memory is short.
- Rates: fast phases have a tenth of the tuples (300 and 450 ms apart for the thesis' 30 and 45 ms), slow ones as many
  (6 s apart). Phases last 4 min for 15, three windows for eleven. There are three, fast, slow and fast: in one more
  slow phase debts would be paid, whatever the policy.
- Partitions: 12 for 30 to 40; so many times as large is the correlation from which parents follow.
- Memory: half of the most bytes that the same run takes without a limit, for 200 MB; a quarter in plans of five joins.
  Their state grows so steeply that half of it is there only when a window is about to end, and nothing is owed.
- Batches of 5 s where windows have 40 s.
- Figure 5.11 (dequeue ratios) has no counterpart: there are no queues between joins, results reach the next join in the
  same batch.
- Which policy figures 5.3 to 5.6 have is not said: here it is the synchronized one.

Every run is settled after its end; its results must then be those of the run without a limit.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench.common import RESULTS, console, listing, progress
from papers.spilling.plans import SYMBOLS, Shape
from papers.spilling.plots import Curves, Panel, Row, draw
from papers.spilling.runs import CEILING, MEASURES, Case, Measure, Outcome, run
from papers.spilling.streams import Setting

SEEDS = range(1, 6)
"""Scale, batches and limits were chosen with seed 0, which is not among them."""
PROCESSES = 2
POLICIES = ("random", "local", "global", "synchronized")
INTERVALS = (30, 120, 180)
CORRELATIONS = (0.02, 0.05, 0.07, 0.10, 0.25)
D1 = Setting((1, 2, 3), 300)
D1_SLOWER = Setting((1, 2, 3), 450)
D2_SLOWER = Setting((1, 2, 4), 450, size=40, step=90)
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % of Student's distribution are below, for 1, 2 and more degrees of freedom."""

Outcomes = Mapping[Case, Outcome]
EMPTY: Outcomes = {}
FIVE_JOINS: tuple[Shape, Shape] = ("linear", "semi-bushy")
TIGHT = 0.25
"""The limit of plans of five joins."""


@dataclass(frozen=True, slots=True)
class Set:
    """Runs that are drawn together.

    Attributes:
        name: What they are of.
        cases: By name of a curve its run with the first seed.
        panels: The plots.
        best: The curve that the thesis found best; the others are compared with it.
    """

    name: str
    cases: Mapping[str, Case]
    panels: Sequence[Panel]
    best: str

    def curves(self, seeds: Iterable[int], outcomes: Outcomes) -> Curves:
        """Return what came of them."""
        numbers = [*seeds]
        cases = {name: [replace(case, seed=seed) for seed in numbers] for name, case in self._with_ceiling.items()}
        runs = {name: [outcomes[case] for case in some] for name, some in cases.items()}
        return {name: {m: np.array([one.series[m] for one in some]) for m in MEASURES} for name, some in runs.items()}

    def row(self, seeds: Iterable[int], outcomes: Outcomes) -> Row:
        """Return how it is drawn."""
        case = next(iter(self.cases.values()))
        return Row(self.name, self.curves(seeds, outcomes), self.panels, case.batch, case.setting.phase)

    @property
    def _with_ceiling(self) -> dict[str, Case]:
        return {**self.cases, CEILING: next(iter(self.cases.values())).ceiling}


def panels(*figures: str) -> list[Panel]:
    """Return results, invalidated, spilled and unspilled tuples over time, and results at the end."""
    measures: tuple[Measure, ...] = ("results", "purged", "spilled", "unspilled")
    over_time = [Panel(figure, measure) for figure, measure in zip(figures, measures, strict=False)]
    return [*over_time, Panel(figures[4], "results", bars=True)]


def _policies(data: str, case: Case, *figures: str) -> Set:
    cases = {policy: replace(case, policy=policy) for policy in POLICIES}
    return Set(f"{SYMBOLS[case.shape]}, {data}", cases, panels(*figures), "synchronized")


def groups(short: bool = False) -> dict[str, list[Set]]:
    """Return what is drawn, by the name of the picture; `short` runs have one phase."""
    one, slower, other = (replace(s, phases=1) if short else s for s in (D1, D1_SLOWER, D2_SLOWER))
    linear, semi = (Case(shape, one, 0, "synchronized", limit=TIGHT) for shape in FIVE_JOINS)
    short_windows = Case("linear", other, 0, batch=5, limit=TIGHT)
    return {
        "policies": [
            _policies("D1", Case("bushy", slower, 0), "5.13", "5.14", "5.15", "5.16", "5.12"),
            _policies("D2", short_windows, "5.17", "5.18", "5.19", "5.20", "5.12"),
        ],
        "correlation": [
            Set(
                "Q^M, D1",
                {f"{share:.2f}": replace(semi, correlation=share) for share in CORRELATIONS},
                [
                    Panel("5.7", "results"),
                    Panel("5.7", "results", bars=True),
                    Panel("5.8", "spilled"),
                    Panel("5.9", "unspilled"),
                    Panel("5.10", "purged"),
                ],
                "0.07",
            )
        ],
        "intervals": [
            Set(
                "Q^L, D1",
                {f"{seconds} s": replace(linear, interval=seconds) for seconds in INTERVALS},
                [
                    Panel("5.3", "results"),
                    Panel("5.4", "results", bars=True),
                    Panel("5.5", "unspilled"),
                    Panel("5.6", "spilled"),
                ],
                "120 s",
            )
        ],
        "appendix": [_policies("D1", semi, "A.5", "A.6", "A.7", "A.8", "5.12")],
    }


# -- running


def run_all(cases: Iterable[Case], processes: int = PROCESSES, finished: Outcomes = EMPTY) -> dict[Case, Outcome]:
    """Run cases and those without a limit that they are measured by, each once, in some processes or in this one.

    Args:
        cases: The cases.
        processes: In how many processes.
        known: What has been run already.

    Raises:
        AssertionError: If a run had other results, in the end, than the one without a limit.
    """
    limited = dict.fromkeys(cases)
    ceilings = dict.fromkeys(case.ceiling for case in limited)
    outcomes = {case: finished[case] for case in (*ceilings, *limited) if case in finished}
    with progress("Spilling", len(limited) + len(ceilings) - len(outcomes)) as bar, _mapping(processes) as mapped:
        for some in (ceilings, limited):
            new = [case for case in some if case not in outcomes]
            peaks = [outcomes[case.ceiling].peak if case.ceiling in outcomes else None for case in new]
            for case, outcome in zip(new, mapped(run, new, peaks), strict=True):
                outcomes[case] = outcome
                bar.advance(bar.task_ids[0])
    for case in limited:
        assert outcomes[case].end == outcomes[case.ceiling].end, f"other results than without a limit: {case}"
    return outcomes


@contextmanager
def _mapping(processes: int) -> Iterator[Callable[..., Iterator[Outcome]]]:
    if processes == 1:
        yield map
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield pool.map


def with_seeds(sets: Iterable[Set], seeds: Sequence[int]) -> list[Case]:
    """Return all cases of some sets with all seeds."""
    return [replace(case, seed=seed) for one in sets for case in one.cases.values() for seed in seeds]


# -- telling


def summary(one: Set, seeds: Sequence[int], outcomes: Outcomes) -> list[dict[str, Any]]:
    """Return a row for each curve of a set: means over seeds at the end, and how far seeds lie apart."""
    curves = one.curves(seeds, outcomes)
    rows = []
    for name, curve in curves.items():
        ends = {measure: curve[measure][:, -1] for measure in MEASURES}
        share = 100 * ends["results"] / curves[CEILING]["results"][:, -1]
        row: dict[str, Any] = {"plan": one.name, "curve": name, "results": round(float(ends["results"].mean()))}
        row |= {"%_of_no_limit": round(float(share.mean()), 1), "seeds_from": round(float(share.min()), 1)}
        row |= {"to": round(float(share.max()), 1)}
        rows.append(row | {measure: round(float(ends[measure].mean())) for measure in MEASURES[1:]})
    return rows


def differences(one: Set, seeds: Sequence[int], outcomes: Outcomes) -> list[str]:
    """Say how far the results of the thesis' best lie from the others', and whether that is more than noise."""
    curves = one.curves(seeds, outcomes)
    whole, lines = curves[CEILING]["results"][:, -1], []
    for name in [name for name in one.cases if name != one.best]:
        apart = 100 * (curves[one.best]["results"][:, -1] - curves[name]["results"][:, -1]) / whole
        lines.append(f"{one.name}: {one.best} against {name}: {interval(apart)}")
    return lines


def interval(apart: Any) -> str:
    """Return a mean of paired differences with its 95 % interval, and whether that has 0 in it."""
    mean = float(np.mean(apart))
    if not np.any(apart):
        return "no difference"
    half = STUDENT[len(apart) - 2] * float(np.std(apart, ddof=1)) / len(apart) ** 0.5
    return f"{mean:+.1f} ± {half:.1f} % of the results without a limit" + ("" if abs(mean) > half else ", noise")


def save_runs(path: Path, outcomes: Outcomes) -> None:
    """Write what was counted after each batch of each run."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["plan", "ratios", "policy", "interval", "correlation", "seed", "seconds", *MEASURES])
        for case, outcome in outcomes.items():
            ratios = "/".join(map(str, case.setting.ratios))
            how = [case.shape, ratios, case.policy, case.interval, case.correlation, case.seed]
            for batch, row in enumerate(zip(*(outcome.series[m] for m in MEASURES), strict=True), 1):
                writer.writerow([*how, batch * case.batch, *map(int, row)])


def report(name: str, sets: Sequence[Set], seeds: Sequence[int], outcomes: Outcomes) -> None:
    rows = [row for one in sets for row in summary(one, seeds, outcomes)]
    listing(f"Spilling, {name}: means of {len(seeds)} seeds at the end", f"spill_{name}", rows)
    for one in sets:
        for line in differences(one, seeds, outcomes):
            console.print(line, highlight=False)
    plots = [one.row(seeds, outcomes) for one in sets]
    title = f"State spilling, {name}: means of {len(seeds)} seeds, the least and the most as bands"
    draw(RESULTS / f"spill_{name}.png", title, plots)
    save_runs(RESULTS / f"spill_{name}_runs.csv", outcomes)
    console.print(f"Written: {RESULTS / f'spill_{name}'}.csv, .png and _runs.csv")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="policies, correlation, intervals, appendix; all if none is given")
    parser.add_argument("--quick", action="store_true", help="two seeds, one phase")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args(arguments)
    sets, seeds = groups(options.quick), SEEDS[:2] if options.quick else SEEDS
    unknown = sorted({*options.names} - {*sets})
    if unknown:
        parser.error(f"there are {', '.join(sets)}, not {', '.join(unknown)}")
    outcomes: dict[Case, Outcome] = {}
    for name in options.names or sets:
        here = run_all(with_seeds(sets[name], seeds), options.processes, outcomes)
        report(name, sets[name], seeds, here)
        outcomes |= here


if __name__ == "__main__":
    main()
