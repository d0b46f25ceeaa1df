"""Reading a checkpoint changes nothing, and copes with a query that goes on meanwhile."""

import os
import shutil
from pathlib import Path

import pytest

from tests.observe.dashboard.recorded_join import recorded
from tests.state.manifest.test_manifest import chain
from watersmeet.errors import DefinitionError
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointReader
from watersmeet.state.manifest import leases
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.claim import claim
from watersmeet.state.manifest.generations import Fence, generation_of
from watersmeet.state.manifest.leases import this_process
from watersmeet.state.store.file_format import seal
from watersmeet.state.store.places import store_of
from watersmeet.state.store.store import Store

MILL = {"host": None, "pid": 7, "name": "mill", "born": None, "token": "x"}


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """All files and folders, with their times and sizes."""
    paths = [os.path.join(base, name) for base, folders, names in os.walk(folder) for name in (*folders, *names)]
    return {path: (os.stat(path).st_mtime_ns, os.stat(path).st_size) for path in paths}


def test_nothing_is_written(tmp_path: Path) -> None:
    recorded(tmp_path, batches=3)
    before = everything(tmp_path)
    reader = CheckpointReader(store_of(str(tmp_path)))
    assert reader.read(0.0).manifest is not None and reader.read(1.0).progress[-1]["batchId"] == 2
    assert everything(tmp_path) == before


def test_a_folder_without_a_join_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"has no query\.json: give the checkpointLocation of a join"):
        CheckpointReader(store_of(str(tmp_path))).read(0.0)


def test_it_follows_a_query_that_goes_on(tmp_path: Path) -> None:
    run = recorded(tmp_path, batches=2)
    reader = CheckpointReader(store_of(str(tmp_path)))
    assert len(reader.read(0.0).progress) == 2
    run.bring([(0, {"id": 1, "ts": int(run.clock * 1e6), "x": 1.0})])
    snapshot = reader.read(1.0)
    assert snapshot.manifest is not None and (snapshot.manifest.batch, len(snapshot.progress)) == (2, 3)


def test_a_file_that_vanishes_meanwhile_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(tmp_path, batches=3)
    batches = iter([1000, 2])  # as if a manifest were gone that was just listed
    monkeypatch.setattr(manifests, "newest", lambda store: next(batches))
    snapshot = CheckpointReader(store_of(str(tmp_path))).read(0.0)
    assert snapshot.manifest is not None and snapshot.manifest.batch == 2


def test_damage_is_told_and_does_not_stop_the_screen(tmp_path: Path) -> None:
    recorded(tmp_path, batches=3)
    file = tmp_path / "watersmeet" / manifests.path_of(2)
    reader, good = CheckpointReader(store_of(str(tmp_path))), file.read_bytes()
    file.write_bytes(good[:-5])
    snapshot = reader.read(0.0)
    assert "manifest of batch 2" in snapshot.problem and "damaged" in snapshot.problem and snapshot.manifest is None
    file.write_bytes(good)
    assert not reader.read(1.0).problem


def test_who_runs_it_and_for_how_long_nothing_was_heard(tmp_path: Path) -> None:
    recorded(tmp_path, batches=1)
    store, reader = Store(f"{tmp_path}/watersmeet"), CheckpointReader(store_of(str(tmp_path)))
    assert reader.read(0.0).runner.has_ended  # nobody ever took a lease
    store.publish(leases.path_of(1), seal(MILL | {"at": store.root}))
    store.overwrite(leases.path_of(1, "renewed"), b"x")
    assert reader.read(10.0).runner.silence == 0
    holder = reader.read(31.0).runner
    assert (holder.process, holder.has_ended, holder.silence) == ("process 7 on mill", False, 21.0)
    store.overwrite(leases.path_of(1, "renewed"), b"y")
    assert reader.read(32.0).runner.silence == 0
    store.publish(leases.path_of(1, "ended"), b"")
    assert reader.read(33.0).runner.has_ended


def test_the_age_of_a_lease_counts_at_the_first_look_only(tmp_path: Path) -> None:
    recorded(tmp_path, batches=1)
    store = Store(f"{tmp_path}/watersmeet")
    store.publish(leases.path_of(1), seal(MILL | {"at": store.root}))
    os.utime(tmp_path / "watersmeet" / leases.path_of(1), (500, 500))
    assert CheckpointReader(store).read(0.0, 530.0).runner.silence == 30  # taken, and not yet renewed
    store.overwrite(leases.path_of(1, "renewed"), b"x")
    os.utime(tmp_path / "watersmeet" / leases.path_of(1, "renewed"), (1000, 1000))
    reader = CheckpointReader(store)
    assert reader.read(0.0, 1057.0).runner.silence == 57
    assert reader.read(2.0, 1059.0).runner.silence == 59
    store.overwrite(leases.path_of(1, "renewed"), b"y")
    assert reader.read(3.0, 1060.0).runner.silence == 0  # whatever the clock of the file's host says
    os.utime(tmp_path / "watersmeet" / leases.path_of(1, "renewed"), (2000, 2000))
    assert CheckpointReader(store).read(0.0, 1060.0).runner.silence == 0  # that clock is ahead


def test_a_process_runs_the_folder_that_it_took_and_no_copy_of_it(tmp_path: Path) -> None:
    recorded(tmp_path / "one", batches=1)
    store = Store(f"{tmp_path}/one/watersmeet")
    assert CheckpointReader(store).read(0.0).runner.is_running is None
    store.publish(leases.path_of(1), seal(this_process() | {"at": store.root, "token": "x"}))
    assert CheckpointReader(store).read(0.0).runner.is_running is True
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert CheckpointReader(store_of(f"{tmp_path}/link")).read(0.0).runner.is_running is True
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert CheckpointReader(store_of(f"{tmp_path}/two")).read(0.0).runner.is_running is False
    store.publish(leases.path_of(2), seal(this_process() | {"born": "0", "at": store.root, "token": "x"}))
    assert CheckpointReader(store).read(0.0).runner.is_running is False


@pytest.mark.parametrize("forged", [{"pid": "../../tmp/x"}, {"pid": -1}, {"at": None}, {"token": 1}, {"name": ["x"]}])
def test_a_lease_that_is_none_tells_of_nobody(tmp_path: Path, forged: dict[str, object]) -> None:
    recorded(tmp_path, batches=1)
    store = Store(f"{tmp_path}/watersmeet")
    store.publish(leases.path_of(1), seal(this_process() | {"at": store.root, "token": "x"} | forged))
    assert leases.holder(store, 1) == {} and CheckpointReader(store).read(0.0).runner.process == ""


def test_a_batch_that_another_run_has_done_instead_is_read_again(tmp_path: Path) -> None:
    """A run that is suspended may publish its last manifest behind the fence of the next one."""
    store = Store(str(tmp_path))
    claim(store, {"where": "x", "streams": ["a", "b"]})
    manifest = chain(store, 3)[-1]
    manifests.publish(
        store,
        manifest.follow(progress={"batchId": 3, "outputRows": 1}),
        manifest,
        generation=generation_of(1, "0123abcd"),
    )
    reader = CheckpointReader(store)
    reader.read(0.0)
    Fence(generation_of(2, "0123abcd"), 3).publish(store)
    manifests.publish(
        store,
        manifest.follow(progress={"batchId": 3, "outputRows": 2}),
        manifest,
        generation=generation_of(2, "0123abcd"),
    )
    assert reader.read(1.0).progress[-1]["outputRows"] == 2
