"""Spark and DuckDB give the same answers, row by row, and raise on the same rows."""

from typing import Any

import pytest

from tests.predicate.expressions import Generator, traps
from watersmeet.predicate.model import Dialect

pytestmark = pytest.mark.spark

MAX_REFUSED = 0.10


def generated(seed: int, count: int) -> list[str]:
    generator = Generator(seed)
    return [generator.condition() for _ in range(count)]


def check(spark: Any, texts: list[str], dialect: Dialect, refusable: float, **options: int) -> None:
    from tests.predicate.engines import Comparison

    try:
        outcome = Comparison(spark, dialect, **options).run(texts)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.unset("spark.sql.subexpressionElimination.enabled")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert outcome.disagreements == []
    assert outcome.not_spark == []
    assert len(outcome.refused) <= refusable * len(texts), outcome.refused


def test_some_traps(spark: Any) -> None:
    check(spark, traps()[::6], Dialect(), 0)


@pytest.mark.slow
def test_the_traps(spark: Any) -> None:
    check(spark, traps(), Dialect(), 0)


@pytest.mark.slow
def test_generated_expressions_in_a_zone_with_summer_time(spark: Any) -> None:
    check(spark, generated(1, 150), Dialect("America/New_York"), MAX_REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe"])
def test_the_traps_in_other_zones(spark: Any, zone: str) -> None:
    check(spark, traps(), Dialect(zone), 0, seed=2, probes=2)


@pytest.mark.slow
def test_the_traps_without_ansi(spark: Any) -> None:
    check(spark, traps(), Dialect("Europe/Berlin", ansi=False), MAX_REFUSED, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 18))
def test_more_generated_expressions(spark: Any, seed: int) -> None:
    zone = ("UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")[seed % 4]
    check(spark, generated(seed, 400), Dialect(zone), MAX_REFUSED, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 24))
def test_more_generated_expressions_without_ansi(spark: Any, seed: int) -> None:
    check(spark, generated(seed, 400), Dialect("America/New_York", ansi=False), 0.25, seed=seed)
