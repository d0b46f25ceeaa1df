"""Auctions, their bids and their payments: a join without windows whose streams say what can no longer come.

An auction is open for a time that is lognormal: half of them for less than ten seconds, some for hours. So no window is
right for all of them, while a row of `bids` flagged `is_end` says exactly when one is over.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from watersmeet.workload.poisson import SECOND, START, TIME, arrivals

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
_MONTH = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one stretch of event time, by time.

    Attributes:
        auctions: `id` (a key), `ts` (when it opens), `seller` and `category`.
        bids: `auction`, `ts`, `price`, `bidder` and `is_end`; where that is true the row is no bid but says that no
            more bids for this auction come, and has neither price nor bidder.
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
    """Yield the batches of all three streams one after the other; only rows that are still to come are in memory.

    Bids are spread evenly over the life of their auction, and each is higher than the one before. The highest is paid
    `PAID_AFTER` seconds after the end; an auction without bids is not paid. What would come after the last batch is
    left out. How long a batch is, and how ids are written, changes nothing else about the rows.

    Args:
        rate: Mean number of auctions that open in a second.
        seconds: Length of the stretch of event time.
        rng: Source of everything random; the same state gives the same rows.
        seconds_per_batch: Length of a batch; the last one may be shorter.
        bids: Mean number of bids for an auction.
        ids: How auctions are named.
        start: First moment of the stretch of event time.

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
    drawn, opened, coming = start, 0, _batch(_draw(np.empty(0, np.int64), bids, rng), _name(0, 0, ids, names))
    for number in range(math.ceil(seconds / seconds_per_batch)):
        end = min(last, start + round((number + 1) * seconds_per_batch * SECOND))
        while drawn < end:
            length = min(_BLOCK_SECONDS, (last - drawn) / SECOND)
            new = _draw(arrivals(rate, length, rng, drawn), bids, rng)
            coming = _merge(coming, _batch(new, _name(opened, len(new.opens), ids, names)))
            drawn, opened = drawn + _BLOCK_SECONDS * SECOND, opened + len(new.opens)
        now, coming = _cut(coming, end)
        yield now


def lives(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """For how long each of `count` auctions is open, in microseconds: lognormal, `MEAN_LIFE` seconds on average.

    >>> (lives(3, np.random.default_rng(1)) // SECOND).tolist()
    [16, 41, 15]
    """
    # The mean of a lognormal is exp(location + spread² / 2).
    drawn = rng.lognormal(math.log(MEAN_LIFE) - SPREAD**2 / 2, SPREAD, count)
    return np.maximum(1, np.rint(drawn * SECOND)).astype(np.int64)


def write_batches(batches: Iterable[Batch], folder: str | os.PathLike[str]) -> list[int]:
    """Write one Parquet file a batch and stream, under `folder`/auctions, bids and payments; return rows by batch.

    As those of `watersmeet.workload.write`, the files are dated a second apart. Every batch has a file, though it
    be empty: payments begin half a minute after the auctions, and the streams must stay in step.
    """
    target = _folders(folder)
    first = time.time() - _MONTH  # dates would reach the future after 2.6 million batches only
    rows = []
    for number, batch in enumerate(batches):
        for name, table in batch.tables.items():
            _publish(table, target / name, number, first + number)
        rows.append(sum(table.num_rows for table in batch.tables.values()))
    return rows


def feed(
    batches: Iterable[Batch],
    folder: str | os.PathLike[str],
    *,
    seconds_per_batch: float = 5.0,
    speed: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Write the batches as they would come live, `speed` times as fast, and return by how many seconds it fell behind.

    A batch is written once its stretch of event time is over, whether anyone has read the one before or not. It blocks
    until the last batch is there: run it beside the query, in a thread or a process of its own.
    """
    if not speed > 0:
        raise ValueError(f"Batches are fed at a speed above 0, got {speed}.")
    target, began, behind = _folders(folder), clock(), 0.0
    for number, batch in enumerate(batches):
        wait = began + (number + 1) * seconds_per_batch / speed - clock()
        behind = max(behind, -wait)
        sleep(max(0.0, wait))
        for name, table in batch.tables.items():
            _publish(table, target / name, number, time.time())
    return behind


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Auctions by number, and their bids by the number of their auction and time."""

    opens: NDArray[np.int64]
    ends: NDArray[np.int64]
    sellers: NDArray[np.int32]
    categories: NDArray[np.int32]
    highest: NDArray[np.int64]
    owners: NDArray[np.int64]
    times: NDArray[np.int64]
    prices: NDArray[np.int64]
    bidders: NDArray[np.int32]


def _draw(opens: NDArray[np.int64], bids: float, rng: np.random.Generator) -> _Drawn:
    count = len(opens)
    life = lives(count, rng)
    counts = rng.poisson(bids, count)
    least, step = rng.integers(100, 10_000, count), rng.integers(1, 500, count)
    owners = np.repeat(np.arange(count), counts)
    times = opens[owners] + (rng.random(len(owners)) * life[owners]).astype(np.int64)
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return _Drawn(
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


def _batch(drawn: _Drawn, names: pa.Array) -> Batch:
    made = {"ts": _times(drawn.opens), "seller": drawn.sellers, "category": drawn.categories}
    count = len(drawn.opens)
    bids = {
        "auction": pa.concat_arrays([names.take(pa.array(drawn.owners)), names]),
        "ts": _times(np.concatenate([drawn.times, drawn.ends])),
        "price": pa.concat_arrays([pa.array(drawn.prices), pa.nulls(count, pa.int64())]),
        "bidder": pa.concat_arrays([pa.array(drawn.bidders), pa.nulls(count, pa.int32())]),
        "is_end": np.repeat([False, True], [len(drawn.times), count]),
    }
    paid = np.unique(drawn.owners)
    payments = {
        "auction": names.take(pa.array(paid)),
        "ts": _times(drawn.ends[paid] + PAID_AFTER * SECOND),
        "amount": drawn.highest[paid],
    }
    return Batch(pa.table({"id": names, **made}), pa.table(bids), pa.table(payments))


def _times(micros: NDArray[np.int64]) -> pa.Array:
    return pa.array(micros).cast(TIME)


def _name(first: int, count: int, ids: Ids, rng: np.random.Generator) -> pa.Array:
    if ids == "integer":
        return pa.array(np.arange(first, first + count, dtype=np.int64))
    octets = rng.integers(0, 256, (count, 16), np.uint8)
    octets[:, 6] = octets[:, 6] & 0x0F | 0x40  # version 4,
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80  # of the usual variant
    texts = (row.tobytes().hex() for row in octets)
    return pa.array([f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts], pa.string())


def _merge(one: Batch, other: Batch) -> Batch:
    joined = {name: pa.concat_tables([table, other.tables[name]]) for name, table in one.tables.items()}
    # Where a bid comes in the last moment, the end comes after it.
    by = [("ts", "ascending")]
    orders = {"auctions": by, "bids": [*by, ("is_end", "ascending")], "payments": by}
    return Batch(**{name: table.sort_by(orders[name]) for name, table in joined.items()})


def _cut(batch: Batch, end: int) -> tuple[Batch, Batch]:
    """Split a batch into the rows before `end` and those from it on."""
    tables = batch.tables
    splits = {name: int(np.searchsorted(t["ts"].cast(pa.int64()).to_numpy(), end)) for name, t in tables.items()}
    before = {name: table.slice(0, splits[name]) for name, table in tables.items()}
    return Batch(**before), Batch(**{name: table.slice(splits[name]) for name, table in tables.items()})


def _folders(folder: str | os.PathLike[str]) -> Path:
    target = Path(folder)
    if any(target.glob("*/*.parquet")):
        raise FileExistsError(
            f"{target} already holds Parquet files; Spark would stream them too. Give an empty folder."
        )
    for name in ("auctions", "bids", "payments"):
        (target / name).mkdir(parents=True, exist_ok=True)
    return target


def _publish(table: pa.Table, folder: Path, number: int, date: float) -> None:
    """Write one file so that a query never sees half of it."""
    hidden = folder / f".{number:05d}.parquet"
    pq.write_table(table, hidden)
    os.utime(hidden, (date, date))
    hidden.rename(folder / f"{number:05d}.parquet")
