"""How much a process may keep open, by what its host, its container and its address space allow."""

import os
import resource
from pathlib import Path

import pytest

from watersmeet.state.store import budget
from watersmeet.state.store.budget import LEAST, MOST, WORK, AddressSpace, Memory, address_space, container, most_open

MB, GB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("memory", "share"),
    [
        (Memory(16 * GB, 4), GB // 2),
        (Memory(256 * GB, 2), MOST),
        (Memory(1 * GB, 8), LEAST),
        (Memory(256 * GB, 64, container=4 * GB, workers=2), 256 * MB),
        (Memory(256 * GB, 64, container=64 * GB), 128 * MB),  # as many workers as cores, if nobody says
        (Memory(16 * GB, 4, container=64 * GB, workers=2), GB // 2),
    ],
)
def test_a_process_has_a_share_of_its_host_and_of_its_container(memory: Memory, share: int) -> None:
    assert memory.share == share


def test_room_to_work_is_left_in_an_address_space() -> None:
    assert AddressSpace(4 * GB, 1 * GB).to_open(cache_bytes=0) == 3 * GB - WORK
    assert (
        AddressSpace(4 * GB, 2 * GB).to_open(cache_bytes=1 * GB) == 3 * GB - WORK
    )  # what is held already doesn't count twice
    assert AddressSpace(1 * GB, GB // 2).to_open(cache_bytes=0) == GB // 8  # little is left: a quarter of it
    assert AddressSpace(1 * GB, 2 * GB).to_open(cache_bytes=0) == 0


def test_the_user_decides_but_for_the_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_memory", lambda: Memory(8 * GB, 4))
    monkeypatch.setattr(budget, "address_space", lambda: None)
    assert (most_open(0, 0), most_open(5 * GB, 0), most_open(1, 0)) == (GB // 4, 5 * GB, 1)
    monkeypatch.setattr(budget, "address_space", lambda: AddressSpace(2 * GB, GB))
    assert (most_open(0, 0), most_open(5 * GB, 0), most_open(1, 0)) == (GB // 4, GB // 4, 1)


def test_workers_that_share_a_container_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "container", lambda: 1 << 33)
    monkeypatch.setattr(budget, "cores", lambda: 1)
    try:
        shares = []
        for workers in (4, 8):
            budget.set_workers(workers)
            shares.append(most_open(0, 0))
        assert shares == [256 * MB, 128 * MB]
    finally:
        monkeypatch.undo()
        budget.set_workers(None)


def groups(folder: Path, own: str, limits: dict[str, str]) -> int | None:
    (folder / "own").write_text(own)
    for name, limit in limits.items():
        (folder / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "groups" / name).write_text(f"{limit}\n")
    return container(folder / "own", folder / "groups")


def test_the_tightest_control_group_counts(tmp_path: Path) -> None:
    limits = {"memory.max": "max", "pods/memory.max": "4096", "pods/one/memory.max": "max", "other/memory.max": "1"}
    assert groups(tmp_path, "0::/pods/one\n", limits) == 4096


def test_control_groups_of_the_first_version(tmp_path: Path) -> None:
    none = str((1 << 63) - 4096)
    limits = {"memory/memory.limit_in_bytes": none, "memory/one/memory.limit_in_bytes": "2048"}
    assert groups(tmp_path, "4:cpu,cpuacct:/\n3:memory:/one\n", limits) == 2048
    assert groups(tmp_path, "3:memory:/\n", {}) is None


def test_a_container_sees_its_limit_at_the_root(tmp_path: Path) -> None:
    assert groups(tmp_path, "0::/../elsewhere\n", {"memory.max": "1024"}) == 1024


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert container(tmp_path / "none", tmp_path) is None


def test_address_space_is_measured_where_it_is_limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert address_space() is None
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 40, resource.RLIM_INFINITY))
    space = address_space()
    assert space is not None and space.limit == 1 << 40 and 10 * MB < space.size < 1 << 40
    (tmp_path / "statm").write_text("100 9 8\n")
    assert address_space(tmp_path / "statm") == AddressSpace(1 << 40, 100 * os.sysconf("SC_PAGE_SIZE"))
    assert address_space(tmp_path / "none") is None  # not measured, as on a Mac, where nothing enforces it
