"""What intake hears of metadata: values that keys have had, how far orders have come, runs, punctuations.

[!] Every row that isn't a punctuation counts, whatever becomes of it: a late, a denied or a rejected row has the value,
too. Otherwise partners would wait for ever, and runs end too early.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Mask
from watersmeet.batch.plan import BatchPlan
from watersmeet.metadata.constraint_state import MarkFile
from watersmeet.metadata.constraints import Clustering, FlaggedPunctuations, ForeignKey, Key, SortOrder
from watersmeet.metadata.denial import Denied, fields_of, shape_of
from watersmeet.metadata.frontiers import Plain, beyond, further, furthest
from watersmeet.metadata.mark_files import write_table
from watersmeet.metadata.marks import ALWAYS, Marks, from_rows, merged
from watersmeet.metadata.plan import Number
from watersmeet.metadata.propagation import propagates, said
from watersmeet.predicate.model import Column
from watersmeet.query.query import Query
from watersmeet.state.chunks.rows import TIME, TRACE


class Judged(NamedTuple):
    """What became of rows that waited: those that still do, and those that are orphans."""

    waiting: Mask
    orphans: Mask


def judged(values: pa.Array, accepted: Mask, denied: Mask) -> Judged:
    """Return what became of rows, by their parents' values.

    Args:
        values: The values of the foreign key; NULL has no parent and waits for none.
        accepted: Whether a parent of that value was accepted.
        denied: Whether none can come any more.
    """
    open_ = values.is_valid().to_numpy(zero_copy_only=False) & ~accepted
    return Judged(open_ & ~denied, open_ & denied)


def parent_denied(query: Query, promise: ForeignKey, values: pa.Array, denied: Denied) -> Mask:
    """Tell which values the parent stream has denied, by promises about that one column."""
    parent, found = promise.parent, np.zeros(len(values), bool)
    for given in query.streams[parent.stream].constraints:
        source = parent.stream, given
        if isinstance(given, ForeignKey) or fields_of(given) != (parent.field,):
            continue
        if isinstance(given, SortOrder):
            limit = denied.frontiers.get(source)
            found |= beyond(values, given, limit) if limit is not None else False
        elif denied.marks.get(source):
            found |= denied.find(source, [values])[1] >= 0
    return found


def children(query: Query, parent: int) -> list[tuple[int, int, Column]]:
    """Return the foreign keys that refer to a stream: stream and number of the promise, and the parent's column."""
    return [
        (stream, number, promise.parent)
        for stream, spec in enumerate(query.streams)
        for number, promise in enumerate(spec.constraints)
        if isinstance(promise, ForeignKey) and promise.parent.stream == parent
    ]


class Heard(NamedTuple):
    """What a task heard of a promise.

    Attributes:
        file: The marks that it makes, or the values of runs; None if there are none.
        frontier: The furthest value of an order.
        waiting: Rows that are to wait: punctuations that may go to the output, rows whose parent may still come.
    """

    file: MarkFile | None = None
    frontier: Plain = None
    waiting: MarkFile | None = None


@dataclass
class Hearing:
    """Listens to the rows of one task attempt.

    Attributes:
        plan: The batch's plan.
        name: Unique to the task attempt.
    """

    plan: BatchPlan
    name: str
    _tables: dict[Number, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    _values: dict[Number, list[pa.Array]] = field(default_factory=lambda: defaultdict(list))
    _frontiers: dict[Number, Plain] = field(default_factory=dict)
    _waiting: dict[Number, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))

    def timed(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with their event time in its own type as well, if a promise is about it."""
        spec = self.plan.query.streams[stream]
        if spec.time not in self.plan.query.constraint_columns[stream]:
            return rows
        return rows.append_column(f"s{stream}_{spec.time}", rows.column(TIME).cast(spec.time_type))

    def punctuations(self, stream: int, rows: pa.RecordBatch) -> Mask:
        """Tell which rows of a stream are punctuations."""
        found = np.zeros(rows.num_rows, bool)
        for promise in self.plan.query.streams[stream].constraints:
            if isinstance(promise, FlaggedPunctuations):
                found |= flagged(rows, stream, promise)
        return found

    def data(self, stream: int, rows: pa.RecordBatch) -> None:
        """Listen to rows that aren't punctuations, whatever becomes of them."""
        for number, promise in enumerate(self.plan.query.streams[stream].constraints):
            at = stream, number
            match promise:
                case Key(fields):
                    self._marks(at, [rows.column(f"s{stream}_{field}") for field in fields])
                case Clustering(field):
                    self._values[at] = [_distinct(*self._values[at], rows.column(f"s{stream}_{field}"))]
                case SortOrder(field, falling):
                    kind = self.plan.query.type_of(Column(stream, field))
                    reached = furthest(rows.column(f"s{stream}_{field}"), falling)
                    self._frontiers[at] = further(self._frontiers.get(at), reached, kind, falling)

    def incomplete(self, stream: int, rows: pa.RecordBatch) -> Mask:
        """Tell which punctuations lack a value that their patterns need: NULL is never a wildcard."""
        found = np.zeros(rows.num_rows, bool)
        for promise in self.plan.query.streams[stream].constraints:
            if isinstance(promise, FlaggedPunctuations):
                ends = {end for pattern in promise.patterns for end in (pattern.low, pattern.high)}
                nulls = [pc.is_null(rows.column(f"s{stream}_{end}")).to_numpy(zero_copy_only=False) for end in ends]
                found |= flagged(rows, stream, promise) & np.logical_or.reduce(nulls)
        return found

    def said(self, stream: int, rows: pa.RecordBatch) -> None:
        """Listen to punctuations."""
        for number, promise in enumerate(self.plan.query.streams[stream].constraints):
            if isinstance(promise, FlaggedPunctuations):
                mine = rows.filter(pa.array(flagged(rows, stream, promise)))
                low, high = (
                    [mine.column(f"s{stream}_{getattr(pattern, end)}") for pattern in promise.patterns]
                    for end in ("low", "high")
                )
                since = mine.column(TIME).to_numpy() if promise.effect == "watermark" else ALWAYS
                self._marks((stream, number), low, high, since)
                if mine.num_rows and self._goes_on((stream, number), promise):
                    self._waiting[stream, number].append(said(promise, stream, mine, since))

    def _goes_on(self, at: Number, promise: FlaggedPunctuations) -> bool:
        return at in self.plan.metadata.propagated or propagates(self.plan.query, at[0], promise)

    def accepted(self, stream: int, rows: pa.RecordBatch) -> None:
        """Listen to rows that are accepted: they are parents of others, or wait for their own."""
        for child, number, column in children(self.plan.query, stream):
            self._marks((child, number), [rows.column(column.name)])
        foreign = self._foreign(stream)
        if foreign and rows.num_rows:
            known = [pc.is_valid(rows.column(f"s{stream}_{field}")) for field in foreign.values()]
            waiting = rows.select([name for name in rows.schema.names if name != TRACE])
            self._waiting[stream, next(iter(foreign))].append(waiting.filter(reduce(pc.or_, known)))

    def _foreign(self, stream: int) -> dict[int, int]:
        """Return the columns of a stream's foreign keys, by their numbers; the first has the rows that wait for all."""
        promises = enumerate(self.plan.query.streams[stream].constraints)
        return {number: promise.field for number, promise in promises if isinstance(promise, ForeignKey)}

    def _marks(
        self,
        at: Number,
        low: list[pa.Array],
        high: list[pa.Array] | None = None,
        since: NDArray[np.int64] | int = ALWAYS,
    ) -> None:
        shape = shape_of(self.plan.query, (at[0], self.plan.query.streams[at[0]].constraints[at[1]]))
        table = from_rows(shape, low, low if high is None else high, self.plan.batch, since)
        if table.num_rows:
            known = [Marks(shape, part) for part in (*self._tables[at], table)]
            self._tables[at] = [merged(known) if len(known) > 1 else table]

    def finish(self) -> dict[Number, Heard]:
        """Write what was heard, and say where it is."""
        found = {at: Heard(frontier=reached) for at, reached in self._frontiers.items() if reached is not None}
        tables = {at: parts[0] for at, parts in self._tables.items() if parts}
        tables |= {
            at: pa.record_batch(values, ["value"]) for at, values in self._values.items() if values and len(values[0])
        }
        for at, table in tables.items():
            found[at] = Heard(self._written(at, "heard", table))
        for at, parts in self._waiting.items():
            table = pa.Table.from_batches(parts).combine_chunks().to_batches()
            if table:
                found[at] = found.get(at, Heard())._replace(waiting=self._written(at, "waiting", table[0]))
        return found

    def _written(self, at: Number, what: str, table: pa.RecordBatch) -> MarkFile:
        return write_table(self.plan.store, f"{self.plan.name}-{self.name}-{what}-{at[0]}-{at[1]}", table)


def flagged(rows: pa.RecordBatch, stream: int, promise: FlaggedPunctuations) -> Mask:
    """Tell which rows are punctuations of a kind; a flag that is NULL means data."""
    flag = rows.column(f"s{stream}_{promise.flag}")
    mask: Mask = pc.fill_null(flag, False).to_numpy(zero_copy_only=False)
    return mask


def _distinct(*parts: pa.Array) -> pa.Array:
    """Return the values of some arrays, each once, without NULL; those that SQL calls equal are one."""
    together = pa.concat_arrays(parts).drop_null()
    if pa.types.is_floating(together.type):
        numbers = together.to_numpy(zero_copy_only=False) + 0.0
        together = pa.array(np.where(np.isnan(numbers), np.nan, numbers), together.type)
    return pc.unique(together)
