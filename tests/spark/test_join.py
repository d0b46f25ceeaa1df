"""Joins of every kind through real Spark, streaming from files, compared with the oracle."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import (
    EXCHANGES,
    Case,
    check,
    cuts,
    expected,
    frames,
    join_of,
    read,
    results,
    run,
    through,
    write,
)
from watersmeet.exchange.tasks import CONTENT
from watersmeet.placement import Strategy
from watersmeet.spark.run.frames import union
from watersmeet.testing import stream_batches, write_batches
from watersmeet.testing.oracle import Count, Hopping, Sliding, Stream, Unbounded

pytestmark = pytest.mark.spark


@wm.predicate
def near(x: float, ys: Any) -> Any:
    return abs(ys - x) < 2


@wm.predicate(form="pair", nulls=True)
def alike(x: str | None, y: str | None) -> bool | None:
    return x == y


@wm.predicate(form="matrix")
def below(xs: Any, ys: Any) -> Any:
    return xs[:, None] < ys[None, :]


def less(x: Any, y: Any) -> bool | None:
    return None if x is None or y is None else x < y


def band(x: Any, y: Any, width: float = 2) -> bool | None:
    return None if x is None or y is None else abs(x - y) < width


def same(x: Any, y: Any) -> bool | None:
    return None if x is None or y is None else x == y


def every(*parts: bool | None) -> bool:
    return all(part is True for part in parts)


CASES = {
    "sliding, two streams": Case(
        [Stream("a", Sliding(10), 5), Stream("b", Sliding(6), 5)],
        cuts(1, "ab", nulls=0.2),
        "a.x < b.x",
        lambda a, b: less(a["x"], b["x"]),
        strategy=wm.PSP(1),
    ),
    "late rows": Case(
        [Stream("a", Sliding(8), 0), Stream("b", Sliding(8), 1)],
        cuts(2, "ab", batches=5, disorder=12),
        "abs(a.x - b.x) < 2",
        lambda a, b: band(a["x"], b["x"]),
        strategy=wm.PSP(3),
    ),
    "no event time": Case(
        [Stream("a", Sliding(8), 4), Stream("b", Sliding(8), 4)],
        cuts(3, "ab", null_times=0.25),
        "a.k = b.k",
        lambda a, b: same(a["k"], b["k"]),
        strategy=wm.Central(),
    ),
    "count windows, ties": Case(
        [Stream("a", Count(4), 3), Stream("b", Count(3), 3)],
        cuts(4, "ab", step=4, disorder=5),
        "a.x <= b.x",
        lambda a, b: every(None if None in (a["x"], b["x"]) else a["x"] <= b["x"]),
        strategy=wm.PSP(2),
    ),
    "hopping windows": Case(
        [Stream("a", Hopping(10, 5), 6), Stream("b", Hopping(6, 8), 6)],
        cuts(5, "ab"),
        "near(a.x, b.x)",
        lambda a, b: band(a["x"], b["x"]),
        (near,),
        wm.PSP(4),
    ),
    "unbounded": Case(
        [Stream("a", Unbounded(), 0), Stream("b", Unbounded(), 0)],
        cuts(6, "ab", batches=3),
        "a.x = b.x AND a.k <> b.k",
        lambda a, b: every(same(a["x"], b["x"]), None if None in (a["k"], b["k"]) else a["k"] != b["k"]),
        strategy=wm.PSP(2),
    ),
    "every window at once, four streams": Case(
        [
            Stream("a", Sliding(9), 5),
            Stream("b", Count(3), 5),
            Stream("c", Hopping(12, 4), 5),
            Stream("d", Unbounded()),
        ],
        cuts(7, "abcd", rows=5, batches=4, values=4),
        "a.x = b.x AND near(b.x, c.x) AND c.k = d.k",
        lambda a, b, c, d: every(same(a["x"], b["x"]), band(b["x"], c["x"]), same(c["k"], d["k"])),
        (near,),
        wm.PSP(3),
    ),
    "an OR across streams, Python and SQL mixed": Case(
        [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5), Stream("c", Sliding(5), 5)],
        cuts(8, "abc", rows=6),
        "(a.x = b.x OR alike(a.k, b.k)) AND below(b.x, c.x)",
        lambda a, b, c: every(same(a["x"], b["x"]) or a["k"] == b["k"], less(b["x"], c["x"])),
        (alike, below),
        wm.PSP(2),
    ),
    "a condition over three streams": Case(
        [Stream("a", Sliding(7), 5), Stream("b", Sliding(7), 5), Stream("c", Sliding(7), 5)],
        cuts(9, "abc", rows=6, nulls=0.2),
        "a.x + b.x > c.x AND a.k LIKE 'p%'",
        lambda a, b, c: every(None if None in (a["x"], b["x"], c["x"]) else a["x"] + b["x"] > c["x"], a["k"] == "p"),
        strategy=wm.PSP(4),
    ),
    "a cross product": Case(
        [Stream("a", Sliding(4), 4), Stream("b", Sliding(4), 4), Stream("c", Sliding(4), 4)],
        cuts(10, "abc", rows=6),
        strategy=wm.PSP(2),
    ),
    "equal times everywhere": Case(
        [Stream("a", Sliding(1), 0), Stream("b", Count(2), 0)],
        cuts(11, "ab", step=1, disorder=0),
        strategy=wm.PSP(2),
    ),
    "nine streams": Case(
        [Stream(name, Sliding(9), 6) for name in "abcdefghi"],
        cuts(25, "abcdefghi", batches=2, rows=3, nulls=0, values=2),
        " AND ".join(f"{one}.x = {two}.x" for one, two in zip("abcdefgh", "bcdefghi", strict=True)),
        lambda *rows: len({row["x"] for row in rows}) == 1,
        strategy=wm.PSP(2),
    ),
}


def by_turns() -> list[Any]:
    """Return each case with each exchange; in the quick suite every other case, and exchanges take turns."""
    quick = {name: EXCHANGES[at % len(EXCHANGES)] for at, name in enumerate([*CASES][:-1:2])}
    return [
        pytest.param(name, exchange, marks=() if quick.get(name) == exchange else pytest.mark.slow)
        for name in CASES
        for exchange in EXCHANGES
    ]


@pytest.mark.parametrize(("name", "exchange"), by_turns())
def test_the_results_are_the_oracles(spark: SparkSession, tmp_path: Path, name: str, exchange: str) -> None:
    query = check(spark, CASES[name], tmp_path, exchange)
    assert sum(p["outputRows"] for p in query.progress) > 0


def test_queries_of_one_process_do_not_disturb_each_other(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", PAIR.batches)
    running = []
    for name in ("one", "two", "three"):
        joined = join_of(PAIR, frames(spark, tmp_path / "in", "ab"))
        writer = joined.writeStream.option("checkpointLocation", str(tmp_path / name / "checkpoint"))
        running.append(writer.trigger(availableNow=True).start(str(tmp_path / name / "out")))
    for query, name in zip(running, ("one", "two", "three"), strict=True):
        query.awaitTermination()
        assert {p["process"] for p in query.progress} == {"driver"}
        assert results(tmp_path / name, "ab") == expected(PAIR).results


def test_tasks_share_the_answers_of_predicates(spark: SparkSession, tmp_path: Path) -> None:
    """What was asked about b and c in the first batch, whoever asked, is not asked again for new tuples of a."""

    def rows(first: int, ts: int) -> list[dict[str, Any]]:
        return [{"id": first + i, "ts": ts + i, "x": float(i), "k": None} for i in range(12)]

    batches = [{"a": rows(0, 0), "b": rows(100, 0), "c": rows(200, 0)}, {"a": rows(300, 12), "b": [], "c": []}]
    streams = [Stream(name, Sliding(60), 0) for name in "abc"]
    case = Case(streams, batches, "near(b.x, c.x)", lambda a, b, c: abs(b["x"] - c["x"]) < 2, [near])
    query = check(spark, case, tmp_path, "local")
    asked = [p["predicates"].get("near", {"pairs": 0})["pairs"] for p in query.progress]
    assert asked[0] >= 12 * 12
    assert asked[1] == 0


# -- placements and orders

TIED = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(6), 5), Stream("c", Count(9), 5)],
    cuts(31, "abc", batches=4, nulls=0.1, disorder=4),
    "a.k = b.k AND b.x = c.x",
    lambda a, b, c: every(same(a["k"], b["k"]), same(b["x"], c["x"])),
)
PLACEMENTS: dict[str, tuple[Strategy, str]] = {
    "ATR": (wm.ATR(3, segment="6 seconds"), "histogram"),
    "CTR": (wm.CTR(3, segment="4 seconds"), "given"),
    "DSJ": (wm.DSJ(3), "histogram"),
    "Hash": (wm.Hash(3), "selectivity"),
    "Auto": (wm.Auto(3), "selectivity"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "Auto" else pytest.mark.slow) for name in PLACEMENTS]
)
def test_every_placement_gives_the_oracles_results(spark: SparkSession, tmp_path: Path, name: str) -> None:
    strategy, order = PLACEMENTS[name]
    write(tmp_path / "in", TIED.batches)
    joined = join_of(TIED, frames(spark, tmp_path / "in", "abc"), strategy=strategy, order=order)
    query = run(joined.writeStream, tmp_path, "shuffle")
    assert results(tmp_path, "abc") == expected(TIED, spark).results
    assert all(p["strategy"] == strategy.describe() for p in query.progress)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["given", "selectivity", "histogram"])
@pytest.mark.parametrize("window", [Sliding(8), Count(5), Hopping(9, 4), Unbounded()], ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("name", [*PLACEMENTS, "PSP"])
def test_every_placement_order_and_window(
    spark: SparkSession, tmp_path: Path, name: str, window: Any, order: str
) -> None:
    strategy = wm.PSP(3) if name == "PSP" else PLACEMENTS[name][0]
    streams = [replace(stream, window=window) for stream in TIED.streams]
    check(spark, replace(TIED, streams=streams, strategy=strategy, order=order), tmp_path, "shuffle")


def test_strategy_and_order_may_change_between_runs_of_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    for at, (strategy, order) in enumerate([*PLACEMENTS.values(), (wm.PSP(2), "given")][:4]):
        write(tmp_path / "in", TIED.batches[at : at + 1])
        joined = join_of(TIED, frames(spark, tmp_path / "in", "abc"), strategy=strategy, order=order)
        query = run(joined.writeStream, tmp_path, EXCHANGES[at % len(EXCHANGES)])
    assert [p["batchId"] for p in query.progress] == [0, 1, 2, 3]
    assert results(tmp_path, "abc") == expected(TIED, spark).results


# -- random cases

ORDERS = ("given", "selectivity", "histogram")
names_of = {2: "ab", 3: "abc"}
strategies_of: st.SearchStrategy[Strategy] = st.one_of(
    st.just(wm.Central()),
    st.integers(1, 4).map(wm.PSP),
    st.tuples(st.integers(1, 4), st.integers(3, 20)).map(lambda pair: wm.ATR(pair[0], f"{pair[1]} seconds")),
    st.integers(1, 4).map(wm.CTR),
    st.integers(1, 4).map(wm.DSJ),
    st.integers(1, 4).map(wm.Auto),
)
windows_of = st.one_of(
    st.integers(1, 12).map(Sliding),
    st.integers(1, 6).map(Count),
    st.tuples(st.integers(1, 12), st.integers(1, 12)).map(lambda pair: Hopping(*pair)),
    st.just(Unbounded()),
)
PREDICATES: dict[str, Any] = {
    "abs(a.x - b.x) < 2": lambda a, b, *_: band(a["x"], b["x"]),
    "near(a.x, b.x) AND a.k = b.k": lambda a, b, *_: every(band(a["x"], b["x"]), same(a["k"], b["k"])),
    "a.x = b.x OR a.k = b.k": lambda a, b, *_: same(a["x"], b["x"]) or same(a["k"], b["k"]),
}


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    names = names_of[draw(st.integers(2, 3))]
    streams = [Stream(name, draw(windows_of), draw(st.integers(0, 8))) for name in names]
    batches = cuts(
        draw(st.integers(0, 10_000)),
        names,
        batches=draw(st.integers(1, 3)),
        rows=6,
        disorder=draw(st.integers(0, 12)),
        null_times=0.1,
    )
    where = draw(st.sampled_from(sorted(PREDICATES)))
    return Case(streams, batches, where, PREDICATES[where], (near,), draw(strategies_of), draw(st.sampled_from(ORDERS)))


FIXED: dict[str, tuple[Case, str]] = {
    "ATR, late rows": (
        Case(
            [Stream("a", Sliding(9), 2), Stream("b", Hopping(8, 3), 4), Stream("c", Sliding(5), 8)],
            cuts(51, "abc", batches=3, rows=6, disorder=10, null_times=0.1),
            "near(a.x, b.x) AND a.k = b.k",
            PREDICATES["near(a.x, b.x) AND a.k = b.k"],
            (near,),
            wm.ATR(3, "7 seconds"),
            "histogram",
        ),
        "driver",
    ),
    "CTR, count windows": (
        Case(
            [Stream("a", Count(5), 3), Stream("b", Sliding(12), 6)],
            cuts(52, "ab", batches=3, rows=6, disorder=6, null_times=0.1),
            "a.x = b.x OR a.k = b.k",
            PREDICATES["a.x = b.x OR a.k = b.k"],
            strategy=wm.CTR(4),
            order="selectivity",
        ),
        "local",
    ),
    "Auto, unbounded": (
        Case(
            [Stream("a", Unbounded(), 5), Stream("b", Count(4), 0), Stream("c", Sliding(6), 5)],
            cuts(53, "abc", batches=3, rows=6, disorder=8, null_times=0.1),
            "abs(a.x - b.x) < 2",
            PREDICATES["abs(a.x - b.x) < 2"],
            strategy=wm.Auto(4),
            order="selectivity",
        ),
        "local",
    ),
    "DSJ, one batch": (
        Case(
            [Stream("a", Hopping(4, 9), 0), Stream("b", Unbounded(), 8)],
            cuts(54, "ab", batches=1, rows=6, disorder=12, null_times=0.1),
            "abs(a.x - b.x) < 2",
            PREDICATES["abs(a.x - b.x) < 2"],
            strategy=wm.DSJ(3),
            order="histogram",
        ),
        "driver",
    ),
}
"""What `CASES` and `PLACEMENTS` leave out; joins at random are tried by the engine's own tests, which need no Spark."""


@pytest.mark.parametrize("name", one_in(2, FIXED))
def test_placements_orders_and_exchanges_together(spark: SparkSession, tmp_path: Path, name: str) -> None:
    case, exchange = FIXED[name]
    query = check(spark, case, tmp_path, exchange)
    assert sum(p["outputRows"] for p in query.progress) > 0


@pytest.mark.slow
@pytest.mark.parametrize("exchange", EXCHANGES)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(case=random_cases())
def test_random_joins_give_the_oracles_results(spark: SparkSession, exchange: str, case: Case) -> None:
    with TemporaryDirectory() as folder:
        check(spark, case, Path(folder), exchange)


# -- output

PAIR = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(20, "ab", batches=2, nulls=0),
    "a.x < b.x",
    lambda a, b: less(a["x"], b["x"]),
)


@through("driver")
def test_select_gives_flat_columns(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    write(tmp_path / "in", PAIR.batches)
    joined = join_of(PAIR, frames(spark, tmp_path / "in", "ab"), select="b.id AS other, a.id, A.K")
    run(joined.writeStream, tmp_path, exchange)
    rows = {row["id"]: row for batch in PAIR.batches for found in batch.values() for row in found}
    wanted = Counter((b, a, rows[a]["k"]) for (a, b), _ in expected(PAIR).results.elements())
    found = read(tmp_path / "out")
    assert [name.lower() for name in found.schema.names] == ["other", "id", "k"]
    assert Counter(zip(*(column.to_pylist() for column in found.columns), strict=True)) == wanted


@through("local")
def test_select_computes_expressions(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    write(tmp_path / "in", PAIR.batches)
    chosen = "a.id * 1000 + b.id AS both, upper(a.k) AS loud, b.x - a.x AS gap"
    run(join_of(PAIR, frames(spark, tmp_path / "in", "ab"), select=chosen).writeStream, tmp_path, exchange)
    rows = {row["id"]: row for batch in PAIR.batches for found in batch.values() for row in found}
    wanted = Counter(
        (a * 1000 + b, rows[a]["k"] and rows[a]["k"].upper(), rows[b]["x"] - rows[a]["x"])
        for (a, b), _ in expected(PAIR).results.elements()
    )
    found = read(tmp_path / "out")
    assert found.schema.names == ["both", "loud", "gap"]
    assert Counter(zip(*(column.to_pylist() for column in found.columns), strict=True)) == wanted


TYPES = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("dec", pa.decimal128(20, 4)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("day", pa.date32()),
        ("yes", pa.bool_()),
        ("list", pa.list_(pa.float64())),
        ("tags", pa.list_(pa.struct([("t", pa.string())]))),
        ("point", pa.struct([("x", pa.int32()), ("deep", pa.struct([("y", pa.string())]))])),
    ]
)


def of_every_type(number: int) -> dict[str, Any]:
    """Return a row with a value of every type, the extremes among them; row 2 is all NULL but for its keys."""
    moment = datetime(2024, 3, 31, 1, 30, number, 123456, tzinfo=UTC)
    row: dict[str, Any] = {
        "i8": -128 + number,
        "i16": -32768 + number,
        "i32": number,
        "i64": 2**62 + number,
        "f32": 0.1 * number,
        "f64": float("nan") if number == 1 else -0.1 * number,
        "dec": Decimal("1234567890123456.7891") + number,
        "text": "Ünïcode \u0000 'quoted'" + str(number),
        "bytes": bytes([0, 255, number]),
        "at": moment,
        "wall": datetime(1969, 12, 31, 23, 59, 59, number),
        "day": date(1582, 10, 15) + timedelta(days=number),
        "yes": number % 2 == 0,
        "list": [1.5, None, float(number)],
        "tags": [{"t": "x"}, None],
        "point": {"x": number, "deep": {"y": None if number else "y"}},
    }
    return {"ts": moment, **(dict.fromkeys(row) | {"i32": number} if number == 2 else row)}


@through("shuffle")
@pytest.mark.parametrize(
    ("zone", "columns"), [("UTC", slice(None, 10)), ("UTC", slice(10, None)), ("America/New_York", slice(8, None))]
)
def test_every_type_passes_through_unchanged(
    spark: SparkSession, tmp_path: Path, exchange: str, zone: str, columns: slice
) -> None:
    every = pa.Table.from_pylist([of_every_type(number) for number in range(4)], TYPES)
    left = every.select(list(dict.fromkeys(["ts", "i32", *TYPES.names[columns]])))
    right = every.select(["ts", "i32", "wall"])
    write_batches(tmp_path / "in" / "a", [left.slice(0, 2), left.slice(2)])
    write_batches(tmp_path / "in" / "b", [right.slice(0, 3), right.slice(3)])
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        inputs = frames(spark, tmp_path / "in", "ab")
        joined = wm.join(
            wm.stream("a", inputs["a"], time="ts", window="1 minute"),
            wm.stream("b", inputs["b"], time="ts", window="1 minute"),
            where="a.i32 = b.i32",
        )
        run(joined.writeStream, tmp_path, exchange)
        again = spark.read.parquet(str(tmp_path / "out"))
        assert again.schema["a"].dataType == inputs["a"].schema
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = read(tmp_path / "out").to_pylist()
    assert len(found) == 4
    by_number = {row["a"]["i32"]: row for row in found}
    for number, wanted in enumerate(left.to_pylist()):
        assert repr(by_number[number]["a"]) == repr(wanted)  # repr: NaN equals nothing
        assert by_number[number]["b"] == right.to_pylist()[number]
        assert by_number[number]["_time"] == wanted["ts"]


@through("driver")
def test_sql_speaks_of_times_in_the_sessions_zone(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    """01:30 UTC is the evening before in New York; hopping windows stay those of UTC."""
    rows = pa.Table.from_pylist([of_every_type(number) for number in range(4)], TYPES).select(["ts", "i32"])
    for name in "ab":
        write_batches(tmp_path / "in" / name, [rows])
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        inputs = frames(spark, tmp_path / "in", "ab")
        joined = wm.join(
            wm.stream("a", inputs["a"], time="ts", window=wm.hopping("2 seconds", "2 seconds")),
            wm.stream("b", inputs["b"], time="ts", window=wm.hopping("2 seconds", "2 seconds")),
            where="hour(a.ts) = 21 AND day(b.ts) = 30",
            select="a.i32 AS a, b.i32 AS b, date_format(a.ts, 'HH:mm') AS clock",
        )
        run(joined.writeStream, tmp_path, exchange)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    # Times are n + 0.123456 s: windows (0, 2], (2, 4] hold {0, 1} and {2, 3}.
    wanted = {(a, b, "21:30") for a in range(4) for b in range(4) if a // 2 == b // 2}
    assert {tuple(row.values()) for row in read(tmp_path / "out").to_pylist()} == wanted


@through("local")
def test_event_times_without_a_zone(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    times = [datetime(2024, 3, 31, 2, 30, second) for second in (0, 4, 9)]  # a wall time that Berlin skips
    rows = pa.table({"ts": pa.array(times, pa.timestamp("us")), "id": [0, 1, 2]})
    for name in "ab":
        write_batches(tmp_path / "in" / name, [rows.slice(0, 2), rows.slice(2)])
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        inputs = frames(spark, tmp_path / "in", "ab")
        joined = wm.join(
            wm.stream("a", inputs["a"], time="ts", window="5 seconds"),
            wm.stream("b", inputs["b"], time="ts", window="5 seconds"),
            where="a.id <= b.id",
        )
        run(joined.writeStream, tmp_path, exchange)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = {(row["a"]["id"], row["b"]["id"], row["_time"]) for row in read(tmp_path / "out").to_pylist()}
    assert found == {(a, b, times[b]) for a, b in [(0, 0), (0, 1), (1, 1), (2, 2)]}


def test_wide_streams_do_not_blow_up_sparks_optimiser(spark: SparkSession) -> None:
    """[!] For each alias Spark copies every constraint on what it renames, `_hash = xxhash64(..)` among them.

    With the hash after the columns there is one such constraint; before them 2^n, and 17 columns exhaust the heap.
    """
    frame = spark.createDataFrame([], "ts timestamp, " + ", ".join(f"c{n} int" for n in range(12)))
    joined = wm.join(wm.stream("a", frame, time="ts"), wm.stream("b", frame, time="ts"))
    names = union(joined.query, joined.frames, False, joined.hidden_columns()).columns
    assert names.index(CONTENT) > max(at for at, name in enumerate(names) if name.startswith("s0_"))


def test_columns_named_oddly(spark: SparkSession, tmp_path: Path) -> None:
    """Column names that need quoting, and two columns of one join that would share a generated name."""
    rows = pa.table({"event time": pa.array([0, 1], pa.timestamp("us", "UTC")), "a.b": [1, 2], "s0_1": [3, 4]})
    write_batches(tmp_path / "in", [rows])
    frame = stream_batches(spark, tmp_path / "in")
    joined = wm.join(
        wm.stream("a", frame, time="event time", window="1 second"),
        wm.stream("b", frame, time="event time", window="1 second"),
        where="a.`a.b` = b.`a.b`",
    )
    run(joined.writeStream, tmp_path)
    found = read(tmp_path / "out").to_pylist()
    assert sorted((row["a"]["a.b"], row["b"]["s0_1"]) for row in found) == [(1, 3), (2, 4)]
