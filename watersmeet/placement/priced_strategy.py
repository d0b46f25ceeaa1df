"""Base classes of strategies that `Auto` and `advise` can price, and of those that balance the load of nodes."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, ClassVar, NamedTuple, Self

from watersmeet.arguments import fields_to_python
from watersmeet.cost.cost_model import EQUAL, StrategyCost, Weights
from watersmeet.cost.load import NodeLoads, loads
from watersmeet.cost.parameters import Parameters
from watersmeet.placement.base import Relocation, Strategy, check_load, check_nodes
from watersmeet.state.manifest.view import StateView

Options = Mapping[str, Any]
"""The options of a strategy other than its nodes, as JSON can represent them."""
Measure = Callable[[int | None], Parameters]
"""Returns the parameters of the cost models, given a stream that all others are to probe first; None for none."""


class Basis(NamedTuple):
    """What prices are computed from.

    Attributes:
        state: The state of the join.
        parameters: Returns its parameters.
        bandwidth: The bytes a second that the network can deliver to a node.
    """

    state: StateView
    parameters: Measure
    bandwidth: float = inf


class Quote(NamedTuple):
    """The cost of a strategy, and the parameters from which it was predicted."""

    parameters: Parameters
    cost: StrategyCost


Pricer = Callable[[int, Options], Quote]
"""Returns the price on this many nodes, with options."""


class Requirements(NamedTuple):
    """Requirements on whichever strategy is chosen; each strategy uses those that apply to it.

    Attributes:
        weights: What CPU, memory and network count in a node's load.
        capacities: The capacity of each node, relative to the others; empty if all are alike.
        relocation: How a ring's state follows a change.
    """

    weights: Weights = EQUAL
    capacities: tuple[float, ...] = ()
    relocation: Relocation = "auto"


class PricedStrategy(Strategy):
    """A strategy that prices itself; `watersmeet.placement.strategies` lists those to choose from."""

    ONE_NODE: ClassVar[bool] = False
    """Whether it makes sense on one node."""
    PREFERENCE: ClassVar[str | None] = None
    """Why it is preferred wherever it can serve, as a clause; None if its cost decides."""

    @classmethod
    @abstractmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return a function that prices the strategy for a join; called once, however many nodes are then tried."""

    @classmethod
    @abstractmethod
    def configure(cls, nodes: int, options: Options, terms: Requirements) -> "PricedStrategy":
        """Return the strategy on this many nodes, with options that were priced and the terms that apply to it."""

    @classmethod
    def variants(cls, state: StateView) -> Sequence[Options]:
        """Return the options worth trying."""
        return ({},)

    @classmethod
    def most_nodes(cls, basis: Basis, limit: int) -> int:
        """Return the most nodes that it can use if there are `limit`."""
        return limit

    @classmethod
    def bandwidth(cls, p: Parameters, nodes: int) -> float:
        """Return the bytes a second that the network must deliver to a node to keep it from waiting for rows."""
        return 0.0


class LoadBalanced(PricedStrategy):
    """A strategy that assigns segments by the weighted load of nodes; its subclasses are dataclasses with these fields.

    Attributes:
        weights: What CPU, memory and network count in a node's load.
        capacities: The capacity of each node, relative to the others; empty if all are alike.
    """

    weights: Weights
    capacities: tuple[float, ...]

    def __post_init__(self) -> None:
        fields_to_python(self)
        check_nodes(self.nodes)
        check_load(self.nodes, self.weights, self.capacities)

    @classmethod
    def configure(cls, nodes: int, options: Options, terms: Requirements) -> Self:
        """Return the strategy with the options that were priced, balancing by weighted node load."""
        create: Callable[..., Self] = cls
        return create(nodes=nodes, **options, weights=terms.weights, capacities=terms.capacities[:nodes])

    def node_loads(self, state: StateView, segments: float) -> NodeLoads:
        """Return the measured load of each node, to assign segments by.

        Args:
            state: The state.
            segments: How many segments make up that load.
        """
        by_node = loads(state.usage, self.nodes, self.weights, self.capacities)
        return NodeLoads(by_node, sum(by_node) / segments or 1.0, self.capacities)
