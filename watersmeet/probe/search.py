"""The search for candidates: a block probes the chunks in reach, each by the access path with the fewest pairs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from watersmeet.arrays import Floats, Ints
from watersmeet.limits import limits
from watersmeet.predicate.model import Bound, Column
from watersmeet.probe.candidates import AccessPath, Range, expand_pairs, time_path, value_path
from watersmeet.probe.chunk_probe import Probe, ProbeInput, Router, Times
from watersmeet.probe.chunk_table import ColumnReader
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.filters import admit_pairs, admit_times
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.newest_rows import Tails
from watersmeet.probe.partials import Partials
from watersmeet.probe.ranges import columns_of, concat_ranges, misses, ranges, usable
from watersmeet.probe.work import TestCounts, Work, texts_of, time_iterator
from watersmeet.spilling.owed import may_probe

FIXED = 16
"""Roughly how many bytes a value of fixed width takes."""


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
        conjuncts = (*step.sql, *step.near, *step.early_raising)
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
        block, step, table = probe_input.block, probe_input.step, self.reader.table
        intervals = self._ranges(block, step.bounds)
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
        """Yield the candidates of one probe, or of its tails, which note what they leave out; count the pairs."""
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
        in_time = path is not None and path.order is None
        for partial, row in blocks:
            partial, row = admit_pairs(probe, None if in_time else times, partial, row)
            scan.pairs_out += len(partial)
            if len(partial):
                yield probe.extend(partial, row, from_scan=path is None)
        work = self.work.of(probe.step)
        if path is not None:
            work.search.add(TestCounts(path.pairs, scan.pairs_out))
        else:
            work.count_scan(texts_of(probe.step.sql), scan)

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
