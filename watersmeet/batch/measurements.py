"""Running statistics: the work of hops and nodes, and the cost of sending rows and starting tasks, smoothed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from watersmeet.batch.plan import BatchPlan, Host
from watersmeet.batch.report import TaskReport
from watersmeet.cost.cost_model import start_seconds
from watersmeet.cost.load import smooth, smooth_usage
from watersmeet.cost.parameters import BatchWork
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.work import HopWork
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.manifest.view import HopView, RunningStatistics, Shipping, Usage


def update_statistics(
    before: RunningStatistics,
    plan: BatchPlan,
    tasks: Sequence[TaskReport],
    used: Sequence[Usage],
    host: Host,
    took: float | None,
) -> RunningStatistics:
    """Return the statistics after a batch; those of nodes and hops stay as they were if no tuple made a hop.

    Args:
        before: The statistics before it.
        plan: The batch's plan.
        tasks: What its tasks reported.
        used: What each node used; see `usage`.
        host: Where the batch ran.
        took: How long its job took, in seconds; None if unknown.
    """
    hops = hop_work(tasks)
    hopped = any(work.rows_in for work in hops.values())
    return replace(
        before,
        usage=tuple(smooth_usage(before.usage, used)) if hopped else before.usage,
        hops=tuple(smooth_hops(before.hops, hops)) if hopped else before.hops,
        shipping=_smooth_shipping(before.shipping, tasks),
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


def smooth_hops(before: Sequence[HopView], now: Mapping[Hop, HopWork]) -> list[HopView]:
    """Return the smoothed work of hops after a batch; that of a hop which no tuple makes any more decays."""
    old = {(hop.joined, hop.target): hop for hop in before}
    new = {hop: HopView(*hop, work.rows_in, work.pairs, work.matches) for hop, work in now.items()}
    return [_smooth_hop(old.get(hop), new.get(hop, HopView(*hop))) for hop in old | new]


def _smooth_shipping(before: Shipping | None, tasks: Sequence[TaskReport]) -> Shipping:
    """Return the seconds spent on sending rows and the number of rows, per batch, smoothed."""
    rows = sum(work.shuffled for task in tasks for work in task.work.hops.values())
    now = Shipping(sum(task.work.shipping for task in tasks), float(rows))
    return Shipping(*(smooth(was, new) for was, new in zip(before or now, now, strict=True)))


def _hop_seconds(
    before: float | None, plan: BatchPlan, used: Sequence[Usage], host: Host, took: float | None
) -> float | None:
    """Return the seconds that a hop takes beyond its work and the start of its tasks, smoothed.

    It stays as it was, perhaps None, if the time of the job (`took`, in seconds) or the host is unknown.
    """
    if took is None or host.slots is None or host.cores is None:
        return before
    work = max(max(node.cpu for node in used), sum(node.cpu for node in used) / host.slots)
    starting = start_seconds(plan.placement.nodes, plan.stages, host.cores)
    now = max(0.0, took - work - starting) / (plan.stages + 1)
    return smooth(before, now)


def _smooth_hop(old: HopView | None, new: HopView) -> HopView:
    if old is None:
        return new
    means = (smooth(getattr(old, name), getattr(new, name)) for name in ("rows", "pairs", "matches"))
    return HopView(new.joined, new.target, *means)


def usage(plan: BatchPlan, chunks: Iterable[Chunk], tasks: Sequence[TaskReport]) -> list[Usage]:
    """Return what each node used; a task's CPU time is split among nodes by the pairs that it probed for each.

    Args:
        plan: The batch's plan.
        chunks: The chunks after the batch; each counts for every owner.
        tasks: What the batch's tasks reported.
    """
    nodes = range(plan.placement.nodes)
    cpu, network = [0.0] * len(nodes), [0.0] * len(nodes)
    memory = sum_by_owner((chunk.owners, chunk.bytes) for chunk in chunks)
    for task in tasks:
        network[task.node] += sum(work.shuffled for work in task.work.hops.values())
        busy = _busy_seconds(task)
        pairs = task.work.node_pairs if sum(task.work.node_pairs.values()) else {task.node: 1}
        for node, probed in pairs.items():
            cpu[node] += busy * probed / sum(pairs.values())
    return [Usage(cpu[node], float(memory.get(node, 0)), network[node]) for node in nodes]


def _busy_seconds(task: TaskReport) -> float:
    """Return the seconds that a task spent on the CPU, or waiting for predicates if that was longer."""
    return max(task.work.seconds, sum(cost.seconds for cost in task.work.costs.values()))


def batch_work(tasks: Sequence[TaskReport], tuples: int) -> BatchWork:
    """Return the work of a batch, given its number of new tuples."""
    pairs = sum(work.pairs for work in hop_work(tasks).values())
    return BatchWork(sum(map(_busy_seconds, tasks)), tuples, pairs)


def sum_by_owner(amounts: Iterable[tuple[tuple[int, ...], int]]) -> Mapping[int, int]:
    """Return the sum for each owner of amounts that have several; it is fast if many have the same owners."""
    by_owners: dict[tuple[int, ...], int] = defaultdict(int)
    for owners, amount in amounts:
        by_owners[owners] += amount
    return sum_counts(dict.fromkeys(owners, amount) for owners, amount in by_owners.items())


def sum_counts(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the sums of counts, key by key."""
    totals: dict[int, int] = defaultdict(int)
    for count in counts:
        for key, value in count.items():
            totals[key] += value
    return totals
