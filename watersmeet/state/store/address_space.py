"""Libraries that reserve address space they don't use, kept from it where address space is limited."""

import ctypes
from contextlib import suppress

import pyarrow as pa

from watersmeet.state.store.budget import space

ARENA_MAX = -8
"""The number of `M_ARENA_MAX` in glibc's malloc.h."""


def save_space() -> None:
    """Let Arrow and malloc reserve little in this process, if its address space is limited; before they are used.

    Arrow's own allocator reserves 1 GiB at once, malloc 64 MiB for every thread that allocates.
    """
    if space() is None:
        return
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(ARENA_MAX, 1)
