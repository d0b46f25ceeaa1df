"""One hop: partial results probe the chunks of the next stream and come out longer, block by block.

Access paths propose candidates, times and arrival order cut them, then plain SQL, then Python predicates in the order
of their measured cost, then what may raise. Nothing here holds more than a few blocks at a time.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.kernel import balls, calls
from watersmeet.kernel.answers import AnswerCache, Asked
from watersmeet.kernel.candidates import Path, Range, pairs, time_path, value_path
from watersmeet.kernel.duck import Duck
from watersmeet.kernel.once import arrived_before
from watersmeet.kernel.pairwise import pairwise
from watersmeet.kernel.partials import ROW_BITS, ROW_MASK, Partials, concat, is_full, references, regroup
from watersmeet.kernel.ranges import columns_of, misses, ranges, together, usable
from watersmeet.kernel.route import Router, Seat
from watersmeet.kernel.steps import Hop, Step
from watersmeet.kernel.table import ChunkTable, Target, is_bulky
from watersmeet.limits import limits
from watersmeet.model.query import Query
from watersmeet.predicate.model import Argument, Bound, Call, Column, Conjunct
from watersmeet.predicate.terms import Input, Leaf
from watersmeet.state.rows import Rows

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


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
        memory: AnswerCache,
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
        plain = [conjunct for conjunct in conjuncts if not conjunct.calls and not conjunct.near]
        if plain and len(block):
            block = self._lean(block.take(self._true(block, plain)))
        block = self._near(block, [conjunct for conjunct in conjuncts if conjunct.near])
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
        passed = (self._lean(self._hopeful(self._near(f, step.near), step)) for f in self._sql(candidates, step))
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
        tested = (*step.sql, *step.near, *step.hopeful)
        read = {c for conjunct in tested for c in conjunct.columns} | set(step.carry)
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
        asked = self._ranges(block, step.bounds)
        time = Column(step.target, self._query.streams[step.target].time)
        seat_of = self._router.seats(block, step, self._table.hashes)
        for target in self._table.overlapping(step.target, int(low.min()), int(high.max())):
            seat = seat_of(target)
            mine = seat >= 0 if node is None else seat == node
            if not np.any(mine):
                continue
            for used, of in usable(asked, target.chunk, time, len(block)):
                if not any(misses(target.chunk, one) for one in used):
                    times = arrived_before(block, step, target, mine if of is None else mine & of, low, high)
                    yield from self._probe(block, step, target, seat, *times, used)

    def _ranges(self, block: Partials, bounds: Sequence[Bound]) -> list[Range]:
        """Return for each bound the interval that each partial result asks for, where none of its ends raises."""
        columns = columns_of(bounds)
        pieces = self._pieces(block, columns) if bounds else ()
        return together([ranges(self._duck, self._read(p, columns), bounds, len(p)) for _, p in pieces])

    def _probe(
        self,
        block: Partials,
        step: Step,
        target: Target,
        seat: Seat,
        low: Ints,
        high: Ints,
        used: Sequence[Range],
    ) -> Iterator[tuple[Partials, bool]]:
        rows = self._table.rows(target)
        by_time = time_path(rows, low, high)
        self.work.count(step, seat, by_time)
        if not by_time.pairs:
            return
        by_value = [value_path(rows, asked, by_time) for asked in used]
        path = min([by_time, *by_value], key=lambda path: path.pairs)
        equal = [path.pairs for path, asked in zip(by_value, used, strict=True) if asked.equal]
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
        conditions = [conjunct.condition for conjunct in step.sql]
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
        kept = self._duck.attempt(self._read(block, conjunct.columns), [conjunct.condition], len(block))
        return np.arange(len(block)) if kept is None else kept

    def _true(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Ints:
        """Return where all conjuncts hold; should one of them raise, they are tried one by one, to name it."""
        columns = {column for conjunct in conjuncts for column in conjunct.columns}
        return self._where(block, columns, lambda piece, at: self._all_true(piece, conjuncts, columns))

    def _all_true(self, block: Partials, conjuncts: Sequence[Conjunct], columns: Collection[Column]) -> Ints:
        found = self._duck.attempt(self._read(block, columns), [c.condition for c in conjuncts], len(block))
        return self._decided(block, conjuncts) if found is None else found

    def _decided(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Ints:
        """Return where all conjuncts hold, some of which may raise.

        [!] A combination that one of them denies is none, whatever the others raise for it: access paths, and hops
        before the last, drop it without asking them.

        Raises:
            PredicateError: If one raises where no other denies; the first that does, in written order, is named.
        """
        found, failing = np.arange(len(block)), []
        for conjunct in (conjunct for conjunct in conjuncts if not conjunct.calls):
            kept = self._duck.attempt(self._read(block.take(found), conjunct.columns), [conjunct.condition], len(found))
            if kept is None:
                failing.append(conjunct)
            else:
                found = found[kept]
        for conjunct in failing if len(failing) > 1 else ():
            table = self._read(block.take(found), conjunct.columns)
            found = np.delete(found, self._duck.denied(table, conjunct.condition, len(found)))
        called = [conjunct for conjunct in conjuncts if conjunct.calls]
        for conjunct in (*called, *failing):
            found = found[self._check(block.take(found), conjunct)] if len(found) else found
        return found

    def _check(self, block: Partials, conjunct: Conjunct) -> Ints:
        names = {column.name: self._query.name_of(column) for column in conjunct.columns}
        answers = {call.name: _booleans(self._answer(block, call)) for call in conjunct.calls}

        def checked(piece: Partials, at: slice) -> Ints:
            table = self._read(piece, conjunct.columns) | {name: found[at] for name, found in answers.items()}
            return self._duck.check(table, conjunct, len(piece), names)

        return self._where(block, conjunct.columns, checked)

    def _near(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Partials:
        """Drop what conjuncts of real numbers deny for sure; Spark will decide the closest of the others."""
        for conjunct in conjuncts:
            block = block.take(self._where(block, conjunct.columns, functools.partial(self._possible, conjunct)))
        return block

    def _possible(self, conjunct: Conjunct, block: Partials, at: slice) -> Ints:
        return np.flatnonzero(self._known(block, conjunct)[0])

    def _known(self, block: Partials, conjunct: Conjunct) -> tuple[Mask, Mask]:
        """Return where a conjunct of real numbers may be TRUE, and where it is for sure."""
        possible, sure = np.ones(len(block), dtype=bool), np.ones(len(block), dtype=bool)
        for comparison in conjunct.near:
            known = {term: self._ball(block, term) for term in comparison.inputs}
            may, must = balls.decide(comparison, known)
            possible, sure = possible & may, sure & must
        return possible, sure

    def _ball(self, block: Partials, term: Input) -> balls.Ball:
        if isinstance(term, Leaf):
            values = self._duck.values(self._read(block, term.columns), f"CAST({term.sql} AS DOUBLE)", len(block))
            return balls.ball_of(values, term.error)
        left, left_at = self._distinct(block, term.left)
        right, right_at = self._distinct(block, term.right)
        return pairwise(term, left, right, left_at, right_at)

    def _distinct(self, block: Partials, column: Column) -> tuple[pa.Array, NDArray[np.intp]]:
        """Return a column of the distinct rows in a block, and for each combination which row it has."""
        rows, at = np.unique(block.rows[column.stream], return_inverse=True)
        return self._table.gather(column, rows), at

    def undecided(self, block: Partials) -> Mask:
        """Return which combinations Spark has to decide; the others are results."""
        if self._query.open:
            return np.ones(len(block), dtype=bool)
        found = np.zeros(len(block), dtype=bool)
        for conjunct in self._query.conjuncts:
            if not conjunct.exact:
                found[self._where(block, conjunct.columns, functools.partial(self._unsure, conjunct))] = True
        return found

    def _unsure(self, conjunct: Conjunct, block: Partials, at: slice) -> Ints:
        if conjunct.near:
            return np.flatnonzero(~self._known(block, conjunct)[1])
        assert conjunct.unsure is not None
        return self._duck.filter(self._read(block, conjunct.columns), [conjunct.unsure], len(block))

    def answers(self, block: Partials) -> dict[str, pa.Array]:
        """Return what Python predicates answer that conjuncts left to Spark call."""
        calls_ = [call for conjunct in self._query.deferred for call in conjunct.calls]
        return {call.name: _booleans(self._answer(block, call)) for call in calls_}

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
            return block.take(np.flatnonzero(answers[conjunct.calls[0].name] == calls.TRUE))
        plain = {c for c in conjunct.columns if c.name in conjunct.condition}

        def held(piece: Partials, at: slice) -> Ints:
            table = self._read(piece, plain) | {name: _booleans(found[at]) for name, found in answers.items()}
            return self._duck.filter(table, [conjunct.condition], len(piece))

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
        """Decide what may raise, last of all; not for combinations of which Spark has yet to decide something."""
        if not step.raising or not len(block):
            return block
        later = self.undecided(block)
        block, waiting = block.take(np.flatnonzero(~later)), block.take(np.flatnonzero(later))
        columns = {column for conjunct in step.raising for column in conjunct.columns}
        block = block.take(self._where(block, columns, lambda piece, at: self._decided(piece, step.raising)))
        return concat([block, waiting]) if len(waiting) else block


def _scan_seconds(partials: int, rows: int, equal: Sequence[int]) -> float:
    """Return about how long DuckDB takes to join a block with a chunk, given what equalities let pass at most."""
    cost = limits()
    if not equal:
        return cost.scan_setup + partials * rows * cost.scan_pair
    return cost.scan_setup + (partials + rows) * cost.hash_row + min(equal) * cost.hash_pair


def _booleans(answers: calls.Answers) -> pa.Array:
    return pa.array(answers == calls.TRUE, mask=answers == calls.NULL)
