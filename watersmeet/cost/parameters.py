"""The parameters of the cost models (Table 1 of the paper on PSP): their derived values, scaling, and measurement.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), section 5.1.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import inf, isinf
from typing import NamedTuple

import numpy as np

from watersmeet.arrays import Floats
from watersmeet.cost.load import ROW_SECONDS
from watersmeet.errors import DefinitionError
from watersmeet.state.manifest.view import StateView, StreamView

BATCH_SECONDS, TUPLE_SECONDS = 0.015, 5e-6
"""Seconds of a batch and of a tuple where batches don't determine them; the prior's deviation is as large."""
JITTER, NOISE = 0.1, 2e-3
"""The deviation of a batch's time: a part of the time, and a number of seconds."""


class BatchWork(NamedTuple):
    """The work of a batch: its seconds, its new tuples, and the pairs that were close enough in time."""

    seconds: float
    tuples: int
    pairs: int


class Pace(NamedTuple):
    """The seconds of a batch, of a tuple and of a pair (T_j)."""

    batch_seconds: float
    tuple_seconds: float
    pair_seconds: float


def fit_pace(batches: Sequence[BatchWork]) -> Pace:
    """Return the non-negative times that fit the batches best; the first batch, a warm-up, counts only if it is alone.

    Where batches are too similar to separate tuples from pairs, a tuple takes about TUPLE_SECONDS, and pairs the rest.

    >>> fit_pace([BatchWork(0.02 + n * 1e-5 + n * 1e-3, n, 1000 * n) for n in (10, 10, 20, 40, 80)]).pair_seconds < 2e-6
    True
    """
    work = np.array(batches[1:] or batches, float)
    deviation = NOISE + JITTER * work[:, 0]
    rows = np.column_stack([np.ones(len(work)), work[:, 1:]]) / deviation[:, None]
    prior = np.array([[1 / BATCH_SECONDS, 0, 0], [0, 1 / TUPLE_SECONDS, 0]])
    return Pace(
        *_least_squares(np.vstack([rows, prior]), np.concatenate([work[:, 0] / deviation, [1.0, 1.0]])).tolist()
    )


def _least_squares(rows: Floats, values: Floats) -> Floats:
    """Return the x without negative parts that minimises |rows x - values|, trying every choice of parts above 0."""
    scale = np.maximum(np.abs(rows).max(axis=0), np.finfo(float).tiny)
    width, best, least = rows.shape[1], np.zeros(rows.shape[1]), np.inf
    for columns in (list(choice) for size in range(1, width + 1) for choice in combinations(range(width), size)):
        solution = np.zeros(width)
        solution[columns] = np.linalg.lstsq(rows[:, columns] / scale[columns], values)[0] / scale[columns]
        error = float(np.square(rows @ solution - values).sum())
        if solution.min() >= 0 and error < least:
            best, least = solution, error
    return best


PAIR_SECONDS, PAIRS = 1e-6, 1_000
"""T_j before anything is measured, and its weight in measured pairs.

It is between a comparison of numbers (a few nanoseconds) and one of images (a tenth of a millisecond).
"""
KEEP_SECONDS = 1e-6
"""T_i and T_p: seconds to write a tuple into the state, and to purge it."""
HOP_SECONDS = 0.05
"""T_n before anything is measured: a hop's seconds besides its work; in micro-batches a hop is a stage of tasks."""
START_CPU = 0.02
"""The CPU seconds to start a task."""
RATE = 1_000.0
"""Tuples a second before anything is measured: rather many, since the first batch may be a whole history."""
UNLIMITED = 3_600.0
"""Seconds of tuples that a stream without limit in time is assumed to hold before anything is measured."""
ROW_BYTES = 100.0
"""Bytes of a tuple before anything is measured."""
INSTANT = 1e-6
"""The least advance of event time, in seconds: its resolution."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Table 1 of the paper on PSP, with values for each stream.

    Attributes:
        rates: The tuples a second of each stream (λ_i).
        windows: The window of each stream in seconds (W_i); infinite where time sets no limit.
        orders: For each stream the streams that its tuples probe, in order.
        selectivities: For each stream and step of its order the part of the pairs that match.
        stored: The stored tuples of each stream; used where the window is infinite.
        spans: The seconds for which the tuples of each stream are stored, delay included; if empty, their window.
        pair_seconds: Seconds to join a pair (T_j).
        insert_seconds: Seconds to insert a tuple into the state (T_i).
        purge_seconds: Seconds to purge it (T_p).
        row_seconds: Seconds to send and receive a row (T_s).
        hop_seconds: Seconds of a hop to the next node besides its work (T_n).
        advance: How far event time advances in a batch, in seconds; infinite if a batch may be a whole history.
        row_bytes: The bytes of a row.
        slots: How many nodes' tasks run at once.
        cores: How many of them have a core.
        shared: Whether tasks share their state, in which case no state is sent.
        window_rows: The tuples in each window: λ_i W_i, or all stored tuples where time sets no limit.
        partials: For each stream the partial results of a tuple before each step, and its results: 1, λWS, (λWS)², ...
        pairs: For each stream the pairs that a tuple and its partial results look at in each step.
        work: For each stream the seconds to join its tuples of a second, on all nodes together.
        probing: For each stream the seconds of probing it in a second.
        probes: For each stream the rows that probe it in a second.
    """

    rates: tuple[float, ...]
    windows: tuple[float, ...]
    orders: tuple[tuple[int, ...], ...]
    selectivities: tuple[tuple[float, ...], ...]
    stored: tuple[float, ...] = ()
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
    window_rows: tuple[float, ...] = field(init=False, repr=False, compare=False)
    partials: tuple[tuple[float, ...], ...] = field(init=False, repr=False, compare=False)
    pairs: tuple[tuple[float, ...], ...] = field(init=False, repr=False, compare=False)
    work: tuple[float, ...] = field(init=False, repr=False, compare=False)
    probing: tuple[float, ...] = field(init=False, repr=False, compare=False)
    probes: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the number of values, and derive the figures that all strategies share.

        Raises:
            DefinitionError: If a value is missing for some stream or step.
        """
        m = len(self.rates)
        each = (self.windows, self.orders, self.selectivities, self.stored or self.rates, self.spans or self.rates)
        steps = [*self.orders, *self.selectivities]
        if m < 2 or any(len(values) != m for values in each) or any(len(step) != m - 1 for step in steps):
            raise DefinitionError(f"A cost model of {m} streams needs {m} of each value, and {m - 1} steps a stream.")
        derived = {
            "window_rows": self._window_rows,
            "partials": self._partials,
            "pairs": self._pairs,
            "work": self._work,
        }
        for name, derive in derived.items():
            object.__setattr__(self, name, tuple(map(derive, self.streams)))
        probes, probing = [0.0] * m, [0.0] * m
        for rate, order, partials, pairs in zip(self.rates, self.orders, self.partials, self.pairs, strict=True):
            for to, rows, pair_count in zip(order, partials, pairs, strict=False):
                probes[to] += rate * rows
                probing[to] += rate * pair_count * self.pair_seconds
        object.__setattr__(self, "probes", tuple(probes))
        object.__setattr__(self, "probing", tuple(probing))

    def _window_rows(self, stream: int) -> float:
        if not isinf(self.windows[stream]):
            return self.rates[stream] * self.windows[stream]
        return self.stored[stream] if self.stored else 0.0

    def _partials(self, origin: int) -> tuple[float, ...]:
        partials = [1.0]
        for target, selectivity in zip(self.orders[origin], self.selectivities[origin], strict=True):
            partials.append(partials[-1] * self.window_rows[target] * selectivity)
        return tuple(partials)

    def _pairs(self, origin: int) -> tuple[float, ...]:
        steps = zip(self.partials[origin], self.orders[origin], strict=False)
        return tuple(partials * self.window_rows[to] for partials, to in steps)

    def _work(self, origin: int) -> float:
        return self.rates[origin] * self.pair_seconds * sum(self.pairs[origin])

    @property
    def streams(self) -> range:
        """The positions of the M streams."""
        return range(len(self.rates))

    def span(self, stream: int) -> float:
        """Return for how many seconds tuples of a stream are stored."""
        return self.spans[stream] if self.spans else self.windows[stream]


def uniform(streams: int, rate: float, window: float, selectivity: float) -> Parameters:
    """Return the simplified case of section 5.1: M streams of one rate, window and selectivity.

    >>> uniform(3, 100, 10, 0.01).orders
    ((1, 2), (0, 2), (0, 1))
    """
    orders = tuple(tuple(to for to in range(streams) if to != origin) for origin in range(streams))
    steps = ((selectivity,) * (streams - 1),) * streams
    return Parameters((rate,) * streams, (window,) * streams, orders, steps)


def with_rates(p: Parameters, rates: Sequence[float], constant: Container[int] = ()) -> Parameters:
    """Return the parameters at other rates; selectivities, being parts of pairs, stay the same.

    Args:
        p: The parameters.
        rates: The tuples a second of each stream.
        constant: The streams that store a fixed number of tuples, whatever their rate.
    """
    changes = [1.0 if at in constant or not p.rates[at] else rate / p.rates[at] for at, rate in enumerate(rates)]
    stored_rows = tuple(rows * change for rows, change in zip(p.stored, changes, strict=False))
    return replace(p, rates=tuple(rates), stored=stored_rows)


def scale(p: Parameters, factor: float, constant: Container[int] = ()) -> Parameters:
    """Return the parameters at a multiple of all rates; streams in `constant` still store as many tuples.

    See `with_rates`.

    >>> scale(uniform(2, 100, 10, 0.01), 5).window_rows[1]
    5000
    """
    return with_rates(p, [factor * rate for rate in p.rates], constant)


def fill_windows(p: Parameters, seconds: float) -> Parameters:
    """Return the parameters for full windows, if they were measured after the streams had run for some seconds.

    A window then held only a part of λW, so the measured selectivities are too low.
    """
    parts = [1.0 if isinf(window) else min(1.0, seconds / window) for window in p.windows]
    selectivities = (
        tuple(selectivity / parts[to] for to, selectivity in zip(order, steps, strict=True))
        for order, steps in zip(p.orders, p.selectivities, strict=True)
    )
    return replace(p, selectivities=tuple(selectivities))


def with_pace(p: Parameters, pace: Pace) -> Parameters:
    """Return the parameters with the times of tuples and pairs that were fitted to batches of different sizes.

    The time of a batch is not used.
    """
    insert = max(0.0, pace.tuple_seconds - p.purge_seconds)
    return replace(p, pair_seconds=pace.pair_seconds, insert_seconds=insert)


# -- measurements of a running join


def has_measurements(state: StateView) -> bool:
    """Return whether a batch has been measured; if not, costs are only guesses."""
    return state.latest is not None and any(hop.rows for hop in state.hops)


def measure(state: StateView, master: int | None = None) -> Parameters:
    """Return the parameters as the last batches measured them; what isn't measured yet has the default values above.

    Args:
        state: The state of the join.
        master: A stream that all others are to probe first, as under ATR.
    """
    machine = state.machine
    has_begun = state.latest is not None
    chunk_rows, first = state.column("rows"), state.distinct()
    rows = np.bincount(state.column("stream")[first], chunk_rows[first], len(state.streams)).tolist()
    size = int(state.column("bytes").sum())
    without_order = Parameters(
        rates=tuple(_rate(stream, state.latest) for stream in state.streams),
        windows=tuple(_seconds(stream.window) for stream in state.streams),
        orders=tuple(tuple(at for at in range(len(rows)) if at != origin) for origin in range(len(rows))),
        selectivities=((1.0,) * (len(rows) - 1),) * len(rows),
        stored=tuple(_stored_rows(state, at, live) if has_begun else RATE * UNLIMITED for at, live in enumerate(rows)),
        spans=tuple(_seconds(stream.span) for stream in state.streams),
        pair_seconds=_pair_seconds(state),
        row_seconds=0.0 if machine.shared else ROW_SECONDS if machine.row_seconds is None else machine.row_seconds,
        hop_seconds=HOP_SECONDS if machine.hop_seconds is None else machine.hop_seconds,
        slots=machine.slots,
        cores=machine.cores,
        shared=machine.shared,
        advance=max(INSTANT, state.advance / 1e6) if has_begun else inf,
        row_bytes=size / int(chunk_rows.sum()) if size else ROW_BYTES,
    )
    return _with_orders(without_order, state, master)


def _rate(stream: StreamView, now: int | None) -> float:
    """Return λ_i: as measured, or `RATE` before the first batch; 0 for a table or a stream silent beyond its window.

    Args:
        stream: The stream.
        now: The latest event time of all streams, in microseconds; None before the first batch.
    """
    if stream.table:
        return 0.0
    if now is None or stream.latest is None:
        return RATE if now is None else 0.0
    silent = not stream.rows and stream.window is not None and now - stream.latest > stream.window
    return 0.0 if silent else stream.rate or float(stream.rows)


def _stored_rows(state: StateView, stream: int, rows: float) -> float:
    """Return how many tuples of a stream there are; of a table read anew for each batch, those that probes met."""
    if rows or not state.streams[stream].table:
        return float(rows)
    return max((hop.pairs / hop.rows for hop in state.hops if hop.target == stream and hop.rows), default=0.0)


def _seconds(time: int | None) -> float:
    return inf if time is None else time / 1e6


def _pair_seconds(state: StateView) -> float:
    """Return T_j: the CPU time of the last batches per pair looked at, without that of tasks and of storing tuples.

    With few pairs, it stays close to `PAIR_SECONDS`.
    """
    cpu, pairs = sum(usage.cpu for usage in state.usage), sum(hop.pairs for hop in state.hops)
    if not cpu:
        return PAIR_SECONDS
    joining = max(
        0.0, cpu - START_CPU * state.machine.tasks - 2 * KEEP_SECONDS * sum(stream.rows for stream in state.streams)
    )
    return (PAIRS * PAIR_SECONDS + joining) / (PAIRS + pairs)


def _with_orders(p: Parameters, state: StateView, master: int | None) -> Parameters:
    """Return the parameters with the orders that tuples took, or else the best ones, and their selectivities."""
    courses = [list(_course(p, state, origin, None if master == origin else master)) for origin in p.streams]
    return replace(
        p,
        orders=tuple(tuple(to for to, _ in course) for course in courses),
        # Above 1 where a window holds more than λW: matches are measured, λW is a model.
        selectivities=tuple(
            tuple(matches / p.window_rows[to] if p.window_rows[to] else 0.0 for to, matches in course)
            for course in courses
        ),
    )


def _course(p: Parameters, state: StateView, origin: int, first: int | None) -> Iterator[tuple[int, float]]:
    """Yield the streams that tuples of a stream probe, each with the matches of one partial result.

    The next stream is the one that most partial results probed in the last batches, else the one with fewest matches;
    `first`, if given, comes before all.
    """
    joined = frozenset({origin})
    while len(joined) < len(p.rates):
        hops = {to: state.hop(joined, to) for to in p.streams if to not in joined}
        matches = {to: state.expected_matches(joined, to, p.window_rows[to]) for to in hops}
        rows = {to: hop.rows for to, hop in hops.items() if hop is not None}
        likely = max(rows, key=lambda to: rows[to]) if rows else min(matches, key=lambda to: matches[to])
        to = likely if first is None or first in joined else first
        yield to, matches[to]
        joined |= {to}
