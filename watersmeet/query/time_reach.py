"""How far apart the event times of a join's streams may be, by all its conditions together."""

from collections.abc import Collection
from itertools import permutations

from watersmeet.query.query import Query
from watersmeet.query.windows import Sliding


def reaches(query: Query, among: Collection[int]) -> dict[tuple[int, int], int]:
    """Return by how many microseconds one stream's time can be later than another's, by (later, earlier).

    If `b` is at most 5 seconds later than `a`, and `c` at most 3 later than `b`, `c` is at most 8 later than `a`.
    Pairs that may be any distance apart are left out.

    Args:
        query: The join.
        among: The streams; only conditions over these count.
    """
    found: dict[tuple[int, int], int] = {}
    for conjunct in (conjunct for conjunct in query.conjuncts if conjunct.streams <= {*among}):
        for gap in conjunct.gaps:
            pair = gap.later, gap.earlier
            found[pair] = min(gap.micros, found.get(pair, gap.micros))
    for through in among:
        for later, earlier in permutations([at for at in among if at != through], 2):
            if (later, through) in found and (through, earlier) in found:
                long = found[later, through] + found[through, earlier]
                found[later, earlier] = min(long, found.get((later, earlier), long))
    return found


def window_of(micros: int) -> Sliding:
    """Return the window of tuples that others are at most so much later than."""
    return Sliding(max(0, micros) + 1)
