"""PSP: the state of each stream is cut by age into disjoint slices round a ring of nodes, newest at the head.

Wang and Rundensteiner, "Scalable Stream Join Processing with Expensive Predicates" (EDBT 2009), sections 3-6. A tuple
is kept once; a probe visits every node that holds part of its range. Build tuples that travel from head to tail
(section 4.1) are here chunks that change owner: no row is copied.

Each node but the tail has an upper bound of tuples, a threshold counted from the head (section 6, workload smoothing):
what exceeds it ages to the next node. Thresholds follow the balance of work, a step a batch. When nodes come or go,
state is relocated at once (aggressive), or what is there stays until it expires (passive).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from watersmeet.cost import equations, parameters
from watersmeet.errors import DefinitionError
from watersmeet.placement.base import Placement, Strategy
from watersmeet.placement.curve import Curve, Floats, curve, eased
from watersmeet.placement.options import check_nodes
from watersmeet.placement.ring import Borders, Flags, handed, placed, resized, staying
from watersmeet.state.chunk import Bucket
from watersmeet.state.view import LONGEST_SLICE, MARGIN, StateView, StreamView

SLICES_PER_NODE = 4
"""Slices of time per node and window: the grain at which state moves along the ring."""
FEWEST_ROWS = 50
"""Where slices would hold fewer rows than this they are twice as long, and again: chunks have a fixed part."""
INTERVAL = 5
"""Batches from one change of lengths by the cost model to the next, at the least."""
STEP = 0.25
"""By which part of a node's fair share its threshold may change in a batch."""

Relocation = Literal["auto", "passive", "aggressive"]


class Moved(NamedTuple):
    """What a plan moves.

    Attributes:
        kind: `ageing`, `smoothing`, `passive` or `aggressive`.
        why: Why, as a sentence.
        between: The nodes, from and to, and how many rows.
    """

    kind: str
    why: str
    between: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PspPlacement(Placement):
    """Borders of age round the ring.

    Attributes:
        nodes: How many nodes there are, those included that only wait for their tuples to expire.
        ring: The nodes from head to tail.
        lengths: For each stream, how many nodes of the ring it uses, from the head on.
        slices: The slice length of each stream.
        borders: For each stream, rising times: what lies before borders[0] belongs to the last node that the stream
            uses; what lies at or after the last border to the head.
        thresholds: For each stream, how many of the newest tuples lie after each border, from the head on.
        pinned: For each stream the time up to which chunks stay where they are; empty if all follow the ring.
        moved: What the plan moves.
        since: The batch before which the ring last changed; None if it never did.
    """

    nodes: int
    ring: tuple[int, ...]
    lengths: tuple[int, ...]
    slices: tuple[int, ...]
    borders: Borders
    thresholds: Borders
    pinned: tuple[int | None, ...]
    moved: Moved
    since: int | None = None

    def slice_length(self, stream: int) -> int:
        """See Placement."""
        return self.slices[stream]

    def owners(self, stream: int, start: int, bucket: Bucket) -> tuple[int, ...]:
        """See Placement; a slice belongs where its middle lies."""
        borders = self.borders[stream]
        return (self.ring[len(borders) - bisect_right(borders, start + self.slices[stream] // 2)],)


@dataclass(frozen=True, slots=True)
class PSP(Strategy):
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
        check_nodes(self.nodes)
        if not 0 < self.step <= 1:
            raise DefinitionError(f"step={self.step!r}: give a part of a node's share, above 0 and at most 1.")
        if self.relocation not in get_args(Relocation):
            raise DefinitionError(f"relocation={self.relocation!r}: use one of {', '.join(get_args(Relocation))}.")
        if self.lengths not in (None, "auto") and not self._fits(self.lengths):
            raise DefinitionError(
                f"lengths={self.lengths!r}: give for each stream a number of nodes from 1 to {self.nodes}, or 'auto'."
            )

    def _fits(self, lengths: Any) -> bool:
        return isinstance(lengths, tuple) and all(type(at) is int and 1 <= at <= self.nodes for at in lengths)

    def refusal(self, state: StateView) -> str | None:
        """See Strategy."""
        if not isinstance(self.lengths, tuple) or len(self.lengths) == len(state.streams):
            return None
        return f"PSP has {len(self.lengths)} ring lengths for {len(state.streams)} streams; give one for each."

    def describe(self) -> str:
        """See Strategy."""
        given = "" if self.lengths is None else f", lengths={self.lengths!r}"
        return f"PSP(nodes={self.nodes}{given}{'' if self.smooth else ', smooth=False'})"

    # -- planning

    def plan(self, state: StateView) -> Placement:
        """See Strategy; the borders are set for the state as it will be after a batch like the last one."""
        ring = resized(state.frozen.get("ring") or range(self.nodes), self.nodes)
        lengths = self._lengths(state)
        changed = bool(state.frozen) and (
            len(state.frozen["ring"]) != self.nodes or tuple(state.frozen["lengths"]) != lengths
        )
        pinned = self._pinned(state, changed)
        curves = [curve(state, at) for at in range(len(lengths))]
        known = [np.array(found, np.float64) for found in state.frozen.get("thresholds", [()] * len(lengths))]
        wanted = [
            np.empty(0) if along is None else self._thresholds(along, stream, length, before)
            for along, stream, length, before in zip(curves, state.streams, lengths, known, strict=True)
        ]
        borders, aged = _borders(curves, wanted), _borders(curves, known)
        stay = staying(state, pinned)
        return PspPlacement(
            nodes=max(self.nodes, 1 + int(state.homes()[stay].max(initial=0))),
            ring=ring,
            lengths=lengths,
            slices=tuple(_slice(stream, length) for stream, length in zip(state.streams, lengths, strict=True)),
            borders=borders,
            thresholds=tuple(tuple(found.round().astype(int).tolist()) for found in wanted),
            pinned=pinned,
            moved=self._moved(state, ring, borders, aged, stay, changed),
            since=state.batch if changed else state.frozen.get("since"),
        )

    def _lengths(self, state: StateView) -> tuple[int, ...]:
        """Return the ring length of each stream; those of the cost model only where they gain enough to move state."""
        if isinstance(self.lengths, tuple):
            return self.lengths
        every = (self.nodes,) * len(state.streams)
        if self.lengths is None or not parameters.known(state):
            return every
        p = parameters.measured(state)
        best = equations.ring_lengths(p, self.nodes, "latency")
        if len(state.frozen.get("ring", ())) != self.nodes:
            return best
        now, since = tuple(state.frozen["lengths"]), state.frozen.get("since")
        if since is not None and state.batch - since < INTERVAL:
            return now
        return best if equations.ring_latency(p, best) < (1 - MARGIN) * equations.ring_latency(p, now) else now

    def _pinned(self, state: StateView, changed: bool) -> tuple[int | None, ...]:
        """Return up to when each stream's chunks stay where they are; nothing once they are gone."""
        if self.relocation == "aggressive" or (changed and self.relocation == "auto"):
            return ()
        if changed:
            return tuple(stream.latest for stream in state.streams)
        pinned = tuple(state.frozen.get("pinned", ()))
        return pinned if staying(state, pinned).any() else ()

    def _thresholds(self, along: Curve, stream: StreamView, length: int, before: Floats) -> Floats:
        """Return a stream's thresholds; they start from the balance, and anew where the ring has another length."""
        if not self.smooth:
            return along.newer(_even(along, stream, length))
        wanted = along.balanced(length)
        if len(before) != length - 1:
            return wanted
        return eased(np.minimum(before, along.total), wanted, self.step * along.total / length, stream.rows)

    def _moved(
        self, state: StateView, ring: Sequence[int], borders: Borders, aged: Borders, stay: Flags, changed: bool
    ) -> Moved:
        """Return what a plan moves, and of what kind that is.

        Args:
            state: The state.
            ring: The ring.
            borders: The borders planned.
            aged: Where they would lie if only tuples aged.
            stay: Which chunks stay where they are.
            changed: Whether the ring or a stream's length on it is another than before.
        """
        places = placed(state, ring, borders, stay)
        between = handed(state, places)
        if not state.frozen:
            return Moved("aggressive", "the state was laid round the ring.", between)
        if stay.any():
            return Moved("passive", "what was there before the ring changed stays until it expires.", between)
        if changed:
            old, lengths = len(state.frozen["ring"]), "streams use other lengths of the ring."
            why = lengths if old == self.nodes else f"the ring went from {old} to {self.nodes} nodes."
            return Moved("aggressive", why, between)
        if self.smooth and (places != placed(state, ring, aged, stay)).any():
            return Moved("smoothing", "borders follow the balance of work.", between)
        return Moved("ageing", "tuples aged.", between)

    # -- the other answers

    def move(self, state: StateView, placement: Placement) -> dict[str, tuple[int, ...]]:
        """See Strategy; a chunk belongs where the middle of its times lies."""
        assert isinstance(placement, PspPlacement)
        places = placed(state, placement.ring, placement.borders, staying(state, placement.pinned))
        going = np.flatnonzero(places != state.homes())
        return {state.chunks[at].id: (node,) for at, node in zip(going.tolist(), places[going].tolist(), strict=True)}

    def freeze(self, placement: Placement, after: StateView) -> dict[str, Any]:
        """See Strategy."""
        assert isinstance(placement, PspPlacement)
        names = ("ring", "lengths", "thresholds", "pinned", "since")
        return {name: getattr(placement, name) for name in names}

    def facts(self, placement: Placement, state: StateView) -> dict[str, Any]:
        """See Strategy: the ring, each node's share of the state, and what moved before the batch."""
        assert isinstance(placement, PspPlacement)
        if not state.chunks:
            return {}
        rows = np.bincount(np.maximum(state.homes(), 0), state.column("rows"), placement.nodes)
        told = {
            "ring": list(placement.ring),
            "lengths": dict(zip(state.names, placement.lengths, strict=False)),
            "shares": (rows / rows.sum()).round(3).tolist(),
        }
        moved = placement.moved
        if not moved.between and moved.kind != "passive":
            return told
        between = {f"{source}->{to}": rows for source, to, rows in moved.between}
        rows_moved = sum(between.values())
        return told | {"moved": {"rows": rows_moved, "kind": moved.kind, "between": between, "why": moved.why}}


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
