"""The controller: after each batch it decides what the next one puts off and pays. Pure.

Jbantova, sections 5.2 and 5.3, with a second mark, time: state is on disk from the start here, so that what is short
under a burst is the time of a batch. Above a mark, a share of the state is put off; below the lower mark, units come
back until the mark is nearly reached, and no more often than an interval. Meanwhile batches pay what they have time
for. What has been owed for too long is paid whatever else there is to do, which the thesis has nothing of: there the
least productive parts stay away for ever.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from watersmeet.arguments import format_duration
from watersmeet.batch.plan import group_slice
from watersmeet.formatting import format_bytes
from watersmeet.spilling.decisions import BEGUN, PATIENCE, Decision, Record, progress
from watersmeet.spilling.expected_work import Expected, by_rows, expected
from watersmeet.spilling.options import Spill
from watersmeet.spilling.parts import Owing, Part, cold, hot, parts
from watersmeet.spilling.policies import POLICIES, Links, Policy
from watersmeet.spilling.spilling import Plan, Spilling
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import NewUnit, SpillPlan

SPARED = 0.1
"""What takes less than this share of a batch's time together is not put off for the sake of time."""
ROUND_SECONDS = 2.0
"""About how long a round takes in a lull, where batches may take any time."""


@dataclass(frozen=True)
class Controller(Spilling):
    """Decides by marks and policies.

    Attributes:
        spill: The marks and policies.
        seed: Unique to the checkpoint, for the policy of chance.
        processes: How many processes keep sort orders.
        quotas: The user's quotas, by the joins' paths and the streams' positions.
    """

    spill: Spill
    seed: str = ""
    processes: int = 1
    quotas: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def decided(self, tree: Plan, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        """See Spilling."""
        found, at, batch, shown = self._parts(tree, after), int(now * 1e6), after.batch, after.progress
        record, paid = Record.of(after).until(at), _summed(shown, "paidPairs")
        if round:
            record = record.rounded(took, _probed(shown) + paid, _summed(shown, "paidUnits"))
            next_ = Expected(record.coming)
        else:
            record = record.batched(at, took, _probed(shown), paid, self.spill.seconds, by_rows(found))
            next_ = expected(found, record)
        decision = self._decision(found, record, Situation(at, batch + 1, self._links(tree, after), next_, round))
        coming = next_.own + next_.of(decision.hot(found))
        record = record.noting(decision, batch, at, sum(part.owed for part in found), coming)
        decided = tree.decided(after, _choices(decision))
        told = progress(self._parts(tree, decided), record, decision, _summed(shown, "paidRows"), at, self.spill)
        ledger = replace(decided.ledger, notes=record.to_json())
        return replace(decided, ledger=ledger, progress={**decided.progress, "spilling": told})

    def round(self, tree: Plan, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        """See Spilling."""
        away, next_ = cold(self._parts(tree, state)), state.batch + 1
        if all and any(part.owed for part in away):
            names = frozenset(part.name for part in away)
            return _choices(Decision("pay", pay=[(part, next_) for part in away], back=names))
        owed = [part for part in away if part.owed]
        ranked = self._paying(next_, self._links(tree, state)).highest(owed)
        seconds = max(0.0, (seconds or self.spill.seconds or ROUND_SECONDS) - BEGUN)
        return _choices(Decision("pay", pay=affordable(ranked, Record.of(state), seconds, next_)))

    def _parts(self, tree: Plan, state: Manifest) -> list[Part]:
        found = list[Part]()
        for join, own in tree.states(state):
            query, slice = join.operator.query, group_slice(join.operator.view(own))
            found += parts(join.path, query, own, slice, self.processes)
        return found

    def _links(self, tree: Plan, state: Manifest) -> Links:
        parents, fed = dict[str, str](), dict[tuple[str, int, int], int]()
        for join, own in tree.states(state):
            parents |= {f"{join.path}_{at}": join.path for at in own.inner}
            fed |= own.ledger.fed
        return Links.of(parents, fed)

    def _policy(self, name: str, batch: int, links: Links) -> Policy:
        return POLICIES[name](f"{self.seed} {batch}", self.spill.correlation, self.quotas, links)

    def _paying(self, batch: int, links: Links) -> Policy:
        return self._policy(self.spill.pay or self.spill.policy, batch, links)

    # -- the decision

    def _decision(self, found: Sequence[Part], record: Record, now: "Situation") -> Decision:
        held, away = sum(part.bytes for part in hot(found)), cold(found)
        due, why, interval = self._overdue(away, now), self._above(found, held, record, now), self.spill.interval_us
        rested = record.returned is None or now.at - record.returned >= interval
        crowded = self._crowded(away, now, back=rested and why is None)
        if why is not None:
            return self._spilled(found, record, now, held, why).along(due).along(crowded)
        if crowded.pay or not away:
            return crowded.along(due)
        quiet = record.changed is not None and now.at - record.changed >= interval
        new = [] if now.round else _regrown(found)
        coming = now.expected.own + now.expected.of(hot(found)) - now.expected.of(new)
        below = self._below(held, coming) or quiet
        kept_cold = self._kept_cold(new, now, self._spare(coming) if below else 0.0)
        if kept_cold.cool or not below:
            return kept_cold.along(due)
        spare = self._spare(coming + now.expected.of(new))
        # [!] After a round it isn't known what tuples of the next batch will cost each part.
        blind = now.round and self.spill.seconds is not None
        back = self._returned(away, record, now, held, spare) if rested and not blind else Decision()
        return (back if back.kind else self._meanwhile(away, record, now, spare)).along(due)

    def _above(self, found: Sequence[Part], held: int, record: Record, now: "Situation") -> str | None:
        """Return which mark was passed, as the beginning of a sentence; None if none was, or if it would not help."""
        memory, seconds = self.spill.memory_bytes, self.spill.seconds
        if memory is not None and held >= memory:
            return f"hot state took {format_bytes(held)} (limit {format_bytes(memory)})"
        if seconds is None or record.late < PATIENCE:
            return None
        gain = now.expected.of(hot(found))
        coming = now.expected.own + gain
        if not seconds < coming < seconds + 2 * gain:
            return None
        return f"the batch took {record.took:.3g} s, the next would take {coming:.3g} s (limit {seconds:g} s)"

    def _below(self, held: int, coming: float) -> bool:
        """Tell whether all lower marks are kept."""
        memory, seconds, low = self.spill.memory_bytes or inf, self.spill.seconds or inf, self.spill.low
        return held <= low * memory and coming <= low * seconds

    def _spare(self, coming: float) -> float:
        """Return the seconds that are left of a batch's time."""
        return max(0.0, self.spill.fill * (self.spill.seconds or inf) - coming)

    def _spilled(self, found: Sequence[Part], record: Record, now: "Situation", held: int, why: str) -> Decision:
        """Put off what ranks lowest, up to the share, and on until both marks are kept."""
        policy = self._policy(self.spill.policy, now.next, now.links)
        alike: dict[str, list[Part]] = defaultdict(list)
        for part in hot(found):
            alike["" if policy.together else part.join].append(part)
        coming, chosen = now.expected.own + now.expected.of(hot(found)), list[Part]()
        for some in alike.values():
            lowest = self._lowest(policy.lowest(some), now.expected, coming, held)
            coming, held = coming - now.expected.of(lowest), held - sum(part.bytes for part in lowest)
            chosen += lowest
        return Decision("spill", f"{why}: {_counted(chosen)} put off", chosen) if chosen else Decision()

    def _kept_cold(self, new: Sequence[Part], now: "Situation", spare: float) -> Decision:
        """Put off what is new in partitions that are cold, but for what the next batch has time for.

        [!] What came with a batch is asked by all of the next: where all else is cold, that is most of what there is to
        do, and a batch that is short since nothing was hot says nothing of it.
        """
        late = list[Part]()
        for part in self._policy(self.spill.policy, now.next, now.links).highest(new):
            cost = now.expected.of([part])
            if spare > 0 and cost <= spare:
                spare -= cost
            else:
                late.append(part)
        if not late:
            return Decision()
        return Decision("keep", f"{_counted(late)} put off that came for partitions which are", late, routine=True)

    def _lowest(self, ranked: Sequence[Part], expected: Expected, coming: float, held: int) -> list[Part]:
        """Return the first parts that make up the share, and as many more as the marks ask for.

        [!] A batch that takes long lets more tuples come for the next. What that one would take is what counts: batches
        would grow faster than work is put off.

        Args:
            ranked: The parts.
            expected: What the next batch would take part by part,
            coming: and in all.
            held: The bytes that are hot.
        """
        memory, seconds = self.spill.memory_bytes or inf, self.spill.seconds or inf
        own, left = sum(part.bytes for part in ranked), expected.of(ranked)
        chosen, bytes_ = list[Part](), 0
        for part in ranked:
            spare = left <= SPARED * seconds
            quick = spare or coming <= seconds
            enough = bytes_ >= self.spill.share * own or (spare and held < memory)  # it is for time alone
            if enough and quick and held - bytes_ < memory:
                break
            chosen.append(part)
            bytes_ += part.bytes
            left, coming = left - expected.of([part]), coming - expected.of([part])
        return chosen

    def _overdue(self, away: Sequence[Part], now: "Situation") -> Decision:
        """Pay what has been owed for too long."""
        late = now.at - self.spill.oldest_us
        due = [(part, _end([o for o in part.owing if o.at <= late], now.next, part)) for part in away]
        paid = [(part, end) for part, end in due if end is not None]
        if not paid:
            return Decision()
        return Decision(
            "pay",
            f"what {len(paid)} units were owed for {format_duration(self.spill.oldest_us)} or longer is paid",
            pay=paid,
        )

    def _crowded(self, away: Sequence[Part], now: "Situation", back: bool) -> Decision:
        """Pay the oldest of what is cold, if that is too large, and bring it back, if something may come back now.

        Paying alone helps, too: what was kept for the debts alone leaves.
        """
        disk, bytes_ = self.spill.disk_bytes, sum(part.stored for part in away)
        if disk is None or bytes_ <= disk:
            return Decision()
        chosen = list[Part]()
        for part in sorted(away, key=lambda part: (part.oldest is None, part.oldest or 0, part.name)):
            if bytes_ <= disk:
                break
            chosen.append(part)
            bytes_ -= part.stored
        says = f"cold state took {format_bytes(sum(part.stored for part in away))} (limit {format_bytes(disk)}): "
        if back:
            names = frozenset(part.name for part in chosen)
            return Decision("return", f"{says}{_counted(chosen)} back", pay=[(p, now.next) for p in chosen], back=names)
        owed = [part for part in chosen if part.owed]
        return (
            Decision("pay", f"{says}{_counted(owed)} paid", pay=[(p, now.next) for p in owed]) if owed else Decision()
        )

    def _meanwhile(self, away: Sequence[Part], record: Record, now: "Situation", spare: float) -> Decision:
        """Pay what the next batch has time for: a batch begins in any case, a round would have to."""
        spare = 0.0 if self.spill.seconds is None else spare
        ranked = self._paying(now.next, now.links).highest([part for part in away if part.owed])
        paid = affordable(ranked, record, spare, now.next) if spare > 0 else []
        if not paid:
            return Decision()
        says = f"the next batch has about {spare:.2g} s to spare: {_counted([part for part, _ in paid])} paid"
        return Decision("pay", says, pay=paid, routine=True)

    def _returned(self, away: Sequence[Part], record: Record, now: "Situation", held: int, seconds: float) -> Decision:
        """Bring back what ranks highest, whole units, as far as it fits; pay some of what would take too long."""
        spill = self.spill
        room = spill.fill * (spill.memory_bytes or inf) - held
        ranked = self._paying(now.next, now.links).highest(away)
        fitting = list[Part]()
        for part in ranked:
            cost = now.expected.of([part])
            if part.bytes <= room and cost <= seconds:
                fitting.append(part)
                room, seconds = room - part.bytes, seconds - cost
        paid = affordable(fitting, record, seconds, now.next)
        back = frozenset(part.name for part, end in paid if end == now.next)
        if not paid:
            return Decision()
        says = (
            f"hot state took {format_bytes(held)} and the batch {record.took:.3g} s: {_counted([p for p, _ in paid])} "
        )
        return Decision("return", f"{says}paid, {len(back)} back", pay=paid, back=back)


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a decision is made.

    Attributes:
        at: When the batch was offered, by the driver's clock, in microseconds.
        next: The number of the next batch.
        links: How the joins hang together.
        expected: What the next batch will take.
        round: Whether it was a round: then nothing is new.
    """

    at: int
    next: int
    links: Links
    expected: Expected
    round: bool = False


def _regrown(found: Sequence[Part]) -> list[Part]:
    """Return what is hot in partitions that are cold."""
    away = {part.place for part in cold(found) if part.group.of > 1}
    return [part for part in hot(found) if part.place in away]


def affordable(ranked: Sequence[Part], record: Record, seconds: float, batch: int) -> list[tuple[Part, int]]:
    """Return what can be paid in some time: parts in their order, each up to a batch; at least one batch of one part.

    [!] What is planned is paid whole: never until the time is up.

    Args:
        ranked: The parts.
        record: Knows what a pair and a unit take.
        seconds: The time.
        batch: The next batch.
    """
    paid, left = list[tuple[Part, int]](), seconds
    for part in ranked:
        some = list[Owing]()
        left -= record.part
        if left <= 0 and paid:
            break
        for owing in part.owing:
            cost = part.pairs(owing.rows) * (record.pair or 0.0)
            if cost > left and (paid or some):
                break
            some.append(owing)
            left -= cost
        end = batch if not part.owing else _end(some, batch, part)
        if end is not None:
            paid.append((part, end))
    return paid


def _end(some: Sequence[Owing], batch: int, part: Part) -> int | None:
    """Return up to which batch is paid what some batches owe, the first of all; None if they are none."""
    if not some:
        return None
    return batch if len(some) == len(part.owing) else some[-1].batch + 1


def _choices(decision: Decision) -> dict[str, SpillPlan]:
    """Return a decision join by join."""
    cool: dict[str, list[NewUnit]] = defaultdict(list)
    pay: dict[str, dict[int, int]] = defaultdict(dict)
    back: dict[str, set[int]] = defaultdict(set)
    for part in decision.cool:
        cool[part.join].append(NewUnit(part.group, part.chunks))
    for part, end in decision.pay:
        assert part.unit is not None
        pay[part.join][part.unit.number] = end
        if part.name in decision.back:
            back[part.join].add(part.unit.number)
    return {path: SpillPlan(cool[path], pay[path], frozenset(back[path])) for path in cool.keys() | pay.keys()}


def _counted(some: Iterable[Part]) -> str:
    found = list(some)
    return f"{len(found)} {'part' if len(found) == 1 else 'parts'} ({format_bytes(sum(part.bytes for part in found))})"


def _probed(shown: Mapping[str, Any]) -> float:
    """Return how many pairs the tuples of a batch looked at, in all joins."""
    own = float(sum(hop["pairs"] for hop in shown.get("hops", ())))
    return own + sum(_probed(inner) for inner in shown.get("inner", {}).values())


def _summed(shown: Mapping[str, Any], name: str) -> int:
    return int(shown.get(name, 0)) + sum(_summed(inner, name) for inner in shown.get("inner", {}).values())
