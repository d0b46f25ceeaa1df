"""`how=`: which streams are optional, and what can't be decided of them is refused, in a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, get_args

from watersmeet.errors import DefinitionError
from watersmeet.model.query import How, Query, StreamSpec
from watersmeet.model.windows import Sliding
from watersmeet.predicate.bounds import FIXED_ZONES
from watersmeet.predicate.model import Column

Condition = TypeVar("Condition")
KINDS: dict[object, How] = {kind: kind for kind in get_args(How)}


def hows(given: Mapping[str, str] | None, streams: Sequence[StreamSpec]) -> tuple[How, ...]:
    """Return what is asked of each stream; empty if all are required.

    Raises:
        DefinitionError: If a stream or a kind of join is none, or no stream is required.
    """
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise DefinitionError(f"how={given!r}: name the optional streams, as in how={{'payments': 'left'}}.")
    names = {stream.name.lower(): at for at, stream in enumerate(streams)}
    found: list[How] = ["inner"] * len(streams)
    for name, kind in given.items():
        if not isinstance(name, str) or name.lower() not in names:
            known = ", ".join(stream.name for stream in streams)
            raise DefinitionError(f"how={{{name!r}: ...}}: there is no such stream; the streams are {known}.")
        if not isinstance(kind, str) or kind not in KINDS:
            raise DefinitionError(
                f"how={{{name!r}: {kind!r}}}: an optional stream is 'left', 'semi', 'anti' or 'full'; for a right join "
                "make the other streams optional."
            )
        found[names[name.lower()]] = KINDS[kind]
    if "inner" not in found:
        raise DefinitionError("how= names every stream: at least one must be required, so leave it out there.")
    if "full" in found and len(found) > 2:
        raise DefinitionError(
            "how=: a full join has two streams; join two of them first, and make that a stream: "
            "wm.stream('ab', wm.join(a, b, ..., how={'b': 'full'}), window=...)."
        )
    return tuple(found) if set(found) != {"inner"} else ()


def partners_asked(on: Mapping[str, Condition] | None, query: Query) -> dict[int, Condition]:
    """Return what partners of optional streams must satisfy, by position.

    Raises:
        DefinitionError: If it is said of a stream that is not optional.
    """
    if on is None:
        return {}
    if not isinstance(on, Mapping):
        raise DefinitionError(
            f"on={on!r}: name the optional streams, as in on={{'payments': 'payments.id = orders.id'}}."
        )
    names = {stream.name.lower(): at for at, stream in enumerate(query.streams)}
    for name in on:
        if not isinstance(name, str) or names.get(name.lower()) not in query.optional:
            known = ", ".join(query.streams[at].name for at in query.optional) or "none"
            raise DefinitionError(
                f"on={{{name!r}: ...}}: this is no optional stream; those that how= names are: {known}."
            )
    return {names[name.lower()]: condition for name, condition in on.items()}


def windowed(query: Query) -> Query:
    """Return a join with windows where conditions on event times amount to some.

    With one required stream, tables aside, `b.ts <= a.ts + INTERVAL 10 MINUTES` says the same of `a` as a window: every
    combination that the condition accepts lies within it, and once it is over none can come. With several, a window
    would concern the others as well.
    """
    members = [at for at in query.members if not query.streams[at].table]
    optional = [at for at in query.optional if not query.streams[at].table]
    if not optional or len(members) != 1:
        return query
    (member,) = members
    after = [_reach(query, at, member) for at in optional]
    found = {at: _reach(query, member, at) for at in optional}
    found[member] = None if None in after else max(reach for reach in after if reach is not None)
    streams = (
        replace(stream, window=Sliding(reach + 1))
        if (reach := found.get(at)) is not None and _endless(stream)
        else stream
        for at, stream in enumerate(query.streams)
    )
    return replace(query, streams=tuple(streams))


def _endless(stream: StreamSpec) -> bool:
    return stream.window.span is None and stream.window.rows is None


def _reach(query: Query, one: int, two: int) -> int | None:
    """Return by how many microseconds the time of one stream's member can be later than another's; None for any."""
    reaches = []
    for order in (order for conjunct in query.conjuncts for order in conjunct.orders):
        if (order.less.stream, order.more.stream) == (one, two):
            less, more = _moved(query, order.less), _moved(query, order.more)
            reaches += [] if less is None or more is None else [max(0, more - less)]
    return min(reaches, default=None)


def _moved(query: Query, column: Column) -> int | None:
    """Return by how much a column differs from its stream's event time; None if that isn't known."""
    stream = query.streams[column.stream]
    if column.field == stream.time:
        return 0
    hidden = stream.hidden[column.field - len(stream.schema)] if column.field >= len(stream.schema) else None
    moved = None if hidden is None else hidden.moved
    return None if moved is None or moved[0] != stream.time else moved[1]


def check_outer(query: Query, *, streaming: bool, spilling: bool) -> None:
    """Check that it can be decided when a combination has no partner.

    Args:
        query: The join.
        streaming: Whether its inputs go on for ever.
        spilling: Whether work may be put off.

    Raises:
        DefinitionError: If it can't.
    """
    if not query.optional:
        return
    if spilling:
        raise DefinitionError(
            "spill= can't be combined with how=: work that is put off may hold a partner; remove one of the two."
        )
    for stream in (query.streams[at] for at in query.counted):
        raise DefinitionError(
            f"Stream '{stream.name}' has a count window, which doesn't say when a partner can no longer come: with "
            "how=, use a window of time."
        )
    for stream in (stream for stream in query.streams if stream.refreshed):
        raise DefinitionError(
            f"Table '{stream.name}' is read for each batch, and what has no partner is only known batches later: with "
            "how=, leave refresh= out."
        )
    if all(query.streams[at].table for at in query.members):
        raise DefinitionError(
            "how=: all that is required are tables, which have neither times nor windows, so that results would have "
            "no time: require a stream as well."
        )
    for stream in (query.streams[at] for at in query.lacking if query.is_full and query.streams[at].table):
        raise DefinitionError(
            f"Table '{stream.name}' has no times, so that its rows without a match would have none: make it 'left', or "
            "join it with Spark first."
        )
    for side in query.sides if streaming else ():
        _check_window(side)
    _check_conjuncts(query)


def _check_window(query: Query) -> None:
    """Check that a window says when a combination can have no more partners."""
    if all(query.streams[at].window.span is None for at in query.members):
        names = " or ".join(f"'{query.streams[at].name}'" for at in query.members if not query.streams[at].table)
        raise DefinitionError(
            f"Without a window on {names} a partner may come at any time, and nothing could be said to have none: "
            "give it one, such as window='10 minutes', or, to a single required stream, a condition such as "
            f"b.ts <= a.ts + INTERVAL 10 MINUTES{_changing(query)}."
        )


def _changing(query: Query) -> str:
    """Return which conditions on event times are no windows where clocks may be changed; nothing where they aren't."""
    zone = query.dialect.time_zone
    if zone in FIXED_ZONES or query.streams[0].time_type.tz is None:
        return ""
    return (
        f"; in time zones other than UTC, such as this session's {zone}, intervals of a day or more and differences of "
        "timestamps don't count, since clocks may change"
    )


def _check_conjuncts(query: Query) -> None:
    for conjunct in query.conjuncts:
        tied = [query.streams[at].name for at in sorted(conjunct.streams) if at in query.optional]
        if len(tied) > 1:
            raise DefinitionError(
                f"The condition {conjunct.text} ties {' and '.join(tied)}, which are both optional: each is matched "
                "with the required streams alone, so require one of them or join them first."
            )
    for conjunct in query.deferred if len(query.optional) > 1 else ():
        if not conjunct.exact:
            raise DefinitionError(
                f"The condition {conjunct.text} is left to Spark, at least for some values, after everything else is "
                "decided; with several optional streams it must be decided before. Compute what it compares as columns "
                "of the streams, or use a Python predicate."
            )


def check_shown(query: Query, columns: Sequence[Column]) -> None:
    """Check that a SELECT list shows nothing of streams that are only asked.

    Raises:
        DefinitionError: If it does.
    """
    for column in columns:
        if column.stream in query.hides:
            kind = query.optional[column.stream]
            raise DefinitionError(
                f"select: {query.name_of(column)} can't be shown, since results of {_article(kind)} {kind} join have "
                f"no tuple of '{query.streams[column.stream].name}'."
            )


def _article(kind: How) -> str:
    return "an" if kind == "anti" else "a"
