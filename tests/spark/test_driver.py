"""What the driver's process takes in is bounded in bytes, whatever the rows are like."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame

import watersmeet as wm
from tests.spark.harness import EPOCH, SECOND, read, run
from tests.spark.processes import lines, program
from watersmeet.limits import limited
from watersmeet.spark.run.spark_stages import fetch_small
from watersmeet.spark.sql.value_bounds import width
from watersmeet.testing import stream_batches, write_batches

pytestmark = pytest.mark.spark

Make = Callable[[int], Any]
TYPES: dict[str, tuple[pa.DataType, Make]] = {
    "string": (pa.string(), lambda size: "x" * size),
    "binary": (pa.binary(), lambda size: b"x" * size),
    "array of strings": (pa.list_(pa.string()), lambda size: ["x" * 10] * (size // 10)),
    "array of doubles": (pa.list_(pa.float64()), lambda size: [1.5] * (size // 8)),
    "map": (pa.map_(pa.string(), pa.int64()), lambda size: [(f"{at:08}", at) for at in range(size // 16)]),
    "nested struct": (
        pa.struct([("n", pa.int32()), ("deep", pa.struct([("s", pa.list_(pa.binary()))]))]),
        lambda size: {"n": 1, "deep": {"s": [b"x" * 100] * (size // 100)}},
    ),
}
LIMIT = 1 << 20


class Fetched:
    """Notes how many bytes frames send to Python."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes: list[int] = []
        to_arrow = DataFrame.toArrow

        def noted(frame: DataFrame) -> pa.Table:
            made = to_arrow(frame)
            self.bytes.append(made.nbytes)
            return made

        monkeypatch.setattr(DataFrame, "toArrow", noted)


def _table(kind: pa.DataType, values: list[Any], first: int, ts: int) -> pa.Table:
    times = pa.array([EPOCH + (ts + at) * SECOND for at in range(len(values))]).cast(pa.timestamp("us", "UTC"))
    ids = pa.array(range(first, first + len(values)))
    return pa.table({"id": ids, "ts": times, "v": pa.array(values, kind)})


def _run_join(spark: SparkSession, folder: Path, batches: list[list[Any]], kind: pa.DataType) -> Any:
    """Join values with values as large, batch by batch; return the ids of the results and who ran each batch."""
    for name in "ab":
        tables = [_table(kind, values, 100 * at, 2 * at) for at, values in enumerate(batches)]
        write_batches(folder / name, tables)
    given = [wm.stream(name, stream_batches(spark, folder / name), time="ts", window="1 hour") for name in "ab"]
    join = wm.join(
        *given, where="a.v IS NOT NULL AND b.v IS NOT NULL AND a.id < b.id", select="a.id, b.id AS b, a.v AS v"
    )
    query = run(join.writeStream, folder, "driver")
    found = read(folder / "out")
    shown = Counter(zip(*(found.column(name).to_pylist() for name in ("id", "b")), strict=True))
    values = {row["id"]: row["v"] for row in found.to_pylist()}
    return shown, values, [p["process"] for p in query.progress]


def _expected_results(batches: list[list[Any]]) -> Counter[tuple[int, int]]:
    ids = [100 * at + n for at, values in enumerate(batches) for n, value in enumerate(values) if value is not None]
    return Counter((a, b) for a in ids for b in ids if a < b)


@pytest.mark.parametrize(
    ("name", "sizes", "processes"),
    [
        ("map", [[100, 200], [3 * LIMIT // 8, 100]], ["driver", "driver"]),  # one wide row, and all fit together
        ("nested struct", [[100, 200], [LIMIT, LIMIT]], ["driver", "task"]),
        ("string", [[LIMIT, None], [100, 200]], ["task", "task"]),  # as wide as rows in state, none is few
    ],
    ids=["one wide", "wide", "wide at first"],
)
def test_wide_rows_go_to_tasks(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    sizes: list[list[int | None]],
    processes: list[str],
) -> None:
    kind, make = TYPES[name]
    batches = [[None if size is None else make(size) for size in batch] for batch in sizes]
    fetched = Fetched(monkeypatch)
    with limited(driver_bytes=LIMIT, driver_seconds=60):
        found, values, ran = _run_join(spark, tmp_path, batches, kind)
    assert found == _expected_results(batches)
    assert all(value == batches[at // 100][at % 100] for at, value in values.items())
    assert ran == processes
    assert max(fetched.bytes) < 1.1 * LIMIT


@pytest.mark.parametrize("name", TYPES)
def test_types_of_any_length(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind, make = TYPES[name]
    small, wide = (_table(kind, [make(100), None, make(size), make(0)], 0, 0) for size in (LIMIT // 2, LIMIT))
    frames = [spark.createDataFrame(table) for table in (small, wide)]
    fetched = Fetched(monkeypatch)
    with limited(driver_bytes=LIMIT):
        found = [fetch_small(frame, 8) for frame in frames]
    assert found[0] is not None and found[0].to_pylist() == small.to_pylist()
    assert found[1] is None
    assert max(fetched.bytes) < 1.1 * LIMIT


def test_many_rows_of_middle_width(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = spark.range(1000).select(F.expr("repeat('x', 2000)").alias("s"))
    fetched = Fetched(monkeypatch)
    with limited(driver_bytes=LIMIT):
        assert fetch_small(frame, 2000) is None
        assert fetch_small(frame.limit(400).select(F.lit(1)), 400) is None
        some, none = (fetch_small(part, 2000) for part in (frame.limit(400), frame.where("FALSE")))
    assert some is not None and some.column("s").to_pylist() == ["x" * 2000] * 400
    assert none is not None and none.num_rows == 0
    assert max(fetched.bytes) < 1.1 * LIMIT


def test_widths(spark: SparkSession) -> None:
    values = {
        "1": 8, "'äb'": 11, "CAST(NULL AS string)": 8, "X'0102'": 10, "array(1, 2)": 24, "array('a', NULL)": 25,
        "map('ab', 1D)": 26, "struct(1, 'abc')": 27, "struct(1, 2)": 16, "array(array('a'))": 25,
        "CAST(NULL AS struct<s: string>)": 8, "parse_json('[1,2]')": 13, "DATE'2020-01-01'": 8, "1.5BD": 8,
    }  # fmt: skip
    frame = spark.range(1).selectExpr(*(f"{value} AS c{at}" for at, value in enumerate(values)))
    shown = frame.select(*(width(F.col(field.name), field.dataType) for field in frame.schema)).first()
    assert shown is not None and list(shown) == list(values.values())


@pytest.mark.slow
def test_the_first_batch_does_not_kill_a_small_driver(tmp_path: Path) -> None:
    """240 rows of 5 MB in one batch, with 2 GB for the driver."""
    with program(tmp_path, "wide_join", rows=240, bytes=5_000_000, memory="2g") as process:
        said = list(lines(process))
    assert said, (tmp_path / "log").read_text()[-2000:]
    assert json.loads(said[-1]) == {"processes": ["task"], "rows": 240 // 2, "error": None}
