"""Tallies of groups: the results that contain their rows, at their own join and at the root of the tree."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.limits import limits
from watersmeet.probe.chunk_table import ChunkTable, Target
from watersmeet.probe.partials import ROW_BITS, Partials, references
from watersmeet.query.query import TRACE_TYPE
from watersmeet.spilling.plan import SpillingReport
from watersmeet.spilling.units import Group, Tally, group_of


def code_of(path: str, group: Group) -> int:
    """Return the code of a group: the same in every process.

    >>> code_of("j_0", Group(4, 1, 0)) == code_of("j_0", Group(4, 1, 0)) != code_of("j_1", Group(4, 1, 0))
    True

    Args:
        path: The path of its join in the tree.
        group: The group.
    """
    text = f"{path} {group.of} {group.partition} {group.start}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1


def codes_of(path: str, groups: Iterable[Group]) -> dict[int, Group]:
    """Return the groups of a join by their codes."""
    return {code_of(path, group): group for group in groups}


class Tallies:
    """Counts the results of a task for the groups that they came from, as far as the plan asks for it.

    A result counts fully for each group that has a member of it, but only once, as in Jbantova 2007, section 3.2.

    Args:
        plan: The batch's plan.
        table: The chunks of the task, and the traces of their rows.
    """

    def __init__(self, plan: BatchPlan, table: ChunkTable) -> None:
        self._plan, self._table = plan, table
        self._final = plan.query.tracing != "results"
        self._numbers: dict[int, int] = {}
        self._groups: dict[Group, int] = {}
        self._codes: list[int] = []
        self._results: Counter[int] = Counter()
        self.credits: Counter[int] = Counter()
        """Final results, by the codes of the groups of inner joins that they came from."""

    def note(self, results: Partials) -> None:
        """Count results by the groups of their members, and credit final ones to the groups of inner joins."""
        if self._plan.spilling.counts_groups and len(results):
            self._results.update(_count(self._members(results)[1]))
        for stream in self._plan.spilling.traced if self._final else ():
            self.credits.update(_count(self._table.traces(results.rows[stream])[1]))

    def groups(self, pairs: Mapping[int, int]) -> dict[Group, Tally]:
        """Return the tallies of the task, without those that are zero.

        Args:
            pairs: The number of pairs examined, by the number of the chunk.
        """
        examined: Counter[int] = Counter()
        for number, count in pairs.items():
            examined[self._number(number)] += count
        tallies = {group: Tally(examined[at], self._results[at]) for group, at in self._groups.items()}
        return {group: tally for group, tally in tallies.items() if any(tally)}

    def traces(self, block: Partials) -> pa.Array:
        """Return the codes of the groups that each result came from, those of this join first."""
        at, groups = self._members(block)
        inner = [self._table.traces(block.rows[stream]) for stream in sorted(self._plan.spilling.traced)]
        own = np.array(self._codes, np.int64)[groups]
        results = np.concatenate([at, *(places for places, _ in inner)])
        codes = np.concatenate([own, *(inner_codes for _, inner_codes in inner)])
        ends = np.cumsum(np.bincount(results, minlength=len(block)))
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.array(codes[np.argsort(results, kind="stable")]), TRACE_TYPE)

    def crossings(self, fresh: Sequence[Target]) -> dict[tuple[int, int], int]:
        """Return how many of a sample of inner joins' results came from each group and went to each partition here.

        Every so-many-th row of a stream is in the sample, however the stream is cut into batches.

        Args:
            fresh: The chunks of the batch's new tuples.
        """
        crossings: Counter[tuple[int, int]] = Counter()
        every, slice = limits().crossing_rows, self._plan.spilling.slice
        for stream in self._plan.spilling.traced:
            arrived = self._plan.intake.arrived[stream]
            targets = [target for target in fresh if target.chunk.stream == stream and target.chunk.bucket.first]
            for target in sorted(targets, key=lambda at: (at.chunk.low, at.chunk.bucket.number, at.chunk.id)):
                sample = references(target.number, np.arange(-arrived % every, target.chunk.rows, every))
                partition = group_of(target.chunk, slice).partition
                for code, count in _count(self._table.traces(sample)[1]).items():
                    crossings[code, partition] += count
                arrived += target.chunk.rows
        return dict(crossings)

    def _members(self, block: Partials) -> tuple[Ints, Ints]:
        """Return the distinct pairs of a result's position and the number of a group that a member of it is in."""
        groups = np.sort(np.stack([self._group_numbers(refs >> ROW_BITS) for refs in block.rows.values()]), axis=0)
        is_first = np.ones(groups.shape, bool)
        is_first[1:] = groups[1:] != groups[:-1]
        return np.nonzero(is_first)[1], groups[is_first]

    def _group_numbers(self, chunks: Ints) -> Ints:
        """Return the numbers of the groups of chunks, which are given by number, too."""
        numbers, inverse = np.unique(chunks, return_inverse=True)
        return np.array([self._number(number) for number in numbers.tolist()], np.int64)[inverse]

    def _number(self, chunk: int) -> int:
        """Return the number of a chunk's group in this task; assigns one to a group that has none yet."""
        if chunk not in self._numbers:
            group = group_of(self._table.chunk(chunk), self._plan.spilling.slice)
            if group not in self._groups:
                self._groups[group] = len(self._codes)
                self._codes.append(code_of(self._plan.spilling.path, group))
            self._numbers[chunk] = self._groups[group]
        return self._numbers[chunk]


def add_spark_results(plan: BatchPlan, reports: Sequence[TaskReport], codes: Iterable[Mapping[int, int]]) -> None:
    """Add results that Spark decided on to the tallies that tasks reported; changes the first report.

    Args:
        plan: The plan of their join.
        reports: The reports of its tasks.
        codes: For each of Spark's tasks, how many of these results came from each group, by its code.
    """
    totals = sum(map(Counter, codes), Counter[int]())
    fresh = (chunk for report in reports for chunk in report.state.fresh)
    spilling = plan.spilling
    alive = {group_of(chunk, spilling.slice) for chunk in (*plan.chunks, *fresh)} if totals else set()
    own = codes_of(spilling.path, alive)
    groups = {own[c]: Tally(results=count) for c, count in totals.items() if c in own and spilling.counts_groups}
    inner = {code: count for code, count in totals.items() if code not in own and plan.query.tracing == "pending"}
    reports[0].spilling.add(SpillingReport(groups=groups, credits=inner))


def count_codes(traces: pa.Array) -> dict[int, int]:
    """Return how many traces contain each code."""
    return _count(traces.flatten().to_numpy(zero_copy_only=False))


def _count(numbers: Ints) -> dict[int, int]:
    distinct, counts = np.unique(numbers, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))
