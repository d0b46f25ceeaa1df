"""The steps of a join order: which conjuncts each hop decides, by which access paths, and which columns it carries."""

from collections.abc import Collection
from dataclasses import dataclass

from watersmeet.predicate.model import Bound, Column, Conjunct
from watersmeet.query.query import Query
from watersmeet.spilling.units import NEW, Role

Hop = tuple[tuple[int, ...], int]
"""The streams joined, in rising order, and the stream they probe."""


@dataclass(frozen=True, slots=True)
class Step:
    """One hop of a join order: partial results over `joined` probe the stream `target`.

    Attributes:
        joined: The streams present before the hop, the probing tuple's first.
        target: The stream that is probed.
        last: Whether the hop completes the result.
        bounds: The access paths that the streams present can use.
        sql: Conjuncts in plain SQL that can't raise.
        near: Conjuncts of real numbers, of which only the closest pairs are left open.
        calls: Conjuncts with Python predicates.
        early_raising: Conjuncts that may raise and can be tested before the last hop: blocks for which they don't raise
            are filtered, others go on whole, so that no conjunct raises before its guard.
        raising: Conjuncts that may raise, decided on the last hop only, after all others, as written.
        carry: Columns that later hops or the output need.
        role: Which of the stream's rows are looked for.
    """

    joined: tuple[int, ...]
    target: int
    last: bool
    bounds: tuple[Bound, ...]
    sql: tuple[Conjunct, ...]
    near: tuple[Conjunct, ...]
    calls: tuple[Conjunct, ...]
    early_raising: tuple[Conjunct, ...]
    raising: tuple[Conjunct, ...]
    carry: tuple[Column, ...]
    role: Role = NEW

    @property
    def numeric(self) -> tuple[Conjunct, ...]:
        """The conjuncts in plain SQL that NumPy decides for pairs, before these become partial results."""
        return tuple(conjunct for conjunct in self.sql if conjunct.numeric)

    @property
    def hop(self) -> Hop:
        """The key by which the step's work is counted, whichever of the streams joined came first."""
        return tuple(sorted(self.joined)), self.target


def step(
    query: Query, joined: tuple[int, ...], target: int, role: Role = NEW, of: Collection[int] | None = None
) -> Step:
    """Return what the hop from `joined` to `target` does.

    Args:
        query: The join.
        joined: The streams present, the probing tuple's first.
        target: The stream that is probed.
        role: Which of its rows are looked for.
        of: The streams of a complete result; None for all streams of the join.
    """
    before, after = frozenset(joined), frozenset(joined) | {target}
    whole = frozenset(range(len(query.streams)) if of is None else of)
    last = after == whole
    decidable = [c for c in query.conjuncts if c.streams <= after and not c.streams <= before and target in c.streams]
    safe = [c for c in decidable if not c.raises and not c.opaque]
    raising = [c for c in query.conjuncts if c.raises and not query.needs_spark and c.streams <= whole]
    deferred = query.deferred_conjuncts
    pending = [c for c in query.conjuncts if not c.streams <= after or c in deferred or (c.raises and not last)]
    bounds = (b for c in decidable for b in c.bounds)
    carried = {column for c in pending for column in c.columns} | set(query.output_columns)
    return Step(
        joined=joined,
        target=target,
        last=last,
        bounds=tuple(b for b in bounds if b.column.stream == target and {c.stream for c in b.columns} <= before),
        sql=tuple(c for c in safe if not c.calls and not c.near),
        near=tuple(c for c in safe if c.near),
        calls=tuple(c for c in safe if c.calls),
        early_raising=() if last and raising else tuple(c for c in decidable if c.raises and not c.calls),
        raising=tuple(raising) if last else (),
        carry=tuple(sorted(column for column in carried if column.stream in after)),
        role=role,
    )


def steps(
    query: Query, origin: int, order: tuple[int, ...], role: Role = NEW, of: Collection[int] | None = None
) -> tuple[Step, ...]:
    """Return the hops of a tuple of stream `origin` that probes other streams in the given order; see `step`."""
    return tuple(step(query, (origin, *order[:at]), target, role, of) for at, target in enumerate(order))


def entry_conjuncts(query: Query, origin: int) -> tuple[Conjunct, ...]:
    """Return the conjuncts that a tuple of `origin` can be tested against before it probes anything."""
    return tuple(c for c in query.conjuncts if c.streams <= {origin} and not c.raises and not c.opaque)
