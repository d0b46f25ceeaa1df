"""What MJoin keeps and knows of one of its streams: state, waiting tuples, punctuations (section 5.1 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence

from bench.mjoin_feed import Row
from bench.mjoin_state import Memory, State


class Half:
    """One stream's half of MJoin.

    Attributes:
        state: Tuples that later ones may have to meet.
        waiting: The waiting pool: tuples that are retrieved but not processed.
        ended: Keys of which no more will come, the punctuated range.
        unpurged: Those of them that no purge has seen.
        held_back: The punctuation collection: keys whose punctuations have not gone out.
    """

    def __init__(self, memory: Memory) -> None:
        self.state: State[Row] = State(memory)
        self.waiting: list[Row] = []
        self.ended: set[int] = set()
        self.unpurged: set[int] = set()
        self.held_back: set[int] = set()

    def closed(self, key: int, on_disk: Sequence[Row] | None = None) -> bool:
        """Return whether no tuple of this stream that has the key can be in any later result.

        BlockBuffer tuples need not be asked: `end` hands them out first.

        Args:
            key: The key.
            on_disk: What its bucket has on disk, if it was read; what was not read could hold anything.
        """
        if key not in self.ended:
            return False
        if on_disk is None:
            hidden = self.state.has_disk_part(self.state.bucket_of(key))
        else:
            hidden = any(row.key == key for row in on_disk)
        return not hidden and not self.state.matches(key)

    def end(self, key: int, propagates: bool) -> None:
        """Take note of a punctuation; no tuple that it speaks of may be waiting any more."""
        self.ended.add(key)
        self.unpurged.add(key)
        if propagates:
            self.held_back.add(key)

    def release(self, key: int | None = None) -> list[Row]:
        """Return the waiting tuples, all or those with one key, which then wait no longer."""
        if not self.waiting:
            return []
        rows = [row for row in self.waiting if key is None or row.key == key]
        self.waiting = [row for row in self.waiting if key is not None and row.key != key]
        return rows
