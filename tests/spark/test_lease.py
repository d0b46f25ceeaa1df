"""One run at a time works with a store."""

import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from watersmeet.errors import StateError
from watersmeet.spark.checkpoint import lease as leases
from watersmeet.spark.checkpoint.lease import Lease, LeaseLost, take
from watersmeet.state.manifest import leases as lease_files
from watersmeet.state.manifest.leases import this_process
from watersmeet.state.store.file_format import seal
from watersmeet.state.store.store import Store

HOLD = """
import sys, time
from watersmeet.spark.checkpoint import lease
from watersmeet.state.store.store import Store
lease.RENEW_SECONDS = lease.POLL_SECONDS = 0.05
held = lease.take(Store(sys.argv[1]))
print("taken", flush=True)
sys.stdin.readline()
print("held" if held.is_held() else "lost", flush=True)
held.end()
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(leases, "EXPIRES", 0.5)


def holder(folder: Path) -> "subprocess.Popen[str]":
    """Start a process that holds a lease until a line is sent to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "taken\n"
    return process


def ended(process: "subprocess.Popen[str]") -> str:
    said, _ = process.communicate("\n")
    return said.strip()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*.json")}


def test_one_process_two_runs(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    first = take(store)
    before = files(tmp_path)
    with pytest.raises(StateError, match="is in use by another query of this program; stop that query first"):
        take(store)
    assert files(tmp_path) == before and first.is_held()
    first.end()
    second = take(store)
    assert second.is_held() and not first.is_held() and second.number == first.number + 1
    second.end()


def test_a_run_that_has_ended_is_noticed(tmp_path: Path) -> None:
    store, going = Store(str(tmp_path)), [True]
    first = take(store)
    first.is_needed = lambda: going[0]
    going[0] = False
    second = take(store)  # at once, in this process
    assert second.is_held()
    second.is_needed = lambda: False
    while store.read(f"leases/{second.number:012d}.ended") is None:  # so that other processes see it
        time.sleep(0.01)
    assert not second.is_held()


def test_another_process_holds_it(tmp_path: Path) -> None:
    process = holder(tmp_path)
    with pytest.raises(StateError, match=f"is in use by process {process.pid} on"):
        take(Store(str(tmp_path)))
    assert ended(process) == "held"
    take(Store(str(tmp_path))).end()


def test_a_killed_process_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "EXPIRES", 60)
    process = holder(tmp_path)
    process.kill()
    process.wait()
    take(Store(str(tmp_path))).end()


def test_a_process_of_another_host_holds_it_until_it_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether such a one is gone can't be asked; that it is alive is seen."""
    process = holder(tmp_path)
    monkeypatch.setattr(leases, "host_id", lambda: "another")
    monkeypatch.setattr(lease_files, "host_id", lambda: "another")
    with pytest.raises(StateError, match="is in use"):
        take(Store(str(tmp_path)))
    process.kill()
    process.wait()
    began = time.monotonic()
    take(Store(str(tmp_path))).end()
    assert time.monotonic() - began >= leases.EXPIRES


def test_a_stopped_process_loses_it_and_notices(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.send_signal(signal.SIGSTOP)
    lease = take(Store(str(tmp_path)))
    process.send_signal(signal.SIGCONT)
    assert ended(process) == "lost" and lease.is_held()
    lease.end()


def test_who_lost_it_is_told(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    first = take(store)
    assert store.publish(f"leases/{first.number + 1:012d}.json", b"another's")
    with pytest.raises(StateError, match="Another run has taken over the checkpoint"):
        first.check()
    first.end()


def test_a_run_that_has_lost_it_is_stopped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """[!] Before anything else of it looks: between two batches, only Spark's own part of it is at work."""
    store, losses = Store(str(tmp_path)), list[str]()
    first = take(store)

    def stop(loss: leases.LeaseLost) -> None:
        losses.append(str(loss))
        if len(losses) == 1:
            raise OSError("Spark does not answer")

    first.stop = stop
    assert store.publish(f"leases/{first.number + 1:012d}.json", b"another's")
    while len(losses) < 2:  # it is tried again
        time.sleep(0.01)
    first.end()
    assert all("Another run has taken over the checkpoint" in loss for loss in losses)
    assert losses[0] in caplog.text


def test_what_follows_a_release_is_no_loss(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    first, lost = take(store), take(Store(f"{tmp_path}/other"))
    assert lost.store.publish(f"leases/{lost.number + 1:012d}.json", b"another's")
    first.end()
    lost.end()
    take(store).end()
    assert first.loss() is None and "Another run has taken over" in str(lost.loss())


def test_of_many_one_has_it(tmp_path: Path) -> None:
    store, won, lost = Store(str(tmp_path)), list[Lease](), list[str]()

    def contend() -> None:
        try:
            won.append(take(store))
        except StateError as error:
            lost.append(str(error))

    threads = [threading.Thread(target=contend) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(lost) == 15 and won[0].is_held()
    won[0].end()


def test_a_damaged_lease_expires(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write("leases/000000000007.json", b"{")
    lease = take(store)
    assert lease.number == 8
    assert [path.name for path in (tmp_path / "leases").glob("*.json")] == ["000000000008.json"]
    lease.end()


def test_a_lease_of_what_is_no_path_expires(tmp_path: Path) -> None:
    store, taken = Store(str(tmp_path)), this_process() | {"token": "x", "at": "/x\0"}
    store.publish("leases/000000000007.json", seal(taken))
    take(store).end()


def test_what_is_in_the_way_of_a_lease(tmp_path: Path) -> None:
    store, folder = Store(str(tmp_path)), tmp_path / "leases"
    folder.mkdir()
    (folder / "000000000001.json").symlink_to(tmp_path / "nowhere")
    take(store).end()
    (folder / "000000000003.json").mkdir()
    with pytest.raises(StateError, match="can't be leased: leases/ contains something other than files"):
        take(store)


def test_a_lease_that_was_removed_or_stopped_is_not_called_taken(tmp_path: Path) -> None:
    held = take(Store(str(tmp_path)))
    for path in (tmp_path / "leases").iterdir():
        path.unlink()
    with pytest.raises(StateError, match="somebody removed or replaced its files while the query ran"):
        held.check()
    held.end()
    stopped = take(Store(str(tmp_path)))
    stopped.end()
    with pytest.raises(leases.QueryStopped, match="stopped in the middle of a batch"):
        stopped.check()


def test_a_checkpoint_that_was_replaced_is_another_run_s(tmp_path: Path) -> None:
    """[!] Leases of a new checkpoint, or of a restored one, have the same numbers: what is published counts there."""
    store = Store(str(tmp_path))
    suspended = take(store)
    (tmp_path / "leases" / f"{suspended.number:012d}.json").unlink()
    own = take(store)
    assert own.number == suspended.number
    with pytest.raises(StateError, match="somebody removed or replaced its files while the query ran"):
        suspended.check()
    suspended.end()
    assert own.is_held() and not suspended.is_held() and store.read(f"leases/{own.number:012d}.ended") is None
    own.end()


def test_nobody_renews_the_lease_of_another_run(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    suspended = take(store)
    (tmp_path / "leases" / f"{suspended.number:012d}.json").unlink()
    assert store.publish(f"leases/{suspended.number:012d}.json", b"another's")
    time.sleep(0.1)  # one that was under way
    store.remove([renewed := f"leases/{suspended.number:012d}.renewed"])
    time.sleep(0.2)
    assert store.read(renewed) is None
    suspended.end()


def test_a_copy_of_a_lease_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "EXPIRES", 60)
    held = take(Store(str(tmp_path / "a")))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copied = take(Store(str(tmp_path / "b")))
    assert copied.is_held() and held.is_held()
    copied.end()
    held.end()


def test_a_folder_under_two_paths_has_one_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    held = take(Store(str(tmp_path / "a")))
    with pytest.raises(StateError, match="in use by another query of this program"):
        take(Store(str(tmp_path / "b")))
    assert held.is_held()
    held.end()


def test_an_interrupted_start_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[!] Otherwise nobody in this program could use the checkpoint again."""
    store = Store(str(tmp_path))
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Store, "remove", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        take(store)
    take(store).end()


def test_a_disk_that_is_full_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.0)
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.01)
    store, write, full = Store(str(tmp_path)), Store.write, list[str]()

    def written(self: Store, path: str, data: bytes) -> None:
        if ".renewed" in path and len(full) < 3:
            full.append(path)
            raise StateError("No space left on device.")
        write(self, path, data)

    monkeypatch.setattr(Store, "write", written)
    held = take(store)
    until = time.monotonic() + 20
    while store.read(f"leases/{held.number:012d}.renewed") is None and time.monotonic() < until:
        time.sleep(0.01)
    assert len(full) == 3 and store.read(f"leases/{held.number:012d}.renewed") is not None
    held.end()


def test_drafts_of_earlier_leases_are_removed(tmp_path: Path) -> None:
    """A kill leaves them; one of the own number may be its own renewal's."""
    store = Store(str(tmp_path))
    drafts = [f"leases/{number:012d}.{ending}.{'0f' * 16}.draft" for number in (1, 2) for ending in ("json", "renewed")]
    take(store).end()
    for draft in drafts:
        store.write(draft, b"half")
    lease = take(store)
    assert lease.number == 2 and [draft for draft in drafts if store.read(draft)] == drafts[2:]
    lease.end()


def test_generations_of_leases_rise_and_are_unique(tmp_path: Path) -> None:
    generations = []
    for folder in ("a", "b"):
        store = Store(str(tmp_path / folder))
        for _ in range(2):
            lease = take(store)
            generations.append(lease.generation)
            lease.end()
    assert len({*generations}) == 4 and generations[0] < generations[1] and generations[2] < generations[1]


def test_a_lease_that_was_given_back_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if the next run takes the checkpoint while this one's thread looks."""
    store = Store(str(tmp_path))
    first = take(store)
    first.is_needed = lambda: False
    second = take(store)
    assert first._over.is_set() and first.loss() is None and second.is_held()
    second.end()

    third = take(store)

    def look_slowly(lease: Lease) -> LeaseLost:
        lease._over.set()  # it is given back, and the next run has begun
        return LeaseLost("another run has taken over")

    monkeypatch.setattr(Lease, "_find_loss", look_slowly)
    assert third.loss() is None
