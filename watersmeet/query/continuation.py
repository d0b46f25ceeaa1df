"""Continuing a join from its checkpoint, which decides what the user left to defaults."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from watersmeet.arguments import format_duration, microseconds
from watersmeet.errors import DefinitionError
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding, parse_window


def continue_join(query: Query, stored: Mapping[str, Any]) -> Query:
    """Return a join with its checkpoint's delays and windows in place of those that are defaults or derived.

    [!] Windows decide what is open or closed, and delays what is late: with others, the batches to come would not fit
    the state and the results of those so far.

    Args:
        query: The join as it is now defined.
        stored: Its description in the checkpoint; whatever is missing there is kept, and found by the comparison.
    """
    streams = tuple(_continue_stream(stream, stored) for stream in query.streams)
    return query if streams == query.streams else replace(query, streams=streams)


def _continue_stream(stream: StreamSpec, stored: Mapping[str, Any]) -> StreamSpec:
    """Return a stream with its stored delay unless one is given, and its stored window if a derived one is narrower."""
    if stream.table:
        return stream
    window, delay = stored.get(f"window of '{stream.name}'"), stored.get(f"delay of '{stream.name}'")
    if stream.derived and isinstance(window, str) and window != stream.window.notation:
        before = parse_window(window)
        wider = isinstance(before, Sliding) and stream.window.span is not None and before.size > stream.window.span
        if before is not None and (wider or before.notation == "unbounded"):
            stream = replace(stream, window=before)
    if stream.delay_from != "given" and isinstance(delay, str):
        try:
            stream = replace(stream, delay=microseconds(delay))
        except DefinitionError:  # reported where the two are compared
            return stream
    return stream


def describe_kept_delays(now: Query, before: Query) -> Iterator[str]:
    """Yield a sentence for each delay that the checkpoint overrides.

    Args:
        now: The join as it is now defined.
        before: The same with the checkpoint's delays.
    """
    for stream, stored in zip(now.streams, before.streams, strict=True):
        unused = stream.nested is not None and not stream.nested.delayed
        # Inclusive bounds once counted a microsecond more.
        if abs(stored.delay - stream.delay) > 1 and not unused:
            yield (
                f"Stream '{stream.name}' keeps the delay of its checkpoint, {format_duration(stored.delay)}: "
                f"{_reason(stream)} it would now be {format_duration(stream.delay)}. For that, start with a new "
                "checkpoint."
            )


def _reason(stream: StreamSpec) -> str:
    return "by its frame's watermark" if stream.delay_from == "watermark" else "by default"
