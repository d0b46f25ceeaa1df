"""What the controller decides after a batch, the record that it keeps, and how both are shown.

The time that the next batch takes is expected part by part, judging by the last one. By rows alone, a tuple would
examine all rows of the other streams in its partition. Windows and access paths spare it most of them; the last batch
tells what share is left.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

from watersmeet.arguments import format_duration, format_roughly
from watersmeet.formatting import format_bytes
from watersmeet.spilling.options import Spill
from watersmeet.spilling.parts import JoinPartition, Part, hot_parts, spilled_parts
from watersmeet.state.manifest.manifest import Manifest

LOGGED = 20
"""How many decisions are kept in the log."""
GROWING_INTERVALS = 2
"""For how many intervals what is owed must have grown before the join is called overloaded."""
GROWING_LEAST = 120_000_000
"""And for at least this many microseconds: a burst is not a permanent load."""
ROUND_OVERHEAD = 0.5
"""About how long a round takes, payments aside, in seconds; 0.55 were measured."""
LEAST_RISE = 1.01
"""The factor by which the fixed cost of a batch may rise from one batch to the next."""
MOSTLY_PAIRS = 1.5
"""A step that takes this many times its fixed cost tells how long pairs take."""
MOST_GROWTH = 2.0
"""No batch is expected to bring more times as many tuples as the one before: sources may have limits."""
PATIENCE = 2
"""How many batches in a row must take too long before work is spilled: a single one may have other reasons."""
SAME_PAIRS = 1.1
"""A late batch has no other reason if its pairs took at most this many times as long as before."""


class Decision(NamedTuple):
    """What the controller decides after a batch.

    Attributes:
        kind: `spill`, `keep` (new rows of spilled partitions are spilled, too), `return`, `pay`, or empty for nothing.
        why: The numbers that led to it, as a sentence.
        spill: The parts to be spilled.
        pay: The spilled parts to be paid, each with the batch up to which it is.
        back: The names of those that become hot if nothing more is owed to them.
        routine: Whether the same goes on from batch to batch; then it is shown with its batch, but not logged.
    """

    kind: str = ""
    why: str = ""
    spill: Sequence[Part] = ()
    pay: Sequence[tuple[Part, int]] = ()
    back: frozenset[Any] = frozenset()
    routine: bool = False

    def with_payments(self, other: "Decision") -> "Decision":
        """Return the decision with the payments of another one added; the other one if this one decides nothing."""
        if not (self.kind and other.kind):
            return self if self.kind else other
        ends: dict[Any, tuple[Part, int]] = {}
        for part, end in (*self.pay, *other.pay):
            ends[part.name] = part, max(end, ends.get(part.name, (part, end))[1])
        why, routine = "; ".join(filter(None, [self.why, other.why])), self.routine and other.routine
        return self._replace(why=why, pay=list(ends.values()), routine=routine)

    def hot_after(self, parts: Sequence[Part]) -> list[Part]:
        """Return the parts that are hot after the decision."""
        spilled = {part.name for part in self.spill}
        return [p for p in parts if p.name in self.back or (p.unit is None and p.name not in spilled)]


@dataclass(frozen=True, slots=True)
class ControllerRecord:
    """What the controller keeps from batch to batch; methods named `after_...` return a new record.

    The manifest stores it by these names, so that a restart continues where the run stopped.

    Attributes:
        pair: The seconds that a pair takes; None before it has been measured.
        least: The fixed cost of a batch, however few its pairs, in seconds.
        part: The fixed cost of paying a unit, in seconds.
        took: The seconds that the last batch took, payments and rounds aside.
        work: About how many of them its pairs took.
        looked: The share of the pairs, by rows alone, that a batch's tuples examine.
        coming: About how many seconds the next batch will take, payments aside.
        growth: About how many times as many tuples the next batch will bring: more than 1 if the last batch took longer
            than its tuples took to arrive, since as many arrive while it runs.
        offered: When the last batch was offered, by the driver's clock, in microseconds.
        late: How many batches in a row have taken too long; at least `PATIENCE` if pairs were the reason.
        owed: How many probes were owed after the last decision.
        returned: When units last came back, by the driver's clock, in microseconds.
        changed: When anything was last spilled or came back.
        grown: Since when what is owed has only grown, and how much it was then; None if nothing is owed.
        log: The last decisions: batch, kind and reason.
    """

    pair: float | None = None
    least: float | None = None
    part: float = 0.002
    took: float = 0.0
    work: float = 0.0
    looked: float = 1.0
    coming: float = 0.0
    growth: float = 1.0
    offered: int | None = None
    late: int = 0
    owed: int = 0
    returned: int | None = None
    changed: int | None = None
    grown: tuple[int, int] | None = None
    log: tuple[tuple[int, str, str], ...] = ()

    @classmethod
    def of(cls, state: Manifest) -> "ControllerRecord":
        """Return the record stored in a state; a new one if there is none."""
        plain = state.ledger.notes
        if not plain:
            return cls()
        grown = None if plain["grown"] is None else (plain["grown"][0], plain["grown"][1])
        log = tuple((batch, kind, why) for batch, kind, why in plain["log"])
        stored = {name: plain[name] for name in cls.__slots__ if name in plain}
        return cls(**{**stored, "grown": grown, "log": log})

    def to_json(self) -> dict[str, Any]:
        """Return the record as stored in the manifest."""
        return {name: getattr(self, name) for name in self.__slots__}

    def as_of(self, now: int) -> "ControllerRecord":
        """Return the record without times in the future: the clock of an earlier start may have been ahead.

        Args:
            now: The driver's clock, in microseconds.
        """
        clocks = (self.returned, self.changed, self.offered)
        returned, changed, offered = (None if at is None else min(at, now) for at in clocks)
        grown = None if self.grown is None else (min(self.grown[0], now), self.grown[1])
        return replace(self, returned=returned, changed=changed, offered=offered, grown=grown)

    def after_batch(
        self, now: int, took: float, pairs: float, paid: float, seconds: float | None, by_rows: float = 0.0
    ) -> "ControllerRecord":
        """Return the record after a batch.

        The time of payments is left out of the batch's time: they were made only because it had some to spare.

        Args:
            now: When the batch was offered, by the driver's clock, in microseconds.
            took: The seconds that it took.
            pairs: The pairs that its own tuples examined.
            paid: The pairs that tuples of earlier batches examined to pay.
            seconds: How long it may take; None for no limit.
            by_rows: The pairs that its tuples had by rows alone.
        """
        least = took if self.least is None else min(LEAST_RISE * self.least, took)
        pair = self._pair_seconds(took, least, pairs + paid)
        own = took - paid * (pair or 0.0)
        is_explained = self.pair is not None and pair is not None and pair <= SAME_PAIRS * self.pair
        late = max(self.late + 1, PATIENCE if is_explained else 0) if seconds is not None and own > seconds else 0
        arriving = 0.0 if self.offered is None else (now - self.offered) / 1e6
        growth = min(max(1.0, took / arriving), MOST_GROWTH) if arriving > 0 else 1.0
        after = replace(self, pair=pair, least=least, took=own, work=pairs * (pair or 0.0), late=late)
        return replace(after, growth=growth, offered=now, looked=pairs / by_rows if by_rows else self.looked)

    def after_round(self, took: float, pairs: float, units: int) -> "ControllerRecord":
        """Return the record after a round.

        Args:
            took: The seconds that it took.
            pairs: The pairs that it examined.
            units: How many units it paid.
        """
        pair = self._pair_seconds(took, min(took, ROUND_OVERHEAD), pairs)
        rest = max(0.0, took - pairs * (pair or 0.0) - ROUND_OVERHEAD)
        return replace(self, pair=pair, part=(self.part + rest / units) / 2 if units else self.part)

    def _pair_seconds(self, took: float, least: float, pairs: float) -> float | None:
        """Return the seconds that a pair takes, never more than a step leaves for it; None until some are measured.

        A step that takes little more than its fixed cost only bounds it; a longer one moves it toward its own value.

        Args:
            took: The seconds that the step took.
            least: Its fixed cost.
            pairs: The pairs that it examined.
        """
        if pairs <= 0 or took <= 0:
            return self.pair
        bound, own = min(took / pairs, self.pair or inf), (took - least) / pairs
        return bound if took < MOSTLY_PAIRS * least else min(own, (bound + own) / 2)

    def after_decision(
        self, decision: Decision, batch: int, now: int, owed: int, coming: float = 0.0
    ) -> "ControllerRecord":
        """Return the record after a decision.

        Args:
            decision: The decision.
            batch: The batch after which it was made.
            now: The driver's clock, in microseconds.
            owed: How many probes are owed.
            coming: The seconds that the next batch will take, payments aside.
        """
        grown = self.grown if owed >= self.owed and self.grown is not None else (now, owed)
        is_logged = decision.why and not decision.routine
        log = (*self.log, (batch, decision.kind, decision.why))[-LOGGED:] if is_logged else self.log
        has_moved = decision.kind in ("spill", "return")
        return replace(
            self,
            returned=now if decision.kind == "return" else self.returned,
            changed=now if has_moved or self.changed is None else self.changed,
            grown=grown if owed else None,
            owed=owed,
            coming=coming,
            log=log,
        )

    def overload_warning(self, now: int, owed: int, interval: int) -> str | None:
        """Return the warning that what is owed keeps growing; None if it doesn't, or not for long enough.

        Args:
            now: The driver's clock, in microseconds.
            owed: How many probes are owed.
            interval: The interval of `Spill`, in microseconds.
        """
        least = max(GROWING_INTERVALS * interval, GROWING_LEAST)
        if self.grown is None or now - self.grown[0] < least or owed <= self.grown[1]:
            return None
        passed, more = now - self.grown[0], owed - self.grown[1]
        return (
            f"What is owed has kept growing for {format_roughly(passed)}: {owed:,} probes are owed, {more:,} more than "
            f"before, and about {more / passed * 60e6:,.0f} more every minute. Spilling helps during a burst, not "
            "under a load that is always too high: add nodes or cores, shorten windows, or allow a batch more time."
        )


@dataclass(frozen=True, slots=True)
class ExpectedTime:
    """The seconds that the next batch is expected to take, payments aside.

    Attributes:
        own: The seconds that it takes whatever is spilled: its fixed cost, and its tuples' probes of each other.
        by_part: The seconds that its probes of each part take, by the part's name; of spilled ones, would take.
    """

    own: float
    by_part: Mapping[Any, float] = field(default_factory=dict)

    def of(self, parts: Iterable[Part]) -> float:
        """Return the seconds that the probes of some parts take."""
        return sum(self.by_part.get(part.name, 0.0) for part in parts)


def pairs_by_rows(parts: Sequence[Part]) -> float:
    """Return how many pairs the last batch had by rows alone: of its tuples with hot rows, and with each other."""
    new = _new_tuples(parts)
    with_hot = sum(new[part.partition] * (part.rows - part.fresh) / 2 for part in hot_parts(parts))
    return with_hot + sum(map(_pairs_among, new.values()))


def expect_time(parts: Sequence[Part], record: ControllerRecord) -> ExpectedTime:
    """Return the time that the next batch is expected to take."""
    new, pair = _new_tuples(parts), record.looked * (record.pair or 0.0)
    coming = {partition: record.growth * rows for partition, rows in new.items()}
    by_part = {part.name: pair * part.pairs(coming.get(part.partition, 0.0)) for part in parts}
    return ExpectedTime(record.took - record.work + pair * sum(map(_pairs_among, coming.values())), by_part)


def _new_tuples(parts: Sequence[Part]) -> Counter[JoinPartition]:
    """Return how many tuples the last batch brought to each partition of each join."""
    new = Counter[JoinPartition]()
    for part in parts:
        new[part.partition] += part.fresh
    return new


def _pairs_among(rows: float) -> float:
    """Return how many pairs these numbers of tuples of two streams form."""
    return rows * rows / 4


def spilling_progress(
    parts: Sequence[Part], record: ControllerRecord, decision: Decision, paid: int, now: int, spill: Spill
) -> dict[str, Any]:
    """Return the `spilling` field of `progress`.

    Args:
        parts: The parts of the state that the next batch starts from.
        record: The controller's record.
        decision: The decision after the batch.
        paid: The batch's results that had been owed.
        now: The driver's clock, in microseconds.
        spill: The user's options.
    """
    hot, spilled, owed = hot_parts(parts), spilled_parts(parts), sum(part.owed for part in parts)
    oldest = min((part.oldest for part in spilled if part.oldest is not None), default=None)
    overload = record.overload_warning(now, owed, spill.interval_us)
    return {
        "hotBytes": sum(part.bytes for part in hot),
        "spilledRows": sum(part.rows for part in spilled),
        "spilledBytes": sum(part.bytes for part in spilled),
        "owedProbes": owed,
        "owedResults": round(sum(map(_expected_results, spilled))),
        "oldestOwed": None if oldest is None else (now - oldest) / 1e6,
        "paidResults": paid,
        "units": {"hot": len(hot), "cold": len(spilled), "owing": sum(bool(part.owed) for part in spilled)},
        "decision": _decision_progress(decision),
        "log": [f"batch {batch}: {why}" for batch, _, why in record.log],
        **({} if overload is None else {"overload": overload}),
    }


def _expected_results(part: Part) -> float:
    """Return a guess of how many results a part is owed: as many for a pair as it has had so far."""
    worth = part.worth
    return part.pairs(part.owed) * worth.results / worth.pairs if worth.pairs else 0.0


def _decision_progress(decision: Decision) -> dict[str, Any] | None:
    """Return a decision as the progress has it; None if nothing was decided."""
    if not decision.kind:
        return None
    return {
        "kind": decision.kind,
        "why": decision.why,
        "spilled": len(decision.spill),
        "spilledBytes": sum(part.bytes for part in decision.spill),
        "paid": len(decision.pay),
        "back": len(decision.back),
        "routine": decision.routine,
    }


def describe_options(spill: Spill, partitions: int) -> list[str]:
    """Return the lines of `explain` on when and what a join that hasn't started will spill and pay.

    Args:
        spill: The user's options.
        partitions: The number of partitions of the values; 1 if units are slices of time only.
    """
    memory = [] if spill.memory is None else [f"hot state takes {_format_size(spill.memory)}"]
    time = [] if spill.seconds is None else [f"batches take longer than {format_duration(round(spill.seconds * 1e6))}"]
    units = f"{partitions} partitions of the values, cut by slices of time" if partitions > 1 else "slices of time"
    pay = "" if spill.pay in (None, spill.policy) else f", paid by '{spill.pay}'"
    disk = "" if spill.disk is None else f", and the oldest of it once spilled state takes {_format_size(spill.disk)}"
    return [
        f"  once {' or '.join(memory + time)}, about {spill.share:.0%} of the state is spilled, by policy "
        f"'{spill.policy}'{pay}: {units}",
        f"  below {spill.low:.0%} of that it comes back, at most every {format_duration(spill.interval_us)}; what has "
        f"been owed for {format_duration(spill.oldest_us)} is paid at once{disk}",
    ]


def _format_size(size: str | int) -> str:
    """Return a size in the user's own words, if it was given as text."""
    return size if isinstance(size, str) else format_bytes(size)


def describe_spilling(progress: Mapping[str, Any]) -> list[str]:
    """Return the lines of `explain` on what a running join has spilled and owes, from its `spilling` field."""
    units, oldest = progress["units"], progress["oldestOwed"]
    total = units["cold"] + units["hot"]
    lines = [f"  spilled: {units['cold']} of {total} parts of the state, {progress['spilledRows']:,} rows"]
    if progress["owedProbes"]:
        age = "" if oldest is None else f", the oldest for {format_roughly(int(oldest * 1e6))}"
        guess = f"about {progress['owedResults']:,} results (a guess)"
        lines.append(f"  owed: {progress['owedProbes']:,} probes, {guess}{age}")
    lines += [f"  decided after {entry}" for entry in progress["log"]]
    return lines + ([f"  {progress['overload']}"] if "overload" in progress else [])
