"""What each strategy would cost a join on each number of nodes, from what is known of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from math import inf, isinf
from typing import Any

from watersmeet.adapt.controller import Option
from watersmeet.cost import model as cost
from watersmeet.cost import parameters
from watersmeet.cost.equations import Goal, bandwidth
from watersmeet.model.duration import microseconds, spelled
from watersmeet.placement.hash import Attribute, Hash, attributes, is_shared, stored_attributes
from watersmeet.state.view import LONGEST_SLICE, MARGIN, StateView

EVERY_NODES, GROWTH = 8, 1.5
"""Numbers of nodes are all tried up to the first; from there on, each is this much larger than the last."""
STRATEGIES = ("Hash", "Central", "PSP", "DSJ", "ATR", "CTR")
"""What there is to choose from."""
LATE = 1e6
"""More than nodes can be."""
MANY_NODES = 64
"""As many as let equation 2 speak: no tuple of a window of time is needed on so many."""
ALONE = ("Hash", "Central")
"""The strategies that make sense on one node."""
SEGMENTS = (0.5, 1, 2, 4)
"""Segment lengths that are tried for ATR, in longest windows."""
Measure = Callable[[int | None], parameters.Parameters]


class Pricing:
    """Prices strategies for a join.

    Args:
        state: What is known of the join.
        weights: What CPU, memory and network count.
        goal: Whether the time of a batch counts (`latency`), or only that of its busiest node (`throughput`): what a
            batch takes beside its work is the less the longer batches are, and those of a busy join grow.
        available: The bytes a second that the network brings to a node; rings that need more are left out.
        within: If given, the seconds that a batch may take: then the fewest nodes that are in time are the best.
        measure: Makes the costs' parameters, given ATR's master: those of a load to come, for one. If not given, they
            are as the join measured them.
    """

    def __init__(
        self,
        state: StateView,
        weights: cost.Weights = cost.EQUAL,
        goal: Goal = "latency",
        available: float = inf,
        within: float | None = None,
        measure: Measure | None = None,
    ) -> None:
        self._state, self._weights, self._available, self._within = state, weights, available, within
        self._of = {"latency": cost.Cost.seconds, "throughput": cost.Cost.load}[goal]
        self._parameters = cache(measure or (lambda master: parameters.measured(state, master)))

    # -- the best

    def best(self, most: int, among: Sequence[str] = STRATEGIES) -> list[Option]:
        """Return every strategy with its best number of nodes, the one to take first, then the next best.

        Args:
            most: How many nodes there may be.
            among: The strategies that may be chosen.
        """
        fits = fitting(self._state, among)
        least = 2 if "Central" in among else 1
        names = dict.fromkeys((*fits, *(name for name in among if name != "Hash")))
        priced = [list(self.every(name, least, most)) for name in names]
        found = [min(options, key=cheapest) for options in priced if options]
        # [!] Hash on one node is Central with buckets, yet where it can serve it stays Hash, so that it can grow.
        first = min((option for option in found if option.name in fits), key=cheapest)
        return [first, *sorted((option for option in found if option is not first), key=cheapest)]

    def every(self, name: str, least: int, most: int) -> Iterator[Option]:
        """Yield a strategy on each number of nodes worth a try, with each of its options."""
        alone = [1] if name in ALONE or least == 1 else []
        for nodes in alone if name == "Central" else [*alone, *_tries(self._widest(name, most))]:
            for options in self._options(name):
                yield self.priced(name, nodes, options)

    def priced(self, name: str, nodes: int, options: Mapping[str, Any]) -> Option:
        """Return a candidate with its cost."""
        p, found = self._cost(name, nodes, options)
        timed = self._within is not None and not isinf(p.advance)
        price = self._lateness(name, nodes, found.seconds(p, self._weights) * p.advance) if timed else None
        return Option(name, nodes, self._of(found, p, self._weights), found, options, price)

    def _lateness(self, name: str, nodes: int, took: float) -> float:
        """Return what options are compared by if a batch may take only so long: nodes, above them all who is late.

        Fewer nodes than there are must be in time by a margin, or they would soon be more again. What is late as well
        must be less late by a margin to be worth a change.
        """
        assert self._within is not None
        now, there = self._state.frozen.get("chosen"), self._state.frozen.get("nodes", 0)
        late = took / (self._within * (1 - MARGIN if nodes < there else 1))
        if late <= 1:
            return nodes
        return LATE * late / (1 if (name, nodes) == (now, there) else 1 - MARGIN)

    # -- one strategy

    def _cost(self, name: str, nodes: int, options: Mapping[str, Any]) -> tuple[parameters.Parameters, cost.Cost]:
        p: parameters.Parameters = self._parameters(None)
        match name:
            case "ATR":
                led = self._parameters(self._master)
                return led, cost.atr(led, nodes, self._master, microseconds(options["segment"]) / 1e6)
            case "Hash":
                return p, self._hashed(p, nodes)
            case "Central":
                return p, cost.central(p)
            case "PSP":
                return p, cost.psp(p, nodes)
            case "DSJ":
                return p, cost.dsj(p, nodes)
            case _:
                return p, cost.ctr(p, nodes)

    @cached_property
    def _master(self) -> int:
        """ATR's master, as on many nodes: but for few, where all tuples may be everywhere, equation 2 has the same."""
        return cost.best_master(self._parameters(None), MANY_NODES, self._reach / 1e6)

    @cached_property
    def _attributes(self) -> tuple[Attribute, ...]:
        return stored_attributes(attributes(self._state.equalities))

    def _hashed(self, p: parameters.Parameters, nodes: int) -> cost.Cost:
        by = self._attributes
        copies = [sum(column.stream == at for columns in by for column in columns) for at in p.streams]
        return cost.hashed(p, nodes, copies, is_shared(by, len(p.rates)))

    def _options(self, name: str) -> list[dict[str, Any]]:
        if name != "ATR":
            return [{}]
        return [{"segment": spelled(max(1, round(part * self._reach)))} for part in SEGMENTS]

    @property
    def _reach(self) -> int:
        return self._state.reach or LONGEST_SLICE

    def _widest(self, name: str, most: int) -> int:
        """Return on how many nodes a strategy may run: a ring on those whose rows the network brings in time."""
        return min(most, self.longest_ring or most) if name == "PSP" else most

    @property
    def longest_ring(self) -> int | None:
        """The longest ring of which no node waits for rows, by equation 6; None if the network sets no limit."""
        needed = bandwidth(self._parameters(None), 1)  # it rises with the length
        return None if isinf(self._available) or isinf(needed) else max(1, int(self._available / needed))


def fitting(state: StateView, among: Sequence[str]) -> tuple[str, ...]:
    """Return the strategies that come into question: Hash alone, if it can serve."""
    equal = "Hash" in among and Hash().refusal(state) is None
    return ("Hash",) if equal else tuple(name for name in among if name != "Hash")


def cheapest(option: Option) -> tuple[float, int, float]:
    """Return what options are sorted by: costs are no better than three digits, so that fewer nodes win a tie."""
    return float(f"{option.compared:.3g}"), option.nodes, option.cost


def _tries(most: int) -> list[int]:
    """Return the numbers of nodes from 2 on that are worth a try.

    >>> _tries(30)[-5:]
    [8, 12, 18, 27, 30]
    """
    found = list(range(2, min(most, EVERY_NODES) + 1))
    while found and found[-1] < most:
        found.append(min(most, int(found[-1] * GROWTH)))
    return found
