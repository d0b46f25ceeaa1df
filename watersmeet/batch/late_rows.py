"""Which new rows take part in the join: late, rejected and denied ones don't; nor do punctuations."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arguments import format_duration
from watersmeet.arrays import to_mask
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import IntakeReport, StreamIntake
from watersmeet.batch.side_outputs import SAMPLES, original_rows, sample_row, write
from watersmeet.metadata.collector import CollectedMetadata, MetadataCollector
from watersmeet.metadata.constraints import ConstraintId
from watersmeet.observe.lateness import lost_by_delay
from watersmeet.predicate.numbers import bucket
from watersmeet.state.chunks.chunk import TIME


class RowAdmission:
    """Decides which new rows are stored and joined; counts all others, and shows and writes some if asked to.

    A row that is not admitted is rejected (no usable event time), a punctuation, late, denied by a constraint, or one
    that can't join anything.

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

    def admit(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows to store and join; also collects what the rows say about constraints.

        Rows that are late, rejected or denied are counted, and shown and written if asked to. Rows that can join
        nothing are dropped too, but count as accepted.

        Args:
            stream: Their stream.
            rows: Its columns under their generated names, the event time as `ts`, and `hash`.
        """
        counts = self.report.streams[stream]
        counts.rows += rows.num_rows
        rows = self._collector.add_time_column(stream, rows)
        if stream in self._constrained:
            is_punctuation = self._collector.find_punctuations(stream, rows)
            self._collector.collect_data(stream, rows.filter(pa.array(~is_punctuation)))
        rows = self._split(stream, rows, pc.is_valid(rows.column(TIME)), "rejected", "no event time")
        rows = self._reject_far_ahead(stream, rows)
        rows = self._collect_punctuations(stream, rows) if stream in self._constrained else rows
        if not rows.num_rows:
            return rows
        ts = rows.column(TIME).to_numpy()
        counts.add(StreamIntake(earliest=int(ts.min()), latest=int(ts.max())))
        if self._plan.times.watermark is not None and stream not in self._plan.intake.exempt:
            self._measure(stream, ts[ts < self._plan.times.watermark])
            rows = self._split(stream, rows, pa.array(ts >= self._plan.times.watermark), "late", "before the watermark")
        rows = self._reject_denied(stream, rows)
        if self._constrained:
            self._collector.collect_accepted(stream, rows)
        counts.accepted += rows.num_rows
        return self._drop_unjoinable(stream, rows)

    def _measure(self, stream: int, late: NDArray[np.int64]) -> None:
        """Count in the report which delays would have kept late rows, given the rows' times."""
        latest = self._plan.times.latest[stream] if self._plan.times.latest else None
        if len(late) and latest is not None:
            self.report.streams[stream].delays.update(lost_by_delay(latest, late))

    def _collect_punctuations(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Collect punctuations, reject incomplete ones, and return the other rows.

        [!] Punctuations don't advance a stream's latest time: one that announces an end would make all later rows late.
        """
        lacking = self._collector.find_incomplete(stream, rows)
        rows = self._split(stream, rows, pa.array(~lacking), "rejected", "a punctuation with NULL in its pattern")
        is_punctuation = self._collector.find_punctuations(stream, rows)
        punctuations = rows.filter(pa.array(is_punctuation))
        self.report.streams[stream].punctuations += punctuations.num_rows
        self._collector.collect_punctuations(stream, punctuations)
        self._close_buckets(stream, punctuations)
        return rows.filter(pa.array(~is_punctuation))

    def _close_buckets(self, stream: int, punctuations: pa.RecordBatch) -> None:
        """Report the hash buckets of the values that punctuations close, for policies that spill by them."""
        placement, names = self._plan.placement, punctuations.schema.names
        is_reported = self._plan.spilling.counts_groups and punctuations.num_rows
        for column in placement.stored_by(stream) if is_reported else ():
            values = punctuations.column(column.name).drop_null() if column.name in names else pa.nulls(0)
            numbers = bucket(values, placement.buckets).tolist() if len(values) else []
            self.report.closed.update((placement.buckets, number) for number in numbers)

    def _reject_denied(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that no constraint of the stream denies; turns others away for the first that does."""
        if self._denied is None or stream not in self._constrained:
            return rows
        remaining = np.ones(rows.num_rows, bool)
        for is_denied, constraint in self._denied.find_denied(stream, rows):
            reason = partial(self._denied.describe_denial, stream, constraint, visible=self._plan.observing.samples)
            denied = rows.filter(pa.array(is_denied & remaining))
            self._turn_away(stream, denied, "denied", (stream, constraint), reason)
            remaining &= ~is_denied
        return rows if remaining.all() else rows.filter(pa.array(remaining))

    def marks(self) -> dict[ConstraintId, CollectedMetadata]:
        """Write what was collected about constraints, and return it; call it once, after the last row."""
        return self._collector.finish()

    def _reject_far_ahead(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose event times are not too far ahead; rejects the others, and reports the latest."""
        latest = self._plan.intake.latest_allowed[stream] if self._plan.intake.latest_allowed else None
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
        """Return the good rows; turn the others away for one reason."""
        bad = rows.filter(pc.invert(good))
        if not bad.num_rows:
            return rows
        self._turn_away(stream, bad, kind, reason, lambda rows, at: reason)
        return rows.filter(good)

    def _turn_away(
        self, stream: int, rows: pa.RecordBatch, kind: str, cause: object, reason: Callable[[pa.RecordBatch, int], str]
    ) -> None:
        """Count rows that are not admitted, add samples of them to the report, and write them if asked to.

        Args:
            stream: Their stream.
            rows: The rows.
            kind: The counter of `StreamIntake` that they add to.
            cause: What they have in common; there are a few samples of each cause.
            reason: Returns why one of them, by position, is not admitted.
        """
        if not rows.num_rows:
            return
        counts = self.report.streams[stream]
        setattr(counts, kind, getattr(counts, kind) + rows.num_rows)
        if self._plan.observing.samples is None or self._plan.observing.samples:
            spec = self._plan.query.streams[stream]
            what = {"kind": kind, "stream": spec.name}
            for at in range(min(rows.num_rows, SAMPLES - self._sampled[cause])):
                self._sampled[cause] += 1
                self.report.samples.append(
                    {
                        **what,
                        "reason": reason(rows, at),
                        "row": sample_row(spec, stream, rows, at, self._plan.observing.samples),
                    }
                )
        if self._plan.intake.sides:
            self._write_aside(stream, rows, kind)

    def _write_aside(self, stream: int, rows: pa.RecordBatch, kind: str) -> None:
        path = f"sides/{self._name}-{len(self.report.files)}-{kind}-{stream}.parquet"
        write(self._plan.store, path, original_rows(self._plan.query.streams[stream], stream, rows))
        self.report.files.append((kind, stream, path))

    def _drop_unjoinable(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows without those that can join nothing.

        These lie in a gap of a hopping window, fail a conjunct over their stream alone, or lack a required value.
        """
        spec = self._plan.query.streams[stream]
        admitted = spec.window.admits(rows.column(TIME).to_numpy())
        for test in spec.tests:
            passes = to_mask(rows.column(f"s{stream}_{test.holds}"))
            if test.failed is not None:  # [!] another conjunct may drop the row; if none does, the query must stop
                passes |= to_mask(rows.column(f"s{stream}_{test.failed}"))
            admitted &= passes
        for column in self._plan.query.required_columns[stream]:
            admitted &= pc.is_valid(rows.column(column.name)).to_numpy(zero_copy_only=False)
        return rows if admitted.all() else rows.filter(pa.array(admitted))
