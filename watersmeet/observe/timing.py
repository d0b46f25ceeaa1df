"""What `progress` tells of a batch as a whole: how long its steps took, how fresh results are, whether it is late."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from watersmeet.adapt.adaptation import OVERDUE
from watersmeet.adapt.overload import describe_overload
from watersmeet.formatting import format_time
from watersmeet.observe.delays import quantile
from watersmeet.runtime.tree import JoinTree
from watersmeet.state.manifest.manifest import Manifest

PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def timed(offered: float, began: float, ran: float, published: float) -> dict[str, Any]:
    """Return when a batch was offered and how long its steps took.

    Args:
        offered: When it was offered, in seconds since the epoch.
        began: When its first job began.
        ran: When its last job ended.
        published: When its results were in the sink.
    """
    steps = {"plan": began - offered, "job": ran - began, "commit": published - ran, "total": published - offered}
    return {
        "timestamp": format_time(1000 * round(1000 * offered)),
        "durationMs": {name: round(1000 * took, 1) for name, took in steps.items()},
    }


def latency(read: Iterable[tuple[float, int]], now: float) -> dict[str, float]:
    """Return percentiles of the time from when a task read a tuple to when its results were in the sink.

    How long it waited in the source before is not in it: see docs/latency.md.

    Args:
        read: When blocks of tuples were read, and how many tuples.
        now: When the results were there.

    >>> latency([(10.0, 90), (12.0, 10)], now=13.0)
    {'p50': 3000.0, 'p95': 3000.0, 'p99': 3000.0}
    """
    waited = [(now - moment, rows) for moment, rows in read]
    shares = ((name, quantile(waited, share)) for name, share in PERCENTILES)
    return {name: round(1000 * seconds, 1) for name, seconds in shares if seconds is not None}


def freshness(progress: Mapping[str, Any]) -> list[str]:
    """Return in a line how long the last batch took, and how long its rows; nothing before the first.

    >>> freshness({"batchId": 7, "durationMs": {"total": 320.0}, "latencyMs": {"p50": 250.4, "p99": 300.0}})
    ['batch 7 took 320 ms; latency from reading a row to its results in the sink: 250 ms, for 99 % at most 300 ms']
    """
    took, waited = progress.get("durationMs"), progress.get("latencyMs")
    if not took or not waited:
        return []
    return [
        f"batch {progress['batchId']} took {took['total']:.0f} ms; latency from reading a row to its results in the "
        f"sink: {waited['p50']:.0f} ms, for 99 % at most {waited['p99']:.0f} ms"
    ]


def late_or_not(
    tree: JoinTree, before: Manifest, after: Manifest, due: float | None, took: float
) -> tuple[Manifest, list[str]]:
    """Note whether a batch was late; return its state, and what to tell people if several were, one after the other.

    Args:
        tree: The join.
        before: The state before the batch.
        after: The state after it.
        due: The seconds from one batch to the next, if the trigger says so.
        took: The seconds that the batch took.
    """
    if due is None:
        return after, []
    overdue = before.learned.overdue + 1 if took > due else 0
    after = noted(after, overdue)
    told = describe_overload(tree.operator.strategy, tree.operator.view(after), due, took)
    if told is None:
        return after, []
    shown = replace(after, progress={**after.progress, "overload": told})
    return shown, [told["says"]] if overdue == OVERDUE else []


def noted(manifest: Manifest, overdue: int) -> Manifest:
    """Return a manifest that says, in inner joins too, for how many batches on end the join has been late."""
    inner = {at: noted(state, overdue) for at, state in manifest.inner.items()}
    return replace(manifest, learned=replace(manifest.learned, overdue=overdue), inner=inner)
