"""The interface of a policy: it ranks parts of the state. What ranks lowest is put off first, what ranks highest paid.

How much is put off or paid is not its business: see `watersmeet.spilling.controller`.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from watersmeet.spilling.parts import Part


@dataclass(frozen=True, slots=True)
class Links:
    """How the joins of a plan hang together.

    Attributes:
        parents: The join that each inner join is a stream of, by path.
        shares: Which part of a child's partition's results goes to each of its parent's, by (child's path, its
            partition, the parent's partition).
    """

    parents: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[tuple[str, int, int], float] = field(default_factory=dict)

    @classmethod
    def of(cls, parents: Mapping[str, str], fed: Mapping[tuple[str, int, int], int]) -> "Links":
        """Return the links by a sample: N(n, k) / N(n), of what came from n the part that went to k (section 5.3)."""
        whole: dict[tuple[str, int], int] = defaultdict(int)
        for (child, there, _), count in fed.items():
            whole[child, there] += count
        return cls(parents, {key: count / whole[key[:2]] for key, count in fed.items()})


@dataclass(frozen=True, slots=True)
class Policy(ABC):
    """Ranks parts of the state; each goes by those of the settings that concern it.

    Attributes:
        seed: Unique to the checkpoint and the batch: who decides again decides alike.
        correlation: From which share of a child's results on a parent follows.
        quotas: Streams in the order of their priority, by (path, stream), each with the tuples that are planned before
            it is the next one's turn.
        links: How the joins of the plan hang together.
        name: What users call it.
        together: Whether the parts of all joins are ranked at once; else each join's by themselves.
    """

    seed: str = ""
    correlation: float = 0.1
    quotas: Mapping[tuple[str, int], int] = field(default_factory=dict)
    links: Links = field(default_factory=Links)
    name: ClassVar[str]
    together: ClassVar[bool] = False

    @abstractmethod
    def score(self, part: Part) -> tuple[float, ...]:
        """Return what a part is ranked by."""

    def lowest(self, found: Sequence[Part]) -> list[Part]:
        """Return parts in the order in which they are put off; of equals, large ones first."""
        return sorted(found, key=lambda part: (self.score(part), -part.bytes, part.name))

    def highest(self, found: Sequence[Part]) -> list[Part]:
        """Return parts in the order in which they are paid; of equals, small ones first."""
        return self.lowest(found)[::-1]


def productivity(output: float, size: float) -> float:
    """Return output by size; nothing of nothing is worth nothing."""
    return output / size if size else 0.0
