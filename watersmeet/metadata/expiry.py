"""Expiry: when chunks, or tuples of as-of streams, may be dropped for good.

A chunk is dropped if any rule allows it. A tuple of an as-of stream is superseded once a newer one replaces it as a
partner in all later results. Take the time before which all combinations are closed. Among the tuples before it that
agree in all columns that conditions read, either all or none match an open combination, and only the newest counts.
Windows agree with this: one that admits a tuple admits every newer one. So the others may be purged, and a stream
without a window keeps one tuple per key.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.metadata.stored_columns import StoredColumns
from watersmeet.predicate.model import Column, ColumnOrder, Conjunct
from watersmeet.query.query import Query
from watersmeet.query.windows import NEVER, Window
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store.store import Store


@dataclass(frozen=True, slots=True)
class Moment:
    """The progress of a join after a batch.

    Attributes:
        query: The join.
        arrived: For each stream how many tuples had arrived before the first that still owes results.
        settled: The time before which no later result can lie; None for minus infinity.
    """

    query: Query
    arrived: tuple[int, ...]
    settled: int | None


class ExpiryRule(ABC):
    """A reason why chunks are no longer needed."""

    @abstractmethod
    def find_expired(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the ids of chunks no row of which can be part of a result of a later batch.

        [!] This must hold for every strategy, order of streams and exchange: these chunks are dropped for good.
        """


def find_expired(rules: Iterable[ExpiryRule], chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
    """Return the ids of the chunks that any of the rules allows to be dropped."""
    return frozenset[str]().union(*(rule.find_expired(chunks, now) for rule in rules))


class TableRefreshExpiry(ExpiryRule):
    """Drops all rows of tables that the next batch reads again."""

    def find_expired(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the chunks of such tables."""
        tables = {at for at, stream in enumerate(now.query.streams) if stream.refreshed}
        return frozenset(key for key, chunk in chunks.items() if chunk.stream in tables)


class WindowExpiry(ExpiryRule):
    """Drops chunks that lie before every window of a later result."""

    def find_expired(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the chunks whose last row is too old; for count windows, the chunks that arrived too long ago."""
        first, counted = first_needed(now), set(now.query.counted_streams)
        return frozenset(
            key
            for key, chunk in chunks.items()
            if (chunk.last_ordinal if chunk.stream in counted else chunk.high) < first[chunk.stream]
        )


def first_needed(now: Moment) -> list[int]:
    """Return for each stream the time from which its tuples are needed; for count windows, the arrival ordinal."""
    windows = [stream.window for stream in now.query.streams]
    return [_first_admitted(*each) for each in zip(windows, now.arrived, _earliest_results(now), strict=True)]


def _earliest_results(now: Moment) -> list[int | None]:
    """Return for each stream the time before which no result can lie that depends on one of its tuples.

    None stands for minus infinity. A tuple of an optional stream affects combinations that are not closed.
    """
    if now.settled is None or not now.query.optional:
        return [now.settled] * len(now.query.streams)
    sides = [_earliest_of_side(side, now.settled) for side in now.query.sides]
    return [min(times) for times in zip(*sides, strict=True)]


def _earliest_of_side(query: Query, settled: int) -> list[int]:
    """Return the same times for the combinations of a join's required streams."""
    earliest = first_open(query, settled)
    return [earliest if at in query.optional else settled for at in range(len(query.streams))]


def first_open(query: Query, settled: int) -> int:
    """Return the time before which all combinations of the required streams are closed.

    An open combination is no earlier than its latest member, each of which still has to expire. One that closes at its
    own time is no earlier than `settled`.

    Args:
        query: The join.
        settled: The time before which no later result can lie.
    """
    if not query.optional or query.closes_at_its_time:
        return settled
    windows = [query.streams[at].window for at in query.members]
    return max(int(window.earliest(np.array([settled]))[0]) for window in windows)


def _first_admitted(window: Window, arrived: int, settled: int | None) -> int:
    """Return the earliest time that a window still admits; for a count window, the first arrival ordinal."""
    if window.rows is not None:
        return arrived - window.rows + 1
    return NEVER if settled is None else int(window.earliest(np.array([settled]))[0])


def superseding_columns(query: Query) -> dict[int, tuple[Column, ...]]:
    """Return the as-of streams whose tuples can be superseded, each with the columns in which such tuples agree.

    Excluded are streams for which such a column can't decide: one of a type that can't be compared, or the event time;
    and [!] those with a condition that may raise: whether a query stops must not depend on what was purged.
    """
    return {
        at: columns
        for at in sorted(query.as_of_streams)
        if not any(conjunct.raises for conjunct in _conditions_on(query, at))
        and not any(map(pa.types.is_nested, map(query.type_of, columns := _distinguishing_columns(query, at))))
        and not any(is_time(query, column) for column in columns)
    }


def is_keyed(query: Query, stream: int) -> bool:
    """Tell whether tuples are superseded by key: only equalities distinguish them."""
    distinguishing = _distinguishing_conditions(query, stream)
    conditions = [c for c in distinguishing if any(column.stream == stream for column in c.columns)]
    return stream in superseding_columns(query) and all(conjunct.equality is not None for conjunct in conditions)


def find_superseded(
    query: Query, store: Store, chunks: Sequence[Chunk], mine: Sequence[Chunk], settled: int | None
) -> dict[str, Ints]:
    """Return the numbers of the rows that have become superseded, by the ids of their chunks.

    Args:
        query: The join.
        store: The store of its state.
        chunks: All chunks of earlier batches.
        mine: The chunks whose rows are in question.
        settled: The time before the batch before which no later result can lie; None for minus infinity.
    """
    rows: dict[str, Ints] = {}
    if settled is None:
        return rows
    own, mark = {chunk.id for chunk in mine}, first_open(query, settled)
    for stream, columns in superseding_columns(query).items():
        before = [chunk for chunk in chunks if chunk.stream == stream and chunk.low < mark]
        if not any(chunk.id in own for chunk in before):
            continue
        located = _find_older(StoredColumns(query, store, before), stream, columns, mark)
        rows |= {key: numbers for key, numbers in located.items() if key in own}
    return rows


def _find_older(stored: StoredColumns, stream: int, columns: Sequence[Column], mark: int) -> dict[str, Ints]:
    """Return the rows of a stream before a time that are not the newest of their kind, by the ids of their chunks.

    [!] Copies of a row, stored several times by different hashes, are all the newest, or none of them is.
    """
    kind, ts, content = stored.find_distinct(stream, columns).kind, stored.times(stream), stored.content_hashes(stream)
    before = np.flatnonzero(ts < mark)
    order = before[np.lexsort((content[before], ts[before], kind[before]))]
    newest = order[np.append(np.diff(kind[order]) != 0, True)] if len(order) else order
    last = np.zeros(int(kind.max(initial=0)) + 1, np.int64)
    last[kind[newest]] = newest
    stand_in = last[kind[before]]
    older = (ts[before] < ts[stand_in]) | (content[before] < content[stand_in])
    return stored.locate(stream, before[older]) if older.any() else {}


def _conditions_on(query: Query, stream: int) -> list[Conjunct]:
    return [conjunct for conjunct in (*query.conjuncts, *query.careful) if stream in conjunct.streams]


def _distinguishing_conditions(query: Query, stream: int) -> list[Conjunct]:
    """Return the conditions that may hold for one tuple of a stream and not for a newer one before the mark."""
    return [c for c in _conditions_on(query, stream) if not _favours_newer_tuples(query, stream, c)]


def _distinguishing_columns(query: Query, stream: int) -> tuple[Column, ...]:
    """Return the columns of a stream by which conditions may distinguish its tuples before the mark."""
    columns = {column for conjunct in _distinguishing_conditions(query, stream) for column in conjunct.columns}
    return tuple(sorted(column for column in columns if column.stream == stream))


def _favours_newer_tuples(query: Query, stream: int, conjunct: Conjunct) -> bool:
    """Tell whether a condition on event times that holds for a tuple holds for every newer one before the mark."""
    assert stream in query.as_of_streams
    plain = conjunct.sql is not None and conjunct.sql.count(" AND ") + 1 == len(conjunct.orders)
    return plain and all(_order_favours_newer(query, stream, order) for order in conjunct.orders)


def _order_favours_newer(query: Query, stream: int, order: ColumnOrder) -> bool:
    """Tell whether an order requires a tuple to be late enough, or no later than the combination."""
    if order.more.stream == stream:
        return order.less.stream != stream and is_time(query, order.more)
    timely = [at for at in query.members if not query.streams[at].table]
    less, more = query.time_shift(order.less), query.time_shift(order.more)
    return timely == [order.more.stream] and less is not None and more is not None and less <= more


def is_time(query: Query, column: Column) -> bool:
    """Tell whether a column is its stream's event time, or differs from it by a constant."""
    return query.time_shift(column) is not None
