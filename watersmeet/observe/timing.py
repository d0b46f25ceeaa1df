"""The timing of a batch in `progress`: how long its steps took, how fresh results are, whether the join keeps up."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from watersmeet.adapt.adaptation import OVERDUE
from watersmeet.adapt.auto import Auto, AutoNotes
from watersmeet.adapt.pricing import Pricing
from watersmeet.cost import parameters
from watersmeet.formatting import format_time
from watersmeet.observe.lateness import quantile
from watersmeet.placement import PSP, Central, Strategy
from watersmeet.placement.strategies import STRATEGIES
from watersmeet.runtime.tree import JoinTree
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.view import Machine, StateView

PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
MOST_NODES = 64
"""The most nodes that are tried when looking for enough."""


def time_steps(offered: float, began: float, jobs_ended: float, published: float) -> dict[str, Any]:
    """Return when a batch was offered, as text, and how long its steps took, in milliseconds.

    Args:
        offered: When it was offered, in seconds since the epoch, as are all others.
        began: When its first job began.
        jobs_ended: When its last job ended.
        published: When its results were in the sink.
    """
    steps = {
        "plan": began - offered,
        "job": jobs_ended - began,
        "commit": published - jobs_ended,
        "total": published - offered,
    }
    return {
        "timestamp": format_time(1000 * round(1000 * offered)),
        "durationMs": {name: round(1000 * seconds, 1) for name, seconds in steps.items()},
    }


def measure_latency(read_times: Iterable[tuple[float, int]], now: float) -> dict[str, float]:
    """Return percentiles of the time from when a task read a tuple to when its results were in the sink.

    They are in milliseconds; there are none if no tuple was read. Waiting in the source is not included: see
    docs/latency.md.

    Args:
        read_times: When blocks of tuples were read, in seconds, and how many tuples.
        now: When the results were in the sink, by the same clock.

    >>> measure_latency([(10.0, 90), (12.0, 10)], now=13.0)
    {'p50': 3000.0, 'p95': 3000.0, 'p99': 3000.0}
    """
    waits = [(now - time, rows) for time, rows in read_times]
    shares = ((name, quantile(waits, share)) for name, share in PERCENTILES)
    return {name: round(1000 * seconds, 1) for name, seconds in shares if seconds is not None}


def describe_freshness(progress: Mapping[str, Any]) -> list[str]:
    """Return the times of the last batch and of its rows as a line; no line if one of them isn't recorded.

    >>> describe_freshness({"batchId": 7, "durationMs": {"total": 320.0}, "latencyMs": {"p50": 250.4, "p99": 300.0}})
    ['batch 7 took 320 ms; latency from reading a row to its results in the sink: 250 ms, for 99 % at most 300 ms']
    """
    durations, latencies = progress.get("durationMs"), progress.get("latencyMs")
    if not durations or not latencies:
        return []
    return [
        f"batch {progress['batchId']} took {durations['total']:.0f} ms; latency from reading a row to its results in "
        f"the sink: {latencies['p50']:.0f} ms, for 99 % at most {latencies['p99']:.0f} ms"
    ]


def check_overdue(
    tree: JoinTree, before: Manifest, after: Manifest, due: float | None, seconds: float
) -> tuple[Manifest, list[str]]:
    """Return the state of a batch, noting whether it was overdue, and a warning if it is the `OVERDUE`-th in a row.

    From that batch on, `progress` has an entry `overload` until one is in time. Without an interval nothing is noted.

    Args:
        tree: The join.
        before: The state before the batch.
        after: The state after it.
        due: The seconds from one batch to the next; None if the trigger doesn't say.
        seconds: The seconds that the batch took.
    """
    if due is None:
        return after, []
    overdue = before.learned.overdue + 1 if seconds > due else 0
    after = mark_overdue(after, overdue)
    notice = describe_overload(tree.operator.strategy, tree.operator.view(after), due, seconds)
    if notice is None:
        return after, []
    manifest = replace(after, progress={**after.progress, "overload": notice})
    return manifest, [notice["says"]] if overdue == OVERDUE else []


def mark_overdue(manifest: Manifest, overdue: int) -> Manifest:
    """Return a manifest that holds, in inner joins too, how many batches in a row were overdue."""
    inner = {at: mark_overdue(state, overdue) for at, state in manifest.inner.items()}
    return replace(manifest, learned=replace(manifest.learned, overdue=overdue), inner=inner)


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
