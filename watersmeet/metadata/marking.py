"""At the end of a batch, what was heard of metadata becomes what is denied from the next one on.

What waited is looked at, too: punctuations that may go to the output, and rows that have turned out to be orphans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.side_outputs import SAMPLES, original_rows, sample_row, write
from watersmeet.formatting import value_at
from watersmeet.metadata.collector import Heard, Judged, judged, parent_denied
from watersmeet.metadata.constraint_state import MarkFile, Promised, at
from watersmeet.metadata.constraints import Clustered, ForeignKey, Inherited, Ordered, Punctuated, Speaking
from watersmeet.metadata.denial import Denied, Source, shape_of
from watersmeet.metadata.frontiers import further
from watersmeet.metadata.mark_files import coalesced, opened, read_table, write_table
from watersmeet.metadata.marks import ALWAYS, Marks, from_rows
from watersmeet.metadata.plan import MetadataReport, Number
from watersmeet.metadata.propagation import handed, propagates, ready, shown
from watersmeet.metadata.stored_columns import Stored
from watersmeet.predicate.model import Column
from watersmeet.probe.evaluators.duck import Duck


@dataclass
class Marking:
    """Makes the promises' new state of what all intake tasks heard; done by one task of a batch.

    Attributes:
        plan: The batch's plan.
        name: Unique to the task attempt.
        duck: What looks for tuples that match.
        report: What was done; of its counts, `inherited` are the punctuations of inner joins.
    """

    plan: BatchPlan
    name: str
    duck: Duck
    report: MetadataReport = field(
        default_factory=lambda: MetadataReport(counts={"punctuation": 0, "orphan": 0, "inherited": 0})
    )

    def mark(self, heard: Sequence[Mapping[Number, Heard]]) -> MetadataReport:
        """Return the report, with the state of the constraints of all streams after a batch.

        Args:
            heard: What each intake task collected.
        """
        denied = self.plan.denied()
        self.report.constraints = tuple(
            tuple(
                self._after((stream, at), denied, [part[stream, at] for part in heard if (stream, at) in part])
                for at in range(len(spec.promises))
            )
            for stream, spec in enumerate(self.plan.query.streams)
        )
        return self.report

    def _after(self, number: Number, denied: Denied, heard: Sequence[Heard]) -> Promised:
        stream, promise = number[0], self.plan.query.streams[number[0]].promises[number[1]]
        before, files = (
            at(self.plan.metadata.constraints, *number),
            tuple(part.file for part in heard if part.file is not None),
        )
        waiting = tuple(part.waiting for part in heard if part.waiting is not None)
        match promise:
            case Ordered():
                return self._ordered(stream, promise, before, heard)
            case Clustered():
                return self._clustered(number, promise, before, files)
            case Inherited():
                return self._inherited(number, promise, before, denied)
            case Punctuated():
                left = self._put_out(number, promise, before.waiting, denied)
            case ForeignKey():
                left = self._orphaned(number, before, denied)
            case _:
                left = ()
        return replace(self._with(number, before, files), waiting=(*left, *waiting))

    def _ordered(self, stream: int, promise: Ordered, before: Promised, heard: Sequence[Heard]) -> Promised:
        kind, reached = self.plan.query.type_of(Column(stream, promise.field)), before.frontier
        for part in heard:
            reached = further(reached, part.frontier, kind, promise.falling)
        return before if reached == before.frontier else Promised(frontier=reached, batch=self.plan.batch)

    def _with(self, number: Number, before: Promised, files: tuple[MarkFile, ...]) -> Promised:
        """Return a promise with more tables of marks; the earlier ones are forgotten in time, or merged by size.

        [!] Not the new ones: no manifest names them yet, so that nobody would remove them.
        """
        recall, shape = self.plan.metadata.recall, shape_of(self.plan.query, self._source(number))
        kept = recall.kept(before.files)
        if files:
            kept = (*coalesced(self.plan.store, self._named(number, ""), kept, shape), *files)
        undated = [opened(self.plan.store, file, shape) for file in kept if file.era is None] if recall.dates else []
        since = max((int(marks.terms.since.max(initial=ALWAYS)) for marks in undated), default=ALWAYS)
        return replace(before, files=recall.dated(kept, since))

    def _clustered(self, number: Number, promise: Clustered, before: Promised, files: tuple[MarkFile, ...]) -> Promised:
        """Return a promise of clusters after a batch that brought some values.

        A value is over at the end of the (slack + 1)-th later batch that lacks it; batches that bring none don't count.
        """
        if not files:
            return self._with(number, before, ())
        runs = (*before.runs, files)
        if len(runs) <= promise.slack + 1:
            return self._with(number, replace(before, runs=runs), ())
        shape, (oldest, *later) = shape_of(self.plan.query, self._source(number)), runs
        values = self._read(oldest)[0].column(0)
        for run in later:
            seen = self._read(run)[0].column(0)
            known = Marks(shape, from_rows(shape, [seen], [seen], self.plan.batch))
            values = values.take(pa.array(np.flatnonzero(known.find([values]) < 0)))
        over = replace(before, runs=tuple(later))
        table = from_rows(shape, [values], [values], self.plan.batch)
        return self._with(number, over, (self._written(number, "over", table),) if len(values) else ())

    def _inherited(self, number: Number, promise: Inherited, before: Promised, denied: Denied) -> Promised:
        """Return an inherited promise after a batch in which the stream's join may have put punctuations out."""
        new, files = self.plan.metadata.inherited.get(number, ()), tuple[MarkFile, ...]()
        left = self._put_out(number, promise, before.waiting, denied)
        if new:
            rows, shape = self._read(new)[0], shape_of(self.plan.query, self._source(number))
            self.report.counts["inherited"] += rows.num_rows
            low, high = ([rows.column(f"{end}{at}") for at in range(len(promise.fields))] for end in ("low", "high"))
            table = from_rows(shape, low, high, self.plan.batch)
            files = (self._written(number, "heard", table),) if table.num_rows else ()
        return replace(
            self._with(number, before, files),
            waiting=(*left, *(new if number in self.plan.metadata.propagated else ())),
        )

    # -- what waits

    def _put_out(
        self, number: Number, promise: Speaking, waiting: tuple[MarkFile, ...], denied: Denied
    ) -> tuple[MarkFile, ...]:
        """Write the punctuations that may go to the output; return the files of those that wait on.

        [!] As long as results are owed, all of them wait.
        """
        if not waiting:
            return ()
        rows, plan, stream = self._read(waiting)[0], self.plan, number[0]
        stored = Stored(plan.query, plan.store, [c for c in plan.chunks if c.bucket.first and c.stream == stream])
        go = NONE if plan.spilling.owes else ready(promise, stream, rows, stored, denied.watermark, self.duck)
        if not len(go):
            return waiting if len(waiting) < MANY else (self._written(number, "left", rows),)
        self._on(number, promise, rows.take(pa.array(go)))
        return self._kept(number, rows, np.delete(np.arange(rows.num_rows), go))

    def _on(self, number: Number, promise: Speaking, rows: pa.RecordBatch) -> None:
        """Write punctuations to the output, but for those that an inner join has put out, and for an outer join."""
        query, stream = self.plan.query, number[0]
        if isinstance(promise, Punctuated) and propagates(query, stream, promise):
            self._side("punctuation", stream, shown(query, stream, promise, rows))
        if number in self.plan.metadata.propagated:
            self.report.propagated.append((number, self._written(number, "handed", handed(rows))))

    def _orphaned(self, number: Number, before: Promised, denied: Denied) -> tuple[MarkFile, ...]:
        """Write the rows that have turned out to be orphans; return the files of those that may yet be some.

        All foreign keys of a stream are looked at together, so that a row is told of once.
        """
        if not before.waiting:
            return ()
        rows, plan, stream = self._read(before.waiting)[0], self.plan, number[0]
        waiting, orphans = np.zeros(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
        for at_, promise in enumerate(plan.query.streams[stream].promises):
            if isinstance(promise, ForeignKey):
                found = self._judged((stream, at_), promise, rows, denied)
                waiting |= found.waiting
                self._sampled(stream, promise, rows.filter(pa.array(found.orphans & ~orphans)))
                orphans |= found.orphans
        if orphans.any():
            told = rows.filter(pa.array(orphans))
            self._side("orphan", stream, original_rows(plan.query.streams[stream], stream, told))
        return self._kept(number, rows, np.flatnonzero(waiting & ~orphans))

    def _judged(self, number: Number, promise: ForeignKey, rows: pa.RecordBatch, denied: Denied) -> Judged:
        """Return what became of rows that waited, by one of their foreign keys."""
        plan, values = self.plan, rows.column(f"s{number[0]}_{promise.field}")
        shape, accepted = shape_of(plan.query, self._source(number)), np.zeros(len(values), bool)
        for file in at(plan.metadata.constraints, *number).files:
            accepted |= opened(plan.store, file, shape).find([values]) >= 0
        return judged(values, accepted, parent_denied(plan.query, promise, values, denied))

    def _kept(self, number: Number, rows: pa.RecordBatch, left: Ints) -> tuple[MarkFile, ...]:
        return (self._written(number, "left", rows.take(pa.array(left))),) if len(left) else ()

    def _side(self, kind: str, stream: int, rows: pa.Table) -> None:
        """Count rows to be put out, and write them if anybody wants them."""
        self.report.counts[kind] += rows.num_rows
        if self.plan.intake.sides:
            path = f"sides/{self.plan.name}-{self.name}-{len(self.report.sides)}-{kind}-{stream}.parquet"
            write(self.plan.store, path, rows)
            self.report.sides.append((kind, stream, path))

    def _sampled(self, stream: int, promise: ForeignKey, rows: pa.RecordBatch) -> None:
        spec, wanted = self.plan.query.streams[stream], self.plan.observing.samples
        if wanted is not None and not wanted:
            return
        parent = self.plan.query.name_of(promise.parent)
        for number in range(min(rows.num_rows, SAMPLES)):
            value = value_at(rows.column(f"s{stream}_{promise.field}"), number)
            reason = f"no {parent} = {value} came, and none can come any more"
            row = sample_row(spec, stream, rows, number, wanted)
            self.report.samples.append({"kind": "orphan", "stream": spec.name, "reason": reason, "row": row})

    # -- files

    def _source(self, number: Number) -> Source:
        return number[0], self.plan.query.streams[number[0]].promises[number[1]]

    def _named(self, number: Number, what: str) -> str:
        return f"{self.plan.name}-{self.name}-{number[0]}-{number[1]}{what}"

    def _written(self, number: Number, what: str, table: pa.RecordBatch) -> MarkFile:
        return write_table(self.plan.store, self._named(number, f"-{what}"), table)

    def _read(self, files: Sequence[MarkFile]) -> list[pa.RecordBatch]:
        """Return the rows of some files as one block."""
        table = pa.concat_tables([pa.Table.from_batches([read_table(self.plan.store, file)]) for file in files])
        return table.combine_chunks().to_batches() or [read_table(self.plan.store, files[0])]


NONE = np.empty(0, np.int64)
MANY = 8
"""As many files of rows that wait become one."""
