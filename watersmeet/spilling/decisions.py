"""What the controller decides after a batch, and the record that it keeps from one batch to the next."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from watersmeet.arguments import format_roughly
from watersmeet.spilling.parts import Part
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
