"""Publishing a batch's files into an output folder so that a replay replaces what the first try left."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import pyarrow.fs as pafs

from watersmeet.spark.paths import Place
from watersmeet.state.store import Store

STAGING = "_watersmeet_staging"


@dataclass(frozen=True, slots=True)
class Folder:
    """An output folder on any file system that pyarrow opens.

    Attributes:
        place: Where it is.
        owner: The checkpoint whose files these are; part of their names, so that a replay touches no others.
    """

    place: Place
    owner: str = ""

    def staging(self, batch: int) -> Place:
        """Return a new hidden folder for a batch's files."""
        return self.place.inside(f"{STAGING}/{self.owner}-b{batch}-{uuid.uuid4().hex}")

    def publish(self, staged: Place, batch: int, ending: str) -> int:
        """Move the data files of a staged folder in, as `part-b<batch>-*`, partition folders kept; return how many."""
        system, base = _opened(self.place)
        _, source = _opened(staged)
        moved = 0
        for path in list(_files(system, source)):
            inside = PurePosixPath(path).relative_to(source)
            if inside.name.startswith(("_", ".")):
                continue
            target = f"{base}/{inside.parent}" if str(inside.parent) != "." else base
            system.create_dir(target, recursive=True)
            _, dot, suffix = inside.name.partition(".")
            system.move(path, f"{target}/{self._name(batch, moved)}{dot}{suffix or ending}")
            moved += 1
        system.delete_dir(source)
        return moved

    def take(self, files: Iterable[Place], batch: int) -> int:
        """Move finished files in, as `part-b<batch>-*`; return how many.

        A name appears only with all its bytes: a rename on one device, a copy aside or a single put elsewhere.
        """
        system, base = _opened(self.place)
        system.create_dir(base, recursive=True)
        moved = 0
        for file in files:
            name = f"{self._name(batch, moved)}{PurePosixPath(file.spark).suffix}"
            _move(_opened(file), (system, f"{base}/{name}"), f"{base}/.{name}")
            moved += 1
        return moved

    def withdraw(self, batch: int) -> None:
        """Remove whatever an earlier try of a batch left behind."""
        system, base = _opened(self.place)
        for path in list(_files(system, base)):
            name = PurePosixPath(path).name.removeprefix(".")
            if name.startswith(self._prefix(batch)) or f"/{STAGING}/{self.owner}" in path:
                system.delete_file(path)

    def inside(self, name: str) -> "Folder":
        """Return a folder of this one."""
        return replace(self, place=self.place.inside(name))

    def _prefix(self, batch: int) -> str:
        return f"part-b{batch}-{self.owner}-"

    def _name(self, batch: int, number: int) -> str:
        return f"{self._prefix(batch)}{number:05d}-{uuid.uuid4().hex[:8]}"


def _opened(place: Place) -> tuple[pafs.FileSystem, str]:
    """Return the file system that a place is on, and its path there."""
    if place.is_local:
        return pafs.LocalFileSystem(), place.arrow
    system, base = Store(place.arrow).remote("")
    return system, base.rstrip("/")


def _move(source: tuple[pafs.FileSystem, str], target: tuple[pafs.FileSystem, str], aside: str) -> None:
    local = all(isinstance(system, pafs.LocalFileSystem) for system, _ in (source, target))
    if not local:
        pafs.copy_files(source[1], target[1], source[0], target[0])
        source[0].delete_file(source[1])
        return
    try:
        os.replace(source[1], target[1])
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(source[1], aside)
        os.replace(aside, target[1])
        os.unlink(source[1])


def _files(system: pafs.FileSystem, base: str) -> Iterator[str]:
    selector = pafs.FileSelector(base, recursive=True, allow_not_found=True)
    return (info.path for info in system.get_file_info(selector) if info.type == pafs.FileType.File)
