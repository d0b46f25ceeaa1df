"""Spark's part of a checkpoint and the join's belong together."""

from pathlib import Path
from threading import Thread
from unittest import mock

import pytest
from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from tests.state.manifest.test_manifest import START
from watersmeet.errors import StateError
from watersmeet.spark.checkpoint import offsets
from watersmeet.spark.checkpoint.offsets import Offsets, start_on
from watersmeet.spark.checkpoint.paths import Location
from watersmeet.spark.run.versions import SPARK
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.store import Store


def finish_batch(checkpoint: Path) -> None:
    """Do what a running query does at the end of a batch."""
    store = Store(str(checkpoint / "watersmeet"))
    before = manifests.last(store) or START
    after = manifests.publish(store, before.follow(offered=before.batch + 1), before)
    assert after is not None
    Store(str(checkpoint)).write(f"commits/{after.batch}", b"v1")


class Busy(Store):
    """A store beside which a query finishes a batch each time that something is listed."""

    def names(self, folder: str) -> list[str]:
        names = super().names(folder)
        finish_batch(Path(self.root.removesuffix("/watersmeet")))
        return names


def test_beside_a_running_query_nothing_is_missing(tmp_path: Path) -> None:
    """It refuses the start by its lease; restoring anything would do harm."""
    finish_batch(tmp_path)
    state = Offsets(Busy(str(tmp_path))).load_state(Busy(str(tmp_path / "watersmeet")))
    assert state is not None and state.batch >= 0


def test_state_that_lacks_a_batch_is_refused(tmp_path: Path) -> None:
    finish_batch(tmp_path)
    Store(str(tmp_path)).write("commits/1", b"v1")
    store, message = (
        Store(str(tmp_path / "watersmeet")),
        "Spark has finished batch 1, but the newest state is of batch 0",
    )
    with pytest.raises(StateError, match=message):
        Offsets(Store(str(tmp_path))).load_state(store)


def test_unfinished_files_are_removed_only_under_the_lease(tmp_path: Path) -> None:
    """[!] They may be those of a run that has taken over, which is writing them."""
    checkpoint, left = Store(str(tmp_path)), "offsets/.0.5b83f0d0-1543-48f1-ad04-f2a2c97fa2bd.tmp"
    checkpoint.write(left, b"")

    def check() -> None:
        raise StateError("Another run has taken over.")

    with pytest.raises(StateError, match="taken over"):
        Offsets(checkpoint).remove_unfinished(check)
    assert checkpoint.names("offsets") == [left]
    Offsets(checkpoint).remove_unfinished(lambda: None)
    assert checkpoint.names("offsets") == []


NAMED = pytest.mark.skipif(SPARK < (4, 3), reason="Spark's class has another name")


class Conf(dict[str, str]):
    """The settings of a session."""

    set, unset = dict[str, str].__setitem__, dict[str, str].__delitem__


def start_with(query: mock.Mock, conf: Conf, location: str = "/x") -> StreamingQuery:
    writer = mock.Mock(start=mock.Mock(side_effect=lambda: query))
    return start_on(Location(location, location), writer, mock.Mock(conf=conf))


@NAMED
def test_the_setting_is_taken_back() -> None:
    conf, query = Conf(), mock.Mock()
    seen: list[dict[str, str]] = []

    def look() -> mock.Mock:
        seen.append(dict(conf))
        return mock.Mock()

    query._jsq.streamingQuery = look
    assert start_with(query, conf) is query and len(seen) == len(seen[0]) == 1 and not conf

    def choose() -> mock.Mock:
        conf.update(dict.fromkeys(seen[0], "mine"))
        return mock.Mock()

    query._jsq.streamingQuery = choose
    start_with(query, conf)
    assert [*conf.values()] == ["mine"]
    start_with(query, conf)
    assert [*conf.values()] == ["mine"]


@NAMED
def test_a_query_whose_start_is_interrupted_is_stopped() -> None:
    conf, query = Conf(), mock.Mock()
    query._jsq.streamingQuery.side_effect = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        start_with(query, conf)
    assert query.stop.called and not conf
    query._jsq.streamingQuery.side_effect = Py4JError("it ended")
    assert start_with(query, conf) is query


@NAMED
def test_a_start_that_another_one_waits_for_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "_INITIALISATION", 10)
    conf, inner, outer = Conf(), mock.Mock(), mock.Mock()
    outer._jsq.streamingQuery = lambda: start_with(inner, Conf()) and mock.Mock()
    thread = Thread(target=start_with, args=(outer, conf), daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive() and not conf and not inner._jsq.streamingQuery.called
