"""What Python predicates have answered about pairs of stored rows: kept from block to block, shared by processes."""

import hashlib
import mmap
from collections import OrderedDict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from watersmeet.kernel.calls import Answers
from watersmeet.limits import limits


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


class Memory:
    """Answers of two-stream calls for pairs of chunks, kept between blocks; the oldest are dropped first.

    Args:
        folder: Where processes share what they know, made when need be; None to keep it in this one.
        limit: How many answers this process keeps.
    """

    def __init__(self, folder: Path | None = None, limit: int = 64 << 20) -> None:
        self._folder, self._limit, self._size = folder, limit, 0
        self._answers: OrderedDict[Asked, Answers] = OrderedDict()

    def table(self, asked: Asked, shape: tuple[int, int]) -> Answers | None:
        """Return the answers known for a pair of chunks, to be filled in place; None if it is too large to keep."""
        if shape[0] * shape[1] > self._limit // 4:
            return None
        if asked in self._answers:
            self._answers.move_to_end(asked)
            return self._answers[asked]
        table = self._answers[asked] = self._opened(asked, shape)
        self._size += table.size
        while self._size > self._limit:
            self._forget(next(iter(self._answers)))
        return table

    def keep(self, run: str, chunks: Collection[str]) -> None:
        """Forget what is known about all but some chunks, also what processes that are gone have left."""
        for asked in list(self._answers):
            if asked.run == run and not (asked.left in chunks and asked.right in chunks):
                self._forget(asked)
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
        while len(self._answers) >= limits().shared_answers and (oldest := next(iter(self._answers))).run != asked.run:
            self._forget(oldest)  # most likely of a query that has ended
        if len(self._answers) < limits().shared_answers:
            with suppress(OSError):  # no place or no permission: then it is not shared
                self._folder.mkdir(parents=True, exist_ok=True)
                return _mapped(self._folder / asked.name, shape)
        return np.zeros(shape, dtype=np.int8)

    def _forget(self, asked: Asked) -> None:
        self._size -= self._answers.pop(asked).size
        if self._folder is not None:
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
