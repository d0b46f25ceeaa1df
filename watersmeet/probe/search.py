"""The search for candidates: a block probes the chunks in reach, each by the access path of the fewest pairs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from watersmeet.arrays import Floats, Ints
from watersmeet.limits import limits
from watersmeet.predicate.model import Bound, Column
from watersmeet.probe.admission import admitted, admitted_times
from watersmeet.probe.candidates import Path, Range, pairs, time_path, value_path
from watersmeet.probe.chunk_probe import Probe, Sought, Times
from watersmeet.probe.column_reader import Reader
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.newest_rows import Tails
from watersmeet.probe.partials import Partials
from watersmeet.probe.ranges import columns_of, misses, ranges, together, usable
from watersmeet.probe.routing import Router
from watersmeet.probe.work import Tested, Work, texts_of, timed
from watersmeet.spilling.owed import asks

FIXED = 16
"""About how many bytes a value of fixed width takes."""


@dataclass(frozen=True, slots=True)
class Search:
    """Finds the candidates of blocks.

    Attributes:
        reader: Looks columns up.
        duck: The process's DuckDB connection.
        router: Says at which copy of a chunk a partial result probes it.
        work: Where the pairs are counted.
        clock: Returns seconds.
    """

    reader: Reader
    duck: Duck
    router: Router
    work: Work
    clock: Callable[[], float]

    def candidates(
        self, block: Partials, step: Step, node: int | None, tails: Tails | None = None
    ) -> Iterator[Partials]:
        """Yield what the partial results of a block may become; see `Hops.hop`."""
        for probe in self.probes(self.sought(block, step), node):
            yield from self._matches(probe, tails)

    def sought(self, block: Partials, step: Step) -> Sought:
        """Return what a block looks for in the stream of its next hop."""
        window = self.reader.query.streams[step.target].window
        tested = (*step.sql, *step.near, *step.hopeful)
        read = {column for conjunct in tested for column in conjunct.columns} | set(step.carry)
        times = Times(window.earliest(block.high), block.deadline)
        tracked = step.role.here or step.target in self.router.tracked
        return Sought(block, step, window, times, self.reader.fixed(read), tracked)

    def probes(self, sought: Sought, node: int | None) -> Iterator[Probe]:
        """Yield the probes of the chunks in reach; those whose zone maps show that nothing matches are skipped."""
        block, step, table = sought.block, sought.step, self.reader.table
        asked = self._ranges(block, step.bounds)
        time = Column(step.target, self.reader.query.streams[step.target].time)
        seat_of = self.router.seats(block, step, table.hashes)
        targets = table.overlapping(step.target, int(sought.times.low.min()), int(sought.times.high.max()))
        if step.role.among == "newest":
            targets.sort(key=lambda target: target.chunk.high, reverse=True)
        for target in targets:
            seat = seat_of(target)
            mine = seat >= 0 if node is None else seat == node
            mine = mine & asks(step.role, target.owed, block.batch) & (target.chunk.arrived.first <= block.batch)
            if not np.any(mine):
                continue
            for used, of in usable(asked, target.chunk, time, len(block)):
                if not any(misses(target.chunk, one) for one in used):
                    whole = Probe(sought, target, table.rows(target), seat, mine if of is None else mine & of, used)
                    yield whole.narrowed() if np.count_nonzero(whole.mine) < limits().narrow * len(block) else whole

    def _ranges(self, block: Partials, bounds: Sequence[Bound]) -> list[Range]:
        """Return for each bound the interval that each partial result asks for, where none of its ends raises."""
        columns = columns_of(bounds)
        pieces = self.reader.pieces(block, columns) if bounds else ()
        return together([ranges(self.duck, self.reader.read(p, columns), bounds, len(p)) for _, p in pieces])

    def _matches(self, probe: Probe, tails: Tails | None) -> Iterator[Partials]:
        """Yield the candidates of one probe, or of its tails."""
        times = admitted_times(probe)
        by_time = time_path(probe.rows, *times)
        self.work.count(probe.step, probe.target.number, probe.seat, by_time)
        if not by_time.pairs:
            return
        path, work, scan = _chosen(probe, by_time, times, tails), self.work.of(probe.step), Tested(came=by_time.pairs)
        found = timed(self._scan(probe), scan, self.clock) if path is None else pairs(path, _block_rows(probe.sought))
        in_time = path is not None and path.order is None
        for partial, row in found:
            partial, row = admitted(probe, None if in_time else times, partial, row)
            scan.passed += len(partial)
            if len(partial):
                yield probe.longer(partial, row, scanned=path is None)
        if path is not None:
            work.search.add(Tested(path.pairs, scan.passed))
        else:
            work.scanned(texts_of(probe.step.sql), scan)

    def _scan(self, probe: Probe) -> Iterator[tuple[Ints, Ints]]:
        """Let DuckDB join the block with the chunk: a hash join for equalities, a vectorised loop otherwise."""
        block, rows, sql, stream = probe.block, probe.rows, probe.step.sql, probe.step.target
        columns = {column for conjunct in sql for column in conjunct.columns}
        right = {c.name: rows.column(c) for c in columns if c.stream == stream}
        conditions = [conjunct.condition for conjunct in sql]
        for start, piece in self.reader.pieces(block, columns):
            left = self.reader.read(piece, (c for c in columns if c.stream != stream))
            for partial, row in self.duck.join(left, right, conditions, (len(piece), len(rows))):
                yield start + partial, row


def _chosen(probe: Probe, by_time: Path, times: Times, tails: Tails | None) -> Path | None:
    """Return the access path that leaves the fewest pairs; None where a scan by DuckDB is cheaper than any."""
    by_value = [value_path(probe.rows, asked, by_time) for asked in probe.ranges]
    found, whole = [by_time, *by_value], by_time
    if tails is not None:
        named = zip(probe.ranges, by_value, strict=True)
        by_key = [path for asked, path in named if _is_rising(path, probe.rows.order(asked.column).values)]
        whole = min([by_time, *by_key], key=lambda path: path.pairs)
        found = [tails.of(whole, probe.rows, times), *by_value]
    path = min(found, key=lambda path: path.pairs)
    equal = [path.pairs for path, asked in zip(by_value, probe.ranges, strict=True) if asked.equal]
    scan = _scan_seconds(len(probe.block), len(probe.rows), equal) if probe.step.sql else inf
    if scan < path.pairs * limits().pair:
        return None
    if tails is not None and path is found[0]:
        tails.leave_out(probe, whole, path, times)
    return path


def _is_rising(path: Path, values: Floats) -> bool:
    """Tell whether the rows of each run are in rising order of time, as those that have one value are."""
    some = np.flatnonzero(path.count)
    return bool((values[path.first[some]] == values[path.first[some] + path.count[some] - 1]).all())


def _scan_seconds(partials: int, rows: int, equal: Sequence[int]) -> float:
    """Return about how long DuckDB takes to join a block with a chunk, given what equalities let pass at most."""
    cost = limits()
    if not equal:
        return cost.scan_setup + partials * rows * cost.scan_pair
    return cost.scan_setup + (partials + rows) * cost.hash_row + min(equal) * cost.hash_pair


def _block_rows(sought: Sought) -> int:
    """Return how many candidates to make at once, so that the columns they carry stay small."""
    width = FIXED * (1 + len(sought.carried))
    return max(1, min(limits().block_rows, limits().block_bytes // width))
