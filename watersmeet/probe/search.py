"""The search for candidates: a block probes the chunks in reach, each by the access path with the fewest pairs.

If only the newest partner counts, a search looks at tails first: the newest rows of each run. Most combinations find
their partner there. For the others, the search is repeated with longer tails.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from watersmeet.arrays import Floats, Ints, Mask
from watersmeet.limits import limits
from watersmeet.predicate.model import Bound, Column
from watersmeet.probe.candidates import (
    AccessPath,
    Probe,
    ProbeInput,
    Range,
    Router,
    Times,
    expand_pairs,
    time_path,
    value_path,
)
from watersmeet.probe.chunk_table import ColumnReader
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.evaluators.numpy_comparisons import Numbers, take_numbers, true_pairs
from watersmeet.probe.filters import admit_pairs, admit_times
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import Partials
from watersmeet.probe.ranges import columns_of, concat_ranges, misses, ranges, usable
from watersmeet.probe.work import TestCounts, Work, texts_of, time_iterator
from watersmeet.query.windows import NEVER
from watersmeet.spilling.units import may_probe
from watersmeet.state.chunks.chunk import Rows

AT = "at"
"""The tag with the positions of combinations in their block, which assigns partners to them."""
FIXED = 16
"""Roughly how many bytes a value of fixed width takes."""


@dataclass(slots=True)
class Tails:
    """The length of tails, and what they have left out of a search.

    Attributes:
        combinations: How many combinations there are.
        rows: How many rows of a run a tail has.
        incomplete: For each combination, by its position, whether rows were left out.
        beyond: The time of the newest of these rows.
    """

    combinations: int
    rows: int
    incomplete: Mask = field(init=False)
    beyond: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.incomplete = np.zeros(self.combinations, bool)
        self.beyond = np.full(self.combinations, NEVER)

    def of(self, path: AccessPath, rows: Rows, times: Times) -> AccessPath:
        """Return the tails of a path's runs up to the latest time looked for; runs must be in rising order of time.

        Args:
            path: The path.
            rows: The rows of its chunk.
            times: The times that each partial result looks for.
        """
        count = _up_to(path, rows.ts, times.high)
        return AccessPath(path.first + np.maximum(count - self.rows, 0), np.minimum(count, self.rows), path.order)

    def leave_out(self, probe: Probe, path: AccessPath, tails: AccessPath, times: Times) -> None:
        """Record which rows within `times` the tails of a path leave out."""
        nonempty = np.flatnonzero((tails.first > path.first) & (tails.count > 0))
        ts = probe.rows.ts[_rows(path, tails.first[nonempty] - 1)]
        is_wanted = ts >= times.low[nonempty]
        at = probe.block.tags[AT][nonempty[is_wanted]]
        self.incomplete[at] = True
        self.beyond[at] = np.maximum(self.beyond[at], ts[is_wanted])

    def unsettled(self, newest: Ints) -> Mask:
        """Return which combinations may have a partner among the rows left out that is as new as the newest one."""
        return self.incomplete & (self.beyond >= newest)


def _up_to(path: AccessPath, ts: Ints, latest: Ints) -> Ints:
    """Return how many rows of each run are not later than a time, by bisection."""
    low, high = path.first.copy(), path.first + path.count
    while (searching := low < high).any():
        middle = (low + high) // 2
        early = (
            ts[_rows(path, np.minimum(middle, len(ts) - 1 if path.order is None else len(path.order) - 1))] <= latest
        )
        low, high = np.where(searching & early, middle + 1, low), np.where(searching & ~early, middle, high)
    return low - path.first


def _rows(path: AccessPath, at: Ints) -> Ints:
    return at if path.order is None else path.order[at].astype(np.int64)


@dataclass(frozen=True, slots=True)
class CandidateSearch:
    """Finds the candidates of blocks.

    Attributes:
        reader: Looks columns up.
        duck: The process's DuckDB connection.
        router: Finds the node at which a partial result probes a chunk.
        work: Counts pairs.
        clock: Returns seconds.
    """

    reader: ColumnReader
    duck: Duck
    router: Router
    work: Work
    clock: Callable[[], float]

    def candidates(
        self, block: Partials, step: Step, node: int | None, tails: Tails | None = None
    ) -> Iterator[Partials]:
        """Yield the candidates of a block; see `Hops.hop`."""
        for probe in self.probes(self.prepare(block, step), node):
            yield from self._matches(probe, tails)

    def prepare(self, block: Partials, step: Step) -> ProbeInput:
        """Return what the probes of a block share in its next hop."""
        window = self.reader.query.streams[step.target].window
        conjuncts = (*(c for c in step.sql if not c.numeric), *step.near, *step.early_raising)
        columns = {column for conjunct in conjuncts for column in conjunct.columns} | set(step.carry)
        times = Times(window.earliest(block.high), block.deadline)
        tracked = step.role.here or step.target in self.router.tracked
        return ProbeInput(block, step, window, times, self.reader.fixed(columns), tracked)

    def probes(self, probe_input: ProbeInput, node: int | None) -> Iterator[Probe]:
        """Yield the probes of the chunks in reach, opened; those whose zone maps show that nothing matches are skipped.

        A chunk may be probed twice: where an operation might overflow, without the ranges that rely on it.

        Args:
            probe_input: What they share.
            node: See `Hops.hop`.
        """
        step, table = probe_input.step, self.reader.table
        probe_input, intervals = _sort(probe_input, self._ranges(probe_input.block, step.bounds))
        block = probe_input.block
        time = Column(step.target, self.reader.query.streams[step.target].time)
        seat_of = self.router.seats(block, step, table.hashes)
        targets = table.overlapping(step.target, int(probe_input.times.low.min()), int(probe_input.times.high.max()))
        if step.role.among == "newest":
            targets.sort(key=lambda target: target.chunk.high, reverse=True)
        for target in targets:
            seat = seat_of(target)
            mask = seat >= 0 if node is None else seat == node
            mask = mask & may_probe(step.role, target.owed, block.batch) & (target.chunk.arrived.first <= block.batch)
            if not np.any(mask):
                continue
            for lookups, sure in usable(intervals, target.chunk, time, len(block)):
                if not any(misses(target.chunk, one) for one in lookups):
                    taking_part = mask if sure is None else mask & sure
                    probe = Probe(probe_input, target, table.rows(target), seat, taking_part, lookups)
                    yield probe.narrow() if np.count_nonzero(probe.mask) < limits().narrow * len(block) else probe

    def _ranges(self, block: Partials, bounds: Sequence[Bound]) -> list[Range]:
        """Return the interval of each bound that each partial result looks for; none if an end raises."""
        columns = columns_of(bounds)
        pieces = self.reader.pieces(block, columns) if bounds else ()
        return concat_ranges([ranges(self.duck, self.reader.read(p, columns), bounds, len(p)) for _, p in pieces])

    def _matches(self, probe: Probe, tails: Tails | None) -> Iterator[Partials]:
        """Yield blocks of candidates of a probe, or of its tails, which note what they leave out; count the pairs."""
        times = admit_times(probe)
        by_time = time_path(probe.rows, *times)
        self.work.count(probe.step, probe.target.number, probe.seat, by_time)
        if not by_time.pairs:
            return
        path, scan = _choose_path(probe, by_time, times, tails), TestCounts(pairs_in=by_time.pairs)
        if path is None:
            blocks = time_iterator(self._scan(probe), scan, self.clock)
        else:
            blocks = expand_pairs(path, _block_rows(probe.input))
        all_in_time = by_time.pairs == len(probe.block) * len(probe.rows)
        in_time = all_in_time or (path is not None and path.order is None)
        for partial, row in blocks:
            partial, row = admit_pairs(probe, None if in_time else times, partial, row)
            scan.pairs_out += len(partial)
            if path is not None:
                partial, row = self._test_numbers(probe, partial, row)
            if len(partial):
                yield probe.extend(partial, row, from_scan=path is None)
        work = self.work.of(probe.step)
        if path is not None:
            work.search.add(TestCounts(path.pairs, scan.pairs_out))
        else:
            work.count_scan(texts_of(probe.step.sql), scan)

    def _test_numbers(self, probe: Probe, partial: Ints, row: Ints) -> tuple[Ints, Ints]:
        """Return the pairs for which the hop's comparisons of numbers hold, and count them."""

        def gather(column: Column) -> Numbers:
            if column.stream == probe.step.target:
                return take_numbers(probe.rows.column(column), row)
            return take_numbers(probe.block.column(column, self.reader.table.gather), partial)

        tests = self.work.of(probe.step).tests
        for conjunct in probe.step.numeric if len(partial) else ():
            start, pairs = self.clock(), len(partial)
            mask = np.broadcast_to(true_pairs(conjunct.numeric, gather), len(partial))
            if not mask.all():
                partial, row = partial[mask], row[mask]
            tests[texts_of([conjunct])].add(TestCounts(pairs, len(partial), 1, self.clock() - start))
        return partial, row

    def _scan(self, probe: Probe) -> Iterator[tuple[Ints, Ints]]:
        """Yield the pairs of a partial result and a row that pass the hop's plain SQL, found by a join in DuckDB.

        That is a hash join for equalities, a vectorised loop otherwise.
        """
        block, rows, sql, stream = probe.block, probe.rows, probe.step.sql, probe.step.target
        columns = {column for conjunct in sql for column in conjunct.columns}
        right = {c.name: rows.column(c) for c in columns if c.stream == stream}
        conditions = [conjunct.condition for conjunct in sql]
        for start, piece in self.reader.pieces(block, columns):
            left = self.reader.read(piece, (c for c in columns if c.stream != stream))
            for partial, row in self.duck.join(left, right, conditions, (len(piece), len(rows))):
                yield start + partial, row


def _sort(probe_input: ProbeInput, intervals: list[Range]) -> tuple[ProbeInput, list[Range]]:
    """Return tuples that begin to probe, and what they look for, in the order of the values that they look for.

    Then what is looked up one after the other lies side by side, here and in the hops that follow.
    """
    if len(probe_input.block.joined) > 1 or not intervals:
        return probe_input, intervals
    order, (low, high) = np.argsort(intervals[0].low, kind="stable"), probe_input.times
    sorted_input = replace(probe_input, block=probe_input.block.take(order), times=Times(low[order], high[order]))
    return sorted_input, [interval.take(order) for interval in intervals]


def _choose_path(probe: Probe, by_time: AccessPath, times: Times, tails: Tails | None) -> AccessPath | None:
    """Return the access path with the fewest pairs; None if a scan by DuckDB is cheaper.

    If it is that of the tails, they note which rows it leaves out.
    """
    by_value = [value_path(probe.rows, range_, by_time) for range_ in probe.ranges]
    paths, whole = [by_time, *by_value], by_time
    if tails is not None:
        by_range = zip(probe.ranges, by_value, strict=True)
        by_key = [path for range_, path in by_range if _is_rising(path, probe.rows.order(range_.column).values)]
        whole = min([by_time, *by_key], key=lambda path: path.pairs)
        paths = [tails.of(whole, probe.rows, times), *by_value]
    path = min(paths, key=lambda path: path.pairs)
    equal = [path.pairs for path, range_ in zip(by_value, probe.ranges, strict=True) if range_.equal]
    scan = _scan_seconds(len(probe.block), len(probe.rows), equal) if probe.step.sql else inf
    if scan < path.pairs * limits().pair:
        return None
    if tails is not None and path is paths[0]:
        tails.leave_out(probe, whole, path, times)
    return path


def _is_rising(path: AccessPath, values: Floats) -> bool:
    """Tell whether the rows of each run are in rising order of time, which is so if they have only one value."""
    nonempty = np.flatnonzero(path.count)
    return bool((values[path.first[nonempty]] == values[path.first[nonempty] + path.count[nonempty] - 1]).all())


def _scan_seconds(partials: int, rows: int, equal: Sequence[int]) -> float:
    """Return roughly how long DuckDB takes to join a block with a chunk; `equal` bounds the pairs of each equality."""
    cost = limits()
    if not equal:
        return cost.scan_setup + partials * rows * cost.scan_pair
    return cost.scan_setup + (partials + rows) * cost.hash_row + min(equal) * cost.hash_pair


def _block_rows(probe_input: ProbeInput) -> int:
    """Return how many candidates to create at once, so that the columns they carry stay small."""
    width = FIXED * (1 + len(probe_input.columns))
    return max(1, min(limits().block_rows, limits().block_bytes // width))
