"""Processes: which one this is, and whether one that was written down still runs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_DEAD = "ZX"
"""States of a process that has ended, but whose parent has not asked for its exit code yet."""


def this_process() -> dict[str, Any]:
    """Return what identifies this process, as JSON takes it; `is_running` reads it."""
    return {"host": host_id(), "name": os.uname().nodename, "pid": os.getpid(), "born": start_time(os.getpid())}


def is_running(process: Mapping[str, Any]) -> bool | None:
    """Tell whether a process still runs; None if it can't be seen from here, as it is of another host or container.

    Args:
        process: What `this_process` returned there.
    """
    if host_id() is None or process.get("host") != host_id():
        return None
    return bool(start_time(process["pid"]) == process["born"])


def host_id() -> str | None:
    """Return what tells apart the hosts, and the containers, whose processes have numbers of their own."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def start_time(pid: int) -> str | None:
    """Return when a process of this host was started, None if there is none: numbers of processes are given again."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in _DEAD else fields[19]
