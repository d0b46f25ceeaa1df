"""The lease files of a store, and the processes that hold leases. Reading them needs no lease."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from watersmeet.errors import StateError
from watersmeet.state.manifest import documents
from watersmeet.state.store.file_format import DRAFT, unseal
from watersmeet.state.store.store import Store

FOLDER = "leases"
ENDINGS = rf"(?:json|renewed|ended)(?:\.[0-9a-f]{{32}}{re.escape(DRAFT)})?"
"""The files of a lease: its holder, a renewal, its end, and what a kill left of one."""
EXPIRES = 20.0
"""Seconds without a renewal after which a lease may be taken over."""
_DEAD = "ZX"
"""States of a process that has ended, but whose parent has not asked for its exit code yet."""


def path_of(number: int, ending: str = "json") -> str:
    """Return the path of a file of a lease."""
    return f"{FOLDER}/{number:012d}.{ending}"


def number_of(name: str, endings: str = "json") -> int:
    """Return the number of the lease whose file has this name; 0 if it is not a lease file."""
    match = re.fullmatch(rf"{FOLDER}/(\d{{12}})\.({endings})", name)
    return int(match[1]) if match else 0


def last_number(store: Store) -> int:
    """Return the number of the last lease; 0 if there was none."""
    return max(map(number_of, store.names(FOLDER)), default=0)


def holder(store: Store, number: int) -> Mapping[str, Any]:
    """Return the process that took a lease; empty if that can't be read."""
    with suppress(StateError):
        document: dict[str, Any] = unseal(store.read(path_of(number)) or b"", "", documents.LeaseDocument)
        return document
    return {}


def renewal_time(store: Store, number: int) -> float | None:
    """Return when a lease was last renewed, or else taken, by the clock of the store's files; None if unknown."""
    times = (store.modified(path_of(number, ending)) for ending in ("renewed", "json"))
    return next((time for time in times if time is not None), None)


# -- processes


def this_process() -> dict[str, Any]:
    """Return what identifies this process, as JSON can hold it; `is_running` reads it."""
    return {"host": host_id(), "name": os.uname().nodename, "pid": os.getpid(), "born": start_time(os.getpid())}


def is_running(process: Mapping[str, Any]) -> bool | None:
    """Tell whether a process still runs; None if it is on another host or in another container.

    Args:
        process: What `this_process` returned there.
    """
    if host_id() is None or process.get("host") != host_id():
        return None
    return bool(start_time(process["pid"]) == process["born"])


def host_id() -> str | None:
    """Return what identifies this host and container, whose process numbers are their own; None if it is unknown."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def start_time(pid: int) -> str | None:
    """Return when a process of this host started, None if there is none: process numbers are reused."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in _DEAD else fields[19]
