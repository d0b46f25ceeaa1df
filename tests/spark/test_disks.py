"""Disks that are full or read-only, real ones: a sentence, nothing lost, and it goes on once there is room."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import Case, cuts, expected, frames, join_of, results, run, through, write
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark

WIDE = Case(
    [Stream("a", Sliding(60), 5), Stream("b", Sliding(60), 5)],
    cuts(7, "ab", batches=4, rows=60, nulls=0),
    "a.x <= b.x",
    lambda a, b: a["x"] <= b["x"],
)


class Disk:
    """A small disk in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._mount("-t", "tmpfs", "-o", "size=128k", "tmpfs")

    def fill(self) -> None:
        with suppress(OSError), open(self.folder / "fill", "wb", buffering=0) as file:
            while True:
                file.write(b"?" * 4096)

    def change(self, options: str) -> None:
        self._mount("-o", f"remount,{options}")

    def _mount(self, *arguments: str) -> None:
        done = subprocess.run(["mount", *arguments, str(self.folder)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"this user may not mount a disk: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk")
    yield made
    subprocess.run(["umount", "-l", str(made.folder)], check=True)


@through("shuffle")
@pytest.mark.parametrize("small", one_in(2, ["checkpoint", "sink"]))
def test_a_full_disk(spark: SparkSession, tmp_path: Path, disk: Disk, small: str, exchange: str) -> None:
    write(tmp_path / "in", WIDE.batches)
    (tmp_path / ("out" if small == "sink" else "checkpoint")).symlink_to(disk.folder)
    joined = join_of(WIDE, frames(spark, tmp_path / "in", "ab"))
    with pytest.raises(wm.StateError, match=r"No space left on device[^\n]*\.$"):
        run(joined.writeStream, tmp_path, exchange)
    disk.change("size=64m")
    run(joined.writeStream, tmp_path, exchange)
    assert results(tmp_path, "ab") == expected(WIDE).results


@pytest.mark.parametrize("log", one_in(4, ["offsets", "commits", "sources/0", "."]))
def test_a_full_disk_under_one_of_sparks_logs(spark: SparkSession, tmp_path: Path, disk: Disk, log: str) -> None:
    """The join's own part is elsewhere, so that it is Spark which has no space."""
    (tmp_path / "checkpoint").mkdir() if log != "." else (tmp_path / "checkpoint").symlink_to(disk.folder)
    for folder, where in [("watersmeet", tmp_path / "store"), *([(log, disk.folder / "log")] if log != "." else [])]:
        where.mkdir()
        (tmp_path / "checkpoint" / folder).parent.mkdir(exist_ok=True)
        (tmp_path / "checkpoint" / folder).symlink_to(where)
    disk.fill()
    write(tmp_path / "in", WIDE.batches)
    joined = join_of(WIDE, frames(spark, tmp_path / "in", "ab"))
    with pytest.raises(wm.StateError, match=r"^No space left on device for Spark's part of .*; nothing is lost: free"):
        run(joined.writeStream, tmp_path, "driver")
    disk.change("size=64m")
    run(joined.writeStream, tmp_path, "driver")
    assert results(tmp_path, "ab") == expected(WIDE).results


@pytest.mark.parametrize("before", one_in(2, [2, 0]))
def test_a_read_only_output(spark: SparkSession, tmp_path: Path, disk: Disk, before: int) -> None:
    """It becomes so after some batches, or is from the first start on."""
    disk.change("size=64m")
    (tmp_path / "out").symlink_to(disk.folder)

    def go_on() -> None:
        run(join_of(WIDE, frames(spark, tmp_path / "in", "ab")).writeStream, tmp_path, "driver")

    if before:
        write(tmp_path / "in", WIDE.batches[:before])
        go_on()
    write(tmp_path / "in", WIDE.batches[before:])
    disk.change("ro")
    if before:
        with pytest.raises(
            wm.StateError, match=r"^Batch 2 is safe, but its files could not be .*: Read-only file .*; st"
        ):
            go_on()
    with pytest.raises(
        wm.StateError, match=r"^The query was not started: Read-only file system .*; start it again once"
    ):
        go_on()
    disk.change("rw")
    go_on()
    assert results(tmp_path, "ab") == expected(WIDE).results


@pytest.mark.slow
def test_a_checkpoint_that_became_read_only(spark: SparkSession, tmp_path: Path, disk: Disk) -> None:
    disk.change("size=64m")
    (tmp_path / "checkpoint").symlink_to(disk.folder)
    write(tmp_path / "in", WIDE.batches[:2])
    joined = join_of(WIDE, frames(spark, tmp_path / "in", "ab"))
    run(joined.writeStream, tmp_path)
    write(tmp_path / "in", WIDE.batches[2:])
    disk.change("ro")
    with pytest.raises(wm.DefinitionError, match="can't be written to: Read-only file system; nothing was started"):
        run(joined.writeStream, tmp_path)
    disk.change("rw")
    run(joined.writeStream, tmp_path)
    assert results(tmp_path, "ab") == expected(WIDE).results
