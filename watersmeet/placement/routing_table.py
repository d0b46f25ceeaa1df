"""CTR's routing table: which nodes keep a segment of a stream, stretch by stretch of time."""

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from watersmeet.placement.owners import Owners, remapped


class Entries(NamedTuple):
    """A stretch of the routing table: the owners of segments of one length, repeated up to the next stretch."""

    start: int
    length: int
    owners: tuple[Owners, ...]


Table = tuple[Entries, ...]


def owners_at(table: Table, time: int) -> Owners:
    """Return the owners of the segment that holds a time."""
    start, length, owners = table[max(0, bisect_right(table, time, key=attrgetter("start")) - 1)]
    return owners[max(0, time - start) // length % len(owners)]


def stretch(table: Table, low: int, end: int) -> Table:
    """Return the table from `low` up to `end`."""
    first = max(0, bisect_right(table, low, key=attrgetter("start")) - 1)
    stops = (*(entries.start for entries in table[first + 1 :]), end)
    return tuple(
        entries._replace(owners=entries.owners[: -((entries.start - min(stop, end)) // entries.length)])
        for entries, stop in zip(table[first:], stops, strict=True)
        if entries.start < end
    )


def on_nodes(table: Table, nodes: int) -> Table:
    """Return the table on so many nodes; those that are gone hand their segments on as they do their chunks."""
    return tuple(
        entries._replace(owners=tuple(remapped(owners, nodes) for owners in entries.owners)) for entries in table
    )
