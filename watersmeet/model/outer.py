"""`how=`: which streams are optional, and what can't be decided of them is refused, in a sentence."""

from collections.abc import Mapping, Sequence
from typing import get_args

from watersmeet.errors import DefinitionError
from watersmeet.model.query import How, Query, StreamSpec
from watersmeet.predicate.model import Column

KINDS = get_args(How)


def hows(given: Mapping[str, str] | None, streams: Sequence[StreamSpec]) -> tuple[How, ...]:
    """Return what is asked of each stream; empty if all are required.

    Raises:
        DefinitionError: If a stream or a kind of join is none, or no stream is required.
    """
    if given is None or given == {}:
        return ()
    if not isinstance(given, Mapping):
        raise DefinitionError(f"how={given!r}: name the optional streams, as in how={{'payments': 'left'}}.")
    names = {stream.name.lower(): at for at, stream in enumerate(streams)}
    found: list[How] = ["inner"] * len(streams)
    for name, kind in given.items():
        if not isinstance(name, str) or name.lower() not in names:
            known = ", ".join(stream.name for stream in streams)
            raise DefinitionError(f"how={{{name!r}: ...}}: there is no such stream; the streams are {known}.")
        if kind not in KINDS:
            raise DefinitionError(
                f"how={{{name!r}: {kind!r}}}: an optional stream is 'left', 'semi' or 'anti'; for a right join make "
                "the other streams optional, and for a full one combine two left joins."
            )
        found[names[name.lower()]] = kind
    if "inner" not in found:
        raise DefinitionError("how= names every stream: at least one must be required, so leave it out there.")
    return tuple(found) if set(found) != {"inner"} else ()


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
    if streaming and all(query.streams[at].window.span is None for at in query.members):
        names = " or ".join(f"'{query.streams[at].name}'" for at in query.members)
        raise DefinitionError(
            f"Without a window on {names} a partner may come at any time, and nothing could be said to have none: "
            "give it one, such as window='10 minutes'."
        )
    _check_conjuncts(query)


def _check_conjuncts(query: Query) -> None:
    for conjunct in query.conjuncts:
        tied = [query.streams[at].name for at in sorted(conjunct.streams) if at in query.optional]
        if len(tied) > 1:
            raise DefinitionError(
                f"The condition {conjunct.text} ties {' and '.join(tied)}, which are both optional: each is matched "
                "with the required streams alone, so require one of them or join them first."
            )
    for conjunct in query.deferred:
        if not conjunct.exact:
            raise DefinitionError(
                f"The condition {conjunct.text} is left to Spark, at least for some values, after everything else is "
                "decided; with how= it must be decided before. Compute what it compares as columns of the streams, or "
                "use a Python predicate."
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
