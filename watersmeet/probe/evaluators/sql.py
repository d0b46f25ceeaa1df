"""Conjuncts in SQL, evaluated for blocks by DuckDB."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.predicate.model import Column, Conjunct
from watersmeet.probe import predicate_calls as calls
from watersmeet.probe.chunk_table import ColumnReader
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.partials import Partials
from watersmeet.probe.predicate_blocks import PredicateCaller, booleans
from watersmeet.query.query import Query


@dataclass(frozen=True, slots=True)
class Sql:
    """Evaluates conjuncts that have a condition in SQL.

    Attributes:
        reader: Looks columns up.
        duck: The process's DuckDB connection.
        predicates: Calls the Python predicates in conditions.
    """

    reader: ColumnReader
    duck: Duck
    predicates: PredicateCaller

    def true(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Ints:
        """Return where all conjuncts hold or can't be trusted; if one raises, they are tried one by one to name it.

        Raises:
            PredicateError: If one raises where no other denies.
        """
        columns = _columns(conjuncts)
        return self.reader.where(block, columns, lambda piece, at: self._all_true(piece, conjuncts, columns))

    def _all_true(self, block: Partials, conjuncts: Sequence[Conjunct], columns: Collection[Column]) -> Ints:
        positions = self.duck.attempt(self.reader.read(block, columns), [c.condition for c in conjuncts], len(block))
        return self._decide(block, conjuncts) if positions is None else positions

    def not_denied(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return where a conjunct that may raise holds, and all of each piece of the block for which it raises."""
        return self.reader.where(block, conjunct.columns, lambda piece, at: self._find_not_denied(piece, conjunct))

    def _find_not_denied(self, block: Partials, conjunct: Conjunct) -> Ints:
        positions = self.duck.attempt(self.reader.read(block, conjunct.columns), [conjunct.condition], len(block))
        return np.arange(len(block)) if positions is None else positions

    def unsure(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return where the answer of a conjunct can't be trusted."""
        return self.reader.where(block, conjunct.columns, lambda piece, at: self._find_unsure(piece, conjunct))

    def _find_unsure(self, block: Partials, conjunct: Conjunct) -> Ints:
        assert conjunct.unsure is not None
        positions = self.duck.attempt(self.reader.read(block, conjunct.columns), [conjunct.unsure], len(block))
        # If the test itself raises, Spark decides, and reports what is wrong and where.
        return np.arange(len(block)) if positions is None else positions

    def evaluate_calls(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return where a conjunct that calls Python predicates holds; calls those whose answers aren't cached.

        Raises:
            PredicateError: If a predicate raises, or answers anything but a mask.
        """
        answers = {call.name: self.predicates.answers(block, call) for call in conjunct.calls}
        if conjunct.is_call:
            return np.flatnonzero(answers[conjunct.calls[0].name] == calls.TRUE)
        plain = {c for c in conjunct.columns if c.name in conjunct.condition}

        def evaluate(piece: Partials, at: slice) -> Ints:
            table = self.reader.read(piece, plain) | {name: booleans(values[at]) for name, values in answers.items()}
            return self.duck.filter(table, [conjunct.condition], len(piece))

        return self.reader.where(block, plain, evaluate)

    def decide(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Ints:
        """Return where all conjuncts hold, some of which may raise.

        [!] A combination that one of them denies is dropped, whatever the others raise for it: access paths, and hops
        before the last, drop it without evaluating them.

        Raises:
            PredicateError: If one raises where no other denies; the error names the first such conjunct, as written.
        """
        return self.reader.where(block, _columns(conjuncts), lambda piece, at: self._decide(piece, conjuncts))

    def _decide(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Ints:
        """Return the rows for which all conjuncts are TRUE; raises PredicateError if one raises where no other denies.

        Conjuncts that raise when tested at once come last, row by row, on what the others leave: after calls of Python
        predicates, and without the rows that one of several such conjuncts denies.
        """
        positions, failing = np.arange(len(block)), []
        for conjunct in (conjunct for conjunct in conjuncts if not conjunct.calls):
            table = self.reader.read(block.take(positions), conjunct.columns)
            passing = self.duck.attempt(table, [conjunct.condition], len(positions))
            if passing is None:
                failing.append(conjunct)
            else:
                positions = positions[passing]
        for conjunct in failing if len(failing) > 1 else ():
            table = self.reader.read(block.take(positions), conjunct.columns)
            positions = np.delete(positions, self.duck.find_denied(table, conjunct.condition, len(positions)))
        with_calls = [conjunct for conjunct in conjuncts if conjunct.calls]
        for conjunct in (*with_calls, *failing):
            positions = positions[self._check(block.take(positions), conjunct)] if len(positions) else positions
        return positions

    def _check(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return the rows for which a conjunct is TRUE; calls its Python predicates first, and raises its errors."""
        names = error_columns(self.reader.query, conjunct)
        answers = {call.name: self.predicates.booleans(block, call) for call in conjunct.calls}

        def check(piece: Partials, at: slice) -> Ints:
            table = self.reader.read(piece, conjunct.columns) | {name: values[at] for name, values in answers.items()}
            return self.duck.check(table, conjunct, len(piece), names)

        return self.reader.where(block, conjunct.columns, check)


def error_columns(query: Query, conjunct: Conjunct) -> dict[str, str]:
    """Return the columns that an error shows for a conjunct that raised, with the names that users know.

    Hidden columns are shown if they are values, but not flags, answers, or columns whose computation may have raised.
    """
    columns = (column for column in conjunct.columns if not _is_ours(query, column))
    answers = {call.name: f"{call.predicate}({', '.join(a.text for a in call.arguments)})" for call in conjunct.calls}
    return {column.name: query.name_of(column) for column in columns} | answers


def _is_ours(query: Query, column: Column) -> bool:
    is_hidden = column.field >= len(query.streams[column.stream].schema)
    return is_hidden and (column in query.fallible_columns or pa.types.is_boolean(query.type_of(column)))


def _columns(conjuncts: Sequence[Conjunct]) -> set[Column]:
    return {column for conjunct in conjuncts for column in conjunct.columns}
