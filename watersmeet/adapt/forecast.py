"""What a join that was measured would take at other rates and on any number of nodes.

All predictions are those of `watersmeet.cost.model`. They are for nodes that send each other rows, each on a core of
its own unless slots are given: a sample is measured in one process, and says nothing of that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from typing import Any

from watersmeet.adapt.controller import Option
from watersmeet.adapt.pricing import NAMES, Pricing, fitting, least_nodes
from watersmeet.cost import equations, parameters
from watersmeet.cost import model as cost
from watersmeet.cost.load import ROW_SECONDS
from watersmeet.errors import DefinitionError
from watersmeet.model.arguments import plain, take_plain
from watersmeet.placement.options import check_above_zero, check_nodes
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.state.view import Machine, StateView

LEAST, MOST, STEP = 1e-6, 1e9, 1.001
"""Between which multiples of the rate the most that a join can hold is looked for, and how closely."""
HIGHEST = 1e12
"""The highest rate that makes sense, in tuples a second."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a run over a sample of the streams measured.

    Attributes:
        state: What the join knows after it.
        tuples: How many tuples it took in.
        seconds: Over how many seconds of event time.
        filled: For how many of them windows had been filling when most was measured.
        predicates: For each Python predicate its `pairs`, `matches` and `ms`.
        counted: The streams with a count window.
    """

    state: StateView
    tuples: int
    seconds: float
    filled: float = inf
    predicates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    counted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """What the advice is for.

    Attributes:
        max_nodes: How many nodes there may be.
        goal: `latency` for the shortest batches, `throughput` for the least work of the busiest node.
        every: The seconds from one batch to the next.
        slots: How many tasks run at once; infinite if each node has a core of its own.
        bandwidth: The bytes a second that the network brings to a node.
        rates: The tuples a second of streams whose rate is not to be the sample's, by name.
        among: The strategies that may be recommended.
        weights: What CPU, memory and network count.
    """

    max_nodes: int = 16
    goal: equations.Goal = "latency"
    every: float = 1.0
    slots: float = inf
    bandwidth: float = inf
    rates: Mapping[str, float] = field(default_factory=dict)
    among: tuple[str, ...] = NAMES
    weights: cost.Weights = cost.EQUAL

    def __post_init__(self) -> None:
        take_plain(self)
        check_nodes(self.max_nodes, what="max_nodes")
        equations.check_goal(self.goal)
        for name in ("every", "slots", "bandwidth"):
            check_above_zero(name, getattr(self, name))
        for stream, rate in self.rates.items():
            check_above_zero(f"rate of stream '{stream}'", plain(rate), HIGHEST)


class Forecast:
    """Predicts what a join that was measured takes at any multiple of its rates.

    Args:
        sample: What was measured.
        settings: What the advice is for.
    """

    def __init__(self, sample: Sample, settings: Settings) -> None:
        self._sample, self._settings = sample, settings
        self._state = replace(sample.state, machine=Machine(settings.slots, ROW_SECONDS, cores=settings.slots))
        self._now, self._options = cache(self._parameters), cache(self._every)
        silent = [name for name, rate in zip(self._state.names, self._now(None).rates, strict=True) if not rate]
        if silent:
            raise DefinitionError(f"The sample shows no rate of stream '{silent[0]}'; give it: rates={{...}}.")

    def _parameters(self, master: int | None) -> parameters.Parameters:
        """Return the parameters at the rate of now, with full windows."""
        p = parameters.filled(parameters.measured(self._state, master), self._sample.filled)
        rates = [self._settings.rates.get(name, rate) for name, rate in zip(self._state.names, p.rates, strict=True)]
        return replace(parameters.at_rates(p, rates, self._sample.counted), advance=self._settings.every)

    def _at(self, factor: float, master: int | None = None) -> parameters.Parameters:
        return parameters.scaled(self._now(master), factor, self._sample.counted)

    def _pricing(self, factor: float, goal: equations.Goal = "latency") -> Pricing:
        given = self._settings
        return Pricing(
            self._state, given.weights, goal, given.bandwidth, measure=lambda master: self._at(factor, master)
        )

    # -- what is recommended

    def row(self, factor: int, curve: Mapping[int, float]) -> dict[str, Any]:
        """Return what is recommended and predicted at a multiple of the rate."""
        best, p = self._best(factor), self._at(factor)
        most, found = self._at(self._most(best)), best.made_of
        assert found is not None
        kept = equations.state_rows(p) * found.kept / sum(p.rates)
        return {
            "factor": factor,
            "tuplesPerSecond": sum(p.rates),
            "resultsPerSecond": equations.result_rate(p),
            "strategy": best.name,
            "nodes": best.nodes,
            "options": dict(best.options),
            "nodesNeeded": next((nodes for nodes, took in curve.items() if took <= self._settings.every), None),
            "batchSeconds": best.cost * self._settings.every,
            "mostTuplesPerSecond": sum(most.rates),
            "mostResultsPerSecond": equations.result_rate(most),
            "stateRows": kept,
            "stateBytes": kept * p.row_bytes,
            "networkBytesPerSecond": found.shipped * p.row_bytes,
            "bandwidthNeeded": STRATEGIES[best.name].bandwidth(p, best.nodes),
            "longestRing": self._pricing(factor).longest_ring,
        }

    def curve(self, factor: int) -> dict[int, float]:
        """Return the seconds of a batch by the number of nodes, each under the best strategy for it."""
        found: dict[int, float] = {}
        for option in self._options(factor):
            found[option.nodes] = min(found.get(option.nodes, inf), option.cost * self._settings.every)
        return dict(sorted(found.items()))

    def _best(self, factor: int) -> Option:
        """Return what Auto would take, by the time of its batches."""
        taken = self._pricing(factor, self._settings.goal).best(self._settings.max_nodes, self._settings.among)[0]
        return self._pricing(factor).priced(taken.name, taken.nodes, taken.options)

    def _every(self, factor: int) -> list[Option]:
        """Return all that could be done at a multiple of the rate."""
        pricing, most = self._pricing(factor), self._settings.max_nodes
        names = fitting(self._state, self._settings.among)
        return [option for name in names for option in pricing.every(name, least_nodes(names), most)]

    def _most(self, option: Option) -> float:
        """Return the largest multiple of the rate at which a batch takes no longer than the time until the next."""

        def holds(factor: float) -> bool:
            return self._pricing(factor).priced(option.name, option.nodes, option.options).cost <= 1

        low, high = LEAST, MOST
        if not holds(low):
            return 0.0
        while high / low > STEP:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low

    # -- what was measured

    @property
    def measured(self) -> dict[str, Any]:
        """What the sample measured, for people."""
        p = self._now(None)
        return {
            "tuples": self._sample.tuples,
            "seconds": self._sample.seconds,
            "pairSeconds": p.pair_seconds,
            "rowBytes": p.row_bytes,
            "streams": {name: self._stream(p, at) for at, name in enumerate(self._state.names)},
            "predicates": self._sample.predicates,
        }

    def _stream(self, p: parameters.Parameters, at: int) -> dict[str, Any]:
        probed = [self._state.names[to] for to in p.orders[at]]
        return {
            "tuplesPerSecond": p.rates[at],
            "given": self._state.names[at] in self._settings.rates,
            "matching": dict(zip(probed, p.selectivities[at], strict=True)),
        }
