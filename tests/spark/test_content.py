"""The content hash: rows that differ are told apart, whatever the types and wherever the NULLs."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import frames, read, run
from watersmeet.spark.run.frames import content_hash
from watersmeet.testing import write_batches

pytestmark = pytest.mark.spark

DIFFERENT = {
    "NULL": ["5 AS x, CAST(NULL AS INT) AS y", "CAST(NULL AS INT) AS x, 5 AS y"],
    "NULL in arrays": ["array(5, NULL) AS x", "array(NULL, 5) AS x", "array(5) AS x", "array(5, NULL, NULL) AS x"],
    "borders of arrays": [
        "array(1) AS x, array(2) AS y",
        "array(1, 2) AS x, array() AS y",
        "array(1, 2) AS x, NULL AS y",
    ],
    "arrays in arrays": ["array(array(1), array(2)) AS x", "array(array(1, 2)) AS x", "array(array(1), NULL) AS x"],
    "structs": [
        "named_struct('a', 5, 'b', NULL) AS x",
        "named_struct('a', NULL, 'b', 5) AS x",
        "named_struct('a', NULL, 'b', NULL) AS x",
        "NULL AS x",
    ],
    "structs in arrays": [
        "array(named_struct('a', 5, 'b', NULL)) AS x",
        "array(named_struct('a', NULL, 'b', 5)) AS x",
    ],
    "collations": ["'a' COLLATE UNICODE_CI AS x", "'A' COLLATE UNICODE_CI AS x", "NULL AS x"],
    "collations in arrays": ["array('a' COLLATE UTF8_LCASE) AS x", "array('A' COLLATE UTF8_LCASE) AS x"],
    "zeros": ["0D AS x", "-0D AS x", "NULL AS x"],
    "zeros in arrays": ["array(0D, 1D) AS x", "array(-0D, 1D) AS x"],
    "maps": ["map('a', 1) AS x", "map('a', 2) AS x", "map('a', NULL) AS x", "map('b', 1) AS x", "NULL AS x"],
    "maps in structs": ["named_struct('m', map(1, map(2, 3))) AS x", "named_struct('m', map(1, map(2, NULL))) AS x"],
    "variants": ["parse_json('{\"a\": 1}') AS x", 'parse_json(\'{"a": "1"}\') AS x', "parse_json('null') AS x"],
    "keys": ["named_struct('a', 1, 'A', 2) AS x", "named_struct('a', 2, 'A', 1) AS x"],
}


def hashes(spark: SparkSession, rows: list[str]) -> list[int]:
    frame = spark.sql(" UNION ALL ".join(f"SELECT {at} AS n, {row}" for at, row in enumerate(rows))).orderBy("n")
    values = [(F.col(field.name), field.dataType) for field in frame.schema if field.name != "n"]
    return [row[0] for row in frame.select(content_hash(values)).collect()]


@pytest.mark.parametrize("name", one_in(2, DIFFERENT))
def test_different_rows_have_different_hashes(spark: SparkSession, name: str) -> None:
    found = hashes(spark, DIFFERENT[name])
    assert len(set(found)) == len(found)


def test_equal_rows_have_equal_hashes(spark: SparkSession) -> None:
    same = ["map('a', 1, 'b', NULL) AS x, array(NULL, -0D) AS y"] * 2
    turned = "map('b', NULL, 'a', 1) AS x, array(NULL, -0D) AS y"
    assert len(set(hashes(spark, [*same, turned]))) == 1


def test_nothing_but_null_from_parquet(spark: SparkSession, tmp_path: Path) -> None:
    """[!] Spark's own functions of arrays fail on such files; it has no entry in its dictionary to look at."""
    number, time = pa.float64(), pa.timestamp("us", "UTC")
    kinds = {
        "list": pa.list_(number),
        "lists": pa.list_(pa.list_(number)),
        "map": pa.map_(pa.string(), number),
        "struct": pa.struct([("x", pa.list_(time))]),
        "days": pa.list_(pa.date32()),
        "small": pa.list_(pa.int8()),
    }
    values = {"lists": [[None]], "map": [("k", None)], "struct": {"x": [None]}}
    for name, kind in kinds.items():
        table = pa.table({"x": pa.array([values.get(name, [None]), None], kind)})
        write_batches(tmp_path / name, [table])
        frame = spark.read.parquet(str(tmp_path / name))
        found = frame.select(content_hash([(F.col("x"), frame.schema["x"].dataType)])).collect()
        assert len({row[0] for row in found}) == 2, name


@pytest.mark.parametrize("exchange", one_in(2, ["local", "driver"]))
def test_the_order_of_rows_in_a_batch_changes_no_count_window(
    spark: SparkSession, tmp_path: Path, exchange: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.int64()), ("y", pa.int64())])
    alike = [{"ts": 0, "x": 5, "y": None}, {"ts": 0, "x": None, "y": 5}]
    later = pa.Table.from_pylist([{"id": 1, "ts": 1, "x": 0, "y": 0}], schema)
    found = []
    for at, rows in enumerate((alike, alike[::-1])):
        folder = tmp_path / str(at)
        write_batches(folder / "in" / "a", [pa.Table.from_pylist(rows, schema), later.slice(0, 0)])
        write_batches(folder / "in" / "b", [later.slice(0, 0), later])
        given = frames(spark, folder / "in", "ab")
        a = wm.stream("a", given["a"], time="ts", window=wm.count(1), delay="1 second")
        joined = wm.join(a, wm.stream("b", given["b"], time="ts", delay="1 second"), select="a.x, a.y, b.id")
        run(joined.writeStream, folder, exchange)
        found.append(read(folder / "out").to_pylist())
    assert len(found[0]) == 1
    assert found[0] == found[1]
