"""Asks Python predicates about blocks: once per distinct combination of argument rows, and not what is known."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.limits import limits
from watersmeet.predicate.model import Argument, Call, Column, Conjunct, PythonPredicate
from watersmeet.probe import predicate_calls as calls
from watersmeet.probe.answer_cache import AnswerCache, Asked
from watersmeet.probe.column_reader import Reader
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.partials import ROW_BITS, ROW_MASK, Partials


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks the predicates of one query.

    Attributes:
        reader: Looks rows up.
        duck: The process's DuckDB connection.
        cache: What predicates have answered.
        run: The start of the query: in another a predicate of the same name may be another.
        clock: Returns seconds; injected so that the core has no clock of its own.
        costs: What each predicate has cost, by its name.
    """

    reader: Reader
    duck: Duck
    cache: AnswerCache
    run: str
    clock: Callable[[], float]
    costs: dict[str, calls.CallCost] = field(default_factory=lambda: defaultdict(calls.CallCost))

    def by_cost(self, conjuncts: tuple[Conjunct, ...]) -> list[Conjunct]:
        """Return conjuncts in the order in which to test them: the cheapest per rejected combination first."""
        costs = self.costs
        return sorted(conjuncts, key=lambda c: max((costs[call.predicate].rank for call in c.calls), default=0.0))

    def booleans(self, block: Partials, call: Call) -> pa.Array:
        """Return what a call answers for each combination of a block, as SQL takes it."""
        return booleans(self.answers(block, call))

    def answers(self, block: Partials, call: Call) -> calls.Answers:
        """Return what a call answers for each combination of a block."""
        streams = sorted({column.stream for argument in call.arguments for column in argument.columns})
        if not streams:
            return np.repeat(self._ask(call, {calls.CONSTANT: np.zeros(1, np.int64)}), len(block))
        refs = {stream: block.rows[stream] for stream in streams}
        if len(streams) == len(block.joined):  # then all are distinct
            return self._answered(call, refs)
        keys, inverse = calls.distinct(list(refs.values()))
        return self._answered(call, dict(zip(streams, keys, strict=True)))[inverse]

    def _answered(self, call: Call, refs: dict[int, Ints]) -> calls.Answers:
        """Answer distinct combinations: what was asked before from the cache, all else at once."""
        tables = list(self._known(call, refs))
        answers: calls.Answers = np.full(len(next(iter(refs.values()))), calls.UNKNOWN, dtype=np.int8)
        for here, rows, table in tables:
            answers[here] = table[rows]
        todo = np.flatnonzero(answers == calls.UNKNOWN)
        for some in self._asked_at_once(call, {stream: found[todo] for stream, found in refs.items()}):
            asked = todo[some]
            answers[asked] = self._ask(call, {stream: found[asked] for stream, found in refs.items()})
        for here, rows, table in tables if len(todo) else ():
            table[rows] = answers[here]
        return answers

    def _known(self, call: Call, refs: dict[int, Ints]) -> Iterator[tuple[Ints, tuple[Ints, ...], calls.Answers]]:
        """Yield some of the combinations, their rows, and a table of answers by rows, to be read and filled.

        Only pairs that may be asked about again are looked up: those of a join of more streams.
        """
        if len(refs) != 2 or len(self.reader.query.streams) == 2:
            return
        what = repr((call.predicate, *(argument.sql for argument in call.arguments)))
        for here in calls.groups([found >> ROW_BITS for found in refs.values()]):
            left, right = (self.reader.table.chunk(int(found[here[0]]) >> ROW_BITS) for found in refs.values())
            table = self.cache.table(Asked(self.run, left.id, right.id, what), (left.rows, right.rows))
            if table is not None:
                yield here, tuple(found[here] & ROW_MASK for found in refs.values()), table

    def _asked_at_once(self, call: Call, refs: dict[int, Ints]) -> Iterable[Ints]:
        """Return which combinations to ask about at once: all if their chunks are small, else chunks by chunks.

        A call should not be about crumbs. But values are copied where they are of several chunks, and a matrix is as
        large as its sides, whichever chunks belong together.
        """
        rows = len(next(iter(refs.values())))
        if not rows:
            return ()
        named = {number for found in refs.values() for number in _chunks(found)[0].tolist()}
        size = sum(self.reader.table.chunk(number).bytes for number in named)
        if size <= limits().asked_bytes and self._predicate(call).form != "matrix":
            return [np.arange(rows)]
        return calls.groups([found >> ROW_BITS for found in refs.values()])

    def _predicate(self, call: Call) -> PythonPredicate:
        return next(predicate for predicate in self.reader.query.predicates if predicate.name == call.predicate)

    def _ask(self, call: Call, refs: dict[int, Ints]) -> calls.Answers:
        started = self.clock()
        answers = calls.ask(self._predicate(call), call.arguments, refs, self._fetch)
        self.costs[call.predicate].add(answers, self.clock() - started)
        return answers

    def _fetch(self, argument: Argument, refs: Ints) -> tuple[pa.Array, Ints]:
        if len(argument.columns) == 1 and argument.sql == argument.columns[0].name:
            return self._values(argument.columns[0], refs)
        unique, at = np.unique(refs, return_inverse=True)
        found = {c.name: self._values(c, unique) for c in argument.columns}
        columns = {name: values.take(pa.array(rows)) for name, (values, rows) in found.items()}
        return self.duck.values(columns, argument.sql, len(unique)), at

    def _values(self, column: Column, refs: Ints) -> tuple[pa.Array, Ints]:
        """Return a column that holds the values of rows, and where: that of their chunk itself, if it is but one."""
        chunks, which = _chunks(refs)
        values = [self.reader.table.column(column, number) for number in chunks.tolist()]
        if len(values) == 1:
            return values[0], refs & ROW_MASK
        begin = np.cumsum([0, *map(len, values[:-1])])
        return pa.concat_arrays(values), begin[which] + (refs & ROW_MASK)


def _chunks(refs: Ints) -> tuple[Ints, NDArray[np.intp]]:
    """Return the numbers of the chunks that references name, and for each reference which of them it names.

    References of one chunk stand together, mostly: runs are quicker to sort than rows.
    """
    numbers = refs >> ROW_BITS
    starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)])
    chunks, which = np.unique(numbers[starts], return_inverse=True)
    return chunks, np.repeat(which, np.diff(np.append(starts, len(numbers))))


def booleans(answers: calls.Answers) -> pa.Array:
    """Return answers as SQL takes them."""
    return pa.array(answers == calls.TRUE, mask=answers == calls.NULL)
