"""Documents that are read back, sealed: the first line holds the format of state and a digest of the rest."""

import hashlib
import json
import re
from typing import Any

from watersmeet.errors import AFRESH, StateError

FORMAT = 9
"""What chunks, manifests and all else in a store look like; a store of another number can't be read."""
_HEAD = re.compile(rb"watersmeet (\d+) ([0-9a-f]{32})")
_WAY_OUT = f"restore it or {AFRESH}"


def digest(*parts: Any) -> str:
    """Return a digest of bytes, long enough that no other bytes have it by chance."""
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        made.update(part)
    return made.hexdigest()


def seal(body: Any) -> bytes:
    """Return a document as a file holds it."""
    text = json.dumps(body).encode()
    return f"watersmeet {FORMAT} {digest(text)}\n".encode() + text


def unseal(data: bytes, what: str, remedy: str = _WAY_OUT) -> Any:
    """Return the document that a file holds.

    Args:
        data: The file's bytes.
        what: What it is and where, as a sentence begins.
        remedy: What to do if it is damaged.

    Raises:
        StateError: If it is damaged, or was written by another version.
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
    return json.loads(text)
