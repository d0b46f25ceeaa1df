"""Similarity joins: what a pair costs natively, in a Python predicate of form `pair`, and in plain NumPy.

And what it saves to look great circles up by latitude: batches of a join with the index and without, in turns.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy: what others do to the cores must not count

import numpy as np
import pyarrow as pa

import watersmeet as wm
from bench.common import console, listing
from watersmeet.arrays import Ints
from watersmeet.placement import Central
from watersmeet.predicate.model import Argument, Column, Dialect, PythonPredicate
from watersmeet.predicate.parse import parse_where
from watersmeet.predicate.scope import Scope
from watersmeet.predicate.source import Source
from watersmeet.predicate.terms import Comparison, Input, Leaf, comparison_of
from watersmeet.predicate.translate import Translator
from watersmeet.probe.evaluators.balls import Ball, ball_of, decide
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.evaluators.real_comparisons import evaluate_pairs
from watersmeet.probe.predicate_calls import TRUE, ask
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

ROWS, PYTHON_ROWS, DIMENSION, ROUNDS = 1_500, 30, 256, 9
RIDERS, STORED_POSITIONS = 1_000, 10
"""Rows of a batch, and batches in the window, where places are looked up."""
FASTER, SLOWER = 50.0, 2.0
"""How many times faster than the pair form, and slower than the matrix form, the cosine may be."""
COSINE = 0.15
DISTANCE = (
    "12742 * asin(sqrt(pow(sin(radians(b.lat - a.lat) / 2), 2) "
    "+ cos(radians(a.lat)) * cos(radians(b.lat)) * pow(sin(radians(b.lon - a.lon) / 2), 2)))"
)
SCHEMA = pa.schema(
    [("v", pa.list_(pa.float32())), ("s", pa.string()), ("lat", pa.float64()), ("lon", pa.float64())]
)  # fmt: skip


def rows(seed: int) -> pa.Table:
    """Vectors, words, and places on earth."""
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("abcdefghij"), rng.integers(6, 15))) for _ in range(ROWS)]
    vectors = pa.array(list(rng.normal(size=(ROWS, DIMENSION)).astype(np.float32)), SCHEMA.field("v").type)
    return pa.table([vectors, words, rng.uniform(-90, 90, ROWS), rng.uniform(-180, 180, ROWS)], schema=SCHEMA)


class Native:
    """Decides a condition for pairs of rows as a hop does."""

    def __init__(self, text: str, sides: tuple[pa.Table, pa.Table]) -> None:
        source = Source(text)
        tree = source.parse()
        comparison = tree and comparison_of(
            tree, Translator(source, Scope([("a", SCHEMA), ("b", SCHEMA)]), [], Dialect())
        )
        assert comparison, text
        self.comparison: Comparison = comparison[0]
        self.columns = [[column.combine_chunks() for column in side.columns] for side in sides]
        self.duck = Duck(Dialect())
        self.open = 0

    def __call__(self, left_at: Ints, right_at: Ints) -> Ints:
        """Return the pairs for which it is TRUE."""
        balls = {term: self._ball(term, (left_at, right_at)) for term in self.comparison.inputs}
        possible, sure = decide(self.comparison, balls)
        self.open = int(np.count_nonzero(possible != sure))
        return np.flatnonzero(sure)

    def _ball(self, term: Input, at: tuple[Ints, Ints]) -> Ball:
        if isinstance(term, Leaf):
            columns = {column.name: self._column(column).take(pa.array(at[column.stream])) for column in term.columns}
            return ball_of(self.duck.values(columns, term.sql, len(at[0])), term.error)
        return evaluate_pairs(term, self._column(term.left), self._column(term.right), *at)

    def _column(self, column: Column) -> pa.Array:
        return self.columns[column.stream][column.field]


@wm.predicate(form="pair")
def similar(x: Any, y: Any) -> bool:
    return bool(x @ y > COSINE * math.sqrt((x @ x) * (y @ y)))


@wm.predicate(name="similar")
def one_to_many(x: Any, ys: Any) -> Any:
    return ys @ x > COSINE * np.linalg.norm(ys, axis=1) * np.linalg.norm(x)


@wm.predicate(name="similar", form="matrix")
def many_to_many(xs: Any, ys: Any) -> Any:
    return xs @ ys.T > COSINE * np.outer(np.linalg.norm(xs, axis=1), np.linalg.norm(ys, axis=1))


@wm.predicate(form="pair")
def near(lat: float, lon: float, other_lat: float, other_lon: float) -> bool:
    p, q = math.radians(lat), math.radians(other_lat)
    half = math.sin((q - p) / 2) ** 2 + math.cos(p) * math.cos(q) * math.sin(math.radians(other_lon - lon) / 2) ** 2
    return 12742 * math.asin(math.sqrt(half)) < 500


@wm.predicate(form="pair")
def edits(one: str, two: str) -> bool:
    row = list(range(len(two) + 1))
    for i, left in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, right in enumerate(two, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return row[-1] <= 4


@wm.predicate(form="pair")
def alike(one: str, two: str) -> bool:
    reach = max(0, max(len(one), len(two)) // 2 - 1)
    is_used, firsts = [False] * len(two), []
    for i, letter in enumerate(one):
        for j in range(max(0, i - reach), min(i + reach + 1, len(two))):
            if not is_used[j] and two[j] == letter:
                is_used[j] = True
                firsts.append(letter)
                break
    if not firsts:
        return False
    seconds = [letter for letter, used in zip(two, is_used, strict=True) if used]
    count, moved = len(firsts), sum(x != y for x, y in zip(firsts, seconds, strict=True))
    jaro = (count / len(one) + count / len(two) + (count - moved / 2) / count) / 3
    prefix = next((i for i, (x, y) in enumerate(zip(one[:4], two[:4], strict=False)) if x != y), 4)
    return jaro + prefix * 0.1 * (1 - jaro) > 0.75


def python(predicate: PythonPredicate, fields: list[int], sides: tuple[pa.Table, pa.Table]) -> Callable[..., Ints]:
    """What asks a predicate as the engine does."""
    arguments = [
        Argument(Column(stream, field).name, (Column(stream, field),), "") for stream in (0, 1) for field in fields
    ]

    def fetch(argument: Argument, refs: Ints) -> tuple[pa.Array, Ints]:
        column = argument.columns[0]
        return sides[column.stream].column(column.field).combine_chunks(), refs

    return lambda left_at, right_at: np.flatnonzero(ask(predicate, arguments, {0: left_at, 1: right_at}, fetch) == TRUE)


def matrix(sides: tuple[pa.Table, pa.Table]) -> Callable[[Ints, Ints], Ints]:
    """Cosines as anyone would write them in NumPy for all pairs at once."""
    one, two = (side.column("v").combine_chunks().flatten().to_numpy().reshape(-1, DIMENSION) for side in sides)

    def matches(left_at: Ints, right_at: Ints) -> Ints:
        x, y = (m / np.linalg.norm(m, axis=1, keepdims=True) for m in (one, two))
        return np.flatnonzero(x @ y.T > COSINE)

    return matches


def every(count: int) -> tuple[Ints, Ints]:
    """All pairs of the first rows."""
    return np.repeat(np.arange(count), count), np.tile(np.arange(count), count)


def nanoseconds(*competitors: tuple[Callable[[Ints, Ints], Ints], int]) -> list[float]:
    """CPU time a pair of each, the median of rounds in which they take turns: others share the cores."""
    seconds: list[list[float]] = [[] for _ in competitors]
    for _ in range(ROUNDS):
        for (what, count), times in zip(competitors, seconds, strict=True):
            pairs = every(count)
            start = time.process_time()
            what(*pairs)
            times.append((time.process_time() - start) / count**2 * 1e9)
    return [float(np.median(times)) for times in seconds]


CASES: dict[str, tuple[str, PythonPredicate, list[int]]] = {
    f"cosine, {DIMENSION} dimensions": (f"vector_cosine_similarity(a.v, b.v) > {COSINE}", similar, [0]),
    "levenshtein": ("levenshtein(a.s, b.s) <= 4", edits, [1]),
    "jaro_winkler": ("jaro_winkler_similarity(a.s, b.s) > 0.75", alike, [1]),
    "great circle": (f"{DISTANCE} < 500", near, [2, 3]),
}


def forms(sides: tuple[pa.Table, pa.Table]) -> None:
    """Show what a pair costs in each form of a Python predicate, written in the obvious way, beside plain NumPy."""
    by_form = {predicate.form: python(predicate, [0], sides) for predicate in (similar, one_to_many, many_to_many)}
    answers = [of(*every(PYTHON_ROWS)).tolist() for of in by_form.values()]
    counts = {"pair": PYTHON_ROWS * 4}
    times = nanoseconds(*((of, counts.get(form, ROWS)) for form, of in by_form.items()), (matrix(sides), ROWS))
    table = [
        {"form": form, "ns": time, "to_numpy": time / times[-1]} for form, time in zip(by_form, times, strict=False)
    ]
    same = str(answers.count(answers[0]) == len(answers))
    listing("The cosine in Python, nanoseconds of CPU a pair", "forms", [row | {"same_results": same} for row in table])


def riders(batch: int, rng: np.random.Generator) -> list[tuple[int, dict[str, Any]]]:
    """A batch of two streams: places in a city, 25 km by 25 km."""
    lat, lon = rng.uniform(52.4, 52.62, RIDERS), rng.uniform(13.2, 13.56, RIDERS)
    return [
        (at % 2, {"id": batch * RIDERS + at, "ts": batch, "lat": y, "lon": x})
        for at, (y, x) in enumerate(zip(lat.tolist(), lon.tolist(), strict=True))
    ]


def looked_up() -> None:
    """Show the CPU time of batches that join places within 200 m, with the index on latitudes and without."""
    schema = pa.schema(
        [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("lat", pa.float64()), ("lon", pa.float64())]
    )
    streams = tuple(StreamSpec(name, schema, 1, Sliding(STORED_POSITIONS), 0) for name in "ab")
    conjuncts = parse_where(f"{DISTANCE} < 0.2", [(s.name, s.schema) for s in streams], (), Dialect())
    scans = tuple(replace(conjunct, bounds=()) for conjunct in conjuncts)
    seconds: dict[str, list[float]] = {"index": [], "scan": []}
    pairs: dict[str, int] = {}
    with TemporaryDirectory() as folder:
        of = {"index": conjuncts, "scan": scans}
        runs = {name: Run(Query(streams, some), Store(f"{folder}/{name}")) for name, some in of.items()}
        rng = np.random.default_rng(3)
        for batch in range(STORED_POSITIONS + ROUNDS):
            arrivals = riders(batch, rng)
            for name, run in runs.items():
                start = time.process_time()
                run.step(Central(), arrivals)
                seconds[name].append(time.process_time() - start)
                pairs[name] = sum(hop["into"] for hop in run.progress[-1]["funnel"])
    ms = {name: float(np.median(times[STORED_POSITIONS:])) * 1e3 for name, times in seconds.items()}
    same = str(runs["index"].results == runs["scan"].results)
    table = [{"batch": name, "cpu_ms": ms[name], "pairs": pairs[name], "same_results": same} for name in runs]
    listing(f"Within 200 m: {RIDERS:,} rows a batch, {STORED_POSITIONS} batches in the window", "great_circle", table)
    console.print(f"By latitude: {ms['scan'] / ms['index']:.1f} times faster")


def main() -> None:
    sides = rows(1), rows(2)
    looked_up()
    forms(sides)
    table = list[dict[str, Any]]()
    for name, (text, predicate, fields) in CASES.items():
        native, called = Native(text, sides), python(predicate, fields, sides)
        same = np.array_equal(native(*every(PYTHON_ROWS)), called(*every(PYTHON_ROWS)))
        count = ROWS if name.startswith("cosine") else ROWS // 3
        others = [(matrix(sides), ROWS)] if name.startswith("cosine") else []
        ours, pair, *rest = nanoseconds((native, count), (called, PYTHON_ROWS), *others)
        plain = rest[0] if rest else None
        row = {"condition": name, "native_ns": ours, "pair_form_ns": pair, "faster": pair / ours}
        row |= {"matrix_form_ns": plain or "", "slower": ours / plain if plain else ""}
        table.append(row | {"left_open": native.open, "same_results": str(same)})
    listing(f"Nanoseconds of CPU a pair, {ROWS:,} rows a side", "similarity", table)
    faster, slower = table[0]["faster"], table[0]["slower"]
    outcome = "met" if faster >= FASTER and slower <= SLOWER else "MISSED"
    console.print(
        f"The cosine: {faster:.0f} times the pair form ({FASTER:g} wanted), "
        f"{slower:.2f} times as long as the matrix form ({SLOWER:g} allowed): {outcome}"
    )


if __name__ == "__main__":
    main()
