"""The joins that are played, of every kind by dice, and what the oracle says of each."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

import watersmeet as wm
from tests.batch.scatter import Restless
from tests.spark.harness import EPOCH, SCHEMA, SECOND, Batches, Case, cuts, expected, join_of, micros
from tests.spark.test_metadata_joins import SCHEMA as TYPES
from tests.spark.test_metadata_joins import auctions, rows
from watersmeet.placement import Strategy
from watersmeet.testing import oracle
from watersmeet.testing.oracle import AsOf, Count, Hopping, How, Sliding

Ids = tuple[int | None, ...]
Inputs = Mapping[str, DataFrame]
SIZE, DELAY, DISORDER = 12, 6, 13
"""In seconds; more disorder than delay: some rows are late."""
BATCHES, ROWS = 10, 7
ZONES = ((1000, "p"), (1001, "p"), (1002, "q"))
"""The table: id and k."""


@wm.predicate
def below(x: float, ys: Any) -> Any:
    """Tell whether a value is below others."""
    return ys > x


BELOW = ("{0}.x < {1}.x", "below({0}.x, {1}.x)", "exp({0}.x) < exp({1}.x)")
"""One condition for DuckDB, for a Python predicate, and for Spark to decide."""
STRATEGIES: tuple[Strategy, ...] = (
    wm.Central(), wm.PSP(3), wm.PSP(1), wm.DSJ(2), wm.ATR(2), wm.CTR(2), Restless(4), wm.Auto(4, interval=1),
)  # fmt: skip


class Expected(NamedTuple):
    """What the oracle says: the ids of results and, of kinds whose late rows are compared, streams and ids of those."""

    results: Counter[Ids]
    late: Counter[tuple[str, int]] | None = None


@dataclass(frozen=True)
class Subject:
    """A join that is played.

    Attributes:
        kind: One of `KINDS`.
        batches: Its input.
        columns: What results show: ids, by these names.
        join: Returns it over frames of its input, with more in the SELECT list and options of `wm.join`.
        results: Returns what the oracle says of batches, and whether all is closed for good after them.
        part: The expression of the column by which outputs in partitions are divided.
        schema: The columns of all inputs.
        spills: Whether work of it may be put off.
    """

    kind: str
    batches: Batches
    columns: tuple[str, ...]
    join: Callable[..., wm.Join]
    results: Callable[[Batches, bool], Expected]
    part: str = "a.id % 3"
    schema: pa.Schema = SCHEMA
    spills: bool = False


def subject(seed: int) -> Subject:
    """Return the join of a seed: the same in every process."""
    rng = random.Random(f"join {seed}")
    return KINDS[rng.choice(sorted(KINDS))](rng)


def _less(one: Any, two: Any) -> bool:
    return None not in (one["x"], two["x"]) and one["x"] < two["x"]


def _select(columns: Sequence[str]) -> str:
    return ", ".join(f"{name}.id AS {name}" for name in columns)


def _inner(kind: str, *windows: oracle.Window) -> Callable[[random.Random], Subject]:
    """Return how a join of streams with these windows is thrown."""

    def thrown(rng: random.Random) -> Subject:
        names = "abc"[: len(windows)]
        case = Case(
            [oracle.Stream(name, window, DELAY) for name, window in zip(names, windows, strict=True)],
            cuts(rng.randrange(1000), names, BATCHES, ROWS, disorder=DISORDER, ties=False),
            " AND ".join(rng.choice(BELOW).format(*pair) for pair in pairwise(names)),
            lambda *rows: all(_less(one, two) for one, two in pairwise(rows)),
            predicates=[below],
        )

        def results(batches: Batches, ended: bool) -> Expected:
            return _compared(expected(replace(case, batches=batches)))

        def join(inputs: Inputs, more: str = "", **options: Any) -> wm.Join:
            return join_of(case, inputs, select=_select(names) + more, **options)

        return Subject(kind, case.batches, tuple(names), join, results, spills=kind == "inner")

    return thrown


def _outer(kind: str, how: How, asked: Any) -> Callable[[random.Random], Subject]:
    """Return how a join with an optional stream b is thrown."""

    def thrown(rng: random.Random) -> Subject:
        width: oracle.Window = oracle.Unbounded() if isinstance(how, AsOf) else Sliding(SIZE)
        streams = [oracle.Stream("a", Sliding(SIZE), DELAY), oracle.Stream("b", width, DELAY)]
        batches = cuts(rng.randrange(1000), "ab", BATCHES, ROWS, disorder=DISORDER, ties=False)
        case = Case(streams, batches, "a.k = b.k AND " + rng.choice(BELOW).format("a", "b"), predicates=[below])
        columns = ("a",) if how in ("semi", "anti") else ("a", "b")

        def results(batches: Batches, ended: bool) -> Expected:
            sliding = Sliding(SIZE * SECOND)
            windows = [sliding, width if isinstance(how, AsOf) else sliding]
            scaled = [replace(s, window=w, delay=DELAY * SECOND) for s, w in zip(streams, windows, strict=True)]
            on = {"b": lambda rows: _same(rows["a"], rows["b"]) and _less(rows["a"], rows["b"])}
            found = oracle.join(scaled, _arrivals(batches), lambda rows: True, how={"b": how}, on=on, ended=ended)
            return _compared(found, len(columns))

        def join(inputs: Inputs, more: str = "", **options: Any) -> wm.Join:
            return join_of(case, inputs, select=_select(columns) + more, how={"b": asked}, **options)

        return Subject(kind, batches, columns, join, results)

    return thrown


def _same(one: Any, two: Any) -> bool:
    return one["k"] is not None and one["k"] == two["k"]


def _arrivals(batches: Batches) -> list[oracle.Arrival]:
    return [
        oracle.Arrival(at, name, micros(row["ts"]), row["id"], row)
        for at, batch in enumerate(batches)
        for name, rows in batch.items()
        for row in rows
    ]


def _compared(outcome: oracle.Outcome, columns: int = 9) -> Expected:
    return Expected(_ids(outcome.results, columns), Counter((row.stream, row.row["id"]) for row in outcome.late))


def _ids(results: Mapping[tuple[tuple[Any, ...], int], int], columns: int = 9) -> Counter[Ids]:
    found = Counter[Ids]()
    for (ids, _), times in results.items():
        found[ids[:columns]] += times
    return found


def _metadata(rng: random.Random) -> Subject:
    """A key, and punctuations in band and from a frame of their own; windows there are none."""
    seed, batches = rng.randrange(1000), list[dict[str, Any]]()
    for batch, more in zip(rows(seed, "ab", BATCHES, ends=0.15), rows(seed + 1, "a", BATCHES, size=3), strict=True):
        batches.append(batch | {"ends": [{**row, "id": None} for row in more["a"]]})
    case, _ = auctions(batches)

    def results(batches: Batches, ended: bool) -> Expected:
        return Expected(_ids(expected(auctions([dict(batch) for batch in batches])[1]).results))

    def join(inputs: Inputs, more: str = "", **options: Any) -> wm.Join:
        return join_of(case, inputs, select=_select("ab") + more, **options)

    return Subject("metadata", case.batches, ("a", "b"), join, results, schema=TYPES)


def _table(rng: random.Random) -> Subject:
    """Two streams and a table that is read once."""
    pair = _inner("table", Sliding(SIZE), Sliding(SIZE))(rng)
    condition = rng.choice(BELOW).format("a", "b")

    def results(batches: Batches, ended: bool) -> Expected:
        keys = {row["id"]: row["k"] for batch in batches for row in batch["a"]}
        found, pairs = Counter[Ids](), pair.results(batches, ended)
        for (a, b), times in pairs.results.items():
            found.update({(a, b, zone): times for zone, key in ZONES if key == keys[a]})
        return Expected(found, pairs.late)

    def join(inputs: Inputs, more: str = "", **options: Any) -> wm.Join:
        zones = inputs["a"].sparkSession.createDataFrame(list(ZONES), "id long, k string")
        streams = [_stream(name, inputs[name]) for name in "ab"]
        where = f"{condition} AND a.k = z.k"
        shown = _select("abz") + more
        return wm.join(*streams, wm.table("z", zones), where=where, predicates=[below], select=shown, **options)

    return replace(pair, columns=("a", "b", "z"), join=join, results=results)


def _nested(rng: random.Random) -> Subject:
    """A join of a join; rows are in time, so that it says itself what is a result."""
    batches = cuts(rng.randrange(1000), "abc", BATCHES, ROWS, ties=False)
    condition, kept, width = rng.choice(BELOW), rng.random() < 0.5, SIZE * SECOND

    def results(batches: Batches, ended: bool) -> Expected:
        a, b, c = ([row for batch in batches for row in batch[name]] for name in "abc")
        at = {row["id"]: micros(row["ts"]) or 0 for row in (*a, *b, *c)}
        pairs = [(x["id"], y) for x, y in product(a, b) if _same(x, y) and abs(at[x["id"]] - at[y["id"]]) < width]
        found = Counter[Ids]()
        for (x, y), z in product(pairs, c):
            near = abs(max(at[x], at[y["id"]]) - at[z["id"]]) < width
            found[x, y["id"], z["id"]] += near and _less(y, z)
        return Expected(+found)

    def join(inputs: Inputs, more: str = "", **options: Any) -> wm.Join:
        pair = [_stream(name, inputs[name]) for name in "ab"]
        inner = wm.join(*pair, where="a.k = b.k", select="a.id AS a, b.id AS b, b.x AS x", strategy=wm.Hash(2))
        streams = [wm.stream("ab", inner, window=f"{SIZE} seconds"), _stream("c", inputs["c"])]
        if not kept:
            streams.reverse()
        where, shown = condition.format("ab", "c"), f"ab.a, ab.b, c.id AS c{more}"
        return wm.join(*streams, where=where, predicates=[below], select=shown, **options)

    return Subject("nested", batches, ("a", "b", "c"), join, results, part="ab.a % 3", spills=True)


def _stream(name: str, frame: DataFrame) -> Any:
    return wm.stream(name, frame, time="ts", window=f"{SIZE} seconds", delay=f"{DELAY} seconds")


assert EPOCH % (SIZE * SECOND) == 8 * SECOND  # hopping windows begin between the rows of a case, not with them
KINDS: dict[str, Callable[[random.Random], Subject]] = {
    "inner": _inner("inner", Sliding(SIZE), Sliding(SIZE), Sliding(SIZE)),
    "count": _inner("count", Sliding(SIZE), Count(6), Count(9)),
    "hopping": _inner("hopping", Hopping(SIZE, 4), Hopping(SIZE, 4)),
    **{how: _outer(how, how, how) for how in ("left", "semi", "anti", "full")},
    "as-of": _outer("as-of", AsOf(8 * SECOND, left=True), wm.asof("8 seconds", left=True)),
    "nested": _nested,
    "metadata": _metadata,
    "table": _table,
}
