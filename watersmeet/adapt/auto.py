"""Auto: the strategy and the number of nodes that the cost models predict to be the cheapest, again before each batch.

Costs are those of `watersmeet.cost.model`: the papers' equations, filled with what the join measured so far. Hash is
taken wherever it can serve, since then a probe looks into one bucket alone. A change copies no rows, only owners of
chunks change, and results are the same under any placement; still it is made only when it is predicted to gain by a
margin for several batches, so that no noise makes chunks wander.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import inf
from typing import Any, NamedTuple

from watersmeet.adapt.controller import OVERDUE, Controller, Memory, Option, changed
from watersmeet.adapt.pricing import STRATEGIES, Pricing, fitting
from watersmeet.cost import model as cost
from watersmeet.cost import parameters
from watersmeet.cost.equations import Goal, check_goal
from watersmeet.errors import DefinitionError
from watersmeet.model.duration import microseconds
from watersmeet.placement.atr import ATR
from watersmeet.placement.base import Placement, Strategy
from watersmeet.placement.central import Central
from watersmeet.placement.ctr import CTR
from watersmeet.placement.dsj import DSJ
from watersmeet.placement.hash import Hash
from watersmeet.placement.options import check_above_zero, check_load, check_nodes
from watersmeet.placement.psp import PSP, Relocation
from watersmeet.predicate.model import Column
from watersmeet.state.chunk import Bucket
from watersmeet.state.view import Ints, StateView


class Choice(NamedTuple):
    """What was decided for a batch.

    Attributes:
        taken: The candidate taken.
        why: Why, as a sentence.
        table: All candidates.
        measured: Whether it rests on measurements.
        memory: What the controller remembers.
        longest_ring: The longest ring that the network can feed; None if it sets no limit.
    """

    taken: Option
    why: str
    table: tuple[Option, ...]
    measured: bool
    memory: Memory = Memory()
    longest_ring: int | None = None


@dataclass(frozen=True, slots=True)
class AutoPlacement(Placement):
    """The placement of the strategy chosen, and why it was.

    [!] Every method of Placement is handed on: one that is forgotten would be answered by the default.

    Attributes:
        nodes: How many nodes there are.
        inner: The placement of the strategy chosen.
        choice: The choice.
        tracked: See Placement.
    """

    nodes: int
    inner: Placement
    choice: Choice
    tracked: tuple[int, ...] = ()

    def slice_length(self, stream: int) -> int:
        """See Placement."""
        return self.inner.slice_length(stream)

    def owners(self, stream: int, start: int, bucket: Bucket) -> tuple[int, ...]:
        """See Placement."""
        return self.inner.owners(stream, start, bucket)

    def stored_by(self, stream: int) -> tuple[Column, ...]:
        """See Placement."""
        return self.inner.stored_by(stream)

    def starts(self, stream: int, ts: Ints) -> Ints:
        """See Placement."""
        return self.inner.starts(stream, ts)

    def lead(self, origin: int) -> tuple[int, ...]:
        """See Placement."""
        return self.inner.lead(origin)

    def groups(self, origin: int, moment: Ints, times: Mapping[int, Ints]) -> Ints:
        """See Placement."""
        return self.inner.groups(origin, moment, times)

    def visit(self, group: int, target: int, owners: Sequence[int], here: int) -> int:
        """See Placement."""
        return self.inner.visit(group, target, owners, here)

    def probed_by(self, target: int, joined: frozenset[int]) -> tuple[Column, Column] | None:
        """See Placement."""
        return self.inner.probed_by(target, joined)

    def stays_after(self) -> int | None:
        """See Placement."""
        return self.inner.stays_after()


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
    among: tuple[str, ...] = STRATEGIES
    goal: Goal = "latency"
    bandwidth: float = inf
    within: str | timedelta | None = None
    relocation: Relocation = "auto"
    interval: int = 5
    dry_run: bool = False
    nodes: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", check_nodes(self.max_nodes))
        check_load(self.max_nodes, self.weights, self.capacities)
        check_goal(self.goal)
        check_above_zero("bandwidth", self.bandwidth)
        if self.within is not None:
            check_above_zero("within", microseconds(self.within, "within"))
        PSP(relocation=self.relocation)
        Controller(self.interval, self.dry_run)
        unknown = [name for name in self.among if name not in STRATEGIES]
        if unknown or not self.among:
            raise DefinitionError(f"among={self.among!r}: name some of {', '.join(STRATEGIES)}.")

    def refusal(self, state: StateView) -> str | None:
        """See Strategy."""
        return None if fitting(state, self.among) else Hash().refusal(state)

    def describe(self) -> str:
        """See Strategy."""
        return f"Auto(max_nodes={self.max_nodes})"

    def facts(self, placement: Placement, state: StateView) -> dict[str, Any]:
        """See Strategy: what is chosen, why, and what else was considered."""
        assert isinstance(placement, AutoPlacement)
        choice, inner = placement.choice, self.inner(placement.choice.taken)
        decisions = [entry._asdict() for entry in choice.memory.log if entry.batch >= state.batch - 1]
        return {
            "chosen": inner.describe(),
            "why": choice.why,
            **({"waiting": choice.memory.waiting} if choice.memory.waiting else {}),
            **({"decisions": decisions} if decisions else {}),
            **self._limit(choice.longest_ring),
            "candidates": {c.label: f"{c.cost:.3g} s a second; {c.made_of}" for c in choice.table},
            **inner.facts(placement.inner, _inside(state, choice.taken)),
        }

    def history(self, state: StateView) -> list[str]:
        """See Strategy: the decisions that are remembered."""
        log = Memory.of(state.frozen).log
        return [f"batch {e.batch}, {e.kind}: {e.after}{'' if e.made else ' (not made)'}: {e.why}" for e in log]

    def _limit(self, longest: int | None) -> dict[str, str]:
        """Return what the network keeps it from, if it does."""
        if longest is None or longest >= self.max_nodes:
            return {}
        says = f"a ring of more than {longest} nodes would wait for rows, of which {self.bandwidth / 1e6:.3g} MB/s come"
        return {"bandwidth": f"{says} (equation 6)."}

    # -- the strategy chosen

    def plan(self, state: StateView) -> Placement:
        """See Strategy."""
        choice = self.choice(state)
        inner = self.inner(choice.taken, self._relocated(state, choice.taken)).plan(_inside(state, choice.taken))
        return AutoPlacement(inner.nodes, inner, choice, inner.tracked)

    def move(self, state: StateView, placement: Placement) -> dict[str, tuple[int, ...]]:
        """See Strategy."""
        assert isinstance(placement, AutoPlacement)
        taken = placement.choice.taken
        return self.inner(taken, self._relocated(state, taken)).move(_inside(state, taken), placement.inner)

    def freeze(self, placement: Placement, after: StateView) -> dict[str, Any]:
        """See Strategy: what was chosen and why, and what the strategy chosen keeps."""
        assert isinstance(placement, AutoPlacement)
        choice = placement.choice
        return {
            "chosen": choice.taken.name,
            "nodes": choice.taken.nodes,
            "options": dict(choice.taken.options),
            "inner": self.inner(choice.taken).freeze(placement.inner, _inside(after, choice.taken)),
            "why": choice.why,
            "measured": choice.measured,
            "memory": choice.memory,
        }

    def inner(self, chosen: Option, relocation: Relocation = "auto") -> Strategy:
        """Return the strategy that a candidate stands for; if a ring, with how its state follows a change."""
        nodes = chosen.nodes
        by_load: dict[str, Any] = {"weights": self.weights, "capacities": self.capacities[:nodes], **chosen.options}
        made: dict[str, Callable[[], Strategy]] = {
            "Hash": lambda: Hash(nodes),
            "Central": Central,
            "PSP": lambda: PSP(nodes, relocation=relocation),
            "DSJ": lambda: DSJ(nodes, **by_load),
            "ATR": lambda: ATR(nodes, **by_load),
            "CTR": lambda: CTR(nodes, **by_load),
        }
        return made[chosen.name]()

    def _relocated(self, state: StateView, taken: Option) -> Relocation:
        """Return how a ring's state follows a change; what never expires must move, and what is on too many nodes."""
        now = state.frozen.get("nodes", taken.nodes)
        if self.relocation != "auto" or taken.nodes == now:
            return self.relocation
        stays = any(stream.span is None for stream in state.streams) or now > self.max_nodes
        return "aggressive" if taken.nodes > now or state.machine.overdue >= OVERDUE or stays else "passive"

    # -- choosing

    def choice(self, state: StateView) -> Choice:
        """Return what to take for the next batch; pure, so that `explain` and the plan agree."""
        within = None if self.within is None else microseconds(self.within) / 1e6
        pricing = Pricing(state, self.weights, self.goal, self.bandwidth, within)
        fits = fitting(state, self.among)
        table, longest = tuple(pricing.best(self.max_nodes, self.among)), pricing.longest_ring
        best, measured, before = table[0], parameters.known(state), state.frozen
        name, nodes, memory = before.get("chosen"), before.get("nodes", 1), Memory.of(before)
        too_long = nodes > self.max_nodes or (name == "PSP" and nodes > (longest or nodes))
        if name not in fits or too_long or (measured and not before["measured"]):
            why = _first(best, table, fits, measured)
            return Choice(best, why, table, measured, _noting(memory, state, best, why), longest)
        now = pricing.priced(name, nodes, before["options"])
        if not state.advance or not any(stream.rows for stream in state.streams):  # nothing to judge by
            return Choice(now, before["why"], table, before["measured"], memory, longest)
        controller = Controller(self.interval, self.dry_run)
        taken, memory = controller.judge(memory, state.batch, now, best, state.machine.overdue)
        why = before["why"] if taken is now else memory.log[-1].why
        return Choice(taken, why, table, measured, memory, longest)


def _noting(memory: Memory, state: StateView, taken: Option, why: str) -> Memory:
    """Return the memory with a choice that no wait led to; the first of all is none."""
    if "chosen" not in state.frozen:
        return memory
    before = Option(state.frozen["chosen"], state.frozen["nodes"], 0.0, None, state.frozen["options"])
    return memory if before.label == taken.label else memory.noting(changed(state.batch, before, taken, why))


def _inside(state: StateView, taken: Option) -> StateView:
    """Return the state as the strategy chosen is to see it: with what it kept itself, if it had the last batch too."""
    kept = state.frozen.get("inner", {}) if state.frozen.get("chosen") == taken.name else {}
    return replace(state, frozen=kept)


# -- in words


def _first(best: Option, table: Sequence[Option], fits: Sequence[str], measured: bool) -> str:
    basis = "by what the last batches measured" if measured else "before anything is measured"
    if fits == ("Hash",):
        return (
            f"each stream has an equality with another, so that probes look into one bucket; nodes are chosen {basis}."
        )
    rest = [found for found in table[1:] if found.name in fits]
    beside = f", {rest[0].label} {rest[0].cost:.3g} s" if rest else ""
    return f"{best.label} is predicted to take {best.cost:.3g} s a second{beside}, {basis}."
