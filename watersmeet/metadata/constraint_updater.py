"""Updates the state of constraints at the end of a batch: what was collected is denied from the next batch on.

Rows that wait are checked as well: punctuations that may now be emitted, and rows that have turned out to be orphans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.side_outputs import SAMPLES, original_rows, sample_row, write
from watersmeet.formatting import value_at
from watersmeet.metadata.collector import CollectedMetadata, ForeignKeyCheck, are_denied_by_parent, check_foreign_key
from watersmeet.metadata.constraints import (
    Clustering,
    ConstraintId,
    ConstraintState,
    FlaggedPunctuations,
    ForeignKey,
    InheritedPunctuations,
    MarkFile,
    PunctuationScheme,
    SortOrder,
    state_of,
)
from watersmeet.metadata.denial import (
    DeniedRows,
    StreamConstraint,
    coalesce_files,
    open_marks,
    read_table,
    shape_of,
    write_table,
)
from watersmeet.metadata.marks import ALWAYS, Marks, build_table
from watersmeet.metadata.plan import MetadataReport
from watersmeet.metadata.propagation import find_ready, is_propagated, make_inherited_rows, make_output_rows
from watersmeet.metadata.spans import pick_further
from watersmeet.metadata.stored_columns import StoredColumns
from watersmeet.predicate.model import Column
from watersmeet.probe.evaluators.duck import Duck


@dataclass
class ConstraintUpdater:
    """Computes the new state of all constraints from what the intake tasks collected; one task of a batch does this.

    Attributes:
        plan: The batch's plan.
        name: Unique to the task attempt.
        duck: Finds the tuples that match.
        report: What was done; among its counts, `inherited` are the punctuations of inner joins.
    """

    plan: BatchPlan
    name: str
    duck: Duck
    report: MetadataReport = field(
        default_factory=lambda: MetadataReport(counts={"punctuation": 0, "orphan": 0, "inherited": 0})
    )

    def update(self, collected: Sequence[Mapping[ConstraintId, CollectedMetadata]]) -> MetadataReport:
        """Write what changed and return the report, with the state of the constraints of all streams after the batch.

        Args:
            collected: What each intake task collected.
        """
        denied = self.plan.denied()
        self.report.constraints = tuple(
            tuple(
                self._update_one((stream, at), denied, [part[stream, at] for part in collected if (stream, at) in part])
                for at in range(len(spec.constraints))
            )
            for stream, spec in enumerate(self.plan.query.streams)
        )
        return self.report

    def _update_one(
        self, constraint_id: ConstraintId, denied: DeniedRows, collected: Sequence[CollectedMetadata]
    ) -> ConstraintState:
        """Return the state of one constraint after the batch.

        Reads and writes mark files in the store; for punctuations writes those now ready, for foreign keys the rows
        found to be orphans, and adds both to `report`.

        Args:
            constraint_id: The constraint.
            denied: What was denied before the batch.
            collected: What the intake tasks collected for this constraint.
        """
        stream, constraint = constraint_id[0], self.plan.query.streams[constraint_id[0]].constraints[constraint_id[1]]
        before = state_of(self.plan.metadata.constraints, *constraint_id)
        files = tuple(part.file for part in collected if part.file is not None)
        waiting = tuple(part.waiting for part in collected if part.waiting is not None)
        match constraint:
            case SortOrder():
                return self._update_order(stream, constraint, before, collected)
            case Clustering():
                return self._update_clusters(constraint_id, constraint, before, files)
            case InheritedPunctuations():
                return self._update_inherited(constraint_id, constraint, before, denied)
            case FlaggedPunctuations():
                rest = self._emit_ready(constraint_id, constraint, before.waiting, denied)
            case ForeignKey():
                rest = self._report_orphans(constraint_id, before, denied)
            case _:
                rest = ()
        return replace(self._add_files(constraint_id, before, files), waiting=(*rest, *waiting))

    def _update_order(
        self, stream: int, constraint: SortOrder, before: ConstraintState, collected: Sequence[CollectedMetadata]
    ) -> ConstraintState:
        """Return the state of an order, with the furthest value that any intake task has seen, if it is further."""
        kind, reached = self.plan.query.type_of(Column(stream, constraint.field)), before.frontier
        for part in collected:
            reached = pick_further(reached, part.frontier, kind, constraint.falling)
        return before if reached == before.frontier else ConstraintState(frontier=reached, batch=self.plan.batch)

    def _add_files(
        self, constraint_id: ConstraintId, before: ConstraintState, files: tuple[MarkFile, ...]
    ) -> ConstraintState:
        """Return a state with new mark files, and without those whose lifetime is over; deletes no file.

        If there are new files, earlier ones of similar size are merged, once enough, into new files in the store. If
        marks have a lifetime, files without an era are read, and dated by the watermark or by when their last mark
        takes effect.

        [!] New files are not merged: no manifest names them yet, so that nothing would remove them.
        """
        lifetime, shape = self.plan.metadata.lifetime, shape_of(self.plan.query, self._source(constraint_id))
        remembered = lifetime.select_remembered(before.files)
        if files:
            remembered = (
                *coalesce_files(self.plan.store, self._file_name(constraint_id, ""), remembered, shape),
                *files,
            )
        undated = [file for file in remembered if file.era is None] if lifetime.dates_marks else []
        terms = [open_marks(self.plan.store, file, shape).terms for file in undated]
        since = max((int(each.since.max(initial=ALWAYS)) for each in terms), default=ALWAYS)
        return replace(before, files=lifetime.date_files(remembered, since))

    def _update_clusters(
        self, constraint_id: ConstraintId, constraint: Clustering, before: ConstraintState, files: tuple[MarkFile, ...]
    ) -> ConstraintState:
        """Return the state of a clustering after a batch; writes a mark file of the values whose run has ended.

        The run of a value ends with the (slack + 1)-th later batch that lacks it; batches without any values don't
        count. Reads the batches' files only once there are enough of them.
        """
        if not files:
            return self._add_files(constraint_id, before, ())
        runs = (*before.runs, files)
        if len(runs) <= constraint.slack + 1:
            return self._add_files(constraint_id, replace(before, runs=runs), ())
        shape, (oldest, *later) = shape_of(self.plan.query, self._source(constraint_id)), runs
        values = self._read(oldest)[0].column(0)
        for run in later:
            present = self._read(run)[0].column(0)
            marks = Marks(shape, build_table(shape, [present], [present], self.plan.batch))
            values = values.take(pa.array(np.flatnonzero(marks.find([values]) < 0)))
        after, table = replace(before, runs=tuple(later)), build_table(shape, [values], [values], self.plan.batch)
        return self._add_files(
            constraint_id, after, (self._write(constraint_id, "over", table),) if len(values) else ()
        )

    def _update_inherited(
        self,
        constraint_id: ConstraintId,
        constraint: InheritedPunctuations,
        before: ConstraintState,
        denied: DeniedRows,
    ) -> ConstraintState:
        """Return the state of inherited punctuations after a batch in which the inner join may have emitted some.

        Writes their marks, emits those that are ready, and counts them in the report.
        """
        new, files = self.plan.metadata.inherited.get(constraint_id, ()), tuple[MarkFile, ...]()
        rest = self._emit_ready(constraint_id, constraint, before.waiting, denied)
        if new:
            rows, shape = self._read(new)[0], shape_of(self.plan.query, self._source(constraint_id))
            self.report.counts["inherited"] += rows.num_rows
            low, high = ([rows.column(f"{end}{at}") for at in range(len(constraint.fields))] for end in ("low", "high"))
            table = build_table(shape, low, high, self.plan.batch)
            files = (self._write(constraint_id, "heard", table),) if table.num_rows else ()
        return replace(
            self._add_files(constraint_id, before, files),
            waiting=(*rest, *(new if constraint_id in self.plan.metadata.propagated else ())),
        )

    # -- what waits

    def _emit_ready(
        self,
        constraint_id: ConstraintId,
        constraint: PunctuationScheme,
        waiting: tuple[MarkFile, ...],
        denied: DeniedRows,
    ) -> tuple[MarkFile, ...]:
        """Write the punctuations that may be emitted, and return the files of those that still wait.

        These are new files if some were emitted, or once there are many.

        [!] As long as results are owed, all of them wait.
        """
        if not waiting:
            return ()
        rows, plan, stream = self._read(waiting)[0], self.plan, constraint_id[0]
        ready = np.empty(0, np.int64)
        if not plan.spilling.owes:
            chunks = [chunk for chunk in plan.chunks if chunk.bucket.first and chunk.stream == stream]
            stored = StoredColumns(plan.query, plan.store, chunks)
            ready = find_ready(constraint, stream, rows, stored, denied.watermark, self.duck)
        if not len(ready):
            return waiting if len(waiting) < MERGED_FILES else (self._write(constraint_id, "left", rows),)
        self._pass_on(constraint_id, constraint, rows.take(pa.array(ready)))
        return self._write_rest(constraint_id, rows, np.delete(np.arange(rows.num_rows), ready))

    def _pass_on(self, constraint_id: ConstraintId, constraint: PunctuationScheme, rows: pa.RecordBatch) -> None:
        """Write punctuations to the output unless they are inherited, and to a file if an outer join inherits them.

        The report counts them, and names the files.
        """
        query, stream = self.plan.query, constraint_id[0]
        if isinstance(constraint, FlaggedPunctuations) and is_propagated(query, stream, constraint):
            self._write_side_output("punctuation", stream, make_output_rows(query, stream, constraint, rows))
        if constraint_id in self.plan.metadata.propagated:
            self.report.propagated.append(
                (constraint_id, self._write(constraint_id, "handed", make_inherited_rows(rows)))
            )

    def _report_orphans(
        self, constraint_id: ConstraintId, before: ConstraintState, denied: DeniedRows
    ) -> tuple[MarkFile, ...]:
        """Write the rows that turned out to be orphans, and report samples; return the files of those that still wait.

        All foreign keys of a stream are checked together, so that each row is reported once.
        """
        if not before.waiting:
            return ()
        rows, plan, stream = self._read(before.waiting)[0], self.plan, constraint_id[0]
        waiting, orphans = np.zeros(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
        for number, constraint in enumerate(plan.query.streams[stream].constraints):
            if isinstance(constraint, ForeignKey):
                check = self._check((stream, number), constraint, rows, denied)
                waiting |= check.waiting
                self._add_samples(stream, constraint, rows.filter(pa.array(check.orphans & ~orphans)))
                orphans |= check.orphans
        if orphans.any():
            reported = original_rows(plan.query.streams[stream], stream, rows.filter(pa.array(orphans)))
            self._write_side_output("orphan", stream, reported)
        return self._write_rest(constraint_id, rows, np.flatnonzero(waiting & ~orphans))

    def _check(
        self, constraint_id: ConstraintId, constraint: ForeignKey, rows: pa.RecordBatch, denied: DeniedRows
    ) -> ForeignKeyCheck:
        """Return what became of waiting rows, by one of their foreign keys; reads the marks of accepted parents."""
        plan, values = self.plan, rows.column(f"s{constraint_id[0]}_{constraint.field}")
        shape, accepted = shape_of(plan.query, self._source(constraint_id)), np.zeros(len(values), bool)
        for file in state_of(plan.metadata.constraints, *constraint_id).files:
            accepted |= open_marks(plan.store, file, shape).find([values]) >= 0
        return check_foreign_key(values, accepted, are_denied_by_parent(plan.query, constraint, values, denied))

    def _write_rest(self, constraint_id: ConstraintId, rows: pa.RecordBatch, positions: Ints) -> tuple[MarkFile, ...]:
        return (self._write(constraint_id, "left", rows.take(pa.array(positions))),) if len(positions) else ()

    def _write_side_output(self, kind: str, stream: int, rows: pa.Table) -> None:
        """Count rows for a side output, and if there is one, write them to a file that the report names."""
        self.report.counts[kind] += rows.num_rows
        if self.plan.intake.sides:
            path = f"sides/{self.plan.name}-{self.name}-{len(self.report.sides)}-{kind}-{stream}.parquet"
            write(self.plan.store, path, rows)
            self.report.sides.append((kind, stream, path))

    def _add_samples(self, stream: int, constraint: ForeignKey, rows: pa.RecordBatch) -> None:
        """Add the first rows to the report's samples as orphans; none if samples show no columns."""
        spec, visible = self.plan.query.streams[stream], self.plan.observing.samples
        if visible is not None and not visible:
            return
        parent = self.plan.query.name_of(constraint.parent)
        for position in range(min(rows.num_rows, SAMPLES)):
            value = value_at(rows.column(f"s{stream}_{constraint.field}"), position)
            reason = f"no {parent} = {value} came, and none can come any more"
            row = sample_row(spec, stream, rows, position, visible)
            self.report.samples.append({"kind": "orphan", "stream": spec.name, "reason": reason, "row": row})

    # -- files

    def _source(self, constraint_id: ConstraintId) -> StreamConstraint:
        return constraint_id[0], self.plan.query.streams[constraint_id[0]].constraints[constraint_id[1]]

    def _file_name(self, constraint_id: ConstraintId, what: str) -> str:
        return f"{self.plan.name}-{self.name}-{constraint_id[0]}-{constraint_id[1]}{what}"

    def _write(self, constraint_id: ConstraintId, what: str, table: pa.RecordBatch) -> MarkFile:
        return write_table(self.plan.store, self._file_name(constraint_id, f"-{what}"), table)

    def _read(self, files: Sequence[MarkFile]) -> list[pa.RecordBatch]:
        """Return the rows of some files as one block."""
        table = pa.concat_tables([pa.Table.from_batches([read_table(self.plan.store, file)]) for file in files])
        return table.combine_chunks().to_batches() or [read_table(self.plan.store, files[0])]


MERGED_FILES = 8
"""Once this many files of waiting rows have come together, they are merged into one."""
