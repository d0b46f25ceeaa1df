"""PSP: the state of each stream is cut by age into disjoint slices on a ring of nodes, the newest at the head.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), sections 3-6. A tuple
is kept once; a probe visits every node that holds part of its range. Build tuples that travel from head to tail
(section 4.1) are here chunks that change owner: no row is copied.

Each node but the tail has an upper bound of tuples, a threshold counted from the head (section 6, workload smoothing):
what exceeds it ages to the next node. Thresholds follow the balance of work, one step per batch. When nodes come or go,
state is relocated at once (aggressive), or stays where it is until it expires (passive).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from watersmeet.arguments import check_choice, fields_to_python, is_number, is_whole
from watersmeet.arrays import Floats, Ints, Mask
from watersmeet.cost import equations, parameters
from watersmeet.cost.cost_model import psp_cost
from watersmeet.errors import DefinitionError
from watersmeet.formatting import count_inputs
from watersmeet.placement.base import Relocation, check_nodes, check_switch
from watersmeet.placement.priced_strategy import Basis, Options, PricedStrategy, Pricer, Quote, Requirements
from watersmeet.placement.slices_by_age import (
    Borders,
    Curve,
    Handover,
    PspLayout,
    PspNotes,
    PspPlacement,
    build_curve,
    ease,
    new_owners,
    pinned_chunks,
    place_chunks,
    resize_ring,
    rows_between,
)
from watersmeet.state.manifest.view import LONGEST_SLICE, MARGIN, StateView, StreamView

SLICES_PER_NODE = 4
"""Slices of time per node and window: the grain at which state moves along the ring."""
FEWEST_ROWS = 50
"""Slices with fewer rows than this are doubled in length, repeatedly, since each chunk has a fixed cost."""
INTERVAL = 5
"""The least number of batches between two changes of lengths by the cost model."""
STEP = 0.25
"""The part of a node's fair share by which its threshold may change in a batch."""


@dataclass(frozen=True, slots=True)
class PSP(PricedStrategy):
    """Pipelined State Partitioning on a ring of `nodes`.

    Attributes:
        nodes: How many nodes.
        smooth: Whether borders follow the balance of work; if not, each node has an equal range of ages.
        step: The part of a node's fair share by which its threshold may change in a batch.
        relocation: What happens to the state when the ring changes: it moves at once (`aggressive`), or stays until it
            expires while new tuples follow the new ring (`passive`); `auto` is aggressive.
        lengths: How many nodes of the ring each stream uses; None for all, `auto` for what the cost model predicts.
        interleaved: How many tuples may be under way at once with `exchange="ring"` (the paper's PSP-I); 1 for one
            after the other (its PSP), None to keep all nodes at work.

    >>> PSP(nodes=4).describe()
    'PSP(nodes=4)'
    """

    nodes: int = 4
    smooth: bool = True
    step: float = STEP
    relocation: Relocation = "auto"
    lengths: tuple[int, ...] | Literal["auto"] | None = None
    interleaved: int | None = None

    def __post_init__(self) -> None:
        """Check and convert the options.

        Raises:
            DefinitionError: If one is out of range or of the wrong type.
        """
        fields_to_python(self)
        check_nodes(self.nodes)
        check_switch("smooth", self.smooth)
        if not is_number(self.step) or not 0 < self.step <= 1:
            raise DefinitionError(f"step={self.step!r}: give a part of a node's share, above 0 and at most 1.")
        check_choice("relocation", self.relocation, get_args(Relocation))
        if self.interleaved is not None and not is_whole(self.interleaved):
            raise DefinitionError(f"interleaved={self.interleaved!r}: give a number of tuples, 1 or more, or None.")
        if self.lengths not in (None, "auto") and not self._fits(self.lengths):
            raise DefinitionError(
                f"lengths={self.lengths!r}: give for each stream a number of nodes from 1 to {self.nodes}, or 'auto'."
            )

    def _fits(self, lengths: Any) -> bool:
        return isinstance(lengths, tuple) and all(is_whole(at) and at <= self.nodes for at in lengths)

    def refusal(self, state: StateView) -> str | None:
        """Return a sentence if the ring lengths are for another number of streams; None if they fit."""
        if not isinstance(self.lengths, tuple) or len(self.lengths) == len(state.streams):
            return None
        tables = sum(stream.table for stream in state.streams)
        members = count_inputs(len(state.streams) - tables, tables)
        return f"PSP has {len(self.lengths)} ring lengths for {members}; give one for each."

    def describe(self) -> str:
        """Return the strategy with the options of its ring."""
        lengths = "" if self.lengths is None else f", lengths={self.lengths!r}"
        return f"PSP(nodes={self.nodes}{lengths}{'' if self.smooth else ', smooth=False'})"

    # -- prices

    @classmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return a pricer of a ring that all streams use in full."""
        p = basis.parameters(None)
        return lambda nodes, options: Quote(p, psp_cost(p, nodes))

    @classmethod
    def configure(cls, nodes: int, options: Options, terms: Requirements) -> "PSP":
        """Return a ring with the relocation that the terms ask for."""
        return cls(nodes, relocation=terms.relocation)

    @classmethod
    def most_nodes(cls, basis: Basis, limit: int) -> int:
        """Return the longest ring of which no node waits for rows."""
        return min(limit, equations.longest_ring(basis.parameters(None), basis.bandwidth) or limit)

    @classmethod
    def bandwidth(cls, p: parameters.Parameters, nodes: int) -> float:
        """Return the bandwidth by equation 6."""
        return equations.bandwidth(p, nodes)

    # -- planning

    def plan(self, state: StateView) -> PspLayout:
        """Return a ring whose borders are set for the expected state after a batch like the last one."""
        before = PspNotes.read(state.notes)
        ring = resize_ring(before.ring if before else range(self.nodes), self.nodes)
        lengths = self._lengths(state, before)
        changed = before is not None and (len(before.ring), before.lengths) != (self.nodes, lengths)
        pinned = self._pin(state, before, changed)
        curves = [build_curve(state, at) for at in range(len(lengths))]
        old = [np.array(counts, np.float64) for counts in (before.thresholds if before else [()] * len(lengths))]
        new = self._all_thresholds(state, curves, lengths, old)
        stay, borders = pinned_chunks(state, pinned), _borders(curves, new)
        places = place_chunks(state, ring, borders, stay)
        aged = places if changed else place_chunks(state, ring, _borders(curves, old), stay)
        nodes = max(self.nodes, 1 + int(state.homes()[stay].max(initial=0)))
        slices = tuple(_slice(stream, length) for stream, length in zip(state.streams, lengths, strict=True))
        thresholds = tuple(tuple(counts.round().astype(int).tolist()) for counts in new)
        since = state.batch if changed else before.since if before else None
        return PspLayout(
            PspPlacement(nodes, ring, slices, borders, self.interleaved),
            PspNotes(ring, lengths, thresholds, pinned, since),
            self._handover(state, before, places, aged, stay, changed),
            moves=new_owners(state, places),
        )

    def _lengths(self, state: StateView, before: PspNotes | None) -> tuple[int, ...]:
        """Return the ring length of each stream; the cost model changes it only for a gain worth moving state."""
        if isinstance(self.lengths, tuple):
            return self.lengths
        full = (self.nodes,) * len(state.streams)
        if self.lengths is None or not parameters.has_measurements(state):
            return full
        p = parameters.measure(state)
        best = equations.ring_lengths(p, self.nodes, "latency")
        if before is None or len(before.ring) != self.nodes:
            return best
        now = before.lengths
        if before.since is not None and state.batch - before.since < INTERVAL:
            return now
        return best if equations.ring_latency(p, best) < (1 - MARGIN) * equations.ring_latency(p, now) else now

    def _pin(self, state: StateView, before: PspNotes | None, changed: bool) -> tuple[int | None, ...]:
        """Return the time up to which each stream's chunks stay where they are; empty if all follow the ring.

        That is so as soon as none of them is left.
        """
        if self.relocation == "aggressive" or (changed and self.relocation == "auto"):
            return ()
        if changed:
            return tuple(stream.latest for stream in state.streams)
        pinned = before.pinned if before else ()
        return pinned if pinned_chunks(state, pinned).any() else ()

    def _all_thresholds(
        self, state: StateView, curves: Sequence[Curve | None], lengths: Sequence[int], old: Sequence[Floats]
    ) -> list[Floats]:
        """Return the new thresholds of all streams; none for a stream without tuples."""
        return [
            np.empty(0) if curve is None else self._thresholds(curve, stream, length, before)
            for curve, stream, length, before in zip(curves, state.streams, lengths, old, strict=True)
        ]

    def _thresholds(self, curve: Curve, stream: StreamView, length: int, before: Floats) -> Floats:
        """Return a stream's thresholds: on the way from those before to those that balance the work.

        They balance it at once at first and whenever the ring length changes; without smoothing, ages are even.
        """
        if not self.smooth:
            return curve.count_newer(_even_borders(curve, stream, length))
        goal = curve.balance(length)
        if len(before) != length - 1:
            return goal
        return ease(np.minimum(before, curve.total), goal, self.step * curve.total / length, stream.rows)

    def _handover(
        self, state: StateView, before: PspNotes | None, places: Ints, aged: Ints, stay: Mask, changed: bool
    ) -> Handover:
        """Return the rows that a plan moves, and the kind of the move.

        Args:
            state: The state.
            before: The ring before.
            places: The node of each chunk.
            aged: The nodes that they would have if tuples only aged, where the ring is as before.
            stay: Which chunks stay where they are.
            changed: Whether the ring or a stream's length on it differs from before.
        """
        between = rows_between(state, places)
        if before is None:
            return Handover("aggressive", "the state was laid round the ring.", between)
        if stay.any():
            return Handover("passive", "what was there before the ring changed stays until it expires.", between)
        if changed:
            old, lengths = len(before.ring), "streams use other lengths of the ring."
            why = lengths if old == self.nodes else f"the ring went from {old} to {self.nodes} nodes."
            return Handover("aggressive", why, between)
        if self.smooth and (places != aged).any():
            return Handover("smoothing", "borders follow the balance of work.", between)
        return Handover("ageing", "tuples aged.", between)


def _slice(stream: StreamView, length: int) -> int:
    """Return the slice length, in microseconds, of a stream that uses this many nodes."""
    if stream.window is None:
        return LONGEST_SLICE
    slices, rows = SLICES_PER_NODE, stream.rate * stream.window / 1e6 / length
    while slices > 1 and 0 < rows / slices < FEWEST_ROWS:
        slices //= 2
    return max(1, stream.window // (slices * length))


def _even_borders(curve: Curve, stream: StreamView, length: int) -> Floats:
    """Return borders that cut the window into equal ranges of age; older tuples belong to the tail."""
    end = curve.times[-1]
    reach = end - curve.times[0] if stream.window is None else stream.window
    borders: Floats = end - reach * np.arange(1, length) / length
    return borders


def _borders(curves: Sequence[Curve | None], thresholds: Sequence[Floats]) -> Borders:
    pairs = zip(curves, thresholds, strict=True)
    return tuple(() if curve is None else curve.borders(counts) for curve, counts in pairs)
