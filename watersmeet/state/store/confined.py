"""Files of a store that anybody may have filled: only what is a file, lies inside, and has a bearable size."""

import os
import stat
from pathlib import Path

from watersmeet.errors import StateError

LARGEST = 1 << 30
"""The bytes of the largest document that is read into memory."""


def inside(root: str, path: str) -> Path:
    """Return a file or a folder of a store, all links followed.

    [!] A link may lead anywhere, and to open a pipe may take for ever.

    Raises:
        FileNotFoundError: If there is none.
        StateError: If it lies elsewhere, or is neither a file nor a folder.
    """
    base = os.path.realpath(root)
    try:
        found = os.path.realpath(os.path.join(base, path), strict=True)
        mode = os.stat(found).st_mode
    except ValueError:  # a name with a NUL
        raise FileNotFoundError(path) from None
    if os.path.commonpath([base, found]) != base or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise StateError(f"{root}/{path} is a link that leads out of the checkpoint, or no file; put the file there.")
    return Path(found)


def small(root: str, path: str) -> Path:
    """Return a document of a store, which is to be read into memory.

    Raises:
        FileNotFoundError: If there is none.
        StateError: If it lies elsewhere, is no file, or is too large.
    """
    found = inside(root, path)
    if os.path.getsize(found) > LARGEST:
        raise StateError(f"{root}/{path} has more than {LARGEST:,} bytes: no document of Watersmeet's is that large.")
    return found
