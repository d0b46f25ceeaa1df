"""Watermarks: how far event time has advanced in each stream and in the join, and which stream holds it back."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from watersmeet.batch.report import StreamIntake
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import NEVER
from watersmeet.state.manifest.manifest import Manifest, StreamState


def advance_stream(spec: StreamSpec, old: StreamState, new: StreamIntake, now: int | None) -> StreamState:
    """Return the state of a stream after a batch.

    Args:
        spec: The stream.
        old: Its state before.
        new: Its counts in the batch.
        now: The driver's clock, in microseconds; None for a round, in which no stream becomes idle.
    """
    latest = max((t for t in (old.latest, new.latest) if t is not None), default=None)
    advance = 0 if latest is None else latest - (old.latest if old.latest is not None else (new.earliest or latest))
    if now is None:
        return replace(old, latest=latest, arrived=old.arrived + new.accepted, idle=old.idle or spec.table)
    # An earlier run's clock may have been ahead.
    active_at = now if new.rows or old.active_at is None else min(old.active_at, now)
    idle = spec.table or (spec.idle is not None and now - active_at > spec.idle)
    rate = new.accepted / advance * 1e6 if advance else old.rate
    rate = ((old.rate or rate) + rate) / 2
    return StreamState(latest, old.arrived + new.accepted, idle, active_at, new.accepted, advance, rate)


def join_watermark(
    before: int | None, query: Query, streams: Sequence[StreamState], nested: Mapping[int, int | None]
) -> int | None:
    """Return the join's watermark, None for minus infinity: the minimum over the streams that are not idle.

    It never decreases, and stays as it was if all streams are idle, or one that is not has no time yet.

    Args:
        before: The watermark before the batch.
        query: The join.
        streams: The state of its streams.
        nested: The time up to which the streams that are joins are complete, by position.
    """
    stream_states = zip(streams, stream_marks(query, streams, nested), strict=True)
    marks = [mark for state, mark in stream_states if not state.idle]
    finite = [mark for mark in marks if mark is not None]
    if not marks or len(finite) < len(marks):
        return before
    return max(NEVER if before is None else before, min(finite))  # no time is before NEVER, so nothing is late then


def stream_marks(query: Query, streams: Sequence[StreamState], nested: Mapping[int, int | None]) -> list[int | None]:
    """Return the watermark of each stream, None if it has none yet."""
    positions = enumerate(zip(query.streams, streams, strict=True))
    return [stream.watermark(state.latest, nested.get(at)) for at, (stream, state) in positions]


def held_back_by(query: Query, streams: Sequence[StreamState], nested: Mapping[int, int | None]) -> str | None:
    """Return the name of the stream that holds the watermark back: one that has none yet, else the one furthest behind.

    None if all streams are idle.
    """
    marks = zip(query.streams, streams, stream_marks(query, streams, nested), strict=True)
    waiting = [(-np.inf if mark is None else mark, stream.name) for stream, state, mark in marks if not state.idle]
    return min(waiting, key=lambda pair: pair[0])[1] if waiting else None


def join_settled(before: int | None, own: int | None, query: Query, inner: Mapping[int, Manifest]) -> int | None:
    """Return the time before which no later result of a join can lie; None for minus infinity.

    Args:
        before: That time before the batch.
        own: That time without regard to what inner joins owe.
        query: The join.
        inner: The state of the joins that are streams of it, by position.
    """
    behind = [at for at, manifest in inner.items() if manifest.settled != manifest.watermark]
    marks = [own, *(query.streams[at].watermark(None, inner[at].settled) for at in behind)]
    finite = [mark for mark in marks if mark is not None]
    if len(finite) < len(marks):
        return before
    return max(NEVER if before is None else before, min(finite))


def inner_marks(query: Query, inner: Mapping[int, Manifest]) -> dict[int, int | None]:
    """Return the time up to which the inner joins are complete, by position; see `Nested.bound`."""
    waiting = {at for at, stream in enumerate(query.streams) if stream.nested is not None and stream.nested.waits}
    return {at: state.settled if at in waiting else state.watermark for at, state in inner.items()}
