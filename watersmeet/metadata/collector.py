"""Collects metadata at intake: the values of keys and runs, how far orders have come, and punctuations.

[!] Every row that isn't a punctuation counts, accepted or not: a late, denied or rejected row has its value as well.
Otherwise partners would wait for ever, and runs would end too early.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Mask, to_mask
from watersmeet.batch.plan import BatchPlan
from watersmeet.metadata.constraints import (
    Clustering,
    ConstraintId,
    FlaggedPunctuations,
    ForeignKey,
    Key,
    MarkFile,
    SortOrder,
    fields_of,
)
from watersmeet.metadata.denial import DeniedRows, shape_of, write_table
from watersmeet.metadata.marks import ALWAYS, Marks, build_table, merge_tables
from watersmeet.metadata.propagation import is_propagated, make_waiting_rows
from watersmeet.metadata.spans import Plain, find_furthest, lie_beyond, pick_further
from watersmeet.predicate.model import Column
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import TIME, TRACE


class ForeignKeyCheck(NamedTuple):
    """What became of rows that waited for a parent: which of them still wait, and which are orphans."""

    waiting: Mask
    orphans: Mask


def check_foreign_key(values: pa.Array, accepted: Mask, denied: Mask) -> ForeignKeyCheck:
    """Return what became of rows that waited, by the values of a foreign key.

    Args:
        values: The values of the foreign key; NULL has no parent and does not wait.
        accepted: Whether a parent with that value was accepted.
        denied: Whether no parent with that value can come any more.
    """
    open_ = values.is_valid().to_numpy(zero_copy_only=False) & ~accepted
    return ForeignKeyCheck(open_ & ~denied, open_ & denied)


def are_denied_by_parent(query: Query, constraint: ForeignKey, values: pa.Array, denied: DeniedRows) -> Mask:
    """Tell which values the parent stream denies, by constraints on the parent column alone."""
    parent, mask = constraint.parent, np.zeros(len(values), bool)
    for other in query.streams[parent.stream].constraints:
        source = parent.stream, other
        if isinstance(other, ForeignKey) or fields_of(other) != (parent.field,):
            continue
        if isinstance(other, SortOrder):
            limit = denied.frontiers.get(source)
            mask |= lie_beyond(values, other, limit) if limit is not None else False
        elif denied.marks.get(source):
            mask |= denied.find_marks(source, [values])[1] >= 0
    return mask


def foreign_keys_to(query: Query, parent: int) -> list[tuple[int, int, Column]]:
    """Return the foreign keys that refer to a stream: their stream and number, and the column of the parent."""
    return [
        (stream, number, constraint.parent)
        for stream, spec in enumerate(query.streams)
        for number, constraint in enumerate(spec.constraints)
        if isinstance(constraint, ForeignKey) and constraint.parent.stream == parent
    ]


class CollectedMetadata(NamedTuple):
    """What a task collected for one constraint.

    Attributes:
        file: New marks, or the values of a run; None if there are none.
        frontier: The furthest value of a sort order.
        waiting: Rows that are to wait: punctuations that may be emitted, rows whose parent may still come.
    """

    file: MarkFile | None = None
    frontier: Plain = None
    waiting: MarkFile | None = None


@dataclass
class MetadataCollector:
    """Collects metadata from the rows of one task attempt.

    Attributes:
        plan: The batch's plan.
        name: Unique to the task attempt.
    """

    plan: BatchPlan
    name: str
    _tables: dict[ConstraintId, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    _values: dict[ConstraintId, list[pa.Array]] = field(default_factory=lambda: defaultdict(list))
    _frontiers: dict[ConstraintId, Plain] = field(default_factory=dict)
    _waiting: dict[ConstraintId, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))

    def add_time_column(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows, with their event time in its own type added if a constraint reads it."""
        spec = self.plan.query.streams[stream]
        if spec.time not in self.plan.query.constraint_columns[stream]:
            return rows
        return rows.append_column(f"s{stream}_{spec.time}", rows.column(TIME).cast(spec.time_type))

    def find_punctuations(self, stream: int, rows: pa.RecordBatch) -> Mask:
        """Tell which rows of a stream are punctuations."""
        mask = np.zeros(rows.num_rows, bool)
        for constraint in self.plan.query.streams[stream].constraints:
            if isinstance(constraint, FlaggedPunctuations):
                mask |= are_flagged(rows, stream, constraint)
        return mask

    def collect_data(self, stream: int, rows: pa.RecordBatch) -> None:
        """Collect for keys, clusterings and orders the values of rows that aren't punctuations, accepted or not."""
        for number, constraint in enumerate(self.plan.query.streams[stream].constraints):
            at = stream, number
            match constraint:
                case Key(fields):
                    self._add_marks(at, [rows.column(f"s{stream}_{field}") for field in fields])
                case Clustering(field):
                    self._values[at] = [_distinct_values(*self._values[at], rows.column(f"s{stream}_{field}"))]
                case SortOrder(field, falling):
                    kind = self.plan.query.type_of(Column(stream, field))
                    reached = find_furthest(rows.column(f"s{stream}_{field}"), falling)
                    self._frontiers[at] = pick_further(self._frontiers.get(at), reached, kind, falling)

    def find_incomplete(self, stream: int, rows: pa.RecordBatch) -> Mask:
        """Tell which punctuations lack a value that their patterns require: NULL is never a wildcard."""
        mask = np.zeros(rows.num_rows, bool)
        for constraint in self.plan.query.streams[stream].constraints:
            if isinstance(constraint, FlaggedPunctuations):
                ends = {end for pattern in constraint.patterns for end in (pattern.low, pattern.high)}
                nulls = [pc.is_null(rows.column(f"s{stream}_{end}")).to_numpy(zero_copy_only=False) for end in ends]
                mask |= are_flagged(rows, stream, constraint) & np.logical_or.reduce(nulls)
        return mask

    def collect_punctuations(self, stream: int, rows: pa.RecordBatch) -> None:
        """Collect the marks of a block's punctuations, and the rows of those that may have to be passed on later."""
        for number, constraint in enumerate(self.plan.query.streams[stream].constraints):
            if isinstance(constraint, FlaggedPunctuations):
                mine = rows.filter(pa.array(are_flagged(rows, stream, constraint)))
                low, high = (
                    [mine.column(f"s{stream}_{getattr(pattern, end)}") for pattern in constraint.patterns]
                    for end in ("low", "high")
                )
                since = mine.column(TIME).to_numpy() if constraint.effect == "watermark" else ALWAYS
                self._add_marks((stream, number), low, high, since)
                if mine.num_rows and self._is_passed_on((stream, number), constraint):
                    self._waiting[stream, number].append(make_waiting_rows(constraint, stream, mine, since))

    def _is_passed_on(self, at: ConstraintId, constraint: FlaggedPunctuations) -> bool:
        return at in self.plan.metadata.propagated or is_propagated(self.plan.query, at[0], constraint)

    def collect_accepted(self, stream: int, rows: pa.RecordBatch) -> None:
        """Collect accepted rows: they are parents of others, or wait for their own parents."""
        for child, number, column in foreign_keys_to(self.plan.query, stream):
            self._add_marks((child, number), [rows.column(column.name)])
        foreign = self._foreign_keys(stream)
        if foreign and rows.num_rows:
            has_parent = [pc.is_valid(rows.column(f"s{stream}_{field}")) for field in foreign.values()]
            waiting = rows.select([name for name in rows.schema.names if name != TRACE])
            self._waiting[stream, next(iter(foreign))].append(waiting.filter(reduce(pc.or_, has_parent)))

    def _foreign_keys(self, stream: int) -> dict[int, int]:
        """Return the columns of a stream's foreign keys, by number; the first one has the rows that wait for any."""
        constraints = enumerate(self.plan.query.streams[stream].constraints)
        return {number: constraint.field for number, constraint in constraints if isinstance(constraint, ForeignKey)}

    def _add_marks(
        self,
        at: ConstraintId,
        low: list[pa.Array],
        high: list[pa.Array] | None = None,
        since: NDArray[np.int64] | int = ALWAYS,
    ) -> None:
        """Add closed intervals of a constraint's columns to its table of marks; without `high`, single values.

        They take effect once the watermark has passed `since`, in microseconds.
        """
        shape = shape_of(self.plan.query, (at[0], self.plan.query.streams[at[0]].constraints[at[1]]))
        table = build_table(shape, low, low if high is None else high, self.plan.batch, since)
        if table.num_rows:
            parts = [Marks(shape, part) for part in (*self._tables[at], table)]
            self._tables[at] = [merge_tables(parts) if len(parts) > 1 else table]

    def finish(self) -> dict[ConstraintId, CollectedMetadata]:
        """Write what was collected to files, and return it by constraint."""
        collected = {
            at: CollectedMetadata(frontier=reached) for at, reached in self._frontiers.items() if reached is not None
        }
        tables = {at: parts[0] for at, parts in self._tables.items() if parts}
        tables |= {
            at: pa.record_batch(values, ["value"]) for at, values in self._values.items() if values and len(values[0])
        }
        for at, table in tables.items():
            collected[at] = CollectedMetadata(self._write(at, "heard", table))
        for at, parts in self._waiting.items():
            table = pa.Table.from_batches(parts).combine_chunks().to_batches()
            if table:
                collected[at] = collected.get(at, CollectedMetadata())._replace(
                    waiting=self._write(at, "waiting", table[0])
                )
        return collected

    def _write(self, at: ConstraintId, what: str, table: pa.RecordBatch) -> MarkFile:
        return write_table(self.plan.store, f"{self.plan.name}-{self.name}-{what}-{at[0]}-{at[1]}", table)


def are_flagged(rows: pa.RecordBatch, stream: int, constraint: FlaggedPunctuations) -> Mask:
    """Tell which rows are punctuations of one kind; a flag that is NULL means data."""
    return to_mask(rows.column(f"s{stream}_{constraint.flag}"))


def _distinct_values(*parts: pa.Array) -> pa.Array:
    """Return the distinct values of some arrays without NULL; values that are equal in SQL are one."""
    together = pa.concat_arrays(parts).drop_null()
    if pa.types.is_floating(together.type):
        numbers = together.to_numpy(zero_copy_only=False) + 0.0
        together = pa.array(np.where(np.isnan(numbers), np.nan, numbers), together.type)
    return pc.unique(together)
