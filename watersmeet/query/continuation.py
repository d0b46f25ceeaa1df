"""A join that goes on from a checkpoint: what nobody wrote, the checkpoint decides."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from watersmeet.arguments import format_duration, microseconds
from watersmeet.errors import DefinitionError
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding, parse_window


def continue_join(query: Query, stored: Mapping[str, Any]) -> Query:
    """Return a join with the delays and the windows that its checkpoint has, where its own follow from other things.

    [!] What is open or closed follows from windows, and what is late from delays: with others, state and results of
    the batches so far would not be those of the batches to come.

    Args:
        query: The join as it is now defined.
        stored: Its description in the checkpoint; what is missing there is left to whoever compares the two.
    """
    streams = tuple(_continue_stream(stream, stored) for stream in query.streams)
    return query if streams == query.streams else replace(query, streams=streams)


def _continue_stream(stream: StreamSpec, stored: Mapping[str, Any]) -> StreamSpec:
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
        except DefinitionError:  # said where the two are compared
            return stream
    return stream


def describe_kept_delays(now: Query, before: Query) -> Iterator[str]:
    """Yield in sentences which delays a checkpoint keeps.

    Args:
        now: The join as it is now defined.
        before: The same as it goes on.
    """
    for stream, kept in zip(now.streams, before.streams, strict=True):
        unused = stream.nested is not None and not stream.nested.delayed
        # Bounds that are themselves admitted once counted a microsecond more.
        if abs(kept.delay - stream.delay) > 1 and not unused:
            yield (
                f"Stream '{stream.name}' keeps the delay of its checkpoint, {format_duration(kept.delay)}: "
                f"{_reason(stream)} it would now be {format_duration(stream.delay)}. For that, start with a new "
                "checkpoint."
            )


def _reason(stream: StreamSpec) -> str:
    return "by its frame's watermark" if stream.delay_from == "watermark" else "by default"
