"""Moving finished files into an output folder: a name appears with all its bytes or not at all."""

import errno
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow.fs as pafs

from watersmeet.errors import StateError
from watersmeet.state.store.local_files import sync_bytes, sync_names

MISSING = "%s is not in %s, nor where it was made ready (%s): unless somebody took it from there, its rows are lost."
NEVER_EMPTY = (".parquet", ".orc")
"""Files of these formats are never empty, even without rows."""
Root = tuple[pafs.FileSystem, str]
"""A folder: its file system, and its path there."""


@dataclass
class Mover:
    """Moves files into one folder.

    The sources of copies are removed only at the end: power may fail in between.

    Attributes:
        root: The folder.
        durable: Whether moved files survive a loss of power; on this host's file system only.
        before: Returns the folder for which the files were staged, if it may be another.
    """

    root: Root
    durable: bool = False
    before: Callable[[], Root] | None = None
    _folders: set[str] = field(default_factory=set)
    _targets: list[str] = field(default_factory=list)
    _removals: list[Callable[[], None]] = field(default_factory=list)

    def move(self, source: Root, file: str, name: str) -> None:
        """Move a file from another folder, unless it has been moved before; log a warning if it is nowhere.

        Raises:
            StateError: If the file is damaged.
        """
        (here, base), (system, start) = self.root, source
        target, origin = f"{base}/{name}", f"{start}/{file}"
        info = system.get_file_info(origin)
        if info.type != pafs.FileType.File:
            if not (_is_file(here, target) or self._was_moved(name)):
                logging.getLogger("watersmeet").warning(MISSING, name, base, origin)
            return
        if not info.size and name.endswith(NEVER_EMPTY):
            raise StateError(
                f"{origin} is empty, and should hold rows that are yet to appear in {base}: restore it, or remove it "
                "to go on without them."
            )
        self._make(os.path.dirname(target))
        if isinstance(here, pafs.LocalFileSystem) and isinstance(system, pafs.LocalFileSystem):
            self._rename(origin, target)
        elif start == base and system is here:
            here.move(origin, target)
        else:
            self._copy((system, origin), target)
        self._targets.append(target)

    def _was_moved(self, name: str) -> bool:
        """Return whether a file is in the folder for which it was staged."""
        if self.before is None:
            return False
        system, base = self.before()
        return _is_file(system, f"{base}/{name}")

    def finish(self) -> None:
        """Flush the names of moved files to disk, and remove the sources of copies."""
        if self.durable:
            sync_names(self._targets)
        for remove in self._removals:
            remove()

    def _make(self, folder: str) -> None:
        if folder not in self._folders:
            self.root[0].create_dir(folder, recursive=True)
            self._folders.add(folder)

    def _rename(self, origin: str, target: str) -> None:
        try:
            os.replace(origin, target)
        except FileNotFoundError:
            if os.path.exists(origin):  # else another run has moved it this very moment
                raise
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            aside = _aside(target)
            shutil.copyfile(origin, aside)
            if self.durable:
                sync_bytes([aside])
            os.replace(aside, target)
            self._removals.append(lambda: os.unlink(origin))

    def _copy(self, source: Root, target: str) -> None:
        """Copy a file from another file system, unless it is there: then it is complete."""
        here, (system, origin) = self.root[0], source
        if not _is_file(here, target):
            # [!] In an object store a file appears once it is complete; elsewhere while it is being written.
            aside = target if isinstance(here, _OBJECT_STORES) else _aside(target)
            pafs.copy_files(origin, aside, system, here)
            if aside != target:
                here.move(aside, target)
        self._removals.append(lambda: system.delete_file(origin))


def _is_file(system: pafs.FileSystem, path: str) -> bool:
    return bool(system.get_file_info(path).type == pafs.FileType.File)


def _aside(target: str) -> str:
    folder, name = os.path.split(target)
    return f"{folder}/.{name}"


_OBJECT_STORES = tuple(
    kind for name in ("S3FileSystem", "GcsFileSystem", "AzureFileSystem") if (kind := getattr(pafs, name, None))
)
