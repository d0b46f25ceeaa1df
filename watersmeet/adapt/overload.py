"""Overload: the warning for joins that can't keep up with their trigger."""

from dataclasses import replace
from typing import Any

from watersmeet.adapt.adaptation import OVERDUE
from watersmeet.adapt.auto import Auto, AutoNotes
from watersmeet.adapt.pricing import Pricing
from watersmeet.cost import parameters
from watersmeet.placement import PSP, Central, Strategy
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.state.manifest.view import Machine, StateView

MOST_NODES = 64
"""The most nodes that are tried when looking for enough."""


def describe_overload(strategy: Strategy, state: StateView, due: float, seconds: float) -> dict[str, Any] | None:
    """Return the `overload` field of `progress` after several consecutive late batches; None if there were fewer.

    Args:
        strategy: The strategy of the join.
        state: The state of the join.
        due: The seconds from one batch to the next.
        seconds: The time of the last batch.
    """
    overdue = state.machine.overdue
    if overdue < OVERDUE:
        return None
    enough = nodes_needed(strategy, state, due)
    return {
        "batches": overdue,
        "nodesNeeded": enough,
        "says": f"The last {overdue} batches took longer than the trigger's {due:g} s, the last one {seconds:.3g} s; "
        f"{_advise_nodes(enough, state.machine)}.",
    }


def nodes_needed(strategy: Strategy, state: StateView, due: float) -> int | None:
    """Return the fewest nodes with which a batch like the last is predicted to be in time; None if there are none.

    If event time did not advance in a batch, it counts as having advanced by `due`.
    """
    advance = state.advance / 1e6 or due

    def measure(master: int | None) -> parameters.Parameters:
        return replace(parameters.measure(state, master), advance=advance)

    options = Pricing(state, within=due, measure=measure).candidates(_strategy_name(strategy, state), 1, MOST_NODES)
    return min((option.nodes for option in options if option.cost * advance <= due), default=None)


def _advise_nodes(enough: int | None, machine: Machine) -> str:
    """Return the clause of a warning that says how many nodes would be enough, if any number would."""
    if enough is None and machine.slots < MOST_NODES:
        return f"no number of nodes would be enough with {machine.slots:g} tasks at once"
    if enough is None:
        return f"up to {MOST_NODES} nodes would not be enough"
    return f"{enough} nodes are predicted to sustain the load"


def _strategy_name(strategy: Strategy, state: StateView) -> str:
    """Return the name of the strategy; PSP for one that can't use more nodes."""
    notes = AutoNotes.read(state.notes) if isinstance(strategy, Auto) else None
    kind = STRATEGIES.get(type(strategy).__name__ if notes is None else notes.chosen)
    return PSP.__name__ if kind is None or kind is Central else kind.__name__
