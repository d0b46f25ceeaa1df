"""Intake: a task's share of the new rows, judged, cut into cells and written as chunks.

Rows come in blocks and are spooled to disk as they pile up: a batch may be a whole history.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arguments import format_duration
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.side_outputs import SAMPLES, original, shown, write
from watersmeet.limits import limits
from watersmeet.metadata.collector import CollectedMetadata, MetadataCollector
from watersmeet.metadata.constraints import ConstraintId
from watersmeet.observe.delays import lost_by_delay
from watersmeet.predicate.numbers import bucket
from watersmeet.query.windows import clip_to_horizon
from watersmeet.spilling.units import ClosedPartition
from watersmeet.state.chunks.chunk import WHOLE, Bucket, Chunk
from watersmeet.state.chunks.rows import HASH, TIME, TRACE
from watersmeet.state.store.chunk_writer import ChunkWriter

FRESH = 1 << 36
"""Numbers given in this batch begin here; below it are the positions of earlier chunks in the plan."""
ATTEMPTS, PER_ATTEMPT = 1 << 16, 1 << 20
"""Task attempts of one batch that are told apart, and the chunks each may number."""


@dataclass(slots=True)
class StreamIntake:
    """What a task's share of one stream held."""

    rows: int = 0
    accepted: int = 0
    late: int = 0
    rejected: int = 0
    denied: int = 0
    punctuations: int = 0
    earliest: int | None = None
    latest: int | None = None
    furthest: int | None = None
    """The latest event time that was not believed."""
    too_far: int = 0
    """How many were not; they are among the rejected."""
    delays: Counter[int] = field(default_factory=Counter)
    """How many of the late rows a delay would have kept that shorter ones would not, in microseconds."""

    def add(self, other: "StreamIntake") -> None:
        """Add another task's share."""
        self.rows += other.rows
        self.accepted += other.accepted
        self.late += other.late
        self.rejected += other.rejected
        self.denied += other.denied
        self.punctuations += other.punctuations
        self.earliest = min((t for t in (self.earliest, other.earliest) if t is not None), default=None)
        self.latest = max((t for t in (self.latest, other.latest) if t is not None), default=None)
        self.furthest = max((t for t in (self.furthest, other.furthest) if t is not None), default=None)
        self.too_far += other.too_far
        self.delays.update(other.delays)


@dataclass(slots=True)
class IntakeReport:
    """What an intake task tells everybody downstream; it travels with the data."""

    streams: list[StreamIntake]
    chunks: list[Chunk] = field(default_factory=list)
    attempt: int = 0
    """The task attempt's number, unique in the application: the chunks are numbered by it."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    files: list[tuple[str, int, str]] = field(default_factory=list)
    """Side outputs: (late, rejected or denied; stream; file)."""
    closed: set[ClosedPartition] = field(default_factory=set)
    """The buckets whose values a punctuation has closed."""
    marks: dict[ConstraintId, CollectedMetadata] = field(default_factory=dict)
    """What the rows say about constraints."""
    read: list[tuple[float, int]] = field(default_factory=list)
    """When blocks of input were read (seconds since the epoch), and their rows."""

    @property
    def numbered(self) -> Iterator[tuple[int, Chunk]]:
        """The chunks with their numbers in this batch's plan."""
        return enumerate(self.chunks, FRESH + self.attempt % ATTEMPTS * PER_ATTEMPT)


class Judge:
    """Judges new rows: rejected, punctuation, late, denied, or able to join nothing; counts, samples and writes those.

    Args:
        plan: The batch's plan.
        name: Unique to this task attempt.
    """

    def __init__(self, plan: BatchPlan, name: str) -> None:
        self._plan = plan
        self._name = f"{plan.name}-{name}"
        self._collector, self._constrained = MetadataCollector(plan, name), plan.query.constrained_streams
        self._denied = plan.denied() if self._constrained else None
        self._sampled: Counter[object] = Counter()
        self.report = IntakeReport([StreamIntake() for _ in plan.query.streams])

    def accepted(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are to be stored and joined.

        Args:
            stream: Their stream.
            rows: Its columns under their generated names, the event time as `ts`, and `hash`.
        """
        seen = self.report.streams[stream]
        seen.rows += rows.num_rows
        rows = self._collector.add_time_column(stream, rows)
        if stream in self._constrained:
            said = self._collector.find_punctuations(stream, rows)
            self._collector.collect_data(stream, rows.filter(pa.array(~said)))
        rows = self._split(stream, rows, pc.is_valid(rows.column(TIME)), "rejected", "no event time")
        rows = self._believed(stream, rows)
        rows = self._heard(stream, rows) if stream in self._constrained else rows
        if not rows.num_rows:
            return rows
        ts = rows.column(TIME).to_numpy()
        seen.add(StreamIntake(earliest=int(ts.min()), latest=int(ts.max())))
        if self._plan.times.watermark is not None and stream not in self._plan.intake.exempt:
            self._measure(stream, ts[ts < self._plan.times.watermark])
            rows = self._split(stream, rows, pa.array(ts >= self._plan.times.watermark), "late", "before the watermark")
        rows = self._undenied(stream, rows)
        if self._constrained:
            self._collector.collect_accepted(stream, rows)
        seen.accepted += rows.num_rows
        return self._admitted(stream, rows)

    def _measure(self, stream: int, late: NDArray[np.int64]) -> None:
        """Note which delays would have kept late rows, by their times."""
        latest = self._plan.times.latest[stream] if self._plan.times.latest else None
        if len(late) and latest is not None:
            self.report.streams[stream].delays.update(lost_by_delay(latest, late))

    def _heard(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Take note of punctuations; return the other rows.

        [!] Punctuations don't move a stream's latest time, since an announced end would make all others late.
        """
        lacking = self._collector.find_incomplete(stream, rows)
        rows = self._split(stream, rows, pa.array(~lacking), "rejected", "a punctuation with NULL in its pattern")
        said = self._collector.find_punctuations(stream, rows)
        self.report.streams[stream].punctuations += int(said.sum())
        self._collector.collect_punctuations(stream, rows.filter(pa.array(said)))
        self._close(stream, rows.filter(pa.array(said)))
        return rows.filter(pa.array(~said))

    def _close(self, stream: int, said: pa.RecordBatch) -> None:
        """Note into which buckets the values fall that punctuations speak of, where work may be spilled."""
        placement = self._plan.placement
        for column in placement.stored_by(stream) if self._plan.spilling.counts_groups and said.num_rows else ():
            values = said.column(column.name).drop_null() if column.name in said.schema.names else pa.nulls(0)
            numbers = bucket(values, placement.buckets).tolist() if len(values) else []
            self.report.closed.update((placement.buckets, number) for number in numbers)

    def _undenied(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the stream has not said could no longer come."""
        if self._denied is None or stream not in self._constrained:
            return rows
        left = np.ones(rows.num_rows, bool)
        for found, constraint in self._denied.deny(stream, rows):
            reason = partial(self._denied.describe_denial, stream, constraint, visible=self._plan.observing.samples)
            self._turn_away(stream, rows.filter(pa.array(found & left)), "denied", (stream, constraint), reason)
            left &= ~found
        return rows if left.all() else rows.filter(pa.array(left))

    def heard(self) -> dict[ConstraintId, CollectedMetadata]:
        """Return what was collected about the streams' constraints."""
        return self._collector.finish()

    def _believed(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose event times are not too far ahead; the others are rejected."""
        latest = self._plan.intake.believed[stream] if self._plan.intake.believed else None
        ahead = self._plan.query.streams[stream].ahead
        if latest is None or ahead is None or not rows.num_rows:
            return rows
        ts = rows.column(TIME).to_numpy()
        far = ts[ts > latest]
        if not len(far):
            return rows
        self.report.streams[stream].add(StreamIntake(furthest=int(far.max()), too_far=len(far)))
        reason = f"event time more than {format_duration(ahead)} ahead of the clock and of all streams"
        return self._split(stream, rows, pa.array(ts <= latest), "rejected", reason)

    def _split(self, stream: int, rows: pa.RecordBatch, good: pa.Array, kind: str, reason: str) -> pa.RecordBatch:
        """Return the good rows; count, sample and if wanted write the others."""
        bad = rows.filter(pc.invert(good))
        if not bad.num_rows:
            return rows
        self._turn_away(stream, bad, kind, reason, lambda rows, at: reason)
        return rows.filter(good)

    def _turn_away(
        self, stream: int, rows: pa.RecordBatch, kind: str, cause: object, reason: Callable[[pa.RecordBatch, int], str]
    ) -> None:
        """Count, sample and if wanted write rows that are not taken.

        Args:
            stream: Their stream.
            rows: The rows.
            kind: How they are called.
            cause: What they have in common: of each cause a few are shown.
            reason: Says why one of them is not taken.
        """
        if not rows.num_rows:
            return
        seen = self.report.streams[stream]
        setattr(seen, kind, getattr(seen, kind) + rows.num_rows)
        if self._plan.observing.samples is None or self._plan.observing.samples:
            spec = self._plan.query.streams[stream]
            what = {"kind": kind, "stream": spec.name}
            for at in range(min(rows.num_rows, SAMPLES - self._sampled[cause])):
                self._sampled[cause] += 1
                self.report.samples.append(
                    {
                        **what,
                        "reason": reason(rows, at),
                        "row": shown(spec, stream, rows, at, self._plan.observing.samples),
                    }
                )
        if self._plan.intake.sides:
            self._side(stream, rows, kind)

    def _side(self, stream: int, rows: pa.RecordBatch, kind: str) -> None:
        path = f"sides/{self._name}-{len(self.report.files)}-{kind}-{stream}.parquet"
        write(self._plan.store, path, original(self._plan.query.streams[stream], stream, rows))
        self.report.files.append((kind, stream, path))

    def _admitted(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Drop tuples that can join nothing: in a gap of a hopping window, or denied by a conjunct over them alone."""
        spec = self._plan.query.streams[stream]
        admitted = spec.window.admits(rows.column(TIME).to_numpy())
        for test in spec.tests:
            passed = _true(rows, f"s{stream}_{test.holds}")
            if test.failed is not None:  # [!] another conjunct may yet deny it; if none does, the query must stop
                passed |= _true(rows, f"s{stream}_{test.failed}")
            admitted &= passed
        for column in self._plan.query.required_columns[stream]:
            admitted &= pc.is_valid(rows.column(column.name)).to_numpy(zero_copy_only=False)
        return rows if admitted.all() else rows.filter(pa.array(admitted))


def _true(rows: pa.RecordBatch, column: str) -> Any:
    return rows.column(column).fill_null(False).to_numpy(zero_copy_only=False)


class Spool:
    """Writes accepted rows as chunks, as they pile up.

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
        """Take accepted rows of a stream."""
        if not rows.num_rows:
            return
        beside = [TIME, HASH, *([TRACE] if stream in self._plan.spilling.traced else [])]
        kept = rows.select([*beside, *(column.name for column in self._plan.query.stored_columns[stream])])
        for part in _halved(kept, limits().spool_bytes):
            waiting = self._waiting.setdefault(stream, [])
            if waiting and sum(batch.nbytes for batch in (*waiting, part)) > limits().spool_bytes:
                self._flush(stream)
            self._waiting.setdefault(stream, []).append(part)

    def finish(self) -> list[Chunk]:
        """Write what is left and return all chunks."""
        for stream in list(self._waiting):
            self._flush(stream)
        return self.chunks

    def _flush(self, stream: int) -> None:
        placement = self._plan.placement
        length, owners = placement.slice_length(stream), partial(placement.owners, stream)
        for rows in pa.Table.from_batches(self._waiting.pop(stream)).combine_chunks().to_batches():
            starts = placement.starts(stream, clip_to_horizon(rows.column(TIME).to_numpy()))
            for kind, buckets in self._bucketings(stream, rows):
                self.chunks += self._writer.write(stream, rows, starts, length, owners, self._parts, buckets, kind)
                self._parts += 1

    def _bucketings(self, stream: int, rows: pa.RecordBatch) -> Iterator[tuple[Bucket, Any]]:
        """Yield how rows are cut into buckets: not at all, or once for each column that they are stored by."""
        columns, of = self._plan.placement.stored_by(stream), self._plan.placement.buckets
        if not columns:
            yield WHOLE, None
        fields = tuple(column.field for column in columns)
        for column in columns:
            yield Bucket(column.field, of, 0, fields), bucket(rows.column(column.name), of)


def _halved(rows: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """Yield rows in parts of at most so many bytes, or of one row."""
    half = rows.num_rows // 2
    if not half or rows.nbytes <= most:
        yield rows
        return
    yield from _halved(rows.slice(0, half), most)
    yield from _halved(rows.slice(half), most)


class Intake:
    """Judges and stores the rows of one task attempt.

    Args:
        plan: The batch's plan.
        name: Unique to this task attempt.
        attempt: The attempt's number, unique in the application.
    """

    def __init__(self, plan: BatchPlan, name: str, attempt: int) -> None:
        self._judge, self._spool = Judge(plan, name), Spool(plan, name)
        self.report = self._judge.report
        self.report.attempt = attempt

    def add(self, stream: int, rows: pa.RecordBatch) -> None:
        """Take rows of a stream."""
        self._spool.add(stream, self._judge.accepted(stream, rows))

    def finish(self) -> IntakeReport:
        """Write what is left and return the report."""
        self.report.chunks = self._spool.finish()
        self.report.marks = self._judge.heard()
        return self.report


def writer(plan: BatchPlan, name: str) -> ChunkWriter:
    """Return the writer of a task attempt."""
    query = plan.query
    unique, owed = f"{plan.name}-{name}", bool(plan.spilling.ledger.units)
    columns = (query.indexed_columns, query.zoned_columns, query.hashed_streams)
    return ChunkWriter(plan.store, unique, plan.batch, *columns, plan.intake.repeatable, owed)


def total(reports: Iterable[IntakeReport], streams: int) -> list[StreamIntake]:
    """Return what all tasks together took in, per stream."""
    totals = [StreamIntake() for _ in range(streams)]
    for report in reports:
        for at, seen in enumerate(report.streams):
            totals[at].add(seen)
    return totals
