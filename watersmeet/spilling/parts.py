"""What policies know of the state: parts of it, each a hot group or a cold unit, with what it costs and is worth."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import numpy as np

from watersmeet.query.query import Query
from watersmeet.query.windows import NEVER
from watersmeet.spilling.owed_tuples import reaches
from watersmeet.spilling.units import Group, Ledger, Reach, Tally, Unit, group_of
from watersmeet.state.chunks.chunk import HOT, Chunk
from watersmeet.state.manifest.manifest import Manifest

ROOT = "j"
"""The path of the outermost join."""
LIGHTEST = -inf
"""What rows weigh of which the user says nothing."""
KEY_BYTES = 16
"""About how many bytes a process keeps for a row and an indexed column."""


Place = tuple[str, int, int]
"""A partition of a join: the join's path, of how many partitions, and which."""


class Owing(NamedTuple):
    """A batch whose tuples have not asked a unit.

    Attributes:
        batch: Its number.
        rows: How many tuples it brought.
        at: When it was offered, by the driver's clock, in microseconds.
    """

    batch: int
    rows: int
    at: int


@dataclass(frozen=True, slots=True)
class Part:
    """A hot group or a cold unit of a join.

    Attributes:
        join: The join's path.
        group: The group.
        chunks: Its chunks, by id.
        rows: How many rows they have.
        bytes: What they take in memory while they are hot: the rows, and what processes keep of them.
        stored: What they take on disk.
        low: The earliest time in them.
        high: The latest.
        worth: What the group has been worth, together with those that are judged with it.
        fresh: How many of the rows came with the last batch.
        weight: How much the user says it is worth.
        unit: The cold unit; None if it is hot.
        owing: The batches whose tuples have not asked it: each with how many it brought, and when it was offered.
        given: How many rows of each stream it has.
        closed: Whether a punctuation has closed rows of it.
    """

    join: str
    group: Group
    chunks: tuple[str, ...]
    rows: int
    bytes: int
    low: int
    high: int
    worth: Tally
    stored: int = 0
    fresh: int = 0
    weight: float = 0.0
    unit: Unit | None = None
    owing: tuple[Owing, ...] = ()
    given: Mapping[int, int] = field(default_factory=dict)
    closed: bool = False

    @property
    def name(self) -> tuple[str, Group, int]:
        """What it is told apart by."""
        return self.join, self.group, HOT if self.unit is None else self.unit.number

    @property
    def place(self) -> Place:
        """The partition that it is of."""
        return self.join, self.group.of, self.group.partition

    @property
    def owed(self) -> int:
        """How many tuples have not asked it."""
        return sum(batch.rows for batch in self.owing)

    @property
    def oldest(self) -> int | None:
        """When the first of their batches was offered."""
        return self.owing[0].at if self.owing else None

    def pairs(self, rows: float) -> float:
        """Return about how many pairs tuples look at that ask it: each at half of its rows."""
        return rows * self.rows / 2


def parts(path: str, query: Query, state: Manifest, slice: int, processes: int) -> list[Part]:
    """Return the parts of a join's state.

    Args:
        path: The join's path.
        query: The join.
        state: Its state.
        slice: The length of groups' slices.
        processes: How many processes keep sort orders.
    """
    units = {unit.number: unit for unit in state.ledger.units}
    found: dict[tuple[Group, int], list[Chunk]] = defaultdict(list)
    first = _first_probed(query, state.watermark)
    for chunk in state.chunks.values():
        unit = units.get(chunk.unit)
        if unit is None and chunk.high < first[chunk.stream]:
            continue  # no new tuple probes it: it is kept for what is owed alone
        found[unit.group if unit else group_of(chunk, slice), chunk.unit].append(chunk)
    known = _worth(state.ledger.worth, final=path == ROOT)
    reached = reaches(query, state.chunks.values()) if units else {}
    made = []
    for (group, number), chunks in found.items():
        part = _part(path, query, group, chunks, processes)
        fresh = sum(chunk.rows for chunk in chunks if chunk.arrived.first == state.batch)
        part = replace(part, worth=known.get(_key(group), Tally()), fresh=fresh)
        part = replace(part, closed=group[:2] in state.ledger.closed)
        made.append(_owed(part, state.ledger, units[number], reached.get(number)) if number in units else part)
    return made


def _first_probed(query: Query, watermark: int | None) -> list[int]:
    """Return for each stream the earliest time of a row that a tuple may probe which is not late."""
    if watermark is None or query.counted_streams:
        return [NEVER for _ in query.streams]
    return [int(stream.window.earliest(np.array([watermark]))[0]) for stream in query.streams]


def _part(path: str, query: Query, group: Group, chunks: Sequence[Chunk], processes: int) -> Part:
    keys = sum(KEY_BYTES * chunk.rows * len(query.indexed_columns[chunk.stream]) for chunk in chunks)
    return Part(
        path,
        group,
        tuple(chunk.id for chunk in chunks),
        sum(chunk.rows for chunk in chunks),
        sum(chunk.bytes for chunk in chunks) + keys * processes,
        min(chunk.low for chunk in chunks),
        max(chunk.high for chunk in chunks),
        Tally(),
        stored=sum(chunk.place.length for chunk in chunks),
        weight=max((_weight(query, chunk) for chunk in chunks), default=LIGHTEST),
        given={stream: sum(c.rows for c in chunks if c.stream == stream) for stream in {c.stream for c in chunks}},
    )


def _weight(query: Query, chunk: Chunk) -> float:
    """Return how much the weightiest row of a chunk matters."""
    if query.weight is None or query.weight.stream != chunk.stream:
        return LIGHTEST
    return chunk.zones[query.weight.name].high if query.weight.name in chunk.zones else LIGHTEST


def _owed(part: Part, ledger: Ledger, unit: Unit, reach: Reach | None) -> Part:
    """Return a part as the cold unit that it is; of what batches brought, about as much is of its partition as any."""
    taken = ledger.owing(unit, reach)
    owing = (Owing(number, -(-was.rows // part.group.of), was.at) for number, was in taken if was.rows)
    return replace(part, unit=unit, owing=tuple(owing))


def _key(group: Group) -> Group:
    """Return what a group is judged by: its partition, whatever the time; where there is but one, its slice."""
    return group if group.of == 1 else group._replace(start=0)


def _worth(known: Mapping[Group, Tally], final: bool) -> dict[Group, Tally]:
    """Return what the groups are worth that are judged together; results of the outermost join are final."""
    summed: dict[Group, Tally] = {}
    for group, tally in known.items():
        counted = tally._replace(final=tally.results) if final else tally
        summed[_key(group)] = summed.get(_key(group), Tally()).plus(counted)
    return summed


def hot(found: Iterable[Part]) -> list[Part]:
    """Return the parts that are hot."""
    return [part for part in found if part.unit is None]


def cold(found: Iterable[Part]) -> list[Part]:
    """Return the parts that are cold."""
    return [part for part in found if part.unit is not None]
