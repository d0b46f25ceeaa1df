"""The progress of a batch, as `query.progress` shows it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.batch.measurements import sum_by_owner, sum_counts
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import IntakeReport, StreamIntake, TaskReport
from watersmeet.batch.side_outputs import SAMPLES
from watersmeet.batch.watermark import held_back_by, inner_marks, stream_marks
from watersmeet.formatting import format_time
from watersmeet.metadata.constraints import count_marks
from watersmeet.observe.funnel import find_hints, funnel
from watersmeet.observe.lateness import needed_delay
from watersmeet.query.query import Query
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.view import Usage

DECISIONS = ("order", "chosen", "master", "segmentSeconds", "ring", "lengths")
"""The decisions that may change from batch to batch."""
TIMES = ("watermark", "settled", "latest")
"""The fields that are times, in microseconds."""
COUNTS = ("lateRows", "rejectedRows", "deniedRows", "punctuations", "orphanRows", "punctuationsOut")
"""The fields that are summed over all joins of a tree."""


def batch_progress(
    before: Manifest,
    manifest: Manifest,
    plan: BatchPlan,
    intakes: Sequence[IntakeReport],
    stream_intakes: Sequence[StreamIntake],
    tasks: Sequence[TaskReport],
    purged: int,
    usages: Sequence[Usage],
) -> dict[str, Any]:
    """Return the progress of a batch without its inner joins, with event times in microseconds.

    Args:
        before: The state before it.
        manifest: The state after it.
        plan: Its plan.
        intakes: What intake tasks reported.
        stream_intakes: What each stream brought.
        tasks: What the tasks reported.
        purged: How many rows were purged.
        usages: What each node used.
    """
    chunks, funnel_of_batch = manifest.chunks.values(), funnel(plan.query, tasks, plan.observing.near_misses)
    names = [stream.name for stream in plan.query.streams]
    samples = [sample for intake in intakes for sample in intake.samples]
    samples += [sample for task in tasks for sample in task.metadata.samples]
    return {
        "batchId": plan.batch,
        "inputRows": dict(zip(names, (intake.rows for intake in stream_intakes), strict=True)),
        "lateRows": sum(intake.late for intake in stream_intakes),
        "rejectedRows": sum(intake.rejected for intake in stream_intakes),
        "deniedRows": sum(intake.denied for intake in stream_intakes),
        "punctuations": sum(intake.punctuations for intake in stream_intakes),
        "orphanRows": sum(task.metadata.counts.get("orphan", 0) for task in tasks),
        "punctuationsOut": sum(task.metadata.counts.get("punctuation", 0) for task in tasks),
        "samples": _choose_samples(samples),
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
        "nodes": _nodes(manifest, tasks, usages),
        "hops": _hops(plan, tasks),
        "funnel": funnel_of_batch,
        "hints": find_hints(plan.query, funnel_of_batch),
        "predicates": _predicates(tasks),
        "order": {name: _course_names(plan, origin) for origin, name in enumerate(names)},
        "streams": _streams(before, manifest, plan, stream_intakes),
        "watermark": manifest.watermark,
        "settled": manifest.settled,
        "heldBackBy": held_back_by(plan.query, manifest.streams, inner_marks(plan.query, manifest.inner)),
        "idle": _idle_streams(plan.query, manifest),
        "merges": sum(len(task.state.merged) for task in tasks),
        "strays": sum(task.work.stray_probes for task in tasks),
        "linkMessages": sum(task.work.messages for task in tasks),
        "linkBytes": sum(task.work.sent_bytes for task in tasks),
        "promises": count_marks(dict(zip(names, manifest.constraints, strict=False))),
    }


def include_inner(own: Mapping[str, Any], inner: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the progress of a batch, with that of each inner join under the name of its stream.

    [!] Rows that must not vanish silently are counted for all joins together, with their samples; so are hints.
    """
    if not inner:
        return dict(own)
    counts = {name: own[name] + sum(part[name] for part in inner.values()) for name in COUNTS}
    joins = (own, *inner.values())
    lists = {name: [entry for part in joins for entry in part[name]] for name in ("samples", "hints")}
    return {**own, **counts, **lists, "inner": dict(inner)}


def _choose_samples(samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most `SAMPLES` rows for each reason of refusal; for each stream where they were denied or orphans."""
    by_reason: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        by_reason[sample["stream"] if sample["kind"] in ("denied", "orphan") else sample["reason"]].append(sample)
    return [sample for group in by_reason.values() for sample in group[:SAMPLES]]


def _streams(
    before: Manifest, manifest: Manifest, plan: BatchPlan, stream_intakes: Sequence[StreamIntake]
) -> dict[str, dict[str, Any]]:
    """Return what became of each stream's rows, its latest time, its watermark and the delay its late rows needed."""
    marks = stream_marks(plan.query, manifest.streams, inner_marks(plan.query, manifest.inner))
    marks_before = stream_marks(plan.query, before.streams, inner_marks(plan.query, before.inner))
    before_by_stream = zip(before.streams, marks_before, strict=True)
    rows_in_state = sum_by_owner(
        ((chunk.stream,), chunk.live) for chunk in manifest.chunks.values() if chunk.bucket.first
    )
    return {
        spec.name: {
            "rows": intake.rows,
            "late": intake.late,
            "rejected": intake.rejected,
            "denied": intake.denied,
            "stateRows": rows_in_state.get(at, 0),
            "latest": state.latest,
            "watermark": mark,
            "neededDelayMs": needed_delay(*earlier_state, before.watermark, intake),
        }
        for at, (spec, state, intake, mark, earlier_state) in enumerate(
            zip(plan.query.streams, manifest.streams, stream_intakes, marks, before_by_stream, strict=True)
        )
    }


def format_progress(progress: Mapping[str, Any], zoned: bool) -> dict[str, Any]:
    """Return the progress of a batch with times as text, here and in inner joins.

    Args:
        progress: The progress as the manifest holds it, with times in microseconds.
        zoned: Whether event times have a zone.
    """

    def times(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: format_time(value, zoned) for name in TIMES if (value := part.get(name)) is not None}

    streams = {name: {**part, **times(part)} for name, part in progress.get("streams", {}).items()}
    inner = {name: format_progress(part, zoned) for name, part in progress.get("inner", {}).items()}
    formatted = {**progress, **times(progress), "streams": streams}
    return {**formatted, "inner": inner} if inner else formatted


def _idle_streams(query: Query, manifest: Manifest) -> list[str]:
    """Return the streams that don't hold back the watermark because they are silent; tables never do."""
    states = zip(query.streams, manifest.streams, strict=True)
    return [stream.name for stream, state in states if state.idle and not stream.table]


def _nodes(manifest: Manifest, tasks: Sequence[TaskReport], usages: Sequence[Usage]) -> list[dict[str, Any]]:
    """Return what each node stores and did in the batch."""
    pairs = sum_counts(task.work.node_pairs for task in tasks)
    rows = sum_by_owner((chunk.owners, chunk.live) for chunk in manifest.chunks.values())
    return [
        {
            "rows": rows.get(node, 0),
            "bytes": int(usage.memory),
            "cpuMs": round(1000 * usage.cpu, 1),
            "pairs": pairs.get(node, 0),
            "rowsIn": int(usage.network),
        }
        for node, usage in enumerate(usages)
    ]


def changed_decisions(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the decisions that changed since the batch before, each with its old and its new value.

    One that was not made before has no old value and is left out.
    """
    old, new = ({"order": p.get("order"), **p.get("placement", {})} for p in (before, now))
    return {
        name: [old[name], new[name]] for name in DECISIONS if old.get(name) and old[name] != new.get(name, old[name])
    }


def _course_names(plan: BatchPlan, origin: int) -> list[list[str]]:
    """Return the orders in which a stream's tuples probe the others, one for each course."""
    return [[plan.query.streams[step.target].name for step in course] for course in plan.courses(origin, plan.query)]


def _hops(plan: BatchPlan, tasks: Sequence[TaskReport]) -> list[dict[str, int]]:
    """Return the rows, pairs and matches of each hop, by how many streams were joined before."""
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
    """Return the calls, matches and milliseconds of each Python predicate, over all tasks."""
    names = {name for task in tasks for name in task.work.costs}
    costs = {name: [task.work.costs[name] for task in tasks if name in task.work.costs] for name in sorted(names)}
    return {
        name: {
            "pairs": sum(cost.calls for cost in task_costs),
            "matches": sum(cost.matches for cost in task_costs),
            "ms": round(1000 * sum(cost.seconds for cost in task_costs), 3),
        }
        for name, task_costs in costs.items()
    }
