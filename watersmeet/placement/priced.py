"""Strategies that say themselves what a join would cost under them, so that `Auto` and `advise` can choose them."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, ClassVar, NamedTuple

from watersmeet.cost.model import EQUAL, Cost, Weights
from watersmeet.cost.parameters import Parameters
from watersmeet.placement.base import Strategy
from watersmeet.placement.options import Relocation
from watersmeet.state.manifest.view import StateView

Options = Mapping[str, Any]
"""What a strategy is given beside its nodes, as JSON can hold it."""
Measure = Callable[[int | None], Parameters]
"""Makes the parameters of the cost models, given a stream that all others are to probe first; None for no such."""


class Basis(NamedTuple):
    """What prices are made from.

    Attributes:
        state: What is known of the join.
        parameters: Its parameters.
        bandwidth: The bytes a second that the network brings to a node.
    """

    state: StateView
    parameters: Measure
    bandwidth: float = inf


class Quote(NamedTuple):
    """What a strategy takes, and the parameters that this was predicted from."""

    parameters: Parameters
    cost: Cost


Pricer = Callable[[int, Options], Quote]
"""Returns the price on so many nodes, with options."""


class Terms(NamedTuple):
    """What is asked of whichever strategy is chosen, as far as it has a use for it.

    Attributes:
        weights: What CPU, memory and network count in a node's load.
        capacities: What each node can do, relative to the others; empty if all are alike.
        relocation: How a ring's state follows a change.
    """

    weights: Weights = EQUAL
    capacities: tuple[float, ...] = ()
    relocation: Relocation = "auto"


class Priced(Strategy):
    """A strategy that prices itself; those to choose from are listed in `watersmeet.placement.strategies`."""

    ALONE: ClassVar[bool] = False
    """Whether it makes sense on one node."""
    WHEREVER: ClassVar[str | None] = None
    """Why it is taken wherever it can serve, as a clause; None if its costs decide."""

    @classmethod
    @abstractmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return what tells the strategy's price for a join; asked once, however many nodes are then tried."""

    @classmethod
    @abstractmethod
    def chosen(cls, nodes: int, options: Options, terms: Terms) -> "Priced":
        """Return the strategy on so many nodes."""

    @classmethod
    def variants(cls, state: StateView) -> Sequence[Options]:
        """Return the options that are worth a try."""
        return ({},)

    @classmethod
    def widest(cls, basis: Basis, most: int) -> int:
        """Return on how many nodes it may run where there are `most`."""
        return most

    @classmethod
    def bandwidth(cls, p: Parameters, nodes: int) -> float:
        """Return the bytes a second that the network must bring to a node, lest it waits for rows."""
        return 0.0
