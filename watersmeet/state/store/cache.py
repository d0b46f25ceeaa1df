"""A cache of bounded size: values by key, of which the least recently used leave first."""

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
    """Values that together take a number of bytes; it is the owner who bounds them, by `shrink`.

    [!] Threads may use it at the same time, so that a key may be gone at any moment.
    """

    def __init__(self) -> None:
        self._values: OrderedDict[Key, _Entry[Value]] = OrderedDict()
        self.size = 0
        """What all values take, as their owner has counted."""

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Key]:
        """Return the keys, the least recently used first; they may be dropped meanwhile."""
        return iter(list(self._values))

    def get(self, key: Key) -> Value | None:
        """Return a value, used just now; None if there is none."""
        try:
            self._values.move_to_end(key)
            return self._values[key].value
        except KeyError:
            return None

    def put(self, key: Key, value: Value, size: int) -> None:
        """Keep a value, used just now."""
        self.drop(key)
        self._values[key] = _Entry(value, size)
        self.size += size

    def resize(self, key: Key, size: int) -> None:
        """Note that a value takes another number of bytes, if it is still there."""
        entry = self._values.get(key)
        if entry is not None:
            self.size += size - entry.size
            entry.size = size

    def load(self, key: Key, read: Callable[[], Value], size_of: Callable[[Value], int], most: int) -> Value:
        """Return a value, read now if it isn't there; then no more than some bytes are kept.

        Args:
            key: Its key.
            read: Reads it.
            size_of: Counts what it takes.
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
        found = self._values.pop(key, None)
        self.size -= 0 if found is None else found.size
        return found is not None

    def forget(self, gone: Callable[[Key], bool]) -> list[Key]:
        """Drop the values of some keys, and return these."""
        return [key for key in self if gone(key) and self.drop(key)]

    def shrink(self, most: int) -> list[Key]:
        """Drop values until the others take no more than some bytes, but never the last; return their keys."""
        dropped = []
        for key in self:
            if self.size <= most or len(self) <= 1:
                break
            self.drop(key)
            dropped.append(key)
        return dropped

    def measure(self, size_of: Callable[[Value], int]) -> int:
        """Count anew what the values take, since they may grow, and return it."""
        entries = list(self._values.values())
        for entry in entries:
            entry.size = size_of(entry.value)
        self.size = sum(entry.size for entry in entries)
        return self.size
