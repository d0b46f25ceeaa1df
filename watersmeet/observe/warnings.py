"""Warnings: what a batch shows that people should look at, in sentences; pure, so that it can be tested."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from watersmeet.arguments import format_duration, format_roughly
from watersmeet.batch.intake import StreamIntake
from watersmeet.formatting import value_at
from watersmeet.query.query import Query, StreamSpec
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.manifest.manifest import Manifest

AHEAD = "ahead"


class Notice(NamedTuple):
    """A warning.

    Attributes:
        kind: What it is about; the same from batch to batch, while numbers in the sentence change.
        says: The sentence.
    """

    kind: str
    says: str


def notices(
    query: Query,
    before: Manifest,
    after: Manifest,
    marks: Sequence[int | None],
    taken: Sequence[StreamIntake],
    passed: int = 0,
) -> list[Notice]:
    """Return the warnings of a batch.

    Args:
        query: The join.
        before: The state before the batch.
        after: The state after it.
        marks: The watermark of each stream after it; None if it has none yet.
        taken: What each stream brought.
        passed: The microseconds from the batch before to this one, by the driver's clock.
    """
    span = max((bound for stream in query.streams if (bound := stream.window.bound) is not None), default=None)
    found = [_too_far(spec, seen) for spec, seen in zip(query.streams, taken, strict=True)]
    states = zip(query.streams, before.streams, after.streams, strict=True)
    found += [_emptied(spec.name, old.rows) for spec, old, new in states if spec.refreshed and not new.rows]
    if span is not None:
        found += [_jumped(before, after, span, passed), _held_back(query, before, after, marks, span)]
    return [notice for notice in found if notice is not None]


def news(found: Iterable[Notice], told: Collection[str]) -> tuple[list[Notice], frozenset[str]]:
    """Return the warnings that are to be logged, and the kinds that need not be next time.

    Args:
        found: The warnings of a batch.
        told: The kinds that this returned for the batch before: what goes on is told once. Rows too far ahead come now
            and then; they are told once in a run.
    """
    now = {notice.kind: notice for notice in found}
    kept = {kind for kind in told if kind.startswith(AHEAD)}
    return [notice for kind, notice in now.items() if kind not in told], frozenset({*now, *kept})


def _too_far(spec: StreamSpec, seen: StreamIntake) -> Notice | None:
    if not seen.too_far or seen.furthest is None or spec.ahead is None:
        return None
    furthest = _shown(spec, seen.furthest)
    what = (
        f"1 row was rejected: its event time, {furthest}, lies"
        if seen.too_far == 1
        else f"{seen.too_far:,} rows were rejected: their event times, up to {furthest}, lie"
    )
    return Notice(
        f"{AHEAD} {spec.name}",
        f"Stream '{spec.name}': {what} more than {format_duration(spec.ahead)} ahead of the clock and of all streams. "
        "If these times are correct, give the stream a longer ahead='...', or ahead=None.",
    )


def _emptied(table: str, rows: int) -> Notice | None:
    """Warn of a table that had rows in the batch before and has none now: its files may just have been replaced."""
    if not rows:
        return None
    return Notice(
        f"emptied {table}",
        f"Table '{table}' had {rows:,} rows in the batch before and has none now, so that nothing matches it. If its "
        "files were being replaced just then, results were lost: replace a table in one step, as Delta does.",
    )


def _shown(spec: StreamSpec, time: int) -> str:
    found = value_at(pa.array([time], pa.int64()).cast(spec.time_type), 0)
    return f"{found} µs" if isinstance(found, int) else str(found)


def _jumped(before: Manifest, after: Manifest, span: int, passed: int) -> Notice | None:
    """Warn of a watermark that moved by more than the windows, unless as much time has passed: batches may be rare."""
    if before.watermark is None or after.watermark is None:
        return None
    moved = after.watermark - before.watermark
    if moved <= span + max(0, passed):
        return None
    return Notice(
        "jump",
        f"The watermark moved by {format_roughly(moved)} in one batch, more than the largest window "
        f"({format_duration(span)}): tuples from in between that arrive later are late. If this is "
        "not a backlog, check the streams' event times.",
    )


def _held_back(
    query: Query, before: Manifest, after: Manifest, marks: Sequence[int | None], span: int
) -> Notice | None:
    """Warn of a stream so far behind the others that most of the state is kept for its sake."""
    waiting = [at for at, state in enumerate(after.streams) if not state.idle]
    known = {at: mark for at in waiting if (mark := marks[at]) is not None}
    if not known or len(known) < len(waiting):
        return None  # nobody knows how far behind a stream is that has not been seen yet
    reached = _reached(after, marks)
    slowest, first = min(known, key=known.__getitem__), max(reached, key=reached.__getitem__)
    behind, usual = reached[first] - reached[slowest], span + max(stream.delay for stream in query.streams)
    if behind <= usual:
        return None
    name, (rows, size), (was, _) = query.streams[slowest].name, _kept(after), _kept(before)
    grown = f", {rows - was:,} more rows than a batch ago" if rows > was else ""
    return Notice(
        f"behind {name}",
        f"Stream '{name}' holds back the watermark: it is {format_roughly(behind)} behind "
        f"'{query.streams[first].name}', more than windows and delays together ({format_duration(usual)}). State is "
        f"kept for it: {rows:,} rows, {size / 1e6:,.1f} MB{grown}. If it can fall silent, give it idle='...'.",
    )


def _reached(after: Manifest, marks: Sequence[int | None]) -> dict[int, int]:
    """Return how far each stream has come that has been seen; one that is a join as far as that has, at the least."""
    times = [
        [t for t in (state.latest, mark) if t is not None] for state, mark in zip(after.streams, marks, strict=True)
    ]
    return {at: max(found) for at, found in enumerate(times) if found}


def _kept(state: Manifest) -> tuple[int, int]:
    """Return the rows and bytes of state, copies included."""
    chunks: Collection[Chunk] = state.chunks.values()
    return sum(c.live * len(c.owners) for c in chunks), sum(c.bytes * len(c.owners) for c in chunks)
