"""Publishing a batch's files into an output folder so that a replay replaces what the first try left."""

import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import pyarrow.fs as pafs

from watersmeet.spark.paths import Place
from watersmeet.state.durable import sync, sync_bytes, sync_names
from watersmeet.state.store import Store, files_below

STAGING = "_watersmeet_staging"


@dataclass(frozen=True, slots=True)
class Folder:
    """An output folder on any file system that pyarrow opens.

    Attributes:
        place: Where it is.
        owner: The checkpoint whose files these are; part of their names, so that a replay touches no others.
        run: The run of the query that writes them now; part of their names, too.
        durable: Whether what is published on this host's file system survives a loss of power.
    """

    place: Place
    owner: str = ""
    run: str = ""
    durable: bool = False

    def written_by(self, owner: str, run: str, durable: bool) -> "Folder":
        """Return the folder as a run of a checkpoint's query writes to it."""
        return replace(self, owner=owner, run=run, durable=durable and self.place.is_local)

    def staging(self, batch: int) -> Place:
        """Return a new hidden folder for a batch's files."""
        return self.place.inside(f"{STAGING}/{self.owner}-b{batch}-{uuid.uuid4().hex}")

    def publish(self, staged: Place, batch: int, ending: str) -> None:
        """Move the data files of a staged folder in, as `part-b<batch>-*`, partition folders kept."""
        system, base = _opened(self.place)
        _, source = _opened(staged)
        moves: list[tuple[str, str]] = []
        for path in _files(system, source):
            inside = PurePosixPath(path).relative_to(source)
            if inside.name.startswith(("_", ".")):
                continue
            target = f"{base}/{inside.parent}" if str(inside.parent) != "." else base
            _, dot, suffix = inside.name.partition(".")
            moves.append((path, f"{target}/{self._name(batch, len(moves))}{dot}{suffix or ending}"))
        self._sync(sync_bytes, (path for path, _ in moves))
        for folder in {os.path.dirname(target) for _, target in moves}:
            system.create_dir(folder, recursive=True)
        for path, target in moves:
            system.move(path, target)
        self._sync(sync_names, (target for _, target in moves))
        system.delete_dir(source)

    def take(self, files: Iterable[Place], batch: int) -> None:
        """Move finished files in, as `part-b<batch>-*`.

        A name appears only with all its bytes: a rename on one device, a copy aside or a single put elsewhere.
        """
        system, base = _opened(self.place)
        system.create_dir(base, recursive=True)
        moved: list[str] = []
        for file in files:
            name = f"{self._name(batch, len(moved))}{PurePosixPath(file.spark).suffix}"
            _move(_opened(file), (system, f"{base}/{name}"), f"{base}/.{name}")
            moved.append(f"{base}/{name}")
        self._sync(sync, moved)

    def _sync(self, write_through: Callable[[Iterable[str]], None], files: Iterable[str]) -> None:
        if self.durable:
            write_through(files)

    def withdraw(self, first: int) -> None:
        """Remove whatever earlier runs left behind of a batch and of those after it.

        There are such after it where an older copy of the checkpoint was restored: they will be written again.
        """
        system, base = _opened(self.place)
        for path in list(_files(system, base)):
            batch = self._batch_of(PurePosixPath(path).name)
            if (batch is not None and batch >= first) or f"/{STAGING}/{self.owner}-" in path:
                with suppress(FileNotFoundError):
                    system.delete_file(path)

    def retract(self, batch: int) -> None:
        """Remove what this very run has written of a batch, which another run has done meanwhile."""
        system, base = _opened(self.place)
        for path in list(_files(system, base)):
            if PurePosixPath(path).name.startswith(f"{self._prefix(batch)}{self.run}-"):
                system.delete_file(path)

    def has(self, name: str) -> bool:
        """Tell whether something of that name lies in it."""
        system, base = _opened(self.place)
        return bool(system.get_file_info(f"{base}/{name}").type != pafs.FileType.NotFound)

    def inside(self, name: str) -> "Folder":
        """Return a folder of this one."""
        return replace(self, place=self.place.inside(name))

    def _prefix(self, batch: int) -> str:
        return f"part-b{batch}-{self.owner}-"

    def _name(self, batch: int, number: int) -> str:
        return f"{self._prefix(batch)}{self.run}-{number:05d}"

    def _batch_of(self, name: str) -> int | None:
        """Return the batch that a file of this checkpoint's holds results of, hidden or not; None for any other."""
        found = re.match(rf"\.?part-b(\d+)-{re.escape(self.owner)}-", name)
        return int(found[1]) if found else None


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
    if isinstance(system, pafs.LocalFileSystem):  # Arrow fails on names that are not UTF-8, whoever's they are
        return files_below(base)
    selector = pafs.FileSelector(base, recursive=True, allow_not_found=True)
    return (info.path for info in system.get_file_info(selector) if info.type == pafs.FileType.File)
