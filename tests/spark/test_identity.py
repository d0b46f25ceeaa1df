"""The `_id` of results: one each, duplicates included, and the same whenever and however a batch is run."""

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark.harness import Batches, Case, cuts, expected, frames, join_of, run, table, through, write
from watersmeet.placement import Strategy
from watersmeet.spark.output import identity
from watersmeet.testing.oracle import Count, Sliding, Stream

pytestmark = pytest.mark.spark

STRATEGIES: list[Strategy] = [wm.PSP(1), wm.PSP(3), wm.ATR(2), wm.CTR(2), wm.DSJ(3), wm.Central(), wm.Auto()]


def _doubled(batches: Batches) -> Batches:
    """Rows that come twice in their batch, once more in the next, and some without anything else alike."""
    made, again = [], dict[str, list[Mapping[str, Any]]]()
    for batch in batches:
        made.append({name: [*rows, *rows[:3], *again.get(name, [])] for name, rows in batch.items()})
        again = {name: list(rows[2:4]) for name, rows in batch.items()}
    return made


PAIR = Case(
    [Stream("a", Sliding(10), 30), Stream("b", Sliding(12), 30)],
    _doubled(cuts(5, "ab", batches=4, nulls=0)),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)
COUNT_WINDOWS = replace(PAIR, streams=[Stream("a", Sliding(10), 30), Stream("b", Count(7), 30)])


class Recorder:
    """What a sink that is written at least once has seen: for each try of a batch, results by their ids."""

    def __init__(self, cut: int | None = None) -> None:
        self.tries: list[tuple[int, dict[str, Any]]] = []
        self._cut = cut

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        found = {row["_id"]: (row["a"]["id"], row["b"]["id"], row["_time"]) for row in rows}
        assert len(found) == len(rows), "two results with one id"
        self.tries.append((batch, found))
        if batch == self._cut:
            self._cut = None
            raise RuntimeError("the sink's connection was lost")

    def upserted(self) -> dict[str, Any]:
        """What a table holds whose key is the id."""
        kept = dict[str, Any]()
        for _, found in self.tries:
            assert all(kept.get(key, value) == value for key, value in found.items()), "an id for two results"
            kept |= found
        return kept

    def counted(self) -> Counter[Any]:
        """What such a table holds, as the oracle counts results."""
        return Counter(((a, b), int(time.timestamp() * 1e6)) for a, b, time in self.upserted().values())


@through("driver")
def test_a_batch_that_is_repeated_has_the_same_ids(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    """Cut after it was written; then run with another strategy and number of nodes, and by another exchange."""
    write(tmp_path / "in", PAIR.batches)
    inputs, seen = frames(spark, tmp_path / "in", "ab"), Recorder(cut=2)
    with pytest.raises(wm.WatersmeetError, match="connection was lost"):
        run(join_of(PAIR, inputs, identity=True).writeStream.foreachBatch(seen), tmp_path, exchange)
    other = "local" if exchange == "driver" else "driver"
    run(join_of(PAIR, inputs, identity=True, strategy=wm.DSJ(3)).writeStream.foreachBatch(seen), tmp_path, other)
    (_, first), (_, second) = [found for found in seen.tries if found[0] == 2]
    assert first == second and first
    assert seen.counted() == expected(PAIR).results
    assert max(expected(PAIR).results.values()) >= 4  # a duplicate with a duplicate


@pytest.mark.slow
@pytest.mark.parametrize("case", [PAIR, COUNT_WINDOWS], ids=["sliding", "count"])
def test_ids_do_not_depend_on_what_computes_them(
    spark: SparkSession, tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From copies of one checkpoint: every strategy and exchange, and ids computed in one task and in several."""
    write(tmp_path / "in", case.batches[:1])
    run(_idle(case, spark, tmp_path), tmp_path)
    write(tmp_path / "in", case.batches[1:])
    kept = list[dict[str, Any]]()
    for at, strategy in enumerate(STRATEGIES):
        monkeypatch.setattr(identity, "SMALL", -1 if at % 2 else identity.SHARE)
        for exchange in ("driver", "local", "shuffle"):
            folder = tmp_path / f"{at}{exchange}"
            shutil.copytree(tmp_path / "checkpoint", folder / "checkpoint")
            seen = Recorder()
            join = join_of(case, frames(spark, tmp_path / "in", "ab"), identity=True, strategy=strategy)
            run(join.writeStream.foreachBatch(seen), folder, exchange)
            kept.append(seen.upserted())
    assert kept[0] and all(found == kept[0] for found in kept)


def _idle(case: Case, spark: SparkSession, folder: Path) -> Any:
    return join_of(case, frames(spark, folder / "in", "ab"), identity=True).writeStream.foreachBatch(lambda f, b: None)


@pytest.mark.slow
def test_two_checkpoints_have_no_id_in_common(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", PAIR.batches)
    kept = []
    for name in ("one", "two"):
        seen = Recorder()
        join = join_of(PAIR, frames(spark, tmp_path / "in", "ab"), identity=True)
        run(join.writeStream.foreachBatch(seen), tmp_path / name)
        kept.append(seen.upserted())
    assert kept[0] and not kept[0].keys() & kept[1].keys()


# -- static frames, SELECT lists, joins of joins


def _static(spark: SparkSession, name: str, **more: Any) -> Any:
    rows = [row for batch in PAIR.batches for row in batch[name]]
    return wm.stream(name, spark.createDataFrame(table(rows)), time="ts", window="10 seconds", **more)


def _ids(frame: DataFrame) -> dict[str, Any]:
    rows = frame.collect()
    found = {row["_id"]: tuple(value for name, value in row.asDict().items() if name != "_id") for row in rows}
    assert len(found) == len(rows) > 0
    return found


def test_static_frames_have_the_same_ids_whenever_they_are_computed(spark: SparkSession) -> None:
    streams, where = [_static(spark, "a"), _static(spark, "b")], "a.x < b.x"
    found = _ids(wm.join(*streams, where=where, select="_id, a.id AS a, b.id AS b, _time").toDF())
    frame = wm.join(*streams, where=where, select="b.id AS b, a.id AS a, _time, _id", strategy=wm.DSJ(2))
    assert _ids(frame.toDF()).keys() == found.keys()
    text = "SELECT a.id AS a, b.id AS b, _id, _time FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.x < b.x"
    given = {one._ws_part.name: one._ws_part.frame for one in streams}
    assert _ids(wm.sql(text, given, time="ts", strategy=wm.Central()).toDF()).keys() == found.keys()
    whole = wm.sql(
        "SELECT * FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.x < b.x", given, time="ts", identity=True
    )
    assert whole.toDF().columns == ["a", "b", "_time", "_id"] and len(_ids(whole.toDF())) == len(found)


def test_what_the_list_computes_does_not_change_ids(spark: SparkSession) -> None:
    """[!] The clock is another when a batch is run again."""
    join = wm.join(
        _static(spark, "a"), _static(spark, "b"), where="a.x < b.x", select="_id, uuid() AS u, a.id, upper(b.k) AS k"
    )
    one, two = _ids(join.toDF()), _ids(join.toDF())
    assert one.keys() == two.keys() and one != two


def test_a_list_that_names_nothing_else(spark: SparkSession) -> None:
    join = wm.join(_static(spark, "a"), _static(spark, "b"), where="a.x < b.x", select="concat('r-', _id) AS _id")
    assert all(key.startswith("r-") and len(key) == 34 for key in _ids(join.toDF()))


def test_content_that_looks_alike_is_told_apart(spark: SparkSession) -> None:
    """NULL and empty, the sign of zero, borders of arrays, texts that a collation calls equal, intervals, maps."""
    rows = spark.sql(
        """
        SELECT *, timestamp_micros(1700000000000000) AS ts FROM VALUES
        (1, NULL, 0.0D, array('a', 'bc'), 'x' COLLATE UTF8_LCASE, INTERVAL '1' MONTH, map('k', 1)),
        (1, '', 0.0D, array('a', 'bc'), 'x' COLLATE UTF8_LCASE, INTERVAL '1' MONTH, map('k', 1)),
        (1, '', -0.0D, array('a', 'bc'), 'x' COLLATE UTF8_LCASE, INTERVAL '1' MONTH, map('k', 1)),
        (1, '', -0.0D, array('ab', 'c'), 'x' COLLATE UTF8_LCASE, INTERVAL '1' MONTH, map('k', 1)),
        (1, '', -0.0D, array('ab', 'c'), 'X' COLLATE UTF8_LCASE, INTERVAL '1' MONTH, map('k', 1)),
        (1, '', -0.0D, array('ab', 'c'), 'X' COLLATE UTF8_LCASE, INTERVAL '2' MONTH, map('k', 1)),
        (1, '', -0.0D, array('ab', 'c'), 'X' COLLATE UTF8_LCASE, INTERVAL '2' MONTH, map('k', NULL)),
        (1, '', -0.0D, array('ab', 'c'), 'X' COLLATE UTF8_LCASE, INTERVAL '2' MONTH, map('k', NULL))
        AS t(n, s, f, l, c, i, m)
        """
    )
    one = rows.limit(1)

    def found(rows: DataFrame) -> list[str]:
        streams = [wm.stream(name, frame, time="ts", window="1 second") for name, frame in (("a", rows), ("b", one))]
        return sorted(row["_id"] for row in wm.join(*streams, identity=True).toDF().select("_id").collect())

    ids = found(rows)
    assert len(set(ids)) == 8  # the last two are one row, twice
    assert set(found(rows.where("s IS NOT NULL"))) < set(ids)
    assert found(rows.repartition(4)) == ids


@through()
def test_joins_of_joins(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    """An inner join's ids are a column like any other; the outer join's are its own."""
    write(tmp_path / "in", PAIR.batches)
    inputs, tries = frames(spark, tmp_path / "in", "ab"), list[dict[str, Any]]()

    def outer(strategy: Strategy) -> wm.Join:
        inner = join_of(PAIR, inputs, identity=True, strategy=strategy)
        i = wm.stream("i", inner, window="10 seconds")
        a = wm.stream("a", inputs["a"], time="ts", window="10 seconds", delay="30 seconds")
        select = "_id, i._id AS inner, i.a.id AS x, i.b.id AS y, a.id AS z"
        return wm.join(i, a, where="i.b.x = a.x", select=select, strategy=strategy)

    def consume(frame: DataFrame, batch: int) -> None:
        tries.append(_ids(frame) if batch else {})
        if len(tries) == 3:
            raise RuntimeError("the sink's connection was lost")

    with pytest.raises(wm.WatersmeetError, match="connection was lost"):
        run(outer(wm.PSP(1)).writeStream.foreachBatch(consume), tmp_path, exchange)
    run(outer(wm.PSP(3)).writeStream.foreachBatch(consume), tmp_path, exchange)
    assert tries[2] == tries[3] and len(tries) == len(PAIR.batches) + 1
    inner = {value[0]: value[1:3] for found in tries for value in found.values()}
    assert len(inner) > len(set(inner.values()))  # equal results of the inner join are still two


# -- what is refused

REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "not a bool": (lambda a, b: wm.join(a, b, identity=cast(Any, "yes")), "identity='yes' must be True or False"),
    "a list without it": (
        lambda a, b: wm.join(a, b, select="a.id", identity=True),
        "identity=True is for results without a SELECT list: add _id to 'a.id'",
    ),
    "a computed list": (lambda a, b: wm.join(a, b, select="a.id + 1 AS n", identity=True), r"add _id to 'a.id \+ 1"),
    "the name of a stream": (lambda a, b: wm.stream("_ID", a._ws_part.frame, time="ts"), "'_ID' can't name a stream"),
    "twice": (lambda a, b: wm.join(a, b, select="_id, a.id AS _id"), "Two output columns are called _id"),
    "in where": (lambda a, b: wm.join(a, b, where="_id = 'x'"), "There is no column _id"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(spark: SparkSession, what: str) -> None:
    make, sentence = REFUSED[what]
    with pytest.raises(wm.WatersmeetError, match=sentence):
        make(_static(spark, "a"), _static(spark, "b"))


def test_a_column_of_that_name_is_named_with_its_stream(spark: SparkSession) -> None:
    a, b = (_static(spark, name)._ws_part.frame.withColumnRenamed("id", "_id") for name in "ab")
    streams = [wm.stream(name, frame, time="ts", window="10 seconds") for name, frame in (("a", a), ("b", b))]
    row = wm.join(*streams, where="a.x < b.x", select="_id, a._id AS a, b._id AS b").toDF().first()
    assert row is not None and len(row["_id"]) == 32 and isinstance(row["a"], int)
