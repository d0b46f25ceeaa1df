"""Sentences about partners: what a combination gives, its partners in optional streams, how long it stays open."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.observe.why.answer import ValueFormatter, count_noun
from watersmeet.observe.why.evidence import CombinationClosing, Partners, Survey
from watersmeet.observe.why.question import format_list
from watersmeet.query.query import Query
from watersmeet.query.windows import FOREVER


@dataclass(frozen=True, slots=True)
class Subject:
    """The required tuples as the subject of a sentence.

    Attributes:
        name: What begins the sentence.
        inside: The same within a sentence.
        several: Whether there are several.
    """

    name: str
    inside: str
    several: bool

    @classmethod
    def of(cls, streams: Sequence[str], alone: bool) -> "Subject":
        """Return tuples of some streams as a subject; a pronoun if they are alone in question."""
        several = len(streams) > 1
        if alone:
            return cls("They", "they", True) if several else cls("It", "it", False)
        return cls(format_list(streams), format_list(streams), several)

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
        """As in `it gives a result`."""
        return f"{self.gives} a result"

    @property
    def no_result(self) -> str:
        """As in `it gives no result`."""
        return f"{self.gives} no result"

    @property
    def nothing(self) -> str:
        """As in `It gives no result`."""
        return f"{self.name} {self.no_result}"

    @property
    def open(self) -> str:
        """As in `It is still open`."""
        return f"{self.name} {'are' if self.several else 'is'} still open"


def describe_partners(subject: Subject, name: str, partners: Partners, is_closed: bool) -> str:
    """Return which partners tuples have in a stream, as a clause.

    Args:
        subject: The tuples.
        name: The stream.
        partners: Their partners.
        is_closed: Whether no others can come.
    """
    if partners.obstacle:
        return f"partners in {name} are unknown, since {partners.obstacle}"
    start = f"{subject.pronoun} {'have' if subject.several else 'has'}"
    is_one = partners.count <= 1
    still_stored = "" if partners.is_complete else f" that {'is' if is_one else 'are'} still stored"
    if not partners.count:
        return f"{start} no partner in {name}{still_stored}{'' if is_closed else ' so far'}"
    if partners.is_newest:
        return f"{subject.possessive} newest partner in {name}{still_stored} is that {partners.earliest}"
    earliest = f", {'' if is_one else 'the first '}{partners.earliest}" if partners.earliest else ""
    count = "a partner" if is_one else count_noun(partners.count, "partner")
    return f"{start} {count} in {name}{still_stored}{earliest}"


def explain_open(
    formatter: ValueFormatter, closing: CombinationClosing, has_partners: bool, may_come: bool
) -> Iterator[str]:
    """Yield until when an open combination may get a partner, or when it is emitted without one.

    Nothing if it has partners and no others can come.

    Args:
        formatter: Puts values into words.
        closing: When it will be closed.
        has_partners: Whether it has partners.
        may_come: Whether more may come; rows of tables don't.
    """
    deadline, watermark = closing.deadline, closing.watermark
    if not may_come and has_partners:
        return
    subject = f"{'Another' if has_partners else 'A'} partner may come" if may_come else "None can come; it is emitted"
    until, at = ("until", "at any time") if may_come else ("when", "in the end")
    if deadline is None or deadline == FOREVER:
        yield f"{subject} {at}."
        return
    if watermark is not None and watermark > deadline:
        yield f"The watermark has passed {formatter.format_time(deadline)}: the next batch closes it."
        return
    passes = f"passes {formatter.format_time(deadline)}"
    condition = min(passes, f"reaches {formatter.format_time(deadline + 1)}", key=len)
    if watermark is None:
        yield f"{subject} {until} the watermark {condition}; there is none yet."
    else:
        yield f"{subject} {until} the watermark, now at {formatter.format_time(watermark)}, {condition}."


def describe_survey(
    survey: Survey, number: int, missing: Sequence[str], members: Sequence[str], has_partners: bool
) -> str:
    """Return a survey as a sentence.

    Args:
        survey: The survey.
        number: How many tuples are in question.
        missing: The required streams of which none is.
        members: All required streams.
        has_partners: Whether tuples of optional streams are among them.
    """
    they, them = ("They", "them") if number > 1 else ("It", "it")
    if survey.obstacle:
        return f"Whether others of {format_list(missing)} go with {them} is unknown: {survey.obstacle}."
    if not survey.combinations:
        other = f"tuple of {missing[0]}" if len(missing) == 1 else f"combination of {format_list(missing)}"
        return f"No {other} that is there now {'matches' if has_partners else 'completes'} {them}."
    verb = ("match" if number > 1 else "matches") if has_partners else f"{'are' if number > 1 else 'is'} part of"
    count = count_noun(survey.combinations, "tuple" if len(members) == 1 else "combination")
    where = f"of {format_list(members)} that {'are' if survey.combinations > 1 else 'is'} there now"
    return f"{they} {verb} {count} {where}{_describe_outcomes(survey)}."


def explain_no_result(query: Query) -> Iterator[str]:
    """Yield why a missing tuple of the only required stream gave no result; nothing if each tuple gives one."""
    partners = {"anti": "a partner", "semi": "no partner", "asof": "no partner"}
    reasons = [f"{partners[how]} in {query.streams[at].name}" for at, how in query.optional.items() if how in partners]
    if reasons:
        yield f"Either it never arrived or, if it came and was taken, it most likely had {' or '.join(reasons)}."


def _describe_outcomes(survey: Survey) -> str:
    """Return what the combinations of a survey give, as the end of a sentence."""
    number = count_noun(survey.results, "result") if survey.results else "no result"
    if survey.combinations == 1:
        outcome = "is still open" if survey.open else f"gives {number}"
        return ", about which nothing more is known" if survey.unknown else f", which {outcome}"
    parts = [] if not survey.results and (survey.open or survey.unknown) else [f"they give {number}"]
    parts += [f"{survey.open} {'is' if survey.open == 1 else 'are'} still open"] if survey.open else []
    parts += [f"nothing more is known about {survey.unknown}"] if survey.unknown else []
    return f": {format_list(parts)}"
