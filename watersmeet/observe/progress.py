"""What a batch did, as `query.progress` shows it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.batch.intake import IntakeReport, StreamIntake
from watersmeet.batch.measurements import added, held
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.batch.side_outputs import SAMPLES
from watersmeet.batch.watermark import held_back_by, inner_marks, stream_marks
from watersmeet.formatting import format_time
from watersmeet.metadata.constraint_state import counted
from watersmeet.observe.funnel import funnel
from watersmeet.observe.hints import hints
from watersmeet.observe.lateness import needed_delay
from watersmeet.query.query import Query
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.view import Usage

DECIDED = ("order", "chosen", "master", "segmentSeconds", "ring", "lengths")
"""The decisions that may change from batch to batch."""


TIMES = ("watermark", "settled", "latest")
"""What is a time, in microseconds."""
COUNTED = ("lateRows", "rejectedRows", "deniedRows", "punctuations", "orphanRows", "punctuationsOut")
"""What is counted over all joins of a tree."""


def progress(
    before: Manifest,
    manifest: Manifest,
    plan: BatchPlan,
    intakes: Sequence[IntakeReport],
    taken: Sequence[StreamIntake],
    tasks: Sequence[TaskReport],
    purged: int,
    used: Sequence[Usage],
) -> dict[str, Any]:
    """Return what a batch did, as `q.progress` shows it.

    Args:
        before: The state before it.
        manifest: The state after it.
        plan: Its plan.
        intakes: What intake tasks reported.
        taken: What each stream brought.
        tasks: What the tasks reported.
        purged: How many rows were let go.
        used: What each node used.
    """
    chunks, passed = manifest.chunks.values(), funnel(plan.query, tasks, plan.observing.near_misses)
    names = [stream.name for stream in plan.query.streams]
    return {
        "batchId": plan.batch,
        "inputRows": dict(zip(names, (seen.rows for seen in taken), strict=True)),
        "lateRows": sum(seen.late for seen in taken),
        "rejectedRows": sum(seen.rejected for seen in taken),
        "deniedRows": sum(seen.denied for seen in taken),
        "punctuations": sum(seen.punctuations for seen in taken),
        "orphanRows": sum(task.metadata.counts.get("orphan", 0) for task in tasks),
        "punctuationsOut": sum(task.metadata.counts.get("punctuation", 0) for task in tasks),
        "samples": _samples(
            [
                *(sample for intake in intakes for sample in intake.samples),
                *(sample for task in tasks for sample in task.metadata.samples),
            ]
        ),
        "outputRows": sum(task.results.rows for task in tasks),
        "paidRows": sum(task.spilling.paid_rows for task in tasks),
        "paidPairs": sum(task.spilling.paid.pairs for task in tasks),
        "paidUnits": len(plan.spilling.ledger.paying()),
        "stateRows": sum(chunk.live * len(chunk.owners) for chunk in chunks),
        "distinctRows": sum(chunk.live for chunk in chunks if chunk.bucket.first),
        "stateBytes": sum(chunk.bytes * len(chunk.owners) for chunk in chunks),
        "stateChunks": len(manifest.chunks),
        "purgedRows": purged,
        "purgeMs": round(1000 * sum(task.state.purging for task in tasks), 1),
        "movedRows": sum(c.rows for c in plan.chunks if c.owners != before.chunks[c.id].owners),
        "process": "task" if any(task.work.tasks for task in tasks) else "driver",
        "nodes": _nodes(manifest, tasks, used),
        "hops": _hops(plan, tasks),
        "funnel": passed,
        "hints": hints(plan.query, passed),
        "predicates": _predicates(tasks),
        "order": {name: _orders(plan, origin) for origin, name in enumerate(names)},
        "streams": _streams(before, manifest, plan, taken),
        "watermark": manifest.watermark,
        "settled": manifest.settled,
        "heldBackBy": held_back_by(plan.query, manifest.streams, inner_marks(plan.query, manifest.inner)),
        "idle": _idle(plan.query, manifest),
        "merges": sum(len(task.state.merged) for task in tasks),
        "strays": sum(task.work.strays for task in tasks),
        "promises": counted(dict(zip(names, manifest.promises, strict=False))),
    }


def with_inner(shown: Mapping[str, Any], inner: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a batch did with what the joins within did, by the streams that they are.

    [!] What is counted because it must not vanish silently is counted for all joins together.
    """
    if not inner:
        return dict(shown)
    counts = {name: shown[name] + sum(part[name] for part in inner.values()) for name in COUNTED}
    joins = (shown, *inner.values())
    together = {name: [one for part in joins for one in part[name]] for name in ("samples", "hints")}
    return {**shown, **counts, **together, "inner": dict(inner)}


def _samples(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a few of the rows that were not taken, of each reason as many; what was denied, of each stream."""
    alike: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for sample in found:
        alike[sample["stream"] if sample["kind"] in ("denied", "orphan") else sample["reason"]].append(sample)
    return [sample for samples in alike.values() for sample in samples[:SAMPLES]]


def _streams(
    before: Manifest, manifest: Manifest, plan: BatchPlan, taken: Sequence[StreamIntake]
) -> dict[str, dict[str, Any]]:
    """Return what became of each stream's rows, how far it has come, and where that puts its watermark."""
    marks = stream_marks(plan.query, manifest.streams, inner_marks(plan.query, manifest.inner))
    marks_before = stream_marks(plan.query, before.streams, inner_marks(plan.query, before.inner))
    earlier = zip(before.streams, marks_before, strict=True)
    kept = held(((chunk.stream,), chunk.live) for chunk in manifest.chunks.values() if chunk.bucket.first)
    return {
        spec.name: {
            "rows": seen.rows,
            "late": seen.late,
            "rejected": seen.rejected,
            "denied": seen.denied,
            "stateRows": kept.get(at, 0),
            "latest": state.latest,
            "watermark": mark,
            "neededDelayMs": needed_delay(*old, before.watermark, seen),
        }
        for at, (spec, state, seen, mark, old) in enumerate(
            zip(plan.query.streams, manifest.streams, taken, marks, earlier, strict=True)
        )
    }


def readable(told: Mapping[str, Any], zoned: bool) -> dict[str, Any]:
    """Return what a batch did as people read it: its times as text, here and in the joins within.

    Args:
        told: What the manifest says, with times in microseconds.
        zoned: Whether event times have a zone.
    """

    def times(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: format_time(found, zoned) for name in TIMES if (found := part.get(name)) is not None}

    streams = {name: {**part, **times(part)} for name, part in told.get("streams", {}).items()}
    inner = {name: readable(part, zoned) for name, part in told.get("inner", {}).items()}
    found = {**told, **times(told), "streams": streams}
    return {**found, "inner": inner} if inner else found


def _idle(query: Query, manifest: Manifest) -> list[str]:
    """Return the streams that hold no watermark because they are silent; tables never hold it."""
    states = zip(query.streams, manifest.streams, strict=True)
    return [stream.name for stream, state in states if state.idle and not stream.table]


def _nodes(manifest: Manifest, tasks: Sequence[TaskReport], used: Sequence[Usage]) -> list[dict[str, Any]]:
    pairs = added(task.work.node_pairs for task in tasks)
    rows = held((chunk.owners, chunk.live) for chunk in manifest.chunks.values())
    return [
        {
            "rows": rows.get(node, 0),
            "bytes": int(found.memory),
            "cpuMs": round(1000 * found.cpu, 1),
            "pairs": pairs.get(node, 0),
            "rowsIn": int(found.network),
        }
        for node, found in enumerate(used)
    ]


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return what was decided otherwise than for the batch before, each with what it was and what it is."""
    old, new = ({"order": p.get("order"), **p.get("placement", {})} for p in (before, now))
    return {name: [old[name], new[name]] for name in DECIDED if old.get(name) and old[name] != new.get(name, old[name])}


def _orders(plan: BatchPlan, origin: int) -> list[list[str]]:
    """Return the orders in which a stream's tuples probe the others, one for each of their courses."""
    return [[plan.query.streams[step.target].name for step in course] for course in plan.courses(origin, plan.query)]


def _hops(plan: BatchPlan, tasks: Sequence[TaskReport]) -> list[dict[str, int]]:
    hops = range(1, len(plan.query.streams))
    work = [
        [part for task in tasks for (joined, _), part in task.work.hops.items() if len(joined) == at] for at in hops
    ]
    return [
        {
            "rowsIn": sum(part.rows_in for part in parts),
            "rowsShuffled": sum(part.shuffled for part in parts),
            "pairs": sum(part.pairs for part in parts),
            "matches": sum(part.matches for part in parts),
        }
        for parts in work
    ]


def _predicates(tasks: Sequence[TaskReport]) -> dict[str, dict[str, float]]:
    names = {name for task in tasks for name in task.work.costs}
    costs = {name: [task.work.costs[name] for task in tasks if name in task.work.costs] for name in sorted(names)}
    return {
        name: {
            "pairs": sum(cost.calls for cost in found),
            "matches": sum(cost.matches for cost in found),
            "ms": round(1000 * sum(cost.seconds for cost in found), 3),
        }
        for name, found in costs.items()
    }
