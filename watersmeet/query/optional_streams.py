"""`how=` and `on=`: which streams are optional or joined as of a time, and checks that their results can be decided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar, get_args

from watersmeet.arguments import microseconds, to_python
from watersmeet.errors import DefinitionError
from watersmeet.formatting import with_article
from watersmeet.predicate.model import Column
from watersmeet.query.query import How, Query, StreamSpec
from watersmeet.query.windows import Sliding, Window, window_reaching

Condition = TypeVar("Condition")
KINDS: dict[object, How] = {kind: kind for kind in get_args(How)}


@dataclass(frozen=True, slots=True)
class AsOf:
    """How a stream whose newest partner counts is joined; made by `asof`.

    Attributes:
        tolerance: How much older than the combination the partner may be, in microseconds; None for any age.
        left: Whether there is a result, with NULL, where there is no partner.
    """

    tolerance: int | None = None
    left: bool = False

    @property
    def kind(self) -> How:
        """The kind of join."""
        return "asof left" if self.left else "asof"


def asof(tolerance: str | timedelta | None = None, *, left: bool = False) -> AsOf:
    """Return the kind of join with a stream's newest tuple no later than the others, such as a trade's last quote.

    Args:
        tolerance: How much older it may be at the most, such as `"5 minutes"`; None for any age.
        left: Whether there is a result, with NULL, where there is no such tuple; by default there is none.

    Raises:
        DefinitionError: If the tolerance is not a duration, or `left` neither True nor False.

    >>> asof("5 minutes", left=True)
    AsOf(tolerance=300000000, left=True)
    """
    outer = to_python(left)
    if not isinstance(outer, bool):
        raise DefinitionError(f"wm.asof(left={left!r}): left must be True or False.")
    return AsOf(None if tolerance is None else microseconds(tolerance, "tolerance of wm.asof"), outer)


def apply_tolerances(streams: Sequence[StreamSpec], how: Mapping[str, object] | None) -> tuple[StreamSpec, ...]:
    """Return the streams with windows as long as the tolerances that `how=` gives them.

    A window admits tuples younger than its size; a tolerance admits those exactly as old, too.

    Raises:
        DefinitionError: If a stream has both.
    """
    kinds = {name.lower(): kind for name, kind in (how or {}).items()}
    return tuple(_apply_tolerance(stream, kinds.get(stream.name.lower())) for stream in streams)


def _apply_tolerance(stream: StreamSpec, kind: object) -> StreamSpec:
    """Return a stream with its tolerance as its window; raises DefinitionError if it has a window already."""
    if not isinstance(kind, AsOf) or kind.tolerance is None:
        return stream
    if stream.window != Window():
        raise DefinitionError(
            f"Stream '{stream.name}' has both a window and a tolerance, which say how old its tuples may be: remove "
            "one of the two; a tolerance includes tuples that are exactly as old."
        )
    return replace(stream, window=Sliding(kind.tolerance + 1))


def read_how(how: Mapping[str, str | AsOf] | None, streams: Sequence[StreamSpec]) -> tuple[How, ...]:
    """Return how each stream is joined; empty if all are required.

    Raises:
        DefinitionError: If a stream or a kind of join is unknown, or no stream is required.
    """
    if how is None:
        return ()
    if not isinstance(how, Mapping):
        raise DefinitionError(f"how={how!r}: name the optional streams, as in how={{'payments': 'left'}}.")
    names = {stream.name.lower(): at for at, stream in enumerate(streams)}
    kinds: list[How] = ["inner"] * len(streams)
    for name, kind in how.items():
        if not isinstance(name, str) or name.lower() not in names:
            listed = ", ".join(stream.name for stream in streams)
            raise DefinitionError(f"how={{{name!r}: ...}}: there is no such stream; the streams are {listed}.")
        kind = kind.kind if isinstance(kind, AsOf) else kind
        if not isinstance(kind, str) or kind not in KINDS:
            raise DefinitionError(
                f"how={{{name!r}: {kind!r}}}: an optional stream is 'left', 'semi', 'anti', 'full', 'asof' or "
                "wm.asof(...); for a right join make the other streams optional."
            )
        kinds[names[name.lower()]] = KINDS[kind]
    if "inner" not in kinds:
        raise DefinitionError("how= makes every stream optional: at least one must be required, so leave that one out.")
    if "full" in kinds and len(kinds) > 2:
        raise DefinitionError(
            "how=: a full join has two streams; join two of them first, and make that a stream: "
            "wm.stream('ab', wm.join(a, b, ..., how={'b': 'full'}), window=...)."
        )
    return tuple(kinds) if set(kinds) != {"inner"} else ()


def read_on(on: Mapping[str, Condition] | None, query: Query) -> dict[int, Condition]:
    """Return the conditions on partners, by the positions of their optional streams.

    Raises:
        DefinitionError: If a condition is for a stream that is not optional.
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
            optional = ", ".join(query.streams[at].name for at in query.optional) or "none"
            raise DefinitionError(
                f"on={{{name!r}: ...}}: this is no optional stream; those that how= names are: {optional}."
            )
    return {names[name.lower()]: condition for name, condition in on.items()}


def derive_windows(query: Query) -> Query:
    """Return a join with windows where conditions on event times imply them; itself if all streams are required.

    `b.ts <= a.ts + INTERVAL 10 MINUTES` is as good as a window of `a`: every combination that the condition accepts
    lies within it, and none can come after it. A stream gets such a window if conditions bound how much later each
    stream that it is combined with can be. As-of partners are no later than the latest required tuple.
    """
    members = [at for at in query.members if not query.streams[at].table]
    optional = [at for at in query.optional if not query.streams[at].table]
    if not optional:
        return query
    own, beside = query.reaches(members), {at: query.reaches((*members, at)) for at in optional}
    after = {
        **{at: [own.get((other, at)) for other in members if other != at] for at in members},
        **{at: [beside[at].get((member, at)) for member in members] for at in optional},
    }
    for at in members:
        after[at] += [
            _latest_offset(after[at], beside[other].get((other, at)), other in query.as_of_streams)
            for other in optional
        ]
    return replace(
        query, streams=tuple(_derive_window(stream, after.get(at, [])) for at, stream in enumerate(query.streams))
    )


def _latest_offset(members: Sequence[int | None], partner: int | None, as_of: bool) -> int | None:
    """Return how much later than a required tuple a partner can be, in microseconds; None if unbounded.

    Args:
        members: How much later the other required tuples can be; None for one that is unbounded.
        partner: How much later the partner can be by conditions; None if they don't bound it.
        as_of: Whether it is no later than the latest required tuple.
    """
    bounds = [] if partner is None else [partner]
    if as_of and None not in members:
        bounds.append(max([0, *(micros for micros in members if micros is not None)]))
    return min(bounds, default=None)


def _derive_window(stream: StreamSpec, after: Sequence[int | None]) -> StreamSpec:
    """Return a stream with a window, unless it has one or another stream may be any time later.

    Args:
        stream: The stream.
        after: How much later than its tuples those of each other stream can be, in microseconds; None if unbounded.
    """
    bounds = [micros for micros in after if micros is not None]
    if not bounds or len(bounds) < len(after) or stream.window.span is not None or stream.window.rows is not None:
        return stream
    return replace(stream, window=window_reaching(max(bounds)), derived=True)


def check_optional(query: Query, *, streaming: bool, spilling: bool) -> None:
    """Check that the join can decide when a combination has no partner.

    Args:
        query: The join.
        streaming: Whether its inputs are unbounded.
        spilling: Whether it may spill.

    Raises:
        DefinitionError: If it can't.
    """
    if not query.optional:
        return
    if spilling:
        raise DefinitionError(
            "spill= can't be combined with how=: spilled work may hold a partner; remove one of the two."
        )
    for stream in (query.streams[at] for at in query.counted_streams):
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
    for stream in (query.streams[at] for at in sorted(query.as_of_streams) if query.streams[at].table):
        raise DefinitionError(
            f"Table '{stream.name}' has no times, so that none of its rows is the newest: read it as a stream with a "
            "time column, or use how='left'."
        )
    for stream in (query.streams[at] for at in query.nullable_streams if query.is_full and query.streams[at].table):
        raise DefinitionError(
            f"Table '{stream.name}' has no times, so that its rows without a match would have none: make it 'left', or "
            "join it with Spark first."
        )
    for side in query.sides if streaming and not query.closes_at_its_time else ():
        _check_window(side)
    _check_conjuncts(query)


def _check_window(query: Query) -> None:
    """Raise DefinitionError if no window bounds how long a combination can have partners."""
    endless = all(query.streams[at].window.span is None for at in query.members)
    if endless and not query.closes_at_its_time:
        names = " or ".join(f"'{query.streams[at].name}'" for at in query.members if not query.streams[at].table)
        raise DefinitionError(
            f"Without a window on {names} a partner may come at any time, and nothing could be said to have none: "
            "give it one, such as window='10 minutes', or a condition such as b.ts <= a.ts + INTERVAL 10 MINUTES."
        )


def _check_conjuncts(query: Query) -> None:
    """Raise DefinitionError for a conjunct over two optional streams, or one left to Spark if several are optional."""
    for conjunct in query.conjuncts:
        tied = [query.streams[at].name for at in sorted(conjunct.streams) if at in query.optional]
        if len(tied) > 1:
            raise DefinitionError(
                f"The condition {conjunct.text} ties {' and '.join(tied)}, which are both optional: each is matched "
                "with the required streams alone, so require one of them or join them first."
            )
    for conjunct in query.deferred_conjuncts if len(query.optional) > 1 else ():
        if not conjunct.exact:
            raise DefinitionError(
                f"The condition {conjunct.text} is left to Spark, at least for some values, after everything else is "
                "decided; with several optional streams it must be decided before. Compute what it compares as columns "
                "of the streams, or use a Python predicate."
            )


def check_selected_columns(query: Query, columns: Sequence[Column]) -> None:
    """Check that a SELECT list shows no column of streams that results don't have.

    Raises:
        DefinitionError: If it does.
    """
    for column in columns:
        if column.stream in query.hidden_streams:
            kind = query.optional[column.stream]
            raise DefinitionError(
                f"select: {query.name_of(column)} can't be shown, since results of {with_article(kind)} join have "
                f"no tuple of '{query.streams[column.stream].name}'."
            )
