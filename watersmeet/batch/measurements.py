"""What a batch teaches the next: the work of hops and nodes, what sending and starting took; smoothed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from watersmeet.batch.plan import BatchPlan, Host
from watersmeet.batch.report import TaskReport
from watersmeet.cost.load import smooth, smooth_usage
from watersmeet.cost.parameters import BatchWork
from watersmeet.cost.strategy_costs import start_seconds
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.work import HopWork
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.manifest.view import HopView, RunningStatistics, Shipping, Usage


def measured(
    before: RunningStatistics,
    plan: BatchPlan,
    tasks: Sequence[TaskReport],
    used: Sequence[Usage],
    host: Host,
    took: float | None,
) -> RunningStatistics:
    """Return what is known after a batch of the work that a join is.

    Args:
        before: What was known before.
        plan: The batch's plan.
        tasks: What its tasks reported.
        used: What each node used, see `usage`.
        host: Where it ran.
        took: How long its job took, in seconds, if that is known.
    """
    hops = hop_work(tasks)
    hopped = any(work.rows_in for work in hops.values())
    return replace(
        before,
        usage=tuple(smooth_usage(before.usage, used)) if hopped else before.usage,
        hops=tuple(hops_seen(before.hops, hops)) if hopped else before.hops,
        shipping=_shipped(before.shipping, tasks),
        hop_seconds=_hop_seconds(before.hop_seconds, plan, used, host, took),
        tasks=sum(task.work.tasks for task in tasks),
    )


def hop_work(tasks: Iterable[TaskReport]) -> dict[Hop, HopWork]:
    """Return the work of each hop, on all nodes together."""
    hops: dict[Hop, HopWork] = defaultdict(HopWork)
    for task in tasks:
        for hop, work in task.work.hops.items():
            hops[hop].add(work)
    return hops


def hops_seen(before: Sequence[HopView], now: Mapping[Hop, HopWork]) -> list[HopView]:
    """Return what to remember of the hops after a batch; of one that no tuple took less and less, as of the usage."""
    known = {(hop.joined, hop.target): hop for hop in before}
    seen = {hop: HopView(*hop, work.rows_in, work.pairs, work.matches) for hop, work in now.items()}
    return [_between(known.get(hop), seen.get(hop, HopView(*hop))) for hop in known | seen]


def _shipped(before: Shipping | None, tasks: Sequence[TaskReport]) -> Shipping:
    """Return the seconds that it took to send rows, and how many rows: a batch on average, smoothed."""
    rows = sum(work.shuffled for task in tasks for work in task.work.hops.values())
    now = Shipping(sum(task.work.shipping for task in tasks), float(rows))
    return Shipping(*(smooth(was, new) for was, new in zip(before or now, now, strict=True)))


def _hop_seconds(
    before: float | None, plan: BatchPlan, used: Sequence[Usage], host: Host, took: float | None
) -> float | None:
    """Return how long a hop took beside its work and the start of its tasks, smoothed; None if that isn't known."""
    if took is None or host.slots is None or host.cores is None:
        return before
    work = max(max(node.cpu for node in used), sum(node.cpu for node in used) / host.slots)
    begun = start_seconds(plan.placement.nodes, plan.stages, host.cores)
    now = max(0.0, took - work - begun) / (plan.stages + 1)
    return smooth(before, now)


def _between(old: HopView | None, new: HopView) -> HopView:
    if old is None:
        return new
    means = (smooth(getattr(old, name), getattr(new, name)) for name in ("rows", "pairs", "matches"))
    return HopView(new.joined, new.target, *means)


def usage(plan: BatchPlan, chunks: Iterable[Chunk], tasks: Sequence[TaskReport]) -> list[Usage]:
    """Return what each node used; a task's CPU goes to the nodes for which it looked at pairs, by their number."""
    nodes = range(plan.placement.nodes)
    cpu, network = [0.0] * len(nodes), [0.0] * len(nodes)
    memory = held((chunk.owners, chunk.bytes) for chunk in chunks)
    for task in tasks:
        network[task.node] += sum(work.shuffled for work in task.work.hops.values())
        busy = _busy(task)
        pairs = task.work.node_pairs if sum(task.work.node_pairs.values()) else {task.node: 1}
        for node, looked_at in pairs.items():
            cpu[node] += busy * looked_at / sum(pairs.values())
    return [Usage(cpu[node], float(memory.get(node, 0)), network[node]) for node in nodes]


def _busy(task: TaskReport) -> float:
    """Return the seconds that a task worked or waited for predicates."""
    return max(task.work.seconds, sum(cost.seconds for cost in task.work.costs.values()))


def batch_work(tasks: Sequence[TaskReport], tuples: int) -> BatchWork:
    """Return what a batch of so many new tuples did."""
    pairs = sum(work.pairs for work in hop_work(tasks).values())
    return BatchWork(sum(map(_busy, tasks)), tuples, pairs)


def held(amounts: Iterable[tuple[tuple[int, ...], int]]) -> Mapping[int, int]:
    """Return how much each node holds of what several may own; many chunks have the same owners."""
    together: dict[tuple[int, ...], int] = defaultdict(int)
    for owners, amount in amounts:
        together[owners] += amount
    return added(dict.fromkeys(owners, amount) for owners, amount in together.items())


def added(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the sums of counts, key by key."""
    totals: dict[int, int] = defaultdict(int)
    for count in counts:
        for key, value in count.items():
            totals[key] += value
    return totals
