"""Watermarks: how far a stream has come, what that makes of the join, and who holds it back."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from watersmeet.batch.intake import StreamIntake
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import NEVER
from watersmeet.state.manifest.manifest import Manifest, StreamState


def advanced(spec: StreamSpec, old: StreamState, new: StreamIntake, now: int | None) -> StreamState:
    """Return the state of a stream after a batch.

    Args:
        spec: The stream.
        old: Its state before.
        new: What the batch brought of it.
        now: The driver's clock, in microseconds; None for a round: no stream falls idle in it.
    """
    latest = max((t for t in (old.latest, new.latest) if t is not None), default=None)
    advance = 0 if latest is None else latest - (old.latest if old.latest is not None else (new.earliest or latest))
    if now is None:
        return replace(old, latest=latest, arrived=old.arrived + new.accepted, idle=old.idle or spec.table)
    heard = now if new.rows or old.heard is None else min(old.heard, now)  # an earlier run's clock may have been ahead
    idle = spec.table or (spec.idle is not None and now - heard > spec.idle)
    seen = new.accepted / advance * 1e6 if advance else old.rate
    rate = ((old.rate or seen) + seen) / 2
    return StreamState(latest, old.arrived + new.accepted, idle, heard, new.accepted, advance, rate)


def join_watermark(
    before: int | None, query: Query, streams: Sequence[StreamState], nested: Mapping[int, int | None]
) -> int | None:
    """Return the join's watermark: the least of the streams that are not idle, never falling.

    Args:
        before: The watermark before the batch.
        query: The join.
        streams: The state of its streams.
        nested: How far those that are joins have come, by position.
    """
    held = [mark for state, mark in zip(streams, stream_marks(query, streams, nested), strict=True) if not state.idle]
    marks = [mark for mark in held if mark is not None]
    if not held or len(marks) < len(held):
        return before
    return max(NEVER if before is None else before, min(marks))  # nothing is late before the earliest time there is


def stream_marks(query: Query, streams: Sequence[StreamState], nested: Mapping[int, int | None]) -> list[int | None]:
    """Return the watermark of each stream, None if it has none yet."""
    named = enumerate(zip(query.streams, streams, strict=True))
    return [stream.watermark(state.latest, nested.get(at)) for at, (stream, state) in named]


def held_back_by(query: Query, streams: Sequence[StreamState], nested: Mapping[int, int | None]) -> str | None:
    """Return the stream that holds the watermark: one that has none yet, else the one furthest behind."""
    marks = zip(query.streams, streams, stream_marks(query, streams, nested), strict=True)
    waiting = [(-np.inf if mark is None else mark, stream.name) for stream, state, mark in marks if not state.idle]
    return min(waiting, key=lambda pair: pair[0])[1] if waiting else None


def join_settled(before: int | None, own: int | None, query: Query, inner: Mapping[int, Manifest]) -> int | None:
    """Return the time before which no result of a join can lie that is still to come; None for minus infinity.

    Args:
        before: The same before the batch.
        own: The same but for what inner joins owe.
        query: The join.
        inner: The state of the joins that are streams of it, by position.
    """
    behind = [at for at, manifest in inner.items() if manifest.settled != manifest.watermark]
    marks = [own, *(query.streams[at].watermark(None, inner[at].settled) for at in behind)]
    held = [mark for mark in marks if mark is not None]
    if len(held) < len(marks):
        return before
    return max(NEVER if before is None else before, min(held))


def inner_marks(query: Query, inner: Mapping[int, Manifest]) -> dict[int, int | None]:
    """Return how far the joins that are streams of another have come, by position; see `Nested.bound`."""
    waiting = {at for at, stream in enumerate(query.streams) if stream.nested is not None and stream.nested.waits}
    return {at: state.settled if at in waiting else state.watermark for at, state in inner.items()}
