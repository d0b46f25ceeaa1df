"""The parts of the state that policies choose from: hot groups and spilled units, with their cost and yield."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

import numpy as np

from watersmeet.query.query import Query
from watersmeet.query.windows import NEVER
from watersmeet.spilling.paying_tuples import unit_reaches
from watersmeet.spilling.units import Group, Ledger, Reach, Tally, Unit, group_of
from watersmeet.state.chunks.chunk import HOT, Chunk
from watersmeet.state.manifest.manifest import Manifest

ROOT = "j"
"""The path of the outermost join."""
LIGHTEST = -inf
"""The weight of rows to which the user gives none."""
KEY_BYTES = 16
"""About how many bytes of memory a process keeps for each row and indexed column."""


JoinPartition = tuple[str, int, int]
"""A partition of a join: the join's path, the number of partitions, and its own number."""


class OwedProbes(NamedTuple):
    """The probes of a unit that a batch owes.

    Attributes:
        batch: The batch's number.
        rows: About how many of its tuples must probe the unit.
        at: When it was offered, by the driver's clock, in microseconds.
    """

    batch: int
    rows: int
    at: int


@dataclass(frozen=True, slots=True)
class Part:
    """A hot group or a spilled unit of a join.

    Attributes:
        join: The join's path.
        group: The group.
        chunks: The ids of its chunks.
        rows: The number of its rows.
        bytes: The memory that it takes while hot: its rows, and what processes keep for them.
        stored: The bytes that it takes on disk.
        low: Its earliest time.
        high: Its latest time.
        worth: The tally of its group and of those that share its score.
        fresh: How many of its rows came with the last batch.
        weight: The greatest weight of its rows.
        unit: The spilled unit; None for a hot group.
        owing: The probes that batches owe it, the oldest first.
        stream_rows: The number of its rows, by stream.
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
    owing: tuple[OwedProbes, ...] = ()
    stream_rows: Mapping[int, int] = field(default_factory=dict)
    closed: bool = False

    @property
    def name(self) -> tuple[str, Group, int]:
        """A key that is unique among the parts of a state."""
        return self.join, self.group, HOT if self.unit is None else self.unit.number

    @property
    def partition(self) -> JoinPartition:
        """The partition that it belongs to."""
        return self.join, self.group.of, self.group.partition

    @property
    def owed(self) -> int:
        """How many probes it is owed."""
        return sum(probes.rows for probes in self.owing)

    @property
    def oldest(self) -> int | None:
        """When the first batch that owes it was offered; None if none does."""
        return self.owing[0].at if self.owing else None

    def pairs(self, rows: float) -> float:
        """Return about how many pairs are examined if this many tuples probe it: half of its rows for each."""
        return rows * self.rows / 2


def parts_of(path: str, query: Query, state: Manifest, slice: int, processes: int) -> list[Part]:
    """Return the parts of a join's state, without hot chunks that no new tuple probes.

    Args:
        path: The join's path.
        query: The join.
        state: Its state.
        slice: The length of groups' slices of time, in microseconds.
        processes: How many processes keep sort orders.
    """
    units = {unit.number: unit for unit in state.ledger.units}
    chunks_of: dict[tuple[Group, int], list[Chunk]] = defaultdict(list)
    first = _first_probed(query, state.watermark)
    for chunk in state.chunks.values():
        unit = units.get(chunk.unit)
        if unit is None and chunk.high < first[chunk.stream]:
            continue  # no new tuple probes it: it is kept only for what is owed
        chunks_of[unit.group if unit else group_of(chunk, slice), chunk.unit].append(chunk)
    worth = _worth_by_score(state.ledger.worth, final=path == ROOT)
    reaches = unit_reaches(query, state.chunks.values()) if units else {}
    parts = []
    for (group, number), chunks in chunks_of.items():
        part = _part(path, query, group, chunks, processes)
        fresh = sum(chunk.rows for chunk in chunks if chunk.arrived.first == state.batch)
        closed = group[:2] in state.ledger.closed
        part = replace(part, worth=worth.get(_score_group(group), Tally()), fresh=fresh, closed=closed)
        parts.append(_spilled_part(part, state.ledger, units[number], reaches.get(number)) if number in units else part)
    return parts


def _first_probed(query: Query, watermark: int | None) -> list[int]:
    """Return for each stream the earliest time of a row that a tuple which isn't late may probe."""
    if watermark is None or query.counted_streams:
        return [NEVER for _ in query.streams]
    return [int(stream.window.earliest(np.array([watermark]))[0]) for stream in query.streams]


def _part(path: str, query: Query, group: Group, chunks: Sequence[Chunk], processes: int) -> Part:
    """Return a part, as if it were hot and had no worth."""
    keys = sum(KEY_BYTES * chunk.rows * len(query.indexed_columns[chunk.stream]) for chunk in chunks)
    streams = {chunk.stream for chunk in chunks}
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
        stream_rows={stream: sum(chunk.rows for chunk in chunks if chunk.stream == stream) for stream in streams},
    )


def _weight(query: Query, chunk: Chunk) -> float:
    """Return the greatest weight of a chunk's rows."""
    if query.weight is None or query.weight.stream != chunk.stream:
        return LIGHTEST
    return chunk.zones[query.weight.name].high if query.weight.name in chunk.zones else LIGHTEST


def _spilled_part(part: Part, ledger: Ledger, unit: Unit, reach: Reach | None) -> Part:
    """Return a part as a spilled unit; each partition is assumed to have got its share of a batch's tuples."""
    batches = ledger.owing_batches(unit, reach)
    owing = (OwedProbes(number, -(-batch.rows // part.group.of), batch.at) for number, batch in batches if batch.rows)
    return replace(part, unit=unit, owing=tuple(owing))


def _score_group(group: Group) -> Group:
    """Return the group that stands for all that share a score: those of a partition, or a slice if there is but one."""
    return group if group.of == 1 else group._replace(start=0)


def _worth_by_score(worth: Mapping[Group, Tally], final: bool) -> dict[Group, Tally]:
    """Return the tallies summed over the groups that share a score; results of the outermost join are final."""
    sums: dict[Group, Tally] = {}
    for group, tally in worth.items():
        own = tally._replace(final=tally.results) if final else tally
        sums[_score_group(group)] = sums.get(_score_group(group), Tally()).plus(own)
    return sums


def hot_parts(parts: Iterable[Part]) -> list[Part]:
    """Return the hot parts."""
    return [part for part in parts if part.unit is None]


def spilled_parts(parts: Iterable[Part]) -> list[Part]:
    """Return the spilled parts."""
    return [part for part in parts if part.unit is not None]
