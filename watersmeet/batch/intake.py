"""Intake: a task admits its share of the new rows, cuts them into cells and writes them as chunks.

Rows come in blocks and are spooled to disk as they pile up: a batch may be a whole history.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from watersmeet.batch.late_rows import RowAdmission
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import IntakeReport
from watersmeet.limits import limits
from watersmeet.predicate.numbers import bucket
from watersmeet.query.windows import clip_to_horizon
from watersmeet.state.chunks.chunk import HASH, TIME, TRACE, WHOLE, Bucket, Chunk
from watersmeet.state.store.chunk_writer import ChunkWriter


class Spool:
    """Collects admitted rows, and writes them as chunks whenever a stream has enough of them.

    Args:
        plan: The batch's plan.
        name: Unique to this task attempt.
    """

    def __init__(self, plan: BatchPlan, name: str) -> None:
        self._plan = plan
        self._writer = writer(plan, name)
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._parts = 0
        self.chunks: list[Chunk] = []

    def add(self, stream: int, rows: pa.RecordBatch) -> None:
        """Add the columns to be stored of a stream's admitted rows; writes chunks whenever there are enough."""
        if not rows.num_rows:
            return
        bookkeeping = [TIME, HASH, *([TRACE] if stream in self._plan.spilling.traced else [])]
        stored_rows = rows.select([*bookkeeping, *(column.name for column in self._plan.query.stored_columns[stream])])
        for part in _split_by_size(stored_rows, limits().spool_bytes):
            waiting = self._waiting.setdefault(stream, [])
            if waiting and sum(batch.nbytes for batch in (*waiting, part)) > limits().spool_bytes:
                self._flush(stream)
            self._waiting.setdefault(stream, []).append(part)

    def finish(self) -> list[Chunk]:
        """Write the remaining rows and return all chunks."""
        for stream in list(self._waiting):
            self._flush(stream)
        return self.chunks

    def _flush(self, stream: int) -> None:
        """Write the waiting rows of a stream to `chunks`, in every way that its placement cuts them into buckets."""
        placement = self._plan.placement
        length, owners = placement.slice_length(stream), partial(placement.owners, stream)
        for rows in pa.Table.from_batches(self._waiting.pop(stream)).combine_chunks().to_batches():
            starts = placement.starts(stream, clip_to_horizon(rows.column(TIME).to_numpy()))
            for kind, buckets in self._bucketings(stream, rows):
                self.chunks += self._writer.write(stream, rows, starts, length, owners, self._parts, buckets, kind)
                self._parts += 1

    def _bucketings(self, stream: int, rows: pa.RecordBatch) -> Iterator[tuple[Bucket, Any]]:
        """Yield the ways in which rows are cut into buckets: one per column that they are stored by, or not at all.

        Each comes with the number of each row's bucket; None if rows are not cut.
        """
        columns, of = self._plan.placement.stored_by(stream), self._plan.placement.buckets
        if not columns:
            yield WHOLE, None
        fields = tuple(column.field for column in columns)
        for column in columns:
            yield Bucket(column.field, of, 0, fields), bucket(rows.column(column.name), of)


def _split_by_size(rows: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield rows in parts of at most `most` bytes; a single row may be larger."""
    half = rows.num_rows // 2
    if not half or rows.nbytes <= most:
        yield rows
        return
    yield from _split_by_size(rows.slice(0, half), most)
    yield from _split_by_size(rows.slice(half), most)


class Intake:
    """Admits and stores the rows of one task attempt.

    Args:
        plan: The batch's plan.
        name: Unique to this task attempt.
        attempt: The attempt's number, unique in the application.
    """

    def __init__(self, plan: BatchPlan, name: str, attempt: int) -> None:
        self._admission, self._spool = RowAdmission(plan, name), Spool(plan, name)
        self.report = self._admission.report
        self.report.attempt = attempt

    def add(self, stream: int, rows: pa.RecordBatch) -> None:
        """Store the rows of a stream that take part in the join; count the others."""
        self._spool.add(stream, self._admission.admit(stream, rows))

    def finish(self) -> IntakeReport:
        """Write what remains and return the report."""
        self.report.chunks = self._spool.finish()
        self.report.marks = self._admission.marks()
        return self.report


def writer(plan: BatchPlan, name: str) -> ChunkWriter:
    """Return the chunk writer of a task attempt."""
    query = plan.query
    unique, stores_arrivals = f"{plan.name}-{name}", bool(plan.spilling.ledger.units)
    columns = (query.indexed_columns, query.zoned_columns, query.hashed_streams)
    return ChunkWriter(plan.store, unique, plan.batch, *columns, plan.intake.repeatable, stores_arrivals)
