"""Orders by measured selectivity: the next stream is the one that produces the fewest partial results.

Greedy, as section 3.2 of "Multi-Way Windowed Streams θ-Joins Using Cluster" recommends: finding the best order by
dynamic programming takes too long for streams. All tuples of a stream use one order here; `histogram` considers their
values.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from watersmeet.ordering.join_order import FixedOrder, JoinOrder, Ordering, tied_streams
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.work import HopWork
from watersmeet.query.query import Query
from watersmeet.state.chunks.chunk import Chunk

DECAY = 0.8
"""Weight of earlier batches after one more batch."""
FORGOTTEN = 0.5
"""Hops with fewer partial results than this, decayed, are forgotten: they may have changed since."""
EXPLORE = 8
"""Once in this many batches, a stream's tuples take a hop that was never measured."""
EQUALITY_SHARE, USUAL_SHARE = 0.1, 0.33
"""The assumed share of pairs that pass an equality, or any other conjunct, without measurements."""


@dataclass(frozen=True, slots=True)
class HopStatistics:
    """The statistics of one hop: incoming partial results, pairs close enough in time, and matches; all decayed."""

    rows: float
    pairs: float
    matches: float


@dataclass(frozen=True, slots=True)
class Selectivity(Ordering):
    """Learns how many matches a partial result has on each hop, and takes the hop with the fewest at each step.

    A hop never taken is estimated from pairs of its streams on other hops, or else by the usual selectivity of its
    conjuncts; ties are broken by the order of the definition. Once in EXPLORE batches, which differ between streams, an
    untried hop is taken in order to measure it.
    """

    def plan(self, query: Query, chunks: tuple[Chunk, ...] = (), learned: Mapping[str, Any] | None = None) -> JoinOrder:
        """See Ordering."""
        estimator = _HopEstimator(query, chunks, learned or {})
        return FixedOrder(tuple(estimator.order(origin) for origin in range(len(query.streams))))

    def learn(self, learned: Mapping[str, Any], hops: Mapping[Hop, HopWork]) -> dict[str, Any]:
        """Return the statistics so far, decayed, plus the batch's hops, without hops of too few rows; see Ordering."""
        statistics = {
            hop: HopStatistics(DECAY * old.rows, DECAY * old.pairs, DECAY * old.matches)
            for hop, old in _from_json(learned).items()
        }
        for hop, work in hops.items():
            old = statistics.get(hop, HopStatistics(0.0, 0.0, 0.0))
            statistics[hop] = HopStatistics(old.rows + work.rows_in, old.pairs + work.pairs, old.matches + work.matches)
        recent = [(hop, now) for hop, now in sorted(statistics.items()) if now.rows >= FORGOTTEN]
        return {
            "batches": int(learned.get("batches", 0)) + 1,
            "hops": [[*hop, now.rows, now.pairs, now.matches] for hop, now in recent],
        }

    def estimates(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> dict[Hop, float]:
        """Return the expected matches of the hops on each stream's order, measured or estimated. See Ordering."""
        estimator = _HopEstimator(query, chunks, learned)
        matches: dict[Hop, float] = {}
        for origin in range(len(query.streams)):
            order = estimator.order(origin)
            for at, target in enumerate(order):
                hop = _hop((origin, *order[:at]), target)
                matches[hop] = estimator.estimate(*hop)
        return matches


class _HopEstimator:
    """Estimates hops from the statistics before a batch."""

    def __init__(self, query: Query, chunks: tuple[Chunk, ...], learned: Mapping[str, Any]) -> None:
        self._query = query
        self._statistics = _from_json(learned)
        self._batches = int(learned.get("batches", 0))
        self._rows = [0] * len(query.streams)
        for chunk in chunks:
            self._rows[chunk.stream] += chunk.rows if chunk.bucket.first else 0

    def order(self, origin: int) -> tuple[int, ...]:
        """Return the order of a stream's tuples: greedy or, once in `EXPLORE` batches, with an untried hop."""
        joined: tuple[int, ...] = (origin,)
        explore = self._batches > 0 and (self._batches + origin) % EXPLORE == 0
        while len(joined) < len(self._query.streams):
            untried = (
                [t for t in self._candidates(joined) if _hop(joined, t) not in self._statistics] if explore else []
            )
            explore = explore and not untried
            joined = (*joined, untried[0] if untried else self._next_stream(joined))
        return joined[1:]

    def _next_stream(self, joined: tuple[int, ...]) -> int:
        candidates = self._candidates(joined)
        others = set(range(len(self._query.streams))) - set(joined) - set(candidates)
        alternatives = [stream for stream in sorted(others) if _hop(joined, stream) in self._statistics]
        return min((*candidates, *alternatives), key=lambda stream: self.estimate(*_hop(joined, stream)))

    def _candidates(self, joined: tuple[int, ...]) -> list[int]:
        ties = [conjunct.streams for conjunct in self._query.conjuncts if len(conjunct.streams) > 1]
        return tied_streams(joined, len(self._query.streams), ties)

    def estimate(self, joined: tuple[int, ...], target: int) -> float:
        """Return the expected matches per partial result: measured, or else by pairs of streams, or else as usual.

        `joined` must be in ascending order.
        """
        statistics = self._statistics.get((joined, target))
        if statistics is not None:
            return statistics.matches / statistics.rows
        conjuncts: dict[frozenset[int], list[Conjunct]] = defaultdict(list)
        for conjunct in self._query.conjuncts:
            if target in conjunct.streams and conjunct.streams <= {*joined, target}:
                conjuncts[conjunct.streams - {target}].append(conjunct)
        shares = (self._share(streams, target) for streams in conjuncts)
        usual = (prod(map(usual_share, together)) for together in conjuncts.values())
        return self._rows[target] * prod(u if s is None else s for s, u in zip(shares, usual, strict=True))

    def _share(self, streams: frozenset[int], target: int) -> float | None:
        """Return the share of the pairs of two streams' tuples that match, whichever of the two arrived first.

        None if there are several other streams, or no pair has been measured.
        """
        if len(streams) != 1:
            return None
        (other,) = streams
        hops = ((other,), target), ((target,), other)
        directions = [self._statistics[hop] for hop in hops if hop in self._statistics]
        pairs = sum(statistics.pairs for statistics in directions)
        return sum(statistics.matches for statistics in directions) / pairs if pairs else None


def usual_share(conjunct: Conjunct) -> float:
    """Return the assumed share of pairs that pass a conjunct without measurements."""
    return EQUALITY_SHARE if conjunct.equality else USUAL_SHARE


def _hop(joined: tuple[int, ...], target: int) -> Hop:
    return tuple(sorted(joined)), target


def _from_json(learned: Mapping[str, Any]) -> dict[Hop, HopStatistics]:
    return {(tuple(joined), target): HopStatistics(*numbers) for joined, target, *numbers in learned.get("hops", ())}
