"""The dead rule: which stored tuples can be part of no later result, whatever may still come.

Let q be a partial result: matching stored tuples of some of the streams. q is dead if it is complete (except for
tables, whose rows trigger no results), or if a stream not in q is closed for it (`watersmeet.metadata.closing`) and q
with u is dead for every matching stored tuple u of that stream. In particular, q is dead if there is no such u. A tuple
t may be purged when {t} is known to be dead. This is section 5.1 of Ding, Rundensteiner and Heineman, "MJoin: A
Metadata-Aware Stream Join Operator", generalised from two streams and a natural join to any number of streams and any
conjuncts.

[!] That a key's value has come is no reason to drop partners after their first join: a third stream may still bring
more. [!] A time by which a pair must have met is not a deadline for its members: a tuple that has met its partner may
wait for a third one that no time binds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.arrays import Ints, Mask
from watersmeet.limits import limits
from watersmeet.metadata.closing import ClosingRules
from watersmeet.metadata.closing_rules import ClosingRule, MemberValues
from watersmeet.metadata.denial import DeniedRows
from watersmeet.metadata.spans import exact_type, exact_values
from watersmeet.metadata.stored_columns import DistinctRows, StoredColumns, find_distinct
from watersmeet.predicate.model import Column, Conjunct
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.hop_steps import step
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store.store import Store


def exact_equalities(query: Query, conjuncts: Sequence[Conjunct]) -> list[tuple[Column, Column]] | None:
    """Return the pairs of columns that conjuncts require to be equal; None if a conjunct is anything else.

    [!] The columns of a pair must have the same type: a double equals both 2^53 and 2^53 + 1.
    """
    pairs = [conjunct.equality for conjunct in conjuncts if conjunct.equality is not None]
    kinds = [(query.type_of(one), query.type_of(other)) for one, other in pairs]
    exactly = all(one == other and exact_type(one) is not None for one, other in kinds)
    return pairs if exactly and len(pairs) == len(conjuncts) else None


def match_equal_rows(left: Sequence[pa.Array], right: Sequence[pa.Array], most: int) -> tuple[Ints, Ints] | None:
    """Return the pairs of rows that are equal in all columns by the rules of SQL; None if there are more than `most`.

    Args:
        left: The columns of one side, of types that have an `exact_type`.
        right: The columns of the other side, of the same types.
        most: The largest number of pairs that are returned.

    >>> match_equal_rows([pa.array([7, None, 8])], [pa.array([8, 7, None, 7])], most=10)
    (array([0, 0, 2]), array([1, 3, 0]))
    """
    rows = len(left[0])
    columns = [pa.concat_arrays(pair) for pair in zip(left, right, strict=True)]
    valid = np.logical_and.reduce([pc.is_valid(column).to_numpy(zero_copy_only=False) for column in columns])
    kind = find_distinct([exact_values(column) for column in columns], len(valid)).kind
    ours, theirs = np.flatnonzero(valid[:rows]), np.flatnonzero(valid[rows:])
    theirs = theirs[np.argsort(kind[rows + theirs], kind="stable")]
    of_kind = np.bincount(kind[rows + theirs], minlength=kind.max(initial=-1) + 1)
    begin, counts = (np.cumsum(of_kind) - of_kind)[kind[ours]], of_kind[kind[ours]]
    if counts.sum() > most:
        return None
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(ours, counts), theirs[np.repeat(begin, counts) + within]


@dataclass(frozen=True, slots=True)
class PartialResults:
    """Partial results: for each joined stream the numbers of the stored tuples that are members."""

    rows: Mapping[int, Ints]

    def __len__(self) -> int:
        return len(next(iter(self.rows.values())))

    @property
    def joined(self) -> tuple[int, ...]:
        """The joined streams."""
        return tuple(self.rows)

    def take(self, at: Ints) -> "PartialResults":
        """Return the partial results at these positions."""
        return PartialResults({stream: rows[at] for stream, rows in self.rows.items()})

    def plus(self, stream: int, rows: Ints) -> "PartialResults":
        """Return the partial results, each extended by a member of another stream."""
        return PartialResults({**self.rows, stream: rows})


class DeadRule:
    """Decides which stored tuples are dead.

    Args:
        query: The join.
        closing_rules: The rules by which its streams are closed.
        denied: The rows that are denied so far.
        own: The tuples in question by stream, for streams of which not all stored tuples are in question.
        stored: All stored tuples.
        duck: Evaluates conjuncts.
    """

    def __init__(
        self,
        query: Query,
        closing_rules: ClosingRules,
        denied: DeniedRows,
        own: Mapping[int, StoredColumns],
        stored: StoredColumns,
        duck: Duck,
    ) -> None:
        self._query, self._closing_rules, self._denied, self._duck = query, closing_rules, denied, duck
        self._own, self._stored = own, stored
        self._decided: dict[ClosingRule, Mask] = {}

    def find_dead(self, stream: int) -> Mask:
        """Tell which of the tuples in question of a stream are dead; alike tuples are decided once."""
        kinds = self._kinds(stream)
        return self._find_dead(PartialResults({stream: kinds.rows}))[kinds.kind]

    def _find_dead(self, members: PartialResults) -> Mask:
        """Tell which partial results, all over the same streams, are known to be dead.

        Either they await no other stream, or one that they await is closed for them and they are dead with each of its
        matches (recursive). False may mean that matches were too many to try, or that no conjunct finds them. Caches
        what rules decide.

        Args:
            members: Made of representatives of kinds.
        """
        others = self._closing_rules.awaited_streams(members.rows)
        dead = np.full(len(members), not others)
        closed = {stream: self._find_closed(members, stream) for stream in others}
        for stream in sorted(others, key=lambda other: int(closed[other].sum())):
            at = np.flatnonzero(closed[stream] & ~dead)
            if len(at):
                dead[at] = True if len(others) == 1 else self._are_dead_with_matches(members.take(at), stream)
        return dead

    def _find_closed(self, members: PartialResults, stream: int) -> Mask:
        """Tell for which partial results any rule closes a stream."""
        none = np.zeros(len(members), bool)
        rules = self._closing_rules.rules_for(stream, members.joined) if len(members) else []
        return reduce(np.logical_or, (self._apply(rule, members) for rule in rules), none)

    def _apply(self, rule: ClosingRule, members: PartialResults) -> Mask:
        """Tell for which partial results one rule closes its stream.

        A rule that reads a single stream is decided once, for all kinds of its tuples, and the answer kept: members are
        always the representatives of their kinds, and the other members make no difference.
        """
        streams = {column.stream for column in rule.columns}
        if len(streams) != 1:
            return rule.find_closed(self._values(members, rule.columns), len(members), self._denied, self._duck)
        stream = streams.pop()
        if rule not in self._decided:
            kinds, stored = self._kinds(stream).rows, self._own.get(stream, self._stored)
            self._decided[rule] = np.zeros(stored.rows(stream), bool)
            values = self._values(PartialResults({stream: kinds}), rule.columns)
            self._decided[rule][kinds] = rule.find_closed(values, len(kinds), self._denied, self._duck)
        return self._decided[rule][members.rows[stream]]

    def _kinds(self, stream: int) -> DistinctRows:
        """Return a stream's tuples in question, or else all, in kinds: groups that rules can't tell apart."""
        return self._own.get(stream, self._stored).find_distinct(stream, self._closing_rules.relevant_columns[stream])

    def _are_dead_with_matches(self, members: PartialResults, stream: int) -> Mask:
        """Tell which partial results are dead with every matching tuple of a stream that is closed for them.

        None of them counts as dead if the matches are too many to try.
        """
        matches = self._find_matches(members, stream)
        if matches is None:
            return np.zeros(len(members), bool)
        of, rows = matches
        alive = ~self._find_dead(members.take(of).plus(stream, rows)) if len(of) else np.zeros(0, bool)
        dead = np.ones(len(members), bool)
        dead[of[alive]] = False
        return dead

    def _find_matches(self, members: PartialResults, stream: int) -> tuple[Ints, Ints] | None:
        """Return which partial results match which stored tuples of a stream, of which one of each kind is tried.

        None if there are too many pairs, or no conjunct to find them by.

        Only conjuncts in plain SQL are evaluated: anything else, such as windows and Python predicates, could only
        exclude more pairs.
        """
        conjuncts = step(self._query, members.joined, stream).sql
        if not self._stored.rows(stream):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if not conjuncts:
            return None
        columns = {column for conjunct in conjuncts for column in conjunct.columns}
        left = self._values(members, [column for column in columns if column.stream != stream])
        kinds = self._stored.find_distinct(stream, self._closing_rules.relevant_columns[stream]).rows
        right = {c: self._stored.column(c).take(pa.array(kinds)) for c in columns if c.stream == stream}
        equal = exact_equalities(self._query, conjuncts)
        if equal is None:
            pairs = self._join(left, right, conjuncts, (len(members), len(kinds)))
        else:
            sides = [pair if pair[1].stream == stream else pair[::-1] for pair in equal]
            pairs = match_equal_rows(
                [left[one] for one, _ in sides], [right[two] for _, two in sides], limits().purge_pairs
            )
        return None if pairs is None else (pairs[0], kinds[pairs[1]])

    def _join(
        self, left: MemberValues, right: MemberValues, conjuncts: Sequence[Conjunct], sizes: tuple[int, int]
    ) -> tuple[Ints, Ints] | None:
        """Return the pairs of rows that satisfy all conjuncts, by position; None if there are too many."""
        pairs, total = [], 0
        ours, theirs = ({column.name: values for column, values in side.items()} for side in (left, right))
        for pair in self._duck.join(ours, theirs, [conjunct.condition for conjunct in conjuncts], sizes):
            pairs.append(pair)
            total += len(pair[0])
            if total > limits().purge_pairs:
                return None
        return _concatenate(pairs)

    def _values(self, members: PartialResults, columns: Iterable[Column]) -> dict[Column, pa.Array]:
        return {c: self._column(c).take(pa.array(members.rows[c.stream])) for c in columns}

    def _column(self, column: Column) -> pa.Array:
        return self._own.get(column.stream, self._stored).column(column)


def _concatenate(pairs: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([one for one, _ in pairs]), np.concatenate([two for _, two in pairs])


def find_dead_rows(
    query: Query, store: Store, chunks: Sequence[Chunk], mine: Sequence[Chunk], denied: DeniedRows, duck: Duck
) -> dict[str, Ints]:
    """Return the numbers of the rows that have become dead, by the ids of their chunks.

    Args:
        query: The join.
        store: The store of its state.
        chunks: All chunks of earlier batches.
        mine: The chunks whose rows are in question.
        denied: The rows denied after the batch before.
        duck: Evaluates conjuncts.
    """
    once = [chunk for chunk in chunks if chunk.bucket.first]
    closing_rules, stored = ClosingRules(query), StoredColumns(query, store, once)
    whole = len(mine) == len(once) == len(chunks)
    own = stored if whole else StoredColumns(query, store, mine)
    whole_rule = DeadRule(query, closing_rules, denied, {}, stored, duck)
    dead: dict[str, Ints] = {}
    for stream in range(len(query.streams)):
        if not own.rows(stream) or not closing_rules.can_have_dead_rows(stream):
            continue
        rule = whole_rule if whole else DeadRule(query, closing_rules, denied, {stream: own}, stored, duck)
        dead |= own.locate(stream, np.flatnonzero(rule.find_dead(stream)))
    return dead
