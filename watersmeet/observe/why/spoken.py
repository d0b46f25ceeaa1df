"""Sentences about partners: what a combination gives, what it has in optional streams, how long it stays open."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.observe.why.asked import listed
from watersmeet.observe.why.outcome import Closing, Partners, Survey
from watersmeet.observe.why.verdict import many
from watersmeet.observe.why.voice import Voice
from watersmeet.query.query import Query
from watersmeet.query.windows import FOREVER


@dataclass(frozen=True, slots=True)
class Subject:
    """The required tuples that sentences speak of.

    Attributes:
        name: How they begin.
        inside: The same within a sentence.
        several: Whether it is more than one.
    """

    name: str
    inside: str
    several: bool

    @classmethod
    def of(cls, streams: Sequence[str], alone: bool) -> "Subject":
        """Return tuples of some streams as a subject; if nothing else is asked about, it is clear who is meant."""
        several = len(streams) > 1
        if alone:
            return cls("They", "they", True) if several else cls("It", "it", False)
        return cls(listed(streams), listed(streams), several)

    @property
    def pronoun(self) -> str:
        """`it` or `they`."""
        return "they" if self.several else "it"

    @property
    def possessive(self) -> str:
        """`its` or `their`."""
        return "their" if self.several else "its"

    @property
    def gives(self) -> str:
        """`gives` or `give`."""
        return "give" if self.several else "gives"

    @property
    def a_result(self) -> str:
        """As in "it gives a result"."""
        return f"{self.gives} a result"

    @property
    def no_result(self) -> str:
        """As in "it gives no result"."""
        return f"{self.gives} no result"

    @property
    def nothing(self) -> str:
        """That there is no result."""
        return f"{self.name} {self.no_result}"

    @property
    def open(self) -> str:
        """That it is not certain yet."""
        return f"{self.name} {'are' if self.several else 'is'} still open"


def has_partners(subject: Subject, name: str, partners: Partners, closed: bool) -> str:
    """Return which partners tuples have in a stream.

    Args:
        subject: The tuples.
        name: The stream.
        partners: Its partners.
        closed: Whether no others can come.
    """
    if partners.stopped:
        return f"partners in {name} can't be told, since {partners.stopped}"
    has = f"{subject.pronoun} {'have' if subject.several else 'has'}"
    one = partners.count <= 1
    still = "" if partners.whole else f" that {'is' if one else 'are'} still stored"
    if not partners.count:
        return f"{has} no partner in {name}{still}{'' if closed else ' so far'}"
    if partners.newest:
        return f"{subject.possessive} newest partner in {name}{still} is that {partners.first}"
    first = f", {'' if one else 'the first '}{partners.first}" if partners.first else ""
    return f"{has} {'a partner' if one else many(partners.count, 'partner')} in {name}{still}{first}"


def open_until(voice: Voice, closing: Closing, another: bool, awaited: bool) -> Iterator[str]:
    """Yield until when a partner may come of a combination that is not closed, or when it is put out.

    Args:
        voice: Finds the words.
        closing: When it will be closed.
        another: Whether it has partners.
        awaited: Whether more may come; rows of tables don't.
    """
    deadline, mark = closing.deadline, closing.watermark
    if not awaited and another:
        return
    what = f"{'Another' if another else 'A'} partner may come" if awaited else "None can come; it is put out"
    until, at = ("until", "at any time") if awaited else ("when", "in the end")
    if deadline is None or deadline == FOREVER:
        yield f"{what} {at}."
        return
    if mark is not None and mark > deadline:
        yield f"The watermark has passed {voice.time(deadline)}: the next batch closes it."
        return
    passed = min(f"passes {voice.time(deadline)}", f"reaches {voice.time(deadline + 1)}", key=len)
    if mark is None:
        yield f"{what} {until} the watermark {passed}; there is none yet."
    else:
        yield f"{what} {until} the watermark, now at {voice.time(mark)}, {passed}."


def surveyed(survey: Survey, number: int, missing: Sequence[str], members: Sequence[str], partner: bool) -> str:
    """Return what a survey says.

    Args:
        survey: What was found.
        number: How many tuples are asked about.
        missing: The required streams of which none is.
        members: All required streams.
        partner: Whether tuples of optional streams are among them.
    """
    they, them = ("They", "them") if number > 1 else ("It", "it")
    if survey.stopped:
        return f"Whether others of {listed(missing)} go with {them} can't be told: {survey.stopped}."
    if not survey.combinations:
        what = f"tuple of {missing[0]}" if len(missing) == 1 else f"combination of {listed(missing)}"
        return f"No {what} that is there now {'matches' if partner else 'completes'} {them}."
    part = ("match" if number > 1 else "matches") if partner else f"{'are' if number > 1 else 'is'} part of"
    some = many(survey.combinations, "tuple" if len(members) == 1 else "combination")
    there = f"of {listed(members)} that {'are' if survey.combinations > 1 else 'is'} there now"
    return f"{they} {part} {some} {there}{_give(survey)}."


def likely(query: Query) -> Iterator[str]:
    """Yield why a tuple of the only required stream that is not there gave no result; nothing if each gives one."""
    partners = {"anti": "a partner", "semi": "no partner", "asof": "no partner"}
    had = [f"{partners[how]} in {query.streams[at].name}" for at, how in query.optional.items() if how in partners]
    if had:
        yield f"Either it never arrived or, if it came and was taken, it most likely had {' or '.join(had)}."


def _give(survey: Survey) -> str:
    """Return what becomes of the combinations of a survey."""
    number = many(survey.results, "result") if survey.results else "no result"
    if survey.combinations == 1:
        what = "is still open" if survey.open else f"gives {number}"
        return ", of which no more can be told" if survey.unknown else f", which {what}"
    parts = [] if not survey.results and (survey.open or survey.unknown) else [f"they give {number}"]
    parts += [f"{survey.open} {'is' if survey.open == 1 else 'are'} still open"] if survey.open else []
    parts += [f"of {survey.unknown} no more can be told"] if survey.unknown else []
    return f": {listed(parts)}"
