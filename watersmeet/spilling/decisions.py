"""What is remembered and told of decisions on work that is put off: numbers, sentences, and whether debts only grow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from watersmeet.arguments import format_duration, format_roughly
from watersmeet.formatting import format_bytes
from watersmeet.spilling.options import Spill
from watersmeet.spilling.parts import Part, cold, hot
from watersmeet.state.manifest.manifest import Manifest

REMEMBERED = 20
"""How many decisions are remembered."""
GROWING = 2
"""For how many intervals what is owed must have grown before people are told that it will not end."""


BEGUN = 0.5
"""About what a round takes beside paying, in seconds: 0.55 were measured."""
CREEP, TELLING = 1.01, 1.5
"""What batches take in any case may rise so much from one to the next; what takes so many times as long tells of pairs.
"""
GROWTH = 2.0
"""No batch is expected to bring more times as many tuples as the one before: sources may have limits."""
PATIENCE, DEARER = 2, 1.1
"""Batches in a row that take too long before work is put off: a single one may have other reasons. It has not if its
pairs took no more than so many times as long as others before."""
LEAST = 120_000_000
"""And for at least so many microseconds: a burst is no lasting load."""


class Decision(NamedTuple):
    """What is decided after a batch.

    Attributes:
        kind: `spill`, `keep` what is new in cold partitions cold, `return`, `pay` or nothing.
        why: The numbers that led to it, as a sentence.
        cool: The parts that are put off.
        pay: The cold parts that are paid, each up to a batch.
        back: Those that are hot again if all is paid, by name.
        routine: Whether the same goes on from batch to batch: then it is told with its batch, but not remembered.
    """

    kind: str = ""
    why: str = ""
    cool: Sequence[Part] = ()
    pay: Sequence[tuple[Part, int]] = ()
    back: frozenset[Any] = frozenset()
    routine: bool = False

    def along(self, other: "Decision") -> "Decision":
        """Return the decision with what another one pays."""
        if not (self.kind and other.kind):
            return self if self.kind else other
        ends: dict[Any, tuple[Part, int]] = {}
        for part, end in (*self.pay, *other.pay):
            ends[part.name] = part, max(end, ends.get(part.name, (part, end))[1])
        why, routine = "; ".join(filter(None, [self.why, other.why])), self.routine and other.routine
        return self._replace(why=why, pay=list(ends.values()), routine=routine)

    def hot(self, found: Sequence[Part]) -> list[Part]:
        """Return what is hot of some parts by this decision."""
        cooled = {part.name for part in self.cool}
        return [p for p in found if p.name in self.back or (p.unit is None and p.name not in cooled)]


@dataclass(frozen=True, slots=True)
class Record:
    """What the controller goes by from batch to batch; part of the state, so that a restart goes on where it was.

    Attributes:
        pair: The seconds that a pair takes; None before one was measured.
        least: What a batch takes in any case, however few its pairs, in seconds.
        part: The seconds that a unit takes to be paid, beside its pairs.
        took: The seconds that the last batch took, payments and rounds aside.
        work: Those of them that it took to look at pairs, about.
        looked: The share of the pairs, by rows alone, that a batch's tuples look at.
        coming: The seconds that the next batch will take, payments aside, about.
        growth: About how many times as many tuples the next batch brings: as many as come while this one runs, if that
            takes longer than those of this one took to come.
        offered: When the last batch was offered, by the driver's clock, in microseconds.
        late: For how many batches in a row a batch has taken longer than it may; `PATIENCE` if it was for its pairs.
        owed: How many tuples had not asked all they should.
        returned: When units last came back, by the driver's clock, in microseconds.
        changed: When anything was last put off or came back.
        grown: Since when what is owed has only grown, and what it was then.
        log: The last decisions: (batch, kind, why).
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
    def of(cls, state: Manifest) -> "Record":
        """Return the record that a state holds."""
        plain = state.ledger.notes
        if not plain:
            return cls()
        grown = None if plain["grown"] is None else (plain["grown"][0], plain["grown"][1])
        log = tuple((batch, kind, why) for batch, kind, why in plain["log"])
        known = {name: plain[name] for name in cls.__slots__ if name in plain}
        return cls(**{**known, "grown": grown, "log": log})

    def to_json(self) -> dict[str, Any]:
        """Return it as the manifest writes it."""
        return {name: getattr(self, name) for name in self.__slots__}

    def until(self, now: int) -> "Record":
        """Return the record as of now: the clock of an earlier start may have been ahead.

        Args:
            now: The driver's clock, in microseconds.
        """
        clocks = (self.returned, self.changed, self.offered)
        returned, changed, offered = (None if at is None else min(at, now) for at in clocks)
        grown = None if self.grown is None else (min(self.grown[0], now), self.grown[1])
        return replace(self, returned=returned, changed=changed, offered=offered, grown=grown)

    def batched(
        self, now: int, took: float, pairs: float, paid: float, seconds: float | None, by_rows: float = 0.0
    ) -> "Record":
        """Return the record after a batch; what it took to pay is left out of its time, which had some to spare.

        Args:
            now: When it was offered, by the driver's clock, in microseconds.
            took: The seconds that it took.
            pairs: The pairs that its own tuples looked at.
            paid: Those that earlier tuples did, which paid.
            seconds: How long it may take; None for any time.
            by_rows: The pairs that its tuples had, by rows alone.
        """
        least = took if self.least is None else min(CREEP * self.least, took)
        pair = self._pair(took, least, pairs + paid)
        own = took - paid * (pair or 0.0)
        explained = self.pair is not None and pair is not None and pair <= DEARER * self.pair
        late = max(self.late + 1, PATIENCE if explained else 0) if seconds is not None and own > seconds else 0
        came = 0.0 if self.offered is None else (now - self.offered) / 1e6
        growth = min(max(1.0, took / came), GROWTH) if came > 0 else 1.0
        known = replace(self, pair=pair, least=least, took=own, work=pairs * (pair or 0.0), late=late)
        return replace(known, growth=growth, offered=now, looked=pairs / by_rows if by_rows else self.looked)

    def rounded(self, took: float, pairs: float, units: int) -> "Record":
        """Return the record after a round took its time to pay units, by looking at so many pairs."""
        pair = self._pair(took, min(took, BEGUN), pairs)
        rest = max(0.0, took - pairs * (pair or 0.0) - BEGUN)
        return replace(self, pair=pair, part=(self.part + rest / units) / 2 if units else self.part)

    def _pair(self, took: float, least: float, pairs: float) -> float | None:
        """Return what a pair takes: no more than a step lets it, and about what a step says that takes long by them.

        Args:
            took: The seconds that the step took.
            least: Those that it takes in any case, about.
            pairs: The pairs that it looked at.
        """
        if pairs <= 0 or took <= 0:
            return self.pair
        known, found = min(took / pairs, self.pair or inf), (took - least) / pairs
        return known if took < TELLING * least else min(found, (known + found) / 2)

    def noting(self, decision: Decision, batch: int, now: int, owed: int, coming: float = 0.0) -> "Record":
        """Return the record after a decision.

        Args:
            decision: The decision.
            batch: The batch after which it was made.
            now: The driver's clock, in microseconds.
            owed: How many tuples have not asked all they should.
            coming: The seconds that the next batch will take, payments aside.
        """
        grown = self.grown if owed >= self.owed and self.grown is not None else (now, owed)
        worth = decision.why and not decision.routine
        log = (*self.log, (batch, decision.kind, decision.why))[-REMEMBERED:] if worth else self.log
        moved = decision.kind in ("spill", "return")
        return replace(
            self,
            returned=now if decision.kind == "return" else self.returned,
            changed=now if moved or self.changed is None else self.changed,
            grown=grown if owed else None,
            owed=owed,
            coming=coming,
            log=log,
        )

    def endless(self, now: int, owed: int, interval: int) -> str | None:
        """Return what to tell people whose debts only grow; None if they don't."""
        if self.grown is None or now - self.grown[0] < max(GROWING * interval, LEAST) or owed <= self.grown[1]:
            return None
        passed, more = now - self.grown[0], owed - self.grown[1]
        return (
            f"What is owed has grown without a break for {format_roughly(passed)}: {owed:,} probes are owed, {more:,} "
            f"more than then, and about {more / passed * 60e6:,.0f} more every minute. Putting work off helps through "
            "a burst, not against a load that is too high for good: add nodes or cores, shorten windows, or allow a "
            "batch more time."
        )


def progress(
    found: Sequence[Part], record: Record, decision: Decision, paid: int, now: int, spill: Spill
) -> dict[str, Any]:
    """Return what `progress` tells of work that is put off.

    Args:
        found: The parts of the state after the batch, before the decision.
        record: What the controller goes by.
        decision: What it decided.
        paid: The batch's results that had been owed.
        now: The driver's clock, in microseconds.
        spill: The user's options.
    """
    away, owed = cold(found), sum(part.owed for part in found)
    oldest = min((part.oldest for part in away if part.oldest is not None), default=None)
    said = record.endless(now, owed, spill.interval_us)
    return {
        "hotBytes": sum(part.bytes for part in hot(found)),
        "spilledRows": sum(part.rows for part in away),
        "spilledBytes": sum(part.bytes for part in away),
        "owedProbes": owed,
        "owedResults": round(sum(map(_expected, away))),
        "oldestOwed": None if oldest is None else (now - oldest) / 1e6,
        "paidResults": paid,
        "units": {"hot": len(hot(found)), "cold": len(away), "owing": sum(bool(part.owed) for part in away)},
        "decision": _shown(decision),
        "log": [f"batch {batch}: {why}" for batch, _, why in record.log],
        **({} if said is None else {"overload": said}),
    }


def _expected(part: Part) -> float:
    """Return about how many results a part is owed: as many a pair as it has had so far; no more than a guess."""
    worth = part.worth
    return part.pairs(part.owed) * worth.results / worth.pairs if worth.pairs else 0.0


def _shown(decision: Decision) -> dict[str, Any] | None:
    if not decision.kind:
        return None
    return {
        "kind": decision.kind,
        "why": decision.why,
        "spilled": len(decision.cool),
        "spilledBytes": sum(part.bytes for part in decision.cool),
        "paid": len(decision.pay),
        "back": len(decision.back),
        "routine": decision.routine,
    }


def planned(spill: Spill, partitions: int) -> list[str]:
    """Return what `explain` says of work that will be put off.

    Args:
        spill: The user's options.
        partitions: Into how many partitions values are cut; 1 for slices of time alone.
    """
    memory = [] if spill.memory is None else [f"hot state takes {_written(spill.memory)}"]
    time = [] if spill.seconds is None else [f"batches take longer than {format_duration(round(spill.seconds * 1e6))}"]
    units = f"{partitions} partitions of the values, cut by slices of time" if partitions > 1 else "slices of time"
    paid = "" if spill.pay in (None, spill.policy) else f", paid by '{spill.pay}'"
    disk = "" if spill.disk is None else f", and the oldest of it once cold state takes {_written(spill.disk)}"
    return [
        f"  once {' or '.join(memory + time)}, about {spill.share:.0%} of the state is put off, by policy "
        f"'{spill.policy}'{paid}: {units}",
        f"  below {spill.low:.0%} of that it comes back, at most every {format_duration(spill.interval_us)}; what is "
        f"owed for {format_duration(spill.oldest_us)} is paid at once{disk}",
    ]


def _written(given: str | int) -> str:
    return given if isinstance(given, str) else format_bytes(given)


def lines(told: Mapping[str, Any]) -> list[str]:
    """Return what `explain` says of it."""
    away = told["units"]["cold"]
    shown = [f"  put off: {away} of {away + told['units']['hot']} parts of the state, {told['spilledRows']:,} rows"]
    if told["owedProbes"]:
        waits = (
            "" if told["oldestOwed"] is None else f", the oldest for {format_roughly(int(told['oldestOwed'] * 1e6))}"
        )
        shown.append(f"  owed: {told['owedProbes']:,} probes, about {told['owedResults']:,} results (a guess){waits}")
    shown += [f"  decided after {said}" for said in told["log"]]
    return shown + ([f"  {told['overload']}"] if "overload" in told else [])
