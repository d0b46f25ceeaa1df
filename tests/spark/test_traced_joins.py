"""Inner results carry the groups they came from through Spark, and nobody sees it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark import harness
from tests.spark.harness import cuts
from watersmeet.spark.run.jobs import Jobs
from watersmeet.spilling.tallies import codes_of

pytestmark = pytest.mark.spark
JOINS: dict[str, dict[str, Any]] = {
    "columns": {"inner": "a.id AS l, b.id AS r, b.x AS x", "outer": "ab.l, ab.r, c.id AS _trace"},
    "expressions": {
        "inner": "a.id + 0 AS l, b.id AS r, b.x AS x, _time AS _time",
        "outer": "ab.l + 0 AS l, ab.r, c.id",
    },
}
JOINS["structs"] = {"inner": None, "outer": "ab.a.id AS l, ab.b.id AS r, c.id", "x": "ab.b.x"}
HERE = "{0}.x IS NOT NULL AND {1}.x IS NOT NULL"
BY_SPARK = "soundex(concat({0}.x, {1}.x)) IS NOT NULL"


def _stream(name: str, frame: Any, **more: Any) -> Any:
    return wm.stream(name, frame, window="10 seconds", delay="60 seconds", **more)


def _join(frames: dict[str, Any], select: str, where: str) -> wm.Join:
    inner = wm.join(
        _stream("a", frames["a"], time="ts"),
        _stream("b", frames["b"], time="ts"),
        where=f"a.x = b.x AND {where.format('a', 'b')}",
        select=JOINS[select]["inner"],
        strategy=wm.Hash(2),
    )
    return wm.join(
        _stream("ab", inner, time="_time"),
        _stream("c", frames["c"], time="ts"),
        where=f"abs(ab.x - c.x) < 2 AND {where.format('ab', 'c')}".replace("ab.x", JOINS[select].get("x", "ab.x")),
        select=JOINS[select]["outer"],
        strategy=wm.PSP(2),
    )


def _run(join: wm.Join, folder: Path, exchange: str) -> tuple[Counter[Any], list[str]]:
    writer = join.writeStream.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "ck"))
    writer.option("exchange", exchange).trigger(availableNow=True).start().awaitTermination()
    found = join.spark.read.parquet(str(folder / "out"))
    return Counter(tuple(row) for row in found.collect()), found.columns


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exchange", "select", "where"),
    [
        ("driver", "structs", HERE),
        ("local", "expressions", BY_SPARK),
        ("shuffle", "columns", BY_SPARK),
    ],
)
def test_results_are_the_same_and_credit_goes_to_inner_groups(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str, select: str, where: str
) -> None:
    harness.write(tmp_path / "in", cuts(5, "abc", batches=3, rows=12))
    join = _join(harness.frames(spark, tmp_path / "in", "abc"), select, where)
    assert all(bool(part.query.deferred_conjuncts) == (where == BY_SPARK) for part in (join, join.inner[0]))
    plain = _run(join, tmp_path / "plain", exchange)
    done = list[dict[str, Any]]()
    original = Jobs.run

    def noted(self: Jobs, plans: Any) -> Any:
        jobs = original(self, plans)
        done.append({"plans": plans, **jobs})
        return jobs

    monkeypatch.setattr(Jobs, "run", noted)
    traced = _run(replace(join, spill=wm.Spill(memory="1 TB")), tmp_path / "traced", exchange)
    assert traced == plain and len(traced[0]) > 20
    credits = sum((Counter(jobs["j"].credits) for jobs in done), Counter[int]())
    known = codes_of("j_0", (group for jobs in done for group in jobs["j_0"].groups))
    assert set(credits) <= set(known)
    rows = sum(traced[0].values())
    assert rows <= sum(credits.values()) <= 2 * rows  # a and b are in one slice of time or in two
    assert sum(tally.results for jobs in done for tally in jobs["j"].groups.values()) >= rows
    assert any(jobs["j"].crossings for jobs in done)
