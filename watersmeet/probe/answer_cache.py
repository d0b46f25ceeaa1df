"""Answers of Python predicates about pairs of stored rows, cached across blocks and shared by processes."""

import hashlib
import mmap
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from watersmeet.limits import limits
from watersmeet.probe.predicate_calls import Answers
from watersmeet.state.store.budget import Cache


class AnswerKey(NamedTuple):
    """The key of a table of answers: a call, in one start of a query, about the rows of two chunks."""

    run: str
    left: str
    right: str
    call: str

    @property
    def name(self) -> str:
        """A file name: short and unique."""
        return "-".join(_digest(part) for part in self)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class AnswerCache:
    """Answers of two-stream calls for pairs of chunks; the least recently used are dropped first.

    Args:
        folder: Where processes share answers, created if needed; None to cache in this process alone.
        limit: How many answers this process caches.
    """

    def __init__(self, folder: Path | None = None, limit: int = 64 << 20) -> None:
        self._folder, self._limit = folder, limit
        self._tables: Cache[AnswerKey, Answers] = Cache()

    def table(self, key: AnswerKey, shape: tuple[int, int]) -> Answers | None:
        """Return the answers for a pair of chunks, to be filled in place; None if the table is too large to cache.

        A new table is created, and the least recently used ones are dropped for it, their files removed.

        Args:
            key: The call and the chunks.
            shape: How many rows the two chunks have.
        """
        if shape[0] * shape[1] > self._limit // 4:
            return None
        table = self._tables.get(key)
        if table is None:
            table = self._open_table(key, shape)
            self._tables.put(key, table, table.nbytes)
            self._unshare(self._tables.shrink(self._limit))
        return table

    def retain(self, run: str, chunks: Collection[str]) -> None:
        """Forget a run's answers about all but some chunks, and remove their files, those of ended processes too.

        Args:
            run: The start of the query.
            chunks: The ids of the chunks whose answers stay.
        """

        def is_stale(key: AnswerKey) -> bool:
            return key.run == run and not (key.left in chunks and key.right in chunks)

        self._unshare(self._tables.forget(is_stale))
        if self._folder is None:
            return
        digests = {_digest(chunk) for chunk in chunks}
        for path in self._folder.glob(f"{_digest(run)}-*"):
            if not digests.issuperset(path.name.split("-")[1:3]):
                _remove(path)

    def _open_table(self, key: AnswerKey, shape: tuple[int, int]) -> Answers:
        """Return a table of answers, in a file if it can be shared; all UNKNOWN if it is new.

        [!] Tasks fill it in at the same time, without a lock: an answer is one byte, and the same from every task.
        """
        if self._folder is None:
            return np.zeros(shape, dtype=np.int8)
        self._make_room(key.run)
        if len(self._tables) < limits().shared_answers:
            with suppress(OSError):  # no place or no permission: then it is not shared
                self._folder.mkdir(parents=True, exist_ok=True)
                return _map_table(self._folder / key.name, shape)
        return np.zeros(shape, dtype=np.int8)

    def _make_room(self, run: str) -> None:
        """If too many tables are shared, forget the oldest of other runs, likely ended ones, and remove their files."""
        for key in self._tables:
            if len(self._tables) < limits().shared_answers or key.run == run:
                return
            self._tables.drop(key)
            self._unshare([key])

    def _unshare(self, keys: Iterable[AnswerKey]) -> None:
        if self._folder is not None:
            for key in keys:
                _remove(self._folder / key.name)


def _map_table(path: Path, shape: tuple[int, int]) -> Answers:
    """Map a file of answers into memory; a new one is filled with zeros, which raises OSError if the disk is full."""
    size = shape[0] * shape[1]
    with path.open("a+b") as file:
        if file.tell() < size:  # written out: a full disk is an error now, and would be a crash later
            file.write(bytes(size))
            file.flush()
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype=np.int8).reshape(shape)


def _remove(path: Path) -> None:
    with suppress(OSError):  # others may have removed it, or it was never shared
        path.unlink()
