"""Tables as outputs: those that are files hold each result once, and other streams can read them."""

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark.crashing_join import Steps
from tests.spark.harness import Case, cuts, expected, frames, join_of, write
from watersmeet.spark.api.writer import JoinWriter
from watersmeet.spark.run.batch import BatchRunner
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark

CASE = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(62, "ab", batches=3, nulls=0),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)


class CutShort(Exception):
    """Ends a run where a crash would."""


def cut_short(step: str) -> None:
    raise CutShort(step)


@pytest.fixture
def table() -> str:
    """A name that no other test and no earlier run has used: processes share a warehouse."""
    return f"results_{uuid.uuid4().hex}"


@pytest.fixture
def writer(spark: SparkSession, tmp_path: Path, table: str) -> Iterator[JoinWriter]:
    write(tmp_path / "in", CASE.batches)
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    joined = join_of(CASE, frames(spark, tmp_path / "in", "ab"), select="a.k AS k, a.id AS a, b.id AS b")
    yield joined.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    spark.sql(f"DROP TABLE IF EXISTS {table}")


def expected_rows() -> Counter[Any]:
    return Counter(ids for ids, _ in expected(CASE).results.elements())


def rows_of(frame: DataFrame) -> Counter[Any]:
    return Counter((row.a, row.b) for row in frame.collect())


def test_a_table_of_files_and_a_stream_over_it_hold_each_result_once(
    spark: SparkSession, writer: JoinWriter, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, seen = BatchRunner.open, Counter[Any]()
    for step in ("sink", "manifest", "delivery", ""):
        monkeypatch.setattr(BatchRunner, "open", Steps([step, 1] if step else None, cut_short).watching(claim))
        path = str(tmp_path / "table")
        try:
            writer.toTable(table, partitionBy="k", queryName="tabled", path=path).awaitTermination()
        except (wm.StateError, CutShort) as error:
            assert step and step in str(error)
        stream = spark.readStream.table(table).writeStream.option("checkpointLocation", str(tmp_path / "reader"))
        stream = stream.foreachBatch(lambda frame, batch: seen.update(rows_of(frame))).trigger(availableNow=True)
        stream.start().awaitTermination()
    assert (tmp_path / "table").is_dir()
    assert seen == rows_of(spark.table(table)) == expected_rows()
    assert spark.sql(f"SHOW PARTITIONS {table}").count() == len({row.k for row in spark.table(table).collect()}) > 1


def test_a_table_that_exists_is_written_its_own_way(spark: SparkSession, writer: JoinWriter, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (b BIGINT, A BIGINT, k STRING) USING csv OPTIONS (header 'true', sep '|')")
    writer.toTable(table, format="json", outputMode="append").awaitTermination()
    assert rows_of(spark.table(table).withColumnRenamed("A", "a")) == expected_rows()


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("a BIGINT, b BIGINT", r"Table \w+ has the columns a, b, and the results have k, a, b; choose them with"),
        ("k INT, a BIGINT, b BIGINT", r"Column 'k' is int in table \w+ and string in the results; cast it in select"),
    ],
)
def test_other_columns_are_refused(
    spark: SparkSession, writer: JoinWriter, table: str, columns: str, problem: str
) -> None:
    spark.sql(f"CREATE TABLE {table} ({columns}) USING parquet")
    with pytest.raises(wm.DefinitionError, match=problem):
        writer.toTable(table)


def test_what_cannot_name_a_table_is_refused(writer: JoinWriter) -> None:
    with pytest.raises(wm.DefinitionError, match=r"toTable\('a b'\): that is not a table's name; write it like 'db.ma"):
        writer.toTable("a b")


def test_a_table_that_is_more_than_files_is_sparks(spark: SparkSession, writer: JoinWriter, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (k STRING, a BIGINT, b BIGINT) USING parquet CLUSTERED BY (a) INTO 2 BUCKETS")
    writer.toTable(table).awaitTermination()
    assert rows_of(spark.table(table)) == expected_rows()


def test_a_table_that_the_catalog_has_forgotten(
    spark: SparkSession, writer: JoinWriter, table: str, tmp_path: Path
) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "part-b0").write_text("results")
    with pytest.raises(wm.DefinitionError, match=f"There is no table {table}, but files are in the folder"):
        writer.toTable(table, path=str(tmp_path / "place"))
    assert (tmp_path / "place" / "part-b0").read_text() == "results"
