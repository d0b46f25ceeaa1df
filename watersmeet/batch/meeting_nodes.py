"""Routes: for each partial result and chunk the one node at which they meet, and so the nodes to visit.

A chunk is probed at exactly one of its owners, which sender and receiver find by the same function. A placement that
routes badly costs visits, never results.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.placement import Placement
from watersmeet.probe.candidates import Hashes, Seat
from watersmeet.probe.chunk_table import Target
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import NOWHERE, Partials
from watersmeet.query.windows import clip_to_horizon
from watersmeet.spilling.units import may_probe
from watersmeet.state.chunks.chunk import Bucket


class Routes:
    """The routes of one batch.

    Args:
        placement: The batch's placement.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.tracked = placement.tracked

    def seats(self, block: Partials, step: Step, hashes: Hashes) -> Callable[[Target], Seat]:
        """Return a function that tells where each partial result probes a chunk: its node, or NOWHERE; see `Router`."""
        if step.role.here:
            return lambda target: target.chunk.owners[0] if target.chunk.bucket.first else NOWHERE
        placement = self._placement
        in_bucket = self._buckets(block, step, hashes)
        choices = _Choices(placement, block, step.target)

        def seat(target: Target) -> Seat:
            owners = target.chunk.owners
            at: Seat = owners[0] if len(owners) == 1 else choices.among(owners)
            mine = in_bucket(target.chunk.bucket)
            return at if mine is True else NOWHERE if mine is False else np.where(mine, at, NOWHERE)

        return seat

    def _buckets(self, block: Partials, step: Step, hashes: Hashes) -> Callable[[Bucket], bool | NDArray[np.bool_]]:
        """Return a function that tells which partial results must probe a bucket: all, none, or those in a mask.

        Rows that are stored in several ways are probed in one.
        """
        hashing = self._placement.probed_by(step.target, frozenset(step.joined))
        field = None if hashing is None else hashing[0].field
        hashed = None if hashing is None else hashes(block, hashing[1])

        @cache  # many chunks are of one bucket
        def must_probe(bucket: Bucket) -> bool | NDArray[np.bool_]:
            """Return whether all or none of the partial results must probe a bucket, or a mask of those that must."""
            if bucket.field != bucket.field_for(field):
                return False
            if bucket.field != field or hashed is None:
                return True
            return np.asarray(hashed % np.uint64(bucket.of) == bucket.number)

        return must_probe

    def visits(
        self, block: Partials, step: Step, targets: Iterable[Target], low: Ints, hashes: Hashes
    ) -> NDArray[np.bool_]:
        """Return a row per partial result and a column per node: whether it must be visited for the step.

        Args:
            block: The partial results.
            step: Their next step.
            targets: The chunks of its target.
            low: The earliest time that each of them looks for; its deadline is the latest.
            hashes: Returns the hashes of columns.
        """
        visited = np.zeros((len(block), self._placement.nodes), dtype=bool)
        seat_of = self.seats(block, step, hashes)
        for alike in _by_seat(targets):
            in_time = np.zeros(len(block), dtype=bool)
            for target in alike:
                near = (low <= target.chunk.high) & (block.deadline >= target.chunk.low)
                has_arrived = target.chunk.arrived.first <= block.batch
                in_time |= near & has_arrived & may_probe(step.role, target.owed, block.batch)
            seat = np.where(in_time, seat_of(alike[0]), NOWHERE)
            seated = np.flatnonzero(seat >= 0)
            visited[seated, seat[seated]] = True
        return visited


def _by_seat(targets: Iterable[Target]) -> Iterable[list[Target]]:
    """Return chunks in groups of the same owners and bucket: a partial result probes a whole group at one node."""
    by_seat: dict[tuple[Bucket, tuple[int, ...]], list[Target]] = defaultdict(list)
    for target in targets:
        by_seat[target.chunk.bucket, target.chunk.owners].append(target)
    return by_seat.values()


class _Choices:
    """Chooses which of several owners each partial result visits; asks the placement once per group and node."""

    def __init__(self, placement: Placement, block: Partials, target: int) -> None:
        self._placement, self._block, self._target = placement, block, target
        self._by_owners: dict[tuple[int, ...], Ints] = {}
        self._kinds: tuple[NDArray[np.int64], Ints] | None = None

    def among(self, owners: tuple[int, ...]) -> Ints:
        """Return for each partial result the owner at which it probes; found once for each set of owners."""
        if owners not in self._by_owners:
            kinds, inverse = self._groups()
            nodes = [self._placement.visit(group, self._target, owners, here) for group, here in kinds.tolist()]
            self._by_owners[owners] = np.array(nodes, dtype=np.int64)[inverse]
        return self._by_owners[owners]

    def _groups(self) -> tuple[NDArray[np.int64], Ints]:
        """Return the distinct pairs of group and node, and the position of each partial result's; computed once."""
        if self._kinds is None:
            block = self._block
            times = {stream: clip_to_horizon(own) for stream, own in block.times.items()}
            groups = self._placement.groups(block.origin, clip_to_horizon(block.moment), times)
            kinds, inverse = np.unique(np.stack([groups, block.here], axis=1), axis=0, return_inverse=True)
            self._kinds = kinds, inverse.ravel()
        return self._kinds
