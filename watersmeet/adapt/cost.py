"""What a join costs under each strategy, by the papers' equations: pure functions of a few measured numbers.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 5, equations
1-6, here for streams that differ in rate, window and selectivity. Gu, Yu and Wang, "Adaptive Load Diffusion for
Multiway Windowed Stream Joins" (ICDE 2007), equations 2-4.

Equation 1 as printed counts the time T_j for each match. Equation 2 follows from it only if T_j counts for each pair
looked at, as Table 1 says, so that is what is done here; then equation 2 is exact but for T_i and T_p.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, isinf, sqrt
from typing import Literal

import numpy as np

from watersmeet.errors import DefinitionError
from watersmeet.placement.atr import overhead as atr_overhead
from watersmeet.placement.base import StateView
from watersmeet.placement.ctr import becomes
from watersmeet.placement.ctr import overhead as ctr_overhead
from watersmeet.placement.load import ROW_SECONDS

PAIR_SECONDS, PAIRS = 1e-6, 1_000
"""T_j before anything is known, and how many measured pairs weigh as much as it.

It lies between a comparison of numbers (a few nanoseconds) and one of images (a tenth of a millisecond).
"""
KEEP_SECONDS = 1e-6
"""T_i and T_p: to write a tuple into the state, and to purge it."""
HOP_SECONDS = 0.05
"""T_n before anything is known: how long a hop takes beside its work, which in micro-batches is a stage of tasks."""
TASK_SECONDS = 5e-3
"""What each task costs the driver."""
START_SECONDS, START_CPU = 0.08, 0.02
"""To start a task where it runs, in parallel as far as there are cores; and what of it is the task's own CPU time."""
RATE = 1_000.0
"""Tuples a second before anything is known: rather many, since a first batch may be a whole history."""
UNLIMITED = 3_600.0
"""Seconds of tuples that a stream without limit in time is taken to hold before anything is known."""
ROW_BYTES = 100.0
"""Bytes of a tuple before anything is known."""
INSTANT = 1e-6
"""How far event time advances at the least, in seconds: its resolution."""

Goal = Literal["throughput", "latency"]
Weights = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Table 1 of the paper on PSP, for streams that differ.

    Attributes:
        rates: The tuples a second of each stream (λ_i).
        windows: The window of each stream in seconds (W_i); infinite where time sets no limit.
        orders: For each stream the streams that its tuples probe, in order.
        selectivities: For each stream and step of its order the part of the pairs that match.
        kept: The tuples held of each stream, which count where the window is infinite.
        spans: For how many seconds the tuples of each stream are kept, delay included; if empty, their window.
        pair_seconds: To join a pair (T_j).
        insert_seconds: To insert a tuple into the state (T_i).
        purge_seconds: To purge it (T_p).
        row_seconds: To send a row and receive it (T_s); next to nothing where tasks share their state.
        hop_seconds: How long a hop to the next node takes beside its work (T_n).
        advance: How far event time advances in a batch, in seconds; infinite if a batch may be a whole history.
        row_bytes: The bytes of a row.
        slots: How many nodes' tasks run at once.
        cores: How many of them have a core.
        become: For each stream what a tuple has become before each step, and after the last: 1, λWS, (λWS)², ...
    """

    rates: tuple[float, ...]
    windows: tuple[float, ...]
    orders: tuple[tuple[int, ...], ...]
    selectivities: tuple[tuple[float, ...], ...]
    kept: tuple[float, ...] = ()
    spans: tuple[float, ...] = ()
    pair_seconds: float = PAIR_SECONDS
    insert_seconds: float = KEEP_SECONDS
    purge_seconds: float = KEEP_SECONDS
    row_seconds: float = ROW_SECONDS
    hop_seconds: float = HOP_SECONDS
    advance: float = 1.0
    row_bytes: float = ROW_BYTES
    slots: float = inf
    cores: float = inf
    become: tuple[tuple[float, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        m = len(self.rates)
        each = (self.windows, self.orders, self.selectivities, self.kept or self.rates, self.spans or self.rates)
        steps = [*self.orders, *self.selectivities]
        if m < 2 or any(len(values) != m for values in each) or any(len(step) != m - 1 for step in steps):
            raise DefinitionError(f"A cost model of {m} streams needs {m} of each value, and {m - 1} steps a stream.")
        object.__setattr__(self, "become", tuple(map(self._become, self.streams)))

    def _become(self, origin: int) -> tuple[float, ...]:
        found = [1.0]
        for target, matching in zip(self.orders[origin], self.selectivities[origin], strict=True):
            found.append(found[-1] * self.held(target) * matching)
        return tuple(found)

    @property
    def streams(self) -> range:
        """The streams; there are M of them."""
        return range(len(self.rates))

    def held(self, stream: int) -> float:
        """Return the tuples that a window holds: λ_i W_i, or all that is kept where time sets no limit."""
        if not isinf(self.windows[stream]):
            return self.rates[stream] * self.windows[stream]
        return self.kept[stream] if self.kept else 0.0

    def span(self, stream: int) -> float:
        """Return for how long tuples are kept."""
        return self.spans[stream] if self.spans else self.windows[stream]


def alike(streams: int, rate: float, window: float, matching: float) -> Parameters:
    """Return the simplified case of section 5.1: M streams of one rate, window and selectivity.

    >>> alike(3, 100, 10, 0.01).orders
    ((1, 2), (0, 2), (0, 1))
    """
    orders = tuple(tuple(to for to in range(streams) if to != origin) for origin in range(streams))
    steps = ((matching,) * (streams - 1),) * streams
    return Parameters((rate,) * streams, (window,) * streams, orders, steps)


def at_rates(p: Parameters, rates: Sequence[float], counted: Container[int] = ()) -> Parameters:
    """Return the parameters at other rates; selectivities are parts of pairs and stay.

    Args:
        p: The parameters.
        rates: The tuples a second of each stream.
        counted: The streams that keep a number of tuples, whatever their rate.
    """
    changes = [1.0 if at in counted or not p.rates[at] else rate / p.rates[at] for at, rate in enumerate(rates)]
    return replace(p, rates=tuple(rates), kept=tuple(k * change for k, change in zip(p.kept, changes, strict=False)))


def scaled(p: Parameters, factor: float, counted: Container[int] = ()) -> Parameters:
    """Return the parameters at a multiple of all rates.

    >>> scaled(alike(2, 100, 10, 0.01), 5).held(1)
    5000
    """
    return at_rates(p, [factor * rate for rate in p.rates], counted)


def filled(p: Parameters, seconds: float) -> Parameters:
    """Return the parameters with windows full, where they were measured after the streams had run for some seconds.

    Until then a window held only a part of λW, so that more of it matched than was measured.
    """
    parts = [1.0 if isinf(window) else min(1.0, seconds / window) for window in p.windows]
    selectivities = (
        tuple(matching / parts[to] for to, matching in zip(order, steps, strict=True))
        for order, steps in zip(p.orders, p.selectivities, strict=True)
    )
    return replace(p, selectivities=tuple(selectivities))


# -- one tuple


def pairs(p: Parameters, origin: int) -> list[float]:
    """Return the pairs that a tuple of a stream, and what it becomes, looks at in each step."""
    return [each * p.held(to) for each, to in zip(p.become[origin], p.orders[origin], strict=False)]


def central_work(p: Parameters, origin: int) -> float:
    """Return L_C of equation 1: the seconds that a tuple takes on one node."""
    return p.insert_seconds + p.purge_seconds + p.pair_seconds * sum(pairs(p, origin))


def ring_work(p: Parameters, origin: int, nodes: int) -> float:
    """Return L_PSP of equation 1: the seconds that a tuple takes of all nodes of a ring together."""
    return nodes * head_work(p, origin, every(p, nodes))


def head_work(p: Parameters, origin: int, lengths: Sequence[int]) -> float:
    """Return the seconds that a tuple takes of the head, the one node that is on the rings of all streams.

    That is equation 1 for rings of different lengths: a row is sent to each node of the ring of the stream that it
    probes, and meets there that node's part of the stream.

    Args:
        p: The parameters.
        origin: The tuple's stream.
        lengths: The length of each stream's ring.
    """
    kept = (p.insert_seconds + p.purge_seconds) / lengths[origin]
    looked_at = sum(each / lengths[to] for each, to in zip(pairs(p, origin), p.orders[origin], strict=True))
    return kept + p.pair_seconds * looked_at + p.row_seconds * sum(p.become[origin][:-1])


def every(p: Parameters, nodes: int) -> tuple[int, ...]:
    """Return the lengths of rings that are all alike."""
    return (nodes,) * len(p.rates)


def ring_factor(p: Parameters, nodes: int) -> float:
    """Return L_PSP / L_C by equation 2, which holds for streams that are all alike."""
    return 1 + p.row_seconds * nodes / (p.held(0) * p.pair_seconds)


def average(p: Parameters, of: Callable[[int], float]) -> float:
    """Return what a function of the stream is for a tuple on average."""
    total = sum(p.rates)
    return sum(rate * of(origin) for origin, rate in enumerate(p.rates)) / total if total else 0.0


def result_rate(p: Parameters) -> float:
    """Return the results a second at the rates given."""
    return sum(rate * p.become[origin][-1] for origin, rate in enumerate(p.rates))


# -- a ring of N nodes


def service_rate(p: Parameters, nodes: int) -> float:
    """Return μ of equation 3: the tuples a second of one node's time."""
    return 1 / average(p, lambda origin: ring_work(p, origin, nodes))


def output_rate(p: Parameters, nodes: int) -> float:
    """Return O_PSP of equation 4: the results a second while all nodes are busy; it rises with every node."""
    return nodes * average(p, lambda origin: p.become[origin][-1]) * service_rate(p, nodes)


def latency(p: Parameters, nodes: int) -> float:
    """Return τ of equation 5: the seconds from a tuple to its results, on average; T_i and T_p are left out of it."""
    return ring_latency(p, every(p, nodes))


def ring_latency(p: Parameters, lengths: Sequence[int]) -> float:
    """Return τ of equation 5 for rings of different lengths: a round for each, and the head as the busiest node."""
    lean = replace(p, insert_seconds=0.0, purge_seconds=0.0)
    work = average(p, lambda origin: head_work(lean, origin, lengths))
    return (max(lengths) - 1) / 2 * p.hop_seconds + max(work, sum(lengths) * p.hop_seconds)


def bandwidth(p: Parameters, nodes: int) -> float:
    """Return the bytes a second by equation 6 with which no node waits for rows."""
    busy = p.pair_seconds * min(p.held(stream) / nodes for stream in p.streams)
    return p.row_bytes / busy if busy else inf


def state_rows(p: Parameters) -> float:
    """Return the tuples that a ring of any length keeps, delay included; each is kept once (section 7)."""
    spans = [p.span(stream) for stream in p.streams]
    return sum(p.held(at) if isinf(span) else p.rates[at] * span for at, span in enumerate(spans))


def network_bytes(p: Parameters, nodes: int) -> float:
    """Return the bytes that tuples and partial results send round the ring in a second (section 4.3)."""
    rows = sum(rate * sum(p.become[origin][:-1]) for origin, rate in enumerate(p.rates))
    return nodes * rows * p.row_bytes


def best_nodes(p: Parameters, most: int, goal: Goal = "throughput", available: float = inf) -> int:
    """Return the ring's best length (section 5.2), the shortest of equals.

    Args:
        p: The parameters.
        most: The longest ring there may be.
        goal: Whether to maximise the output rate (equation 4) or to minimise the latency (equation 5).
        available: The bytes a second that the network has for it; a ring that needs more is left out (equation 6).
    """
    measure = {"throughput": lambda nodes: -output_rate(p, nodes), "latency": lambda nodes: latency(p, nodes)}[goal]
    enough = [nodes for nodes in range(1, most + 1) if isinf(available) or bandwidth(p, nodes) <= available]
    return min(enough or [1], key=measure)


def ring_lengths(p: Parameters, most: int, goal: Goal = "throughput") -> tuple[int, ...]:
    """Return a good length for the ring of each stream, by the heuristic of section 5.4.

    Streams of less weight λ_i W_i S̄_i come first; each is given its best length while those that are still to come are
    taken to have the same. Of equally good ones the shortest.

    Args:
        p: The parameters.
        most: The longest ring there may be.
        goal: Whether to relieve the busiest node (equation 4) or to minimise the latency (equation 5).
    """
    found: dict[int, int] = {}

    def measure(length: int) -> float:
        tried = [found.get(at, length) for at in p.streams]
        return ring_latency(p, tried) if goal == "latency" else average(p, lambda origin: head_work(p, origin, tried))

    for stream in sorted(p.streams, key=lambda at: p.held(at) * _selectivity(p, at)):
        found[stream] = min(range(1, most + 1), key=measure)
    return tuple(found[stream] for stream in p.streams)


def _selectivity(p: Parameters, stream: int) -> float:
    """Return S̄_i: the average selectivity of the steps in which a stream is probed."""
    steps = [
        matching
        for order, row in zip(p.orders, p.selectivities, strict=True)
        for to, matching in zip(order, row, strict=True)
        if to == stream
    ]
    return sum(steps) / len(steps)


# -- a second of event time under each strategy


@dataclass(frozen=True, slots=True)
class Cost:
    """What a strategy takes for a second of event time.

    Attributes:
        compute: CPU seconds of joining, on all nodes together.
        kept: Tuples stored, copies counted.
        shipped: Rows sent.
        share: The part of it all that falls to the busiest node.
        nodes: How many nodes there are.
        stages: How many hops of a batch are stages of tasks of their own.
    """

    compute: float
    kept: float
    shipped: float
    share: float
    nodes: int
    stages: int

    def __str__(self) -> str:
        return (
            f"{self.compute:.3g} s of joining, {self.kept:.3g} tuples stored and {self.shipped:.3g} rows sent "
            f"a second, {self.share:.0%} of it on the busiest node, {self.tasks} tasks a batch"
        )

    @property
    def tasks(self) -> int:
        """How many tasks probe in a batch."""
        return self.nodes * self.stages

    def seconds(self, p: Parameters, weights: Weights = (1, 1, 1)) -> float:
        """Return the seconds until a second of event time is dealt with: the busiest node's, and those between stages.

        Where no row has to be sent, tasks share their state and the work, whatever the nodes.

        Args:
            p: The parameters that the cost comes from.
            weights: What CPU, memory and network count, as in equation 1 of the paper on ATR and CTR.
        """
        keeping = self.kept * (p.insert_seconds + p.purge_seconds)
        parts = (self.compute, keeping, self.shipped * p.row_seconds)
        busy = sum(weight * part for weight, part in zip(weights, parts, strict=True))
        if not p.row_seconds:
            return busy / (1 if isinf(p.slots) else p.slots)
        between = (1 + self.stages) * p.hop_seconds + starting(self.nodes, self.stages, p.cores)  # intake comes first
        return busy * max(self.share, 1 / p.slots) + between / p.advance


def starting(nodes: int, stages: int, cores: float) -> float:
    """Return the seconds in which the tasks of a batch start.

    >>> starting(4, 2, cores=2)
    0.36
    """
    return stages * (nodes * TASK_SECONDS + max(1.0, nodes / cores) * START_SECONDS)


def central(p: Parameters) -> Cost:
    """Return the cost on one node."""
    return Cost(_compute(p), sum(p.rates), sum(p.rates), 1.0, 1, 1)


def psp(p: Parameters, nodes: int) -> Cost:
    """Return the cost on a ring, whose borders divide the work of a batch like the last; before the first are none.

    A batch's probes reach from a window before it to its end; one of them visits the nodes that its own window lies on.
    """

    def reach(stream: int) -> float:
        window = p.windows[stream]
        return nodes if isinf(window) or isinf(p.advance) else min(nodes, 1 + nodes * window / (window + p.advance))

    return _sliced(p, nodes, reach, lambda _: 1.0 if isinf(p.advance) else 1 / nodes)


def dsj(p: Parameters, nodes: int) -> Cost:
    """Return the cost with shared slices, one a node: streams of shorter windows lie on fewer nodes.

    A window that begins anywhere in a slice touches one slice more than its length says.
    """

    def reach(stream: int) -> float:
        return min(nodes, _slices(p, nodes, stream) + 1)

    def share(stream: int) -> float:
        return 1 / min(nodes, max(1.0, _slices(p, nodes, stream)))

    return _sliced(p, nodes, reach, share)


def atr(p: Parameters, nodes: int, master: int, segment: float) -> Cost:
    """Return the cost with a master cut into segments: equation 2's extra tuples are stored, and sent once.

    All of a result is found on one node, so that a batch keeps busy only the nodes whose segments its tuples, and the
    master's tuples within their reach, lie in.

    Args:
        p: The parameters; orders of other streams should begin with the master.
        nodes: How many nodes there are.
        master: The master stream.
        segment: The segment length in seconds (T).
    """
    stored = sum(p.rates) + atr_extra(p, nodes, master, segment)
    window = min(p.windows[master], nodes * segment)
    spread = [min(nodes, 1 + (p.advance + (0 if at == master else window)) / segment) for at in p.streams]
    work = [rate * p.pair_seconds * sum(pairs(p, origin)) for origin, rate in enumerate(p.rates)]
    busiest = sum(done / over for done, over in zip(work, spread, strict=True))
    return Cost(sum(work), stored, stored, _part(busiest, sum(work), nodes), nodes, 1)


def atr_extra(p: Parameters, nodes: int, master: int, segment: float) -> float:
    """Return O_ATR of equation 2: extra tuples a second; a tuple has no more copies than there are nodes."""
    windows = [None if isinf(window) else round(window * 1e6) for window in p.windows]
    return atr_overhead(p.rates, windows, max(1, round(segment * 1e6)), master, nodes)


def best_master(p: Parameters, nodes: int, segment: float) -> int:
    """Return the master with the least overhead, as ATR chooses it."""
    return min(p.streams, key=lambda master: atr_extra(p, nodes, master, segment))


def ctr(p: Parameters, nodes: int) -> Cost:
    """Return the cost with a routing table: tuples stored on their first hop's nodes, equation 4's extra rows sent.

    The size of covers is a guess (`covers`), and what holds the window is what works.
    """
    first, moved = covers(nodes)
    shipped = sum(p.rates) + ctr_extra(p, first, moved)
    return Cost(_compute(p), first * sum(p.rates), shipped, 1 / first, nodes, _stages(p, nodes))


def ctr_extra(p: Parameters, first: int, moved: int) -> float:
    """Return O_CTR of equation 4: the extra rows a second, by equation 3 for each stream's tuples.

    Args:
        p: The parameters.
        first: How many nodes the first hop visits (|V_1|).
        moved: How many nodes each later hop visits that the one before did not (|V'_k|).
    """
    found = (
        (rate, [p.held(to) * s for to, s in zip(p.orders[at], p.selectivities[at], strict=True)][:-1])
        for at, rate in enumerate(p.rates)
    )
    return sum(ctr_overhead(rate, first, [moved] * len(each), each) for rate, each in found)


def covers(nodes: int) -> tuple[int, int]:
    """Return how many nodes cover a window (|V_k|), and how many of them the hop before did not visit (|V'_k|).

    With c copies of each segment N / c nodes hold a window at best, and a segment has as many copies as V_1 has nodes:
    so both settle at √N. One node of a cover is taken to be of the hop before.

    >>> covers(9)
    (3, 2)
    """
    first = ceil(sqrt(nodes))
    return first, first - 1


def hashed(p: Parameters, nodes: int, copies: Sequence[int], shared: bool) -> Cost:
    """Return the cost by hash: a probe looks into one bucket of N, each row is sent once a hop.

    Args:
        p: The parameters.
        nodes: How many nodes there are.
        copies: By how many attributes each stream is stored.
        shared: Whether one attribute ties all streams, so that all hops are on one node.
    """
    stored = sum(rate * max(1, times) for rate, times in zip(p.rates, copies, strict=True))
    later = 0.0 if shared or nodes == 1 else _later(p, lambda _: 1.0)
    stages = 1 if shared else _stages(p, nodes)
    buckets = nodes if p.row_seconds else 1  # tasks that share their state find a value by its order, bucket or not
    return Cost(_compute(p) / buckets, stored, stored + later, 1 / nodes, nodes, stages)


def _compute(p: Parameters) -> float:
    return p.pair_seconds * sum(rate * sum(pairs(p, origin)) for origin, rate in enumerate(p.rates))


def _stages(p: Parameters, nodes: int) -> int:
    """Return the hops that are stages of their own: all, but on one node."""
    return 1 if nodes == 1 else len(p.rates) - 1


def _part(busiest: float, total: float, nodes: int) -> float:
    return busiest / total if total else 1 / nodes


def _sliced(p: Parameters, nodes: int, reach: Callable[[int], float], share: Callable[[int], float]) -> Cost:
    """Return the cost of slices of time, each on one node.

    Args:
        p: The parameters.
        nodes: How many nodes there are.
        reach: The nodes that a probe of a stream visits.
        share: The part of such probes' work that falls to the busiest node.
    """
    busiest = sum(rate * work * share(to) for rate, to, work in _hops(p)) * p.pair_seconds
    first = sum(rate * reach(p.orders[origin][0]) for origin, rate in enumerate(p.rates))
    shipped = first + (0.0 if nodes == 1 else _later(p, reach))
    work = _compute(p)
    return Cost(work, sum(p.rates), shipped, _part(busiest, work, nodes), nodes, _stages(p, nodes))


def _hops(p: Parameters) -> Iterator[tuple[float, int, float]]:
    """Yield for each stream and step its tuples' rate, the stream probed and the pairs that one tuple leads to."""
    for origin, rate in enumerate(p.rates):
        for to, work in zip(p.orders[origin], pairs(p, origin), strict=True):
            yield rate, to, work


def _later(p: Parameters, reach: Callable[[int], float]) -> float:
    """Return the partial results a second that travel to all steps but the first."""
    return sum(
        rate * each * reach(to)
        for origin, rate in enumerate(p.rates)
        for each, to in list(zip(p.become[origin], p.orders[origin], strict=False))[1:]
    )


def _slices(p: Parameters, nodes: int, stream: int) -> float:
    """Return over how many shared slices a batch's probes of a stream go."""
    longest = max((p.span(at) for at in p.streams if not isinf(p.span(at))), default=inf)
    if isinf(longest) or not longest or isinf(p.advance):
        return float(nodes)
    return nodes * (p.windows[stream] + p.advance) / longest


# -- what a running join measured


def known(state: StateView) -> bool:
    """Tell whether a batch has been measured, so that costs are more than guesses."""
    return any(stream.latest is not None for stream in state.streams) and any(hop.rows for hop in state.hops)


def measured(state: StateView, master: int | None = None) -> Parameters:
    """Return the parameters as the last batches measured them; what isn't known yet is as the constants above say.

    Args:
        state: What is known of the join.
        master: A stream that all others are to probe first, as under ATR.
    """
    machine = state.machine
    begun = any(stream.latest is not None for stream in state.streams)
    each, first = state.column("rows"), state.column("bucket.first") > 0
    rows = np.bincount(state.column("stream")[first], each[first], len(state.streams)).tolist()
    size = int(state.column("bytes").sum())
    bare = Parameters(
        rates=tuple((stream.rate or float(stream.rows)) if begun else RATE for stream in state.streams),
        windows=tuple(_seconds(stream.window) for stream in state.streams),
        orders=tuple(tuple(at for at in range(len(rows)) if at != origin) for origin in range(len(rows))),
        selectivities=((1.0,) * (len(rows) - 1),) * len(rows),
        kept=tuple(float(held) if begun else RATE * UNLIMITED for held in rows),
        spans=tuple(_seconds(stream.span) for stream in state.streams),
        pair_seconds=_pair_seconds(state),
        row_seconds=ROW_SECONDS if machine.row_seconds is None else machine.row_seconds,
        hop_seconds=HOP_SECONDS if machine.hop_seconds is None else machine.hop_seconds,
        slots=machine.slots,
        cores=machine.cores,
        advance=max(INSTANT, *(stream.advance / 1e6 for stream in state.streams)) if begun else inf,
        row_bytes=size / int(each.sum()) if size else ROW_BYTES,
    )
    return _ordered(bare, state, master)


def _seconds(time: int | None) -> float:
    return inf if time is None else time / 1e6


def _pair_seconds(state: StateView) -> float:
    """Return T_j: the CPU time of the last batches, less what tuples took to keep, by the pairs they looked at."""
    spent, looked_at = sum(used.cpu for used in state.usage), sum(hop.pairs for hop in state.hops)
    if not spent:
        return PAIR_SECONDS
    joining = max(
        0.0, spent - START_CPU * state.machine.tasks - 2 * KEEP_SECONDS * sum(stream.rows for stream in state.streams)
    )
    return (PAIRS * PAIR_SECONDS + joining) / (PAIRS + looked_at)


def _ordered(p: Parameters, state: StateView, master: int | None) -> Parameters:
    """Return the parameters with the orders that tuples took, or else would best take, and their selectivities."""
    courses = [list(_course(p, state, origin, None if master == origin else master)) for origin in p.streams]
    return replace(
        p,
        orders=tuple(tuple(to for to, _ in course) for course in courses),
        # More than 1 where a window holds more than λW: what a partial result becomes is measured, λW is a model.
        selectivities=tuple(
            tuple(found / p.held(to) if p.held(to) else 0.0 for to, found in course) for course in courses
        ),
    )


def _course(p: Parameters, state: StateView, origin: int, first: int | None) -> Iterator[tuple[int, float]]:
    """Yield the streams that tuples of a stream probe, and what one partial result becomes by each.

    The next stream is the one that most went to in the last batches, else the one that finds the least.
    """
    seen = {(hop.joined, hop.target): hop for hop in state.hops if hop.rows}
    joined = frozenset({origin})
    while len(joined) < len(p.rates):
        key = tuple(sorted(joined))
        hops = {to: seen.get((key, to)) for to in p.streams if to not in joined}
        found = {to: becomes(state, joined, to, p.held(to)) for to in hops}
        taken = {to: hop.rows for to, hop in hops.items() if hop is not None}
        likely = max(taken, key=lambda to: taken[to]) if taken else min(found, key=lambda to: found[to])
        to = likely if first is None or first in joined else first
        yield to, found[to]
        joined |= {to}
