"""The controller: after each batch it decides what the next one spills and pays. Pure.

It follows Jbantova 2007, sections 5.2 and 5.3, with time as a second limit: here state is on disk from the start, so
what runs short in a burst is batch time. Above a limit, a share of the state is spilled. Below the lower marks,
units come back until a limit is nearly reached, and no more often than an interval. Meanwhile batches pay what they
have time for. What has been owed for too long is paid whatever else there is to do. The thesis has nothing of the kind:
there the least productive parts stay away for ever.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from watersmeet.arguments import format_duration
from watersmeet.batch.plan import group_slice
from watersmeet.formatting import format_bytes
from watersmeet.spilling.decisions import (
    PATIENCE,
    ROUND_OVERHEAD,
    ControllerRecord,
    Decision,
    ExpectedTime,
    expect_time,
    pairs_by_rows,
    spilling_progress,
)
from watersmeet.spilling.interface import Spilling, SpillingTree
from watersmeet.spilling.options import Spill
from watersmeet.spilling.parts import OwedProbes, Part, hot_parts, parts_of, spilled_parts
from watersmeet.spilling.policies import POLICIES, Links, Policy
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import NewUnit, SpillPlan

NEGLIGIBLE = 0.1
"""Parts that together take less than this share of a batch's time are not spilled for the sake of time."""
ROUND_SECONDS = 2.0
"""About how long a round in a quiet period takes if the time of batches has no limit."""


@dataclass(frozen=True)
class Controller(Spilling):
    """Decides by limits and policies.

    Attributes:
        spill: The limits and policies.
        seed: Unique to the checkpoint, for the random policy.
        processes: How many processes keep sort orders.
        quotas: The user's quotas, by the joins' paths and the streams' positions.
    """

    spill: Spill
    seed: str = ""
    processes: int = 1
    quotas: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def decide(self, tree: SpillingTree, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        """See Spilling; the controller's record is kept in the ledger, and `progress` says what is spilled and why."""
        parts, at, batch, progress = self._parts(tree, after), int(now * 1e6), after.batch, after.progress
        record, paid = ControllerRecord.of(after).as_of(at), _sum_field(progress, "paidPairs")
        if round:
            record = record.after_round(took, _probed_pairs(progress) + paid, _sum_field(progress, "paidUnits"))
            expected = ExpectedTime(record.coming)
        else:
            pairs, by_rows = _probed_pairs(progress), pairs_by_rows(parts)
            record = record.after_batch(at, took, pairs, paid, self.spill.seconds, by_rows)
            expected = expect_time(parts, record)
        decision = self.choose(parts, record, Situation(at, batch + 1, self._links(tree, after), expected, round))
        coming = expected.own + expected.of(decision.hot_after(parts))
        record = record.after_decision(decision, batch, at, sum(part.owed for part in parts), coming)
        decided = tree.decided(after, _plans_by_join(decision))
        rows, remaining = _sum_field(progress, "paidRows"), self._parts(tree, decided)
        spilling = spilling_progress(remaining, record, decision, rows, at, self.spill)
        ledger = replace(decided.ledger, notes=record.to_json())
        return replace(decided, ledger=ledger, progress={**decided.progress, "spilling": spilling})

    def round(self, tree: SpillingTree, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        """See Spilling; `all` also brings all parts back, else those that rank highest are paid, as fits the time."""
        spilled, next_ = spilled_parts(self._parts(tree, state)), state.batch + 1
        if all and any(part.owed for part in spilled):
            names = frozenset(part.name for part in spilled)
            return _plans_by_join(Decision("pay", pay=[(part, next_) for part in spilled], back=names))
        ranked = self._pay_policy(next_, self._links(tree, state)).highest([part for part in spilled if part.owed])
        seconds = max(0.0, (seconds or self.spill.seconds or ROUND_SECONDS) - ROUND_OVERHEAD)
        payments = affordable_payments(ranked, ControllerRecord.of(state), seconds, next_)
        return _plans_by_join(Decision("pay", pay=payments))

    def _parts(self, tree: SpillingTree, state: Manifest) -> list[Part]:
        """Return the parts of all joins."""
        parts = list[Part]()
        for join, own in tree.states(state):
            query, slice = join.operator.query, group_slice(join.operator.view(own))
            parts += parts_of(join.path, query, own, slice, self.processes)
        return parts

    def _links(self, tree: SpillingTree, state: Manifest) -> Links:
        """Return which parts feed which: the inner joins' parents, and where their results went so far."""
        parents, fed = dict[str, str](), dict[tuple[str, int, int], int]()
        for join, own in tree.states(state):
            parents |= {f"{join.path}_{at}": join.path for at in own.inner}
            fed |= own.ledger.fed
        return Links.of(parents, fed)

    def _policy(self, name: str, batch: int, links: Links) -> Policy:
        return POLICIES[name](f"{self.seed} {batch}", self.spill.correlation, self.quotas, links)

    def _spill_policy(self, now: "Situation") -> Policy:
        """Return the policy that ranks what to spill."""
        return self._policy(self.spill.policy, now.next, now.links)

    def _pay_policy(self, batch: int, links: Links) -> Policy:
        """Return the policy that ranks what to pay."""
        return self._policy(self.spill.pay or self.spill.policy, batch, links)

    # -- the decision

    def choose(self, parts: Sequence[Part], record: ControllerRecord, now: "Situation") -> Decision:
        """Return the decision: spill above a limit, else free disk, keep new rows spilled, bring back or pay.

        What has been owed for too long is paid in any case.
        """
        hot, spilled, interval = hot_parts(parts), spilled_parts(parts), self.spill.interval_us
        hot_bytes = sum(part.bytes for part in hot)
        overdue, why = self._pay_overdue(spilled, now), self._exceeded_limit(hot, hot_bytes, record, now)
        may_return = record.returned is None or now.at - record.returned >= interval
        crowded = self._free_disk(spilled, now, back=may_return and why is None)
        if why is not None:
            return self._spill_lowest(hot, now, hot_bytes, why).with_payments(overdue).with_payments(crowded)
        if crowded.pay or not spilled:
            return crowded.with_payments(overdue)
        is_quiet = record.changed is not None and now.at - record.changed >= interval
        new = [] if now.round else _hot_in_spilled_partitions(parts)
        coming = now.expected.own + now.expected.of(hot) - now.expected.of(new)
        is_below = self._is_below_low_marks(hot_bytes, coming) or is_quiet
        keep = self._keep_spilled(new, now, self._spare_seconds(coming) if is_below else 0.0)
        if keep.spill or not is_below:
            return keep.with_payments(overdue)
        spare = self._spare_seconds(coming + now.expected.of(new))
        # [!] After a round it isn't known what probes of the next batch will cost each part.
        is_blind = now.round and self.spill.seconds is not None
        back = Decision() if is_blind or not may_return else self._bring_back(spilled, record, now, hot_bytes, spare)
        return (back if back.kind else self._pay_in_spare_time(spilled, record, now, spare)).with_payments(overdue)

    def _exceeded_limit(
        self, hot: Sequence[Part], hot_bytes: int, record: ControllerRecord, now: "Situation"
    ) -> str | None:
        """Return which limit was exceeded, to begin a sentence with; None if none was, or if spilling would not help.

        Args:
            hot: The hot parts.
            hot_bytes: Their bytes.
            record: The controller's record.
            now: The situation.
        """
        memory, seconds = self.spill.memory_bytes, self.spill.seconds
        if memory is not None and hot_bytes >= memory:
            return f"hot state took {format_bytes(hot_bytes)} (limit {format_bytes(memory)})"
        if seconds is None or record.late < PATIENCE:
            return None
        gain = now.expected.of(hot)
        coming = now.expected.own + gain
        if not seconds < coming < seconds + 2 * gain:
            return None
        return f"the batch took {record.took:.3g} s, the next would take {coming:.3g} s (limit {seconds:g} s)"

    def _is_below_low_marks(self, hot_bytes: int, coming: float) -> bool:
        """Tell whether hot state and the next batch are both below the lower marks."""
        memory, seconds, low = self.spill.memory_bytes or inf, self.spill.seconds or inf, self.spill.low
        return hot_bytes <= low * memory and coming <= low * seconds

    def _spare_seconds(self, coming: float) -> float:
        """Return the seconds that a batch has left."""
        return max(0.0, self.spill.fill * (self.spill.seconds or inf) - coming)

    # -- spilling

    def _spill_lowest(self, hot: Sequence[Part], now: "Situation", hot_bytes: int, why: str) -> Decision:
        """Return the decision to spill the parts that rank lowest: the share of the state, and more until limits hold.

        Its reason begins with `why`. It is empty if there is nothing to spill.
        """
        policy = self._spill_policy(now)
        rankings: dict[str, list[Part]] = defaultdict(list)
        for part in hot:
            rankings["" if policy.together else part.join].append(part)
        coming, chosen = now.expected.own + now.expected.of(hot), list[Part]()
        for candidates in rankings.values():
            lowest = self._lowest_parts(policy.lowest(candidates), now.expected, coming, hot_bytes)
            coming, hot_bytes = coming - now.expected.of(lowest), hot_bytes - sum(part.bytes for part in lowest)
            chosen += lowest
        return Decision("spill", f"{why}: {_describe_parts(chosen)} spilled", chosen) if chosen else Decision()

    def _keep_spilled(self, new: Sequence[Part], now: "Situation", spare: float) -> Decision:
        """Return the decision to spill new rows of spilled partitions too, except for what fits into `spare` seconds.

        It is empty if all of them fit.

        [!] All tuples of the next batch probe what came with this one. Where everything else is spilled, that is most
        of the work, and the time of this batch, short as nothing was hot, doesn't include it.
        """
        chosen = list[Part]()
        for part in self._spill_policy(now).highest(new):
            cost = now.expected.of([part])
            if spare > 0 and cost <= spare:
                spare -= cost
            else:
                chosen.append(part)
        if not chosen:
            return Decision()
        why = f"{_describe_parts(chosen)} spilled that came for spilled partitions"
        return Decision("keep", why, chosen, routine=True)

    def _lowest_parts(
        self, ranked: Sequence[Part], expected: ExpectedTime, coming: float, hot_bytes: int
    ) -> list[Part]:
        """Return the first parts that make up the share, and as many more as the limits require.

        [!] While a long batch runs, more tuples arrive for the next one. What counts is what that one would take, or
        batches would grow faster than work is spilled.

        Args:
            ranked: The parts.
            expected: The seconds that the next batch is expected to take for each of them.
            coming: The seconds that it is expected to take in all.
            hot_bytes: The bytes of all hot parts.
        """
        memory, seconds = self.spill.memory_bytes or inf, self.spill.seconds or inf
        total, gain = sum(part.bytes for part in ranked), expected.of(ranked)
        chosen, spilled = list[Part](), 0
        for part in ranked:
            is_negligible = gain <= NEGLIGIBLE * seconds
            is_in_time = is_negligible or coming <= seconds
            is_enough = spilled >= self.spill.share * total or (is_negligible and hot_bytes < memory)
            if is_enough and is_in_time and hot_bytes - spilled < memory:
                break
            chosen.append(part)
            spilled += part.bytes
            gain, coming = gain - expected.of([part]), coming - expected.of([part])
        return chosen

    # -- paying

    def _pay_overdue(self, spilled: Sequence[Part], now: "Situation") -> Decision:
        """Return the decision to pay what has been owed for too long; empty if nothing has."""
        latest = now.at - self.spill.oldest_us
        ends = [(part, _payment_end([o for o in part.owing if o.at <= latest], now.next, part)) for part in spilled]
        payments = [(part, end) for part, end in ends if end is not None]
        if not payments:
            return Decision()
        age = format_duration(self.spill.oldest_us)
        return Decision("pay", f"what {len(payments)} units were owed for {age} or longer is paid", pay=payments)

    def _free_disk(self, spilled: Sequence[Part], now: "Situation", back: bool) -> Decision:
        """Return the decision to pay the oldest spilled parts if they take too much disk; empty if they don't.

        Paying alone helps, too: rows that were kept only because something was owed are purged.

        Args:
            spilled: The spilled parts.
            now: The situation.
            back: Whether they may come back as well.
        """
        limit, stored = self.spill.disk_bytes, sum(part.stored for part in spilled)
        if limit is None or stored <= limit:
            return Decision()
        chosen, remaining = list[Part](), stored
        for part in sorted(spilled, key=lambda part: (part.oldest is None, part.oldest or 0, part.name)):
            if remaining <= limit:
                break
            chosen.append(part)
            remaining -= part.stored
        why = f"spilled state took {format_bytes(stored)} (limit {format_bytes(limit)})"
        if back:
            names = frozenset(part.name for part in chosen)
            payments = [(part, now.next) for part in chosen]
            return Decision("return", f"{why}: {_describe_parts(chosen)} back", pay=payments, back=names)
        owed = [part for part in chosen if part.owed]
        if not owed:
            return Decision()
        return Decision("pay", f"{why}: {_describe_parts(owed)} paid", pay=[(part, now.next) for part in owed])

    def _pay_in_spare_time(
        self, spilled: Sequence[Part], record: ControllerRecord, now: "Situation", spare: float
    ) -> Decision:
        """Return the decision to pay what the next batch has `spare` seconds for; empty if that is nothing.

        A batch runs in any case, a round would have to be started. Without a time limit there is no spare time.
        """
        spare = 0.0 if self.spill.seconds is None else spare
        ranked = self._pay_policy(now.next, now.links).highest([part for part in spilled if part.owed])
        payments = affordable_payments(ranked, record, spare, now.next) if spare > 0 else []
        if not payments:
            return Decision()
        paid = _describe_parts([part for part, _ in payments])
        return Decision(
            "pay", f"the next batch has about {spare:.2g} s to spare: {paid} paid", pay=payments, routine=True
        )

    def _bring_back(
        self, spilled: Sequence[Part], record: ControllerRecord, now: "Situation", hot_bytes: int, seconds: float
    ) -> Decision:
        """Return the decision to bring back whole units that rank highest, as far as they fit; empty if none does.

        Units whose payment would take too long are paid only in part, and stay spilled.

        Args:
            spilled: The spilled parts.
            record: The controller's record.
            now: The situation.
            hot_bytes: The bytes of all hot parts.
            seconds: The seconds that the next batch has left.
        """
        room = self.spill.fill * (self.spill.memory_bytes or inf) - hot_bytes
        fitting = list[Part]()
        for part in self._pay_policy(now.next, now.links).highest(spilled):
            cost = now.expected.of([part])
            if part.bytes <= room and cost <= seconds:
                fitting.append(part)
                room, seconds = room - part.bytes, seconds - cost
        payments = affordable_payments(fitting, record, seconds, now.next)
        if not payments:
            return Decision()
        back = frozenset(part.name for part, end in payments if end == now.next)
        took = f"hot state took {format_bytes(hot_bytes)} and the batch {record.took:.3g} s"
        why = f"{took}: {_describe_parts([part for part, _ in payments])} paid, {len(back)} back"
        return Decision("return", why, pay=payments, back=back)


@dataclass(frozen=True, slots=True)
class Situation:
    """The circumstances of a decision.

    Attributes:
        at: When the last batch was offered, by the driver's clock, in microseconds.
        next: The number of the next batch.
        links: The links between the joins.
        expected: The time that the next batch is expected to take.
        round: Whether the last batch was a round, which brings no new rows.
    """

    at: int
    next: int
    links: Links
    expected: ExpectedTime
    round: bool = False


def _hot_in_spilled_partitions(parts: Sequence[Part]) -> list[Part]:
    """Return the hot parts of partitions that are otherwise spilled."""
    partitions = {part.partition for part in spilled_parts(parts) if part.group.of > 1}
    return [part for part in hot_parts(parts) if part.partition in partitions]


def affordable_payments(
    ranked: Sequence[Part], record: ControllerRecord, seconds: float, batch: int
) -> list[tuple[Part, int]]:
    """Return the parts, in their order, that can be paid in some time, each with the batch up to which it is.

    At least one batch of the first part is paid. [!] What is planned is always paid in full, never until time is up.

    Args:
        ranked: The parts.
        record: The measured time of a pair and of a unit.
        seconds: The time, in seconds.
        batch: The next batch.
    """
    payments, budget = list[tuple[Part, int]](), seconds
    for part in ranked:
        affordable = list[OwedProbes]()
        budget -= record.part
        if budget <= 0 and payments:
            break
        for probes in part.owing:
            cost = part.pairs(probes.rows) * (record.pair or 0.0)
            if cost > budget and (payments or affordable):
                break
            affordable.append(probes)
            budget -= cost
        end = batch if not part.owing else _payment_end(affordable, batch, part)
        if end is not None:
            payments.append((part, end))
    return payments


def _payment_end(first: Sequence[OwedProbes], batch: int, part: Part) -> int | None:
    """Return the batch up to which a part is paid, given the first batches that pay; None if there are none."""
    if not first:
        return None
    return batch if len(first) == len(part.owing) else first[-1].batch + 1


def _plans_by_join(decision: Decision) -> dict[str, SpillPlan]:
    """Return a decision as one plan a join, by path."""
    spill: dict[str, list[NewUnit]] = defaultdict(list)
    pay: dict[str, dict[int, int]] = defaultdict(dict)
    back: dict[str, set[int]] = defaultdict(set)
    for part in decision.spill:
        spill[part.join].append(NewUnit(part.group, part.chunks))
    for part, end in decision.pay:
        assert part.unit is not None
        pay[part.join][part.unit.number] = end
        if part.name in decision.back:
            back[part.join].add(part.unit.number)
    return {path: SpillPlan(spill[path], pay[path], frozenset(back[path])) for path in spill.keys() | pay.keys()}


def _describe_parts(parts: Iterable[Part]) -> str:
    sizes = [part.bytes for part in parts]
    return f"{len(sizes)} part{'s' * (len(sizes) != 1)} ({format_bytes(sum(sizes))})"


def _probed_pairs(progress: Mapping[str, Any]) -> float:
    """Return how many pairs the tuples of a batch examined, in all joins."""
    own = float(sum(hop["pairs"] for hop in progress.get("hops", ())))
    return own + sum(_probed_pairs(inner) for inner in progress.get("inner", {}).values())


def _sum_field(progress: Mapping[str, Any], name: str) -> int:
    """Return the sum of a field over all joins."""
    return int(progress.get(name, 0)) + sum(_sum_field(inner, name) for inner in progress.get("inner", {}).values())
