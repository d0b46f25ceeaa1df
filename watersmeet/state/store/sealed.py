"""Documents that are read back, sealed: the first line holds the format of state and a digest of the rest."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from watersmeet.errors import AFRESH, StateError, WatersmeetError
from watersmeet.state.store.shape import Misfit, check

FORMAT = 9
"""What chunks, manifests and all else in a store look like; a store of another number can't be read."""
_HEAD = re.compile(rb"watersmeet (\d+) ([0-9a-f]{32})")
_SHOWN = 120
"""Characters of another error that are shown."""
_WAY_OUT = f"restore it or {AFRESH}"


def digest(*parts: Any) -> str:
    """Return a digest of bytes, long enough that no other bytes have it by chance."""
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        made.update(part)
    return made.hexdigest()


@contextmanager
def consistent(root: str) -> Iterator[None]:
    """Say in a sentence that documents of a store contradict each other, for those who read what they did not write.

    [!] Each is of the right shape, or it would not have been read; whether they fit together, as columns do with the
    streams that they are of, shows only when they are used. An error of Watersmeet's own looks the same: it is the
    cause of the one that is raised.

    Args:
        root: Where the store is.
    """
    try:
        yield
    except (WatersmeetError, OSError):
        raise
    except Exception as error:
        how = " ".join(f"{type(error).__name__}: {error}".split())
        raise StateError(
            f"The documents of the checkpoint at {root} do not fit together ({how[:_SHOWN]}); {_WAY_OUT}."
        ) from error


def seal(body: Any) -> bytes:
    """Return a document as a file holds it."""
    text = json.dumps(body).encode()
    return f"watersmeet {FORMAT} {digest(text)}\n".encode() + text


def unseal(data: bytes, what: str, kind: Any = Any, remedy: str = _WAY_OUT) -> Any:
    """Return the document that a file holds.

    [!] A digest tells damage, not who wrote it: anybody can seal a document.

    Args:
        data: The file's bytes.
        what: What it is and where, as a sentence begins.
        kind: The type that it must be of (`shape.py`).
        remedy: What to do if it is damaged.

    Raises:
        StateError: If it is damaged, was written by another version, or is nothing of the kind.
    """
    head, _, text = data.partition(b"\n")
    if head.startswith(b"{"):  # as all were until format 3
        raise StateError(f"{what} is damaged, or an earlier version of Watersmeet wrote it; {remedy}.")
    known = _HEAD.fullmatch(head)
    if known and int(known[1]) != FORMAT:
        raise StateError(
            f"{what} is of format {int(known[1])}, and this version of Watersmeet reads format {FORMAT} only; "
            f"continue with the version that wrote it, or {AFRESH}."
        )
    if not known or known[2].decode() != digest(text):
        raise StateError(f"{what} is damaged; {remedy}.")
    try:
        return _read(text, kind)
    except (ValueError, RecursionError) as error:  # no JSON, too deep, or a Misfit
        how = str(error) if isinstance(error, Misfit) else "it is no JSON that can be read"
        raise StateError(f"{what} is not as Watersmeet writes it: {how}; {remedy}.") from None


def _read(text: bytes, kind: Any) -> Any:
    """Return a document of JSON; a ValueError if it is of another kind, or holds half characters."""
    document = json.loads(text)
    if b"\\ud" in text.lower():  # [!] Half of a pair alone is no text: it can be neither printed nor written.
        json.dumps(document, ensure_ascii=False).encode()
    check(document, kind)
    return document
