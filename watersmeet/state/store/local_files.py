"""Files of this host's file system: listed, read from stores that anybody may have filled, made durable, mapped.

From a confined store, only regular files inside it are read, and documents only up to a size limit.

`sync` writes through to the disk, so that a loss of power takes nothing that a manifest names. It takes one file after
the other: with the first, a journaling file system writes most of what the others need. Threads, which could ask for
all at once, took longer than they saved.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from watersmeet.errors import StateError

LARGEST = 1 << 30
"""The bytes of the largest document that is read into memory."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EMLINK)


def files_below(folder: str) -> Iterator[str]:
    """Yield the files below a folder; none if it doesn't exist.

    Raises:
        OSError: If one of its folders can't be read: that is not the same as empty.
    """
    for base, _, names in os.walk(folder, onerror=_raise_unless_missing):
        yield from (os.path.join(base, name) for name in names)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def resolve_inside(root: str, path: str) -> Path:
    """Return the path of a file or a folder of a store, all links followed.

    [!] A link may lead anywhere, and opening a pipe may take for ever.

    Raises:
        FileNotFoundError: If there is none.
        StateError: If it lies outside the store, or is neither a file nor a folder.
    """
    base = os.path.realpath(root)
    try:
        target = os.path.realpath(os.path.join(base, path), strict=True)
        mode = os.stat(target).st_mode
    except ValueError:  # a name with a NUL
        raise FileNotFoundError(path) from None
    if os.path.commonpath([base, target]) != base or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise StateError(f"{root}/{path} is a link that leads out of the checkpoint, or no file; put the file there.")
    return Path(target)


def resolve_document(root: str, path: str) -> Path:
    """Return the path of a document of a store, which is to be read into memory.

    Raises:
        FileNotFoundError: If there is none.
        StateError: If it lies outside the store, is not a regular file, or is too large.
    """
    target = resolve_inside(root, path)
    if os.path.getsize(target) > LARGEST:
        raise StateError(f"{root}/{path} has more than {LARGEST:,} bytes: no document of Watersmeet's is that large.")
    return target


def link(draft: Path, path: Path) -> bool:
    """Give a draft its name, unless there is another file of that name; return whether there was none.

    Where there are no hard links, the draft is gone afterwards.
    """
    try:
        os.link(draft, path)
    except FileExistsError:
        # [!] NFS repeats a request whose answer was lost, and then says so of the name that the first one has given.
        with suppress(FileNotFoundError):
            return os.path.samefile(draft, path)
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # [!] Without hard links the name is taken first; an interruption here leaves an empty file, which isn't read.
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        try:
            os.replace(draft, path)
        except OSError:
            path.unlink()  # else a second attempt takes it for another run's
            raise
    return True


def sync(files: Iterable[str]) -> None:
    """Write files through to the disk, and the folders that hold their names."""
    paths = sorted(set(files))
    sync_bytes(paths)
    sync_names(paths)


def sync_bytes(files: Iterable[str]) -> None:
    """Write the contents of files through to the disk, not yet their names."""
    for file in files:
        _sync(file)


def sync_names(files: Iterable[str]) -> None:
    """Write the names of files through to the disk: the folders they are in, and the names of these."""
    folders = {os.path.dirname(file) for file in files}
    for folder in sorted(folders | {os.path.dirname(folder) for folder in folders}):
        _sync(folder)


def _sync(path: str) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
