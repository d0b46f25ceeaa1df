"""What paths mean: Spark and the engine come to the same place, or the path is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.harness import Case, cuts, expected, frames, join_of, read, side_ids, write
from watersmeet.batch.side_outputs import SIDES
from watersmeet.spark.checkpoint.paths import Location, absolute, check_reachable, locate
from watersmeet.state.store import remote
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark


@pytest.fixture
def settings(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    for name, value in request.param.items():
        spark.conf.set(name, value)
    yield
    for name in request.param:
        spark.conf.unset(name)


HDFS = "hdfs://name:8020"
S3 = {"fs.s3a.endpoint": "http://localhost:9000", "fs.s3a.bucket.other.endpoint.region": "eu-west-1"}


@pytest.mark.parametrize(
    ("settings", "given", "wanted"),
    [
        ({}, "/x/a b%20[1]/", Location("/x/a b%20[1]", "/x/a b%20[1]")),
        ({}, "//x/../y", Location("/y", "/y")),
        ({}, "/x/a:b", Location("/x/a:b", "/x/a:b")),
        ({}, "file:/x/a%20b", Location("file:/x/a%20b", "/x/a%20b")),
        ({}, "file:///x", Location("file:///x", "/x")),
        ({}, "s3a://bucket/a b%20", Location("s3a://bucket/a b%20", "s3://bucket/a%20b%2520")),
        ({}, "s3a://bucket//a/../b//c/", Location("s3a://bucket//a/../b//c", "s3://bucket/b/c")),
        ({}, "gs://bucket", Location("gs://bucket", "gs://bucket/")),
        ({}, "abfss://c@acc.dfs.core.windows.net/x", Location(*["abfss://c@acc.dfs.core.windows.net/x"] * 2)),
        ({}, f"{HDFS}/x", Location(f"{HDFS}/x", f"{HDFS}/x")),
        ({"fs.defaultFS": HDFS}, "hdfs:/x", Location("hdfs:/x", f"{HDFS}/x")),
        ({"fs.defaultFS": HDFS}, "/x", Location(f"{HDFS}/x", f"{HDFS}/x")),
        ({"fs.defaultFS": HDFS}, "file:/x", Location("file:/x", "/x")),
        (S3, "s3a://b/x", Location("s3a://b/x", "s3://b/x?endpoint_override=localhost%3A9000&scheme=http")),
        (
            S3,
            "s3a://other/x",
            Location("s3a://other/x", "s3://other/x?endpoint_override=localhost%3A9000&scheme=http&region=eu-west-1"),
        ),
    ],
    indirect=["settings"],
)
@pytest.mark.usefixtures("settings")
def test_paths(spark: SparkSession, given: str, wanted: Location) -> None:
    assert locate(spark, given, "path") == wanted


@pytest.mark.parametrize(
    ("settings", "given", "problem"),
    [
        ({}, "file:x", r"path 'file:x': what follows file: must begin with a slash; or write ./file:x"),
        ({}, "file://host/x", r"a file: path has no host; write file:///host/x for that folder"),
        ({}, "dbfs:/x", r"Python reaches dbfs:/ through the folder /dbfs, which isn't here"),
        ({}, "hdfs:/x", r"it names no host, and Spark's fs.defaultFS is file:///; write hdfs://host/..."),
        (
            {},
            "wasb://c@a/x",
            r"Python can't open 'wasb:'; use one of abfs, abfss, dbfs, file, gs, hdfs, s3, s3a, viewfs",
        ),
        ({}, "~/out", r"path '~/out': Spark takes ~ for a folder of that name; write /.*/out, or ./~/out"),
        ({}, "~root", r"path '~root': Spark takes ~ for a folder of that name"),
        ({}, " /x", r"path ' /x' has leading or trailing whitespace; remove it"),
        ({}, "/x\n", r"path '/x\\n' has leading or trailing whitespace; remove it"),
        ({}, "s3a:/x", r"it names no bucket; write s3a://bucket/..."),
        ({}, "gs:///x", r"it names no bucket; write gs://bucket/..."),
        ({}, "abfss://container/x", r"write abfss://container@account.dfs.core.windows.net/..."),
        ({"fs.defaultFS": HDFS}, "x", r"Spark's file system is hdfs://name:8020 \(fs.defaultFS\); give the full path"),
        ({"fs.s3a.access.key": "k"}, "s3a://b/x", r"its keys are in Spark's settings \(fs.s3a.access.key\)"),
        ({"fs.azure.account.key": "k"}, "abfss://c@a/x", r"its key is in Spark's settings \(fs.azure.account.key\)"),
    ],
    indirect=["settings"],
)
@pytest.mark.usefixtures("settings")
def test_what_is_refused(spark: SparkSession, given: str, problem: str) -> None:
    with pytest.raises(wm.DefinitionError, match=problem):
        locate(spark, given, "path")


PATHS = ("path", "checkpointLocation", *(f"{kind}Path" for kind in SIDES))


@pytest.mark.parametrize("option", PATHS)
def test_every_path_is_read_alike(spark: SparkSession, tmp_path: Path, option: str) -> None:
    """[!] `dbfs:/data/out` once became a folder of the working directory."""
    write(tmp_path / "in", CASE.batches[:1])
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream
    given = {"path": str(tmp_path / "out"), "checkpointLocation": tmp_path / "cp"}
    for wrong in ("dbfs:/data/out", "odd://x/y", "~/out", "", " /x"):
        with pytest.raises(wm.DefinitionError, match=f"{option}'?,? "):
            writer.options(**given | {option: wrong}).start()
    with pytest.raises(wm.DefinitionError, match=f"{option} .*: a Path can't hold a URL, it drops a slash"):
        writer.options(**given | {option: Path("s3a://bucket/x")})
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def test_paths_as_objects_and_given_twice(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches[:1])
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", tmp_path / "cp").option("latePath", tmp_path / "late")
    with pytest.raises(wm.DefinitionError, match=r"The path is given twice: option\('path', 'x'\) and start\('y'\)"):
        writer.option("path", "x").start("y")
    writer.start(tmp_path / "out").awaitTermination()
    assert {path.name for path in tmp_path.iterdir()} == {"in", "cp", "late", "out"}


def test_places_below() -> None:
    assert Location("s3a://b/x", "s3://b/x?region=r").inside("a %/b") == Location(
        "s3a://b/x/a %/b", "s3://b/x/a%20%25/b?region=r"
    )
    assert Location("/x", "/x").inside("a %") == Location("/x/a %", "/x/a %")


def test_a_place_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(root: str) -> None:
        raise OSError("Unable to load libjvm\nand more")

    monkeypatch.setattr(remote, "connect", fail)
    with pytest.raises(
        wm.DefinitionError, match=r"path 'hdfs://n/x' can't be reached from Python: Unable to load libjvm. "
    ):
        check_reachable(Location("hdfs://n/x", "hdfs://n/x"), "path")


def test_where_spark_alone_goes(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(spark, "x") == str(tmp_path / "x")
    assert absolute(spark, "odd://x/y") == "odd://x/y"


CASE = Case(
    [Stream("a", Sliding(10), 0), Stream("b", Sliding(10), 0)],
    cuts(71, "ab", batches=3, nulls=0, null_times=0.2, disorder=14),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)


@pytest.mark.parametrize(("format", "scheme"), [("json", ""), ("parquet", "file:"), ("parquet", "")])
def test_any_local_folder(spark: SparkSession, tmp_path: Path, format: str, scheme: str) -> None:
    write(tmp_path / "in", CASE.batches)
    odd = tmp_path / "o[1]{a,b} %20*?\\:x"
    inner = join_of(CASE, frames(spark, tmp_path / "in", "ab"), select="a.id AS a, b.id AS b, _time")
    writer = inner.writeStream.format(format).option("checkpointLocation", f"{scheme}{odd}/cp")
    for option, name in (("path", "out"), ("latePath", "late"), ("rejectedPath", "rejected")):
        writer = writer.option(option, f"{scheme}{odd}/{name}")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert {path.name for path in odd.iterdir()} == {"cp", "out", "late", "rejected"}
    assert {"watersmeet", "commits", "offsets"} <= {path.name for path in (odd / "cp").iterdir()}
    wanted = expected(CASE)
    rows = read(odd / "out", format).to_pylist()
    assert sorted((row["a"], row["b"]) for row in rows) == sorted(ids for ids, _ in wanted.results.elements())
    assert side_ids(odd / "late", "ab").total() == len(wanted.late) > 0
    assert side_ids(odd / "rejected", "ab").total() == len(wanted.rejected) > 0


def test_a_nested_join_in_an_odd_folder(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches)
    inputs = frames(spark, tmp_path / "in", "ab")
    inner = join_of(CASE, inputs, select="a.id AS a, _time")
    outer = wm.join(
        wm.stream("ab", inner, window="10 seconds"), wm.stream("b", inputs["b"], time="ts"), select="ab.a, b.id AS b"
    )
    writer = outer.writeStream.format("json").option("checkpointLocation", str(tmp_path / "cp{a,b}[1]"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    assert read(tmp_path / "out", "json").num_rows > 0


def test_start_refuses_a_checkpoint_out_of_reach(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches[:1])
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream
    for scheme in ("dbfs:/x", "hdfs:/x"):
        with pytest.raises(wm.DefinitionError, match=f"checkpointLocation '{scheme}': "):
            writer.option("checkpointLocation", scheme).start(str(tmp_path / "out"))
