"""The cost of a join under each strategy, in micro-batches: the papers' equations, plus the cost of starting tasks.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), equations 2-4, for ATR and
CTR; `watersmeet.cost.equations` for PSP.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf, isinf, sqrt

from watersmeet.cost.equations import atr_overhead, ctr_overhead
from watersmeet.cost.parameters import Parameters

TASK_SECONDS = 5e-3
"""The driver's seconds per task."""
START_SECONDS = 0.06
"""Seconds to start a task where it runs, in parallel as far as there are cores."""

Weights = tuple[float, float, float]
EQUAL: Weights = (1, 1, 1)
"""CPU, memory and network count the same."""


@dataclass(frozen=True, slots=True)
class StrategyCost:
    """The cost of a strategy for a second of event time.

    Attributes:
        compute: CPU seconds of joining, on all nodes together.
        stored_tuples: Tuples stored, including copies.
        sent_rows: Rows sent.
        share: The part of all costs that falls to the busiest node.
        nodes: How many nodes there are.
        stages: How many hops of a batch are stages of tasks of their own.
    """

    compute: float
    stored_tuples: float
    sent_rows: float
    share: float
    nodes: int
    stages: int

    def __str__(self) -> str:
        """Return the cost in words: work, stored tuples, sent rows, the busiest node's share and a batch's tasks."""
        return (
            f"{self.compute:.3g} s of joining, {self.stored_tuples:.3g} tuples stored and {self.sent_rows:.3g} rows "
            f"sent a second, {self.share:.0%} of it on the busiest node, "
            f"{self.tasks} task{'s' * (self.tasks != 1)} a batch"
        )

    @property
    def tasks(self) -> int:
        """The number of tasks that probe in a batch."""
        return self.nodes * self.stages

    def load(self, p: Parameters, weights: Weights = EQUAL) -> float:
        """Return the seconds of the busiest node for a second of event time.

        Tasks that share their state also share the work, whatever the nodes.

        Args:
            p: The parameters that the cost comes from.
            weights: What CPU, memory and network count, as in equation 1 of the paper on ATR and CTR.
        """
        cpu, memory, network = weights
        storing = self.stored_tuples * (p.insert_seconds + p.purge_seconds)
        busy = cpu * self.compute + memory * storing + network * self.sent_rows * p.row_seconds
        return busy * (max(self.share, 1 / p.slots) if not p.shared else 1 if isinf(p.slots) else 1 / p.slots)

    def seconds(self, p: Parameters, weights: Weights = EQUAL) -> float:
        """Return the seconds to process a second of event time: the busiest node's, and those between stages.

        Args:
            p: The parameters that the cost comes from.
            weights: As for `load`.
        """
        if p.shared:
            return self.load(p, weights)
        between = (1 + self.stages) * p.hop_seconds + start_seconds(
            self.nodes, self.stages, p.cores
        )  # intake comes first
        return self.load(p, weights) + between / p.advance


def start_seconds(nodes: int, stages: int, cores: float) -> float:
    """Return the seconds that it takes to start the tasks of a batch, for each stage one on each node.

    >>> round(start_seconds(4, 2, cores=2), 2)
    0.28
    """
    return stages * (nodes * TASK_SECONDS + max(1.0, nodes / cores) * START_SECONDS)


def central_cost(p: Parameters) -> StrategyCost:
    """Return the cost on one node."""
    return StrategyCost(sum(p.work), sum(p.rates), sum(p.rates), 1.0, 1, 1)


def psp_cost(p: Parameters, nodes: int) -> StrategyCost:
    """Return the cost on a ring, whose borders divide the work evenly if a batch is like the last; the first has none.

    A batch's probes reach from a window before it to its end; each visits the nodes that its own window is on.
    """
    if isinf(p.advance):
        return _sliced_cost(p, nodes, [nodes] * len(p.rates), [1.0] * len(p.rates))
    parts = [1.0 if isinf(window) else window / (window + p.advance) for window in p.windows]
    return _sliced_cost(p, nodes, [min(nodes, 1 + nodes * part) for part in parts], [1 / nodes] * len(parts))


def dsj_cost(p: Parameters, nodes: int) -> StrategyCost:
    """Return the cost with shared slices, one per node: streams with shorter windows are on fewer nodes.

    A window that begins anywhere in a slice touches one slice more than its length says.
    """
    slices = _slices_probed(p, nodes)
    reach, busy = [min(nodes, each + 1) for each in slices], [min(nodes, max(1.0, each)) for each in slices]
    return _sliced_cost(p, nodes, reach, [1 / each for each in busy])


def atr_cost(p: Parameters, nodes: int, master: int, segment: float) -> StrategyCost:
    """Return the cost with a master cut into segments: equation 2's extra tuples are stored, and sent once.

    All of a result is on one node, so a batch keeps only those nodes busy whose segments contain its tuples and the
    master's tuples within their reach.

    Args:
        p: The parameters; orders of other streams should begin with the master.
        nodes: How many nodes there are.
        master: The master stream.
        segment: The segment length in seconds (T).
    """
    stored_tuples = sum(p.rates) + atr_extra(p, nodes, master, segment)
    window = min(p.windows[master], nodes * segment)
    spread = [min(nodes, 1 + (p.advance + (0 if at == master else window)) / segment) for at in p.streams]
    busiest = sum(work / over for work, over in zip(p.work, spread, strict=True))
    return StrategyCost(
        sum(p.work), stored_tuples, stored_tuples, _busiest_share(busiest, sum(p.work), nodes), nodes, 1
    )


def atr_extra(p: Parameters, nodes: int, master: int, segment: float) -> float:
    """Return O_ATR of equation 2: extra tuples a second; a tuple has no more copies than there are nodes."""
    return atr_overhead(p.rates, p.windows, segment, master, nodes)


def best_master(p: Parameters, nodes: int, segment: float) -> int:
    """Return the master with the least overhead, as ATR chooses it."""
    return min(p.streams, key=lambda master: atr_extra(p, nodes, master, segment))


def ctr_cost(p: Parameters, nodes: int) -> StrategyCost:
    """Return the cost with a routing table: tuples stored on their first hop's nodes, equation 4's extra rows sent.

    The size of covers is estimated (`cover_sizes`); the nodes that hold the window do the work.
    """
    first, new = cover_sizes(nodes)
    sent_rows = sum(p.rates) + ctr_extra(p, first, new)
    return StrategyCost(sum(p.work), first * sum(p.rates), sent_rows, 1 / first, nodes, _stages(p, nodes))


def ctr_extra(p: Parameters, first: int, new: int) -> float:
    """Return O_CTR of equation 4: the extra rows a second, by equation 3 for each stream's tuples.

    Args:
        p: The parameters.
        first: How many nodes the first hop visits (|V_1|).
        new: How many nodes each later hop visits that the one before did not (|V'_k|).
    """
    matches = (
        (rate, [p.window_rows[to] * s for to, s in zip(p.orders[at], p.selectivities[at], strict=True)][:-1])
        for at, rate in enumerate(p.rates)
    )
    return sum(ctr_overhead(rate, first, [new] * len(each), each) for rate, each in matches)


def cover_sizes(nodes: int) -> tuple[int, int]:
    """Return how many nodes cover a window (|V_k|), and how many of them the hop before did not visit (|V'_k|).

    With c copies of each segment N / c nodes hold a window at best, and a segment has as many copies as V_1 has nodes,
    so both converge to √N. One node of a cover is assumed to be of the hop before.

    >>> cover_sizes(9)
    (3, 2)
    """
    first = ceil(sqrt(nodes))
    return first, first - 1


def hash_cost(p: Parameters, nodes: int, copies: Sequence[int], shared: bool) -> StrategyCost:
    """Return the cost by hash: a probe looks into one of N buckets, and each row is sent once per hop.

    Where tasks share their state, buckets save no work.

    Args:
        p: The parameters.
        nodes: How many nodes there are.
        copies: How many attributes each stream is stored by.
        shared: Whether one attribute ties all streams, which puts all hops on one node.
    """
    stored_tuples = sum(rate * max(1, times) for rate, times in zip(p.rates, copies, strict=True))
    later = 0.0 if shared or nodes == 1 else sum(p.probes) - sum(p.rates)
    stages = 1 if shared else _stages(p, nodes)
    buckets = 1 if p.shared else nodes  # tasks with shared state find values in sorted columns, with or without buckets
    return StrategyCost(sum(p.work) / buckets, stored_tuples, stored_tuples + later, 1 / nodes, nodes, stages)


def _stages(p: Parameters, nodes: int) -> int:
    """Return the number of hops that are stages of their own: all of them, unless there is only one node."""
    return 1 if nodes == 1 else len(p.rates) - 1


def _busiest_share(busiest: float, total: float, nodes: int) -> float:
    return busiest / total if total else 1 / nodes


def _sliced_cost(p: Parameters, nodes: int, reach: Iterable[float], share: Iterable[float]) -> StrategyCost:
    """Return the cost of slices of time, each on one node.

    Args:
        p: The parameters.
        nodes: How many nodes there are.
        reach: For each stream the nodes that a probe of it visits.
        share: For each stream the part of these probes' work that falls to the busiest node.
    """
    busiest = sum(work * part for work, part in zip(p.probing, share, strict=True))
    sent_rows = (
        sum(rows * visited for rows, visited in zip(p.probes, reach, strict=True)) if nodes > 1 else sum(p.rates)
    )
    work = sum(p.work)
    return StrategyCost(work, sum(p.rates), sent_rows, _busiest_share(busiest, work, nodes), nodes, _stages(p, nodes))


def _slices_probed(p: Parameters, nodes: int) -> list[float]:
    """Return how many shared slices a batch's probes of each stream reach; all, if time sets no limit."""
    longest = max((p.span(at) for at in p.streams if not isinf(p.span(at))), default=inf)
    if isinf(longest) or not longest or isinf(p.advance):
        return [float(nodes)] * len(p.rates)
    return [nodes * (window + p.advance) / longest for window in p.windows]
