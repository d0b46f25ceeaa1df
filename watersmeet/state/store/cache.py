"""A cache of bounded size: values by key; the least recently used are dropped first."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True)
class _Entry(Generic[Value]):
    value: Value
    size: int


class Cache(Generic[Key, Value]):
    """Values by key, with the bytes they take; the owner bounds them by calling `shrink`.

    [!] Threads may use it at the same time, so that a key may be gone at any moment.
    """

    def __init__(self) -> None:
        self._values: OrderedDict[Key, _Entry[Value]] = OrderedDict()
        self.size = 0
        """The bytes of all values, as the owner counts them."""

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Key]:
        """Return the keys, the least recently used first; they may be dropped during the iteration."""
        return iter(list(self._values))

    def get(self, key: Key) -> Value | None:
        """Return a value and mark it as used; None if there is none."""
        try:
            self._values.move_to_end(key)
            return self._values[key].value
        except KeyError:
            return None

    def put(self, key: Key, value: Value, size: int) -> None:
        """Store a value as the most recently used."""
        self.drop(key)
        self._values[key] = _Entry(value, size)
        self.size += size

    def resize(self, key: Key, size: int) -> None:
        """Set how many bytes a value takes, if it is still there."""
        entry = self._values.get(key)
        if entry is not None:
            self.size += size - entry.size
            entry.size = size

    def load(self, key: Key, read: Callable[[], Value], size_of: Callable[[Value], int], most: int) -> Value:
        """Return a value; if it isn't there, read and store it, and drop others beyond a number of bytes.

        Args:
            key: Its key.
            read: Reads it.
            size_of: Returns the bytes it takes.
            most: How many bytes all values may take.
        """
        value = self.get(key)
        if value is None:
            value = read()
            self.put(key, value, size_of(value))
            self.shrink(most)
        return value

    def drop(self, key: Key) -> bool:
        """Drop a value; return whether there was one."""
        entry = self._values.pop(key, None)
        self.size -= 0 if entry is None else entry.size
        return entry is not None

    def forget(self, is_gone: Callable[[Key], bool]) -> list[Key]:
        """Drop the values of some keys and return these keys."""
        return [key for key in self if is_gone(key) and self.drop(key)]

    def shrink(self, most: int) -> list[Key]:
        """Drop values until the rest take at most a number of bytes, but never the last; return the dropped keys."""
        keys = []
        for key in self:
            if self.size <= most or len(self) <= 1:
                break
            self.drop(key)
            keys.append(key)
        return keys

    def measure(self, size_of: Callable[[Value], int]) -> int:
        """Recount the bytes of all values, which may have grown, and return the sum."""
        entries = list(self._values.values())
        for entry in entries:
            entry.size = size_of(entry.value)
        self.size = sum(entry.size for entry in entries)
        return self.size
