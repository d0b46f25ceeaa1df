"""Orders by what hops were seen to do: the next stream is the one that makes the fewest partial results.

Greedy, as section 3.2 of "Multi-Way Windowed Streams θ-Joins Using Cluster" argues for: a best order by dynamic
programming takes too long for streams. Here one order serves all tuples of a stream; `histogram` looks at their values.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from watersmeet.ordering.base import JoinOrder, Ordering
from watersmeet.ordering.given import FixedOrder, tied
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.work import HopWork
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk

DECAY = 0.8
"""How much of what is known still counts after one more batch."""
FORGOTTEN = 0.5
"""Hops of fewer partial results than this, decayed, are forgotten: they may have changed since."""
EXPLORE = 8
"""Once in so many batches a stream's tuples try a hop that nothing is known of."""
EQUAL, USUAL = 0.1, 0.33
"""The share of pairs that an equality, or any other conjunct, is taken to let through where nothing tells."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one hop: partial results that came, pairs in time, matches; all decayed."""

    rows: float
    pairs: float
    matches: float


@dataclass(frozen=True, slots=True)
class Selectivity(Ordering):
    """Learns how many matches a partial result finds on each hop, and takes the smallest number at each step.

    A hop never taken is estimated from pairs of its streams, which may meet on other hops, and else by what such
    conjuncts usually let through; where estimates tie, the given order decides. Once in EXPLORE batches, in other
    batches for other streams, an untried hop is taken so that it becomes known.
    """

    def plan(self, query: Query, chunks: tuple[Chunk, ...] = (), learned: Mapping[str, Any] | None = None) -> JoinOrder:
        """See Ordering."""
        view = _View(query, chunks, learned or {})
        return FixedOrder(tuple(view.order(origin) for origin in range(len(query.streams))))

    def learn(self, learned: Mapping[str, Any], hops: Mapping[Hop, HopWork]) -> dict[str, Any]:
        """See Ordering."""
        known = {
            hop: Known(DECAY * was.rows, DECAY * was.pairs, DECAY * was.matches) for hop, was in _read(learned).items()
        }
        for hop, work in hops.items():
            was = known.get(hop, Known(0.0, 0.0, 0.0))
            known[hop] = Known(was.rows + work.rows_in, was.pairs + work.pairs, was.matches + work.matches)
        kept = {hop: now for hop, now in sorted(known.items()) if now.rows >= FORGOTTEN}
        return {
            "batches": int(learned.get("batches", 0)) + 1,
            "hops": [[*hop, now.rows, now.pairs, now.matches] for hop, now in kept.items()],
        }

    def estimates(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> dict[Hop, float]:
        """Return for each hop of the orders that `plan` makes the matches expected per partial result."""
        view = _View(query, chunks, learned)
        found: dict[Hop, float] = {}
        for origin in range(len(query.streams)):
            order = view.order(origin)
            for at, target in enumerate(order):
                hop = _hop((origin, *order[:at]), target)
                found[hop] = view.estimate(*hop)
        return found


class _View:
    """What is known before a batch, asked hop by hop."""

    def __init__(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> None:
        self._query = query
        self._known = _read(learned)
        self._batches = int(learned.get("batches", 0))
        self._rows = [0] * len(query.streams)
        for chunk in chunks:
            self._rows[chunk.stream] += chunk.rows if chunk.bucket.first else 0

    def order(self, origin: int) -> tuple[int, ...]:
        """Return the order of a stream's tuples."""
        joined: tuple[int, ...] = (origin,)
        curious = self._batches > 0 and (self._batches + origin) % EXPLORE == 0
        while len(joined) < len(self._query.streams):
            untried = [t for t in self._candidates(joined) if _hop(joined, t) not in self._known] if curious else []
            curious = curious and not untried
            joined = (*joined, untried[0] if untried else self._next(joined))
        return joined[1:]

    def _next(self, joined: tuple[int, ...]) -> int:
        candidates = self._candidates(joined)
        others = set(range(len(self._query.streams))) - set(joined) - set(candidates)
        tried = [stream for stream in sorted(others) if _hop(joined, stream) in self._known]
        return min((*candidates, *tried), key=lambda stream: self.estimate(*_hop(joined, stream)))

    def _candidates(self, joined: tuple[int, ...]) -> list[int]:
        ties = [conjunct.streams for conjunct in self._query.conjuncts if len(conjunct.streams) > 1]
        return tied(joined, len(self._query.streams), ties)

    def estimate(self, joined: tuple[int, ...], target: int) -> float:
        """Return the matches expected per partial result: as seen, or else by pairs of streams, or else as usual."""
        known = self._known.get((joined, target))
        if known is not None:
            return known.matches / known.rows
        decided: dict[frozenset[int], list[Conjunct]] = defaultdict(list)
        for conjunct in self._query.conjuncts:
            if target in conjunct.streams and conjunct.streams <= {*joined, target}:
                decided[conjunct.streams - {target}].append(conjunct)
        shares = (self._share(streams, target) for streams in decided)
        usual = (prod(map(usual_share, conjuncts)) for conjuncts in decided.values())
        return self._rows[target] * prod(u if s is None else s for s, u in zip(shares, usual, strict=True))

    def _share(self, streams: frozenset[int], target: int) -> float | None:
        """Return which share of the pairs of two streams' tuples match, whichever of them came first."""
        if len(streams) != 1:
            return None
        (other,) = streams
        found = [self._known[hop] for hop in (((other,), target), ((target,), other)) if hop in self._known]
        pairs = sum(known.pairs for known in found)
        return sum(known.matches for known in found) / pairs if pairs else None


def usual_share(conjunct: Conjunct) -> float:
    """Return which share of pairs a conjunct is taken to let through where nothing tells."""
    return EQUAL if conjunct.equality else USUAL


def _hop(joined: tuple[int, ...], target: int) -> Hop:
    return tuple(sorted(joined)), target


def _read(learned: Mapping[str, Any]) -> dict[Hop, Known]:
    return {(tuple(joined), target): Known(*numbers) for joined, target, *numbers in learned.get("hops", ())}
