"""What a join that was measured would take at other rates and on any number of nodes.

All predictions are those of `watersmeet.cost.model`. They are for nodes that send each other rows, each on a core of
its own unless slots are given: a sample is measured in one process, and says nothing of that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from typing import Any

from watersmeet.adapt.auto import Auto
from watersmeet.adapt.controller import Option
from watersmeet.adapt.pricing import NAMES, Pricing, fitting, least_nodes
from watersmeet.arguments import fields_to_python, format_duration, to_python
from watersmeet.cost import equations, parameters
from watersmeet.cost import model as cost
from watersmeet.cost.load import ROW_SECONDS
from watersmeet.cost.pace import Pace
from watersmeet.errors import DefinitionError
from watersmeet.placement.options import check_above_zero, check_nodes
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.state.manifest.view import Machine, StateView

LEAST, MOST, STEP = 1e-6, 1e9, 1.001
"""Between which multiples of the rate the most that a join can hold is looked for, and how closely."""
HIGHEST = 1e12
"""The highest rate that makes sense, in tuples a second."""
FURTHEST = 256
"""On up to so many nodes the fewest that keep up are looked for, even if there may be fewer."""


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
        pace: How long tuples and pairs took; if not given, as the state says.
        tables: The rows of each table, by position; a large one is sampled, too.
    """

    state: StateView
    tuples: int
    seconds: float
    filled: float = inf
    predicates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    counted: tuple[int, ...] = ()
    pace: Pace | None = None
    tables: Mapping[int, int] = field(default_factory=dict)

    @property
    def constant(self) -> tuple[int, ...]:
        """The streams of which as many tuples are kept at any rate."""
        return (*self.counted, *self.tables)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the advice is for.

    Attributes:
        max_nodes: How many nodes there may be.
        goal: `latency` for the shortest batches, `throughput` for the least work of the busiest node; None for the
            fewest nodes that keep up.
        every: The seconds from one batch to the next.
        slots: How many tasks run at once; infinite if each node has a core of its own.
        bandwidth: The bytes a second that the network brings to a node.
        rates: The tuples a second of streams whose rate is not to be the sample's, by name.
        among: The strategies that may be recommended.
        weights: What CPU, memory and network count.
    """

    max_nodes: int = 16
    goal: equations.Goal | None = None
    every: float = 1.0
    slots: float = inf
    bandwidth: float = inf
    rates: Mapping[str, float] = field(default_factory=dict)
    among: tuple[str, ...] = NAMES
    weights: cost.Weights = cost.EQUAL

    def __post_init__(self) -> None:
        fields_to_python(self)
        check_nodes(self.max_nodes, what="max_nodes")
        if self.goal is not None:
            equations.check_goal(self.goal)
        for name in ("every", "slots", "bandwidth"):
            check_above_zero(name, getattr(self, name))
        for stream, rate in self.rates.items():
            check_above_zero(f"rate of stream '{stream}'", to_python(rate), HIGHEST)

    def strategy(self) -> Auto:
        """Return the strategy that takes what is recommended."""
        within = format_duration(round(self.every * 1e6)) if self.goal is None else None
        asked = Auto(self.max_nodes, weights=self.weights, among=self.among, bandwidth=self.bandwidth)
        return replace(asked, goal=self.goal or "latency", within=within)


class Forecast:
    """Predicts what a join that was measured takes at any multiple of its rates.

    Args:
        sample: What was measured.
        settings: What the advice is for.

    Attributes:
        strategy: The strategy that takes what is recommended.
    """

    def __init__(self, sample: Sample, settings: Settings) -> None:
        self._sample, self._settings, self.strategy = sample, settings, settings.strategy()
        self._state = replace(sample.state, machine=Machine(settings.slots, ROW_SECONDS, cores=settings.slots))
        self._now, self._seconds = cache(self._parameters), cache(self._every)
        rates = enumerate(zip(self._state.names, self._now(None).rates, strict=True))
        silent = [name for at, (name, rate) in rates if not rate and at not in sample.tables]
        if silent:
            raise DefinitionError(f"The sample shows no rate of stream '{silent[0]}'; give it: rates={{...}}.")

    def _parameters(self, master: int | None) -> parameters.Parameters:
        """Return the parameters at the rate of now, with full windows."""
        sample, settings = self._sample, self._settings
        p = parameters.filled(parameters.measured(self._state, master), sample.filled)
        rates = [settings.rates.get(name, rate) for name, rate in zip(self._state.names, p.rates, strict=True)]
        p = replace(parameters.at_rates(p, rates, sample.constant), advance=settings.every)
        p = replace(p, kept=tuple(float(sample.tables.get(at, kept)) for at, kept in enumerate(p.kept)))
        return p if sample.pace is None else parameters.at_pace(p, sample.pace)

    def _at(self, factor: float, master: int | None = None) -> parameters.Parameters:
        return parameters.scaled(self._now(master), factor, self._sample.constant)

    def _pricing(self, factor: float) -> Pricing:
        """Return what prices strategies by the time of their batches; of numbers of nodes, all are tried."""
        given, measure = self._settings, partial(self._at, factor)
        return Pricing(self._state, given.weights, "latency", given.bandwidth, given.every, measure=measure)

    # -- what is recommended

    def row(self, factor: int) -> dict[str, Any]:
        """Return what is recommended and predicted at a multiple of the rate."""
        best, p = self.taken(self.strategy, factor), self._at(factor)
        fastest = self.taken(replace(self.strategy, goal="latency", within=None), factor)
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
            "nodesNeeded": self._needed(factor),
            "batchSeconds": best.cost * self._settings.every,
            "fastestNodes": fastest.nodes,
            "fastestSeconds": fastest.cost * self._settings.every,
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
        return self._seconds(factor, self._settings.max_nodes)

    def taken(self, auto: Auto, factor: int) -> Option:
        """Return what Auto would take at a multiple of the rate, with the time of its batches as its cost."""
        taken = auto.pricing(self._state, measure=partial(self._at, factor)).best(auto.max_nodes, auto.among)[0]
        return self._pricing(factor).priced(taken.name, taken.nodes, taken.options)

    def _needed(self, factor: int) -> int | None:
        """Return the fewest nodes that keep up, if need be more than there may be; None if none do."""
        for most in (self._settings.max_nodes, FURTHEST):
            for nodes, took in self._seconds(factor, most).items():
                if took <= self._settings.every:
                    return nodes
        return None

    def _every(self, factor: int, most: int) -> dict[int, float]:
        """Return the seconds of a batch by the number of nodes, in rising order."""
        every, names = self._settings.every, fitting(self._state, self._settings.among)
        pricing = self._pricing(factor)
        seconds: dict[int, float] = {}
        for option in (option for name in names for option in pricing.every(name, least_nodes(names), most)):
            seconds[option.nodes] = min(seconds.get(option.nodes, inf), option.cost * every)
        return dict(sorted(seconds.items()))

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
        if at in self._sample.tables:
            return {"rows": self._sample.tables[at]}
        probed = [self._state.names[to] for to in p.orders[at]]
        return {
            "tuplesPerSecond": p.rates[at],
            "given": self._state.names[at] in self._settings.rates,
            "matching": dict(zip(probed, p.selectivities[at], strict=True)),
        }
