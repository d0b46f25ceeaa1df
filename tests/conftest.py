"""One Spark session for each process of a test run."""

import gc
import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.progress_paths import unknown
from watersmeet.runtime.commit_protocol import Action, ManifestWritten, Protocol

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


@pytest.fixture(scope="session", autouse=True)
def only_known_fields() -> Iterator[None]:
    """Look at what every batch of every test tells: a field that the reference does not list fails it."""
    on_written = Protocol._on_manifest_written

    def looked_at(protocol: Protocol, event: ManifestWritten) -> list[Action]:
        actions = on_written(protocol, event)
        lacking = unknown(protocol.state.progress)
        if not type(protocol.tree.operator.strategy).__module__.startswith("watersmeet."):
            lacking = {path for path in lacking if not path.startswith("placement.")}
        assert not lacking, f"docs/progress_fields.py lacks {lacking}"
        return actions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Protocol, "_on_manifest_written", looked_at)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.daemon.module", "tests.spark.warm_daemon")
        .config("spark.hadoop.fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
