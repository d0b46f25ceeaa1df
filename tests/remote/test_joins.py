"""Joins whose checkpoint and output are on HDFS or S3: exact through kills and restarts, one driver at a time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from tests.remote.conftest import S3
from tests.spark import processes
from tests.spark.crashing_join import CASE
from tests.spark.harness import EXCHANGES, write
from watersmeet.state.store import remote
from watersmeet.state.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("remote")]
STEPS = ("job", "reports", "sink", "manifest")


@dataclass(frozen=True)
class Place:
    """A folder elsewhere, as Spark and as the store spell it."""

    at: str
    root: str
    settings: dict[str, str] = field(default_factory=dict)

    def fetch(self, folder: Path) -> None:
        """Copy everything in it to this host."""
        found = remote.connect(self.root)
        pafs.copy_files(found.base, str(folder), found.system, pafs.LocalFileSystem())


@pytest.fixture(params=["hdfs", "s3"])
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Place]:
    """Returns a new folder of a name on a real store."""
    if request.param == "hdfs":
        url: str = request.getfixturevalue("hdfs")
        return lambda name: Place(f"{url}/{name}", f"{url}/{name.replace(' ', '%20')}")
    s3: S3 = request.getfixturevalue("s3")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    asked = f"endpoint_override={s3.endpoint.removeprefix('http://')}&scheme=http&region=us-east-1"
    return lambda name: Place(
        f"s3a://{s3.bucket}/{name}", f"s3://{s3.bucket}/{name.replace(' ', '%20')}?{asked}", s3.spark
    )


def spec(place: Place, at: int, **more: Any) -> dict[str, Any]:
    chosen = {"nodes": (3, -1, 0)[at % 3], "exchange": EXCHANGES[at % len(EXCHANGES)], "formats": ["parquet"]}
    return {**chosen, "at": place.at, "settings": place.settings, **more}


def assert_exact(place: Place, folder: Path) -> None:
    place.fetch(folder / "copy")
    found = processes.written(folder / "copy", "parquet")
    assert found == processes.wanted(folder / "copy" / "checkpoint-parquet")
    assert found.total() > 50


def test_a_path_means_one_file(elsewhere: Callable[[str], Place]) -> None:
    store = Store(elsewhere("odd").root)
    names = ["x/a", "x/a#b", "x/a?c", "x/a;d", "x/a b", "x/a%20b", "x/a=e", "x/ä"]
    for name in names:
        store.write(name, name.encode())
    assert sorted(store.names("x")) == sorted(names)
    assert [store.read(name) for name in names] == [name.encode() for name in names]
    assert [store.publish(name, b"again") for name in names] == [False] * len(names)
    assert store.read("x/none") is None
    store.remove(names[1:])
    assert store.names("x") == ["x/a"]
    assert store.publish("y/z", b"1") and store.read("y/z") == b"1"
    store.check()


def test_exits_between_any_two_steps_lose_and_double_nothing(tmp_path: Path, elsewhere: Callable[[str], Place]) -> None:
    place = elsewhere("exits at any step")
    write(tmp_path / "in", CASE.batches)
    for at, step in enumerate(STEPS):
        said = processes.run(tmp_path, **spec(place, at, die=[step, 1 if at == 0 else 2]))
        assert said[-1:] == [f"step {step}"], (said, (tmp_path / "log").read_text()[-3000:])
    assert processes.run(tmp_path, **spec(place, len(STEPS)))[-1] == "done"
    assert_exact(place, tmp_path)


def test_of_two_drivers_one_is_refused(tmp_path: Path, elsewhere: Callable[[str], Place]) -> None:
    place = elsewhere("two")
    write(tmp_path / "in", CASE.batches)
    with (
        processes.program(tmp_path, **spec(place, 0)) as first,
        processes.program(tmp_path, **spec(place, 0)) as second,
    ):
        said = [list(processes.lines(process))[-1] for process in (first, second)]
    assert "done" in said
    others = [last for last in said if last != "done"]
    assert all("is in use by process" in last for last in others)
    assert_exact(place, tmp_path)
