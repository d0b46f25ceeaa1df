"""What each strategy would cost a join on each number of nodes, from what is known of it."""

from collections.abc import Iterator, Sequence
from functools import cache
from math import inf, isinf

from watersmeet.adapt.controller import Option
from watersmeet.cost import model as cost
from watersmeet.cost import parameters
from watersmeet.cost.equations import Goal, longest_ring
from watersmeet.placement.priced import Basis, Measure, Options
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.state.manifest.view import MARGIN, StateView

EVERY_NODES, EVERY_IN_TIME, GROWTH = 8, 256, 1.5
"""Numbers of nodes are all tried up to the first, or to the second where the fewest that are in time are wanted.

From there on, each is this much larger than the last.
"""
LATE = 1e6
"""More than nodes can be."""
NAMES = tuple(STRATEGIES)
"""What there is to choose from."""


class Pricing:
    """Prices strategies for a join.

    Args:
        state: What is known of the join.
        weights: What CPU, memory and network count.
        goal: Whether the time of a batch counts (`latency`), or only that of its busiest node (`throughput`): what a
            batch takes beside its work is the less the longer batches are, and those of a busy join grow.
        available: The bytes a second that the network brings to a node; rings that need more are left out.
        within: If given, the seconds that a batch may take: then the fewest nodes that are in time are the best.
        now: What the join does, if it does something.
        measure: Makes the costs' parameters: those of a load to come, for one. If not given, they are as the join
            measured them.
    """

    def __init__(
        self,
        state: StateView,
        weights: cost.Weights = cost.EQUAL,
        goal: Goal = "latency",
        available: float = inf,
        within: float | None = None,
        now: Option | None = None,
        measure: Measure | None = None,
    ) -> None:
        self._weights, self._within, self._now = weights, within, now
        self._dense = EVERY_NODES if within is None else EVERY_IN_TIME
        self._of = {"latency": cost.Cost.seconds, "throughput": cost.Cost.load}[goal]
        basis = Basis(state, cache(measure or (lambda first: parameters.measured(state, first))), available)
        self._basis, self._pricer = basis, cache(lambda name: STRATEGIES[name].pricer(basis))

    # -- the best

    def best(self, most: int, among: Sequence[str] = NAMES) -> list[Option]:
        """Return every strategy with its best number of nodes, the one to take first, then the next best.

        Args:
            most: How many nodes there may be.
            among: The strategies that may be chosen.
        """
        fits = fitting(self._basis.state, among)
        others = [name for name in among if STRATEGIES[name].WHEREVER is None]
        least = least_nodes(others)
        names = dict.fromkeys((*fits, *others))
        priced = [list(self.every(name, least, most)) for name in names]
        found = [min(options, key=cheapest) for options in priced if options]
        # [!] Hash on one node is Central with buckets, yet where it can serve it stays Hash, so that it can grow.
        first = min((option for option in found if option.name in fits), key=cheapest)
        return [first, *sorted((option for option in found if option is not first), key=cheapest)]

    def every(self, name: str, least: int, most: int) -> Iterator[Option]:
        """Yield a strategy on each number of nodes worth a try, with each of its options."""
        kind = STRATEGIES[name]
        alone = [1] if kind.ALONE or least == 1 else []
        for nodes in (*alone, *_tries(kind.widest(self._basis, most), self._dense)):
            for options in kind.variants(self._basis.state):
                yield self.priced(name, nodes, options)

    def priced(self, name: str, nodes: int, options: Options) -> Option:
        """Return a candidate with its cost."""
        p, found = self._pricer(name)(nodes, options)
        timed = self._within is not None and not isinf(p.advance)
        price = self._lateness(name, nodes, found.seconds(p, self._weights) * p.advance) if timed else None
        return Option(name, nodes, self._of(found, p, self._weights), found, options, price)

    def fits(self, option: Option, most: int) -> bool:
        """Tell whether what an option asks for is still there: nodes, and the network to feed them."""
        return option.nodes <= STRATEGIES[option.name].widest(self._basis, most)

    @property
    def longest_ring(self) -> int | None:
        """The longest ring that the network can feed; None if it sets no limit."""
        return longest_ring(self._basis.parameters(None), self._basis.bandwidth)

    def _lateness(self, name: str, nodes: int, took: float) -> float:
        """Return what options are compared by if a batch may take only so long: nodes, above them all who is late.

        Fewer nodes than there are must be in time by a margin, or they would soon be more again. What is late as well
        must be less late by a margin to be worth a change.
        """
        assert self._within is not None
        now = self._now
        late = took / (self._within * (1 - MARGIN if now is not None and nodes < now.nodes else 1))
        if late <= 1:
            return nodes
        same = now is not None and (name, nodes) == (now.name, now.nodes)
        return LATE * late / (1 if same else 1 - MARGIN)


def fitting(state: StateView, among: Sequence[str]) -> tuple[str, ...]:
    """Return the strategies that come into question: only those taken wherever they can serve, if one can."""
    wherever = [name for name in among if STRATEGIES[name].WHEREVER is not None]
    serving = tuple(name for name in wherever if STRATEGIES[name]().refusal(state) is None)
    return serving or tuple(name for name in among if name not in wherever)


def least_nodes(names: Sequence[str]) -> int:
    """Return on how few nodes strategies are tried that make no sense on one: on one, if no other does."""
    return 2 if any(STRATEGIES[name].ALONE for name in names) else 1


def waiting(longest: int, available: float) -> str:
    """Return how the network limits a ring, as a sentence.

    Args:
        longest: The longest ring that the network can feed.
        available: The bytes a second that it brings to a node.
    """
    says = f"a ring of more than {longest} nodes would wait for rows, of which {available / 1e6:.3g} MB/s come"
    return f"{says} (equation 6)."


def cheapest(option: Option) -> tuple[float, int, float]:
    """Return what options are sorted by: costs are no better than three digits, so that fewer nodes win a tie."""
    return float(f"{option.compared:.3g}"), option.nodes, option.cost


def _tries(most: int, dense: int = EVERY_NODES) -> list[int]:
    """Return the numbers of nodes from 2 on that are worth a try.

    Args:
        most: How many nodes there may be.
        dense: Up to which number all are.

    >>> _tries(30)[-5:]
    [8, 12, 18, 27, 30]
    >>> _tries(11, dense=9)[-3:]
    [8, 9, 11]
    """
    numbers = list(range(2, min(most, dense) + 1))
    while numbers and numbers[-1] < most:
        numbers.append(min(most, int(numbers[-1] * GROWTH)))
    return numbers
