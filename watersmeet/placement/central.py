"""Central: one node keeps everything; the baseline."""

from dataclasses import dataclass

from watersmeet.placement.base import Placement, Strategy
from watersmeet.state.chunk import Bucket
from watersmeet.state.view import StateView


@dataclass(frozen=True, slots=True)
class CentralPlacement(Placement):
    """Everything on node 0."""

    lengths: tuple[int, ...]
    nodes: int = 1

    def slice_length(self, stream: int) -> int:
        """See Placement."""
        return self.lengths[stream]

    def owners(self, stream: int, start: int, bucket: Bucket) -> tuple[int, ...]:
        """See Placement."""
        return (0,)


@dataclass(frozen=True, slots=True)
class Central(Strategy):
    """One node keeps everything and does all the work; what the other strategies are measured against.

    >>> Central().describe()
    'Central(nodes=1)'
    """

    nodes: int = 1

    def plan(self, state: StateView) -> Placement:
        """See Strategy."""
        return CentralPlacement(tuple(stream.slice for stream in state.streams))
