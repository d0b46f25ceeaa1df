"""Moving files into an output folder: at once or not at all, and again after a cut without doing it twice."""

import errno
import os
import shutil
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from watersmeet.errors import StateError
from watersmeet.spark.checkpoint.paths import Location
from watersmeet.spark.output.files import Folder, Mover, _hidden_name
from watersmeet.spark.output.outputs import Outputs
from watersmeet.spark.output.sinks import FileSink, FrameSink
from watersmeet.state.manifest.delivery import STAGING, Delivery

LOCAL = pafs.LocalFileSystem()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "from").mkdir()
    for name in ("x", "y"):
        (tmp_path / "from" / name).write_text(name)
    return tmp_path / "from"


def move(mover: Mover, source: Path, *names: str, system: pafs.FileSystem = LOCAL) -> None:
    for name in names:
        mover.move((system, str(source)), name, f"k={name}/{name}")
    mover.finish()


def read_files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_is_gone_was_moved(source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        move(Mover((LOCAL, str(tmp_path / "to")), durable=True), source, "x", "y")
    assert (
        read_files(tmp_path / "to") == {"k=x/x": "x", "k=y/y": "y"} and read_files(source) == {} and not caplog.messages
    )


def test_what_is_where_it_was_meant_to_go_is_not_missed(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The output's path has changed since; the last batch is delivered again at every start."""
    move(Mover((LOCAL, str(tmp_path / "old"))), source, "x")
    move(Mover((LOCAL, str(tmp_path / "new")), before=lambda: (LOCAL, str(tmp_path / "old"))), source, "x")
    assert not caplog.messages and read_files(tmp_path / "old") == {"k=x/x": "x"}


def test_what_is_nowhere_is_told(source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    move(Mover((LOCAL, str(tmp_path / "to"))), source, "x", "z")
    (told,) = caplog.messages
    assert told.startswith("k=z/z is not in ") and "its rows are lost" in told
    (source / "y.parquet").write_bytes(b"")
    with pytest.raises(StateError, match=r"y\.parquet is empty, and should hold rows that are yet to appear"):
        move(Mover((LOCAL, str(tmp_path / "to"))), source, "y.parquet")
    assert (source / "y.parquet").exists()


def test_another_run_that_was_quicker(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(origin: str, target: str) -> None:
        os.rename(origin, target)
        raise FileNotFoundError(origin)

    def disappear(origin: str, target: str) -> None:
        os.unlink(origin)
        raise FileNotFoundError(origin)

    monkeypatch.setattr(os, "replace", vanish)
    move(Mover((LOCAL, str(tmp_path / "to"))), source, "x")
    monkeypatch.setattr(os, "replace", disappear)
    (source / "z").write_text("z")
    with pytest.raises(FileNotFoundError):  # it is nowhere
        move(Mover((LOCAL, str(tmp_path / "to"))), source, "z")
    monkeypatch.setattr(os, "replace", lambda origin, target: (_ for _ in ()).throw(FileNotFoundError(target)))
    with pytest.raises(FileNotFoundError):  # not the file that was to be moved, but where to
        move(Mover((LOCAL, str(tmp_path / "to"))), source, "y")


def test_another_disk(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied stays where it was until all is safe; a name appears with all its bytes."""
    rename = os.replace

    def refuse(origin: str, target: str) -> None:
        if os.path.dirname(origin) != os.path.dirname(target):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        assert read_files(source) and Path(origin).read_text() == os.path.basename(target)
        rename(origin, target)

    monkeypatch.setattr(os, "replace", refuse)
    mover = Mover((LOCAL, str(tmp_path / "to")), durable=True)
    mover.move((LOCAL, str(source)), "x", "x")
    assert read_files(source) == {"x": "x", "y": "y"}
    mover.finish()
    assert read_files(source) == {"y": "y"} and read_files(tmp_path / "to") == {"x": "x"}
    monkeypatch.setattr(shutil, "copyfile", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    with pytest.raises(OSError, match="No space left"):
        move(mover, source, "y")
    assert read_files(source) == {"y": "y"}


@pytest.mark.parametrize("disk", ["another disk", "another file system"])
def test_two_runs_copy_the_same_file(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, disk: str) -> None:
    """[!] A run that was taken over may still copy: a name appears with all its bytes, whoever is quicker."""
    runs, to, (copy, rename) = list[str](), tmp_path / "to", (shutil.copyfile, os.replace)
    far = LOCAL if disk == "another disk" else pafs.SubTreeFileSystem(str(tmp_path), LOCAL)
    root = (far, str(to) if far is LOCAL else "to")

    def copy_slowly(origin: str, aside: str, *systems: pafs.FileSystem) -> None:
        path = Path(aside) if far is LOCAL else tmp_path / aside
        runs.append(path.name)
        copy(origin, path)
        if len(runs) == 1:  # the other run comes, and is killed while it writes
            with pytest.raises(OSError, match="killed"):
                Mover(root).move((LOCAL, str(source)), "x", "part-b3-owner-x")
        else:
            path.write_text("")
            raise OSError("killed")

    def refuse(origin: str, target: str) -> None:
        if os.path.dirname(origin) != os.path.dirname(target):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(origin, target)

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(shutil, "copyfile", copy_slowly)
    monkeypatch.setattr(pafs, "copy_files", copy_slowly)
    mover = Mover(root)
    mover.move((LOCAL, str(source)), "x", "part-b3-owner-x")
    (source / "x").unlink()  # as the other would have done
    mover.finish()
    assert (to / "part-b3-owner-x").read_text() == "x" and len({*runs}) == 2


def test_incomplete_copies_are_removed(tmp_path: Path) -> None:
    for name in ("part-b3-owner-x", "part-b3-owner-y", ".part-b3-other-x.6f"):
        (tmp_path / name).write_text(name)
    hidden = Path(_hidden_name(str(tmp_path / "part-b3-owner-x")))
    hidden.write_text("par")
    Folder(Location(str(tmp_path), str(tmp_path)), "path", "owner").withdraw(4, lambda: None)
    assert read_files(tmp_path).keys() == {"part-b3-owner-x", "part-b3-owner-y", ".part-b3-other-x.6f"}


def test_other_file_systems(source: Path, tmp_path: Path) -> None:
    far, to = pafs.SubTreeFileSystem(str(tmp_path), LOCAL), tmp_path / "to"
    mover = Mover((far, "to"))
    mover.move((LOCAL, str(source)), "x", "x")
    assert read_files(to) == {"x": "x"} and read_files(source) == {"x": "x", "y": "y"}
    Mover((far, "to")).move((LOCAL, str(source)), "x", "x")  # cut before it was removed
    mover.finish()
    assert read_files(to) == {"x": "x"} and read_files(source) == {"y": "y"}
    (to / "staged").mkdir()
    (to / "staged" / "z").write_text("z")
    mover.move((far, "to"), "staged/z", "z")
    assert read_files(to) == {"x": "x", "z": "z"}


def test_what_was_made_ready_in_a_folder_that_has_moved(tmp_path: Path) -> None:
    """[!] Whether the folder's path has changed, or all was moved together, no file is left behind."""
    for old, new in (("old", "new"), ("gone", "moved")):
        here = tmp_path / (old if old == "old" else new) / STAGING / "owner-b0"
        here.mkdir(parents=True)
        (here / "p").write_text("p")
        (here / "_SUCCESS").write_text("")
        was, now = (Location(str(tmp_path / name), str(tmp_path / name)) for name in (old, new))
        delivery = Delivery("path", (was.spark, was.arrow), ((f"{STAGING}/owner-b0/p", "part-b0-x"),))
        Folder(now, "path", "owner").deliver(delivery, Location(str(tmp_path), str(tmp_path)))
        assert read_files(tmp_path / new) == {"part-b0-x": "p"} and not here.exists()


def own_delivery(folder: Path, source: str = f"{STAGING}/owner-b0-run/p", target: str = "part-b0-owner-x") -> Delivery:
    return Delivery("path", (str(folder), str(folder)), ((source, target),))


def test_an_output_that_is_gone_gets_the_files_of_its_last_batch(tmp_path: Path) -> None:
    (tmp_path / STAGING / "owner-b0-run").mkdir(parents=True)
    (tmp_path / STAGING / "owner-b0-run" / "p").write_text("p")
    outputs = Outputs(FrameSink(lambda frame, batch: None), plain=True, owner="owner")
    outputs.deliver([own_delivery(tmp_path)], Location(str(tmp_path), str(tmp_path)))
    assert read_files(tmp_path) == {"part-b0-owner-x": "p"}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (f"{STAGING}/other-b0-run/p", "part-b0-owner-x"),
        ("results/p", "authorized_keys"),
        ("results/p", "part-b0-owner-/x"),
        ("results/p", "part-b0-other-x"),
    ],
)
@pytest.mark.parametrize("gone", [True, False])
def test_only_files_of_its_own_are_delivered(tmp_path: Path, gone: bool, source: str, target: str) -> None:
    """[!] Whoever wrote the manifest may name any folder: the files of an output that is gone are put where it was."""
    (tmp_path / source).parent.mkdir(parents=True)
    (tmp_path / source).write_text("p")
    (tmp_path / "results" / "fine").parent.mkdir(exist_ok=True)
    (tmp_path / "results" / "fine").write_text("fine")
    place = Location(str(tmp_path), str(tmp_path))
    own = FrameSink(lambda frame, batch: None) if gone else FileSink("parquet", Folder(place, "path", "owner"))
    deliveries = [own_delivery(tmp_path, "results/fine"), own_delivery(tmp_path, source, target)]
    with pytest.raises(StateError, match="are not names of this checkpoint's files; restore the manifest or start"):
        Outputs(own, plain=True, owner="owner").deliver(deliveries, place)
    assert read_files(tmp_path) == {"results/fine": "fine", source: "p"}


def test_a_batch_that_another_run_has_done_is_taken_back(tmp_path: Path) -> None:
    folder = Folder(Location(str(tmp_path), str(tmp_path)), "path").for_run("owner", "run", durable=False)
    for name in ("owner-b3-run-1", "owner-b3-other-1", "owner-b2-run-1"):
        (tmp_path / STAGING / name).mkdir(parents=True)
        (tmp_path / STAGING / name / "p").write_text("p")
    folder.retract(3)
    left = {path.parent.name for path in tmp_path.rglob("p")}
    assert left == {"owner-b3-other-1", "owner-b2-run-1"}
