"""Commit: from the reports of a batch's tasks to the next manifest, and the progress that people read."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from watersmeet.engine.intake import IntakeReport, StreamIntake, total
from watersmeet.engine.plan import BatchPlan
from watersmeet.engine.probe import HopWork, TaskReport
from watersmeet.errors import StateError
from watersmeet.query import Query, StreamSpec
from watersmeet.state.chunk import Chunk
from watersmeet.state.manifest import Manifest, StreamState


def next_manifest(
    before: Manifest,
    plan: BatchPlan,
    intakes: Sequence[IntakeReport],
    tasks: Sequence[TaskReport],
    now: int,
    inner: Mapping[int, Manifest] | None = None,
) -> Manifest:
    """Return the state after a batch.

    Args:
        before: The state before it.
        plan: Its plan.
        intakes: What the intake tasks reported.
        tasks: What the probing tasks reported, one for each node.
        now: The driver's clock, in microseconds; only idle streams depend on it.
        inner: The new state of the joins that are streams of this one, by position.

    Raises:
        StateError: If a node's report is missing: a batch without it is not done.
    """
    missing = set(range(plan.placement.nodes)) - {task.node for task in tasks}
    if missing:
        raise StateError(f"Batch {plan.batch}: no report from nodes {sorted(missing)}; the batch was not written.")
    taken = total(list(intakes), len(plan.query.streams))
    streams = tuple(
        _stream(spec, old, new, now) for spec, old, new in zip(plan.query.streams, before.streams, taken, strict=True)
    )
    nested = {position: manifest.watermark for position, manifest in (inner or {}).items()}
    watermark = join_watermark(before.watermark, plan.query, streams, nested)
    chunks = _merged(plan, tasks)
    live = {key: chunk for key, chunk in chunks.items() if not expired(chunk, plan.query, streams, watermark)}
    purged = sum(chunk.rows for key, chunk in chunks.items() if key not in live)
    manifest = before.follow(streams=streams, watermark=watermark, chunks=live, inner=inner or {})
    return replace(manifest, progress=progress(manifest, plan, intakes, taken, tasks, purged))


def _stream(spec: StreamSpec, old: StreamState, new: StreamIntake, now: int) -> StreamState:
    latest = max((t for t in (old.latest, new.latest) if t is not None), default=None)
    advance = 0 if latest is None else latest - (old.latest if old.latest is not None else (new.earliest or latest))
    heard = now if new.rows or old.heard is None else old.heard
    idle = spec.idle is not None and now - heard > spec.idle
    return StreamState(latest, old.arrived + new.accepted, idle, heard, new.accepted, advance)


def join_watermark(
    before: int | None, query: Query, streams: Sequence[StreamState], nested: Mapping[int, int | None]
) -> int | None:
    """Return the join's watermark: the least of the streams that are not idle, never falling.

    A nested join is a stream whose watermark is the inner join's own: no later result of it can be earlier.
    """
    held = [
        nested[position] if position in nested else None if state.latest is None else state.latest - stream.delay
        for position, (stream, state) in enumerate(zip(query.streams, streams, strict=True))
        if not state.idle
    ]
    marks = [mark for mark in held if mark is not None]
    if not held or len(marks) < len(held):
        return before
    return min(marks) if before is None else max(before, min(marks))


def _merged(plan: BatchPlan, tasks: Sequence[TaskReport]) -> dict[str, Chunk]:
    chunks = {chunk.id: chunk for chunk in (*plan.chunks, *(chunk for task in tasks for chunk in task.chunks))}
    for task in tasks:
        for chunk, replaced in task.merged:
            chunks[chunk.id] = chunk
            for key in replaced:
                del chunks[key]
    return chunks


def expired(chunk: Chunk, query: Query, streams: Sequence[StreamState], watermark: int | None) -> bool:
    """Tell whether no result of a later batch can admit any row of a chunk."""
    window = query.streams[chunk.stream].window
    if window.rows is not None:
        return chunk.last_ordinal <= streams[chunk.stream].arrived - window.rows
    return watermark is not None and int(window.deadline(np.array([chunk.high]))[0]) < watermark


def held_back_by(query: Query, streams: Sequence[StreamState]) -> str | None:
    """Return the stream that holds the watermark: one not seen yet, else the one furthest behind."""
    waiting = [pair for pair in zip(query.streams, streams, strict=True) if not pair[1].idle]

    def mark(pair: tuple[StreamSpec, StreamState]) -> float:
        return -np.inf if pair[1].latest is None else pair[1].latest - pair[0].delay

    return min(waiting, key=mark)[0].name if waiting else None


def progress(
    manifest: Manifest,
    plan: BatchPlan,
    intakes: Sequence[IntakeReport],
    taken: Sequence[StreamIntake],
    tasks: Sequence[TaskReport],
    purged: int,
) -> dict[str, Any]:
    """Return what a batch did, as `q.progress` shows it."""
    chunks = manifest.chunks.values()
    names = [stream.name for stream in plan.query.streams]
    samples = [sample for report in intakes for sample in report.samples]
    return {
        "batchId": plan.batch,
        "inputRows": dict(zip(names, (seen.rows for seen in taken), strict=True)),
        "lateRows": sum(seen.late for seen in taken),
        "rejectedRows": sum(seen.rejected for seen in taken),
        "samples": samples[:6],
        "outputRows": sum(task.rows for task in tasks),
        "stateRows": sum(chunk.rows * len(chunk.copies) for chunk in chunks),
        "distinctRows": sum(chunk.rows for chunk in chunks),
        "stateBytes": sum(chunk.bytes * len(chunk.copies) for chunk in chunks),
        "stateChunks": len(manifest.chunks),
        "purgedRows": purged,
        "nodes": _nodes(plan, manifest, tasks),
        "hops": _hops(plan, tasks),
        "predicates": _predicates(tasks),
        "order": {name: [names[at] for at in plan.order.order(origin)] for origin, name in enumerate(names)},
        "watermark": manifest.watermark,
        "heldBackBy": held_back_by(plan.query, manifest.streams),
        "idle": [name for name, state in zip(names, manifest.streams, strict=True) if state.idle],
        "merges": sum(len(task.merged) for task in tasks),
    }


def _nodes(plan: BatchPlan, manifest: Manifest, tasks: Sequence[TaskReport]) -> list[dict[str, Any]]:
    """Return rows, bytes, CPU and pairs per node; CPU follows the pairs, since one task may work for several nodes."""
    pairs: Mapping[int, int] = _sum(task.node_pairs for task in tasks)
    seconds, tested = sum(task.seconds for task in tasks), max(1, sum(pairs.values()))
    return [
        {
            "rows": sum(chunk.rows for chunk in manifest.chunks.values() if node in chunk.owners),
            "bytes": sum(chunk.bytes for chunk in manifest.chunks.values() if node in chunk.owners),
            "cpuMs": round(1000 * seconds * pairs.get(node, 0) / tested, 1),
            "pairs": pairs.get(node, 0),
        }
        for node in range(plan.placement.nodes)
    ]


def _sum(counts: Any) -> dict[int, int]:
    totals: dict[int, int] = defaultdict(int)
    for count in counts:
        for key, value in count.items():
            totals[key] += value
    return totals


def _hops(plan: BatchPlan, tasks: Sequence[TaskReport]) -> list[dict[str, int]]:
    work = [[task.hops.get(hop, HopWork()) for task in tasks] for hop in range(len(plan.query.streams) - 1)]
    return [
        {
            "rowsIn": sum(part.rows_in for part in parts),
            "rowsShuffled": sum(part.rows_shuffled for part in parts),
            "pairs": sum(part.pairs for part in parts),
            "matches": sum(part.matches for part in parts),
        }
        for parts in work
    ]


def _predicates(tasks: Sequence[TaskReport]) -> dict[str, dict[str, float]]:
    names = {name for task in tasks for name in task.costs}
    costs = {name: [task.costs[name] for task in tasks if name in task.costs] for name in sorted(names)}
    return {
        name: {
            "pairs": sum(cost.asked for cost in found),
            "matches": sum(cost.held for cost in found),
            "ms": round(1000 * sum(cost.seconds for cost in found), 3),
        }
        for name, found in costs.items()
    }
