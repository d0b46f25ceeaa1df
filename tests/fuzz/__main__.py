"""`python -m tests.fuzz --seconds 600`: random joins, each compared with brute force and with Spark itself."""

import argparse
import logging
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator

from pyspark.sql import SparkSession

from tests.fuzz.case import Case, Runner, Verdict, cases
from tests.fuzz.kinds import KINDS
from tests.fuzz.reference import define
from tests.fuzz.shrink import shrink

FAMILIES = sorted({kind.family for kind in KINDS})
MOST_FAILURES = 10
"""Failures of different kinds after which there is enough to do."""
MOST_SHOWN = 2
"""Failures of one kind that are shown in full."""


def main(arguments: list[str] | None = None) -> int:
    """Run random joins; 1 if one of them went wrong."""
    options = _options(arguments)
    tally = Tally(options)
    runner = Runner(_session())
    define(runner.spark)
    end = time.monotonic() + options.seconds
    for case in _cases(options):
        if time.monotonic() > end or len(tally.failures) >= options.failures:
            break
        verdict = runner.run(case)
        tally.add(case, verdict, options.verbose)
        if tally.is_failure(verdict) and tally.fail(case, verdict):
            _report(case, verdict, runner, tally, 0 if options.no_shrink else options.shrink)
    runner.close()
    print("\n" + tally.line())
    for said, count in tally.refusals.most_common(15):
        print(f"  {count} times {said}")
    for kind, seeds in tally.failures.items():
        print(f"  {len(seeds)} failures like: {kind}\n    seeds {' '.join(seeds[:20])}")
    return 1 if tally.failures else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on")
    parser.add_argument("--seed", help="begin here; `N:k` runs only that case")
    parser.add_argument("--failures", type=int, default=MOST_FAILURES, help="stop after so many kinds of failures")
    parser.add_argument("--allow-refusals", action="store_true", help="what Spark takes may be refused")
    parser.add_argument("--without", default="", help=f"families of columns to leave out: {', '.join(FAMILIES)}")
    parser.add_argument("--shrink", type=float, default=30, help="seconds to make a failing case smaller")
    parser.add_argument("--no-shrink", action="store_true", help="show failing cases as they are")
    parser.add_argument("--verbose", action="store_true", help="show every case")
    return parser.parse_args(arguments)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    given = str(options.seed or random.SystemRandom().randrange(10**9))
    seed, _, only = given.partition(":")
    without = frozenset(filter(None, options.without.split(",")))
    print(f"seed {given}", flush=True)
    if only:
        yield from (case for case in cases(int(seed), without) if case.seed == given)
        return
    at = int(seed)
    while True:
        yield from cases(at, without)
        at += 1


class Tally:
    """Counts what became of the cases."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.counts, self.started = options, Counter[str](), time.monotonic()
        self.refusals, self.failures, self._shown = Counter[str](), dict[str, list[str]](), 0.0

    def add(self, case: Case, verdict: Verdict, verbose: bool) -> None:
        """Count a case, and say from time to time how it goes."""
        self.counts[verdict.kind] += 1
        if verdict.kind in ("refused", "skipped"):
            self.refusals[f"{verdict.kind}: {verdict.said}"] += 1
        if verbose:
            print(f"{case.seed} {verdict.kind}: {verdict.said[:100]}: {case.where}", flush=True)
        elif time.monotonic() - self._shown > 10:
            self._shown = time.monotonic()
            print(f"{self.line()}; at seed {case.seed}", flush=True)

    def is_failure(self, verdict: Verdict) -> bool:
        """Whether a case went wrong."""
        return verdict.kind == "failed" or (verdict.kind == "refused" and not self.options.allow_refusals)

    def fail(self, case: Case, verdict: Verdict) -> bool:
        """Note a failure, and tell whether to show it: not if others of its kind were shown."""
        kind = re.sub(r"[-0-9]+", "0", verdict.said.split(" wanted;")[0])[:90]
        self.failures.setdefault(kind, []).append(case.seed)
        return len(self.failures[kind]) <= MOST_SHOWN

    def line(self) -> str:
        """The counts."""
        minutes = (time.monotonic() - self.started) / 60
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        return f"{self.counts.total()} cases ({self.counts.total() / max(minutes, 1e-9):.0f} a minute): {counted}"


def _report(case: Case, verdict: Verdict, runner: Runner, tally: Tally, seconds: float) -> None:
    """Show a case that went wrong, a smaller one if there is one, and how to see it again."""
    allowed = " --allow-refusals" if tally.options.allow_refusals else ""
    without = f" --without {tally.options.without}" if tally.options.without else ""
    again = f"python -m tests.fuzz --seed {case.seed}{allowed}{without}"
    print(f"\n{verdict.kind.upper()} seed {case.seed}: {verdict.said}\n{case}", flush=True)
    if seconds and verdict.kind == "failed":
        smaller = shrink(case, lambda other: runner.run(other).kind == "failed", seconds)
        print(f"smaller: {runner.run(smaller).said}\n{smaller}", flush=True)
    print(f"again: {again}\n", flush=True)


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Most JVM code runs a few times only: to optimise it would take longer.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("watersmeet").setLevel(logging.CRITICAL)  # random times are full of what is worth a warning
    builder: SparkSession.Builder = SparkSession.builder
    session = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


if __name__ == "__main__":
    sys.exit(main())
