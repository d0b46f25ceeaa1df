"""What a batch teaches those after it: measurements, and what strategy and join order keep for themselves.

Part of the manifest, so that a restart goes on where the last run was. It steers only: results don't depend on it.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

from watersmeet.state.manifest.notes import Kept
from watersmeet.state.manifest.view import HopView, Usage


class Shipping(NamedTuple):
    """What it took to send rows, a batch on average, smoothed: CPU seconds, and how many rows."""

    seconds: float = 0.0
    rows: float = 0.0

    @property
    def per_row(self) -> float | None:
        """The seconds of a row; None if none was sent."""
        return self.seconds / self.rows if self.rows else None


@dataclass(frozen=True, slots=True)
class Learned:
    """What the batches so far have taught.

    Attributes:
        strategy: What the strategy keeps.
        ordering: What the join order keeps.
        usage: What each node used, smoothed; empty before the first batch that probed.
        hops: What the hops did, smoothed.
        shipping: What it took to send rows.
        hop_seconds: How long a hop took beside its work and the start of its tasks, smoothed; None if not known.
        tasks: How many tasks probed in the last batch; none where it ran in the driver.
        overdue: For how many batches on end a batch has taken longer than it may.
        warned: The kinds of the last batch's warnings.
        clock: The driver's clock at the last batch, in microseconds; None before the first.
    """

    strategy: Kept = field(default_factory=Kept)
    ordering: Kept = field(default_factory=Kept)
    usage: tuple[Usage, ...] = ()
    hops: tuple[HopView, ...] = ()
    shipping: Shipping | None = None
    hop_seconds: float | None = None
    tasks: int = 0
    overdue: int = 0
    warned: tuple[str, ...] = ()
    clock: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as the manifest writes it."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return plain | {"usage": [astuple(used) for used in self.usage], "hops": [astuple(hop) for hop in self.hops]}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Learned":
        """Return what `to_json` was given."""
        return cls(
            strategy=Kept(*plain["strategy"]),
            ordering=Kept(*plain["ordering"]),
            usage=tuple(Usage(*used) for used in plain["usage"]),
            hops=tuple(HopView(tuple(joined), *rest) for joined, *rest in plain["hops"]),
            shipping=None if plain["shipping"] is None else Shipping(*plain["shipping"]),
            hop_seconds=plain["hop_seconds"],
            tasks=plain["tasks"],
            overdue=plain["overdue"],
            warned=tuple(plain["warned"]),
            clock=plain["clock"],
        )
