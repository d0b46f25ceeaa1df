"""Traces: which groups of which joins a result came from, as codes that rows of outer joins are stored with.

A final result can then be credited to the groups of inner joins that it passed (Jbantova 2007, 3.2), and it can be
counted into which partitions of the outer join the results of an inner partition go (5.3).
"""

from collections.abc import Iterable
from hashlib import blake2b

from watersmeet.spilling.units import Group


def code_of(path: str, group: Group) -> int:
    """Return the code of a group: the same wherever it is computed.

    >>> code_of("j_0", Group(4, 1, 0)) == code_of("j_0", Group(4, 1, 0)) != code_of("j_1", Group(4, 1, 0))
    True

    Args:
        path: Where its join stands in the tree.
        group: The group.
    """
    text = f"{path} {group.of} {group.partition} {group.start}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1


def codes_of(path: str, groups: Iterable[Group]) -> dict[int, Group]:
    """Return groups of a join by their codes."""
    return {code_of(path, group): group for group in groups}
