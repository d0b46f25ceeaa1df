"""As-of partners: of all partners that combinations have, the newest, whatever order they are found in."""

import numpy as np

from watersmeet.arrays import Ints
from watersmeet.query.windows import NEVER

NONE = -1
"""Stands for the reference of a partner where there is none."""


class Newest:
    """The newest partner of each combination of a block, among those offered so far.

    It is the one with the greatest time, and of those with the same time the one with the greatest content hash. Rows
    that agree in both are interchangeable.

    Args:
        combinations: How many there are.

    Attributes:
        ts: The time of each combination's newest partner; NEVER where there is none.
        content: Its content hash; NEVER where there is none.
        row: Its reference; NONE where there is none.
    """

    def __init__(self, combinations: int) -> None:
        self.ts: Ints = np.full(combinations, NEVER)
        self.content: Ints = np.full(combinations, NEVER)
        self.row: Ints = np.full(combinations, NONE)

    def offer(self, combination: Ints, ts: Ints, content: Ints, row: Ints) -> None:
        """Take note of partners, in place.

        Args:
            combination: Whose each is, by position.
            ts: Their times.
            content: Their content hashes.
            row: Their references.
        """
        if not len(row):
            return
        order = np.lexsort((content, ts, combination))
        last = order[np.append(np.diff(combination[order]) != 0, True)]
        at = combination[last]
        newer = (ts[last] > self.ts[at]) | ((ts[last] == self.ts[at]) & (content[last] > self.content[at]))
        newer |= self.row[at] == NONE
        at, last = at[newer], last[newer]
        self.ts[at], self.content[at], self.row[at] = ts[last], content[last], row[last]
