"""One Spark session for each process of a test run."""

import gc
import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# JVMs that live for seconds: to optimise their code would take them longer than to run it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where tests run in several processes, keep those of a file that share a session in one of them.

    What takes long comes first, so that tests of milliseconds are left to fill the gaps at the end.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("spark"):
        return 0
    return 1 if getattr(getattr(item, "obj", None), "is_hypothesis_test", False) else 2


def pytest_unconfigure() -> None:
    """Let test modules go before the interpreter ends.

    Hypothesis leaves a callback with the garbage collector, which outlives all modules. What it refers to, DuckDB's
    types among it, would be reported as leaked.
    """
    gc.callbacks[:] = [call for call in gc.callbacks if "hypothesis" not in str(getattr(call, "__module__", ""))]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
