"""PSP: the state of each stream is cut by age into disjoint slices round a ring of nodes, newest at the head.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), sections 3-6. A tuple
is kept once; a probe visits every node that holds part of its range. Build tuples that travel from head to tail
(section 4.1) are here chunks that change owner: no row is copied.

Each node but the tail has an upper bound of tuples, a threshold counted from the head (section 6, workload smoothing):
what exceeds it ages to the next node. Thresholds follow the balance of work, a step a batch. When nodes come or go,
state is relocated at once (aggressive), or what is there stays until it expires (passive).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from watersmeet.arguments import fields_to_python, is_number, is_whole
from watersmeet.arrays import Floats, Ints, Mask
from watersmeet.cost import equations, model, parameters
from watersmeet.errors import DefinitionError
from watersmeet.formatting import count_inputs
from watersmeet.placement.curve import Curve, curve, eased
from watersmeet.placement.options import Relocation, check_nodes, check_relocation, check_switch
from watersmeet.placement.priced import Basis, Options, Priced, Pricer, Quote, Terms
from watersmeet.placement.slices_by_age import (
    Borders,
    Moved,
    PspLayout,
    PspNotes,
    PspPlacement,
    given,
    handed,
    placed,
    resized,
    staying,
)
from watersmeet.state.manifest.view import LONGEST_SLICE, MARGIN, StateView, StreamView

SLICES_PER_NODE = 4
"""Slices of time per node and window: the grain at which state moves along the ring."""
FEWEST_ROWS = 50
"""Where slices would hold fewer rows than this they are twice as long, and again: chunks have a fixed part."""
INTERVAL = 5
"""Batches from one change of lengths by the cost model to the next, at the least."""
STEP = 0.25
"""By which part of a node's fair share its threshold may change in a batch."""


@dataclass(frozen=True, slots=True)
class PSP(Priced):
    """Pipelined State Partitioning on a ring of `nodes`.

    Attributes:
        nodes: How many nodes.
        smooth: Whether borders follow the balance of work; if not, each node has an equal range of ages.
        step: By which part of a node's fair share its threshold may change in a batch.
        relocation: What happens to the state when the ring changes: it moves now (`aggressive`), or stays until it
            expires while new tuples follow the new ring (`passive`); `auto` is aggressive.
        lengths: How many nodes of the ring each stream uses; all if None, by the cost model if `auto`.

    >>> PSP(nodes=4).describe()
    'PSP(nodes=4)'
    """

    nodes: int = 4
    smooth: bool = True
    step: float = STEP
    relocation: Relocation = "auto"
    lengths: tuple[int, ...] | Literal["auto"] | None = None

    def __post_init__(self) -> None:
        fields_to_python(self)
        check_nodes(self.nodes)
        check_switch("smooth", self.smooth)
        if not is_number(self.step) or not 0 < self.step <= 1:
            raise DefinitionError(f"step={self.step!r}: give a part of a node's share, above 0 and at most 1.")
        check_relocation(self.relocation)
        if self.lengths not in (None, "auto") and not self._fits(self.lengths):
            raise DefinitionError(
                f"lengths={self.lengths!r}: give for each stream a number of nodes from 1 to {self.nodes}, or 'auto'."
            )

    def _fits(self, lengths: Any) -> bool:
        return isinstance(lengths, tuple) and all(is_whole(at) and at <= self.nodes for at in lengths)

    def refusal(self, state: StateView) -> str | None:
        """Return why not, if lengths were given for another number of streams."""
        if not isinstance(self.lengths, tuple) or len(self.lengths) == len(state.streams):
            return None
        tables = sum(stream.table for stream in state.streams)
        members = count_inputs(len(state.streams) - tables, tables)
        return f"PSP has {len(self.lengths)} ring lengths for {members}; give one for each."

    def describe(self) -> str:
        """Return the strategy with what else was given of the ring."""
        given = "" if self.lengths is None else f", lengths={self.lengths!r}"
        return f"PSP(nodes={self.nodes}{given}{'' if self.smooth else ', smooth=False'})"

    # -- prices

    @classmethod
    def pricer(cls, basis: Basis) -> Pricer:
        """Return the cost on a ring of all nodes, the same for all streams."""
        p = basis.parameters(None)
        return lambda nodes, options: Quote(p, model.psp(p, nodes))

    @classmethod
    def chosen(cls, nodes: int, options: Options, terms: Terms) -> "PSP":
        """Return a ring whose state follows changes as asked."""
        return cls(nodes, relocation=terms.relocation)

    @classmethod
    def widest(cls, basis: Basis, most: int) -> int:
        """Return the longest ring of which no node waits for rows."""
        return min(most, equations.longest_ring(basis.parameters(None), basis.bandwidth) or most)

    @classmethod
    def bandwidth(cls, p: parameters.Parameters, nodes: int) -> float:
        """Return what equation 6 asks for."""
        return equations.bandwidth(p, nodes)

    # -- planning

    def plan(self, state: StateView) -> PspLayout:
        """Return a ring whose borders are set for the state as it will be after a batch like the last one."""
        before = PspNotes.read(state.kept)
        ring = resized(before.ring if before else range(self.nodes), self.nodes)
        lengths = self._lengths(state, before)
        changed = before is not None and (len(before.ring), before.lengths) != (self.nodes, lengths)
        pinned = self._pinned(state, before, changed)
        curves = [curve(state, at) for at in range(len(lengths))]
        known = [np.array(found, np.float64) for found in (before.thresholds if before else [()] * len(lengths))]
        wanted = self._wanted(state, curves, lengths, known)
        stay, borders = staying(state, pinned), _borders(curves, wanted)
        places = placed(state, ring, borders, stay)
        aged = places if changed else placed(state, ring, _borders(curves, known), stay)
        nodes = max(self.nodes, 1 + int(state.homes()[stay].max(initial=0)))
        slices = tuple(_slice(stream, length) for stream, length in zip(state.streams, lengths, strict=True))
        thresholds = tuple(tuple(found.round().astype(int).tolist()) for found in wanted)
        since = state.batch if changed else before.since if before else None
        return PspLayout(
            PspPlacement(nodes, ring, slices, borders),
            PspNotes(ring, lengths, thresholds, pinned, since),
            self._moved(state, before, places, aged, stay, changed),
            moves=given(state, places),
        )

    def _lengths(self, state: StateView, before: PspNotes | None) -> tuple[int, ...]:
        """Return the ring length of each stream; those of the cost model only where they gain enough to move state."""
        if isinstance(self.lengths, tuple):
            return self.lengths
        every = (self.nodes,) * len(state.streams)
        if self.lengths is None or not parameters.known(state):
            return every
        p = parameters.measured(state)
        best = equations.ring_lengths(p, self.nodes, "latency")
        if before is None or len(before.ring) != self.nodes:
            return best
        now = before.lengths
        if before.since is not None and state.batch - before.since < INTERVAL:
            return now
        return best if equations.ring_latency(p, best) < (1 - MARGIN) * equations.ring_latency(p, now) else now

    def _pinned(self, state: StateView, before: PspNotes | None, changed: bool) -> tuple[int | None, ...]:
        """Return up to when each stream's chunks stay where they are; nothing once they are gone."""
        if self.relocation == "aggressive" or (changed and self.relocation == "auto"):
            return ()
        if changed:
            return tuple(stream.latest for stream in state.streams)
        pinned = before.pinned if before else ()
        return pinned if staying(state, pinned).any() else ()

    def _wanted(
        self, state: StateView, curves: Sequence[Curve | None], lengths: Sequence[int], known: Sequence[Floats]
    ) -> list[Floats]:
        """Return the thresholds of all streams; none for one without tuples."""
        return [
            np.empty(0) if along is None else self._thresholds(along, stream, length, before)
            for along, stream, length, before in zip(curves, state.streams, lengths, known, strict=True)
        ]

    def _thresholds(self, along: Curve, stream: StreamView, length: int, before: Floats) -> Floats:
        """Return a stream's thresholds; they start from the balance, and anew where the ring has another length."""
        if not self.smooth:
            return along.newer(_even(along, stream, length))
        wanted = along.balanced(length)
        if len(before) != length - 1:
            return wanted
        return eased(np.minimum(before, along.total), wanted, self.step * along.total / length, stream.rows)

    def _moved(
        self, state: StateView, before: PspNotes | None, places: Ints, aged: Ints, stay: Mask, changed: bool
    ) -> Moved:
        """Return what a plan moves, and of what kind that is.

        Args:
            state: The state.
            before: The ring before.
            places: The node of each chunk.
            aged: The nodes that they would have if tuples only aged, where the ring is as before.
            stay: Which chunks stay where they are.
            changed: Whether the ring or a stream's length on it is another than before.
        """
        between = handed(state, places)
        if before is None:
            return Moved("aggressive", "the state was laid round the ring.", between)
        if stay.any():
            return Moved("passive", "what was there before the ring changed stays until it expires.", between)
        if changed:
            old, lengths = len(before.ring), "streams use other lengths of the ring."
            why = lengths if old == self.nodes else f"the ring went from {old} to {self.nodes} nodes."
            return Moved("aggressive", why, between)
        if self.smooth and (places != aged).any():
            return Moved("smoothing", "borders follow the balance of work.", between)
        return Moved("ageing", "tuples aged.", between)


def _slice(stream: StreamView, length: int) -> int:
    """Return the slice length of a stream that uses so many nodes."""
    if stream.window is None:
        return LONGEST_SLICE
    slices, rows = SLICES_PER_NODE, stream.rate * stream.window / 1e6 / length
    while slices > 1 and 0 < rows / slices < FEWEST_ROWS:
        slices //= 2
    return max(1, stream.window // (slices * length))


def _even(along: Curve, stream: StreamView, length: int) -> Floats:
    """Return borders at fixed ages, the window cut evenly; what is kept longer is the tail's."""
    end = along.times[-1]
    reach = end - along.times[0] if stream.window is None else stream.window
    found: Floats = end - reach * np.arange(1, length) / length
    return found


def _borders(curves: Sequence[Curve | None], thresholds: Sequence[Floats]) -> Borders:
    return tuple(() if along is None else along.borders(found) for along, found in zip(curves, thresholds, strict=True))
