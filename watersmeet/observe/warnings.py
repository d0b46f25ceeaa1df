"""Warnings about a batch, in sentences; pure, so that it can be tested."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from watersmeet.arguments import format_duration, format_roughly
from watersmeet.batch.report import StreamIntake
from watersmeet.formatting import value_at
from watersmeet.query.query import Query, StreamSpec
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.manifest.manifest import Manifest, StreamState

AHEAD = "ahead"


class Notice(NamedTuple):
    """A warning.

    Attributes:
        kind: What it is about; it stays the same from batch to batch, while numbers in the sentence change.
        message: The sentence.
    """

    kind: str
    message: str


def notices(
    query: Query,
    before: Manifest,
    after: Manifest,
    marks: Sequence[int | None],
    intakes: Sequence[StreamIntake],
    elapsed: int | None = 0,
) -> list[Notice]:
    """Return the warnings of a batch: on event times, rejected rows, emptied tables and the watermark.

    Args:
        query: The join.
        before: The state before the batch.
        after: The state after it.
        marks: The watermark of each stream after it; None if it has none yet.
        intakes: What each stream brought.
        elapsed: The microseconds since the batch before, by the driver's clock; None if the query works off a backlog,
            where the watermark moves as far as a batch reads.
    """
    span = max((bound for stream in query.streams if (bound := stream.window.bound) is not None), default=None)
    candidates = [_warn_ahead(spec, intake) for spec, intake in zip(query.streams, intakes, strict=True)]
    newest = zip(query.streams, after.streams, intakes, strict=True)
    candidates += [_warn_all_rejected(spec, state, intake) for spec, state, intake in newest]
    states = zip(query.streams, before.streams, after.streams, strict=True)
    candidates += [
        _warn_emptied(spec.name, earlier.rows) for spec, earlier, new in states if spec.refreshed and not new.rows
    ]
    if span is not None and elapsed is not None:
        candidates.append(_warn_jump(before, after, span, elapsed))
    if span is not None:
        candidates.append(_warn_behind(query, before, after, marks, span))
    return [notice for notice in candidates if notice is not None]


def news(batch_notices: Iterable[Notice], known_kinds: Collection[str]) -> tuple[list[Notice], frozenset[str]]:
    """Return the warnings to log now, and the kinds that need not be logged next time.

    Args:
        batch_notices: The warnings of a batch.
        known_kinds: The kinds returned for the batch before: what continues is logged once. Rows too far ahead come
            now and then and are logged once in a run.
    """
    by_kind = {notice.kind: notice for notice in batch_notices}
    lasting_kinds = {kind for kind in known_kinds if kind.startswith(AHEAD)}
    return [notice for kind, notice in by_kind.items() if kind not in known_kinds], frozenset(
        {*by_kind, *lasting_kinds}
    )


def _warn_ahead(spec: StreamSpec, intake: StreamIntake) -> Notice | None:
    """Return a notice of rows that were rejected since they lie too far ahead; None if there were none."""
    if not intake.too_far or intake.furthest is None or spec.ahead is None:
        return None
    furthest = _format_time(spec, intake.furthest)
    subject = (
        f"1 row was rejected: its event time, {furthest}, lies"
        if intake.too_far == 1
        else f"{intake.too_far:,} rows were rejected: their event times, up to {furthest}, lie"
    )
    return Notice(
        f"{AHEAD} {spec.name}",
        f"Stream '{spec.name}': {subject} more than {format_duration(spec.ahead)} ahead of the clock and of all "
        "streams. If these times are correct, give the stream a longer ahead='...', or ahead=None.",
    )


def _warn_all_rejected(spec: StreamSpec, state: StreamState, intake: StreamIntake) -> Notice | None:
    """Return a notice of a stream whose rows were all rejected, those of earlier batches included; None otherwise."""
    if state.latest is not None or spec.nested is not None or not intake.rejected:
        return None
    return Notice(f"rejected {spec.name}", describe_all_rejected(spec.name))


def describe_all_rejected(stream: str) -> str:
    """Return the sentence on a stream that has had rows, all of which were rejected."""
    return (
        f"Stream '{stream}': all of its rows so far were rejected, as none has a usable event time; until one has, no "
        "state can leave."
    )


def _warn_emptied(table: str, rows: int) -> Notice | None:
    """Return a notice of a table that has no rows now; None if it had none in the batch before either.

    Its files may be being replaced.
    """
    if not rows:
        return None
    return Notice(
        f"emptied {table}",
        f"Table '{table}' had {rows:,} rows in the batch before and has none now, so that nothing matches it. If its "
        "files were being replaced just then, results were lost: replace a table in one step, as Delta does.",
    )


def _format_time(spec: StreamSpec, time: int) -> str:
    value = value_at(pa.array([time], pa.int64()).cast(spec.time_type), 0)
    return f"{value} µs" if isinstance(value, int) else str(value)


def _warn_jump(before: Manifest, after: Manifest, span: int, elapsed: int) -> Notice | None:
    """Return a notice if the watermark moved further than the largest window and the time between the batches allow.

    Args:
        before: The state before the batch.
        after: The state after it.
        span: The length of the largest window, in microseconds.
        elapsed: The microseconds since the batch before.
    """
    if before.watermark is None or after.watermark is None:
        return None
    distance = after.watermark - before.watermark
    if distance <= span + max(0, elapsed):
        return None
    return Notice(
        "jump",
        f"The watermark moved by {format_roughly(distance)} in one batch, more than the largest window "
        f"({format_duration(span)}): tuples from in between that arrive later are late. "
        "If this is not a backlog, check the streams' event times.",
    )


def _warn_behind(
    query: Query, before: Manifest, after: Manifest, marks: Sequence[int | None], span: int
) -> Notice | None:
    """Return a notice of the stream furthest behind; None if windows and delays account for its lag.

    Idle streams don't count; there is none while an active stream has no watermark.
    """
    active = [at for at, state in enumerate(after.streams) if not state.idle]
    known_marks = {at: mark for at in active if (mark := marks[at]) is not None}
    if not known_marks or len(known_marks) < len(active):
        return None  # how far behind a stream is that has brought no rows is unknown
    progress = _latest_times(after, marks)
    slowest, first = min(known_marks, key=known_marks.__getitem__), max(progress, key=progress.__getitem__)
    behind, allowance = progress[first] - progress[slowest], span + max(stream.delay for stream in query.streams)
    if behind <= allowance:
        return None
    name, (rows, size), (earlier_rows, _) = query.streams[slowest].name, _state_size(after), _state_size(before)
    growth = f", {rows - earlier_rows:,} more rows than a batch ago" if rows > earlier_rows else ""
    return Notice(
        f"behind {name}",
        f"Stream '{name}' holds back the watermark: it is {format_roughly(behind)} behind "
        f"'{query.streams[first].name}', more than windows and delays together ({format_duration(allowance)}). "
        f"State is kept for it: {rows:,} rows, {size / 1e6:,.1f} MB{growth}. "
        "If it can fall silent, give it idle='...'.",
    )


def _latest_times(after: Manifest, marks: Sequence[int | None]) -> dict[int, int]:
    """Return the latest time of each stream that has brought rows; for a nested join at least its watermark."""
    times = [
        [t for t in (state.latest, mark) if t is not None] for state, mark in zip(after.streams, marks, strict=True)
    ]
    return {at: max(times_of_stream) for at, times_of_stream in enumerate(times) if times_of_stream}


def _state_size(state: Manifest) -> tuple[int, int]:
    """Return the rows and bytes of state, copies included."""
    chunks: Collection[Chunk] = state.chunks.values()
    return sum(c.live * len(c.owners) for c in chunks), sum(c.bytes * len(c.owners) for c in chunks)
