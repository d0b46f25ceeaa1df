"""The chunks that a process keeps open, sort orders included. Their files stay mapped as long as they are open."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from watersmeet.limits import limits
from watersmeet.state.chunks.chunk import Rows
from watersmeet.state.store.budget import Cache, most_open

MOST_CHECKED = 100_000
"""The number of chunks that a process remembers as verified."""

MOST_CHUNKS = 20_000
"""The most chunks open at once, however small: Linux lets a process map 65,530 files, and some chunks have two."""


class RowsKey(NamedTuple):
    """The key of open rows."""

    root: str
    path: str
    offset: int
    ordinals: str | None
    time_type: str


class OpenChunks:
    """Open chunks of any store, up to a number of bytes; the least recently used are closed first."""

    def __init__(self) -> None:
        self._rows: Cache[RowsKey, Rows] = Cache()
        self._verified: set[tuple[str, str, int]] = set()
        self._user_limit = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[RowsKey]:
        return iter(self._rows)

    @property
    def nbytes(self) -> int:
        """The bytes that they take now."""
        return self._rows.measure(_size)

    def get(self, key: RowsKey) -> Rows | None:
        """Return the rows if they are open."""
        return self._rows.get(key)

    def is_checked(self, key: RowsKey) -> bool:
        """Tell whether their checksum has been verified, so that opening them again need not."""
        return key[:3] in self._verified

    def put(self, key: RowsKey, rows: Rows, user_limit: int = 0) -> None:
        """Keep verified rows open; others may be closed to make room.

        Args:
            key: Their key.
            rows: The rows.
            user_limit: How many bytes all open chunks may take; 0 for the default.
        """
        if len(self._verified) >= MOST_CHECKED:
            self._verified.clear()
        self._verified.add(key[:3])
        self._user_limit = user_limit
        self._rows.put(key, rows, rows.nbytes)
        rows.on_growth = lambda grown: self._resize(key, grown)
        self._bound()

    def _resize(self, key: RowsKey, rows: Rows) -> None:
        self._rows.resize(key, rows.nbytes)
        self._bound()

    def _bound(self) -> None:
        """Close chunks beyond the limits."""
        most = self._most(self._rows.size)
        if self._rows.size > most and self.nbytes > most:
            self._rows.shrink(3 * most // 4)  # by a quarter, so that this is not due again at once
        if len(self._rows) > MOST_CHUNKS:
            self._rows.shrink(3 * self._rows.size // 4)

    def _most(self, open_bytes: int) -> int:
        return most_open(self._user_limit or limits().open_bytes, open_bytes)

    def close(self) -> bool:
        """Close all but the last; return whether there were any."""
        return bool(self._rows.shrink(0))

    def forget(self, is_gone: Callable[[RowsKey], bool]) -> None:
        """Close some of them, and forget that they were verified."""
        self._verified.difference_update(key[:3] for key in self._rows.forget(is_gone))


def _size(rows: Rows) -> int:
    return rows.nbytes
