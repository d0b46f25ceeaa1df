"""What users test their own joins with."""

import doctest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet import testing
from watersmeet.testing import compare, source


def test_the_examples_hold() -> None:
    assert doctest.testmod(compare).failed == 0


def test_files_come_in_the_order_written_also_when_more_are_added(tmp_path: Path) -> None:
    made = testing.write_batches(tmp_path, [pa.table({"x": [1]}), pa.table({"x": pa.array([], pa.int64())})])
    made += testing.write_batches(tmp_path, [pa.table({"x": [3]})])
    assert [path.name for path in made] == ["00000.parquet", "00001.parquet", "00002.parquet"]
    by_age = sorted(tmp_path.glob("*"), key=lambda path: path.stat().st_mtime)
    assert by_age == made
    assert [pq.read_table(path)["x"].to_pylist() for path in made] == [[1], [], [3]]
    assert source.__doc__
