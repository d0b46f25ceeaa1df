"""What is put off: tuples of some batches have not asked a chunk yet, and will once their batches are paid.

A combination is emitted when the last of its members' chunks is settled for the batch of its probing tuple. That it is
emitted once follows from courses of three kinds: new tuples ask what they owe nothing; old ones ask, for each of the
other streams in turn, the chunks of that stream which are paid just now, of the streams before it only what was settled
already, and of those after it both.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints

Among = Literal["arrived", "earlier", "expiring", "all", "preceding", "newest"]
"""Which rows of a chunk a probe asks for: what arrived before the probing tuple, of its own stream in "earlier"; what
expires after it; all; what is no later than it, and of streams named after its own earlier; what is no later than any
member, the newest first."""


class Owed(NamedTuple):
    """The batches whose tuples had not asked a chunk before this batch.

    Attributes:
        since: The first of them.
        paid: Those before this one ask it now; `since` if none does.
        until: The batch after the last of them.
    """

    since: int
    paid: int
    until: int


class Role(NamedTuple):
    """Which chunks of a stream a course asks.

    Attributes:
        settled: Those to which its tuples owed nothing.
        paid: Those that its tuples owed, and pay now.
        old: Whether its tuples came in an earlier batch.
        among: Which rows of them are asked for.
        here: Whether the task looks wherever the chunks are, at one copy of each, and nothing travels.
    """

    settled: bool
    paid: bool
    old: bool
    among: Among = "arrived"
    here: bool = False


NEW = Role(settled=True, paid=False, old=False)
BEFORE, PAYING, AFTER = Role(True, False, True), Role(False, True, True), Role(True, True, True)
"""The streams before the one whose chunks are paid, that one, and the streams after it."""
ARRIVED, EARLIER, EXPIRING, ALL, PRECEDING, NEWEST = (NEW._replace(among=among, here=True) for among in get_args(Among))
"""Where streams are optional, see `watersmeet.batch.outer_joins`."""


def roles(paying: int, streams: int) -> dict[int, Role]:
    """Return the role of each stream in the course that pays chunks of one."""
    return {at: PAYING if at == paying else BEFORE if at < paying else AFTER for at in range(streams)}


def asks(role: Role, owed: Owed | None, batch: Ints) -> NDArray[np.bool_] | bool:
    """Return which tuples ask a chunk.

    Args:
        role: That of its stream in their course.
        owed: What was owed to it; None for nothing.
        batch: The batch in which each of them came.
    """
    if owed is None:
        return role.settled
    owing = (batch >= owed.since) & (batch < owed.until)
    found = ~owing if role.settled else np.zeros(len(batch), bool)
    return found | (owing & (batch < owed.paid)) if role.paid else found
