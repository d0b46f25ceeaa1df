"""Conjuncts in SQL over blocks: DuckDB says where they hold."""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.predicate.model import Column, Conjunct
from watersmeet.probe import predicate_calls as calls
from watersmeet.probe.column_reader import Reader
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.partials import Partials
from watersmeet.probe.predicate_blocks import Asker, booleans
from watersmeet.query.query import Query


@dataclass(frozen=True, slots=True)
class Sql:
    """Evaluates conjuncts that have a condition in SQL.

    Attributes:
        reader: Looks columns up.
        duck: The process's DuckDB connection.
        asker: Asks the Python predicates that conditions call.
    """

    reader: Reader
    duck: Duck
    asker: Asker

    def true(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Ints:
        """Return where all conjuncts hold; should one of them raise, they are tried one by one, to name it."""
        columns = _columns(conjuncts)
        return self.reader.where(block, columns, lambda piece, at: self._all_true(piece, conjuncts, columns))

    def _all_true(self, block: Partials, conjuncts: Sequence[Conjunct], columns: Collection[Column]) -> Ints:
        found = self.duck.attempt(self.reader.read(block, columns), [c.condition for c in conjuncts], len(block))
        return self._decided(block, conjuncts) if found is None else found

    def undenied(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return where a conjunct that may raise holds; all of a piece of the block for which it does raise."""
        return self.reader.where(block, conjunct.columns, functools.partial(self._undenied, conjunct))

    def _undenied(self, conjunct: Conjunct, block: Partials, at: slice) -> Ints:
        kept = self.duck.attempt(self.reader.read(block, conjunct.columns), [conjunct.condition], len(block))
        return np.arange(len(block)) if kept is None else kept

    def unsure(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return where the answer of a conjunct can't be trusted."""
        return self.reader.where(block, conjunct.columns, functools.partial(self._unsure, conjunct))

    def _unsure(self, conjunct: Conjunct, block: Partials, at: slice) -> Ints:
        assert conjunct.unsure is not None
        found = self.duck.attempt(self.reader.read(block, conjunct.columns), [conjunct.unsure], len(block))
        return np.arange(len(block)) if found is None else found  # it is for Spark to say what is wrong, and where

    def called(self, block: Partials, conjunct: Conjunct) -> Ints:
        """Return where a conjunct that calls Python predicates holds."""
        answers = {call.name: self.asker.answers(block, call) for call in conjunct.calls}
        if conjunct.is_call:
            return np.flatnonzero(answers[conjunct.calls[0].name] == calls.TRUE)
        plain = {c for c in conjunct.columns if c.name in conjunct.condition}

        def held(piece: Partials, at: slice) -> Ints:
            table = self.reader.read(piece, plain) | {name: booleans(found[at]) for name, found in answers.items()}
            return self.duck.filter(table, [conjunct.condition], len(piece))

        return self.reader.where(block, plain, held)

    def decided(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Ints:
        """Return where all conjuncts hold, some of which may raise.

        [!] A combination that one of them denies is none, whatever the others raise for it: access paths, and hops
        before the last, drop it without asking them.

        Raises:
            PredicateError: If one raises where no other denies; the first that does, in written order, is named.
        """
        return self.reader.where(block, _columns(conjuncts), lambda piece, at: self._decided(piece, conjuncts))

    def _decided(self, block: Partials, conjuncts: Sequence[Conjunct]) -> Ints:
        found, failing = np.arange(len(block)), []
        for conjunct in (conjunct for conjunct in conjuncts if not conjunct.calls):
            table = self.reader.read(block.take(found), conjunct.columns)
            kept = self.duck.attempt(table, [conjunct.condition], len(found))
            if kept is None:
                failing.append(conjunct)
            else:
                found = found[kept]
        for conjunct in failing if len(failing) > 1 else ():
            table = self.reader.read(block.take(found), conjunct.columns)
            found = np.delete(found, self.duck.denied(table, conjunct.condition, len(found)))
        called = [conjunct for conjunct in conjuncts if conjunct.calls]
        for conjunct in (*called, *failing):
            found = found[self._check(block.take(found), conjunct)] if len(found) else found
        return found

    def _check(self, block: Partials, conjunct: Conjunct) -> Ints:
        names = telling(self.reader.query, conjunct)
        answers = {call.name: self.asker.booleans(block, call) for call in conjunct.calls}

        def checked(piece: Partials, at: slice) -> Ints:
            table = self.reader.read(piece, conjunct.columns) | {name: found[at] for name, found in answers.items()}
            return self.duck.check(table, conjunct, len(piece), names)

        return self.reader.where(block, conjunct.columns, checked)


def telling(query: Query, conjunct: Conjunct) -> dict[str, str]:
    """Return what an error shows of the rows that a conjunct raised for: columns, by the names that people know.

    Of hidden columns these are values; not answers, nor flags, nor what lacks a value where computing it raised.
    """
    columns = (column for column in conjunct.columns if not _is_ours(query, column))
    answers = {call.name: f"{call.predicate}({', '.join(a.text for a in call.arguments)})" for call in conjunct.calls}
    return {column.name: query.name_of(column) for column in columns} | answers


def _is_ours(query: Query, column: Column) -> bool:
    hidden = column.field >= len(query.streams[column.stream].schema)
    return hidden and (column in query.fallible_columns or pa.types.is_boolean(query.type_of(column)))


def _columns(conjuncts: Sequence[Conjunct]) -> set[Column]:
    return {column for conjunct in conjuncts for column in conjunct.columns}
