"""What Python predicates have answered about pairs of stored rows: kept from block to block, shared by processes."""

import hashlib
import mmap
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from watersmeet.limits import limits
from watersmeet.probe.predicate_calls import Answers
from watersmeet.state.store.cache import Cache


class Asked(NamedTuple):
    """What answers are remembered for: a call, in one start of a query, about the rows of two chunks."""

    run: str
    left: str
    right: str
    call: str

    @property
    def name(self) -> str:
        """A name for a file: short, and never that of another."""
        return "-".join(_digest(part) for part in self)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class AnswerCache:
    """Answers of two-stream calls for pairs of chunks, kept between blocks; the least recently used are dropped first.

    Args:
        folder: Where processes share what they know, made when need be; None to keep it in this one.
        limit: How many answers this process keeps.
    """

    def __init__(self, folder: Path | None = None, limit: int = 64 << 20) -> None:
        self._folder, self._limit = folder, limit
        self._tables: Cache[Asked, Answers] = Cache()

    def table(self, asked: Asked, shape: tuple[int, int]) -> Answers | None:
        """Return the answers known for a pair of chunks, to be filled in place; None if it is too large to keep."""
        if shape[0] * shape[1] > self._limit // 4:
            return None
        table = self._tables.get(asked)
        if table is None:
            table = self._opened(asked, shape)
            self._tables.put(asked, table, table.nbytes)
            self._unshare(self._tables.shrink(self._limit))
        return table

    def keep(self, run: str, chunks: Collection[str]) -> None:
        """Forget what is known about all but some chunks, also what processes that are gone have left."""

        def gone(asked: Asked) -> bool:
            return asked.run == run and not (asked.left in chunks and asked.right in chunks)

        self._unshare(self._tables.forget(gone))
        if self._folder is None:
            return
        kept = {_digest(chunk) for chunk in chunks}
        for path in self._folder.glob(f"{_digest(run)}-*"):
            if not kept.issuperset(path.name.split("-")[1:3]):
                _remove(path)

    def _opened(self, asked: Asked, shape: tuple[int, int]) -> Answers:
        """Return a table of answers, that of a file if it can be shared: all UNKNOWN if it is new.

        [!] Tasks fill it in at the same time, without a lock: an answer is one byte, and everybody's is the same.
        """
        if self._folder is None:
            return np.zeros(shape, dtype=np.int8)
        self._make_room(asked.run)
        if len(self._tables) < limits().shared_answers:
            with suppress(OSError):  # no place or no permission: then it is not shared
                self._folder.mkdir(parents=True, exist_ok=True)
                return _mapped(self._folder / asked.name, shape)
        return np.zeros(shape, dtype=np.int8)

    def _make_room(self, run: str) -> None:
        """Forget the oldest answers of other runs, most likely of queries that have ended, if too many are shared."""
        for asked in self._tables:
            if len(self._tables) < limits().shared_answers or asked.run == run:
                return
            self._tables.drop(asked)
            self._unshare([asked])

    def _unshare(self, dropped: Iterable[Asked]) -> None:
        if self._folder is not None:
            for asked in dropped:
                _remove(self._folder / asked.name)


def _mapped(path: Path, shape: tuple[int, int]) -> Answers:
    size = shape[0] * shape[1]
    with path.open("a+b") as file:
        if file.tell() < size:  # written out: that a disk is full is an error now, and would be a crash later
            file.write(bytes(size))
            file.flush()
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype=np.int8).reshape(shape)


def _remove(path: Path) -> None:
    with suppress(OSError):  # others may have removed it, or it was never shared
        path.unlink()
