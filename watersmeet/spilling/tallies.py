"""What groups are worth: the results that their rows are part of, at their own join and at the root of a tree."""

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
    """Return the code of a group: the same wherever it is computed.

    >>> code_of("j_0", Group(4, 1, 0)) == code_of("j_0", Group(4, 1, 0)) != code_of("j_1", Group(4, 1, 0))
    True

    Args:
        path: Where its join stands in the tree.
        group: The group.
    """
    text = f"{path} {group.of} {group.partition} {group.start}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1


def codes_of(path: str, groups: Iterable[Group]) -> dict[int, Group]:
    """Return groups of a join by their codes."""
    return {code_of(path, group): group for group in groups}


class Tallies:
    """Counts the results of one task for the groups that they came from; nothing unless the plan asks for it.

    A result counts once for each group, however many of its members are in it: full credit, as in Jbantova 2007, 3.2.

    Args:
        plan: The batch's plan.
        table: Where chunks and traces are looked up.
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
        """Count results."""
        if self._plan.spilling.counts_groups and len(results):
            self._results.update(_counted(self._members(results)[1]))
        for stream in self._plan.spilling.traced if self._final else ():
            self.credits.update(_counted(self._table.traces(results.rows[stream])[1]))

    def groups(self, pairs: Mapping[int, int]) -> dict[Group, Tally]:
        """Return what each group is worth, as far as this task has seen.

        Args:
            pairs: The pairs that were looked at, by the number of the chunk.
        """
        looked: Counter[int] = Counter()
        for number, count in pairs.items():
            looked[self._number(number)] += count
        tallies = {group: Tally(looked[at], self._results[at]) for group, at in self._groups.items()}
        return {group: tally for group, tally in tallies.items() if any(tally)}

    def traces(self, block: Partials) -> pa.Array:
        """Return for each result the codes of the groups that it came from, those of this join first."""
        at, groups = self._members(block)
        inner = [self._table.traces(block.rows[stream]) for stream in sorted(self._plan.spilling.traced)]
        own = np.array(self._codes, np.int64)[groups]
        results = np.concatenate([at, *(places for places, _ in inner)])
        codes = np.concatenate([own, *(found for _, found in inner)])
        ends = np.cumsum(np.bincount(results, minlength=len(block)))
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.array(codes[np.argsort(results, kind="stable")]), TRACE_TYPE)

    def crossings(self, fresh: Sequence[Target]) -> dict[tuple[int, int], int]:
        """Return for a sample of the results of inner joins which groups they came from, and their partition here.

        Which rows are in the sample depends on how many came before them, in whatever batches.

        Args:
            fresh: The chunks that the batch has written.
        """
        found: Counter[tuple[int, int]] = Counter()
        for stream in self._plan.spilling.traced:
            came = self._plan.intake.arrived[stream]
            mine = [target for target in fresh if target.chunk.stream == stream and target.chunk.bucket.first]
            for target in sorted(mine, key=_place):
                every = limits().crossing_rows
                some = references(target.number, np.arange(-came % every, target.chunk.rows, every))
                partition = group_of(target.chunk, self._plan.spilling.slice).partition
                for code, count in _counted(self._table.traces(some)[1]).items():
                    found[code, partition] += count
                came += target.chunk.rows
        return dict(found)

    def _members(self, block: Partials) -> tuple[Ints, Ints]:
        """Return the groups that the members of results are in, as pairs, each once: a result's position, a group."""
        found = np.sort(np.stack([self._grouped(refs >> ROW_BITS) for refs in block.rows.values()]), axis=0)
        first = np.ones(found.shape, bool)
        first[1:] = found[1:] != found[:-1]
        return np.nonzero(first)[1], found[first]

    def _grouped(self, chunks: Ints) -> Ints:
        """Return the groups of chunks, all by number."""
        numbers, inverse = np.unique(chunks, return_inverse=True)
        return np.array([self._number(number) for number in numbers.tolist()], np.int64)[inverse]

    def _number(self, chunk: int) -> int:
        """Return the number that a chunk's group has here."""
        if chunk not in self._numbers:
            group = group_of(self._table.chunk(chunk), self._plan.spilling.slice)
            if group not in self._groups:
                self._groups[group] = len(self._codes)
                self._codes.append(code_of(self._plan.spilling.path, group))
            self._numbers[chunk] = self._groups[group]
        return self._numbers[chunk]


def decided(plan: BatchPlan, reports: Sequence[TaskReport], codes: Iterable[Mapping[int, int]]) -> None:
    """Add results that Spark has decided to what tasks reported of groups.

    Args:
        plan: The plan of their join.
        reports: What its tasks reported; the first is added to.
        codes: How many of these results came from each group, by its code; from several tasks.
    """
    counted = sum(map(Counter, codes), Counter[int]())
    fresh = (chunk for report in reports for chunk in report.state.fresh)
    spilling = plan.spilling
    alive = {group_of(chunk, spilling.slice) for chunk in (*plan.chunks, *fresh)} if counted else set()
    own = codes_of(spilling.path, alive)
    groups = {own[c]: Tally(results=count) for c, count in counted.items() if c in own and spilling.counts_groups}
    inner = {code: count for code, count in counted.items() if code not in own and plan.query.tracing == "pending"}
    reports[0].spilling.add(SpillingReport(groups=groups, credits=inner))


def count_of(traces: pa.Array) -> dict[int, int]:
    """Return in how many traces each code is."""
    return _counted(traces.flatten().to_numpy(zero_copy_only=False))


def _counted(numbers: Ints) -> dict[int, int]:
    found, counts = np.unique(numbers, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _place(target: Target) -> tuple[int, int, str]:
    return target.chunk.low, target.chunk.bucket.number, target.chunk.id
