"""Writing through to the disk, so that a loss of power takes nothing that a manifest names.

One file after the other: with the first, a journaling file system writes most of what the others need. Threads, which
could ask for all at once, took longer than they saved.
"""

import os
from collections.abc import Iterable


def sync(files: Iterable[str]) -> None:
    """Write files of this host through to the disk, and the folders that hold their names."""
    given = sorted(set(files))
    sync_bytes(given)
    sync_names(given)


def sync_bytes(files: Iterable[str]) -> None:
    """Write what files hold through to the disk, not yet their names."""
    for file in files:
        _sync(file)


def sync_names(files: Iterable[str]) -> None:
    """Write the names of files through to the disk: the folders they are in, and the names of these."""
    folders = {os.path.dirname(file) for file in files}
    for folder in sorted(folders | {os.path.dirname(folder) for folder in folders}):
        _sync(folder)


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
