"""`python -m tests.chaos --seconds 900`: joins and their mishaps; what comes out is exact, or refused in a sentence."""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from tests.chaos import program
from tests.chaos.joins import KINDS
from tests.chaos.mishaps import MISHAPS, PROCESSES, RENUMBERED, Mishap
from tests.chaos.round import Round, Tally, Wrong
from tests.spark.crashing_join import session

ENDS = ("exact", "refused", "stopped")
MANY = 3 * len(MISHAPS)
"""From so many rounds on, every kind of mishap must have hit something."""


def main(arguments: list[str] | None = None) -> int:
    """Run rounds of mishaps; 1 if one of them went wrong, or a kind of mishap never hit anything."""
    parser = argparse.ArgumentParser("python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on")
    parser.add_argument("--seed", type=int, help="run the round of this seed only")
    parser.add_argument("--only", default="", help=f"mishaps to choose from: {', '.join(MISHAPS)}")
    options = parser.parse_args(arguments)
    names = [name for name in options.only.split(",") if name] or list(MISHAPS)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
    tallies, joins, wrong, end = dict[str, Tally](), Counter[str](), list[int](), time.monotonic() + options.seconds
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    program.arrange()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        spark = session("local[2]", Path(folder))
        while time.monotonic() < end:
            if not _round(spark, seed, names, tallies, joins):
                wrong.append(seed)
            if options.seed is not None:
                break
            seed += 1
        spark.stop()
    print(table(tallies, joins.total()))
    print("joins: " + ", ".join(f"{joins[kind]} {kind}" for kind in sorted(KINDS)))
    idle = [] if options.seed is not None else missed(tallies, names, joins.total())
    if idle:
        print(f"These mishaps never came up, or never hit anything: {', '.join(idle)}.")
    if wrong:
        print(f"{len(wrong)} rounds went wrong: run again with --seed {' or '.join(map(str, wrong))}")
    return 1 if wrong or idle else 0


def table(tallies: Mapping[str, Tally], rounds: int) -> str:
    """Return what each kind of mishap came to, and all of them in so many rounds, as text."""
    total = Tally(rounds, sum(tally.hits for tally in tallies.values()))
    for tally in tallies.values():
        total.ends.update(tally.ends)
    rows: list[tuple[str, ...]] = [("mishap", "rounds", "hits", *ENDS)]
    for name, tally in [*sorted(tallies.items()), ("all", total)]:
        rows.append((name, *map(str, (tally.rounds, tally.hits, *(tally.ends[end] for end in ENDS)))))
    return "\n".join(f"{row[0]:20}" + "".join(f"{cell:>9}" for cell in row[1:]) for row in rows)


def missed(tallies: Mapping[str, Tally], names: Iterable[str], rounds: int) -> list[str]:
    """Return the kinds of mishaps that hit nothing, of those that were tried: in many rounds, that is all of them."""
    asked = {*tallies, *(names if rounds >= MANY else ())}
    return sorted(name for name in asked if not tallies.get(name, Tally()).hits)


def _mishaps(round: Round, names: Sequence[str]) -> list[Mishap]:
    """Throw what happens in a round: one to three mishaps, of which seeds in a row take turns with one."""
    fitting = [name for name in names if round.sink != "upsert" or name not in RENUMBERED] or ["cut"]
    weights = [1 if name in PROCESSES else 3 for name in fitting]
    turn = names[round.seed % len(names)]
    thrown = round.rng.choices(fitting, weights, k=round.rng.randint(1, 3))
    if turn in fitting:
        thrown[0] = turn
    round.rng.shuffle(thrown)
    return [MISHAPS[name] for name in thrown]


def _round(
    spark: SparkSession, seed: int, names: Sequence[str], tallies: dict[str, Tally], joins: Counter[str]
) -> bool:
    folder, began = Path(tempfile.mkdtemp(prefix="chaos-")), time.monotonic()
    round = Round(spark, folder, seed, tallies)
    title = f"seed {seed}: {round.subject.kind} into {round.sink}{', closed for good' * round.final}"
    joins[round.subject.kind] += 1
    try:
        round.play(_mishaps(round, names))
    except Exception as error:
        why = f"WRONG: {error}" if isinstance(error, Wrong) else f"BROKEN\n{traceback.format_exc()}"
        print(f"{title}: {why}\n  " + "\n  ".join(round.story) + f"\n  files: {folder}", flush=True)
        for query in spark.streams.active:
            query.stop()
        return False
    shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{title}: {round.results} results, exact in {time.monotonic() - began:.0f} s after " + "; ".join(round.story),
        flush=True,
    )
    return True


if __name__ == "__main__":
    sys.exit(main())
