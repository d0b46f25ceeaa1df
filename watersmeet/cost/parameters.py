"""The parameters of the cost models, Table 1 of the paper on PSP: as given, at other rates, as a join measured them.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 5.1.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isinf

import numpy as np

from watersmeet.cost.load import ROW_SECONDS
from watersmeet.cost.pace import Pace
from watersmeet.errors import DefinitionError
from watersmeet.state.manifest.view import StateView, StreamView

PAIR_SECONDS, PAIRS = 1e-6, 1_000
"""T_j before anything is known, and how many measured pairs weigh as much as it.

It lies between a comparison of numbers (a few nanoseconds) and one of images (a tenth of a millisecond).
"""
KEEP_SECONDS = 1e-6
"""T_i and T_p: to write a tuple into the state, and to purge it."""
HOP_SECONDS = 0.05
"""T_n before anything is known: how long a hop takes beside its work, which in micro-batches is a stage of tasks."""
START_CPU = 0.02
"""The CPU time that it takes a task to start."""
RATE = 1_000.0
"""Tuples a second before anything is known: rather many, since a first batch may be a whole history."""
UNLIMITED = 3_600.0
"""Seconds of tuples that a stream without limit in time is taken to hold before anything is known."""
ROW_BYTES = 100.0
"""Bytes of a tuple before anything is known."""
INSTANT = 1e-6
"""How far event time advances at the least, in seconds: its resolution."""


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
        row_seconds: To send a row and receive it (T_s).
        hop_seconds: How long a hop to the next node takes beside its work (T_n).
        advance: How far event time advances in a batch, in seconds; infinite if a batch may be a whole history.
        row_bytes: The bytes of a row.
        slots: How many nodes' tasks run at once.
        cores: How many of them have a core.
        shared: Whether tasks share their state, so that none is sent.
        held: The tuples that each window holds: λ_i W_i, or all that is kept where time sets no limit.
        become: For each stream what a tuple has become before each step, and after the last: 1, λWS, (λWS)², ...
        pairs: For each stream the pairs that a tuple, and what it becomes, looks at in each step.
        work: For each stream the seconds that joining its tuples of a second takes, on whatever nodes.
        probing: For each stream the seconds that probing it takes in a second.
        probes: For each stream the rows that probe it in a second.
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
    shared: bool = False
    held: tuple[float, ...] = field(init=False, repr=False, compare=False)
    become: tuple[tuple[float, ...], ...] = field(init=False, repr=False, compare=False)
    pairs: tuple[tuple[float, ...], ...] = field(init=False, repr=False, compare=False)
    work: tuple[float, ...] = field(init=False, repr=False, compare=False)
    probing: tuple[float, ...] = field(init=False, repr=False, compare=False)
    probes: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        m = len(self.rates)
        each = (self.windows, self.orders, self.selectivities, self.kept or self.rates, self.spans or self.rates)
        steps = [*self.orders, *self.selectivities]
        if m < 2 or any(len(values) != m for values in each) or any(len(step) != m - 1 for step in steps):
            raise DefinitionError(f"A cost model of {m} streams needs {m} of each value, and {m - 1} steps a stream.")
        derived = {"held": self._held, "become": self._become, "pairs": self._pairs, "work": self._work}
        for name, of in derived.items():
            object.__setattr__(self, name, tuple(map(of, self.streams)))
        probes, probing = [0.0] * m, [0.0] * m
        for rate, order, become, pairs in zip(self.rates, self.orders, self.become, self.pairs, strict=True):
            for to, rows, met in zip(order, become, pairs, strict=False):
                probes[to] += rate * rows
                probing[to] += rate * met * self.pair_seconds
        object.__setattr__(self, "probes", tuple(probes))
        object.__setattr__(self, "probing", tuple(probing))

    def _held(self, stream: int) -> float:
        if not isinf(self.windows[stream]):
            return self.rates[stream] * self.windows[stream]
        return self.kept[stream] if self.kept else 0.0

    def _become(self, origin: int) -> tuple[float, ...]:
        found = [1.0]
        for target, matching in zip(self.orders[origin], self.selectivities[origin], strict=True):
            found.append(found[-1] * self.held[target] * matching)
        return tuple(found)

    def _pairs(self, origin: int) -> tuple[float, ...]:
        return tuple(each * self.held[to] for each, to in zip(self.become[origin], self.orders[origin], strict=False))

    def _work(self, origin: int) -> float:
        return self.rates[origin] * self.pair_seconds * sum(self.pairs[origin])

    @property
    def streams(self) -> range:
        """The streams; there are M of them."""
        return range(len(self.rates))

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

    >>> scaled(alike(2, 100, 10, 0.01), 5).held[1]
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


def at_pace(p: Parameters, pace: Pace) -> Parameters:
    """Return the parameters with the time of tuples and pairs as batches of different sizes tell them."""
    insert = max(0.0, pace.tuple_seconds - p.purge_seconds)
    return replace(p, pair_seconds=pace.pair_seconds, insert_seconds=insert)


# -- what a running join measured


def known(state: StateView) -> bool:
    """Tell whether a batch has been measured, so that costs are more than guesses."""
    return state.latest is not None and any(hop.rows for hop in state.hops)


def measured(state: StateView, master: int | None = None) -> Parameters:
    """Return the parameters as the last batches measured them; what isn't known yet is as the constants above say.

    Args:
        state: What is known of the join.
        master: A stream that all others are to probe first, as under ATR.
    """
    machine = state.machine
    begun = state.latest is not None
    each, first = state.column("rows"), state.distinct()
    rows = np.bincount(state.column("stream")[first], each[first], len(state.streams)).tolist()
    size = int(state.column("bytes").sum())
    bare = Parameters(
        rates=tuple(_rate(stream, state.latest) for stream in state.streams),
        windows=tuple(_seconds(stream.window) for stream in state.streams),
        orders=tuple(tuple(at for at in range(len(rows)) if at != origin) for origin in range(len(rows))),
        selectivities=((1.0,) * (len(rows) - 1),) * len(rows),
        kept=tuple(_rows_kept(state, at, held) if begun else RATE * UNLIMITED for at, held in enumerate(rows)),
        spans=tuple(_seconds(stream.span) for stream in state.streams),
        pair_seconds=_pair_seconds(state),
        row_seconds=0.0 if machine.shared else ROW_SECONDS if machine.row_seconds is None else machine.row_seconds,
        hop_seconds=HOP_SECONDS if machine.hop_seconds is None else machine.hop_seconds,
        slots=machine.slots,
        cores=machine.cores,
        shared=machine.shared,
        advance=max(INSTANT, state.advance / 1e6) if begun else inf,
        row_bytes=size / int(each.sum()) if size else ROW_BYTES,
    )
    return _ordered(bare, state, master)


def _rate(stream: StreamView, now: int | None) -> float:
    """Return λ_i; 0 of a table, and of a stream that has been silent until its window was empty."""
    if stream.table:
        return 0.0
    if now is None or stream.latest is None:
        return RATE if now is None else 0.0
    silent = not stream.rows and stream.window is not None and now - stream.latest > stream.window
    return 0.0 if silent else stream.rate or float(stream.rows)


def _rows_kept(state: StateView, stream: int, rows: float) -> float:
    """Return how many tuples there are of a stream: of a table that is read for each batch, those that probes met."""
    if rows or not state.streams[stream].table:
        return float(rows)
    return max((hop.pairs / hop.rows for hop in state.hops if hop.target == stream and hop.rows), default=0.0)


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
            tuple(found / p.held[to] if p.held[to] else 0.0 for to, found in course) for course in courses
        ),
    )


def _course(p: Parameters, state: StateView, origin: int, first: int | None) -> Iterator[tuple[int, float]]:
    """Yield the streams that tuples of a stream probe, and what one partial result becomes by each.

    The next stream is the one that most went to in the last batches, else the one that finds the least.
    """
    joined = frozenset({origin})
    while len(joined) < len(p.rates):
        hops = {to: state.hop(joined, to) for to in p.streams if to not in joined}
        found = {to: state.expected_matches(joined, to, p.held[to]) for to in hops}
        taken = {to: hop.rows for to, hop in hops.items() if hop is not None}
        likely = max(taken, key=lambda to: taken[to]) if taken else min(found, key=lambda to: found[to])
        to = likely if first is None or first in joined else first
        yield to, found[to]
        joined |= {to}
