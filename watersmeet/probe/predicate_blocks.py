"""Calls Python predicates for blocks: once per distinct combination of argument rows that has no cached answer."""

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
from watersmeet.probe.answer_cache import AnswerCache, AnswerKey
from watersmeet.probe.chunk_table import ColumnReader
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.partials import ROW_BITS, ROW_MASK, Partials


@dataclass(frozen=True, slots=True)
class PredicateCaller:
    """Calls the predicates of one query.

    Attributes:
        reader: Looks rows up.
        duck: The process's DuckDB connection.
        cache: Answers of predicates.
        run: The start of the query: predicates of the same name may differ between starts.
        clock: Returns seconds; injected so that the core has no clock of its own.
        costs: The cost of each predicate, by name.
    """

    reader: ColumnReader
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
        """Return what a call answers for each combination of a block: TRUE, FALSE or NULL of `predicate_calls`.

        It calls the predicate for combinations without a cached answer, and caches what may be asked again.

        Raises:
            PredicateError: If the predicate raises, or answers anything else.
        """
        streams = sorted({column.stream for argument in call.arguments for column in argument.columns})
        if not streams:
            return np.repeat(self._ask(call, {calls.CONSTANT: np.zeros(1, np.int64)}), len(block))
        refs = {stream: block.rows[stream] for stream in streams}
        if len(streams) == len(block.joined):  # then all are distinct
            return self._answer(call, refs)
        keys, inverse = calls.distinct(list(refs.values()))
        return self._answer(call, dict(zip(streams, keys, strict=True)))[inverse]

    def _answer(self, call: Call, refs: dict[int, Ints]) -> calls.Answers:
        """Answer distinct combinations: from the cache if possible, the rest in as few calls as possible, then cached.

        Args:
            call: The call.
            refs: For each stream that it reads, the references of the rows, one per combination.
        """
        tables = list(self._cached_tables(call, refs))
        answers: calls.Answers = np.full(len(next(iter(refs.values()))), calls.UNKNOWN, dtype=np.int8)
        for here, rows, table in tables:
            answers[here] = table[rows]
        todo = np.flatnonzero(answers == calls.UNKNOWN)
        for group in self._group_calls(call, {stream: part[todo] for stream, part in refs.items()}):
            positions = todo[group]
            answers[positions] = self._ask(call, {stream: part[positions] for stream, part in refs.items()})
        for here, rows, table in tables if len(todo) else ():
            table[rows] = answers[here]
        return answers

    def _cached_tables(
        self, call: Call, refs: dict[int, Ints]
    ) -> Iterator[tuple[Ints, tuple[Ints, ...], calls.Answers]]:
        """Yield groups of combinations, their rows, and a table of answers by rows, to be read and filled.

        Only pairs that may come again are cached: those of a join of more than two streams.
        """
        if len(refs) != 2 or len(self.reader.query.streams) == 2:
            return
        what = repr((call.predicate, *(argument.sql for argument in call.arguments)))
        for pairs in calls.groups([part >> ROW_BITS for part in refs.values()]):
            left, right = (self.reader.table.chunk(int(part[pairs[0]]) >> ROW_BITS) for part in refs.values())
            table = self.cache.table(AnswerKey(self.run, left.id, right.id, what), (left.rows, right.rows))
            if table is not None:
                yield pairs, tuple(part[pairs] & ROW_MASK for part in refs.values()), table

    def _group_calls(self, call: Call, refs: dict[int, Ints]) -> Iterable[Ints]:
        """Return the positions of the combinations of each call; none if there are no combinations.

        One call takes all of them if their chunks are small, else those of the same chunks. Calls should be large. But
        values of several chunks are copied, and a matrix is as large as the product of its sides, even if few of their
        chunks belong together.
        """
        rows = len(next(iter(refs.values())))
        if not rows:
            return ()
        chunks = {number for part in refs.values() for number in _chunks(part)[0].tolist()}
        size = sum(self.reader.table.chunk(number).bytes for number in chunks)
        if size <= limits().asked_bytes and self._predicate(call).form != "matrix":
            return [np.arange(rows)]
        return calls.groups([part >> ROW_BITS for part in refs.values()])

    def _predicate(self, call: Call) -> PythonPredicate:
        return next(predicate for predicate in self.reader.query.predicates if predicate.name == call.predicate)

    def _ask(self, call: Call, refs: dict[int, Ints]) -> calls.Answers:
        start = self.clock()
        answers = calls.ask(self._predicate(call), call.arguments, refs, self._fetch)
        self.costs[call.predicate].add(answers, self.clock() - start)
        return answers

    def _fetch(self, argument: Argument, refs: Ints) -> tuple[pa.Array, Ints]:
        """Return values of an argument, computed once for each distinct row, and where each reference's value is."""
        if len(argument.columns) == 1 and argument.sql == argument.columns[0].name:
            return self._values(argument.columns[0], refs)
        unique, at = np.unique(refs, return_inverse=True)
        values_of = {c.name: self._values(c, unique) for c in argument.columns}
        columns = {name: values.take(pa.array(rows)) for name, (values, rows) in values_of.items()}
        return self.duck.values(columns, argument.sql, len(unique)), at

    def _values(self, column: Column, refs: Ints) -> tuple[pa.Array, Ints]:
        """Return a column with the values of rows, and their positions; the chunk's own column if there is only one."""
        chunks, which = _chunks(refs)
        values = [self.reader.table.column(column, number) for number in chunks.tolist()]
        if len(values) == 1:
            return values[0], refs & ROW_MASK
        begin = np.cumsum([0, *map(len, values[:-1])])
        return pa.concat_arrays(values), begin[which] + (refs & ROW_MASK)


def _chunks(refs: Ints) -> tuple[Ints, NDArray[np.intp]]:
    """Return the numbers of the chunks of some references, and for each reference which of them is its chunk.

    References of one chunk are mostly neighbours, and runs are faster to sort than rows.
    """
    numbers = refs >> ROW_BITS
    starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)])
    chunks, which = np.unique(numbers[starts], return_inverse=True)
    return chunks, np.repeat(which, np.diff(np.append(starts, len(numbers))))


def booleans(answers: calls.Answers) -> pa.Array:
    """Return answers as SQL takes them."""
    return pa.array(answers == calls.TRUE, mask=answers == calls.NULL)
