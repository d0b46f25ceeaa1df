"""The chunks that a process keeps open, sort orders included: files stay mapped as long as they are."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from watersmeet.limits import limits
from watersmeet.state.chunks.rows import Rows
from watersmeet.state.store.budget import most_open
from watersmeet.state.store.cache import Cache

MOST_CHECKED = 100_000
"""Chunks of which a process remembers that their checksums were right."""

MOST_CHUNKS = 20_000
"""Chunks that are open at once, however small: Linux lets a process map 65,530 files, and some chunks have two."""


class Key(NamedTuple):
    """What open rows are known by."""

    root: str
    path: str
    offset: int
    ordinals: str | None
    time_type: str


class Opened:
    """Open chunks of any store, up to a number of bytes; the least recently used are closed first."""

    def __init__(self) -> None:
        self._rows: Cache[Key, Rows] = Cache()
        self._checked: set[tuple[str, str, int]] = set()
        self._given = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rows)

    @property
    def nbytes(self) -> int:
        """What they take now."""
        return self._rows.measure(_size)

    def get(self, key: Key) -> Rows | None:
        """Return the rows if they are open."""
        return self._rows.get(key)

    def is_checked(self, key: Key) -> bool:
        """Tell whether their checksum was right: it need not be computed when they are opened again."""
        return key[:3] in self._checked

    def put(self, key: Key, rows: Rows, given: int = 0) -> None:
        """Keep rows open whose checksum was right.

        Args:
            key: What they are known by.
            rows: The rows.
            given: How many bytes all open chunks may take; 0 for what the limits say.
        """
        if len(self._checked) >= MOST_CHECKED:
            self._checked.clear()
        self._checked.add(key[:3])
        self._given = given
        self._rows.put(key, rows, rows.nbytes)
        rows.grown = lambda grown: self._resize(key, grown)
        self._bound()

    def _resize(self, key: Key, rows: Rows) -> None:
        self._rows.resize(key, rows.nbytes)
        self._bound()

    def _bound(self) -> None:
        """Close what is too much."""
        most = self._most(self._rows.size)
        if self._rows.size > most and self.nbytes > most:
            self._rows.shrink(3 * most // 4)  # by a quarter, so that this is not due again at once
        if len(self._rows) > MOST_CHUNKS:
            self._rows.shrink(3 * self._rows.size // 4)

    def _most(self, held: int) -> int:
        return most_open(self._given or limits().open_bytes, held)

    def close(self) -> bool:
        """Close all but the last; return whether there were any."""
        return bool(self._rows.shrink(0))

    def forget(self, gone: Callable[[Key], bool]) -> None:
        """Close some of them, and forget that their checksums were right."""
        self._checked.difference_update(key[:3] for key in self._rows.forget(gone))


def _size(rows: Rows) -> int:
    return rows.nbytes
