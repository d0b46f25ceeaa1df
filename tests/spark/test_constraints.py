"""What streams may declare: every mistake is reported in a sentence."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm

pytestmark = pytest.mark.spark
COLUMNS = (
    "id bigint, ts timestamp, n int, x double, t string, d date, ok boolean, price decimal(10,2), many array<int>, "
    "pair struct<a: int>, m map<int, int>, v variant, i interval day to second, y interval year to month, "
    "c string collate UNICODE_CI, `odd. name` int"
)
LOOSE: Any = wm


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], COLUMNS)


def make_join(frame: DataFrame, **given: Any) -> wm.Join:
    return wm.join(wm.stream("a", frame, time="ts", **given), wm.stream("b", frame, time="ts"), select="a.id")


def test_names_are_found_as_spark_finds_them(frame: DataFrame) -> None:
    given = [wm.key("ID", "Odd. Name"), wm.ordered("PRICE", 0.5), wm.clustered("T"), wm.foreign_key("N", "B.odd. NAME")]
    found = make_join(frame, constraints=given, punctuations=wm.punctuations(flag="OK", on=["N", "d"])).query
    assert [found.describe_constraint(0, promise) for promise in found.streams[0].constraints] == [
        "key (a.id, a.odd. name)",
        "a.price rising, slack 0.5",
        "a.t clustered, slack 0",
        "foreign key (a.n) references b.odd. name",
        "a.ok on a.n and a.d, effect by batch",
    ]


def test_what_punctuations_of_a_frame_say_is_hidden(frame: DataFrame) -> None:
    said = wm.punctuations(frame=frame, on={"n": wm.between("n", "odd. name"), "t": "t"}, time="TS")
    join = make_join(frame, punctuations=[said, wm.punctuations(frame=frame, on="d", time="ts", effect="batch")])
    spec = join.query.streams[0]
    assert [hidden.text for hidden in spec.hidden] == [
        *("a frame of their own", "n", "t", "odd. name"),
        *("a frame of their own", "d"),
    ]
    assert [join.query.describe_constraint(0, promise) for promise in spec.constraints] == [
        "a frame of their own on a.n between n and odd. name and a.t = t, effect by watermark",
        "a frame of their own on a.d = d, effect by batch",
    ]
    assert join.schema.names == ["id"] and join.kinds[0] == frame.schema
    assert [own.stream for own in join.punctuations] == [0, 0]


NO_VALUES = "whose values can't be constrained; booleans, numbers, texts, binaries, dates and timestamps can"


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        (wm.key("idd"), r"Stream 'a', wm.key\('idd'\): there is no column 'idd'; choose from id."),
        (wm.clustered("zzz"), "there is no column 'zzz'; choose from id, ts, n, x, t, d, ok"),
        (wm.key("id", "ID"), r"Stream 'a', wm.key\('id', 'ID'\): it names 'id' twice"),
        (wm.key("many"), f"'many' is of type array<int>, {NO_VALUES}"),
        (wm.ordered("pair"), f"'pair' is of type struct<a:int>, {NO_VALUES}"),
        (wm.ordered("m"), f"'m' is of type map<int,int>, {NO_VALUES}"),
        (wm.clustered("v"), f"'v' is of type variant, {NO_VALUES}"),
        (wm.key("i"), f"'i' is of type interval day to second, {NO_VALUES}"),
        (wm.key("y"), f"'y' is of type interval year to month, {NO_VALUES}"),
        (wm.key("c"), "'c' is of type string collate UNICODE_CI; only text that is compared byte by byte"),
        (wm.ordered("t", slack=1), "slack=1 does not suit a column of type string; leave it out"),
        (wm.ordered("ok", slack=1), "slack=1 does not suit a column of type boolean; leave it out"),
        (wm.ordered("id", slack=1.5), "slack=1.5 does not suit a column of type bigint; give a whole number"),
        (wm.ordered("id", slack="10 seconds"), "slack='10 seconds' does not suit a column of type bigint"),
        (
            wm.ordered("x", slack="10 seconds"),
            "slack='10 seconds' does not suit a column of type double; give a num",
        ),
        (wm.ordered("ts", slack=10), "slack=10 does not suit a column of type timestamp; give a duration such as"),
        (
            wm.ordered("d", slack="10 seconds"),
            "slack='10 seconds' does not suit a column of type date; give a durat",
        ),
        (
            wm.foreign_key("id", "c.id"),
            r"wm.foreign_key\('id', 'c.id'\): 'c' is not another stream of the join; choose from b",
        ),
        (wm.foreign_key("id", "a.id"), "'a' is not another stream of the join; choose from b"),
        (
            wm.foreign_key("id", "b.idd"),
            r"Stream 'b', of which a says wm.foreign_key\('id', 'b.idd'\): there is no column",
        ),
        (
            wm.foreign_key("id", "b.n"),
            "'id' is of type bigint and 'b.n' of type int; cast one to the type of the other",
        ),
    ],
)
def test_constraints_that_can_not_be(frame: DataFrame, constraint: Any, said: str) -> None:
    with pytest.raises(wm.DefinitionError, match=said):
        make_join(frame, constraints=[constraint])


@pytest.mark.parametrize(
    ("punctuations", "said"),
    [
        (
            lambda f: wm.punctuations(flag="n", on="id"),
            "'n' is of type int; a flag is boolean, and TRUE for punctuations",
        ),
        (lambda f: wm.punctuations(flag="no", on="id"), r"wm.punctuations\(flag='no'\): there is no column 'no'"),
        (lambda f: wm.punctuations(flag="ok", on="many"), NO_VALUES),
        (lambda f: wm.punctuations(flag="ok", on={"id": "nn"}), "there is no column 'nn'; choose from n"),
        (lambda f: wm.punctuations(flag="ok", on={"id": "n"}), "'id' is of type bigint and 'n' of type int; cast one"),
        (
            lambda f: wm.punctuations(flag="ok", on={"id": wm.between("id", "n")}),
            "'id' is of type bigint and 'n' of type",
        ),
        (lambda f: wm.punctuations(flag="ok", on={"t": "c"}), "'t' is of type string and 'c' of type string collate"),
        (lambda f: wm.punctuations(flag="ok", on=["id", "ID"]), "it names 'id' twice"),
        (
            lambda f: [wm.punctuations(flag="ok", on="id")] * 2,
            r"declares wm.punctuations\(flag='ok'\) twice; remove one",
        ),
        (lambda f: [wm.punctuations(frame=f, on="id", time="ts")] * 2, r"declares wm.punctuations\(frame=...\) twice"),
        (
            lambda f: wm.punctuations(frame=[1], on="id", time="ts"),
            "frame=... needs a Spark DataFrame, static or streaming",
        ),
        (lambda f: wm.punctuations(frame=f, on="id", time="when"), "Punctuations of stream 'a', .* no column 'when'"),
        (
            lambda f: wm.punctuations(frame=f, on="id", time="id"),
            "their time column 'id' is of type bigint, and the stre",
        ),
        (
            lambda f: wm.punctuations(frame=f.selectExpr("id", "cast(ts as timestamp_ntz) ts"), on="id", time="ts"),
            "their time column 'ts' is of type timestamp_ntz, and the stream's event times are of type timestamp; cast",
        ),
        (lambda f: wm.punctuations(frame=f.select("ts", "n"), on="id", time="ts"), "no column 'id'; choose from ts, n"),
        (
            lambda f: wm.punctuations(frame=f.sparkSession.readStream.format("rate").load(), on="id", time="timestamp"),
            "the stream is static and their frame is streaming; read both with spark.readStream, or both",
        ),
    ],
)
def test_punctuations_that_can_not_be(frame: DataFrame, punctuations: Callable[[DataFrame], Any], said: str) -> None:
    with pytest.raises(wm.DefinitionError, match=said):
        make_join(frame, punctuations=punctuations(frame))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"constraints": wm.key("id")}, r"constraints must be a list, such as \[wm.key\('id'\)\]; got KeyDeclaration"),
        ({"constraints": 3}, "constraints must be a list"),
        ({"constraints": ["id"]}, "'id' is not a constraint; use wm.key, wm.ordered, wm.clustered or wm.foreign_key"),
        ({"punctuations": "ok"}, "punctuations='ok' must be made by wm.punctuations"),
        ({"constraints": [wm.key("id"), wm.key("ID")]}, r"Stream 'a' declares wm.key\('ID'\) twice; remove one"),
    ],
)
def test_what_is_no_promise(frame: DataFrame, given: dict[str, Any], said: str) -> None:
    with pytest.raises(wm.DefinitionError, match=said):
        make_join(frame, **given)


def test_names_of_two_columns(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "id int, ts timestamp, x int, X int")
    with pytest.raises(wm.DefinitionError, match=r"wm.key\('x'\): it has two columns called x and X; rename one"):
        make_join(frame, constraints=[wm.key("x")])


@pytest.mark.parametrize("long", ["0 seconds", "a while", 5, True])
def test_remember(frame: DataFrame, long: Any) -> None:
    with pytest.raises(wm.DefinitionError, match=r"remember.*duration"):
        wm.join(wm.stream("a", frame, time="ts"), wm.stream("b", frame, time="ts"), select="a.id", remember=long)


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "1"])
def test_purge_every(frame: DataFrame, every: Any) -> None:
    with pytest.raises(wm.DefinitionError, match="must be a whole number of batches, 1 or more"):
        wm.join(wm.stream("a", frame, time="ts"), wm.stream("b", frame, time="ts"), select="a.id", purge_every=every)
