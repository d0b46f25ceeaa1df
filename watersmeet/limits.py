"""The thresholds that choose an access path, a process or the size of a block, all in one place.

They only steer: apart from `value_bytes`, which makes a condition raise, no result depends on them. Tests run with the
extremes, since a path that is taken from 600 rows on is otherwise never tested.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds; sizes are in bytes, costs in seconds.

    Attributes:
        block_rows: Pairs or partial results handled at once.
        block_bytes: The most that the columns of such a block may take up.
        scan_setup: To start a DuckDB join of a block with a chunk.
        scan_pair: To test a pair in it.
        hash_row: To hash a row, where it joins by an equality.
        hash_pair: To find a pair, there.
        pair: To expand and test a candidate pair without such a join.
        tail_rows: Where only the newest partner counts, how many of the rows that a chunk proposes are looked at first;
            eight times as many each time that it isn't among them.
        narrow: Where a smaller share of a block probes a chunk, the rest of the block is left out first.
        stream_rows: Rows of a DuckDB join fetched at once.
        matrix_cells: Pairs passed to a predicate of form `matrix` in one call.
        asked_bytes: Chunks that take less in all are passed to a predicate in one call.
        shared_answers: The most tables of answers that a process shares: each takes a file descriptor.
        order_rows: Chunks of fewer rows store no sort order: sorting them when first probed is cheaper than reading it.
        many_slices: Where rows span more slices than this, neighbours share a chunk,
        small_rows: if they have fewer rows than this: a long history must not become a file of tiny chunks.
        file_bytes: Neighbouring cells share a file until it holds this,
        files: or one such part of all that is written at once.
        spool_bytes: New rows of a stream that a task holds back before it writes them as chunks.
        open_bytes: What the chunks that a process keeps open may take; 0 for a share of its memory.
        copied_bytes: What this host's copies of remote chunks may take on disk.
        output_bytes: Results made at once.
        file_rows: Results in a file.
        merged_chunks: Chunks of one tier that make one of the next.
        tier_rows: The first tier holds chunks of up to this many rows; each next one `merged_chunks` times as many.
        merged_bytes: No merge makes a larger chunk: copying images gains nothing, and loses the answers about them.
        driver_rows: A batch of that many rows or more doesn't run in the driver's process,
        driver_bytes: nor one of that many bytes,
        driver_seconds: nor one expected to take that long: two tasks would gain more than it costs to start them.
        purge_pairs: Pairs of stored tuples examined to prove one tuple dead; with more it stays.
        sampled_pairs: Blocks with fewer pairs are too small to measure what each of several conjuncts lets through.
        missed_pairs: Pairs examined for near-misses, per conjunct and hop of a task,
        missed_asked: and the most of these that are passed to Python predicates.
        crossing_rows: One in this many inner results that arrive is sampled for the partition its results go to.
        value_bytes: A call in `where` of a function such as `repeat` that would make a larger value raises.
    """

    block_rows: int = 1 << 17
    block_bytes: int = 32 << 20
    scan_setup: float = 1.5e-3
    scan_pair: float = 3e-9
    hash_row: float = 100e-9
    hash_pair: float = 20e-9
    pair: float = 60e-9
    tail_rows: int = 4
    narrow: float = 0.5
    stream_rows: int = 1 << 16
    matrix_cells: int = 1 << 20
    asked_bytes: int = 16 << 20
    shared_answers: int = 1024
    order_rows: int = 4096
    many_slices: int = 64
    small_rows: int = 1024
    file_bytes: int = 4 << 10
    files: int = 64
    spool_bytes: int = 48 << 20
    open_bytes: int = 0
    copied_bytes: int = 4 << 30
    output_bytes: int = 32 << 20
    file_rows: int = 8_000_000
    merged_chunks: int = 8
    tier_rows: int = 256
    merged_bytes: int = 2 << 20
    driver_rows: int = 20_000
    driver_bytes: int = 32 << 20
    driver_seconds: float = 0.4
    purge_pairs: int = 4_000_000
    crossing_rows: int = 10
    sampled_pairs: int = 4096
    missed_pairs: int = 4096
    missed_asked: int = 64
    value_bytes: int = 16 << 20


_now = Limits()


def limits() -> Limits:
    """Return the limits of this process."""
    return _now


def adopt(replacement: Limits) -> None:
    """Replace the limits of this process; a task adopts those of its batch's plan."""
    global _now  # read everywhere, and Spark's own threads and processes have no other way to find them
    _now = replacement


@contextmanager
def limited(**changes: Any) -> Iterator[None]:
    """Change some limits within a `with`, in this process and in the tasks of batches that are planned meanwhile.

    >>> with limited(block_rows=2):
    ...     limits().block_rows
    2
    >>> limits().block_rows
    131072
    """
    before = _now
    adopt(replace(before, **changes))
    try:
        yield
    finally:
        adopt(before)
