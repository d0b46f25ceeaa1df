"""This host's copies of remote files: private, bounded by bytes, the least recently fetched removed first."""

import os
import stat
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

from watersmeet.errors import StateError
from watersmeet.limits import limits
from watersmeet.state.store.budget import cores

_fetched_bytes: int | None = None
"""Bytes that this process has fetched since it last measured all copies; None before the first time."""


def folder() -> Path:
    """Return the folder of all copies."""
    return Path(tempfile.gettempdir(), f"watersmeet-{os.getuid()}")


def save(path: Path, content: bytes) -> None:
    """Write a copy atomically, and remove old ones to make room.

    Raises:
        StateError: If another user could write to the folder.
    """
    global _fetched_bytes  # measuring all copies for each new one would cost more than fetching it
    _private(folder())
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    draft.write_bytes(content)
    draft.replace(path)
    # [!] Other processes fetch at the same time, and earlier ones may have ended before it was their turn to measure.
    due = _fetched_bytes is None or _fetched_bytes + len(content) > limits().copied_bytes // (8 * min(8, cores()))
    _fetched_bytes = 0 if due else (_fetched_bytes or 0) + len(content)
    if due:
        _trim(path)


def _trim(newest: Path) -> None:
    """If copies take too much, remove the oldest until the rest take three quarters of their limit."""
    copies = [(info.st_mtime_ns, info.st_size, path) for path in folder().rglob("*") if (info := _info(path))]
    size = sum(size for _, size, _ in copies)
    if size <= limits().copied_bytes:
        return
    for _, bytes, path in sorted(copies):
        if path != newest and 4 * size > 3 * limits().copied_bytes:
            path.unlink(missing_ok=True)  # a process that has it mapped keeps it
            size -= bytes


def _info(path: Path) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        info = path.lstat()
        return info if stat.S_ISREG(info.st_mode) else None
    return None


def _private(folder: Path) -> None:
    """Create the folder of copies, to which no other user may write: its files are trusted as state.

    Raises:
        StateError: If another user could.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise StateError(
            f"The folder {folder}, for copies of remote state, is not private to this user; remove it, make this "
            "process's user its owner with the mode 0700, or set TMPDIR to a folder of your own."
        )
    folder.chmod(0o700)
