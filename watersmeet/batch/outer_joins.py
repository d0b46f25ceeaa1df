"""Outer, semi, anti and as-of joins: results that depend on which partners a combination has in optional streams.

Only tuples are stored. Results that must wait until no further partner can arrive are found by *closing*: tuples whose
deadlines pass in a batch probe the other required streams for tuples that expire later, so that each combination is
found once, by the member that expires first. Its partners are then looked up in the optional streams. A semi join need
not wait: a new tuple completes a combination that has a partner, or is the first partner of one. A full join is closed
from both sides: each of its streams is optional for the other.

A combination is closed once the watermark has passed the deadline of the member that expires first: all later rows are
beyond it. If only as-of partners are asked for, it is closed at its own time, and found by its latest member. When no
more rows will come, everything is closed: in the only batch of a static frame, and in the final round of a query that
is closed for good. A batch closes by the watermark after it, as far as its tasks can know it: they know the rows of the
batch, but neither which streams have become idle nor how far inner joins have advanced. The next batch closes the rest.

All of this runs in the task that finds the combination, wherever the chunks are kept: a combination without a partner
at this node may have one at another. If only Spark can decide whether a tuple is a partner, both possible outcomes are
sent to it, as a case.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints, Mask
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import IntakeReport, total
from watersmeet.limits import limits
from watersmeet.probe.chunk_table import Target, start_partials
from watersmeet.probe.emitted_once import NEWEST as NEWEST_TIME
from watersmeet.probe.emitted_once import OWN
from watersmeet.probe.hop import Hops
from watersmeet.probe.hop_steps import Step, entry_conjuncts, step, steps
from watersmeet.probe.partials import Partials, regroup
from watersmeet.probe.search import AT, Tails
from watersmeet.query.cases import CANDIDATE, CASE, CONTENT, NONE, PAIR, ROLE, SOME
from watersmeet.query.query import OWN_TIME, Query
from watersmeet.query.windows import FOREVER, NEVER
from watersmeet.spilling.units import ALL, ARRIVED, EARLIER, EXPIRING, NEWEST, PRECEDING, Role

NO_ROW = -1
"""The reference that stands for no partner."""


class Span(NamedTuple):
    """The deadlines that pass in a batch, both ends included; empty if the first is later than the last."""

    first: int
    last: int


def closing_mark(plan: BatchPlan, intakes: Sequence[IntakeReport]) -> int | None:
    """Return the time before which every deadline has passed after a batch; None for minus infinity.

    It lies between the watermarks before and after the batch. Tasks and the commit compute the same mark.

    Args:
        plan: The batch's plan.
        intakes: What the intake tasks reported.
    """
    specs, intake = plan.query.streams, total(intakes, len(plan.query.streams))
    latest = [
        max((time for time in (before, new.latest) if time is not None), default=None)
        for before, new in zip(plan.times.latest, intake, strict=True)
    ]
    marks = [spec.watermark(latest[at], plan.times.inner.get(at)) for at, spec in enumerate(specs) if not spec.table]
    finite = [mark for mark in marks if mark is not None]
    if len(finite) < len(marks):
        return plan.times.watermark
    return max(NEVER if plan.times.watermark is None else plan.times.watermark, min(finite))


def closing_span(plan: BatchPlan, intakes: Sequence[IntakeReport]) -> Span:
    """Return the deadlines that pass in a batch; all remaining ones if no more rows will come."""
    first = NEVER if plan.times.settled is None else plan.times.settled
    if plan.intake.repeatable or plan.is_final:
        return Span(first, FOREVER)
    mark = closing_mark(plan, intakes)
    if mark is None or mark == NEVER:
        return Span(FOREVER, NEVER)
    return Span(first, mark - 1)


def closing_times(query: Query, combinations: Partials) -> Ints:
    """Return the times that the watermark has to pass before combinations of the required streams are closed."""
    return combinations.high if query.closes_at_its_time else combinations.deadline


def is_closed(deadline: int, settled: int | None) -> bool:
    """Tell whether the batches so far have closed a combination.

    Args:
        deadline: See `closing_times`.
        settled: The closing mark after the last of them; None for minus infinity.
    """
    return settled is not None and deadline < settled


class Newest:
    """The newest partner of each combination of a block, among those offered so far.

    The newest has the greatest time, and among equal times the greatest content hash. Rows that agree in both are
    interchangeable.

    Args:
        combinations: The number of combinations.

    Attributes:
        ts: The time of each combination's newest partner; NEVER if it has none.
        content: Its content hash; NEVER if it has none.
        row: Its reference; NO_ROW if it has none.
    """

    def __init__(self, combinations: int) -> None:
        self.ts: Ints = np.full(combinations, NEVER)
        self.content: Ints = np.full(combinations, NEVER)
        self.row: Ints = np.full(combinations, NO_ROW)

    def offer(self, combination: Ints, ts: Ints, content: Ints, row: Ints) -> None:
        """Update the newest partners, in place.

        Args:
            combination: The position of each partner's combination.
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
    """Finds the results with optional streams in one task's share.

    Args:
        plan: The batch's plan.
        query: The join, with the conjuncts by which it is decided.
        hops: Runs hops.
        intakes: The reports of the intake tasks.
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
        """Yield blocks of results that every `shares`-th of the new or expiring tuples finds; none for inner joins."""
        if not self._query.optional:
            return
        self._case, self._apart = share, shares
        if list(self._query.optional.values()) == ["semi"]:
            (optional,) = self._query.optional
            yield from self._newly_completed(optional, share, shares)
            yield from self._first_matched(optional, share, shares)
        else:
            for side in self._sides(share, shares):
                yield from side._close_combinations(share, shares)

    def _sides(self, share: int, shares: int) -> Iterator["OptionalResults"]:
        """Yield the join as seen from each side that closes it; the sides' cases have different numbers."""
        sides = self._query.sides
        for number, query in enumerate(sides):
            side = OptionalResults(self._plan, query, self._hops, self._intakes, self._targets)
            side._case, side._apart = share + number * shares, len(sides) * shares
            yield side

    # -- semi joins: at the first partner

    def _newly_completed(self, optional: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield blocks of combinations that a new tuple completes and that already have a partner."""
        for origin in self._query.members:
            for block in self._combine(origin, self._new_tuples(origin, share, shares), ARRIVED):
                yield from self._test_partners(block, block, optional, ARRIVED, has_partner=True)

    def _first_matched(self, optional: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield blocks of combinations whose first partner is new."""
        query, whole = self._query, (*self._query.members, optional)
        course = steps(query, optional, self._order(optional), ARRIVED, of=whole)
        for block in self._probe_steps(self._new_tuples(optional, share, shares), course):
            combined = alone(query, block)
            combined.tags[OWN] = block.rows[optional]
            block.high = combined.high
            yield from self._test_partners(block, combined, optional, EARLIER, has_partner=False)

    # -- all other joins: when no further partner can arrive

    def _close_combinations(self, share: int, shares: int) -> Iterator[Partials]:
        """Yield blocks of the results of combinations that the batch closes.

        If the only optional stream is a left one, these are just the combinations without a partner.
        """
        left = (
            []
            if self._query.emits_combinations
            else [at for at in self._query.optional if at not in self._query.hidden_streams]
        )
        tested = [at for at in self._query.optional if at not in left]
        role = PRECEDING if self._query.closes_at_its_time else EXPIRING
        for origin in self._query.members:
            for block in self._combine(origin, self._closing_tuples(origin, share, shares), role):
                for combinations in self._test_all_partners(block, tested):
                    for results in self._extend(combinations, left):
                        results.high = np.maximum.reduce([*results.times.values()])
                        yield results

    def _test_all_partners(self, block: Partials, streams: Sequence[int]) -> Iterator[Partials]:
        """Yield combinations that have a partner in each semi stream, and none in each anti stream."""
        if not streams:
            yield block
            return
        first, *rest = streams
        has_partner = self._query.optional[first] == "semi"
        for combinations in self._test_partners(block, block, first, ALL, has_partner):
            yield from self._test_all_partners(combinations, rest)

    def _closing_tuples(self, origin: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield a block for each chunk: a share of its tuples whose deadlines, or own times, pass in the batch."""
        span = closing_span(self._plan, self._intakes)
        window = OWN_TIME if self._query.closes_at_its_time else self._query.streams[origin].window
        for target in self._targets:
            low, high = window.deadline(np.array([target.chunk.low, target.chunk.high]))
            if target.chunk.stream == origin and max(low, span.first) <= min(high, span.last):
                deadline = window.deadline(self._hops.rows(target).ts)
                rows = np.flatnonzero((deadline >= span.first) & (deadline <= span.last))[share::shares]
                yield self._start_tuples(target, rows)

    def _extend(self, block: Partials, left: Sequence[int]) -> Iterator[Partials]:
        """Yield combinations with each of their partners in these streams, or without one if they have none.

        [!] Partners depend on the required members alone, so that the partners in one stream don't affect those in
        another: the block keeps the times and deadlines of its required members.
        """
        if not len(block) or not left:
            yield from (block,) if len(block) else ()
            return
        first, *rest = left
        extend = self._as_of_join if first in self._query.as_of_streams else self._left_join
        for extended in extend(block, first):
            yield from self._extend(extended, rest)

    def _left_join(self, block: Partials, left: int) -> Iterator[Partials]:
        """Yield combinations with each of their partners in a left stream, and those that have none."""
        has_partner = np.zeros(len(block), bool)
        for pairs in self._partners(block, left, ALL):
            at = pairs.tags[AT]
            has_partner[at] = True
            yield with_partners(block.take(at), left, pairs.rows[left], pairs.times[left])
        yield block.take(np.flatnonzero(~has_partner))

    def _as_of_join(self, block: Partials, as_of: int) -> Iterator[Partials]:
        """Yield combinations with their newest partner in an as-of stream, and for a left one those that have none.

        If Spark must decide, it chooses among the undecided pairs and the newest of the decided ones.
        """
        newest, case = Newest(len(block)), self._number_cases(len(block))
        is_open = np.zeros(len(block), bool)
        for pairs in self._newest_first(block, as_of, newest):
            at, ts, row, undecided = pairs.tags[AT], pairs.times[as_of], pairs.rows[as_of], self._find_undecided(pairs)
            content, decided = self._hops.contents(row), ~undecided
            newest.offer(at[decided], ts[decided], content[decided], row[decided])
            is_open[at[undecided]] = True
            pairs.tags[CONTENT] = content
            yield from _in_cases(pairs, undecided, case[at], CANDIDATE)
        has_partner = newest.row != NO_ROW
        newest_pairs = with_partners(block, as_of, newest.row, newest.ts)
        newest_pairs.tags[CONTENT] = newest.content
        yield newest_pairs.take(np.flatnonzero(has_partner & ~is_open))
        yield from _in_cases(newest_pairs, has_partner & is_open, case, CANDIDATE)
        if self._query.optional[as_of] == "asof left":
            yield block.take(np.flatnonzero(~has_partner & ~is_open))
            yield from _in_cases(block, ~has_partner & is_open, case, NONE)

    def _newest_first(self, block: Partials, as_of: int, newest: Newest) -> Iterator[Partials]:
        """Yield pairs that include those with the newest partners, and as few others as possible.

        The caller must offer the decided pairs of each block to `newest` before it asks for the next: further rows are
        only looked at for combinations that may still have a newer partner among them.

        [!] All pairs if a conjunct may raise or is left to Spark: a pair that is not looked at would never raise.
        """
        if self._query.deferred_conjuncts or any(c.raises for c in self._query.conjuncts):
            yield from self._partners(block, as_of, NEWEST)
            return
        step, open_, rows = partner_step(self._query, as_of, NEWEST), np.arange(len(block)), limits().tail_rows
        while len(open_):
            tails, part = Tails(len(block), rows), block.take(open_) if len(open_) < len(block) else block
            part.tags |= {AT: open_, NEWEST_TIME: newest.ts if part is block else newest.ts[open_]}
            self._hops.work.of(step).rows_in += len(part)
            yield from self._hops.hop(part, step, tails=tails)
            open_, rows = np.flatnonzero(tails.unsettled(newest.ts)), rows * 8

    # -- shared by both

    def _new_tuples(self, origin: int, share: int, shares: int) -> Iterator[Partials]:
        """Yield a block for each chunk: a share of its tuples, if they are new and of this stream."""
        for target in self._targets:
            if target.chunk.stream == origin and target.chunk.arrived.last == self._plan.batch:
                yield self._start_tuples(target, np.arange(share, target.chunk.rows, shares))

    def _start_tuples(self, target: Target, rows: NDArray[np.int64]) -> Partials:
        ts, origin = self._hops.rows(target).ts[rows], target.chunk.stream
        batch = np.full(len(ts), self._plan.batch)
        block = start_partials(self._query, target, rows, ts, batch, {}, self._streams)
        return self._hops.enter(block, entry_conjuncts(self._query, origin))

    def _combine(self, origin: int, blocks: Iterator[Partials], role: Role) -> Iterator[Partials]:
        """Yield blocks of the combinations of the required streams that the tuples of one of them find."""
        members = self._query.members
        course = steps(self._query, origin, self._order(origin), role, of=members)
        combinations = self._probe_steps(blocks, course)
        return combinations if course else map(self._hops.complete, combinations)

    def _probe_steps(self, blocks: Iterator[Partials], course: Sequence[Step]) -> Iterator[Partials]:
        """Yield what partial results become by some steps."""
        longer = regroup(filter(len, blocks))
        for hop in course:
            longer = regroup(self._hop(longer, hop))
        return longer

    def _hop(self, blocks: Iterator[Partials], hop: Step) -> Iterator[Partials]:
        for block in blocks:
            self._hops.work.of(hop).rows_in += len(block)
            yield from self._hops.hop(block, hop)

    def _order(self, origin: int) -> tuple[int, ...]:
        """Return the order in which a tuple of a stream probes the other required streams."""
        return tuple(at for at in self._plan.order.orders(origin)[0] if at in self._query.members)

    def _partners(self, block: Partials, optional: int, role: Role) -> Iterator[Partials]:
        """Yield blocks of pairs with a partner, each tagged with the position of its combination; also tags `block`."""
        block.tags[AT] = np.arange(len(block))
        return self._hop(iter([block]), partner_step(self._query, optional, role))

    def _test_partners(
        self, block: Partials, combined: Partials, optional: int, role: Role, has_partner: bool
    ) -> Iterator[Partials]:
        """Yield the rows that have a partner, or have none; undecided ones as cases for Spark, with their pairs.

        Args:
            block: The rows to yield.
            combined: The combinations of the required streams in them, which probe for partners.
            optional: The stream of the partners.
            role: Which of its rows are probed.
            has_partner: Whether to yield rows with a partner, rather than those without.
        """
        is_matched, is_open = np.zeros(len(block), bool), np.zeros(len(block), bool)
        case = self._number_cases(len(block))
        for pairs in self._partners(combined, optional, role):
            at, undecided = pairs.tags[AT], self._find_undecided(pairs)
            is_matched[at[~undecided]], is_open[at[undecided]] = True, True
            yield from _in_cases(pairs, undecided, case[at], PAIR)
        is_open &= ~is_matched
        decided = np.flatnonzero((is_matched == has_partner) & ~is_open)
        if len(decided):
            yield block.take(decided)
        yield from _in_cases(block, is_open, case, SOME if has_partner else NONE)

    def _number_cases(self, number: int) -> NDArray[np.int64]:
        """Take the next numbers for new cases and return them; they are unique among all tasks."""
        first = self._case
        self._case += self._apart * number
        return first + self._apart * np.arange(number)

    def _find_undecided(self, block: Partials) -> Mask:
        """Tell which pairs only Spark can decide."""
        return self._hops.pending(block) if self._query.deferred_conjuncts else np.zeros(len(block), bool)


def _in_cases(block: Partials, some: Mask, case: NDArray[np.int64], role: int) -> Iterator[Partials]:
    """Yield some rows of a block, tagged with their cases and their role; nothing if there are none."""
    if some.any():
        part = block.take(np.flatnonzero(some))
        part.tags |= {CASE: case[some], ROLE: np.full(len(part), role)}
        yield part


def with_partners(block: Partials, stream: int, row: NDArray[np.int64], ts: NDArray[np.int64]) -> Partials:
    """Return combinations, each with a partner; they keep the times and deadlines of their required members."""
    rows, times = {**block.rows, stream: row}, {**block.times, stream: ts}
    return replace(block, joined=(*block.joined, stream), rows=rows, times=times, tags=dict(block.tags))


def partner_step(query: Query, optional: int, role: Role) -> Step:
    """Return the hop by which combinations of the required streams find their partners in an optional one."""
    return step(query, query.members, optional, role, of=(*query.members, optional))


def alone(query: Query, block: Partials) -> Partials:
    """Return the combinations of the required streams in a block, without their partners.

    Args:
        query: The join.
        block: The combinations with their partners, and the times of all members.
    """
    members = query.members
    times = {at: block.times[at] for at in members}
    deadlines = [query.streams[at].window.deadline(ts) for at, ts in times.items()]
    combined = block.only([column for column in block.columns if column.stream in members])
    combined.joined, combined.rows, combined.times = members, {at: block.rows[at] for at in members}, times
    combined.high, combined.deadline = np.maximum.reduce([*times.values()]), np.minimum.reduce(deadlines)
    return combined
