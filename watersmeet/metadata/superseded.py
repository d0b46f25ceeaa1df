"""Superseded tuples of as-of streams: those for which a newer one stands in, whatever may still come.

Take the time before which no combination lies that is not closed. Of the tuples before it that are alike in all that
conditions read, each is a partner of such a combination if any is, and only the newest counts. Windows agree: where one
admits a tuple, it admits every newer one. So the others may go, and a stream without a window keeps one tuple a key.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.metadata.expiry import first_open
from watersmeet.metadata.stored_columns import Stored
from watersmeet.predicate.model import Column, ColumnOrder, Conjunct
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store.store import Store


def superseding(query: Query) -> dict[int, tuple[Column, ...]]:
    """Return the as-of streams whose tuples may be superseded, with the columns that such tuples are alike in.

    [!] Not where a condition may raise: whether the query stops must not depend on what was purged by then.
    """
    return {
        at: columns
        for at in sorted(query.as_of_streams)
        if not any(conjunct.raises for conjunct in _naming(query, at))
        and not any(map(_unlike, map(query.type_of, columns := _read(query, at))))
        and not any(is_time(query, column) for column in columns)
    }


def is_keyed(query: Query, stream: int) -> bool:
    """Tell whether tuples are superseded key by key: nothing but equalities says which of them are alike."""
    telling = [conjunct for conjunct in _naming(query, stream) if not _always(query, stream, conjunct)]
    read = [conjunct for conjunct in telling if any(column.stream == stream for column in conjunct.columns)]
    return stream in superseding(query) and all(conjunct.equality is not None for conjunct in read)


def superseded(
    query: Query, store: Store, chunks: Sequence[Chunk], mine: Sequence[Chunk], settled: int | None
) -> dict[str, Ints]:
    """Return the numbers of the rows that are superseded and were not before, by the ids of their chunks.

    Args:
        query: The join.
        store: Where state is kept.
        chunks: All chunks of earlier batches.
        mine: Those to be purged.
        settled: The closing mark before the batch; None for minus infinity.
    """
    rows: dict[str, Ints] = {}
    if settled is None:
        return rows
    own, mark = {chunk.id for chunk in mine}, first_open(query, settled)
    for stream, columns in superseding(query).items():
        before = [chunk for chunk in chunks if chunk.stream == stream and chunk.low < mark]
        if not any(chunk.id in own for chunk in before):
            continue
        located = _superseded(Stored(query, store, before), stream, columns, mark)
        rows |= {key: numbers for key, numbers in located.items() if key in own}
    return rows


def _superseded(stored: Stored, stream: int, columns: Sequence[Column], mark: int) -> dict[str, Ints]:
    """Return which rows of a stream before a time are not the newest of their kind, by the ids of their chunks.

    [!] Rows that are stored several times, by different hashes, are all the newest, or none of them is.
    """
    kind, ts, content = stored.distinct(stream, columns).kind, stored.times(stream), stored.contents(stream)
    before = np.flatnonzero(ts < mark)
    order = before[np.lexsort((content[before], ts[before], kind[before]))]
    newest = order[np.append(np.diff(kind[order]) != 0, True)] if len(order) else order
    last = np.zeros(int(kind.max(initial=0)) + 1, np.int64)
    last[kind[newest]] = newest
    stand_in = last[kind[before]]
    older = (ts[before] < ts[stand_in]) | (content[before] < content[stand_in])
    return stored.located(stream, before[older]) if older.any() else {}


def _naming(query: Query, stream: int) -> list[Conjunct]:
    return [conjunct for conjunct in (*query.conjuncts, *query.careful) if stream in conjunct.streams]


def _read(query: Query, stream: int) -> tuple[Column, ...]:
    """Return the columns of a stream by which conditions may tell its tuples apart that are before the mark."""
    telling = [conjunct for conjunct in _naming(query, stream) if not _always(query, stream, conjunct)]
    return tuple(sorted({column for conjunct in telling for column in conjunct.columns if column.stream == stream}))


def _unlike(kind: pa.DataType) -> bool:
    """Tell whether values of a type can't be compared, so that no two tuples are known to be alike."""
    return bool(pa.types.is_nested(kind))


def _always(query: Query, stream: int, conjunct: Conjunct) -> bool:
    """Tell whether a condition on event times holds for a tuple before the mark if it does for an older one."""
    assert stream in query.as_of_streams
    plain = conjunct.sql is not None and conjunct.sql.count(" AND ") + 1 == len(conjunct.orders)
    return plain and all(_favours_newer(query, stream, order) for order in conjunct.orders)


def _favours_newer(query: Query, stream: int, order: ColumnOrder) -> bool:
    """Tell whether an order asks for a tuple that is late enough, or for one that is no later than the combination."""
    if order.more.stream == stream:
        return order.less.stream != stream and is_time(query, order.more)
    timely = [at for at in query.members if not query.streams[at].table]
    less, more = query.time_shift(order.less), query.time_shift(order.more)
    return timely == [order.more.stream] and less is not None and more is not None and less <= more


def is_time(query: Query, column: Column) -> bool:
    """Tell whether a column is its stream's event time, or follows from it."""
    return query.time_shift(column) is not None
