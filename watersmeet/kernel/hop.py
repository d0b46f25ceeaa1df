"""One hop: partial results probe the chunks of the next stream and come out longer, block by block.

Access paths propose candidates, times and arrival order cut them, then plain SQL, then Python predicates in the order
of their measured cost, then what may raise. Nothing here holds more than a few blocks at a time.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.kernel import calls
from watersmeet.kernel.answers import Asked, Memory
from watersmeet.kernel.candidates import Path, Range, pairs, time_path, value_path
from watersmeet.kernel.duck import Duck, Ends
from watersmeet.kernel.partials import ROW_BITS, ROW_MASK, Partials, concat, is_full, references, regroup
from watersmeet.kernel.route import Router, Seat
from watersmeet.kernel.steps import Hop, Step
from watersmeet.kernel.table import ChunkTable, Target, is_bulky
from watersmeet.kernel.window import FOREVER, NEVER
from watersmeet.limits import limits
from watersmeet.predicate.model import Argument, Bound, Call, Column, Conjunct
from watersmeet.query import Query
from watersmeet.state.chunk import Rows

Ints = NDArray[np.int64]


FIXED = 16
"""About how many bytes a value of fixed width takes."""


@dataclass(slots=True)
class HopWork:
    """What probing one stream from certain others did; `pairs` are those in time, `shuffled` rows that came far."""

    rows_in: int = 0
    shuffled: int = 0
    pairs: int = 0
    matches: int = 0

    def add(self, other: "HopWork") -> None:
        """Add what another task did."""
        self.rows_in += other.rows_in
        self.shuffled += other.shuffled
        self.pairs += other.pairs
        self.matches += other.matches


@dataclass(slots=True)
class Work:
    """What a task did, reported to the driver.

    Attributes:
        hops: By the streams joined and the stream probed.
        node_pairs: Pairs looked at, by the node at which they meet.
        costs: What each Python predicate cost.
        strays: Partial results that were to stay where they are and yet had to look at another node's chunk.
    """

    hops: dict[Hop, HopWork] = field(default_factory=lambda: defaultdict(HopWork))
    node_pairs: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    strays: int = 0
    costs: dict[str, calls.Cost] = field(default_factory=lambda: defaultdict(calls.Cost))

    def count(self, step: Step, seat: Seat, path: Path) -> None:
        """Note the pairs that partial results look at in one chunk, for the nodes at which they do."""
        self.hops[step.hop].pairs += path.pairs
        if isinstance(seat, int):
            self.node_pairs[seat] += path.pairs
            return
        for node, tested in enumerate(np.bincount(np.maximum(seat, 0), path.count).astype(int).tolist()):
            self.node_pairs[node] += tested


class Prober:
    """Runs the hops of one task over its chunks.

    Args:
        query: The join.
        table: The chunks the task may probe.
        duck: The process's DuckDB connection.
        memory: What is known of Python predicates' answers.
        clock: Returns seconds; injected so that the core has no clock of its own.
        router: Says at which copy of a chunk a partial result probes it.
        run: The start of the query: in another a predicate of the same name may be another.
    """

    def __init__(
        self,
        query: Query,
        table: ChunkTable,
        duck: Duck,
        memory: Memory,
        clock: Callable[[], float],
        router: Router,
        run: str,
    ) -> None:
        self._query, self._table, self._duck, self._memory, self._clock = query, table, duck, memory, clock
        self._router, self._run = router, run
        self._predicates = {predicate.name: predicate for predicate in query.predicates}
        self.work = Work()

    def enter(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Partials:
        """Return the probing tuples that pass the conjuncts over their own stream alone."""
        plain = [conjunct for conjunct in conjuncts if not conjunct.calls]
        if plain and len(block):
            block = self._lean(block.take(self._true(block, plain)))
        for conjunct in self._by_cost([conjunct for conjunct in conjuncts if conjunct.calls]):
            block = self._called(block, conjunct)
        return self._lean(block)

    def hop(self, block: Partials, step: Step, node: int | None = None) -> Iterator[Partials]:
        """Yield what the partial results of a block become by probing `step.target`.

        Args:
            block: Partial results over `step.joined`.
            step: What to do.
            node: Probe only what is to be probed at this node; None for all that is to be probed anywhere.
        """
        if not len(block):
            return
        candidates = self._candidates(block, step, node)
        passed = (self._lean(self._hopeful(found, step)) for found in self._sql(candidates, step))
        for found in self._calls(passed, step):
            found = self._lean(self._raising(found, step))
            if len(found):
                self.work.hops[step.hop].matches += len(found)
                yield found

    def _block_rows(self, step: Step) -> int:
        """Return how many candidates to make at once, so that the columns they carry stay small."""
        width = FIXED * (1 + len(self._needed(step)))
        return max(1, min(limits().block_rows, limits().block_bytes // width))

    def _needed(self, step: Step) -> set[Column]:
        """Return the columns that are worth carrying: those of fixed width that this step or a later one reads."""
        read = {c for conjunct in (*step.sql, *step.hopeful) for c in conjunct.columns} | set(step.carry)
        return {column for column in read if not is_bulky(self._query.type_of(column))}

    def _lean(self, block: Partials) -> Partials:
        """Return a block without columns of variable length: those are for one piece of it at a time."""
        return block.only([column for column in block.carried if not is_bulky(self._query.type_of(column))])

    def _pieces(self, block: Partials, columns: Iterable[Column]) -> Iterator[tuple[int, Partials]]:
        return self._table.pieces(block, columns, limits().block_bytes)

    def _where(self, block: Partials, columns: Iterable[Column], decide: Callable[[Partials, slice], Ints]) -> Ints:
        """Return where in a block something holds, decided piece by piece, so that the columns read stay small."""
        found = [
            start + decide(piece, slice(start, start + len(piece))) for start, piece in self._pieces(block, columns)
        ]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    # -- candidates

    def _candidates(self, block: Partials, step: Step, node: int | None) -> Iterator[tuple[Partials, bool]]:
        """Yield candidate results, each with whether the step's plain SQL is already decided."""
        window = self._query.streams[step.target].window
        low, high = window.earliest(block.high), block.deadline
        ranges = self._ranges(block, step.bounds)
        seat_of = self._router.seats(block, step, self._table.hashes)
        for target in self._table.overlapping(step.target, int(low.min()), int(high.max())):
            seat = seat_of(target)
            mine = seat >= 0 if node is None else seat == node
            if not np.any(mine) or any(_zone_misses(target, asked) for asked in ranges):
                continue
            times = _admitted(block, step, target, mine, low, high)
            yield from self._probe(block, step, target, seat, *times, ranges)

    def _ranges(self, block: Partials, bounds: Sequence[Bound]) -> list[Range]:
        """Return for each bound the interval that each partial result asks for.

        None at all should an end raise (the lower case of Σ can't be carried over): the conjunct itself decides.
        """
        columns = {column for bound in bounds for column in bound.columns}
        # NULL comes back as NaN: it finds no row that could match, and the conjunct itself decides.
        pieces = [
            self._duck.ends(self._read(piece, columns), bounds, len(piece)) for _, piece in self._pieces(block, columns)
        ]
        found = [piece for piece in pieces if piece is not None]
        if len(found) < len(pieces):
            return []
        made = []
        for bound, *ends in zip(bounds, *found, strict=True):
            low, high = map(_joined, zip(*ends, strict=True))
            low = np.full(len(block), -np.inf) if low is None else low
            # NaN sorts above infinity, so a range without an upper end runs to the last row.
            high = np.full(len(block), np.nan) if high is None else high
            equal = bound.low == bound.high
            made.append(Range(bound.column, np.nextafter(low, -np.inf), np.nextafter(high, np.inf), equal))
        return made

    def _probe(
        self,
        block: Partials,
        step: Step,
        target: Target,
        seat: Seat,
        low: Ints,
        high: Ints,
        ranges: Sequence[Range],
    ) -> Iterator[tuple[Partials, bool]]:
        rows = self._table.rows(target)
        by_time = time_path(rows, low, high)
        self.work.count(step, seat, by_time)
        if not by_time.pairs:
            return
        by_value = [value_path(rows, asked) for asked in ranges]
        path = min([by_time, *by_value], key=lambda path: path.pairs)
        equal = [path.pairs for path, asked in zip(by_value, ranges, strict=True) if asked.equal]
        scan = step.sql and _scan_seconds(len(block), len(rows), equal) < path.pairs * limits().pair
        found = self._scan(block, step, rows) if scan else pairs(path, self._block_rows(step))
        for partial, row in found:
            keep = self._in_time(block, step, rows, partial, row, low, high, path if not scan else None)
            if len(keep[0]):
                yield self._extend(block, step, target, seat, rows, *keep), bool(scan)

    def _scan(self, block: Partials, step: Step, rows: Rows) -> Iterator[tuple[Ints, Ints]]:
        """Let DuckDB join the block with the chunk: a hash join for equalities, a vectorised loop otherwise."""
        columns = {column for conjunct in step.sql for column in conjunct.columns}
        right = {c.name: rows.column(c) for c in columns if c.stream == step.target}
        conditions = [conjunct.sql for conjunct in step.sql]
        for start, piece in self._pieces(block, columns):
            left = self._read(piece, (c for c in columns if c.stream != step.target))
            for partial, row in self._duck.join(left, right, conditions, (len(piece), len(rows))):
                yield start + partial, row

    def _in_time(
        self,
        block: Partials,
        step: Step,
        rows: Rows,
        partial: Ints,
        row: Ints,
        low: Ints,
        high: Ints,
        path: Path | None,
    ) -> tuple[Ints, Ints]:
        """Keep the pairs that the windows and the arrival order admit."""
        keep = np.ones(len(partial), dtype=bool)
        if path is None or path.order is not None:
            ts = rows.ts[row]
            keep = (ts >= low[partial]) & (ts <= high[partial])
        size = self._query.streams[step.target].window.rows
        if size is not None:
            assert rows.ordinals is not None
            keep &= rows.ordinals[row] > block.asof[step.target][partial] - size
        return (partial, row) if keep.all() else (partial[keep], row[keep])

    def _extend(
        self, block: Partials, step: Step, target: Target, seat: Seat, rows: Rows, partial: Ints, row: Ints
    ) -> Partials:
        """Return the pairs as longer partial results, with the columns that are worth carrying."""
        needed = self._needed(step)
        longer = block.only(needed).take(partial)
        ts = rows.ts[row]
        longer.joined = (*block.joined, step.target)
        longer.rows[step.target] = references(target.number, row)
        longer.here = np.full(len(row), seat) if isinstance(seat, int) else seat[partial]
        if step.target in self._router.tracked:
            longer.times[step.target] = ts
        longer.high = np.maximum(longer.high, ts)
        longer.deadline = np.minimum(longer.deadline, self._query.streams[step.target].window.deadline(ts))
        index = pa.array(row)
        for column in needed:
            if column.stream == step.target:
                longer.carried[column] = rows.column(column).take(index)
        return longer

    # -- residuals

    def _sql(self, candidates: Iterator[tuple[Partials, bool]], step: Step) -> Iterator[Partials]:
        """Yield the candidates that plain SQL lets through, tested in blocks rather than chunk by chunk."""
        waiting: list[Partials] = []
        for found, decided in candidates:
            if decided or not step.sql:
                yield found
                continue
            waiting.append(found)
            if is_full(waiting):
                yield self._passing(waiting, step)
                waiting = []
        if waiting:
            yield self._passing(waiting, step)

    def _passing(self, blocks: Sequence[Partials], step: Step) -> Partials:
        block = concat(blocks)
        return block.take(self._true(block, step.sql))

    def _hopeful(self, block: Partials, step: Step) -> Partials:
        """Drop what a conjunct that may raise already denies; where it raises, its guard may yet come."""
        for conjunct in step.hopeful:
            if len(block):
                block = block.take(self._where(block, conjunct.columns, functools.partial(self._undenied, conjunct)))
        return block

    def _undenied(self, conjunct: Conjunct, block: Partials, at: slice) -> Ints:
        kept = self._duck.attempt(self._read(block, conjunct.columns), [conjunct.sql], len(block))
        return np.arange(len(block)) if kept is None else kept

    def _true(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Ints:
        """Return where all conjuncts hold; should one of them raise, they are tried one by one, to name it."""
        columns = {column for conjunct in conjuncts for column in conjunct.columns}
        return self._where(block, columns, lambda piece, at: self._all_true(piece, conjuncts, columns))

    def _all_true(self, block: Partials, conjuncts: Sequence[Conjunct], columns: Collection[Column]) -> Ints:
        found = self._duck.attempt(self._read(block, columns), [conjunct.sql for conjunct in conjuncts], len(block))
        if found is not None:
            return found
        found = np.arange(len(block))
        for conjunct in conjuncts:
            found = found[self._check(block.take(found), conjunct)]
        return found

    def _check(self, block: Partials, conjunct: Conjunct) -> Ints:
        names = {column.name: self._query.name_of(column) for column in conjunct.columns}
        answers = {call.name: _booleans(self._answer(block, call)) for call in conjunct.calls}

        def checked(piece: Partials, at: slice) -> Ints:
            table = self._read(piece, conjunct.columns) | {name: found[at] for name, found in answers.items()}
            return self._duck.check(table, conjunct, len(piece), names)

        return self._where(block, conjunct.columns, checked)

    def _read(self, block: Partials, columns: Iterable[Column]) -> dict[str, pa.Array]:
        return {column.name: block.column(column, self._table.gather) for column in sorted(columns)}

    def _calls(self, blocks: Iterator[Partials], step: Step) -> Iterator[Partials]:
        if not step.calls:
            yield from (block for block in blocks if len(block))
            return
        for block in regroup(blocks):
            for conjunct in self._by_cost(step.calls):
                block = self._called(block, conjunct)
            if len(block):
                yield block

    def _by_cost(self, conjuncts: Sequence[Conjunct]) -> list[Conjunct]:
        costs = self.work.costs
        return sorted(conjuncts, key=lambda c: max((costs[call.predicate].rank for call in c.calls), default=0.0))

    def _called(self, block: Partials, conjunct: Conjunct) -> Partials:
        """Return the block's rows for which a conjunct with Python predicates is TRUE."""
        if not len(block):
            return block
        answers = {call.name: self._answer(block, call) for call in conjunct.calls}
        if conjunct.is_call:
            return block.take(np.flatnonzero(answers[conjunct.sql] == calls.TRUE))
        plain = {c for c in conjunct.columns if c.name in conjunct.sql}

        def held(piece: Partials, at: slice) -> Ints:
            table = self._read(piece, plain) | {name: _booleans(found[at]) for name, found in answers.items()}
            return self._duck.filter(table, [conjunct.sql], len(piece))

        return block.take(self._where(block, plain, held))

    def _answer(self, block: Partials, call: Call) -> calls.Answers:
        """Ask a call's predicate about each distinct combination of argument rows in the block, chunks by chunks."""
        streams = sorted({column.stream for argument in call.arguments for column in argument.columns})
        if not streams:
            return np.repeat(self._ask(call, {calls.CONSTANT: np.zeros(1, np.int64)}), len(block))
        keys, inverse = calls.distinct([block.rows[stream] for stream in streams])
        answers: calls.Answers = np.empty(len(keys[0]), dtype=np.int8)
        for here in calls.groups([key >> ROW_BITS for key in keys]):
            answers[here] = self._answer_chunks(call, dict(zip(streams, (key[here] for key in keys), strict=True)))
        return answers[inverse]

    def _answer_chunks(self, call: Call, refs: dict[int, Ints]) -> calls.Answers:
        """Answer combinations of rows of one chunk per stream; for pairs, what was asked before from memory."""
        chunks = [self._table.chunk(int(found[0]) >> ROW_BITS) for found in refs.values()]
        if len(chunks) != 2:
            return self._ask(call, refs)
        what = repr((call.predicate, *(argument.sql for argument in call.arguments)))
        asked = Asked(self._run, chunks[0].id, chunks[1].id, what)
        known = self._memory.table(asked, (chunks[0].rows, chunks[1].rows))
        if known is None:
            return self._ask(call, refs)
        pair = tuple(found & ROW_MASK for found in refs.values())
        answers: calls.Answers = known[pair]
        todo = np.flatnonzero(answers == calls.UNKNOWN)
        if len(todo):
            answers[todo] = self._ask(call, {stream: rows[todo] for stream, rows in refs.items()})
            known[pair[0][todo], pair[1][todo]] = answers[todo]
        return answers

    def _ask(self, call: Call, refs: dict[int, Ints]) -> calls.Answers:
        def fetch(argument: Argument, asked: Ints) -> tuple[pa.Array, Ints]:
            if len(argument.columns) == 1 and argument.sql == argument.columns[0].name:
                return self._values(argument.columns[0], asked)
            unique, at = np.unique(asked, return_inverse=True)
            found = {c.name: self._values(c, unique) for c in argument.columns}
            columns = {name: values.take(pa.array(rows)) for name, (values, rows) in found.items()}
            return self._duck.values(columns, argument.sql, len(unique)), at

        started = self._clock()
        answers = calls.ask(self._predicates[call.predicate], call.arguments, refs, fetch)
        self.work.costs[call.predicate].add(answers, self._clock() - started)
        return answers

    def _values(self, column: Column, refs: Ints) -> tuple[pa.Array, Ints]:
        """Return a column that holds the values of rows of one chunk, and where: the chunk's own, not a copy."""
        return self._table.column(column, int(refs[0]) >> ROW_BITS), refs & ROW_MASK

    def _raising(self, block: Partials, step: Step) -> Partials:
        for conjunct in step.raising:
            if not len(block):
                break
            block = block.take(self._check(block, conjunct))
        return block


def _scan_seconds(partials: int, rows: int, equal: Sequence[int]) -> float:
    """Return about how long DuckDB takes to join a block with a chunk, given what equalities let pass at most."""
    cost = limits()
    if not equal:
        return cost.scan_setup + partials * rows * cost.scan_pair
    return cost.scan_setup + (partials + rows) * cost.hash_row + min(equal) * cost.hash_pair


def _admitted(block: Partials, step: Step, target: Target, mine: Any, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the earliest and the latest time that each partial result asks a chunk for; none where it isn't `mine`."""
    if target.fresh:
        high = np.minimum(high, block.moment)
    if target.fresh and step.target > block.origin:  # what has the same time came later
        mine = mine & (block.moment > NEVER)
        high = np.minimum(high, np.maximum(block.moment, NEVER + 1) - 1)
    return (low, high) if np.all(mine) else (np.where(mine, low, FOREVER), np.where(mine, high, NEVER))


def _zone_misses(target: Target, asked: Range) -> bool:
    zone = target.chunk.zones.get(asked.column.name)
    if zone is None or np.isnan(asked.low).any() or np.isnan(asked.high).any():
        return False
    return zone.misses(float(asked.low.min()), float(asked.high.max()))


def _joined(ends: Sequence[Ends]) -> Ends:
    """Return the ends that a bound has for the pieces of a block, as one; None if it has none."""
    given = [end for end in ends if end is not None]
    return np.concatenate(given) if given else None


def _booleans(answers: calls.Answers) -> pa.Array:
    return pa.array(answers == calls.TRUE, mask=answers == calls.NULL)
