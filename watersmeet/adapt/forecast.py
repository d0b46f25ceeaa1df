"""The predicted cost of a measured join at other rates and on any number of nodes.

All predictions are those of `watersmeet.cost.cost_model`. They assume nodes that send each other rows, each with a
core of its own unless slots are limited: a sample runs in one process and can't measure that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from typing import Any, get_args

from watersmeet.adapt.adaptation import Option
from watersmeet.adapt.auto import Auto
from watersmeet.adapt.pricing import NAMES, Pricing, eligible_strategies, least_nodes
from watersmeet.arguments import check_choice, fields_to_python, format_duration, to_python
from watersmeet.cost import equations, parameters
from watersmeet.cost.cost_model import EQUAL, Weights
from watersmeet.cost.equations import Goal
from watersmeet.cost.load import ROW_SECONDS
from watersmeet.cost.parameters import Pace
from watersmeet.errors import DefinitionError
from watersmeet.placement.base import check_above_zero, check_nodes
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.state.manifest.view import Machine, StateView

LEAST, MOST, STEP = 1e-6, 1e9, 1.001
"""The range of multiples of the rate to search for the highest that a join can sustain, and the precision."""
HIGHEST = 1e12
"""The highest plausible rate, in tuples a second."""
FURTHEST = 256
"""The fewest nodes that keep up are searched for up to this number, even if fewer are available."""


@dataclass(frozen=True, slots=True)
class SampleMeasurements:
    """The measurements of a run over a sample of the streams.

    Attributes:
        state: The state of the join after the run.
        tuples: How many tuples it processed.
        seconds: The seconds of event time that they cover.
        fill_seconds: For how many of them windows had been filling when most was measured.
        predicates: For each Python predicate its `pairs`, `matches` and `ms`.
        count_windows: The streams with a count window.
        pace: The time of tuples and pairs; None for that in the state.
        tables: The rows of each table, by position; a large one is sampled, too.
    """

    state: StateView
    tuples: int
    seconds: float
    fill_seconds: float = inf
    predicates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    count_windows: tuple[int, ...] = ()
    pace: Pace | None = None
    tables: Mapping[int, int] = field(default_factory=dict)

    @property
    def constant(self) -> tuple[int, ...]:
        """The streams that store the same number of tuples at any rate."""
        return (*self.count_windows, *self.tables)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an advice.

    Attributes:
        max_nodes: The most nodes.
        goal: `latency` for the shortest batches, `throughput` for the least work of the busiest node; None for the
            fewest nodes that keep up.
        every: The seconds from one batch to the next.
        slots: How many tasks run at once; infinite if each node has a core of its own.
        bandwidth: The bytes a second that the network can deliver to a node.
        rates: The tuples a second, by name, of streams whose rate differs from the sample's.
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
    weights: Weights = EQUAL

    def __post_init__(self) -> None:
        """Check and convert the settings.

        Raises:
            DefinitionError: If one is out of range.
        """
        fields_to_python(self)
        check_nodes(self.max_nodes, what="max_nodes")
        if self.goal is not None:
            check_choice("goal", self.goal, get_args(Goal))
        for name in ("every", "slots", "bandwidth"):
            check_above_zero(name, getattr(self, name))
        for stream, rate in self.rates.items():
            check_above_zero(f"rate of stream '{stream}'", to_python(rate), HIGHEST)

    def strategy(self) -> Auto:
        """Return the strategy that chooses what is recommended."""
        within = format_duration(round(self.every * 1e6)) if self.goal is None else None
        auto = Auto(self.max_nodes, weights=self.weights, among=self.among, bandwidth=self.bandwidth)
        return replace(auto, goal=self.goal or "latency", within=within)


class Forecast:
    """Predicts the cost of a measured join at any multiple of its rates.

    Args:
        sample: The measurements.
        settings: The settings of the advice.

    Attributes:
        strategy: The strategy that chooses what is recommended.

    Raises:
        DefinitionError: If a stream's rate is neither measured nor given.
    """

    def __init__(self, sample: SampleMeasurements, settings: Settings) -> None:
        self._sample, self._settings, self.strategy = sample, settings, settings.strategy()
        self._state = replace(sample.state, machine=Machine(settings.slots, ROW_SECONDS, cores=settings.slots))
        self._now, self._seconds = cache(self._parameters), cache(self._seconds_by_nodes)
        rates = enumerate(zip(self._state.names, self._now(None).rates, strict=True))
        silent = [name for at, (name, rate) in rates if not rate and at not in sample.tables]
        if silent:
            raise DefinitionError(f"The sample shows no rate of stream '{silent[0]}'; give it: rates={{...}}.")

    def _parameters(self, master: int | None) -> parameters.Parameters:
        """Return the parameters at the rates of the sample or the settings, with full windows and whole tables.

        Args:
            master: A stream that all others are to probe first; None for none.
        """
        sample, settings = self._sample, self._settings
        p = parameters.fill_windows(parameters.measure(self._state, master), sample.fill_seconds)
        rates = [settings.rates.get(name, rate) for name, rate in zip(self._state.names, p.rates, strict=True)]
        p = replace(parameters.with_rates(p, rates, sample.constant), advance=settings.every)
        p = replace(p, stored=tuple(float(sample.tables.get(at, rows)) for at, rows in enumerate(p.stored)))
        return p if sample.pace is None else parameters.with_pace(p, sample.pace)

    def _parameters_at(self, factor: float, master: int | None = None) -> parameters.Parameters:
        return parameters.scale(self._now(master), factor, self._sample.constant)

    def _pricing(self, factor: float) -> Pricing:
        """Return the pricing of strategies by the time of their batches; it tries all numbers of nodes."""
        settings, measure = self._settings, partial(self._parameters_at, factor)
        return Pricing(self._state, settings.weights, "latency", settings.bandwidth, settings.every, measure=measure)

    # -- recommendations

    def row(self, factor: int) -> dict[str, Any]:
        """Return the recommendation and predictions at a multiple of the rate, as `Advice.rows` holds them."""
        best, p = self.choose(self.strategy, factor), self._parameters_at(factor)
        fastest = self.choose(replace(self.strategy, goal="latency", within=None), factor)
        most, cost = self._parameters_at(self._highest_factor(best)), best.breakdown
        assert cost is not None
        state_rows = equations.state_rows(p) * cost.stored_tuples / sum(p.rates)
        return {
            "factor": factor,
            "tuplesPerSecond": sum(p.rates),
            "resultsPerSecond": equations.result_rate(p),
            "strategy": best.name,
            "nodes": best.nodes,
            "options": dict(best.options),
            "nodesNeeded": self._nodes_needed(factor),
            "batchSeconds": best.cost * self._settings.every,
            "fastestNodes": fastest.nodes,
            "fastestSeconds": fastest.cost * self._settings.every,
            "mostTuplesPerSecond": sum(most.rates),
            "mostResultsPerSecond": equations.result_rate(most),
            "stateRows": state_rows,
            "stateBytes": state_rows * p.row_bytes,
            "networkBytesPerSecond": cost.sent_rows * p.row_bytes,
            "bandwidthNeeded": STRATEGIES[best.name].bandwidth(p, best.nodes),
            "longestRing": self._pricing(factor).longest_ring,
        }

    def curve(self, factor: int) -> dict[int, float]:
        """Return the seconds of a batch by the number of nodes, each under the best strategy for it."""
        return self._seconds(factor, self._settings.max_nodes)

    def choose(self, auto: Auto, factor: int) -> Option:
        """Return the option that Auto would choose at a multiple of the rate.

        Its cost is the time of its batches, whatever the goal: the seconds for a second of event time.
        """
        pricing = auto.pricing(self._state, measure=partial(self._parameters_at, factor))
        best = pricing.best(auto.max_nodes, auto.among)[0]
        return self._pricing(factor).price(best.name, best.nodes, best.options)

    def _nodes_needed(self, factor: int) -> int | None:
        """Return the fewest nodes that keep up, more than the settings allow if necessary; None if none do."""
        for most in (self._settings.max_nodes, FURTHEST):
            for nodes, seconds in self._seconds(factor, most).items():
                if seconds <= self._settings.every:
                    return nodes
        return None

    def _seconds_by_nodes(self, factor: int, most: int) -> dict[int, float]:
        """Return the seconds of a batch by the number of nodes, in ascending order."""
        every, names = self._settings.every, eligible_strategies(self._state, self._settings.among)
        pricing = self._pricing(factor)
        seconds: dict[int, float] = {}
        for option in (option for name in names for option in pricing.candidates(name, least_nodes(names), most)):
            seconds[option.nodes] = min(seconds.get(option.nodes, inf), option.cost * every)
        return dict(sorted(seconds.items()))

    def _highest_factor(self, option: Option) -> float:
        """Return the highest multiple of the rate at which a batch takes no longer than the time until the next.

        At most about `MOST`; 0 if it takes longer even at `LEAST`.
        """

        def keeps_up(factor: float) -> bool:
            return self._pricing(factor).price(option.name, option.nodes, option.options).cost <= 1

        low, high = LEAST, MOST
        if not keeps_up(low):
            return 0.0
        while high / low > STEP:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if keeps_up(middle) else (low, middle)
        return low

    # -- measurements

    @property
    def measurements(self) -> dict[str, Any]:
        """The measurements of the sample, to show."""
        p = self._now(None)
        return {
            "tuples": self._sample.tuples,
            "seconds": self._sample.seconds,
            "pairSeconds": p.pair_seconds,
            "rowBytes": p.row_bytes,
            "streams": {name: self._stream_measurements(p, at) for at, name in enumerate(self._state.names)},
            "predicates": self._sample.predicates,
        }

    def _stream_measurements(self, p: parameters.Parameters, at: int) -> dict[str, Any]:
        """Return what was measured of a stream, as `measurements` has it: for a table, only its rows."""
        if at in self._sample.tables:
            return {"rows": self._sample.tables[at]}
        targets = [self._state.names[to] for to in p.orders[at]]
        return {
            "tuplesPerSecond": p.rates[at],
            "given": self._state.names[at] in self._settings.rates,
            "matching": dict(zip(targets, p.selectivities[at], strict=True)),
        }
