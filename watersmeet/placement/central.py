"""Central: one node keeps everything; the baseline of the other strategies."""

from dataclasses import dataclass
from typing import ClassVar

from watersmeet.arguments import fields_to_python, is_whole
from watersmeet.cost.cost_model import central_cost
from watersmeet.errors import DefinitionError
from watersmeet.placement.base import Layout, Owners, Placement
from watersmeet.placement.priced_strategy import Basis, Options, PricedStrategy, Pricer, Quote, Requirements
from watersmeet.state.chunks.chunk import Bucket
from watersmeet.state.manifest.view import StateView


@dataclass(frozen=True, slots=True)
class CentralPlacement(Placement):
    """Everything on node 0."""

    lengths: tuple[int, ...]
    nodes: int = 1

    def slice_length(self, stream: int) -> int:
        """Return the length of slices that expire one by one."""
        return self.lengths[stream]

    def owners(self, stream: int, start: int, bucket: Bucket) -> Owners:
        """Return the only node."""
        return (0,)


@dataclass(frozen=True, slots=True)
class Central(PricedStrategy):
    """One node keeps everything and does all the work; what the other strategies are measured against.

    >>> Central().describe()
    'Central(nodes=1)'
    """

    nodes: int = 1

    ONE_NODE: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fields_to_python(self)
        if not is_whole(self.nodes) or self.nodes != 1:
            raise DefinitionError(f"Central(nodes={self.nodes!r}): Central runs on one node; use PSP for more.")

    @classmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return a pricer of the one node, whatever the number."""
        p = basis.parameters(None)
        return lambda nodes, options: Quote(p, central_cost(p))

    @classmethod
    def configure(cls, nodes: int, options: Options, terms: Requirements) -> "Central":
        """Return the only configuration there is."""
        return cls()

    @classmethod
    def most_nodes(cls, basis: Basis, limit: int) -> int:
        """Return 1."""
        return 1

    def plan(self, state: StateView) -> Layout[CentralPlacement]:
        """Return the layout on one node; chunks of other nodes all move to it."""
        return Layout(CentralPlacement(tuple(stream.slice for stream in state.streams)))
