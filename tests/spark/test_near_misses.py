"""Near-misses through Spark: the option, what progress and explain show, joins within, and what only Spark decides."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark import harness
from tests.spark.harness import EPOCH, SECOND, cuts, frames, join_of, through
from tests.spark.test_bad_input import CASE
from watersmeet.formatting import format_time

pytestmark = pytest.mark.spark
SPARKS = "md5(a.k) <= md5(concat(b.k, left(a.k, 0)))"
"""A condition that only Spark decides."""


@wm.predicate(form="pair")
def alike(x: float, y: float) -> bool:
    return x % 2 == y % 2


def row(id: int, second: int, x: float, k: str = "k") -> dict[str, Any]:
    return {"id": id, "ts": second, "x": x, "k": k}


ROWS = {
    "a": [row(1, 0, 0.0), row(2, 1, 40.0)],
    "b": [row(11, 2, 2.0), row(12, 3, 1.0)],  # one joins with 1; 2 is too far from both, 12 is not like 1
    "c": [row(21, 4, 2.0), row(22, 4, 9.0, "K000")],
}


def streams(spark: SparkSession, folder: Path, names: str) -> list[Any]:
    harness.write(folder / "in", [{name: ROWS[name] for name in names}])
    inputs = frames(spark, folder / "in", names)
    return [wm.stream(name, inputs[name], time="ts", window="10 seconds", delay="0 seconds") for name in names]


def near_misses_of(progress: Any, stream: str) -> dict[str, Any]:
    """The near-misses of the only hop to a stream at which something was tested, by conjunct."""
    hops = [hop["tests"][1:] for hop in progress["funnel"] if hop["stream"] == stream and hop["tests"][1:]]
    return {test["name"]: test["missed"] for tests in hops for test in tests}


def at(second: int, **values: str) -> dict[str, str]:
    return {**values, "ts": format_time(EPOCH + second * SECOND)}


@through("driver", "shuffle")
def test_progress_and_explain_show_them(
    spark: SparkSession, tmp_path: Path, exchange: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = streams(spark, tmp_path, "ab")
    join = wm.join(a, b, where=f"abs(a.x - b.x) < 5 AND alike(a.x, b.x) AND {SPARKS}", predicates=[alike])
    query = harness.run(join.writeStream.option("nearMisses", 3), tmp_path, exchange)
    assert harness.results(tmp_path, "ab") == {((1, 11), EPOCH + 2 * SECOND): 1}
    assert near_misses_of(query.progress[0], "a") == {
        "abs(a.x - b.x) < 5": [{"abs(a.x - b.x)": "38.0", "a": at(1, x="40.0"), "b": at(2, x="2.0")}],
        "alike(a.x, b.x)": [{"a": at(0, x="0.0"), "b": at(3, x="1.0")}],
    }
    query.explain()
    said = capsys.readouterr().out
    assert "nearly: abs(a.x - b.x) = 38.0 (a.x = 40.0, b.x = 2.0)\n" in said
    assert "nearly: a.x = 0.0, b.x = 1.0\n" in said


def test_without_the_option_there_are_none(spark: SparkSession, tmp_path: Path) -> None:
    a, b = streams(spark, tmp_path, "ab")
    query = harness.run(wm.join(a, b, where="abs(a.x - b.x) < 5").writeStream, tmp_path)
    tests = [test for hop in query.progress[0]["funnel"] for test in hop["tests"]]
    assert len(tests) > 2 and not any("missed" in test for test in tests)


def test_joins_within_and_what_spark_computes(spark: SparkSession, tmp_path: Path) -> None:
    a, b, c = streams(spark, tmp_path, "abc")
    pairs = wm.join(a, b, where="abs(a.x - b.x) < 5", select="a.id, b.k, _time")
    outer = wm.join(wm.stream("ab", pairs, window="10 seconds"), c, where="soundex(ab.k) = c.k", select="c.id")
    query = harness.run(outer.writeStream.option("nearMisses", 1), tmp_path)
    assert [found["id"] for found in harness.read(tmp_path / "out").to_pylist()] == [22, 22]
    (inner,) = near_misses_of(query.progress[0]["inner"]["ab"], "a").values()
    assert len(inner) == 1 and inner[0]["a"]["x"] == "40.0"
    (miss,) = near_misses_of(query.progress[0], "ab")["soundex(ab.k) = c.k"]
    assert miss["soundex(ab.k)"] == "K000" and miss["c"] == at(4, k="k") and [*miss["ab"]] == ["_time"]


@pytest.mark.parametrize("given", ["-1", "many", "1.5", True])
def test_what_is_no_number_of_near_misses(spark: SparkSession, tmp_path: Path, given: Any) -> None:
    harness.write(tmp_path / "in", cuts(42, "ab", batches=1))
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream.option("NEARMISSES", given)
    with pytest.raises(wm.DefinitionError) as caught:
        harness.run(writer, tmp_path)
    text = str(given).lower()
    assert str(caught.value) == f"option('nearMisses', '{text}') must be a whole number, 0 or more."
