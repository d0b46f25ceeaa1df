"""Auctions, their bids and their payments: a join without windows, for streams with keys and punctuations.

The time for which an auction is open is lognormal: half of them for less than ten seconds, some for hours. So no window
is right for all of them, while a row of `bids` with `is_end`, a punctuation, says exactly when one is over.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.workload.tuples import SECOND, START, TIME, arrivals

MEAN_LIFE = 60.0
"""Mean time for which an auction is open, in seconds."""

SPREAD = 2.0
"""Standard deviation of the logarithm of that time: the median is 8 s, one auction in 900 is open for over an hour."""

PAID_AFTER = 30
"""Seconds from the end of an auction to its payment."""

Ids = Literal["integer", "uuid"]
"""How auctions are named: whole numbers from 0, or random UUIDs as text."""

_BLOCK_SECONDS = 60
_PEOPLE = 100_000


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one stretch of event time, by time.

    Attributes:
        auctions: `id` (a key), `ts` (when it opens), `seller` and `category`.
        bids: `auction`, `ts`, `price`, `bidder` and `is_end`; if that is true, the row is not a bid but a punctuation:
            no more bids for this auction come. It has neither price nor bidder.
        payments: `auction` (a key), `ts` and `amount`.
    """

    auctions: pa.Table
    bids: pa.Table
    payments: pa.Table

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The tables by the names of their streams."""
        return {"auctions": self.auctions, "bids": self.bids, "payments": self.payments}


def auctions(
    rate: float,
    seconds: float,
    rng: np.random.Generator,
    *,
    seconds_per_batch: float = 5.0,
    bids: float = 20.0,
    ids: Ids = "integer",
    start: int = START,
) -> Iterator[Batch]:
    """Yield the batches of all three streams in order; only later rows are held in memory.

    Bids are spread evenly over the life of their auction, and each is higher than the one before. The highest is paid
    `PAID_AFTER` seconds after the end; an auction without bids is not paid. Rows after the last batch are left out. The
    length of batches and the form of ids change nothing else about the rows.

    Args:
        rate: Mean number of auctions that open in a second.
        seconds: Length of the stretch of event time.
        rng: Source of everything random; the same state gives the same rows.
        seconds_per_batch: Length of a batch; the last one may be shorter.
        bids: Mean number of bids for an auction.
        ids: How auctions are named.
        start: First moment of the stretch of event time, in microseconds since the epoch.

    Raises:
        ValueError: If batches span no time, bids or the rate are negative, or the form of ids is unknown.

    >>> first, second = auctions(2, 10, np.random.default_rng(1))
    >>> first.bids.column_names
    ['auction', 'ts', 'price', 'bidder', 'is_end']
    """
    if not (seconds_per_batch > 0 and bids >= 0 and ids in get_args(Ids)):
        raise ValueError(
            "Auctions need batches longer than 0 s, at least 0 bids each and ids that are one of "
            f"{', '.join(get_args(Ids))}; got {seconds_per_batch} s, {bids} bids and {ids!r}."
        )
    names = rng.spawn(1)[0]
    last = start + round(seconds * SECOND)
    until, count = start, 0
    waiting = _batch(_draw_auctions(np.empty(0, np.int64), bids, rng), _make_ids(0, 0, ids, names))
    for number in range(math.ceil(seconds / seconds_per_batch)):
        end = min(last, start + round((number + 1) * seconds_per_batch * SECOND))
        while until < end:
            length = min(_BLOCK_SECONDS, (last - until) / SECOND)
            new = _draw_auctions(arrivals(rate, length, rng, until), bids, rng)
            waiting = _merge(waiting, _batch(new, _make_ids(count, len(new.opens), ids, names)))
            until, count = until + _BLOCK_SECONDS * SECOND, count + len(new.opens)
        now, waiting = _split(waiting, end)
        yield now


def lives(count: int, rng: np.random.Generator) -> Ints:
    """How long each of `count` auctions is open, in microseconds: lognormal, `MEAN_LIFE` seconds on average.

    >>> (lives(3, np.random.default_rng(1)) // SECOND).tolist()
    [16, 41, 15]
    """
    # The mean of a lognormal is exp(location + spread² / 2).
    seconds = rng.lognormal(math.log(MEAN_LIFE) - SPREAD**2 / 2, SPREAD, count)
    return np.maximum(1, np.rint(seconds * SECOND)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _AuctionRows:
    """Auctions by number, and their bids by the number of their auction and time."""

    opens: Ints
    ends: Ints
    sellers: NDArray[np.int32]
    categories: NDArray[np.int32]
    highest: Ints
    owners: Ints
    times: Ints
    prices: Ints
    bidders: NDArray[np.int32]


def _draw_auctions(opens: Ints, bids: float, rng: np.random.Generator) -> _AuctionRows:
    """Return random auctions and their bids; within an auction, bids are in order and their prices rise."""
    count = len(opens)
    life = lives(count, rng)
    counts = rng.poisson(bids, count)
    least, step = rng.integers(100, 10_000, count), rng.integers(1, 500, count)
    owners = np.repeat(np.arange(count), counts)
    times = opens[owners] + (rng.random(len(owners)) * life[owners]).astype(np.int64)
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return _AuctionRows(
        opens=opens,
        ends=opens + life,
        sellers=rng.integers(0, _PEOPLE, count, np.int32),
        categories=rng.integers(0, 100, count, np.int32),
        highest=least + step * counts,
        owners=owners,
        times=times[np.lexsort((times, owners))],
        prices=least[owners] + step[owners] * (rank + 1),
        bidders=rng.integers(0, _PEOPLE, len(owners), np.int32),
    )


def _batch(rows: _AuctionRows, names: pa.Array) -> Batch:
    """Return the three tables of drawn auctions; each auction with bids is paid some time after its end."""
    columns = {"ts": _times(rows.opens), "seller": rows.sellers, "category": rows.categories}
    count = len(rows.opens)
    bids = {
        "auction": pa.concat_arrays([names.take(pa.array(rows.owners)), names]),
        "ts": _times(np.concatenate([rows.times, rows.ends])),
        "price": pa.concat_arrays([pa.array(rows.prices), pa.nulls(count, pa.int64())]),
        "bidder": pa.concat_arrays([pa.array(rows.bidders), pa.nulls(count, pa.int32())]),
        "is_end": np.repeat([False, True], [len(rows.times), count]),
    }
    auctions_with_bids = np.unique(rows.owners)
    payments = {
        "auction": names.take(pa.array(auctions_with_bids)),
        "ts": _times(rows.ends[auctions_with_bids] + PAID_AFTER * SECOND),
        "amount": rows.highest[auctions_with_bids],
    }
    return Batch(pa.table({"id": names, **columns}), pa.table(bids), pa.table(payments))


def _times(micros: Ints) -> pa.Array:
    return pa.array(micros).cast(TIME)


def _make_ids(first: int, count: int, ids: Ids, rng: np.random.Generator) -> pa.Array:
    """Return ids of auctions: consecutive integers, or random UUIDs of version 4."""
    if ids == "integer":
        return pa.array(np.arange(first, first + count, dtype=np.int64))
    octets = rng.integers(0, 256, (count, 16), np.uint8)
    octets[:, 6] = octets[:, 6] & 0x0F | 0x40  # version 4,
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80  # of the usual variant
    texts = (row.tobytes().hex() for row in octets)
    return pa.array([f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts], pa.string())


def _merge(one: Batch, other: Batch) -> Batch:
    """Return two batches as one, each table sorted by time."""
    joined = {name: pa.concat_tables([table, other.tables[name]]) for name, table in one.tables.items()}
    # A bid at the last moment precedes the end.
    by = [("ts", "ascending")]
    orders = {"auctions": by, "bids": [*by, ("is_end", "ascending")], "payments": by}
    return Batch(**{name: table.sort_by(orders[name]) for name, table in joined.items()})


def _split(batch: Batch, end: int) -> tuple[Batch, Batch]:
    """Split a batch into the rows before `end` and those from it on."""
    tables = batch.tables
    splits = {name: int(np.searchsorted(t["ts"].cast(pa.int64()).to_numpy(), end)) for name, t in tables.items()}
    before = {name: table.slice(0, splits[name]) for name, table in tables.items()}
    return Batch(**before), Batch(**{name: table.slice(splits[name]) for name, table in tables.items()})
