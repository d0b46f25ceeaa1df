"""Overload: what to tell people whose join can't keep up with its trigger."""

from dataclasses import replace
from typing import Any

from watersmeet.adapt.auto import Auto, AutoNotes
from watersmeet.adapt.controller import OVERDUE
from watersmeet.adapt.pricing import Pricing
from watersmeet.cost import parameters
from watersmeet.placement import PSP, Central, Strategy
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.state.manifest.view import Machine, StateView

MOST_NODES = 64
"""As far as it looks for a number of nodes that would do."""


def overload(strategy: Strategy, state: StateView, due: float, took: float) -> dict[str, Any] | None:
    """Return what `progress` says of a join that has been late for several batches on end; None if it hasn't.

    Args:
        strategy: The strategy that it runs by.
        state: What is known of it.
        due: The seconds from one batch to the next.
        took: What the last batch took.
    """
    overdue = state.machine.overdue
    if overdue < OVERDUE:
        return None
    enough = nodes_needed(strategy, state, due)
    return {
        "batches": overdue,
        "nodesNeeded": enough,
        "says": f"The last {overdue} batches took longer than the trigger's {due:g} s, the last one {took:.3g} s; "
        f"{_advice(enough, state.machine)}.",
    }


def nodes_needed(strategy: Strategy, state: StateView, due: float) -> int | None:
    """Return the least number of nodes with which a batch like the last is predicted to take no longer than it may.

    A batch in which event time did not advance counts as one of the time between two.
    """
    advance = state.advance / 1e6 or due

    def measure(master: int | None) -> parameters.Parameters:
        return replace(parameters.measured(state, master), advance=advance)

    options = Pricing(state, within=due, measure=measure).every(_name(strategy, state), 1, MOST_NODES)
    return min((option.nodes for option in options if option.cost * advance <= due), default=None)


def _advice(enough: int | None, machine: Machine) -> str:
    if enough is None and machine.slots < MOST_NODES:
        return f"no number of nodes would do where {machine.slots:g} tasks run at once"
    if enough is None:
        return f"up to {MOST_NODES} nodes would not do"
    return f"{enough} nodes are predicted to hold the load"


def _name(strategy: Strategy, state: StateView) -> str:
    """Return the strategy by name; for one that can't have more nodes, that of a ring."""
    notes = AutoNotes.read(state.notes) if isinstance(strategy, Auto) else None
    kind = STRATEGIES.get(type(strategy).__name__ if notes is None else notes.chosen)
    return PSP.__name__ if kind is None or kind is Central else kind.__name__
