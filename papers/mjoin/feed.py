"""The news feed of the MJoin paper: news items with a key, and records of who read them, with punctuations.

Ding, Rundensteiner and Heineman, "MJoin: A Metadata-Aware Stream Join Operator" (2003), sections 2 and 6.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal

import numpy as np

Side = Literal[0, 1]
ONE: Final = 0
"""The stream in which a key comes once; the paper's IS_a, the news."""
MANY: Final = 1
"""The stream in which it comes any number of times; IS_b, the access records."""
SIDES: Final[tuple[Side, Side]] = (ONE, MANY)
OTHER: Final[tuple[Side, Side]] = (MANY, ONE)


@dataclass(frozen=True, slots=True)
class Row:
    """A tuple.

    Attributes:
        key: What it is joined on.
        number: Which of its stream's tuples it is.
    """

    key: int
    number: int


@dataclass(frozen=True, slots=True)
class Punctuation:
    """Says that no tuple with this key follows in the stream."""

    key: int


Element = Row | Punctuation
Order = Literal["ordered", "random"]


@dataclass(frozen=True, slots=True)
class Feed:
    """What comes in, stream by stream; `elements[ONE]` are the news."""

    elements: tuple[Sequence[Element], Sequence[Element]]


def news_feed(items: int, order: Order, dice: np.random.Generator, monitored: int = 10, records: float = 10.0) -> Feed:
    """Return news, and records of access to whichever are among the latest.

    An item leaves the latest when a newer one is posted; then a punctuation says so. Between two punctuations there are
    records of at most `monitored` items, each equally often, in random order.

    Args:
        items: How many news items; their keys are 0, 1, 2 and so on.
        order: Whether they come by key, or shuffled; the records are the same.
        dice: Decides who reads what.
        monitored: How many items are among the latest.
        records: How many records there are between two punctuations, on average (Poisson).
    """
    access: list[Element] = []
    numbers = count()
    for oldest in range(items):
        read = dice.integers(oldest, min(oldest + monitored, items), dice.poisson(records))
        access += [Row(key, next(numbers)) for key in read.tolist()]
        access.append(Punctuation(oldest))
    news = [Row(key, key) for key in range(items)]
    if order == "random":
        news = [news[at] for at in dice.permutation(items).tolist()]
    return Feed((news, access))


def clustered(feed: Feed) -> Feed:
    """Return the feed with its records grouped by key, in the order of their first ones, and without punctuations."""
    groups: dict[int, list[Element]] = {}
    for element in feed.elements[MANY]:
        if isinstance(element, Row):
            groups.setdefault(element.key, []).append(element)
    return Feed((feed.elements[ONE], [row for group in groups.values() for row in group]))
