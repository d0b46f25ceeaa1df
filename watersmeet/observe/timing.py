"""The timing of a batch in `progress`: how long its steps took, how fresh results are, whether it is late."""

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
