"""Asks Python predicates about blocks: once per distinct combination of argument rows, and not what is known."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.kernel import calls
from watersmeet.kernel.answers import AnswerCache, Asked
from watersmeet.kernel.duck import Duck
from watersmeet.kernel.partials import ROW_BITS, ROW_MASK, Ints, Partials
from watersmeet.kernel.reader import Reader
from watersmeet.predicate.model import Argument, Call, Column, Conjunct


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
        """Return what a call answers for each combination of a block, asked chunks by chunks."""
        streams = sorted({column.stream for argument in call.arguments for column in argument.columns})
        if not streams:
            return np.repeat(self._ask(call, {calls.CONSTANT: np.zeros(1, np.int64)}), len(block))
        keys, inverse = calls.distinct([block.rows[stream] for stream in streams])
        answers: calls.Answers = np.empty(len(keys[0]), dtype=np.int8)
        for here in calls.groups([key >> ROW_BITS for key in keys]):
            answers[here] = self._of_chunks(call, dict(zip(streams, (key[here] for key in keys), strict=True)))
        return answers[inverse]

    def _of_chunks(self, call: Call, refs: dict[int, Ints]) -> calls.Answers:
        """Answer combinations of rows of one chunk per stream; for pairs, what was asked before from the cache."""
        chunks = [self.reader.table.chunk(int(found[0]) >> ROW_BITS) for found in refs.values()]
        if len(chunks) != 2:
            return self._ask(call, refs)
        what = repr((call.predicate, *(argument.sql for argument in call.arguments)))
        asked = Asked(self.run, chunks[0].id, chunks[1].id, what)
        known = self.cache.table(asked, (chunks[0].rows, chunks[1].rows))
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
        predicate = next(predicate for predicate in self.reader.query.predicates if predicate.name == call.predicate)
        started = self.clock()
        answers = calls.ask(predicate, call.arguments, refs, self._fetch)
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
        """Return a column that holds the values of rows of one chunk, and where: the chunk's own, not a copy."""
        return self.reader.table.column(column, int(refs[0]) >> ROW_BITS), refs & ROW_MASK


def booleans(answers: calls.Answers) -> pa.Array:
    """Return answers as SQL takes them."""
    return pa.array(answers == calls.TRUE, mask=answers == calls.NULL)
