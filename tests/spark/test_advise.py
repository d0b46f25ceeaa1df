"""wm.advise over static samples, and the command line."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

import watersmeet as wm
from tests.budget import one_in
from watersmeet import cli
from watersmeet.spark.api import samples
from watersmeet.spark.api.advise import LONG, MOST_SECONDS, cuts
from watersmeet.spark.api.samples import read, read_source
from watersmeet.workload import numbers, write

NAMES = ("a", "b", "c")
ROOT = Path(__file__).resolve().parents[2]


def table(name: str, rate: float = 20, seconds: float = 40) -> pa.Table:
    return numbers(rate, seconds, np.random.default_rng(ord(name)), high=100)


def make_join(
    frames: dict[str, DataFrame], where: str = "abs(a.x - b.x) < 5 AND abs(b.x - c.x) < 5", **more: Any
) -> wm.Join:
    streams = [wm.stream(name, frame, time="ts", window="10 seconds", delay="0 s") for name, frame in frames.items()]
    return wm.join(*streams, where=where, **more)


@pytest.fixture(scope="module")
def static(spark: SparkSession) -> dict[str, DataFrame]:
    return {name: spark.createDataFrame(table(name)).cache() for name in NAMES}


@pytest.fixture
def streaming(spark: SparkSession, tmp_path: Path) -> Iterator[dict[str, DataFrame]]:
    for name in NAMES:
        write(table(name), tmp_path / name, seconds_per_file=10)
    yield {
        name: spark.readStream.schema("id long, ts timestamp, x double").parquet(f"{tmp_path}/{name}") for name in NAMES
    }


# -- batches


def test_batches_double_while_they_are_quick() -> None:
    found = list(cuts(640, lambda: 0.0))
    assert [end - at for at, end in found][:5] == [10, 20, 40, 80, 80]
    assert [at for at, _ in found[1:]] == [end for _, end in found[:-1]]
    assert found[-1][1] == 640
    assert list(cuts(3, lambda: 0.0)) == [(0, 1), (1, 2), (2, 3)]


def test_batches_that_take_long_stay_as_they_are_until_time_is_up(capsys: pytest.CaptureFixture[str]) -> None:
    now, seen = [0.0], []
    for at, end in cuts(6400, lambda: now[0]):
        seen.append(end - at)
        now[0] += LONG
    assert seen == [100] * round(MOST_SECONDS / LONG)
    assert capsys.readouterr().err.endswith("\rmeasured 16% of the sample in 10 s\n")


# -- what is advised


@pytest.mark.spark
def test_what_is_measured_and_predicted_is_what_the_join_does(static: dict[str, DataFrame]) -> None:
    join = make_join(static)
    found = wm.advise(join)
    assert found.measured["tuples"] == sum(table(name).num_rows for name in NAMES)
    for stream in found.measured["streams"].values():
        assert stream["tuplesPerSecond"] == pytest.approx(20, rel=0.3)
        assert list(stream["matching"].values()) == pytest.approx([0.1, 0.1], rel=0.3)
    row = found.rows[0]
    assert row["stateRows"] == pytest.approx(3 * 20 * 10, rel=0.3)
    assert row["resultsPerSecond"] == pytest.approx(join.toDF().count() / 40, rel=0.3)
    assert row["nodes"] == 1 and not any("full one" in note for note in found.notes)


@pytest.mark.spark
def test_a_small_sample_does_not_ask_for_many_nodes(static: dict[str, DataFrame]) -> None:
    """At 2,000 times its rate a batch takes what its tuples take, not what a batch takes before it does anything."""
    found = wm.advise(make_join({name: static[name] for name in "ab"}, "floor(a.x) = floor(b.x) AND a.id < b.id"))
    assert [row["nodes"] for row in found.rows] == [1, 1, 1, 1]
    assert found.measured["pairSeconds"] < 5e-7
    assert found.strategy == wm.Auto(max_nodes=16, within="1 second")


@pytest.mark.spark
@pytest.mark.parametrize("refresh", one_in(2, [True, False]))
def test_tables_are_looked_up_and_stay_as_they_are(
    spark: SparkSession, static: dict[str, DataFrame], refresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    zones = spark.range(100).selectExpr("id AS zone", "concat('zone ', id) AS name")
    streams = [wm.stream(name, static[name], time="ts", window="10 seconds", delay="0 s") for name in "ab"]
    where = "abs(a.x - b.x) < 5 AND floor(b.x) = zones.zone"
    join = wm.join(streams[0], wm.table("zones", zones, refresh=refresh), streams[1], where=where)
    found = wm.advise(join)
    assert found.measured["streams"]["zones"] == {"rows": 100}
    assert "  zones: a table of 100 rows" in str(found)
    assert found.measured["streams"]["b"]["matching"]["zones"] == pytest.approx(0.01, rel=0.05)
    first, fifth = found.rows[0], found.rows[2]
    assert first["resultsPerSecond"] == pytest.approx(join.toDF().count() / 40, rel=0.3)
    assert first["stateRows"] == pytest.approx(2 * 20 * 10 + 100, rel=0.3)
    assert fifth["stateRows"] - 100 == pytest.approx(5 * (first["stateRows"] - 100))
    assert not any("zones" in note for note in found.notes)
    monkeypatch.setattr(samples, "MOST_TABLE_ROWS", 50)
    large = wm.advise(join, {"zones": zones.union(zones)}).rows[0]  # of which about 50 rows are taken
    assert large["resultsPerSecond"] == pytest.approx(2 * first["resultsPerSecond"], rel=0.6)
    assert large["stateRows"] == pytest.approx(first["stateRows"] + 100)


@pytest.mark.spark
def test_samples_of_tables(spark: SparkSession, static: dict[str, DataFrame], tmp_path: Path) -> None:
    zones = spark.range(100).selectExpr("id AS zone", "concat('zone ', id) AS name")
    zones.limit(10).write.json(str(tmp_path / "zones"))
    b = wm.stream("b", static["b"], time="ts", window="10 seconds")
    join = wm.join(b, wm.table("zones", zones), where="floor(b.x) = zones.zone")
    found = wm.advise(join, {"zones": str(tmp_path / "zones")})
    assert found.measured["streams"]["zones"] == {"rows": 10}
    with pytest.raises(
        wm.DefinitionError, match="The sample of table 'zones' has no column 'name', which the table has"
    ):
        wm.advise(join, {"zones": zones.drop("name")})
    with pytest.raises(wm.DefinitionError, match="The sample of table 'zones' has no rows"):
        wm.advise(join, {"zones": zones.limit(0)})
    with pytest.raises(wm.DefinitionError, match="rates: the join has no stream 'zones'; it has b"):
        wm.advise(join, rates={"zones": 5})


@pytest.mark.slow
@pytest.mark.spark
def test_a_costly_python_predicate_is_measured(static: dict[str, DataFrame]) -> None:
    @wm.predicate
    def close(x: float, ys: Any) -> Any:
        time.sleep(1e-4 * len(ys))
        return abs(x - ys) < 5

    pair = {name: static[name] for name in "ab"}
    short = {name: frame.orderBy("ts").limit(120) for name, frame in pair.items()}
    cheap = wm.advise(make_join(pair, "abs(a.x - b.x) < 5"))
    dear = wm.advise(make_join(pair, "close(a.x, b.x)", predicates=[close]), short)
    assert 3e-5 < dear.measured["pairSeconds"] < 1e-3
    assert dear.measured["pairSeconds"] > 3 * cheap.measured["pairSeconds"]
    assert dear.measured["predicates"]["close"]["pairs"] > 1000
    assert dear.rows[-1]["nodes"] > cheap.rows[-1]["nodes"]
    again = wm.advise(make_join(pair, "close(a.x, b.x)", predicates=[close]), short)  # nothing is answered from memory
    assert again.measured["predicates"]["close"]["pairs"] > 1000


@pytest.mark.spark
def test_samples_take_the_place_of_streams(static: dict[str, DataFrame], streaming: dict[str, DataFrame]) -> None:
    join = make_join(streaming)
    with pytest.raises(wm.DefinitionError, match="The sample of stream 'a' is streaming; give a static frame"):
        wm.advise(join, streaming)
    inner = make_join({name: streaming[name] for name in "ab"}, "a.x < b.x", select="a.x AS x")
    outer = wm.join(wm.stream("ab", inner), wm.stream("c", static["c"], time="ts"), where="ab.x = c.x")
    with pytest.raises(wm.DefinitionError, match="Stream 'ab' is a join of streams, whose results aren't known yet"):
        wm.advise(outer)
    mixed = {name: frame.select("x", "id", "ts") for name, frame in static.items()}
    assert wm.advise(join, mixed, {"a": 1000}).rows[0]["tuplesPerSecond"] > 1000
    with pytest.raises(wm.DefinitionError, match="The sample of stream 'b' has no column 'x', which the stream has"):
        wm.advise(join, {**static, "b": static["b"].drop("x")})


@pytest.mark.spark
def test_samples_that_tell_nothing_are_refused(static: dict[str, DataFrame]) -> None:
    join, later = make_join(static), static["b"].selectExpr("id", "ts + interval 1 day AS ts", "x").limit(0)
    with pytest.raises(wm.DefinitionError, match="The sample of stream 'b' has no rows"):
        wm.advise(join, {"b": later})
    timeless = static["b"].selectExpr("id", "cast(NULL AS timestamp) AS ts", "x")
    with pytest.raises(wm.DefinitionError, match="No rows of stream 'b' are among the first"):
        wm.advise(join, {"b": timeless})
    moment = {
        name: frame.selectExpr("id", "timestamp'2024-01-01' AS ts", "x").limit(3) for name, frame in static.items()
    }
    with pytest.raises(wm.DefinitionError, match="All sampled rows have the same event time"):
        wm.advise(join, moment)
    for wrong in ({"samples": {"z": static["a"]}}, {"rates": {"z": 1}}):
        with pytest.raises(wm.DefinitionError, match="the join has no stream 'z'; it has a, b, c"):
            wm.advise(join, **wrong)


@pytest.mark.slow
@pytest.mark.spark
def test_count_windows_orders_and_nested_joins(static: dict[str, DataFrame]) -> None:
    inner = wm.join(
        wm.stream("a", static["a"], time="ts", window="5 seconds"),
        wm.stream("b", static["b"], time="ts", window=wm.count(50)),
        where="a.x < b.x AND b.x < a.x + 5",
        select="a.x AS x, _time",
    )
    outer = wm.join(
        wm.stream("ab", inner, window="5 seconds"),
        wm.stream("c", static["c"], time="ts", window=wm.hopping("10 seconds", "5 seconds")),
        where="abs(ab.x - c.x) < 5",
        order="histogram",
    )
    for join in (inner, outer):
        assert len(wm.advise(join).rows) == 4


# -- the command line

SCRIPT = """
import watersmeet as wm
from pyspark.sql import SparkSession

def frames(reader):
    return {name: reader.schema("id long, ts timestamp, x double").parquet(f"FOLDER/{name}") for name in "ab"}

def made(reader):
    streams = [wm.stream(n, f, time="ts", window="10 seconds") for n, f in frames(reader).items()]
    return wm.join(*streams, where="abs(a.x - b.x) < 5")

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
live = made(spark.readStream)
later = made(spark.readStream.option("pathGlobFilter", "later-*"))
nothing = 3

def join():
    return made(spark.read)

def broken():
    return made(spark.red)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    for name in "ab":
        write(table(name), tmp_path / name, seconds_per_file=10)
    path = tmp_path / "live_join.py"
    path.write_text(SCRIPT.replace("FOLDER", str(tmp_path)))
    return path


@pytest.mark.slow
@pytest.mark.spark
def test_the_command_prints_a_table_and_draws_a_plot_in_a_process_of_its_own(script: Path) -> None:
    plot = script.parent / "advice.png"
    command = [sys.executable, "-m", "watersmeet", "advise", str(script), "--max-nodes", "4", "--plot", str(plot)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if re.match(r"\s*\d+x ", line)] == [
        "1x",
        "2x",
        "5x",
        "10x",
    ]
    assert plot.exists()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.py"], "nowhere.py: there is no such Python file."),
        (["FILE:nothing"], "FILE: 'nothing' is not a join made by wm.join, nor a function that returns one."),
        (["FILE:absent"], "FILE: 'absent' is not a join"),
        (["FILE:broken"], "FILE, line 21: AttributeError: 'SparkSession' object has no attribute 'red'"),
        (["FILE:later"], "The source of stream 'a' holds no rows now: give a sample, such as samples="),
        (["FILE:live", "--sample", "a=FOLDER"], "The sample of stream 'a': FOLDER holds no file whose name ends in"),
        (["FILE:live", "--sample", "a=nowhere"], "[PATH_NOT_FOUND]"),
        (["FILE", "--sample", "a"], "--sample a: write it like --sample STREAM=VALUE."),
        (["FILE", "--rate", "z=5"], "rates: the join has no stream 'z'; it has a, b."),
        (["FILE", "--rate", "a=many"], "--rate a=many: give a number of tuples per second."),
        (["FILE", "--every", "soon"], "every: 'soon' is not a duration"),
    ],
)
def test_bad_input_is_told_in_a_sentence(
    arguments: list[str], said: str, spark: SparkSession, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (script.parent / "odd").mkdir()
    (script.parent / "odd" / "rows.txt").write_text("1")

    def filled(text: str) -> str:
        return text.replace("FILE", str(script)).replace("FOLDER", str(script.parent / "odd"))

    code = cli.main(["advise", *map(filled, arguments)])
    err = capsys.readouterr().err
    assert code == 2
    assert f"watersmeet: {filled(said)}" in err
    assert "Traceback" not in err


@pytest.mark.spark
@pytest.mark.parametrize("format", ["json", pytest.param("orc", marks=pytest.mark.slow), "csv", "header"])
def test_samples_are_read_in_the_format_that_their_names_tell(
    spark: SparkSession, static: dict[str, DataFrame], tmp_path: Path, format: str
) -> None:
    kind = T.StructType([T.StructField("x y", T.DoubleType()), *static["a"].schema.fields])
    rows = static["a"].selectExpr("x * 2 AS `x y`", "id", "date_trunc('second', ts) AS ts", "x").limit(50)
    columns = kind.names if format != "header" else ["ts", "x y", "x", "id"]  # by name, in whatever order
    writer = rows.select(*(f"`{name}`" for name in columns)).write.option("header", format == "header")
    writer.format(format.replace("header", "csv")).save(str(tmp_path / "rows"))
    found = read(spark, str(tmp_path / "rows"), kind, "It")
    assert found.select(*(f"`{name}`" for name in kind.names)).exceptAll(rows).count() == 0
    assert found.count() == 50


@pytest.mark.spark
def test_a_streaming_source_is_read_as_far_as_it_holds_rows(
    streaming: dict[str, DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = wm.advise(make_join(streaming))
    assert found.measured["streams"]["a"]["tuplesPerSecond"] == pytest.approx(20, rel=0.3)
    monkeypatch.setattr(samples, "MOST_ROWS", 100)
    every = read_source("a", streaming["a"], "ts").toArrow()
    assert every.num_rows == 100
    assert every.column("ts").to_pylist() == table("a").column("ts").to_pylist()[:100]


@pytest.mark.spark
def test_the_command_takes_samples_of_streams(
    spark: SparkSession, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled = [f"--sample={name}={script.parent}/{name}" for name in "ab"]
    plot = script.parent / "advice.svg"
    assert cli.main(["advise", f"{script}:live", *sampled, "--rate=a=100", "--goal=throughput", f"--plot={plot}"]) == 0
    said = capsys.readouterr().out
    assert "goal throughput" in said
    assert [line.split()[0] for line in said.splitlines() if re.match(r"\s*\d+x ", line)] == ["1x", "2x", "5x", "10x"]
    assert plot.read_text().startswith("<svg")


def test_a_file_that_is_no_python_and_a_command_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_text("def join(:")
    assert cli.main(["advise", str(tmp_path / "bad.py")]) == 2
    assert "SyntaxError" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main(["advise"])


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"watersmeet {wm.__version__}\n"
