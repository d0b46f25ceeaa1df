"""What is written of the leases of a store, and how it is read: nobody needs a lease to look at it."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from watersmeet.errors import StateError
from watersmeet.state.manifest import documents
from watersmeet.state.store.sealed import unseal
from watersmeet.state.store.store import Store

FOLDER = "leases"
ENDINGS = "json|renewed|ended"
"""Of a lease's files: who has it, that it was renewed, that it has ended."""
EXPIRES = 20.0
"""Seconds without one after which a lease may be taken over."""


def path_of(number: int, ending: str = "json") -> str:
    """Return where a file of a lease stands."""
    return f"{FOLDER}/{number:012d}.{ending}"


def number_of(name: str, endings: str = "json") -> int:
    """Return the number of the lease whose file has this name; 0 if it is no lease's."""
    found = re.fullmatch(rf"{FOLDER}/(\d{{12}})\.({endings})", name)
    return int(found[1]) if found else 0


def highest(store: Store) -> int:
    """Return the number of the last lease, 0 if there was none."""
    return max(map(number_of, store.names(FOLDER)), default=0)


def holder(store: Store, number: int) -> Mapping[str, Any]:
    """Return who took a lease; nothing if that can't be read."""
    with suppress(StateError):
        found: dict[str, Any] = unseal(store.read(path_of(number)) or b"", "", documents.Holder)
        return found
    return {}


def renewed(store: Store, number: int) -> float | None:
    """Return when a lease was last renewed, or else taken, by the clock of the store's files; None if nobody knows."""
    times = (store.modified(path_of(number, ending)) for ending in ("renewed", "json"))
    return next((time for time in times if time is not None), None)
