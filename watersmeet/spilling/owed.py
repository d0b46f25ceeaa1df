"""The settle rule: which tuples probe which chunks, so that each owed result is emitted exactly once.

While a unit is spilled, the tuples of some batches have not probed its chunks; they do once their batches pay. A
combination is emitted when the last of its members' chunks is settled for the batch of its probing tuple. That this
happens once follows from the courses: new tuples probe the chunks that they owe nothing. Earlier tuples run one course
for each other stream: it probes the chunks of that stream that are being paid, of the streams before it only the chunks
already settled, and of the streams after it both.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints

Among = Literal["arrived", "earlier", "expiring", "all", "preceding", "newest"]
"""Which rows of a chunk a probe looks for.

- `arrived`: those that arrived before the probing tuple.
- `earlier`: those that arrived before it in its own stream.
- `expiring`: those that expire after it.
- `all`: all rows.
- `preceding`: those that are no later than it; in streams that come after its own, only those that are earlier.
- `newest`: those that are no later than any member, the newest first.
"""


class OwedBatches(NamedTuple):
    """The batches whose tuples had not probed a unit before this batch.

    Attributes:
        since: The first of them.
        paid: Those before this one pay now; `since` if none does.
        until: The batch after the last of them.
    """

    since: int
    paid: int
    until: int


class Role(NamedTuple):
    """Which chunks of a stream a course probes.

    Attributes:
        settled: Whether it probes those to which its tuples owe nothing.
        paid: Whether it probes those that its tuples pay now.
        old: Whether its tuples came in an earlier batch.
        among: Which of their rows it looks for.
        here: Whether the task itself probes one copy of each chunk, wherever its owner is, and sends nothing.
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
    """Return the role of each stream in the course that pays the chunks of one of them."""
    return {at: PAYING if at == paying else BEFORE if at < paying else AFTER for at in range(streams)}


def may_probe(role: Role, owed: OwedBatches | None, batch: Ints) -> NDArray[np.bool_] | bool:
    """Return which tuples of a course probe a chunk: a mask, or one answer for all.

    Args:
        role: The role of the chunk's stream in the course.
        owed: The batches that owed it their probes; None if there were none.
        batch: The batch in which each tuple came.
    """
    if owed is None:
        return role.settled
    owing = (batch >= owed.since) & (batch < owed.until)
    settled = ~owing if role.settled else np.zeros(len(batch), bool)
    return settled | (owing & (batch < owed.paid)) if role.paid else settled
