"""When a running join changes its strategy: a small state machine on the driver.

Before each batch it compares the current strategy with the one predicted to be best. A change must be predicted to gain
by a margin, for several consecutive batches, and only after an interval since the last change: noise must not move
chunks around. A join that can't keep up does not wait for more batches to confirm the gain. The controller's state is a
few numbers and its last decisions; the manifest stores them, so a restart continues where the run stopped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from watersmeet.cost.cost_model import StrategyCost
from watersmeet.errors import DefinitionError
from watersmeet.state.manifest.view import MARGIN

PATIENCE = 3
"""For how many consecutive batches another option must be better."""
OVERDUE = 3
"""After how many consecutive batches that took too long a join is overloaded."""
REMEMBERED = 20
"""How many decisions the manifest stores."""


class Option(NamedTuple):
    """A candidate: a strategy with its nodes and options.

    Attributes:
        name: The strategy.
        nodes: How many nodes it would have.
        cost: The predicted seconds for a second of event time.
        breakdown: The parts of the cost; None if unknown.
        options: Its other options.
        price: The number to compare it by, if that isn't its cost; it then includes the margin of a change.
    """

    name: str
    nodes: int
    cost: float
    breakdown: StrategyCost | None
    options: Mapping[str, Any]
    price: float | None = None

    @property
    def rank(self) -> float:
        """The number to compare it by."""
        return self.cost if self.price is None else self.price

    @property
    def label(self) -> str:
        """The option as a call."""
        options = {"nodes": self.nodes, **self.options}
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in options.items())})"


class StrategyChange(NamedTuple):
    """A change that was made, or would have been made without a dry run; shown in progress by its fields.

    Attributes:
        batch: The first batch after the change.
        kind: What changed: `strategy`, `nodes` or `segment`.
        before: The option before.
        after: The option after.
        why: The numbers that led to it, as a sentence.
        made: False in a dry run.
    """

    batch: int
    kind: str
    before: str
    after: str
    why: str
    made: bool = True


class AdaptationRecord(NamedTuple):
    """The controller's state between batches.

    Attributes:
        waiting: For how many consecutive batches another option has been better by the margin.
        rested: How many batches with rows have passed since the last change.
        log: The last changes.
    """

    waiting: int = 0
    rested: int = 0
    log: tuple[StrategyChange, ...] = ()

    @classmethod
    def from_json(cls, plain: Sequence[Any]) -> "AdaptationRecord":
        """Return the record from its JSON."""
        waiting, rested, log = plain
        return cls(waiting, rested, tuple(StrategyChange(*entry) for entry in log))

    def add(self, change: StrategyChange) -> "AdaptationRecord":
        """Return the record with one more change; waiting starts anew."""
        return AdaptationRecord(0, 0, (*self.log, change)[-REMEMBERED:])


@dataclass(frozen=True, slots=True)
class AdaptationController:
    """The rules for changing a running join's strategy.

    Attributes:
        interval: How many batches must pass between two changes.
        dry_run: Whether it only records what it would change.
    """

    interval: int = 5
    dry_run: bool = False

    def __post_init__(self) -> None:
        if type(self.interval) is not int or self.interval < 1:
            raise DefinitionError(f"interval={self.interval!r}: give the batches between two changes, at least 1.")

    def decide(
        self, record: AdaptationRecord, batch: int, now: Option, best: Option, overdue: int
    ) -> tuple[Option, AdaptationRecord]:
        """Return the best option if a change to it is due, else the current one; and the record after the batch.

        In a dry run the option is always the current one, but the record holds the change.

        Args:
            record: The record before it.
            batch: The batch.
            now: The current option, with its current price.
            best: The option predicted to be best.
            overdue: For how many consecutive batches the join has taken too long.
        """
        is_better = best.rank < now.rank * (1 - MARGIN if best.price is None else 1)
        waiting = record._replace(waiting=record.waiting + 1 if is_better else 0, rested=record.rested + 1)
        is_due = waiting.waiting >= PATIENCE or overdue >= OVERDUE
        if not (is_better and is_due and waiting.rested >= self.interval):
            return now, waiting
        why = _explain_change(now, best, waiting.waiting, overdue)
        change = describe_change(batch, now, best, why, not self.dry_run)
        return (now if self.dry_run else best), waiting.add(change)


def describe_change(batch: int, now: Option, best: Option, why: str, made: bool = True) -> StrategyChange:
    """Return the entry of the log for a change."""
    kind = "strategy" if now.name != best.name else "nodes" if now.nodes != best.nodes else "segment"
    return StrategyChange(batch, kind, now.label, best.label, why, made)


def _explain_change(now: Option, best: Option, batches: int, overdue: int) -> str:
    """Return the sentence that says why the controller changes to the best option."""
    since = f"after {overdue} batches that took too long" if overdue >= OVERDUE else f"{batches} batches in a row"
    return (
        f"{best.label} was predicted to take {best.cost:.3g} s a second instead of {now.cost:.3g} s with {now.label}, "
        f"{since}{'' if best.price is None else '; the goal is the fewest nodes that finish in time'}."
    )
