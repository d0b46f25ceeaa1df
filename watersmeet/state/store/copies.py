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

_fetched: int | None = None
"""Bytes that this process has fetched since it last looked at what all copies take; None before it did."""


def folder() -> Path:
    """Return where they lie."""
    return Path(tempfile.gettempdir(), f"watersmeet-{os.getuid()}")


def keep(path: Path, data: bytes) -> None:
    """Write a copy, at once or not at all, and make room for it.

    Raises:
        StateError: If somebody else could write to the folder.
    """
    global _fetched  # to look at all copies for each new one would cost more than to fetch it
    _private(folder())
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    draft.write_bytes(data)
    draft.replace(path)
    # [!] Others fetch at the same time, and those before may have ended before it was their turn to look.
    due = _fetched is None or _fetched + len(data) > limits().copied_bytes // (8 * min(8, cores()))
    _fetched = 0 if due else (_fetched or 0) + len(data)
    if due:
        _trim(path)


def _trim(newest: Path) -> None:
    """Remove the oldest copies until the others take no more than three quarters of what they may."""
    found = [(info.st_mtime_ns, info.st_size, path) for path in folder().rglob("*") if (info := _info(path))]
    size = sum(size for _, size, _ in found)
    if size <= limits().copied_bytes:
        return
    for _, bytes, path in sorted(found):
        if path != newest and 4 * size > 3 * limits().copied_bytes:
            path.unlink(missing_ok=True)  # who has it mapped keeps it
            size -= bytes


def _info(path: Path) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        info = path.lstat()
        return info if stat.S_ISREG(info.st_mode) else None
    return None


def _private(folder: Path) -> None:
    """Make the folder of copies, which nobody else may write to: what lies in it is taken for state.

    Raises:
        StateError: If somebody else could.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise StateError(
            f"The folder {folder}, for copies of remote state, is not private to this user; remove it, make this "
            "process's user its owner with the mode 0700, or set TMPDIR to a folder of your own."
        )
    folder.chmod(0o700)
