"""The predicted cost of each strategy for a join, by number of nodes."""

from collections.abc import Iterator, Sequence
from functools import cache
from math import inf, isinf

from watersmeet.adapt.adaptation import Option
from watersmeet.cost import parameters
from watersmeet.cost.cost_model import EQUAL, StrategyCost, Weights
from watersmeet.cost.equations import Goal, longest_ring
from watersmeet.placement.priced_strategy import Basis, Measure, Options
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.state.manifest.view import MARGIN, StateView

EVERY_NODES, EVERY_IN_TIME, GROWTH = 8, 256, 1.5
"""Every number of nodes is tried up to the first, or the second if the aim is the fewest nodes that are in time.

Beyond that, each number tried is larger than the last by this factor.
"""
LATE = 1e6
"""The rank of a late option; greater than any number of nodes."""
NAMES = tuple(STRATEGIES)
"""The strategies to choose from."""


class Pricing:
    """Prices strategies for a join.

    Args:
        state: The state of the join.
        weights: What CPU, memory and network count.
        goal: Whether the time of a batch counts (`latency`), or only that of its busiest node (`throughput`): the fixed
            cost of a batch matters less the longer batches are, and those of a busy join grow.
        available: The bytes a second that the network can deliver to a node; rings that need more are excluded.
        within: The seconds that a batch may take; if not None, the fewest nodes that are in time are the best.
        now: The join's current option, if any.
        measure: Returns the parameters of the costs, such as those of a future load; by default those that the join
            measured.
    """

    def __init__(
        self,
        state: StateView,
        weights: Weights = EQUAL,
        goal: Goal = "latency",
        available: float = inf,
        within: float | None = None,
        now: Option | None = None,
        measure: Measure | None = None,
    ) -> None:
        self._weights, self._within, self._now = weights, within, now
        self._dense = EVERY_NODES if within is None else EVERY_IN_TIME
        self._cost_of = {"latency": StrategyCost.seconds, "throughput": StrategyCost.load}[goal]
        basis = Basis(state, cache(measure or (lambda first: parameters.measure(state, first))), available)
        self._basis, self._pricer = basis, cache(lambda name: STRATEGIES[name].pricer(basis))

    # -- the best

    def best(self, most: int, among: Sequence[str] = NAMES) -> list[Option]:
        """Return every strategy with its best number of nodes, in order of preference.

        The first is the best of those that are eligible, of which there must be one.

        Args:
            most: The most nodes.
            among: The strategies that may be chosen.
        """
        eligible = eligible_strategies(self._basis.state, among)
        others = [name for name in among if STRATEGIES[name].PREFERENCE is None]
        least = least_nodes(others)
        by_strategy = [list(self.candidates(name, least, most)) for name in dict.fromkeys((*eligible, *others))]
        best = [min(options, key=preference) for options in by_strategy if options]
        # [!] Hash on one node is Central with buckets, yet where it can serve it stays Hash, so that it can grow.
        first = min((option for option in best if option.name in eligible), key=preference)
        return [first, *sorted((option for option in best if option is not first), key=preference)]

    def candidates(self, name: str, least: int, most: int) -> Iterator[Option]:
        """Yield a strategy on each number of nodes worth trying, with each of its options.

        Args:
            name: The strategy.
            least: 1 to try it on one node even if it is not meant for that.
            most: The most nodes.
        """
        kind = STRATEGIES[name]
        one = [1] if kind.ONE_NODE or least == 1 else []
        for nodes in (*one, *_node_counts(kind.most_nodes(self._basis, most), self._dense)):
            for options in kind.variants(self._basis.state):
                yield self.price(name, nodes, options)

    def price(self, name: str, nodes: int, options: Options) -> Option:
        """Return a candidate with its cost by the goal and, if batches have a time limit, a price to compare it by."""
        p, cost = self._pricer(name)(nodes, options)
        has_limit = self._within is not None and not isinf(p.advance)
        price = self._timeliness(name, nodes, cost.seconds(p, self._weights) * p.advance) if has_limit else None
        return Option(name, nodes, self._cost_of(cost, p, self._weights), cost, options, price)

    def is_feasible(self, option: Option, most: int) -> bool:
        """Return whether there are enough nodes for an option, and enough bandwidth to feed them."""
        return option.nodes <= STRATEGIES[option.name].most_nodes(self._basis, most)

    @property
    def longest_ring(self) -> int | None:
        """The longest ring that the network can feed; None if it sets no limit."""
        return longest_ring(self._basis.parameters(None), self._basis.bandwidth)

    def _timeliness(self, name: str, nodes: int, seconds: float) -> float:
        """Return the price of an option whose batches take this many seconds: its nodes, or by how much it is late.

        Fewer nodes than now must be in time by a margin, or they would soon be increased again. An option that is late
        like the current one must be less late by a margin to be worth a change.
        """
        assert self._within is not None
        now = self._now
        late = seconds / (self._within * (1 - MARGIN if now is not None and nodes < now.nodes else 1))
        if late <= 1:
            return nodes
        same = now is not None and (name, nodes) == (now.name, now.nodes)
        return LATE * late / (1 if same else 1 - MARGIN)


def eligible_strategies(state: StateView, among: Sequence[str]) -> tuple[str, ...]:
    """Return the strategies to choose from: only the preferred ones if any of them can serve, else the others."""
    preferred = [name for name in among if STRATEGIES[name].PREFERENCE is not None]
    able = tuple(name for name in preferred if STRATEGIES[name]().refusal(state) is None)
    return able or tuple(name for name in among if name not in preferred)


def least_nodes(names: Sequence[str]) -> int:
    """Return the least nodes to try: 2, unless none of the strategies is meant for one node."""
    return 2 if any(STRATEGIES[name].ONE_NODE for name in names) else 1


def describe_ring_limit(longest: int, available: float) -> str:
    """Return how the network limits a ring, as a sentence.

    Args:
        longest: The longest ring that the network can feed.
        available: The bytes a second that it can deliver to a node.
    """
    limit = f"a ring of more than {longest} nodes would wait for rows, of which {available / 1e6:.3g} MB/s come"
    return f"{limit} (equation 6)."


def preference(option: Option) -> tuple[float, int, float]:
    """Return the sort key of options: ranks are rounded to three digits, so that fewer nodes win a tie."""
    return float(f"{option.rank:.3g}"), option.nodes, option.cost


def _node_counts(most: int, dense: int = EVERY_NODES) -> list[int]:
    """Return the numbers of nodes worth trying, from 2 on.

    Args:
        most: The most nodes.
        dense: Up to this number, all are.

    >>> _node_counts(30)[-5:]
    [8, 12, 18, 27, 30]
    >>> _node_counts(11, dense=9)[-3:]
    [8, 9, 11]
    """
    counts = list(range(2, min(most, dense) + 1))
    while counts and counts[-1] < most:
        counts.append(min(most, int(counts[-1] * GROWTH)))
    return counts
