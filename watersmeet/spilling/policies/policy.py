"""The interface of a policy, which ranks parts of the state: the lowest is spilled first, the highest is paid first.

How much is spilled or paid is up to `watersmeet.spilling.controller`.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from watersmeet.spilling.parts import Part


@dataclass(frozen=True, slots=True)
class Links:
    """The links between the joins of a plan.

    Attributes:
        parents: The parent of each inner join, by path.
        shares: The share of the results of a child's partition that goes to a partition of its parent, by the child's
            path, its partition and the parent's partition.
    """

    parents: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[tuple[str, int, int], float] = field(default_factory=dict)

    @classmethod
    def of(cls, parents: Mapping[str, str], fed: Mapping[tuple[str, int, int], int]) -> "Links":
        """Return the links in a sample: N(n, k) / N(n), the share of n's results that went to k (section 5.3)."""
        totals: dict[tuple[str, int], int] = defaultdict(int)
        for (child, there, _), count in fed.items():
            totals[child, there] += count
        return cls(parents, {key: count / totals[key[:2]] for key, count in fed.items()})


@dataclass(frozen=True, slots=True)
class Policy(ABC):
    """Ranks parts of the state; each policy uses the settings that concern it.

    Attributes:
        seed: Unique to the checkpoint and the batch, so that a batch that runs again is decided alike.
        correlation: A parent's part follows a child's if it gets at least this share of its results.
        quotas: Streams by descending priority, as path and position, each with the number of its tuples that are paid
            for before the next stream's turn.
        links: The links between the joins of the plan.
        name: The name that users know.
        together: Whether the parts of all joins are in one ranking; otherwise each join has its own.
    """

    seed: str = ""
    correlation: float = 0.1
    quotas: Mapping[tuple[str, int], int] = field(default_factory=dict)
    links: Links = field(default_factory=Links)
    name: ClassVar[str]
    together: ClassVar[bool] = False

    @abstractmethod
    def score(self, part: Part) -> tuple[float, ...]:
        """Return the score of a part; parts are compared by it."""

    def lowest(self, parts: Sequence[Part]) -> list[Part]:
        """Return parts in the order in which they are spilled; of equal ones, the largest first."""
        return sorted(parts, key=lambda part: (self.score(part), -part.bytes, part.name))

    def highest(self, parts: Sequence[Part]) -> list[Part]:
        """Return parts in the order in which they are paid; of equal ones, the smallest first."""
        return self.lowest(parts)[::-1]


def productivity(output: float, size: float) -> float:
    """Return the output relative to the size; 0 if both are 0."""
    return output / size if size else 0.0
