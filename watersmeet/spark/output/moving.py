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

LOST = "%s is not in %s, nor where it was made ready (%s): unless somebody took it from there, its rows are lost."
NEVER_EMPTY = (".parquet", ".orc")
"""Files of these formats have bytes, even without rows."""
Root = tuple[pafs.FileSystem, str]
"""A folder: its file system, and its path there."""


@dataclass
class Mover:
    """Moves files into one folder.

    What had to be copied is removed where it came from only once all is done: power may fail in between.

    Attributes:
        root: The folder.
        durable: Whether what is moved survives a loss of power; on this host's file system only.
        before: Returns the folder that files were made ready for; it may have been another then.
    """

    root: Root
    durable: bool = False
    before: Callable[[], Root] | None = None
    _folders: set[str] = field(default_factory=set)
    _moved: list[str] = field(default_factory=list)
    _copied: list[Callable[[], None]] = field(default_factory=list)

    def move(self, source: Root, file: str, name: str) -> None:
        """Move a file of another folder; one that isn't there has been moved before.

        Raises:
            StateError: If it is damaged.
        """
        (here, base), (system, start) = self.root, source
        target, origin = f"{base}/{name}", f"{start}/{file}"
        found = system.get_file_info(origin)
        if found.type != pafs.FileType.File:
            if not (_is_file(here, target) or self._was_moved(name)):
                logging.getLogger("watersmeet").warning(LOST, name, base, origin)
            return
        if not found.size and name.endswith(NEVER_EMPTY):
            raise StateError(
                f"{origin} is empty, and should hold rows that are yet to appear in {base}: restore it, or remove it "
                "to go on without them."
            )
        self._make(os.path.dirname(target))
        if all(isinstance(found, pafs.LocalFileSystem) for found in (here, system)):
            self._rename(origin, target)
        elif start == base and system is here:
            here.move(origin, target)
        else:
            self._copy((system, origin), target)
        self._moved.append(target)

    def _was_moved(self, name: str) -> bool:
        """Tell whether a file is in the folder that it was made ready for."""
        if self.before is None:
            return False
        system, base = self.before()
        return _is_file(system, f"{base}/{name}")

    def finish(self) -> None:
        """Write through what was moved, and remove what it was copied from."""
        if self.durable:
            sync_names(self._moved)
        for remove in self._copied:
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
            self._copied.append(lambda: os.unlink(origin))

    def _copy(self, source: Root, target: str) -> None:
        """Copy from another file system; one that was copied before is complete."""
        here, (system, origin) = self.root[0], source
        if not _is_file(here, target):
            # [!] In an object store a file is there when it is complete; elsewhere while it is being written.
            aside = target if isinstance(here, _OBJECTS) else _aside(target)
            pafs.copy_files(origin, aside, system, here)
            if aside != target:
                here.move(aside, target)
        self._copied.append(lambda: system.delete_file(origin))


def _is_file(system: pafs.FileSystem, path: str) -> bool:
    return bool(system.get_file_info(path).type == pafs.FileType.File)


def _aside(target: str) -> str:
    folder, name = os.path.split(target)
    return f"{folder}/.{name}"


_OBJECTS = tuple(
    found for name in ("S3FileSystem", "GcsFileSystem", "AzureFileSystem") if (found := getattr(pafs, name, None))
)
