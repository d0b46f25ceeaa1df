"""Auto: the strategy and number of nodes with the lowest predicted cost, chosen again before each batch.

Costs are those of `watersmeet.cost.cost_model`: the papers' equations with the parameters that the join measured.
Hash is preferred wherever it can serve, since a probe then looks into only one bucket. A change copies no rows: only
owners of chunks change, and results are the same under any placement. It is still made only when it is predicted to
gain by a margin for several batches, so that noise doesn't move chunks around.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from math import inf
from typing import Any, NamedTuple, Self, get_args

from watersmeet.adapt.adaptation import (
    OVERDUE,
    PATIENCE,
    AdaptationController,
    AdaptationRecord,
    Option,
    describe_change,
)
from watersmeet.adapt.pricing import NAMES, Pricing, describe_ring_limit, eligible_strategies
from watersmeet.arguments import check_choice, fields_to_python, microseconds
from watersmeet.cost import parameters
from watersmeet.cost.cost_model import EQUAL, Weights
from watersmeet.cost.equations import Goal
from watersmeet.errors import DefinitionError
from watersmeet.placement import Layout, Notes, Placement, Strategy
from watersmeet.placement.base import (
    Relocation,
    check_above_zero,
    check_load,
    check_nodes,
    check_switch,
)
from watersmeet.placement.priced_strategy import Measure, Requirements
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.state.manifest.view import StateView, StoredNotes


class StrategyChoice(NamedTuple):
    """The decision for a batch.

    Attributes:
        option: The candidate that the batch runs with.
        why: The reason, as a sentence.
        candidates: All candidates, in order of preference.
        is_measured: Whether it is based on measurements.
        record: The controller's state after it.
        longest_ring: The longest ring that the network can feed; None if it sets no limit.
    """

    option: Option
    why: str
    candidates: tuple[Option, ...]
    is_measured: bool
    record: AdaptationRecord = AdaptationRecord()
    longest_ring: int | None = None


@dataclass(frozen=True, slots=True)
class AutoNotes(Notes):
    """The chosen strategy, the reason, and its own notes; the manifest stores them under these names.

    Attributes:
        chosen: The name of the strategy.
        nodes: How many nodes it has.
        options: Its other options.
        why: The reason for choosing it, as a sentence.
        measured: Whether that is based on measurements.
        record: The controller's state.
        inner: The notes of the chosen strategy.
    """

    chosen: str
    nodes: int
    options: Mapping[str, Any]
    why: str
    measured: bool
    record: AdaptationRecord
    inner: StoredNotes

    @property
    def option(self) -> Option:
        """The chosen option, without its cost."""
        return Option(self.chosen, self.nodes, 0.0, None, self.options)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the notes from their fields."""
        as_stored = {name: plain[name] for name in ("chosen", "nodes", "options", "why", "measured")}
        return cls(**as_stored, record=AdaptationRecord.from_json(plain["record"]), inner=StoredNotes(*plain["inner"]))


@dataclass(frozen=True, slots=True)
class AutoLayout(Layout[Placement]):
    """The layout of the chosen strategy, and the reason for the choice.

    Attributes:
        inner: The layout.
        strategy: The strategy, in words.
        choice: The choice.
        limit: How the network limits the choice, as a sentence; empty if it doesn't.
    """

    inner: Layout[Placement]
    strategy: str
    choice: StrategyChoice
    limit: str = ""

    def facts(self, state: StateView) -> dict[str, Any]:
        """Return the choice, its reason, the candidates if they were measured, and the facts of the chosen strategy."""
        record = self.choice.record
        changes = [change._asdict() for change in record.log if change.batch >= state.batch - 1]
        return {
            "chosen": self.strategy,
            "why": self.choice.why,
            **({"waiting": record.waiting} if record.waiting else {}),
            **({"decisions": changes} if changes else {}),
            **({"bandwidth": self.limit} if self.limit else {}),
            **({"candidates": self._candidates()} if self.choice.is_measured and state.advance else {}),
            **self.inner.facts(state),
        }

    def _candidates(self) -> dict[str, str]:
        return {c.label: f"{c.cost:.3g} s a second; {c.breakdown}" for c in self.choice.candidates}

    def keep(self, after: StateView) -> StoredNotes:
        """Return the choice and its reason, with the notes of the chosen strategy."""
        option, why, _, is_measured, record, _ = self.choice
        inner = self.inner.keep(after)
        return AutoNotes(option.name, option.nodes, option.options, why, is_measured, record, inner).kept()


@dataclass(frozen=True, slots=True)
class Auto(Strategy):
    """The strategy that is predicted to be the cheapest.

    Args:
        max_nodes: The most nodes that it may use.
        capacities: The capacity of each of them, relative to the others, for DSJ, ATR and CTR; empty if all are alike.
        weights: What CPU, memory and network count, in a node's load and in the costs.
        among: The strategies that it may choose.
        goal: `latency` for the shortest batches; `throughput` for the least work of the busiest node, which allows the
            most tuples a second where batches are long.
        bandwidth: The bytes a second that the network can deliver to a node; excludes longer rings than it can feed.
        within: The longest time for a batch's job, such as `"2 seconds"`: the fewest nodes that are in time are chosen,
            or the fastest option if none is.
        relocation: What happens to the state when a ring changes, see PSP; `auto` moves it at once if the ring grows or
            the join can't keep up, and lets it expire if the ring shrinks.
        interval: How many batches must pass between two changes.
        dry_run: Whether it stays with its first measured choice and only reports what it would change.

    >>> Auto(max_nodes=8).describe()
    'Auto(max_nodes=8)'
    """

    max_nodes: int = 8
    capacities: tuple[float, ...] = ()
    weights: Weights = EQUAL
    among: tuple[str, ...] = NAMES
    goal: Goal = "latency"
    bandwidth: float = inf
    within: str | timedelta | None = None
    relocation: Relocation = "auto"
    interval: int = 5
    dry_run: bool = False
    nodes: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check and convert the options.

        Raises:
            DefinitionError: If one is out of range or of the wrong type.
        """
        fields_to_python(self)
        object.__setattr__(self, "nodes", check_nodes(self.max_nodes, what="max_nodes"))
        check_load(self.max_nodes, self.weights, self.capacities)
        check_choice("goal", self.goal, get_args(Goal))
        check_above_zero("bandwidth", self.bandwidth)
        if self.within is not None:
            check_above_zero("within", microseconds(self.within, "within"))
        check_choice("relocation", self.relocation, get_args(Relocation))
        AdaptationController(self.interval, self.dry_run)
        check_switch("dry_run", self.dry_run)
        if not isinstance(self.among, tuple) or not self.among or not set(self.among) <= set(NAMES):
            raise DefinitionError(f"among={self.among!r}: name some of {', '.join(NAMES)}, as a tuple.")

    def refusal(self, state: StateView) -> str | None:
        """Return why none of the strategies that it may choose can serve; None if one can."""
        return None if eligible_strategies(state, self.among) else STRATEGIES[self.among[0]]().refusal(state)

    def describe(self) -> str:
        """Return how many nodes it may use; the facts include what it chose."""
        return f"Auto(max_nodes={self.max_nodes})"

    def source(self) -> str:
        """Return the Python call that creates it, with its nodes and all options that differ from the defaults.

        >>> Auto(max_nodes=8, within="2 seconds").source()
        "wm.Auto(max_nodes=8, within='2 seconds')"
        """
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        default = Auto()
        options = {name: value for name, value in values.items() if value != getattr(default, name)}
        options = {"max_nodes": self.max_nodes, **options}
        return f"wm.Auto({', '.join(f'{name}={value!r}' for name, value in options.items())})"

    def history(self, state: StateView) -> list[str]:
        """Return the changes in the log."""
        before = AutoNotes.read(state.notes)
        log = before.record.log if before else ()
        return [f"batch {e.batch}, {e.kind}: {e.after}{'' if e.made else ' (not made)'}: {e.why}" for e in log]

    # -- the chosen strategy

    def plan(self, state: StateView) -> AutoLayout:
        """Return the layout of the chosen strategy, which reads its own notes if it also planned the last batch."""
        before, choice = AutoNotes.read(state.notes), self.choose(state)
        option = choice.option
        relocation = self._relocation(state, option, before.nodes if before else option.nodes)
        strategy = self.strategy_of(option, relocation)
        inner = strategy.plan(replace(state, notes=before.inner if before else StoredNotes()))
        limit = self._limit(choice.longest_ring)
        return AutoLayout(inner.placement, inner, strategy.describe(), choice, limit, moves=inner.moves)

    def strategy_of(self, option: Option, relocation: Relocation = "auto") -> Strategy:
        """Return the strategy of a candidate, with this one's requirements; a ring with the relocation."""
        terms = Requirements(self.weights, self.capacities, relocation)
        return STRATEGIES[option.name].configure(option.nodes, option.options, terms)

    def _relocation(self, state: StateView, option: Option, now: int) -> Relocation:
        """Return how a ring's state follows a change of the number of nodes: as the option says, unless that is `auto`.

        Then it moves at once if there are more nodes, the join is overloaded, or state never expires or is on nodes
        beyond the most allowed; else it stays until it expires.

        Args:
            state: The state.
            option: The option for the next batch.
            now: How many nodes there were so far.
        """
        if self.relocation != "auto" or option.nodes == now:
            return self.relocation
        must_move = any(stream.span is None for stream in state.streams) or now > self.max_nodes
        return "aggressive" if option.nodes > now or state.machine.overdue >= OVERDUE or must_move else "passive"

    def _limit(self, longest: int | None) -> str:
        """Return how the network limits the choice; empty if it doesn't."""
        if longest is None or longest >= self.max_nodes:
            return ""
        return describe_ring_limit(longest, self.bandwidth)

    # -- choosing

    def choose(self, state: StateView) -> StrategyChoice:
        """Return the choice for the next batch; pure, so that `explain` and the plan agree.

        The first choice, the first measured one, and one in place of a choice no longer allowed are made at once; other
        changes are the controller's.
        """
        # Costs are seconds for a second of event time: while it stands still, they mean nothing.
        before, is_measured = AutoNotes.read(state.notes), parameters.has_measurements(state) and state.advance > 0
        pricing = self.pricing(state, before.option if before else None)
        eligible, candidates = eligible_strategies(state, self.among), tuple(pricing.best(self.max_nodes, self.among))
        best, longest = candidates[0], pricing.longest_ring
        record = before.record if before else AdaptationRecord()
        if before is None or self._is_outdated(before, eligible, pricing) or (is_measured and not before.measured):
            why = _explain_choice(best, candidates, eligible, is_measured)
            record = _add_immediate_change(record, state, before, best, why)
            return StrategyChoice(best, why, candidates, is_measured, record, longest)
        now = pricing.price(before.chosen, before.nodes, before.options)
        if not state.advance or not any(stream.rows for stream in state.streams):  # nothing to compare by
            return StrategyChoice(now, before.why, candidates, before.measured, record, longest)
        controller = AdaptationController(self.interval, self.dry_run)
        option, record = controller.decide(record, state.batch, now, best, state.machine.overdue)
        why = _explain_staying(now, candidates, eligible) if option is now else record.log[-1].why
        return StrategyChoice(option, why, candidates, is_measured, record, longest)

    def pricing(self, state: StateView, now: Option | None = None, measure: Measure | None = None) -> Pricing:
        """Return the pricing of strategies with these options; see `Pricing`."""
        within = None if self.within is None else microseconds(self.within) / 1e6
        return Pricing(state, self.weights, self.goal, self.bandwidth, within, now, measure)

    def _is_outdated(self, before: AutoNotes, eligible: Sequence[str], pricing: Pricing) -> bool:
        """Return whether the earlier choice is no longer allowed: by other options, or by a slower network."""
        return before.chosen not in eligible or not pricing.is_feasible(before.option, self.max_nodes)


def _add_immediate_change(
    record: AdaptationRecord, state: StateView, before: AutoNotes | None, option: Option, why: str
) -> AdaptationRecord:
    """Return the record with a change made without waiting; as it is if there was no choice before, or the same one."""
    if before is None or before.option.label == option.label:
        return record
    return record.add(describe_change(state.batch, before.option, option, why))


# -- in words


MEASURED = "by what the last batches measured"


def _explain_staying(now: Option, candidates: Sequence[Option], eligible: Sequence[str]) -> str:
    """Return why a join keeps its strategy, at the current prices, like those of the candidates."""
    best = candidates[0]
    if best.label == now.label:
        return _explain_choice(now, candidates, eligible, is_measured=True)
    prices = f"{now.label} is predicted to take {now.cost:.3g} s a second, {best.label} {best.cost:.3g} s, {MEASURED}"
    gain = "gain a fifth" if best.price is None else "need fewer nodes, or bring it in time,"
    return f"{prices}; a change must {gain} for {PATIENCE} batches in a row."


def _explain_choice(best: Option, candidates: Sequence[Option], eligible: Sequence[str], is_measured: bool) -> str:
    """Return the sentence that says why an option was chosen, with the runner-up's cost if anything was measured."""
    basis = MEASURED if is_measured else "before anything is measured"
    preference = STRATEGIES[best.name].PREFERENCE
    if preference is not None:
        return f"{preference}; nodes are chosen {basis}."
    if not is_measured:
        return f"{best.label} is taken {basis}."
    others = [option for option in candidates[1:] if option.name in eligible]
    runner_up = f", {others[0].label} {others[0].cost:.3g} s" if others else ""
    return f"{best.label} is predicted to take {best.cost:.3g} s a second{runner_up}, {basis}."
