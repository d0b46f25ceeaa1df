"""As-of joins: a stream's newest tuple that is no later than the others, and its tolerance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from watersmeet.arguments import microseconds, to_python
from watersmeet.errors import DefinitionError
from watersmeet.query.query import How, StreamSpec
from watersmeet.query.windows import Sliding, Window


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
