"""Auctions ⋈ bids ⋈ payments over finished data: all results, and the rows that a join must still keep.

The join is `auctions.id = bids.auction AND auctions.id = payments.auction`, without windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from watersmeet.workload.auctions import Batch
from watersmeet.workload.tuples import SECOND

Integers = NDArray[np.int64]

STREAMS = ("auctions", "bids", "payments")
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Needed:
    """How many stored rows of each stream can still be in a later result."""

    auctions: int
    bids: int
    payments: int

    @property
    def total(self) -> int:
        return self.auctions + self.bids + self.payments


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a join found.

    Attributes:
        count: Results.
        content: Sum of a 64-bit hash of each result, modulo 2^64: the same whatever their order.
    """

    count: int
    content: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one kind: the number of their auction, and the batch they came in."""

    keys: Integers
    batches: Integers

    def where(self, mask: NDArray[np.bool_]) -> Rows:
        return Rows(self.keys[mask], self.batches[mask])


def batches(folder: Path) -> Iterator[Batch]:
    """Read the files of `watersmeet.workload.write_batches` back, one batch at a time."""
    for path in sorted((folder / "auctions").glob("*.parquet")):
        yield Batch(**{name: pq.read_table(folder / name / path.name) for name in STREAMS})


def needed(batches: Iterable[Batch]) -> list[Needed]:
    """Count after each batch the stored rows that can be in a result with a row to come.

    A row may come unless something has denied it, up to and including that batch: `id` is a key of auctions and
    `auction` one of payments, so a value that was seen comes no more; bids for an auction come no more after its end.
    Rows of the batch that denies them count as before it, later ones are never stored. Ends are not stored.

    - An auction is needed until it is over and paid; without bids until it is over.
    - A bid is needed until its auction is there and paid, whether or not more bids may come.
    - A payment is needed until its auction is there and over; if that had no bids until it is over.
    """
    count, keys, (opened, bids, ends, paid) = _read(batches)
    seen, over, settled = (_first(rows, keys) for rows in (opened, ends, paid))
    opened, paid = (rows.where(rows.batches == first[rows.keys]) for rows, first in ((opened, seen), (paid, settled)))
    bids = bids.where(bids.batches <= over[bids.keys])
    without = np.bincount(bids.keys, minlength=keys) == 0
    lists = (
        _alive(opened, np.where(without, over, np.maximum(over, settled)), count),
        _alive(bids, np.maximum(seen, settled), count),
        _alive(paid, np.where(without, over, np.maximum(seen, over)), count),
    )
    return [Needed(*figures) for figures in zip(*lists, strict=True)]


def _read(batches: Iterable[Batch]) -> tuple[int, int, list[Rows]]:
    """Return how many batches and different auctions there are; auctions, bids, ends and payments."""
    columns: list[list[pa.Array]] = [[], [], [], []]
    for batch in batches:
        is_end = pc.fill_null(batch.bids["is_end"], False)
        bids = [batch.bids["auction"].filter(mask) for mask in (pc.invert(is_end), is_end)]
        for arrays, column in zip(columns, (batch.auctions["id"], *bids, batch.payments["auction"]), strict=True):
            arrays.append(column.combine_chunks().dictionary_encode())
    count = len(columns[0])
    if not count:
        return 0, 0, [Rows(np.empty(0, np.int64), np.empty(0, np.int64))] * 4
    encoded = pa.chunked_array([array for arrays in columns for array in arrays]).unify_dictionaries().combine_chunks()
    codes = encoded.indices.to_numpy().astype(np.int64)
    parts = np.split(codes, np.cumsum([sum(map(len, arrays)) for arrays in columns])[:-1])
    numbers = [np.repeat(np.arange(count), [len(array) for array in arrays]) for arrays in columns]
    return count, len(encoded.dictionary), [Rows(*pair) for pair in zip(parts, numbers, strict=True)]


def _first(rows: Rows, keys: int) -> Integers:
    """The batch in which each auction is first among the rows."""
    first = np.full(keys, NEVER)
    np.minimum.at(first, rows.keys, rows.batches)
    return first


def _alive(rows: Rows, gone: Integers, count: int) -> list[int]:
    """How many rows are there after each batch, if those of an auction go in the batch that `gone` gives for it."""
    leave = np.minimum(gone[rows.keys], count)
    stored = rows.batches < leave
    arriving = np.bincount(rows.batches[stored], minlength=count + 1)
    leaving = np.bincount(leave[stored], minlength=count + 1)
    alive: list[int] = np.cumsum(arriving - leaving)[:count].tolist()
    return alive


JOIN = """
    SELECT a.id AS auction, a.seller, b.ts AS bid_ts, b.price, b.bidder, p.amount
    FROM auctions a JOIN bids b ON a.id = b.auction JOIN payments p ON a.id = p.auction WHERE NOT b.is_end"""


def reference(folder: Path) -> Outcome:
    """Join the files of `watersmeet.workload.write_batches` in DuckDB."""
    with duckdb.connect() as connection:
        _define(connection, folder)
        return _outcome(connection, JOIN)


def outcome(results: Path) -> Outcome:
    """What a join wrote: Parquet files of the columns that `JOIN` shows."""
    with duckdb.connect() as connection:
        return _outcome(connection, _written(results))


def differences(folder: Path, results: Path) -> tuple[int, int]:
    """Return how many results of the files in `folder` are missing in `results`, and how many are too many."""
    with duckdb.connect() as connection:
        _define(connection, folder)
        sides = [JOIN, f"SELECT auction, seller, bid_ts, price, bidder, amount FROM ({_written(results)})"]
        one, other = (_number(connection, sides[i], sides[1 - i]) for i in (0, 1))
        return one, other


def lost_to_ttl(folder: Path, seconds: float) -> int:
    """Return how many results have a payment more than `seconds` after the auction opened: a TTL that is exact."""
    with duckdb.connect() as connection:
        _define(connection, folder)
        late = f"{JOIN} AND epoch_us(p.ts) - epoch_us(a.ts) > {round(seconds * SECOND)}"
        return _outcome(connection, late).count


def _define(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    for name in STREAMS:
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{folder / name}/*.parquet')")


def _written(results: Path) -> str:
    return f"SELECT * FROM read_parquet('{results}/*.parquet')"


def _outcome(connection: duckdb.DuckDBPyConnection, query: str) -> Outcome:
    columns = "concat_ws('|', auction, seller, epoch_us(bid_ts), price, bidder, amount)"
    row = connection.execute(
        f"SELECT count(*), coalesce(sum(md5_number_lower({columns})::HUGEINT), 0) FROM ({query})"
    ).fetchone()
    assert row is not None
    return Outcome(int(row[0]), int(row[1]) % 2**64)


def _number(connection: duckdb.DuckDBPyConnection, query: str, without: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM (({query}) EXCEPT ALL ({without}))").fetchone()
    assert row is not None
    return int(row[0])
