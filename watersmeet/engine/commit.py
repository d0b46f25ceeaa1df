"""Commit: from the reports of a batch's tasks to the next manifest, and the progress that people read."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from watersmeet.cost.load import remembered, smoothed
from watersmeet.cost.model import starting
from watersmeet.engine.intake import SAMPLES, IntakeReport, StreamIntake, total
from watersmeet.engine.plan import GIVEN, UNKNOWN, BatchPlan, Host, learned, view
from watersmeet.engine.probe import TaskReport
from watersmeet.engine.warnings import notices
from watersmeet.errors import StateError
from watersmeet.kernel.hop import HopWork
from watersmeet.kernel.steps import Hop
from watersmeet.model.query import Query, StreamSpec
from watersmeet.model.windows import NEVER, Window
from watersmeet.ordering import Ordering
from watersmeet.placement import Strategy
from watersmeet.state.chunk import Chunk
from watersmeet.state.manifest import Manifest, StreamState
from watersmeet.state.view import HopView, StateView, Usage

DECIDED = ("order", "chosen", "master", "segmentSeconds", "ring", "lengths")
"""What `progress` tells of the decisions that may change from batch to batch."""


def next_manifest(
    before: Manifest,
    plan: BatchPlan,
    strategy: Strategy,
    tasks: Sequence[TaskReport],
    now: int,
    inner: Mapping[int, Manifest] | None = None,
    ordering: Ordering = GIVEN,
    host: Host = UNKNOWN,
    took: float | None = None,
) -> Manifest:
    """Return the state after a batch.

    Args:
        before: The state before it.
        plan: Its plan.
        strategy: The strategy that it came from.
        tasks: What the probing tasks reported, at least one for each node.
        now: The driver's clock, in microseconds; only idle streams and warnings depend on it.
        inner: The new state of the joins that are streams of this one, by position.
        ordering: What chose the plan's join orders.
        host: Where it ran.
        took: How long the batch's job took, in seconds, if that is known.

    Raises:
        StateError: If a node's report is missing: a batch without it is not done.
    """
    missing = set(range(plan.placement.nodes)) - {task.node for task in tasks}
    if missing:
        raise StateError(f"Batch {plan.batch}: no report from nodes {sorted(missing)}; the batch was not written.")
    intakes = [intake for task in tasks for intake in task.intakes]
    taken = total(intakes, len(plan.query.streams))
    streams = tuple(
        _stream(spec, old, new, now) for spec, old, new in zip(plan.query.streams, before.streams, taken, strict=True)
    )
    watermark = join_watermark(before.watermark, plan.query, streams, _watermarks(inner or {}))
    chunks = _merged(plan, tasks)
    live = unexpired(chunks, plan.query, streams, watermark)
    purged = sum(chunk.rows for key, chunk in chunks.items() if key not in live)
    manifest = before.follow(streams=streams, watermark=watermark, chunks=live, inner=inner or {})
    used = usage(plan, live.values(), tasks)
    state = view(plan.query, manifest, strategy, host)
    shown = progress(manifest, plan, intakes, taken, tasks, purged, used)
    shown["placement"] = strategy.facts(plan.placement, state)
    shown["changes"] = _changes(before.progress, shown)
    marks = _marks(plan.query, streams, _watermarks(inner or {}))
    told = notices(plan.query, before, manifest, marks, taken, now - before.frozen.get("now", now))
    shown["warnings"] = [notice.says for notice in told]
    frozen = _frozen(manifest, plan, state, strategy, ordering, tasks, used)
    frozen |= {
        "tasks": sum(task.tasks for task in tasks),
        "hop": _hop_seconds(before.frozen.get("hop"), plan, used, host, took),
        "warned": [notice.kind for notice in told],
        "now": now,
    }
    return replace(manifest, frozen=frozen, progress=shown)


def _watermarks(inner: Mapping[int, Manifest]) -> dict[int, int | None]:
    return {position: manifest.watermark for position, manifest in inner.items()}


def _frozen(
    after: Manifest,
    plan: BatchPlan,
    state: StateView,
    strategy: Strategy,
    ordering: Ordering,
    tasks: Sequence[TaskReport],
    used: Sequence[Usage],
) -> dict[str, Any]:
    """Return what the strategy and the join order keep between batches."""
    hops: dict[Hop, HopWork] = defaultdict(HopWork)
    for task in tasks:
        for hop, work in task.hops.items():
            hops[hop].add(work)
    probed = any(work.rows_in for work in hops.values())
    return {
        type(strategy).__name__: strategy.freeze(plan.placement, state),
        "hops": [astuple(hop) for hop in (_hops_seen(state.hops, hops) if probed else state.hops)],
        "shipped": _shipped(after.frozen.get("shipped"), tasks),
        "usage": [astuple(node) for node in (remembered(state.usage, used) if probed else state.usage)],
        "order": {type(ordering).__name__: ordering.learn(learned(after, ordering), hops)},
    }


def _hops_seen(before: Sequence[HopView], now: Mapping[Hop, HopWork]) -> list[HopView]:
    """Return what to remember of the hops after a batch; of one that no tuple took less and less, as of the usage."""
    known = {(hop.joined, hop.target): hop for hop in before}
    seen = {hop: HopView(*hop, work.rows_in, work.pairs, work.matches) for hop, work in now.items()}
    return [_between(known.get(hop), seen.get(hop, HopView(*hop))) for hop in known | seen]


def _shipped(before: Sequence[float] | None, tasks: Sequence[TaskReport]) -> list[float]:
    """Return the seconds that it took to send rows, and how many rows: a batch on average, smoothed."""
    rows = sum(work.shuffled for task in tasks for work in task.hops.values())
    now = [sum(task.shipping for task in tasks), float(rows)]
    return [smoothed(was, new) for was, new in zip(before or now, now, strict=True)]


def _hop_seconds(
    before: float | None, plan: BatchPlan, used: Sequence[Usage], host: Host, took: float | None
) -> float | None:
    """Return how long a hop took beside its work and the start of its tasks, smoothed; None if that isn't known."""
    if took is None or host.slots is None or host.cores is None:
        return before
    work = max(max(node.cpu for node in used), sum(node.cpu for node in used) / host.slots)
    begun = starting(plan.placement.nodes, plan.stages, host.cores)
    now = max(0.0, took - work - begun) / (plan.stages + 1)
    return smoothed(before, now)


def _between(old: HopView | None, new: HopView) -> HopView:
    if old is None:
        return new
    means = (smoothed(getattr(old, name), getattr(new, name)) for name in ("rows", "pairs", "matches"))
    return HopView(new.joined, new.target, *means)


def _stream(spec: StreamSpec, old: StreamState, new: StreamIntake, now: int) -> StreamState:
    latest = max((t for t in (old.latest, new.latest) if t is not None), default=None)
    advance = 0 if latest is None else latest - (old.latest if old.latest is not None else (new.earliest or latest))
    heard = now if new.rows or old.heard is None else min(old.heard, now)  # an earlier run's clock may have been ahead
    idle = spec.idle is not None and now - heard > spec.idle
    seen = new.accepted / advance * 1e6 if advance else old.rate
    rate = ((old.rate or seen) + seen) / 2
    return StreamState(latest, old.arrived + new.accepted, idle, heard, new.accepted, advance, rate)


def join_watermark(
    before: int | None, query: Query, streams: Sequence[StreamState], nested: Mapping[int, int | None]
) -> int | None:
    """Return the join's watermark: the least of the streams that are not idle, never falling.

    Args:
        before: The watermark before the batch.
        query: The join.
        streams: The state of its streams.
        nested: The watermarks of those that are joins, by position.
    """
    held = [mark for state, mark in zip(streams, _marks(query, streams, nested), strict=True) if not state.idle]
    marks = [mark for mark in held if mark is not None]
    if not held or len(marks) < len(held):
        return before
    return max(NEVER if before is None else before, min(marks))  # nothing is late before the earliest time there is


def _marks(query: Query, streams: Sequence[StreamState], nested: Mapping[int, int | None]) -> list[int | None]:
    """Return the watermark of each stream, None if it has none yet."""
    named = enumerate(zip(query.streams, streams, strict=True))
    return [stream.watermark(state.latest, nested.get(at)) for at, (stream, state) in named]


def _merged(plan: BatchPlan, tasks: Sequence[TaskReport]) -> dict[str, Chunk]:
    chunks = {chunk.id: chunk for chunk in (*plan.chunks, *(chunk for task in tasks for chunk in task.chunks))}
    for task in tasks:
        for chunk, replaced in task.merged:
            chunks[chunk.id] = chunk
            for key in replaced:
                del chunks[key]
    return chunks


def unexpired(
    chunks: Mapping[str, Chunk], query: Query, streams: Sequence[StreamState], watermark: int | None
) -> dict[str, Chunk]:
    """Return the chunks that have a row which a result of a later batch may admit."""
    windows = [stream.window for stream in query.streams]
    first = [_first_kept(window, state.arrived, watermark) for window, state in zip(windows, streams, strict=True)]
    counted = set(query.counted)
    return {
        key: chunk
        for key, chunk in chunks.items()
        if (chunk.last_ordinal if chunk.stream in counted else chunk.high) >= first[chunk.stream]
    }


def _first_kept(window: Window, arrived: int, watermark: int | None) -> int:
    """Return the earliest time that a window still admits; of a count window, the first arrival ordinal."""
    if window.rows is not None:
        return arrived - window.rows + 1
    return NEVER if watermark is None else int(window.earliest(np.array([watermark]))[0])


def held_back_by(query: Query, streams: Sequence[StreamState], nested: Mapping[int, int | None]) -> str | None:
    """Return the stream that holds the watermark: one that has none yet, else the one furthest behind."""
    marks = zip(query.streams, streams, _marks(query, streams, nested), strict=True)
    waiting = [(-np.inf if mark is None else mark, stream.name) for stream, state, mark in marks if not state.idle]
    return min(waiting, key=lambda pair: pair[0])[1] if waiting else None


def progress(
    manifest: Manifest,
    plan: BatchPlan,
    intakes: Sequence[IntakeReport],
    taken: Sequence[StreamIntake],
    tasks: Sequence[TaskReport],
    purged: int,
    used: Sequence[Usage],
) -> dict[str, Any]:
    """Return what a batch did, as `q.progress` shows it."""
    chunks = manifest.chunks.values()
    names = [stream.name for stream in plan.query.streams]
    return {
        "batchId": plan.batch,
        "inputRows": dict(zip(names, (seen.rows for seen in taken), strict=True)),
        "lateRows": sum(seen.late for seen in taken),
        "rejectedRows": sum(seen.rejected for seen in taken),
        "samples": _samples(intakes),
        "outputRows": sum(task.rows for task in tasks),
        "stateRows": sum(chunk.rows * len(chunk.owners) for chunk in chunks),
        "distinctRows": sum(chunk.rows for chunk in chunks if chunk.bucket.first),
        "stateBytes": sum(chunk.bytes * len(chunk.owners) for chunk in chunks),
        "stateChunks": len(manifest.chunks),
        "purgedRows": purged,
        "movedRows": plan.moved,
        "process": "task" if any(task.tasks for task in tasks) else "driver",
        "nodes": _nodes(manifest, tasks, used),
        "hops": _hops(plan, tasks),
        "predicates": _predicates(tasks),
        "order": {name: _orders(plan, origin) for origin, name in enumerate(names)},
        "watermark": manifest.watermark,
        "heldBackBy": held_back_by(plan.query, manifest.streams, _watermarks(manifest.inner)),
        "idle": [name for name, state in zip(names, manifest.streams, strict=True) if state.idle],
        "merges": sum(len(task.merged) for task in tasks),
        "strays": sum(task.strays for task in tasks),
    }


def _samples(intakes: Sequence[IntakeReport]) -> list[dict[str, Any]]:
    """Return a few of the rows that were not taken, of each reason as many."""
    by_reason: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for sample in (sample for report in intakes for sample in report.samples):
        by_reason[sample["reason"]].append(sample)
    return [sample for samples in by_reason.values() for sample in samples[:SAMPLES]]


def usage(plan: BatchPlan, chunks: Iterable[Chunk], tasks: Sequence[TaskReport]) -> list[Usage]:
    """Return what each node used; a task's CPU goes to the nodes for which it looked at pairs, by their number."""
    nodes = range(plan.placement.nodes)
    cpu, network = [0.0] * len(nodes), [0.0] * len(nodes)
    memory = _held((chunk.owners, chunk.bytes) for chunk in chunks)
    for task in tasks:
        network[task.node] += sum(work.shuffled for work in task.hops.values())
        busy = max(task.seconds, sum(cost.seconds for cost in task.costs.values()))  # a predicate may wait
        pairs = task.node_pairs if sum(task.node_pairs.values()) else {task.node: 1}
        for node, looked_at in pairs.items():
            cpu[node] += busy * looked_at / sum(pairs.values())
    return [Usage(cpu[node], float(memory.get(node, 0)), network[node]) for node in nodes]


def _held(amounts: Iterable[tuple[tuple[int, ...], int]]) -> Mapping[int, int]:
    """Return how much each node holds of what several may own; many chunks have the same owners."""
    together: dict[tuple[int, ...], int] = defaultdict(int)
    for owners, amount in amounts:
        together[owners] += amount
    return _sum(dict.fromkeys(owners, amount) for owners, amount in together.items())


def _nodes(manifest: Manifest, tasks: Sequence[TaskReport], used: Sequence[Usage]) -> list[dict[str, Any]]:
    pairs = _sum(task.node_pairs for task in tasks)
    rows = _held((chunk.owners, chunk.rows) for chunk in manifest.chunks.values())
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


def _sum(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    totals: dict[int, int] = defaultdict(int)
    for count in counts:
        for key, value in count.items():
            totals[key] += value
    return totals


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return what was decided otherwise than for the batch before, each with what it was and what it is."""
    old, new = ({"order": p.get("order"), **p.get("placement", {})} for p in (before, now))
    return {name: [old[name], new[name]] for name in DECIDED if old.get(name) and old[name] != new.get(name, old[name])}


def _orders(plan: BatchPlan, origin: int) -> list[list[str]]:
    """Return the orders in which a stream's tuples probe the others, one for each class of them."""
    return [[plan.query.streams[step.target].name for step in course] for course in plan.courses(origin, plan.query)]


def _hops(plan: BatchPlan, tasks: Sequence[TaskReport]) -> list[dict[str, int]]:
    hops = range(1, len(plan.query.streams))
    work = [[part for task in tasks for (joined, _), part in task.hops.items() if len(joined) == at] for at in hops]
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
