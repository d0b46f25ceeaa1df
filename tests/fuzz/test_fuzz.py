"""The fuzzer itself: it repeats itself by seed, knows what raises, and notices a wrong join."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.fuzz import case as fuzz
from tests.fuzz.case import Case, Runner, cases
from tests.fuzz.data import Column, Data, Row, Shape, write
from tests.fuzz.kinds import KINDS
from tests.fuzz.reference import NotSpark, Reference, define
from tests.fuzz.shrink import shrink
from watersmeet.testing import oracle

INT = next(kind for kind in KINDS if kind.name == "int")


def data() -> Data:
    """Two streams of the numbers 0 to 3."""
    shapes = tuple(Shape(name, "ts", (Column("x", INT),), oracle.Unbounded(), 9) for name in ("a", "end"))
    rows = [Row(n % 2, at, 10 * at + n, 1_700_000_000_000_000 + n, (n,)) for at in (0, 1) for n in range(4)]
    return Data(shapes, tuple(rows), 2, True)


def plain(*conjuncts: str) -> Case:
    return Case("0:0", data(), conjuncts, None, wm.Central(), "given", None, True, "UTC")


def test_a_seed_gives_the_same_cases() -> None:
    made = [[str(case) for seed in range(40) for case in cases(seed)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 110


def test_cases_cover_what_they_should() -> None:
    made = [case for seed in range(300) for case in cases(seed)]
    assert {case.exchange for case in made} == {None, "driver", "local", "ring", "shuffle"}
    assert {type(case.strategy) for case in made} == {wm.PSP, wm.ATR, wm.CTR, wm.DSJ, wm.Hash, wm.Central, wm.Auto}
    assert {type(shape.window) for case in made for shape in case.data.shapes} == set(oracle.Window.__args__)
    assert {c.kind.name for case in made for shape in case.data.shapes for c in shape.columns} == {
        k.name for k in KINDS
    }
    assert max(len(case.data.rows) for case in made) > 1200


def test_a_failing_case_is_made_smaller() -> None:
    small = shrink(plain("a.x = 1", "a.x < 3"), lambda case: any(row.values == (2,) for row in case.data.rows))
    assert len(small.data.rows) == 2 and len(small.conjuncts) == 1


@pytest.fixture
def runner(spark: SparkSession) -> Iterator[Runner]:
    define(spark)
    made = Runner(spark)
    yield made
    made.close()
    spark.conf.unset("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.spark
def test_the_reference_knows_what_raises(spark: SparkSession, tmp_path: Path) -> None:
    define(spark)
    write(data(), tmp_path)
    reference = Reference(spark, data(), tmp_path)
    truth = reference.truth(["a.x / `end`.x > 1", "a.x > 1"], None)
    assert truth.holds == {(2, 11), (3, 11), (3, 12)}
    assert truth.raises == {(2, 10), (3, 10)}
    assert truth.may_raise == {(0, 10), (1, 10)}  # a.x > 1 stands behind what raises
    assert reference.truth(["a.x > 1", "a.x / `end`.x > 1"], None).may_raise == set()
    assert reference.truth(["`end`.x = 3", "py_near(a.x, `end`.x)"], None).holds == {(1, 13), (2, 13), (3, 13)}
    assert reference.truth([], ["a.x AS y", "_time"]).body[3, 10] == "{3, 2023-11-14 22:13:20.000003}"
    with pytest.raises(NotSpark):
        reference.truth(["a.x = nothing"], None)


@pytest.mark.spark
def test_a_right_join_passes_and_a_wrong_one_is_noticed(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    case = plain("a.x < `end`.x")
    assert runner.run(case).said == "6 results"
    assert runner.run(replace(case, exchange="driver")).said == "6 results"
    assert runner.run(plain("1 / a.x > 0")).said == "raises"
    assert runner.run(plain("a.x = nothing")).kind == "not Spark"
    original = fuzz.join_of
    monkeypatch.setattr(fuzz, "join_of", lambda case, frames: original(replace(case, conjuncts=()), frames))
    assert runner.run(case).said.startswith("16 results, 6 wanted; 0 missing: []; 10 too many")
    assert runner.run(plain("1 / a.x > 0")).said.startswith("does not raise, as it must for [(0, 10)")
