"""Optional streams: results that follow from the partners that a combination of the required streams has, or lacks.

Nothing is stored beside the tuples. What is emitted once there can be no more partners is found by *closing*: the
tuples whose deadlines pass in a batch probe the other required streams for what expires after them, so that each
combination is found once, by the member that expires first. What is left of it is then looked up in the optional
streams. A semi join needs no waiting: a new tuple completes a combination that has a partner, or is the first partner
of one. A full join is closed from either side: each of its streams is the optional one of the other. Where nothing but
as-of partners is asked for, a combination is closed at its own time, and found by its latest member.

All this runs in the task that finds the combination, wherever the chunks are kept: one that has no partner at this node
may have one at another. Where only Spark can tell whether something is a partner, it is told both, as a case.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints, Mask
from watersmeet.batch.closed_combinations import closing
from watersmeet.batch.intake import IntakeReport
from watersmeet.batch.plan import BatchPlan
from watersmeet.limits import limits
from watersmeet.probe.chunk_table import Target, start_partials
from watersmeet.probe.emitted_once import NEWEST as NEWEST_TIME
from watersmeet.probe.emitted_once import OWN
from watersmeet.probe.hop import Hops
from watersmeet.probe.hop_steps import Step, entry_conjuncts, step, steps
from watersmeet.probe.newest_rows import AT, Tails
from watersmeet.probe.partials import Partials, regroup
from watersmeet.query.cases import CANDIDATE, CASE, CONTENT, NONE, PAIR, ROLE, SOME
from watersmeet.query.query import OWN_TIME, Query
from watersmeet.query.windows import NEVER
from watersmeet.spilling.owed import ALL, ARRIVED, EARLIER, EXPIRING, NEWEST, PRECEDING, Role

NO_ROW = -1
"""Stands for the reference of a partner where there is none."""


class Newest:
    """The newest partner of each combination of a block, among those offered so far.

    It is the one with the greatest time, and of those with the same time the one with the greatest content hash. Rows
    that agree in both are interchangeable.

    Args:
        combinations: How many there are.

    Attributes:
        ts: The time of each combination's newest partner; NEVER where there is none.
        content: Its content hash; NEVER where there is none.
        row: Its reference; NO_ROW where there is none.
    """

    def __init__(self, combinations: int) -> None:
        self.ts: Ints = np.full(combinations, NEVER)
        self.content: Ints = np.full(combinations, NEVER)
        self.row: Ints = np.full(combinations, NO_ROW)

    def offer(self, combination: Ints, ts: Ints, content: Ints, row: Ints) -> None:
        """Take note of partners, in place.

        Args:
            combination: Whose each is, by position.
            ts: Their times.
            content: Their content hashes.
            row: Their references.
        """
        if not len(row):
            return
        order = np.lexsort((content, ts, combination))
        last = order[np.append(np.diff(combination[order]) != 0, True)]
        at = combination[last]
        newer = (ts[last] > self.ts[at]) | ((ts[last] == self.ts[at]) & (content[last] > self.content[at]))
        newer |= self.row[at] == NO_ROW
        at, last = at[newer], last[newer]
        self.ts[at], self.content[at], self.row[at] = ts[last], content[last], row[last]


class OptionalResults:
    """The share of one task.

    Args:
        plan: The batch's plan.
        query: The join, with the conjuncts by which it is decided.
        hops: What runs hops.
        intakes: What the intake tasks wrote.
        targets: All chunks, those of this batch included.
    """

    def __init__(
        self, plan: BatchPlan, query: Query, hops: Hops, intakes: Sequence[IntakeReport], targets: Sequence[Target]
    ) -> None:
        self._plan, self._query, self._hops = plan, query, hops
        self._intakes = intakes
        self._targets = [target for target in targets if target.chunk.bucket.first]
        self._streams = range(len(query.streams))
        self._case, self._apart = 0, 1

    def results(self, share: int, shares: int) -> Iterator[Partials]:
        """Yield what a task finds of one in `shares` of the tuples that are new, or expire."""
        if not self._query.optional:
            return
        self._case, self._apart = share, shares
        if list(self._query.optional.values()) == ["semi"]:
            (optional,) = self._query.optional
            yield from self._completed(optional, share, shares)
            yield from self._first_met(optional, share, shares)
        else:
            for side in self._sides(share, shares):
                yield from side._closed(share, shares)

    def _sides(self, share: int, shares: int) -> Iterator["OptionalResults"]:
        """Yield the join as it is closed from each of its sides; their cases have different numbers."""
        sides = self._query.sides
        for number, query in enumerate(sides):
            side = OptionalResults(self._plan, query, self._hops, self._intakes, self._targets)
            side._case, side._apart = share + number * shares, len(sides) * shares
            yield side

    # -- semi joins: at the first partner

    def _completed(self, optional: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield combinations that a new tuple completes and that have a partner already."""
        for origin in self._query.members:
            for block in self._combined(origin, self._new(origin, share, shares), ARRIVED):
                yield from self._judged(block, block, optional, ARRIVED, wanted=True)

    def _first_met(self, optional: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield combinations whose first partner is new."""
        query, whole = self._query, (*self._query.members, optional)
        course = steps(query, optional, self._order(optional), ARRIVED, of=whole)
        for block in self._through(self._new(optional, share, shares), course):
            combined = alone(query, block)
            combined.tags[OWN] = block.rows[optional]
            block.high = combined.high
            yield from self._judged(block, combined, optional, EARLIER, wanted=False)

    # -- everything else: when no partner can come any more

    def _closed(self, share: int, shares: int) -> Iterator[Partials]:
        """Yield the results of combinations that the batch closes; of an only left stream those without a partner."""
        left = (
            []
            if self._query.emits_combinations
            else [at for at in self._query.optional if at not in self._query.hidden_streams]
        )
        asked = [at for at in self._query.optional if at not in left]
        role = PRECEDING if self._query.closes_at_its_time else EXPIRING
        for origin in self._query.members:
            for block in self._combined(origin, self._closing(origin, share, shares), role):
                for known in self._all_judged(block, asked):
                    for made in self._extended(known, left):
                        made.high = np.maximum.reduce([*made.times.values()])
                        yield made

    def _all_judged(self, block: Partials, asked: Sequence[int]) -> Iterator[Partials]:
        """Yield combinations that have partners in some streams, or have none, as is asked of each."""
        if not asked:
            yield block
            return
        first, *rest = asked
        wanted = self._query.optional[first] == "semi"
        for known in self._judged(block, block, first, ALL, wanted):
            yield from self._all_judged(known, rest)

    def _closing(self, origin: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield a share of a stream's tuples whose deadlines, or own times, pass in the batch."""
        span = closing(self._plan, self._intakes)
        window = OWN_TIME if self._query.closes_at_its_time else self._query.streams[origin].window
        for target in self._targets:
            low, high = window.deadline(np.array([target.chunk.low, target.chunk.high]))
            if target.chunk.stream == origin and max(low, span.first) <= min(high, span.last):
                deadline = window.deadline(self._hops.rows(target).ts)
                rows = np.flatnonzero((deadline >= span.first) & (deadline <= span.last))[share::shares]
                yield self._entering(target, rows)

    def _extended(self, block: Partials, left: Sequence[int]) -> Iterator[Partials]:
        """Yield combinations with each of their partners in some streams, and without one where they have none.

        [!] Partners are sought for the required members alone, so that what one stream has changes nothing about
        another: times and deadline of the block stay theirs.
        """
        if not len(block) or not left:
            yield from (block,) if len(block) else ()
            return
        first, *rest = left
        pairs = self._newest if first in self._query.as_of_streams else self._matched
        for made in pairs(block, first):
            yield from self._extended(made, rest)

    def _matched(self, block: Partials, left: int) -> Iterator[Partials]:
        """Yield combinations with each of their partners in a left stream, and those that have none."""
        met = np.zeros(len(block), bool)
        for found in self._partners(block, left, ALL):
            at = found.tags[AT]
            met[at] = True
            yield with_partners(block.take(at), left, found.rows[left], found.times[left])
        yield block.take(np.flatnonzero(~met))

    def _newest(self, block: Partials, as_of: int) -> Iterator[Partials]:
        """Yield combinations with their newest partner in an as-of stream, and if asked for those that have none.

        Where Spark has to decide, it chooses among the pairs that are open and the newest of the others.
        """
        newest, case = Newest(len(block)), self._cases(len(block))
        unsure = np.zeros(len(block), bool)
        for found in self._newest_first(block, as_of, newest):
            at, ts, row, later = found.tags[AT], found.times[as_of], found.rows[as_of], self._undecided(found)
            content, known = self._hops.contents(row), ~later
            newest.offer(at[known], ts[known], content[known], row[known])
            unsure[at[later]] = True
            found.tags[CONTENT] = content
            yield from _in_cases(found, later, case[at], CANDIDATE)
        met = newest.row != NO_ROW
        chosen = with_partners(block, as_of, newest.row, newest.ts)
        chosen.tags[CONTENT] = newest.content
        yield chosen.take(np.flatnonzero(met & ~unsure))
        yield from _in_cases(chosen, met & unsure, case, CANDIDATE)
        if self._query.optional[as_of] == "asof left":
            yield block.take(np.flatnonzero(~met & ~unsure))
            yield from _in_cases(block, ~met & unsure, case, NONE)

    def _newest_first(self, block: Partials, as_of: int, newest: Newest) -> Iterator[Partials]:
        """Yield pairs among which are those of the newest partners; of others, as few as will do.

        [!] All pairs where one may raise, since what is never looked at never raises, or is left to Spark.
        """
        if self._query.deferred_conjuncts or any(c.raises for c in self._query.conjuncts):
            yield from self._partners(block, as_of, NEWEST)
            return
        step, left, rows = partner_step(self._query, as_of, NEWEST), np.arange(len(block)), limits().tail_rows
        while len(left):
            tails, part = Tails(len(block), rows), block.take(left) if len(left) < len(block) else block
            part.tags |= {AT: left, NEWEST_TIME: newest.ts if part is block else newest.ts[left]}
            self._hops.work.of(step).rows_in += len(part)
            yield from self._hops.hop(part, step, tails=tails)
            left, rows = np.flatnonzero(tails.unsettled(newest.ts)), rows * 8

    # -- what both need

    def _new(self, origin: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield a share of a stream's new tuples."""
        for target in self._targets:
            if target.chunk.stream == origin and target.chunk.arrived.last == self._plan.batch:
                yield self._entering(target, np.arange(share, target.chunk.rows, shares))

    def _entering(self, target: Target, rows: NDArray[np.int64]) -> Partials:
        ts, origin = self._hops.rows(target).ts[rows], target.chunk.stream
        batch = np.full(len(ts), self._plan.batch)
        block = start_partials(self._query, target, rows, ts, batch, {}, self._streams)
        return self._hops.enter(block, entry_conjuncts(self._query, origin))

    def _combined(self, origin: int, blocks: Iterator[Partials], role: Role) -> Iterator[Partials]:
        """Yield the combinations of the required streams that tuples of one find."""
        members = self._query.members
        course = steps(self._query, origin, self._order(origin), role, of=members)
        found = self._through(blocks, course)
        return found if course else map(self._hops.complete, found)

    def _through(self, blocks: Iterator[Partials], course: Sequence[Step]) -> Iterator[Partials]:
        """Yield what partial results become by some steps."""
        found = regroup(filter(len, blocks))
        for hop in course:
            found = regroup(self._hop(found, hop))
        return found

    def _hop(self, blocks: Iterator[Partials], hop: Step) -> Iterator[Partials]:
        for block in blocks:
            self._hops.work.of(hop).rows_in += len(block)
            yield from self._hops.hop(block, hop)

    def _order(self, origin: int) -> tuple[int, ...]:
        """Return in which order a tuple of a stream probes the other required ones."""
        return tuple(at for at in self._plan.order.orders(origin)[0] if at in self._query.members)

    def _partners(self, block: Partials, optional: int, role: Role) -> Iterator[Partials]:
        """Yield pairs of a combination and a partner; they note the combination's position."""
        block.tags[AT] = np.arange(len(block))
        return self._hop(iter([block]), partner_step(self._query, optional, role))

    def _judged(
        self, block: Partials, combined: Partials, optional: int, role: Role, wanted: bool
    ) -> Iterator[Partials]:
        """Yield what has a partner, or has none; and cases of which only Spark can tell, pairs and claims.

        Args:
            block: What is a result then.
            combined: The combinations of the required streams in it, by which partners are sought.
            optional: The stream of the partners.
            role: Which of its rows are asked for.
            wanted: Whether a partner is wanted.
        """
        met, unsure, case = np.zeros(len(block), bool), np.zeros(len(block), bool), self._cases(len(block))
        for found in self._partners(combined, optional, role):
            at, later = found.tags[AT], self._undecided(found)
            met[at[~later]], unsure[at[later]] = True, True
            yield from _in_cases(found, later, case[at], PAIR)
        unsure &= ~met
        known = np.flatnonzero((met == wanted) & ~unsure)
        if len(known):
            yield block.take(known)
        yield from _in_cases(block, unsure, case, SOME if wanted else NONE)

    def _cases(self, number: int) -> NDArray[np.int64]:
        """Return numbers of new cases, which no other task has."""
        first = self._case
        self._case += self._apart * number
        return first + self._apart * np.arange(number)

    def _undecided(self, block: Partials) -> Mask:
        """Tell which pairs only Spark can decide."""
        return self._hops.pending(block) if self._query.deferred_conjuncts else np.zeros(len(block), bool)


def _in_cases(block: Partials, some: Mask, case: NDArray[np.int64], role: int) -> Iterator[Partials]:
    """Yield some combinations, if there are such, as parts of cases."""
    if some.any():
        made = block.take(np.flatnonzero(some))
        made.tags |= {CASE: case[some], ROLE: np.full(len(made), role)}
        yield made


def with_partners(block: Partials, stream: int, row: NDArray[np.int64], ts: NDArray[np.int64]) -> Partials:
    """Return combinations, each with a partner; the time and the deadline of the block stay those of its members."""
    rows, times = {**block.rows, stream: row}, {**block.times, stream: ts}
    return replace(block, joined=(*block.joined, stream), rows=rows, times=times, tags=dict(block.tags))


def partner_step(query: Query, optional: int, role: Role) -> Step:
    """Return the hop by which combinations of the required streams find their partners in an optional one."""
    return step(query, query.members, optional, role, of=(*query.members, optional))


def alone(query: Query, block: Partials) -> Partials:
    """Return the combinations of the required streams without the partners that they were found by.

    Args:
        query: The join.
        block: What was found, with the times of all its members.
    """
    members = query.members
    times = {at: block.times[at] for at in members}
    deadlines = [query.streams[at].window.deadline(ts) for at, ts in times.items()]
    made = block.only([column for column in block.columns if column.stream in members])
    made.joined, made.rows, made.times = members, {at: block.rows[at] for at in members}, times
    made.high, made.deadline = np.maximum.reduce([*times.values()]), np.minimum.reduce(deadlines)
    return made
