"""Auto: the strategy and the number of nodes that the cost models predict to be the cheapest, again before each batch.

Costs are those of `watersmeet.cost.model`: the papers' equations, filled with what the join measured so far. Hash is
taken wherever it can serve, since then a probe looks into one bucket alone. A change copies no rows, only owners of
chunks change, and results are the same under any placement; still it is made only when it is predicted to gain by a
margin for several batches, so that no noise makes chunks wander.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from math import inf
from typing import Any, NamedTuple, Self

from watersmeet.adapt.controller import OVERDUE, PATIENCE, Controller, Option, Record, changed
from watersmeet.adapt.pricing import NAMES, Pricing, fitting, waiting
from watersmeet.arguments import fields_to_python, microseconds
from watersmeet.cost import model as cost
from watersmeet.cost import parameters
from watersmeet.cost.equations import Goal, check_goal
from watersmeet.errors import DefinitionError
from watersmeet.placement import Layout, Notes, Placement, Strategy
from watersmeet.placement.options import (
    Relocation,
    check_above_zero,
    check_load,
    check_nodes,
    check_relocation,
    check_switch,
)
from watersmeet.placement.priced import Measure, Terms
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.state.manifest.notes import Kept
from watersmeet.state.manifest.view import StateView


class Choice(NamedTuple):
    """What was decided for a batch.

    Attributes:
        taken: The candidate taken.
        why: Why, as a sentence.
        table: All candidates.
        measured: Whether it rests on measurements.
        record: What the controller goes by from now on.
        longest_ring: The longest ring that the network can feed; None if it sets no limit.
    """

    taken: Option
    why: str
    table: tuple[Option, ...]
    measured: bool
    record: Record = Record()
    longest_ring: int | None = None


@dataclass(frozen=True, slots=True)
class AutoNotes(Notes):
    """What was chosen and why, and what the strategy chosen wrote down itself.

    Attributes:
        chosen: The strategy, by name.
        nodes: How many nodes it has.
        options: Its other options.
        why: Why it was chosen, as a sentence.
        measured: Whether that rests on measurements.
        record: What the controller goes by.
        inner: The notes of the strategy chosen.
    """

    chosen: str
    nodes: int
    options: Mapping[str, Any]
    why: str
    measured: bool
    record: Record
    inner: Kept

    @property
    def option(self) -> Option:
        """What was chosen, without its cost."""
        return Option(self.chosen, self.nodes, 0.0, None, self.options)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the notes from their fields."""
        same = {name: plain[name] for name in ("chosen", "nodes", "options", "why", "measured")}
        return cls(**same, record=Record.from_json(plain["record"]), inner=Kept(*plain["inner"]))


@dataclass(frozen=True, slots=True)
class AutoLayout(Layout[Placement]):
    """The layout of the strategy chosen, and why it was.

    Attributes:
        inner: The layout.
        chosen: The strategy, in words.
        choice: The choice.
        limit: What the network keeps it from, as a sentence; empty if nothing.
    """

    inner: Layout[Placement]
    chosen: str
    choice: Choice
    limit: str = ""

    def facts(self, state: StateView) -> dict[str, Any]:
        """Return what is chosen, why, what else was considered, and what there is to tell of the strategy chosen."""
        record = self.choice.record
        decisions = [entry._asdict() for entry in record.log if entry.batch >= state.batch - 1]
        return {
            "chosen": self.chosen,
            "why": self.choice.why,
            **({"waiting": record.waiting} if record.waiting else {}),
            **({"decisions": decisions} if decisions else {}),
            **({"bandwidth": self.limit} if self.limit else {}),
            **({"candidates": self._candidates()} if self.choice.measured and state.advance else {}),
            **self.inner.facts(state),
        }

    def _candidates(self) -> dict[str, str]:
        return {c.label: f"{c.cost:.3g} s a second; {c.made_of}" for c in self.choice.table}

    def keep(self, after: StateView) -> Kept:
        """Return what was chosen and why, and what the strategy chosen keeps."""
        taken, choice = self.choice.taken, self.choice
        inner = self.inner.keep(after)
        return AutoNotes(
            taken.name, taken.nodes, taken.options, choice.why, choice.measured, choice.record, inner
        ).kept()


@dataclass(frozen=True, slots=True)
class Auto(Strategy):
    """The strategy that is predicted to be the cheapest.

    Args:
        max_nodes: How many nodes it may use.
        capacities: What each of them can do, relative to the others; DSJ, ATR and CTR heed it. All alike if not given.
        weights: What CPU, memory and network count, in a node's load and in the costs.
        among: The strategies that it may choose.
        goal: `latency` for the shortest batches; `throughput` for the least work of the busiest node, which lets the
            most tuples a second through where batches are long.
        bandwidth: The bytes a second that the network brings to a node; longer rings than it can feed aren't taken.
        within: If given, how long a batch's job may take, such as `"2 seconds"`: the fewest nodes that are in time are
            taken, and the fastest if none is.
        relocation: What happens to the state when a ring changes, see PSP; `auto` moves it at once if the ring grows or
            the join can't keep up, and lets it expire if it shrinks.
        interval: How many batches must pass between two changes.
        dry_run: Whether it stays with its first measured choice and only says what it would change.

    >>> Auto(max_nodes=8).describe()
    'Auto(max_nodes=8)'
    """

    max_nodes: int = 8
    capacities: tuple[float, ...] = ()
    weights: cost.Weights = cost.EQUAL
    among: tuple[str, ...] = NAMES
    goal: Goal = "latency"
    bandwidth: float = inf
    within: str | timedelta | None = None
    relocation: Relocation = "auto"
    interval: int = 5
    dry_run: bool = False
    nodes: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        fields_to_python(self)
        object.__setattr__(self, "nodes", check_nodes(self.max_nodes, what="max_nodes"))
        check_load(self.max_nodes, self.weights, self.capacities)
        check_goal(self.goal)
        check_above_zero("bandwidth", self.bandwidth)
        if self.within is not None:
            check_above_zero("within", microseconds(self.within, "within"))
        check_relocation(self.relocation)
        Controller(self.interval, self.dry_run)
        check_switch("dry_run", self.dry_run)
        if not isinstance(self.among, tuple) or not self.among or not set(self.among) <= set(NAMES):
            raise DefinitionError(f"among={self.among!r}: name some of {', '.join(NAMES)}, as a tuple.")

    def refusal(self, state: StateView) -> str | None:
        """Return why not, if none of the strategies that it may choose can serve."""
        return None if fitting(state, self.among) else STRATEGIES[self.among[0]]().refusal(state)

    def describe(self) -> str:
        """Return how many nodes it may use; what it chose is among the facts."""
        return f"Auto(max_nodes={self.max_nodes})"

    def written(self) -> str:
        """Return it as people write it: how many nodes it may use, and what else isn't as by default.

        >>> Auto(max_nodes=8, within="2 seconds").written()
        "wm.Auto(max_nodes=8, within='2 seconds')"
        """
        options = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        default = Auto()
        shown = [name for name, value in options.items() if name == "max_nodes" or value != getattr(default, name)]
        return f"wm.Auto({', '.join(f'{name}={options[name]!r}' for name in shown)})"

    def history(self, state: StateView) -> list[str]:
        """Return the decisions that are remembered."""
        before = AutoNotes.read(state.kept)
        log = before.record.log if before else ()
        return [f"batch {e.batch}, {e.kind}: {e.after}{'' if e.made else ' (not made)'}: {e.why}" for e in log]

    # -- the strategy chosen

    def plan(self, state: StateView) -> AutoLayout:
        """Return the layout of the strategy chosen, which finds its own notes, if it had the last batch too."""
        before, choice = AutoNotes.read(state.kept), self.choice(state)
        taken = choice.taken
        strategy = self.inner(taken, self._relocated(state, taken, before.nodes if before else taken.nodes))
        inner = strategy.plan(replace(state, kept=before.inner if before else Kept()))
        limit = self._limit(choice.longest_ring)
        return AutoLayout(inner.placement, inner, strategy.describe(), choice, limit, moves=inner.moves)

    def inner(self, chosen: Option, relocation: Relocation = "auto") -> Strategy:
        """Return the strategy that a candidate stands for; if a ring, with how its state follows a change."""
        terms = Terms(self.weights, self.capacities, relocation)
        return STRATEGIES[chosen.name].chosen(chosen.nodes, chosen.options, terms)

    def _relocated(self, state: StateView, taken: Option, now: int) -> Relocation:
        """Return how a ring's state follows a change; what never expires must move, and what is on too many nodes.

        Args:
            state: The state.
            taken: What is taken.
            now: How many nodes there have been.
        """
        if self.relocation != "auto" or taken.nodes == now:
            return self.relocation
        stays = any(stream.span is None for stream in state.streams) or now > self.max_nodes
        return "aggressive" if taken.nodes > now or state.machine.overdue >= OVERDUE or stays else "passive"

    def _limit(self, longest: int | None) -> str:
        """Return what the network keeps it from, if it does."""
        if longest is None or longest >= self.max_nodes:
            return ""
        return waiting(longest, self.bandwidth)

    # -- choosing

    def choice(self, state: StateView) -> Choice:
        """Return what to take for the next batch; pure, so that `explain` and the plan agree."""
        # Costs are seconds for a second of event time: while it stands still, they say nothing.
        before, measured = AutoNotes.read(state.kept), parameters.known(state) and state.advance > 0
        pricing = self.pricing(state, before.option if before else None)
        fits, table = fitting(state, self.among), tuple(pricing.best(self.max_nodes, self.among))
        best, longest = table[0], pricing.longest_ring
        record = before.record if before else Record()
        if before is None or self._outdated(before, fits, pricing) or (measured and not before.measured):
            why = _first(best, table, fits, measured)
            return Choice(best, why, table, measured, _noting(record, state, before, best, why), longest)
        now = pricing.priced(before.chosen, before.nodes, before.options)
        if not state.advance or not any(stream.rows for stream in state.streams):  # nothing to judge by
            return Choice(now, before.why, table, before.measured, record, longest)
        controller = Controller(self.interval, self.dry_run)
        taken, record = controller.judge(record, state.batch, now, best, state.machine.overdue)
        why = _stays(now, table, fits) if taken is now else record.log[-1].why
        return Choice(taken, why, table, measured, record, longest)

    def pricing(self, state: StateView, now: Option | None = None, measure: Measure | None = None) -> Pricing:
        """Return what prices strategies as it was asked to choose them; see `Pricing`."""
        within = None if self.within is None else microseconds(self.within) / 1e6
        return Pricing(state, self.weights, self.goal, self.bandwidth, within, now, measure)

    def _outdated(self, before: AutoNotes, fits: Sequence[str], pricing: Pricing) -> bool:
        """Tell whether what was chosen may no longer be: by other options, or since the network is too slow for it."""
        return before.chosen not in fits or not pricing.fits(before.option, self.max_nodes)


def _noting(record: Record, state: StateView, before: AutoNotes | None, taken: Option, why: str) -> Record:
    """Return the record with a choice that no wait led to; the first of all is none."""
    if before is None or before.option.label == taken.label:
        return record
    return record.noting(changed(state.batch, before.option, taken, why))


# -- in words


MEASURED = "by what the last batches measured"


def _stays(now: Option, table: Sequence[Option], fits: Sequence[str]) -> str:
    """Return why a join goes on as it does, at the prices of now: beside them the candidates have theirs."""
    best = table[0]
    if best.label == now.label:
        return _first(now, table, fits, measured=True)
    prices = f"{now.label} is predicted to take {now.cost:.3g} s a second, {best.label} {best.cost:.3g} s, {MEASURED}"
    gain = "gain a fifth" if best.price is None else "need fewer nodes, or bring it in time,"
    return f"{prices}; a change must {gain} for {PATIENCE} batches on end."


def _first(best: Option, table: Sequence[Option], fits: Sequence[str], measured: bool) -> str:
    basis = MEASURED if measured else "before anything is measured"
    wherever = STRATEGIES[best.name].WHEREVER
    if wherever is not None:
        return f"{wherever}; nodes are chosen {basis}."
    if not measured:
        return f"{best.label} is taken {basis}."
    rest = [found for found in table[1:] if found.name in fits]
    beside = f", {rest[0].label} {rest[0].cost:.3g} s" if rest else ""
    return f"{best.label} is predicted to take {best.cost:.3g} s a second{beside}, {basis}."
