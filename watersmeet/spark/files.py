"""Publishing a batch's files into an output folder so that a replay replaces what the first try left."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import pyarrow.fs as pafs

STAGING = "_watersmeet_staging"


@dataclass(frozen=True, slots=True)
class Folder:
    """An output folder on any file system that pyarrow opens.

    Attributes:
        path: The folder.
        owner: The checkpoint whose files these are; part of their names, so that a replay touches no others.
    """

    path: str
    owner: str = ""

    def _open(self) -> tuple[pafs.FileSystem, str]:
        if "://" in self.path or self.path.startswith("file:"):
            uri = self.path if "://" in self.path else "file://" + self.path.removeprefix("file:")
            system, base = pafs.FileSystem.from_uri(uri)
            return system, base.rstrip("/")
        return pafs.LocalFileSystem(), os.path.abspath(self.path)

    def staging(self, batch: int) -> str:
        """Return a new hidden folder, as Spark is to be given it, for a batch's files."""
        return f"{self.path.rstrip('/')}/{STAGING}/{self.owner}-b{batch}-{uuid.uuid4().hex}"

    def publish(self, staged: str, batch: int, ending: str) -> int:
        """Move the data files of a staged folder in, as `part-b<batch>-*`, partition folders kept; return how many."""
        system, base = self._open()
        _, source = Folder(staged)._open()
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

    def take(self, files: Iterable[str], batch: int) -> int:
        """Move finished files in, as `part-b<batch>-*`; return how many.

        A name appears only with all its bytes: a rename on one device, a copy aside or a single put elsewhere.
        """
        system, base = self._open()
        system.create_dir(base, recursive=True)
        moved = 0
        for file in files:
            name = f"{self._name(batch, moved)}{PurePosixPath(file).suffix}"
            _move(Folder(file)._open(), (system, f"{base}/{name}"), f"{base}/.{name}")
            moved += 1
        return moved

    def withdraw(self, batch: int) -> None:
        """Remove whatever an earlier try of a batch left behind."""
        system, base = self._open()
        for path in list(_files(system, base)):
            name = PurePosixPath(path).name.removeprefix(".")
            if name.startswith(self._prefix(batch)) or f"/{STAGING}/{self.owner}" in path:
                system.delete_file(path)

    def inside(self, name: str) -> "Folder":
        """Return a folder of this one."""
        return replace(self, path=f"{self.path.rstrip('/')}/{name}")

    def _prefix(self, batch: int) -> str:
        return f"part-b{batch}-{self.owner}-"

    def _name(self, batch: int, number: int) -> str:
        return f"{self._prefix(batch)}{number:05d}-{uuid.uuid4().hex[:8]}"

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this host's file system."""
        return isinstance(self._open()[0], pafs.LocalFileSystem)


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
