"""One suite over every exchange: the same cases, the same oracle, in one process and through Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.exchange.backends import IN_PROCESS, ON_SPARK, Backend, InProcess, expected
from tests.exchange.join_cases import CASES, JoinCase
from watersmeet.placement import Strategy
from watersmeet.spark.run.spark_stages import EXCHANGES

STRATEGIES: dict[str, Strategy] = {
    "central": wm.Central(),
    "PSP": wm.PSP(3),
    "CTR": wm.CTR(3, "5 seconds"),
    "ATR": wm.ATR(2, "5 seconds"),
    "DSJ": wm.DSJ(3),
    "hash": wm.Hash(3),
}


def check(backend: Backend, case: JoinCase, strategy: Strategy, folder: Path, spark: SparkSession | None) -> None:
    """Assert that an exchange gives the oracle's results; skip a case that needs what it can't do yet."""
    lacking = case.needs - backend.can
    if lacking:
        pytest.skip(f"{backend} has no {', '.join(sorted(lacking))} yet")
    assert backend.results(case, strategy, folder, spark) == expected(case)


def test_every_exchange_is_here() -> None:
    assert {backend.exchange for backend in ON_SPARK} == set(EXCHANGES)
    assert {backend.exchange for backend in IN_PROCESS} == set(EXCHANGES)


def test_cases_have_results() -> None:
    assert all(expected(case).total() > 5 for name, case in CASES.items() if name != "no rows at all")


IN_PROCESS_RUNS = {
    f"{backend}, {case}, {strategy}": (backend, case, strategy)
    for case in CASES
    for strategy in STRATEGIES
    for backend in IN_PROCESS
}


@pytest.mark.parametrize("name", one_in(17, IN_PROCESS_RUNS))
def test_in_one_process(name: str, tmp_path: Path) -> None:
    backend, case, strategy = IN_PROCESS_RUNS[name]
    check(backend, CASES[case], STRATEGIES[strategy], tmp_path, None)


@pytest.mark.long
def test_what_travels_counts_alike(tmp_path: Path) -> None:
    """Join orders and Auto learn from these figures: an exchange that leaves them out would stop them from learning."""
    case = next(case for case in CASES.values() if len(case.names) > 2 and not case.how)
    hops = {}
    for exchange in ("shuffle", "ring"):
        run = InProcess(exchange).run(case, wm.PSP(3), tmp_path / exchange)
        hops[exchange] = [[(hop["rowsIn"], hop["matches"]) for hop in p["hops"]] for p in run.progress]
        assert run.state is not None and run.state.learned.hops and run.state.learned.usage
    assert hops["ring"] == hops["shuffle"]


SPARK_RUNS = {f"{backend}, {case}": (backend, case) for case in CASES for backend in ON_SPARK}


@pytest.mark.spark
@pytest.mark.parametrize("name", one_in(11, SPARK_RUNS))
def test_through_spark(name: str, tmp_path: Path, spark: SparkSession) -> None:
    backend, case = SPARK_RUNS[name]
    check(backend, CASES[case], STRATEGIES["PSP"], tmp_path, spark)
