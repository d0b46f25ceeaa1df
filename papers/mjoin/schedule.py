"""Which queue is read next, and which of its tuples are processed at once.

Sections 4.1, 4.2 and 5.3 of the MJoin paper.

The paper switches value-oriented scheduling on when a punctuation comes, and off when another stream's turn begins. But
in a one-to-many join punctuations come with the many, and the tuple that one still waits for comes with the one: taken
literally, it would only ever hold up tuples that no punctuation waits for. So here a turn is value-oriented as long as
there are punctuations of the *other* stream that have not been passed on, and ends as in the paper: those that wait are
processed when the turn does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from random import Random

from papers.mjoin.feed import MANY, ONE, OTHER, Side


class StreamSchedule(ABC):
    """Chooses the stream to read from."""

    @abstractmethod
    def pick(self, ready: tuple[bool, bool]) -> Side:
        """Return the stream whose next element is to be retrieved; at least one is ready."""


class RandomStreams(StreamSchedule):
    """Any stream that is ready, with equal probability."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice

    def pick(self, ready: tuple[bool, bool]) -> Side:
        """See StreamSchedule."""
        if ready[ONE] and ready[MANY]:
            return MANY if self._dice.random() < 0.5 else ONE
        return ONE if ready[ONE] else MANY


class PriorityStreams(StreamSchedule):
    """The one before the many, as long as it is ready and within its quota; then the many, until it has had its own.

    A queue that has had its quota has its next turn when the other has had its own, or has run empty.
    """

    def __init__(self, quotas: tuple[int, int]) -> None:
        if min(quotas) < 1:
            raise ValueError(f"quotas: each stream needs at least 1, not {quotas}")
        self.quotas = quotas
        self._retrieved = [0, 0]

    def pick(self, ready: tuple[bool, bool]) -> Side:
        """See StreamSchedule."""
        side = self._within_quota(ready)
        if side is None:
            side = ONE if ready[ONE] else MANY
            self._retrieved[side] = 0
        self._retrieved[side] += 1
        if self._retrieved[side] == self.quotas[side]:
            self._retrieved[OTHER[side]] = 0
        return side

    def _within_quota(self, ready: tuple[bool, bool]) -> Side | None:
        if ready[ONE] and self._retrieved[ONE] < self.quotas[ONE]:
            return ONE
        return MANY if ready[MANY] and self._retrieved[MANY] < self.quotas[MANY] else None


class TupleSchedule(ABC):
    """Decides which tuples wait once they are retrieved."""

    @abstractmethod
    def waits(self, key: int, keys: Collection[int]) -> bool:
        """Return whether a tuple with this key waits for the end of its stream's turn.

        Args:
            key: The tuple's key.
            wanted: Keys of the other stream's punctuations that have not been passed on yet.
        """


class Sequential(TupleSchedule):
    """None waits."""

    def waits(self, key: int, keys: Collection[int]) -> bool:
        """See TupleSchedule."""
        return False


class ValueOriented(TupleSchedule):
    """Those wait which no punctuation waits for, if there are punctuations."""

    def waits(self, key: int, keys: Collection[int]) -> bool:
        """See TupleSchedule."""
        return bool(keys) and key not in keys
