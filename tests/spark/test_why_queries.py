"""Why tuples joined or didn't: asked of a query, of its checkpoint on the command line, and of static frames."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import frames, table
from watersmeet.cli import main
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.testing import write_batches

pytestmark = pytest.mark.spark


@wm.predicate(form="pair")
def alike(x: float, y: float) -> bool:
    return x % 2 == y % 2


def row(id: int, ts: int | None, x: float = 0.0, k: str | None = "k") -> dict[str, Any]:
    return {"id": id, "ts": ts, "x": x, "k": k}


BATCHES: dict[str, list[list[dict[str, Any]]]] = {
    "a": [[row(1, 0), row(2, 1, 40.0), row(9, None)], [row(3, 30), row(4, 31, 8.0), row(5, 33, 99.0)], [row(6, 3)]],
    "b": [[row(11, 2), row(12, 1, 1.0)], [row(13, 35, 2.0), row(14, 32, 1.0), row(15, 45, 2.0)], []],
}
WHERE = "abs(a.x - b.x) < 5 AND alike(a.x, b.x) AND a.x < 50 AND md5(a.k) <= md5(concat(b.k, left(a.k, 0)))"
FAR = "`abs(a.x - b.x) < 5` is FALSE: abs(a.x - b.x) = 6.0, and it must be < 5 (a.x = 8.0, b.x = 2.0)"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("why")
    for name, batches in BATCHES.items():
        write_batches(folder / name, [table(rows) for rows in batches])
    return folder


@pytest.fixture(scope="module")
def query(spark: SparkSession, inputs: Path) -> Iterator[JoinQuery]:
    made = frames(spark, inputs, "ab")
    streams = [wm.stream(name, made[name], time="ts", window="10 seconds", delay="0 seconds") for name in "ab"]
    join = wm.join(*streams, where=WHERE, select="a.id AS a_id, b.id AS b_id, a.x + b.x AS s", predicates=[alike])
    writer = join.writeStream.format("parquet").option("checkpointLocation", str(inputs / "ck"))
    writer = writer.option("latePath", str(inputs / "late")).trigger(availableNow=True)
    found = writer.start(str(inputs / "out"))
    found.awaitTermination()
    yield found


def test_a_pair_that_joined(query: JoinQuery) -> None:
    found = query.why(a={"id": 3}, b="id = 13")
    assert found.joined
    assert found.combinations[0].batches == (1, 1)
    assert str(found) == (
        "a (id = 3) came in batch 1, at 2023-11-14 22:13:50, and is stored.\n"
        "b (id = 13) came in batch 1, at 2023-11-14 22:13:55, and is stored.\n"
        "They have joined: the result of 2023-11-14 22:13:55 came in batch 1."
    )
    assert "<p>They have joined" in found._repr_html_()


@pytest.mark.parametrize(
    ("a", "b", "name", "says"),
    [
        (4, 13, "abs(a.x - b.x) < 5", FAR),
        (3, 14, "alike(a.x, b.x)", "`alike(a.x, b.x)` is FALSE (a.x = 0.0, b.x = 1.0)"),
        (3, 15, "window of a", "a is 15 seconds older than b, and its window is 10 seconds: 5 seconds too old"),
    ],
)
def test_a_pair_that_did_not(query: JoinQuery, a: int, b: int, name: str, says: str) -> None:
    found = query.why({"a": {"id": a}}, b={"id": b})
    assert found.joined is False
    refused = found.combinations[0].refused_by
    assert refused is not None and (refused.name, refused.message) == (name, says)
    assert f"They have not joined: {says}." in str(found)


def test_what_is_late_rejected_purged_or_left_out(query: JoinQuery) -> None:
    fates = {at: query.why(a={"id": at}).tuples[0] for at in (1, 2, 5, 6, 9)}
    assert fates[6].fate == "late" and fates[6].batches == (2, 2)
    assert fates[9].fate == "rejected" and "no event time" in fates[9].message  # by a sample: there is no rejectedPath
    assert fates[1].fate == "joined" and fates[1].message == "is in 1 result, and no longer stored."
    assert fates[2].fate == "unknown" and "have been purged" in fates[2].message
    assert fates[5].fate == "unknown" and "`a.x < 50`" in fates[5].message
    late = query.why(a={"id": 6}, b={"id": 13})
    assert late.joined is False and "a is late" in str(late)


def test_what_is_no_longer_stored_is_told_by_results(query: JoinQuery) -> None:
    joined, missed = query.why(a={"id": 1}, b={"id": 11}), query.why(a={"id": 1}, b={"id": 12})
    assert joined.joined and joined.combinations[0].batches == (0, 0)
    assert missed.joined is False and "no result in the output holds both" in str(missed)


def test_one_tuple_and_several(query: JoinQuery) -> None:
    assert query.why(a={"id": 3}).combinations[0].results == 1
    found = query.why(b={"x": 2.0})
    assert [found.fate for found in found.tuples] == ["stored", "stored"]
    assert "b (id = 13, ts = 2023-11-14 22:13:55, x = 2.0" in str(found)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"z": {"id": 1}}, "There is no stream 'z'; the streams are a and b."),
        ({"a": {"no": 1}}, "Stream 'a' has no column 'no'; it has id, ts, x and k."),
        ({"a": {"id": "one"}}, "a.id is of type bigint, and 'one' is no such value."),
        ({"a": {"id": 1.5}}, "a.id is of type bigint, and 1.5 is no such value."),
        ({"a": {"ts": "noon"}}, "a.ts is of type timestamp, and 'noon' is no such value."),
        (
            {"a": "id > 1"},
            "a: 'id > 1' is not of the form \"id = 17 AND zone = 'x'\": only equalities are taken, joined by AND.",
        ),
        (
            {"a": "(("},
            "a: '((' is not of the form \"id = 17 AND zone = 'x'\": only equalities are taken, joined by AND.",
        ),
        ({"a": {}}, "a: name the tuple by some of its values, such as {'id': 17} or 'id = 17'; got {}."),
        ({}, "why() needs a tuple to ask about, such as why(a={'id': 17})."),
    ],
)
def test_what_can_not_be_asked(query: JoinQuery, given: dict[str, Any], says: str) -> None:
    with pytest.raises(wm.DefinitionError) as error:
        query.why(**given)
    assert str(error.value) == says
    with pytest.raises(wm.DefinitionError, match="takes streams by name"):
        query.why("id = 17")  # type: ignore[arg-type]


def test_a_table(spark: SparkSession, inputs: Path) -> None:
    made, zones = frames(spark, inputs, "a"), spark.sql("SELECT * FROM VALUES ('k', 1), ('z', 2) AS t(zone, number)")
    stream = wm.stream("a", made["a"], time="ts", window="10 seconds", delay="0 seconds")
    join = wm.join(stream, wm.table("zones", zones), where="a.k = zones.zone")
    writer = join.writeStream.option("checkpointLocation", str(inputs / "with-table")).trigger(availableNow=True)
    found = writer.start(str(inputs / "zoned"))
    found.awaitTermination()
    joined = found.why(a={"id": 3}, zones={"zone": "k"})
    assert joined.joined and "zones (zone = 'k') is a row of the table, and is stored." in str(joined)
    assert found.why(a={"id": 3}, zones={"zone": "z"}).joined is False
    assert str(found.why(zones={"number": 3})) == "zones (number = 3) is not a row of the table."
    assert found.why(a={"id": 1}).tuples[0].message == "is in 1 result, and no longer stored."
    with pytest.raises(wm.DefinitionError, match="it has zone and number"):
        found.why(zones={"_ws_time": 3})


def test_the_command_line(query: JoinQuery, inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = str(inputs / "ck")
    assert main(["why", checkpoint, "--a", "id=4", "--b", "id=13"]) == 0
    assert f"{FAR}." in capsys.readouterr().out
    assert main(["why", checkpoint, "--a=id=3", "--b", "ts=2023-11-14 22:13:55"]) == 0
    told = capsys.readouterr().out
    assert "`alike(a.x, b.x)` can't be answered here" in told and "md5(a.k)" in told
    assert main(["why", checkpoint, "--read-outputs", "--a", "id=3", "--b", "id=13"]) == 0
    assert "They have joined: the output holds 1 result with both, emitted in batch 1." in capsys.readouterr().out
    assert main(["why", checkpoint, "--a", "17"]) == 2
    assert "--a 17: write it like --STREAM COLUMN=VALUE, such as --a id=17." in capsys.readouterr().err
    assert main(["why", str(inputs / "nothing"), "--a", "id=17"]) == 2
    assert "There is no why.json under" in capsys.readouterr().err
    assert main(["advise", "join.py", "--nonsense"]) == 2
    assert "unknown argument: --nonsense" in capsys.readouterr().err


def test_a_predicate_that_is_not_at_hand_on_the_command_line(
    query: JoinQuery, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", str(inputs / "ck"), "--read-outputs", "--a", "id=3"]) == 0
    assert "State alone does not show it: `alike(a.x, b.x)` can't be answered here." in capsys.readouterr().out


# -- optional streams


NEAR = "abs(a.x - b.x) < 3"


@pytest.fixture(scope="module")
def lonely(spark: SparkSession, inputs: Path) -> Iterator[JoinQuery]:
    made = frames(spark, inputs, "ab")
    streams = [wm.stream(name, made[name], time="ts", window="10 seconds", delay="0 seconds") for name in "ab"]
    join = wm.join(*streams, where=NEAR, how={"b": "anti"})
    writer = join.writeStream.option("checkpointLocation", str(inputs / "lonely-ck")).trigger(availableNow=True)
    found = writer.start(str(inputs / "lonely"))
    found.awaitTermination()
    yield found


def test_what_has_no_partner(lonely: JoinQuery) -> None:
    purged, met, waiting = (lonely.why(a={"id": at}) for at in (2, 3, 5))
    assert purged.joined and "The output holds 1 result with it, emitted in batch 1." in str(purged)
    assert met.joined is False and "it has 2 partners in b, the first of 2023-11-14 22:13:52 (x = 1.0)" in str(met)
    assert waiting.joined is None
    assert str(waiting).endswith(
        "It is still open: it has no partner in b so far.\nA partner may come until the watermark, now at "
        "2023-11-14 22:13:53, reaches 2023-11-14 22:14:03."
    )
    partner = lonely.why(a={"id": 3}, b={"x": 1.0, "ts": "2023-11-14 22:13:52"})
    assert partner.joined is False and "b is a partner of a, so that a gives no result." in str(partner)
    late = lonely.why(a={"id": 6})
    assert late.tuples[0].fate == "late" and late.joined is False


def test_optional_streams_on_the_command_line(
    lonely: JoinQuery, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", str(inputs / "lonely-ck"), "--a", "id=3", "--b", "x=2.0"]) == 0
    told = capsys.readouterr().out
    assert "b is a partner of a, so that a gives no result." in told
    assert "b is no partner of a: a is 15 seconds older than b" in told


# -- static frames


@pytest.fixture(scope="module")
def static(spark: SparkSession) -> dict[str, DataFrame]:
    rows = {name: [one for batch in batches for one in batch] for name, batches in BATCHES.items()}
    return {name: spark.createDataFrame(table(found)) for name, found in rows.items()}


def test_static_frames_tell_everything(static: dict[str, DataFrame]) -> None:
    streams = [wm.stream(name, static[name], time="ts", window="10 seconds") for name in "ab"]
    join = wm.join(*streams, where=WHERE, select="a.id + b.id AS s", predicates=[alike])
    assert join.why(a={"id": 6}, b={"id": 11}).joined
    nothing = "can join nothing: `a.x < 50` is FALSE (a.x = 99.0)."
    assert str(join.why(a={"id": 5})) == f"a (id = 5) of 2023-11-14 22:13:53 {nothing}"
    assert join.why(a={"id": 9}).tuples[0].fate == "rejected"
    assert join.why(a={"id": 77}, b={"id": 11}).tuples[0].fate == "never arrived"
    found = join.why(a={"ts": datetime(2023, 11, 14, 22, 13, 50, tzinfo=UTC)}, b={"id": 14})
    assert found.combinations[0].refused_by is not None
    assert found.combinations[0].refused_by.values == {"a.x": 0.0, "b.x": 1.0}
    assert join.why(a={"id": 3}).combinations[0].results == 1
    raising = wm.join(*streams, where="1 / (b.x - a.x) > 0")
    with pytest.raises(wm.PredicateError, match=r"could not be computed: .*[Dd]ivision by zero"):
        raising.why(a={"id": 6})


def test_static_frames_by_values_of_all_kinds(spark: SparkSession) -> None:
    rows = "(timestamp'2026-01-01', array('x', NULL), struct(1 AS n, array(1.5D) AS v), 1.5BD, X'00ff', double('NaN'))"
    frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(ts, tags, at, d, raw, x)")
    join = wm.join(*(wm.stream(name, frame, time="ts", window="10 seconds") for name in "ab"))
    values = {"tags": ["x", None], "at": {"n": 1, "v": [1.5]}, "d": 1.5, "raw": b"\0\xff", "x": float("nan")}
    assert join.why(a=values).combinations[0].results == 1
    assert join.why(a=values | {"tags": []}).tuples[0].fate == "never arrived"


@pytest.mark.slow
def test_static_frames_with_count_windows_and_a_third_stream(static: dict[str, DataFrame]) -> None:
    inputs = {"a": static["a"], "b": static["b"], "c": static["a"]}
    streams = [wm.stream(name, frame, time="ts", window=wm.count(2)) for name, frame in inputs.items()]
    join = wm.join(*streams, where="a.k = b.k AND c.x = a.x")
    results = {(r.a.id, r.b.id, r.c.id) for r in join.toDF().collect()}
    for a, b, c in [*list(results)[:2], (1, 13, 1), (3, 11, 3)]:
        found = join.why(a={"id": a}, b={"id": b}, c={"id": c})
        assert found.joined == ((a, b, c) in results), str(found)
    a, b, _ = next(iter(results))
    assert join.why(a={"id": a}, b={"id": b}).combinations[0].results == sum(r[:2] == (a, b) for r in results)


def test_a_streaming_join_is_asked_through_its_query(spark: SparkSession, inputs: Path) -> None:
    made = frames(spark, inputs, "ab")
    join = wm.join(*(wm.stream(name, made[name], time="ts", window="10 seconds") for name in "ab"))
    with pytest.raises(wm.DefinitionError, match=r"ask the query that runs: query\.why"):
        join.why(a={"id": 1})


@pytest.mark.parametrize("how", one_in(3, ["left", "semi", "anti"]))
def test_optional_static_frames(static: dict[str, DataFrame], how: str) -> None:
    streams = [wm.stream(name, static[name], time="ts", window="10 seconds") for name in "ab"]
    join = wm.join(*streams, where=NEAR, how={"b": how})
    results = [(row.a.id, row.b and row.b.id if how == "left" else None) for row in join.toDF().collect()]
    found = join.why(a={"x": 0.0})  # of three tuples that have the value each is judged by itself
    assert [one.values["id"] for one in found.tuples] == [1, 9, 3]
    for told in found.combinations:
        own = [result for result in results if result[0] == told.members[0].values["id"]]
        assert (told.joined, told.results or 0) == (bool(own), len(own)), str(found)
    assert join.why(a={"id": 2}).joined == (how != "semi")
    assert join.why(a={"id": 3}, b={"id": 13}).joined == (how != "anti")
    assert join.why(a={"id": 3}, b={"id": 15}).joined is False
    assert join.why(b={"id": 14}).joined == (how != "anti")


@pytest.mark.slow
def test_an_optional_table_and_two_required_streams(spark: SparkSession, static: dict[str, DataFrame]) -> None:
    zones = spark.sql("SELECT * FROM VALUES ('k', 1), ('z', 2), ('k', 3) AS t(zone, number)")
    streams = [wm.stream(name, static[name], time="ts", window="10 seconds") for name in "ab"]
    join = wm.join(*streams, wm.table("zones", zones), where=f"{NEAR} AND a.k = zones.zone", how={"zones": "semi"})
    found = join.why(a={"id": 3}, b={"id": 13})
    assert found.joined and found.combinations[0].messages == (
        "They give a result at 2023-11-14 22:13:55: they have 2 partners in zones, the first with zone = 'k'.",
    )
    some = join.why(a={"id": 3}, zones={"number": 3})
    assert some.joined and some.combinations[0].messages == (
        "They match 2 combinations of a and b that are there now: they give 2 results.",
    )
    assert join.why(a={"id": 3}, zones={"number": 2}).joined is False


def test_a_file_that_can_not_be_read_is_passed_over(query: JoinQuery, inputs: Path, caplog: Any) -> None:
    fine = next((inputs / "late" / "a").glob("part-b*"))
    spoiled = fine.with_name(fine.name.replace(".parquet", "-spoiled.parquet"))
    spoiled.write_bytes(b"no Parquet")
    joined = query.why(a={"id": 3}, b={"id": 13}).joined
    spoiled.unlink()
    assert joined and "can't be read and is skipped" in caplog.text
