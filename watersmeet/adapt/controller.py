"""The controller: when a running join changes what it does. One small state machine, on the driver.

Before each batch it compares what the join does with what is predicted to be best. A change must be predicted to gain
by a margin, for several batches on end, and is not made before an interval has passed since the last one: no noise may
make chunks wander. A join that can't keep up does not wait for more batches to confirm it. What the controller knows is
a few numbers and its last decisions; they are kept in the manifest, so that a restart goes on where it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from watersmeet.cost.model import Cost
from watersmeet.errors import DefinitionError
from watersmeet.state.manifest.view import MARGIN

PATIENCE = 3
"""For how many batches on end it must be."""
OVERDUE = 3
"""After how many batches on end that took too long a join is said to be overloaded."""
REMEMBERED = 20
"""How many decisions are remembered."""


class Option(NamedTuple):
    """Something that the join could do: a strategy with its nodes and options.

    Attributes:
        name: The strategy.
        nodes: How many nodes it would have.
        cost: The seconds that it is predicted to take for a second of event time.
        made_of: What the cost is made of; None if nothing is known.
        options: Its other options.
        price: What it is compared by, if that isn't its cost; it then says itself what is worth a change.
    """

    name: str
    nodes: int
    cost: float
    made_of: Cost | None
    options: Mapping[str, Any]
    price: float | None = None

    @property
    def compared(self) -> float:
        """What it is compared by."""
        return self.cost if self.price is None else self.price

    @property
    def label(self) -> str:
        """The option in a word."""
        given = {"nodes": self.nodes, **self.options}
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


class Decision(NamedTuple):
    """A change that was made, or would have been.

    Attributes:
        batch: Before which batch.
        kind: What changed: `strategy`, `nodes` or `segment`.
        before: What the join did.
        after: What it does now.
        why: The numbers that led to it, as a sentence.
        made: Whether it was made; not in a dry run.
    """

    batch: int
    kind: str
    before: str
    after: str
    why: str
    made: bool = True


class Record(NamedTuple):
    """What the controller goes by from batch to batch.

    Attributes:
        waiting: For how many batches on end another option has been better by the margin.
        rested: How many batches that brought something have passed since the last change.
        log: The last decisions.
    """

    waiting: int = 0
    rested: int = 0
    log: tuple[Decision, ...] = ()

    @classmethod
    def from_json(cls, plain: Sequence[Any]) -> "Record":
        """Return the record as JSON gives it back."""
        waiting, rested, log = plain
        return cls(waiting, rested, tuple(Decision(*entry) for entry in log))

    def noting(self, decision: Decision) -> "Record":
        """Return the record with one more decision; the wait begins anew."""
        return Record(0, 0, (*self.log, decision)[-REMEMBERED:])


@dataclass(frozen=True, slots=True)
class Controller:
    """The rules by which a join changes.

    Attributes:
        interval: How many batches must pass between two changes.
        dry_run: Whether it only says what it would do.
    """

    interval: int = 5
    dry_run: bool = False

    def __post_init__(self) -> None:
        if type(self.interval) is not int or self.interval < 1:
            raise DefinitionError(f"interval={self.interval!r}: give the batches between two changes, at least 1.")

    def judge(self, record: Record, batch: int, now: Option, best: Option, overdue: int) -> tuple[Option, Record]:
        """Return what to do in a batch, and the record after it.

        Args:
            record: The record before it.
            batch: The batch.
            now: What the join does, as priced now.
            best: What is predicted to be best.
            overdue: For how many batches on end the join has taken too long.
        """
        better = best.compared < now.compared * (1 - MARGIN if best.price is None else 1)
        waited = Record(record.waiting + 1 if better else 0, record.rested + 1, record.log)
        patient = waited.waiting >= PATIENCE or overdue >= OVERDUE
        if not (better and patient and waited.rested >= self.interval):
            return now, waited
        decision = changed(batch, now, best, _why(now, best, waited.waiting, overdue), not self.dry_run)
        return (now if self.dry_run else best), waited.noting(decision)


def changed(batch: int, now: Option, best: Option, why: str, made: bool = True) -> Decision:
    """Return the decision to do something else."""
    kind = "strategy" if now.name != best.name else "nodes" if now.nodes != best.nodes else "segment"
    return Decision(batch, kind, now.label, best.label, why, made)


def _why(now: Option, best: Option, waited: int, overdue: int) -> str:
    since = f"after {overdue} batches that took too long" if overdue >= OVERDUE else f"{waited} batches on end"
    return (
        f"{best.label} was predicted to take {best.cost:.3g} s a second instead of {now.cost:.3g} s with {now.label}, "
        f"{since}{'' if best.price is None else '; the fewest nodes that are in time are wanted'}."
    )
