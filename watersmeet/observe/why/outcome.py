"""What a combination of the required streams gives, by its partners in the optional ones and whether it is closed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from watersmeet.observe.why.answer import Batches
from watersmeet.observe.why.asked import Asked
from watersmeet.observe.why.judged import Seen
from watersmeet.query.query import Query

Gives = Literal["results", "nothing", "open", "unknown"]
"""What a combination gives: `open` if that is not certain yet, `unknown` if it can't be told any more."""


@dataclass(frozen=True, slots=True)
class Partners:
    """The partners of a combination in an optional stream.

    Attributes:
        count: How many there are.
        whole: Whether there were no others, which are no longer there.
        first: The earliest, in words; of an as-of stream the newest, which is the only one that counts.
        time: Its event time.
        came: In which batch the first of them came that came; None for static inputs.
        stopped: Why they could not be looked for; empty if they could.
        newest: Whether the stream is an as-of stream.
    """

    count: int
    whole: bool = True
    first: str = ""
    time: int | None = None
    came: Batches | None = None
    stopped: str = ""
    newest: bool = False


@dataclass(frozen=True, slots=True)
class Closing:
    """Whether a combination is closed, so that no partner of it can come any more.

    Attributes:
        closed: Whether it is.
        deadline: The time that the watermark has to pass; None for static inputs, which end.
        watermark: Where the watermark is; None if there is none yet.
        batches: The batch that closed it, as far as that is known.
    """

    closed: bool
    deadline: int | None = None
    watermark: int | None = None
    batches: Batches | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """The combinations of the required streams that have some tuples, or have them as partners.

    Attributes:
        combinations: How many are there now.
        results: How many results they give, with these tuples.
        open: How many of the combinations are not closed and give none yet.
        unknown: Of how many it can't be told what they give.
        whole: Whether there can be no others so far.
        stopped: Why they could not be looked for; empty if they could.
    """

    combinations: int = 0
    results: int = 0
    open: int = 0
    unknown: int = 0
    whole: bool = True
    stopped: str = ""


class OptionalStreams(ABC):
    """What is known of the optional streams of a join."""

    @abstractmethod
    def partners(self, seen: Sequence[Seen], optional: int) -> Partners:
        """Return the partners in an optional stream of a combination, given by its members."""

    @abstractmethod
    def closing(self, seen: Sequence[Seen]) -> Closing:
        """Return whether a combination is closed, given by its members."""

    @abstractmethod
    def survey(self, seen: Sequence[Seen]) -> Survey:
        """Return what becomes of combinations that have some tuples, which may be of any streams, but not of all."""

    @abstractmethod
    def is_newest(self, seen: Sequence[Seen], partner: Seen) -> bool:
        """Tell whether a partner in an as-of stream is the newest that a combination has, or is like that one."""

    def would_find(self, asked: Asked) -> bool:
        """Tell whether a tuple would be found if it could still be part of a combination that is not closed."""
        return True


def gives(query: Query, count: Mapping[int, int], whole: Mapping[int, bool], closed: bool) -> Gives:
    """Return what a combination of the required streams gives.

    Args:
        query: The join.
        count: How many partners are there, by optional stream.
        whole: Whether there were no others, by optional stream.
        closed: Whether none can come any more.
    """
    hows = query.optional
    if any(how == "anti" and count[at] for at, how in hows.items()):
        return "nothing"
    if not waits(query) and any(count.values()):
        return "results"
    if any(how == "semi" and not count[at] and query.streams[at].table and whole[at] for at, how in hows.items()):
        return "nothing"
    if not closed:
        return "open" if all(whole.values()) else "unknown"
    if not all(whole[at] for at in query.as_of_streams):  # [!] a newer partner than those still there may be gone
        return "unknown"
    lacking = [at for at, how in hows.items() if how not in ("left", "asof left") and not count[at]]
    if any(hows[at] in ("semi", "asof") and whole[at] for at in lacking):
        return "nothing"
    return "results" if all(whole[at] for at in lacking) else "unknown"


def waits(query: Query) -> bool:
    """Tell whether no result comes before its combination is closed."""
    return [*query.optional.values()] not in (["left"], ["semi"])


def results(query: Query, count: Mapping[int, int], named: Sequence[int] = ()) -> int:
    """Return how many results a combination gives that gives some.

    Args:
        query: The join.
        count: How many partners it has, by optional stream.
        named: The streams of which one partner is asked for.
    """
    left = [at for at, how in query.optional.items() if how == "left" and at not in named]
    return prod(max(1, count[at]) for at in left)
