"""Promises of streams through real Spark: results, denied rows and side outputs as the oracle has them."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark import harness
from tests.spark.harness import Case, through
from tests.times import instant
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.testing import oracle

pytestmark = pytest.mark.spark

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", TIME),
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("odd name", pa.decimal128(38, 10)),
        ("x", pa.float64()),
        ("t.`1", pa.string()),
        ("day", pa.date32()),
        ("at", TIME),
        ("ok", pa.bool_()),
        ("End", pa.bool_()),
        ("lo", pa.int32()),
        ("hi", pa.int32()),
    ]
)
DECIMAL, TEXT = "odd name", "t.`1"
BASE = 2**53
POOLS: dict[str, Callable[[int], list[Any]]] = {
    "n": lambda b: [b, b + 1, b + 2, None],
    "big": lambda b: [BASE + b, BASE + b + 1, BASE + b + 2, None],
    DECIMAL: lambda b: [Decimal(10**20 + b + quarters) / 4 for quarters in (-2, 0, 1)],
    "x": lambda b: [0.0, -0.0, 1.5, float("nan"), float(-b), None],
    TEXT: lambda b: ["p0", "p0\0"] if b == 3 else ["", f"p{b}", f"p{b}\0", f"p{b + 1}", None],
    "day": lambda b: [date(2026, 1, 1) + timedelta(days=b + d) for d in (-3, 0, 1)],
    "at": lambda b: [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=b + d) for d in (-2, 0, 1)],
    "ok": lambda b: [False, True, None] if b < 2 else [True, False],
    "lo": lambda b: [b - 1, b, None] if b == 1 else [b - 1, b],
    "hi": lambda b: [b, b + 1],
}


def rows(seed: int, names: str = "ab", batches: int = 4, size: int = 7, ends: float = 0.0) -> list[dict[str, Any]]:
    """Random batches whose values move on from batch to batch, but not strictly."""
    rng, number, made = random.Random(seed), 0, []
    for batch in range(batches):
        here: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for name in names:
            for _ in range(size):
                row = {column: rng.choice(pool(batch)) for column, pool in POOLS.items()}
                end = rng.random() < ends or rng.choice([None, False])
                here[name].append({"id": number, "ts": 10 * batch + rng.randint(-4, 9), **row, "End": end})
                number += 1
        made.append(here)
    return made


def equal(one: Any, two: Any) -> bool:
    """Whether Spark calls two values equal."""
    return one is not None and two is not None and bool(one == two or (one != one and two != two))


def stream(name: str, *promises: oracle.OracleConstraint) -> oracle.Stream:
    return oracle.Stream(name, oracle.Unbounded(), 5, constraints=promises)


def check(spark: SparkSession, case: Case, folder: Path, exchange: str, reference: Case | None = None) -> JoinQuery:
    """Run a case and assert that results and all rows not taken are the oracle's."""
    harness.write(folder / "in", case.batches, case.schema)
    inputs = harness.frames(spark, folder / "in", [*case.batches[0]])
    writer = harness.join_of(case, inputs).writeStream
    query = harness.run(writer.options(**side_paths(folder)), folder, exchange)
    compare(reference or case, folder, query)
    return query


def side_paths(folder: Path) -> dict[str, str]:
    return {f"{kind}Path": str(folder / kind) for kind in ("late", "rejected", "denied")}


def compare(case: Case, folder: Path, query: JoinQuery) -> oracle.Outcome:
    wanted = harness.expected(case)
    assert harness.results(folder, case.names) == wanted.results
    turned_away = {"late": wanted.late, "rejected": wanted.rejected, "denied": [found for found, _ in wanted.denied]}
    for kind, arrivals in turned_away.items():
        assert harness.side_ids(folder / kind, case.names) == Counter((a.stream, a.row["id"]) for a in arrivals), kind
        assert sum(p[f"{kind}Rows"] for p in query.progress) == len(arrivals)
    assert sum(p["punctuations"] for p in query.progress) == len(wanted.punctuations)
    assert [instant(p["watermark"]) for p in query.progress] == list(wanted.watermarks.values())
    return wanted


# -- every constraint, every type


@dataclass(frozen=True)
class Kind:
    """What two streams promise, to Watersmeet and to the oracle, and the columns by which they are joined."""

    a: Mapping[str, Any]
    b: Mapping[str, Any]
    theirs: tuple[oracle.OracleConstraint, oracle.OracleConstraint]
    by: str


ENDS = wm.punctuations(flag="end", on={"N": wm.between("LO", "hi")})
KINDS = {
    "big keys, texts in runs": Kind(
        {"constraints": [wm.key("big")]},
        {"constraints": [wm.clustered("T.`1", slack=1)]},
        (oracle.UniqueKey(("big",)), oracle.Clusters(TEXT, 1)),
        "big",
    ),
    "decimals rise, doubles fall": Kind(
        {"constraints": [wm.ordered(DECIMAL, slack=Decimal("0.25"))]},
        {"constraints": [wm.ordered("x", slack=0.5, falling=True)]},
        (oracle.Order(DECIMAL, False, Decimal("0.25")), oracle.Order("x", True, 0.5)),
        "x",
    ),
    "days and times rise": Kind(
        {"constraints": [wm.ordered("day", slack="1 day")]},
        {"constraints": [wm.ordered("at", slack="500 ms")]},
        (oracle.Order("day", False, timedelta(days=1)), oracle.Order("at", False, timedelta(milliseconds=500))),
        "at",
    ),
    "booleans rise, ranges of numbers end": Kind(
        {"constraints": [wm.ordered("ok")]},
        {"punctuations": ENDS},
        (oracle.Order("ok"), oracle.PunctuationFlag("End", {"n": ("lo", "hi")})),
        "n",
    ),
    "keys of two with the event time, foreign keys": Kind(
        {"constraints": [wm.key("n", "ts")]},
        {"constraints": [wm.foreign_key("n", "A.N"), wm.key("ok", "day")]},
        (oracle.UniqueKey(("n", "ts")), oracle.UniqueKey(("ok", "day"))),
        "n",
    ),
}


@pytest.mark.parametrize("kind", one_in(3, KINDS.values()), ids=KINDS)
def test_every_constraint_and_type(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    case = Case(
        [stream("a", kind.theirs[0]), stream("b", kind.theirs[1])],
        rows(4, ends=0.3),
        f"a.`{kind.by}` = b.`{kind.by}`",
        lambda a, b: equal(a[kind.by], b[kind.by]),
        schema=SCHEMA,
        promises=lambda inputs: {"a": kind.a, "b": kind.b},
    )
    query = check(spark, case, tmp_path, "driver")
    denied = {name for (name, _) in harness.side_ids(tmp_path / "denied", "ab")}
    assert denied == {"a", "b"}
    assert query.progress[-1]["promises"].keys() == {"a", "b"}


# -- auctions and bids


def ends_and_keys(inputs: Mapping[str, DataFrame]) -> dict[str, dict[str, Any]]:
    return {
        "a": {"constraints": [wm.key("big")]},
        "b": {
            "punctuations": [
                wm.punctuations(flag="End", on="big"),
                wm.punctuations(frame=inputs["ends"], on={"n": wm.between("lo", "hi"), "ok": "ok"}, time="ts"),
            ]
        },
    }


def oracle_batches(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The batches as the oracle takes them: punctuations of a frame of their own are rows of their stream."""
    blank = dict.fromkeys(SCHEMA.names)
    return [
        {
            "a": batch["a"],
            "b": batch["b"]
            + [
                {**blank, "ts": row["ts"], "said": True, "low": row["lo"], "high": row["hi"], "was": row["ok"]}
                for row in batch["ends"]
            ],
        }
        for batch in batches
    ]


def auctions(batches: list[dict[str, Any]]) -> tuple[Case, Case]:
    """A join with punctuations of both kinds, and the same as the oracle takes it."""
    ends = (
        oracle.PunctuationFlag("End", {"big": "big"}),
        oracle.PunctuationFlag("said", {"n": ("low", "high"), "ok": "was"}, "watermark"),
    )
    case = Case(
        [stream("a", oracle.UniqueKey(("big",))), stream("b", *ends)],
        batches,
        "a.big = b.big",
        lambda a, b: equal(a["big"], b["big"]),
        schema=SCHEMA,
        promises=ends_and_keys,
    )
    return case, replace(case, batches=oracle_batches(batches))


def punctuated(seed: int) -> list[dict[str, Any]]:
    batches = rows(seed, "ab", ends=0.15)
    for batch, more in zip(batches, rows(seed + 1, "ab", size=3), strict=True):
        batch["ends"] = [{**row, "id": None} for row in more["a"]]
    return batches


def promising(batches: list[dict[str, Any]]) -> tuple[Case, Case]:
    """The same with all other kinds of promises: a key, an order, runs with slack, and a foreign key."""
    case, reference = auctions(batches)
    (a, b), order, runs = case.streams, oracle.Order("big", False, 1), oracle.Clusters(TEXT, 1)
    streams = [
        replace(a, delay=1, constraints=[*a.constraints, order]),
        replace(b, delay=1, constraints=[*b.constraints, runs, oracle.ParentKey("big", "a", "big")]),
    ]

    def promises(inputs: Mapping[str, DataFrame]) -> dict[str, dict[str, Any]]:
        found = ends_and_keys(inputs)
        found["a"]["constraints"].append(wm.ordered("big", slack=1))
        found["b"]["constraints"] = [wm.clustered(TEXT, slack=1), wm.foreign_key("big", "a.big")]
        return found

    return replace(case, streams=streams, promises=promises), replace(reference, streams=streams)


@through("shuffle")
def test_punctuations_in_band_and_from_a_frame(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    case, reference = auctions(punctuated(22))
    query = check(spark, case, tmp_path, exchange, reference)
    assert len({str(promise) for _, promise in harness.expected(reference).denied}) == 3
    assert sum(p["purgedRows"] for p in query.progress) > 0


def test_constraints_survive_a_restart_and_must_not_change(spark: SparkSession, tmp_path: Path) -> None:
    batches = punctuated(12)
    case, reference = auctions(batches)
    for part, exchange, every in ((batches[:2], "driver", 1), (batches[2:], "local", 3)):
        harness.write(tmp_path / "in", part, SCHEMA)
        inputs = harness.frames(spark, tmp_path / "in", [*batches[0]])
        writer = harness.join_of(case, inputs, purge_every=every).writeStream.options(**side_paths(tmp_path))
        query = harness.run(writer, tmp_path, exchange)
    compare(reference, tmp_path, query)
    other = replace(case, promises=lambda inputs: {"a": {"constraints": [wm.key("n")]}})
    said = (
        r"constraints of 'a' was \['key \(a.big\)'\] and is now \['key \(a.n\)'\]; punctuations of 'b' was "
        r"\['b.End on b.big, effect by batch', 'a frame of their own on b.n between lo and hi and b.ok = ok, effect by "
        r"watermark'\] and is now missing"
    )
    with pytest.raises(wm.DefinitionError, match=said):
        harness.run(harness.join_of(other, inputs).writeStream, tmp_path)


# -- auctions, bids and payments by UUID


TEXT_SCHEMA = pa.schema([("id", pa.int64()), ("ts", TIME), ("auction", pa.string()), ("end", pa.bool_())])


def text_auctions(seed: int, auctions: int = 24, batches: int = 6) -> list[dict[str, Any]]:
    """Auctions named by UUIDs, some of which begin alike, with bids, an end and a payment; some rows are denied."""
    rng = random.Random(seed)
    made: list[dict[str, Any]] = [{name: [] for name in "abp"} for _ in range(batches)]
    names = [str(UUID(int=rng.getrandbits(8) << 120 | rng.getrandbits(64))) for _ in range(auctions)]
    moments = [sorted(rng.choices(range(batches), k=4)) for _ in names]
    for name, (opens, bid, ends, paid) in zip(names, moments, strict=True):
        said = [("a", opens, None), ("b", opens, None), ("b", bid, None), ("b", ends, True), ("p", paid, None)]
        again = [(stream, rng.randrange(batches), None) for stream in "abp" if rng.random() < 0.3]
        for stream, batch, end in [*said, *again]:
            row = {"id": rng.getrandbits(40), "ts": 10 * batch + rng.randint(0, 9), "auction": name, "end": end}
            made[batch][stream].append(row)
    return made


@through()
def test_auctions_bids_and_payments_by_uuid(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    key, ends = oracle.UniqueKey(("auction",)), oracle.PunctuationFlag("end", {"auction": "auction"})
    keys = {"constraints": [wm.key("auction")]}
    case = Case(
        [stream("a", key), stream("b", ends), stream("p", key)],
        text_auctions(5),
        "a.auction = b.auction AND a.auction = p.auction",
        lambda a, b, p: a["auction"] == b["auction"] == p["auction"],
        schema=TEXT_SCHEMA,
        promises=lambda inputs: {
            "a": keys,
            "b": {"punctuations": wm.punctuations(flag="end", on="auction")},
            "p": keys,
        },
    )
    query = check(spark, case, tmp_path, exchange)
    assert sum(p["outputRows"] for p in query.progress) > 20
    assert {name for name, _ in harness.side_ids(tmp_path / "denied", "abp")} == {"a", "b", "p"}
    assert sum(p["purgedRows"] for p in query.progress) > 20


# -- what it is for


PLAIN = pa.schema([("id", pa.int64()), ("ts", TIME), ("k", pa.int64()), ("end", pa.bool_())])


def plain(*rows: tuple[int, float, int, bool | None]) -> list[dict[str, Any]]:
    return [dict(zip(PLAIN.names, row, strict=True)) for row in rows]


def lives(batches: int) -> list[dict[str, Any]]:
    """One auction a batch, with two bids in its own batch and the next, then its end."""
    return [
        {
            "a": plain((at, 10 * at, at, None)),
            "b": plain(
                (100 + at, 10 * at, at, None),
                *([(200 + at, 10 * at + 1, at - 1, None), (300 + at, 10 * at + 2, at - 1, True)] if at else []),
            ),
        }
        for at in range(batches)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("every", "remember"), [(1, None), (4, "30 seconds")])
def test_state_stays_small_without_a_window(
    spark: SparkSession, tmp_path: Path, every: int, remember: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    batches = lives(9)
    harness.write(tmp_path / "in", batches, PLAIN)
    inputs = harness.frames(spark, tmp_path / "in", "ab")
    text = "SELECT a.id, b.id AS bid FROM a [KEY (k)], b [PUNCTUATED BY `end` ON k] WHERE a.k = b.k"
    join = wm.sql(text, inputs, time="ts", delay="0 seconds", purge_every=every, remember=remember)
    query = harness.run(join.writeStream, tmp_path, "driver")
    assert harness.read(tmp_path / "out").num_rows == 2 * 9 - 1
    kept = [p["distinctRows"] for p in query.progress]
    assert max(kept) <= 5 + 3 * (every - 1)
    assert sum(p["deniedRows"] for p in query.progress) == 0
    assert not [record for record in caplog.records if record.name == "watersmeet"]


def test_what_never_closes_is_said_at_the_start(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.write(tmp_path / "in", lives(2), PLAIN)
    inputs = harness.frames(spark, tmp_path / "in", "ab")
    join = wm.join(
        wm.stream("a", inputs["a"], time="ts", constraints=[wm.ordered("id")]),
        wm.stream("b", inputs["b"], time="ts"),
        where="a.k = b.k",
    )
    query = harness.run(join.writeStream, tmp_path, "driver")
    said = [record.getMessage() for record in caplog.records if record.name == "watersmeet"]
    assert [line.split(",")[0] for line in said] == [
        "Stream 'a' has no window",
        "Stream 'b' has no window",
        "Stream 'a' declares a.id rising",
    ]
    join.explain()
    query.explain()
    told = capsys.readouterr().out.splitlines()
    assert told.count("    nothing ever closes it") == told.count("    its tuples are kept forever") == 4
    assert told.count("    constraint: a.id rising, slack 0") == 2


def test_samples_of_denied_rows_show_only_what_they_may(spark: SparkSession, tmp_path: Path) -> None:
    batches = [{"a": plain((at, at, 7, None)), "b": plain((at, at, 7 - at, None))} for at in range(2)]
    harness.write(tmp_path / "in", batches, PLAIN)
    inputs = harness.frames(spark, tmp_path / "in", "ab")
    join = wm.join(
        wm.stream("a", inputs["a"], time="ts", constraints=[wm.key("k")]),
        wm.stream("b", inputs["b"], time="ts", constraints=[wm.ordered("k")]),
        where="a.k = b.k",
    )
    query = harness.run(join.writeStream.option("samples", "id"), tmp_path)
    found = [(sample["stream"], sample["reason"], sample["row"]) for sample in query.progress[-1]["samples"]]
    assert sorted(found, key=str) == [
        ("a", "k was seen before (key), in batch 0", {"id": "1"}),
        ("b", "k lies below what the order had reached", {"id": "1"}),
    ]


# -- joins of joins, and static frames


@pytest.mark.slow
@through("driver")
def test_a_join_promises_too(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    """Results of a join as a stream: a flag among its columns, a key, and punctuations from a frame of their own."""
    batches = lives(6)
    for at, batch in enumerate(batches):
        batch["c"] = plain((at, 10 * at + 3, at, None), (10 + at, 10 * at + 3, at - 2, None))
        batch["ends"] = plain((0, 10 * at, at - 2, None))
    harness.write(tmp_path / "in", batches, PLAIN)
    inputs = harness.frames(spark, tmp_path / "in", ["a", "b", "c", "ends"])
    inner = wm.join(
        wm.stream("a", inputs["a"], time="ts", delay="20 seconds", constraints=[wm.key("k")]),
        wm.stream("b", inputs["b"], time="ts", delay="20 seconds"),
        where="a.k = b.k",
        select="a.k AS k, b.id AS bid, b.end AS over, _time",
    )
    ends = wm.punctuations(frame=inputs["ends"], on="k", time="ts", effect="batch")
    outer = wm.join(
        wm.stream("ab", inner, punctuations=[wm.punctuations(flag="over", on="k"), ends], constraints=[wm.key("bid")]),
        wm.stream("c", inputs["c"], time="ts", delay="20 seconds"),
        where="ab.k = c.k",
        select="ab.bid, c.id AS c",
    )
    query = harness.run(outer.writeStream, tmp_path, exchange)
    found = {(row["bid"], row["c"]) for row in harness.read(tmp_path / "out").to_pylist()}
    bids = {100 + at: at for at in range(6)} | {200 + at: at - 1 for at in range(1, 6)}
    assert found == {(bid, c) for bid, k in bids.items() for c, of in [(k, k), (12 + k, k)] if of == k and c - 10 < 6}
    assert sum(p["punctuations"] for p in query.progress) == 5 + 6
    assert sum(p["deniedRows"] for p in query.progress) == 0
    assert sum(p["purgedRows"] for p in query.progress) >= 8


def test_static_frames(spark: SparkSession, tmp_path: Path) -> None:
    a = spark.createDataFrame(harness.table(plain((1, 0, 7, None), (2, 1, 7, None)), PLAIN))
    b = spark.createDataFrame(harness.table(plain((3, 0, 7, None), (4, 1, 7, True)), PLAIN))
    ends = spark.createDataFrame(harness.table(plain((0, 0, 7, None)), PLAIN))
    said = [wm.punctuations(flag="end", on="k"), wm.punctuations(frame=ends, on="k", time="ts")]
    join = wm.join(
        wm.stream("a", a, time="ts", constraints=[wm.key("id")]),
        wm.stream("b", b, time="ts", punctuations=said),
        where="a.k = b.k AND lower(b.id) <> 'x'",
        select="a.id, b.id AS bid",
    )
    assert sorted(map(tuple, join.toDF().collect())) == [(1, 3), (2, 3)]
