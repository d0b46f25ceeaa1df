"""Auto: the strategy and the number of nodes that the cost models predict to be the cheapest, again before each batch.

Costs are those of `watersmeet.adapt.cost`: the papers' equations, filled with what the join measured so far. Hash is
taken wherever it can serve, since then a probe looks into one bucket alone. A change copies no rows, only owners of
chunks change, and results are the same under any placement; still it is made only when it is predicted to gain by a
margin for several batches, so that no noise makes chunks wander.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from watersmeet.adapt import cost, parameters
from watersmeet.adapt.controller import OVERDUE, Controller, Memory, Option
from watersmeet.duration import microseconds
from watersmeet.errors import DefinitionError
from watersmeet.placement.atr import ATR
from watersmeet.placement.base import LONGEST_SLICE, Ints, Placement, StateView, Strategy, check_nodes
from watersmeet.placement.central import Central
from watersmeet.placement.ctr import CTR
from watersmeet.placement.dsj import DSJ
from watersmeet.placement.hash import Hash, attributes, stored_attributes
from watersmeet.placement.load import check_load
from watersmeet.placement.psp import PSP, Relocation
from watersmeet.predicate.model import Column
from watersmeet.state.chunk import Bucket

EVERY_NODES, GROWTH = 8, 1.5
"""Numbers of nodes are all tried up to the first; from there on, each is this much larger than the last."""
STRATEGIES = ("Hash", "Central", "PSP", "DSJ", "ATR", "CTR")
"""What there is to choose from."""
ALONE = ("Hash", "Central")
"""The strategies that make sense on one node."""
SEGMENTS = (0.5, 1, 2, 4)
"""Segment lengths that are tried for ATR, in longest windows."""
Measure = Callable[[StateView, int | None], parameters.Parameters]


class Choice(NamedTuple):
    """What was decided for a batch.

    Attributes:
        taken: The candidate taken.
        why: Why, as a sentence.
        table: All candidates.
        measured: Whether it rests on measurements.
        memory: What the controller remembers.
    """

    taken: Option
    why: str
    table: tuple[Option, ...]
    measured: bool
    memory: Memory = Memory()


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
        capacities: What each of them can do, relative to the others; all alike if not given.
        weights: What CPU, memory and network count, in a node's load and in the costs.
        among: The strategies that it may choose.
        interval: How many batches must pass between two changes.
        dry_run: Whether it stays with its first choice and only says what it would change.

    >>> Auto(max_nodes=8).describe()
    'Auto(max_nodes=8)'
    """

    max_nodes: int = 8
    capacities: tuple[float, ...] = ()
    weights: cost.Weights = (1, 1, 1)
    among: tuple[str, ...] = STRATEGIES
    interval: int = 5
    dry_run: bool = False
    nodes: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", check_nodes(self.max_nodes))
        check_load(self.max_nodes, self.weights, self.capacities)
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
            "candidates": {c.label: f"{c.cost:.3g} s a second; {c.made_of}" for c in choice.table},
            **inner.facts(placement.inner, _inside(state, choice.taken)),
        }

    # -- the strategy chosen

    def plan(self, state: StateView) -> Placement:
        """See Strategy."""
        choice = self.choice(state)
        inner = self.inner(choice.taken, _relocation(state, choice.taken)).plan(_inside(state, choice.taken))
        return AutoPlacement(inner.nodes, inner, choice, inner.tracked)

    def move(self, state: StateView, placement: Placement) -> dict[str, tuple[int, ...]]:
        """See Strategy."""
        assert isinstance(placement, AutoPlacement)
        taken = placement.choice.taken
        return self.inner(taken, _relocation(state, taken)).move(_inside(state, taken), placement.inner)

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

    # -- choosing

    def choice(self, state: StateView) -> Choice:
        """Return what to take for the next batch; pure, so that `explain` and the plan agree."""
        table = tuple(candidates(state, self.max_nodes, self.weights, self.among))
        best, fits = table[0], fitting(state, self.among)
        measured = parameters.known(state)
        now, memory = self._now(state, fits), Memory.of(state.frozen)
        if now is None:
            return Choice(best, _first(best, table, fits, measured), table, measured)
        if not any(stream.rows for stream in state.streams):
            return Choice(now, state.frozen["why"], table, state.frozen["measured"], memory)
        if measured and not state.frozen["measured"]:
            return Choice(best, _first(best, table, fits, measured), table, measured)
        taken, memory = Controller(self.interval, self.dry_run).judge(
            memory, state.batch, now, best, state.machine.overdue
        )
        return Choice(taken, state.frozen["why"] if taken is now else memory.log[-1].why, table, measured, memory)

    def _now(self, state: StateView, fits: Sequence[str]) -> Option | None:
        """Return what was taken for the last batch, with its cost as predicted now; None if that is out of question."""
        name, nodes = state.frozen.get("chosen", ""), state.frozen.get("nodes", 1)
        if name not in fits or nodes > self.max_nodes:
            return None
        return Pricing(state, self.weights).priced(name, nodes, state.frozen["options"])


def candidates(
    state: StateView,
    max_nodes: int,
    weights: cost.Weights = (1, 1, 1),
    among: Sequence[str] = STRATEGIES,
    measure: Measure = parameters.measured,
) -> list[Option]:
    """Return every strategy with its best number of nodes, the one to take first, then by predicted cost.

    Args:
        state: What is known of the join.
        max_nodes: How many nodes there may be.
        weights: What CPU, memory and network count.
        among: The strategies that may be chosen.
        measure: See Pricing.
    """
    pricing, fits = Pricing(state, weights, measure), fitting(state, among)
    least = 2 if "Central" in among else 1
    names = dict.fromkeys((*fits, *(name for name in among if name != "Hash")))
    priced = [list(pricing.every(name, least, max_nodes)) for name in names]
    best = [min(found, key=_cheapest) for found in priced if found]
    # [!] Hash on one node is Central with buckets, yet where it can serve it stays Hash, so that it can grow.
    first = min((found for found in best if found.name in fits), key=_cheapest)
    return [first, *sorted((found for found in best if found is not first), key=_cheapest)]


def fitting(state: StateView, among: Sequence[str]) -> tuple[str, ...]:
    """Return the strategies that come into question: Hash alone, if it can serve."""
    equal = "Hash" in among and Hash().refusal(state) is None
    return ("Hash",) if equal else tuple(name for name in among if name != "Hash")


def _cheapest(candidate: Option) -> tuple[float, int]:
    """Return what candidates are compared by: costs are no better than three digits, so that fewer nodes win a tie."""
    return float(f"{candidate.cost:.3g}"), candidate.nodes


class Pricing:
    """Prices candidates from what is known of a join.

    Args:
        state: What is known of the join.
        weights: What CPU, memory and network count.
        measure: Makes the costs' parameters of what is known, given ATR's master; those of a load to come, for one.
    """

    def __init__(self, state: StateView, weights: cost.Weights, measure: Measure = parameters.measured) -> None:
        self._state, self._weights = state, weights
        self._parameters = cache(lambda master: measure(state, master))
        by = stored_attributes(attributes(state.equalities))
        streams = range(len(state.streams))
        self._copies = [sum(column.stream == at for columns in by for column in columns) for at in streams]
        self._shared = len(by) == 1 and len(by[0]) == len(state.streams)

    def every(self, name: str, least: int, most: int) -> Iterator[Option]:
        """Yield a strategy on each number of nodes worth a try, with each of its options."""
        alone = [1] if name in ALONE or least == 1 else []
        for nodes in alone if name == "Central" else [*alone, *_tries(most)]:
            for options in self._options(name):
                yield self.priced(name, nodes, options)

    def priced(self, name: str, nodes: int, options: Mapping[str, Any]) -> Option:
        """Return a candidate with its cost."""
        p, found = self._cost(name, nodes, options)
        seconds = found.seconds(p, self._weights)
        return Option(name, nodes, seconds, found, options)

    def _cost(self, name: str, nodes: int, options: Mapping[str, Any]) -> tuple[parameters.Parameters, cost.Cost]:
        p: parameters.Parameters = self._parameters(None)
        if name == "ATR":
            segment = microseconds(options["segment"]) / 1e6
            master = cost.best_master(p, nodes, segment)
            p = self._parameters(master)
            return p, cost.atr(p, nodes, master, segment)
        made: dict[str, Callable[[], cost.Cost]] = {
            "Hash": lambda: cost.hashed(p, nodes, self._copies, self._shared),
            "Central": lambda: cost.central(p),
            "PSP": lambda: cost.psp(p, nodes),
            "DSJ": lambda: cost.dsj(p, nodes),
            "CTR": lambda: cost.ctr(p, nodes),
        }
        return p, made[name]()

    def _options(self, name: str) -> list[dict[str, Any]]:
        if name != "ATR":
            return [{}]
        windows = [stream.window for stream in self._state.streams if stream.window is not None]
        reach = max(windows, default=0) or LONGEST_SLICE
        return [{"segment": f"{max(1, round(part * reach))} microseconds"} for part in SEGMENTS]


def _tries(most: int) -> list[int]:
    """Return the numbers of nodes from 2 on that are worth a try.

    >>> _tries(30)[-5:]
    [8, 12, 18, 27, 30]
    """
    found = list(range(2, min(most, EVERY_NODES) + 1))
    while found and found[-1] < most:
        found.append(min(most, int(found[-1] * GROWTH)))
    return found


def _relocation(state: StateView, taken: Option) -> Relocation:
    """Return how a ring's state follows a change: at once if it grows or can't keep up, as it expires if it shrinks."""
    now = state.frozen.get("nodes", taken.nodes)
    if taken.nodes > now or state.machine.overdue >= OVERDUE:
        return "aggressive"
    return "passive" if taken.nodes < now else "auto"


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
