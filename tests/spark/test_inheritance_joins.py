"""Punctuations of an inner join close its outer join's stream, through real Spark: auctions without a window."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark import harness
from tests.spark.harness import through
from tests.spark.test_metadata_joins import PLAIN, lives, plain
from watersmeet.spark.api.join_query import JoinQuery

pytestmark = pytest.mark.spark
SELECT = "a.k AS auction, b.id AS bid, b.k AS k, _time"
KEY = wm.key("k")


def auctions(batches: int) -> list[dict[str, Any]]:
    """One auction a batch, with two bids, and two payments: one with the first bid, one with the auction's end."""
    made = lives(batches)
    for at, batch in enumerate(made):
        batch["c"] = plain((at, 10 * at + 3, at, None), (50 + at, 10 * at + 3, at - 1, None))
    return made


def nested(
    inputs: Mapping[str, DataFrame],
    select: str = SELECT,
    told: str = "auction",
    spill: wm.Spill | None = None,
    **ends: Any,
) -> wm.Join:
    said = ends or {"punctuations": wm.punctuations(flag="end", on="k")}
    inner = wm.join(
        wm.stream("a", inputs["a"], time="ts", delay="20 seconds", constraints=[KEY]),
        wm.stream("b", inputs["b"], time="ts", delay="20 seconds", **said),
        where="a.k = b.k",
        select=select,
    )
    return wm.join(
        wm.stream("ab", inner),
        wm.stream("c", inputs["c"], time="ts", delay="20 seconds"),
        where=f"ab.{told} = c.k",
        select="ab.bid, c.id AS c",
        spill=spill,
    )


def read_results(folder: Path) -> list[tuple[int, int]]:
    return sorted((row["bid"], row["c"]) for row in harness.read(folder / "out").to_pylist())


def expected(batches: int) -> list[tuple[int, int]]:
    bids = [(100 + at, at) for at in range(batches)] + [(200 + at, at - 1) for at in range(1, batches)]
    paid = [(at, at) for at in range(batches)] + [(50 + at, at - 1) for at in range(batches)]
    return sorted((bid, number) for bid, k in bids for number, of in paid if of == k)


def state_rows(query: JoinQuery) -> list[int]:
    """Return how many payments were kept after each batch: nothing ever lets results of the inner join go."""
    inner = [sum(p["inputRows"]["ab"] for p in query.progress[: at + 1]) for at in range(len(query.progress))]
    return [p["distinctRows"] - results for p, results in zip(query.progress, inner, strict=True)]


def store(folder: Path) -> set[str]:
    return {
        file.name for name in ("sides", "results") for file in (folder / "checkpoint" / "watersmeet" / name).glob("*")
    }


@through()
def test_payments_go_once_their_auction_is_over(
    spark: SparkSession, tmp_path: Path, exchange: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With a restart in the middle; punctuationPath has what the inner join puts out, once."""
    caplog.set_level(logging.WARNING, "watersmeet")
    batches = auctions(8)
    for part in (batches[:5], batches[5:]):
        harness.write(tmp_path / "in", part, PLAIN)
        join = nested(harness.frames(spark, tmp_path / "in", "abc"))
        writer = join.writeStream.option("punctuationPath", str(tmp_path / "said"))
        query = harness.run(writer, tmp_path, exchange)
    assert read_results(tmp_path) == expected(8)
    assert max(state_rows(query)) <= 10 and state_rows(query)[-1] < 16
    assert query.progress[-1]["promises"]["ab"]["marks"] > 0
    assert sum(p["deniedRows"] for p in query.progress) == 0
    assert all(sum(p[name] for p in query.progress) > 4 for name in ("punctuations", "punctuationsOut"))
    assert query.progress[-1]["inner"]["ab"]["inputRows"] == {"a": 1, "b": 3}
    assert not store(tmp_path)
    assert sorted(path.name for path in (tmp_path / "said").iterdir()) == ["b"]
    said = harness.read(tmp_path / "said" / "b").column("k").to_pylist()
    assert said == sorted(set(said)) and said[:3] == [0, 1, 2]
    warned = [record.getMessage().split(",")[0] for record in caplog.records if record.name == "watersmeet"]
    assert set(warned) == {"Stream 'ab' has no window"}


@pytest.mark.slow
def test_spilling_comes_and_goes_between_two_starts(spark: SparkSession, tmp_path: Path) -> None:
    """What the inner join owes is paid before its punctuations go on, whoever pays it; in the end state is as small."""
    batches = auctions(12)
    spill = wm.Spill(memory=1, policy="random", oldest="1 hour")
    paid = owed = 0
    for at, given in enumerate([None, spill, None, None]):
        harness.write(tmp_path / "in", batches[3 * at : 3 * at + 3], PLAIN)
        join = nested(harness.frames(spark, tmp_path / "in", "abc"), spill=given)
        if given is None:
            query = harness.run(join.writeStream, tmp_path, "driver")
        else:
            writer = join.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.option("exchange", "driver").start(str(tmp_path / "out"))
            query._rounds.end()  # type: ignore[union-attr]
            query.processAllAvailable()
            query.stop()
            owed = query.progress[-1]["spilling"]["owedProbes"]
        paid += sum(p["paidRows"] for p in query.progress) if given is None else 0
    assert owed > 0 < paid
    assert read_results(tmp_path) == expected(12)
    assert sum(p["deniedRows"] for p in query.progress) == 0
    assert state_rows(query)[-1] <= 10


@pytest.mark.parametrize(
    ("select", "told", "fields"),
    [
        pytest.param("a.k AS k, b.id AS bid, _time", "k", [(0,)], marks=pytest.mark.slow),
        pytest.param("b.k + 0 AS sum, b.id AS bid, B.k AS Auction, _time", "auction", [(2,)], marks=pytest.mark.slow),
        pytest.param("b.k + 0 AS auction, b.id AS bid, _time", "auction", [], marks=pytest.mark.slow),
        pytest.param(SELECT, "k", [(2,)], marks=pytest.mark.slow),
    ],
)
def test_what_is_shown_is_inherited(
    spark: SparkSession, tmp_path: Path, select: str, told: str, fields: list[tuple[int, ...]]
) -> None:
    """Under another name too, or as a column that is equal; not if it is computed. Nobody need ask for side outputs."""
    harness.write(tmp_path / "in", auctions(6), PLAIN)
    join = nested(harness.frames(spark, tmp_path / "in", "abc"), select, told)
    assert [getattr(promise, "fields", ()) for promise in join.query.streams[0].constraints] == fields
    query = harness.run(join.writeStream, tmp_path, "driver")
    assert read_results(tmp_path) == expected(6)
    assert (state_rows(query)[-1] < 12) == bool(fields)
    assert not store(tmp_path)


@pytest.mark.slow
def test_ranges_from_a_frame_that_count_by_the_watermark(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = auctions(8)
    for at, batch in enumerate(batches):
        batch["ends"] = [{**row, "low": 0, "high": at - 1} for row in plain((0, 10 * at + 2, at, None))]
        for name in "abc":
            batch[name] = [{**row, "low": None, "high": None} for row in batch[name] if not row["end"]]
    schema = pa.schema([*PLAIN, ("low", pa.int64()), ("high", pa.int64())])
    harness.write(tmp_path / "in", batches, schema)
    inputs = harness.frames(spark, tmp_path / "in", ["a", "b", "c", "ends"])
    ends = wm.punctuations(frame=inputs["ends"], on={"k": wm.between("low", "high")}, time="ts")
    join = nested(inputs, punctuations=ends)
    query = harness.run(join.writeStream, tmp_path, "driver")
    assert read_results(tmp_path) == expected(8)
    assert state_rows(query)[-1] < 16 and sum(p["deniedRows"] for p in query.progress) == 0
    join.explain()
    told = capsys.readouterr().out
    assert "punctuations: those of the join itself on ranges of ab.auction" in told
    assert "closed by `ab.auction = c.k` and the join's punctuations of ab.auction" in told


def test_a_changed_promise_of_the_inner_join_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    harness.write(tmp_path / "in", auctions(2), PLAIN)
    inputs = harness.frames(spark, tmp_path / "in", "abc")
    harness.run(nested(inputs).writeStream, tmp_path, "driver")
    other = nested(inputs, constraints=[KEY])
    said = (
        r"punctuations of 'ab' was \['those of the join itself on ab.auction'\] and is now missing; join 'ab': "
        r"punctuations of 'b' was \['b.end on b.k, effect by batch'\] and is now missing; join 'ab': constraints of 'b'"
    )
    with pytest.raises(wm.DefinitionError, match=said):
        harness.run(other.writeStream, tmp_path, "driver")
