"""What later batches use of the earlier ones: measurements, and notes of the strategy and the join order.

They are part of the manifest, so that a restart continues where the last run was. They steer only: results don't
depend on them.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

from watersmeet.state.manifest.view import HopView, StoredNotes, Usage


class Shipping(NamedTuple):
    """What sending rows cost per batch, smoothed: CPU seconds, and the number of rows."""

    seconds: float = 0.0
    rows: float = 0.0

    @property
    def per_row(self) -> float | None:
        """The seconds per row; None if none was sent."""
        return self.seconds / self.rows if self.rows else None


@dataclass(frozen=True, slots=True)
class RunningStatistics:
    """What the batches so far have taught.

    Attributes:
        strategy: The notes of the strategy.
        ordering: The notes of the join order.
        usage: What each node used, smoothed; empty before the first batch that probed.
        hops: What the hops did, smoothed.
        shipping: What sending rows cost.
        hop_seconds: How long a hop took beside its work and the start of its tasks, smoothed; None if not known.
        tasks: How many tasks probed in the last batch; none where it ran in the driver.
        overdue: For how many batches in a row a batch has taken longer than it may.
        warned: The kinds of the last batch's warnings.
        clock: The driver's clock at the last batch, in microseconds; None before the first.
    """

    strategy: StoredNotes = field(default_factory=StoredNotes)
    ordering: StoredNotes = field(default_factory=StoredNotes)
    usage: tuple[Usage, ...] = ()
    hops: tuple[HopView, ...] = ()
    shipping: Shipping | None = None
    hop_seconds: float | None = None
    tasks: int = 0
    overdue: int = 0
    warned: tuple[str, ...] = ()
    clock: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return them as the manifest stores them."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return plain | {"usage": list(map(astuple, self.usage)), "hops": list(map(astuple, self.hops))}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "RunningStatistics":
        """Return the statistics that `to_json` wrote."""
        return cls(
            strategy=StoredNotes(*plain["strategy"]),
            ordering=StoredNotes(*plain["ordering"]),
            usage=tuple(Usage(*usage) for usage in plain["usage"]),
            hops=tuple(HopView(tuple(joined), *rest) for joined, *rest in plain["hops"]),
            shipping=None if plain["shipping"] is None else Shipping(*plain["shipping"]),
            hop_seconds=plain["hop_seconds"],
            tasks=plain["tasks"],
            overdue=plain["overdue"],
            warned=tuple(plain["warned"]),
            clock=plain["clock"],
        )
