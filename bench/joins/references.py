"""The distance to aim at: the same joins over the finished files, in one process, without streaming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bench.common import STREAMS, WINDOW, Task
from watersmeet.workload.images import matrix, similar_rows

Integers = NDArray[np.int64]
MICROS = WINDOW * 1_000_000
BLOCK = 200_000


@dataclass(frozen=True, slots=True)
class Stream:
    """One input in memory; `values` are numbers, or images as rows."""

    ids: Integers
    times: Integers
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Partners of each row of b: those of row i are `partners[starts[i]:starts[i + 1]]`."""

    starts: Integers
    partners: Integers


def duckdb_band(task: Task) -> None:
    """The band join in DuckDB; the ranges, a little too wide, allow its range join, the residual is exact."""
    task.results.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({band_query(task)}) TO '{task.results / 'results.parquet'}'")


def band_query(task: Task) -> str:
    """The band join as DuckDB SQL."""
    reads = {name: f"read_parquet('{task.files / name}/*.parquet')" for name in STREAMS}
    wide = task.epsilon * 1.001

    def near(left: str, right: str) -> str:
        return f"abs(epoch_us({left}.ts) - epoch_us({right}.ts)) < {MICROS}"

    return f"""
        SELECT a.id AS a_id, b.id AS b_id, c.id AS c_id
        FROM {reads["a"]} a, {reads["b"]} b, {reads["c"]} c
        WHERE a.x > b.x - {wide} AND a.x < b.x + {wide} AND c.x > b.x - {wide} AND c.x < b.x + {wide}
          AND abs(a.x - b.x) < {task.epsilon} AND abs(b.x - c.x) < {task.epsilon}
          AND {near("a", "b")} AND {near("b", "c")} AND {near("a", "c")}"""


def numpy_band(task: Task) -> None:
    """The band join in NumPy: sort a and c by x, look up each b, then combine the partners of each b."""
    a, b, c = (_read(task.files / name, "x") for name in STREAMS)
    _write(task, _triples(a, b, c, _band_pairs(b, a, task.epsilon), _band_pairs(b, c, task.epsilon)))


def numpy_images(task: Task) -> None:
    """The image join in NumPy: each b against the a's and c's near it in time, every pair compared once."""
    a, b, c = (_read(task.files / name, "img") for name in STREAMS)
    _write(task, _triples(a, b, c, _similar_pairs(b, a), _similar_pairs(b, c)))


def _read(folder: Path, column: str) -> Stream:
    table = pq.read_table(folder).combine_chunks().sort_by("ts")
    values = table[column].combine_chunks()
    return Stream(
        ids=table["id"].to_numpy(),
        times=table["ts"].cast(pa.int64()).to_numpy(),
        values=matrix(values) if column == "img" else values.to_numpy(),
    )


def _band_pairs(b: Stream, other: Stream, epsilon: float) -> Pairs:
    order = np.argsort(other.values)
    ranked = other.values[order]
    wide = epsilon * 1.001
    low, high = (np.searchsorted(ranked, b.values + sign * wide) for sign in (-1, 1))
    rows, offsets = _expand(high - low)
    partners = order[low[rows] + offsets]
    fits = np.abs(b.values[rows] - other.values[partners]) < epsilon
    fits &= np.abs(b.times[rows] - other.times[partners]) < MICROS
    return _group(rows[fits], partners[fits], len(b.ids))


def _similar_pairs(b: Stream, other: Stream) -> Pairs:
    low = np.searchsorted(other.times, b.times - MICROS, side="right")
    high = np.searchsorted(other.times, b.times + MICROS, side="left")
    triples = [
        first + np.flatnonzero(similar_rows(image, other.values[first:last]))
        for image, first, last in zip(b.values, low, high, strict=True)
    ]
    rows = np.repeat(np.arange(len(triples)), [len(partners) for partners in triples])
    return _group(rows, np.concatenate(triples), len(b.ids))


def _group(rows: Integers, partners: Integers, count: int) -> Pairs:
    return Pairs(np.searchsorted(rows, np.arange(count + 1)), partners)


def _expand(counts: Integers) -> tuple[Integers, Integers]:
    """For counts [2, 0, 1]: the rows [0, 0, 2] and the offsets [0, 1, 0] within each."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)


def _triples(a: Stream, b: Stream, c: Stream, ba: Pairs, bc: Pairs) -> Iterator[tuple[Integers, Integers, Integers]]:
    """The ids of all results, in blocks: for each b its partners in a with its partners in c, if near each other."""
    middle = np.repeat(np.arange(len(b.ids)), np.diff(ba.starts))
    for first in range(0, len(middle), BLOCK):
        left, centre = ba.partners[first : first + BLOCK], middle[first : first + BLOCK]
        rows, offsets = _expand(bc.starts[centre + 1] - bc.starts[centre])
        right = bc.partners[bc.starts[centre[rows]] + offsets]
        fits = np.abs(a.times[left[rows]] - c.times[right]) < MICROS
        rows, right = rows[fits], right[fits]
        yield a.ids[left[rows]], b.ids[centre[rows]], c.ids[right]


def _write(task: Task, blocks: Iterable[tuple[Integers, Integers, Integers]]) -> None:
    task.results.mkdir(parents=True, exist_ok=True)
    names = [f"{name}_id" for name in STREAMS]
    schema = pa.schema([(name, pa.int64()) for name in names])
    with pq.ParquetWriter(task.results / "results.parquet", schema) as writer:
        for block in blocks:
            writer.write_table(pa.table(list(block), schema=schema))
