"""What became of combinations where streams are optional: which tuples are partners, and what results follow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

from watersmeet.observe.why.answer import (
    BatchRange,
    Check,
    Combination,
    TupleStatus,
    count_noun,
    describe_batches,
    latest_batches,
    object_pronoun,
)
from watersmeet.observe.why.condition_trace import StoredTuple
from watersmeet.observe.why.evidence import (
    NEVER_JOINED,
    CombinationClosing,
    Evidence,
    Partners,
    SelectedTuple,
    Survey,
    joined_combination,
)
from watersmeet.observe.why.output_files import ResultCount
from watersmeet.observe.why.partner_text import (
    Subject,
    describe_partners,
    describe_survey,
    explain_no_result,
    explain_open,
)
from watersmeet.observe.why.question import TupleSelector, format_list
from watersmeet.query.query import Query

Outcome = Literal["results", "nothing", "open", "unknown"]
"""What a combination gives: `open` if that is not certain yet, `unknown` if it can't be determined any more."""


def decide_outcome(query: Query, count: Mapping[int, int], is_complete: Mapping[int, bool], is_closed: bool) -> Outcome:
    """Return what a combination of the required streams gives.

    Args:
        query: The join.
        count: How many partners are stored, by optional stream.
        is_complete: Whether there were no others, by optional stream.
        is_closed: Whether no more can come.
    """
    hows = query.optional
    if any(how == "anti" and count[at] for at, how in hows.items()):
        return "nothing"
    if not waits_for_closing(query) and any(count.values()):
        return "results"
    tables = (at for at, how in hows.items() if how == "semi" and query.streams[at].table)
    if any(not count[at] and is_complete[at] for at in tables):
        return "nothing"
    if not is_closed:
        return "open" if all(is_complete.values()) else "unknown"
    if not all(
        is_complete[at] for at in query.as_of_streams
    ):  # [!] a newer partner than the stored ones may have been purged
        return "unknown"
    without_partner = [at for at, how in hows.items() if how not in ("left", "asof left") and not count[at]]
    if any(hows[at] in ("semi", "asof") and is_complete[at] for at in without_partner):
        return "nothing"
    return "results" if all(is_complete[at] for at in without_partner) else "unknown"


def waits_for_closing(query: Query) -> bool:
    """Tell whether no result comes before its combination is closed."""
    return [*query.optional.values()] not in (["left"], ["semi"])


def count_results(query: Query, count: Mapping[int, int], in_question: Sequence[int] = ()) -> int:
    """Return how many results a combination gives, if it gives some.

    Args:
        query: The join.
        count: How many partners it has, by optional stream.
        in_question: The streams of which one partner is in question.
    """
    left_streams = [at for at, how in query.optional.items() if how == "left" and at not in in_question]
    return prod(max(1, count[at]) for at in left_streams)


class NamedMember(NamedTuple):
    """A tuple in question: what selects it, what became of it, and its row."""

    selector: TupleSelector
    status: TupleStatus
    row: StoredTuple | None


@dataclass(frozen=True, slots=True)
class OptionalMember:
    """A tuple in question of an optional stream.

    Attributes:
        member: The tuple.
        is_partner: Whether it is a partner of the required tuples in question; None if that can't be determined.
        tests: The tests that were run on it.
        messages: The same in sentences.
    """

    member: NamedMember
    is_partner: bool | None
    tests: tuple[Check, ...] = ()
    messages: tuple[str, ...] = ()

    @property
    def stream(self) -> int:
        """Its stream."""
        return self.member.selector.stream


@dataclass(frozen=True, slots=True)
class RequiredOutcome:
    """What a combination of the required streams gives, with the reasons."""

    outcome: Outcome
    partners: Mapping[int, Partners]
    closing: CombinationClosing


@dataclass(frozen=True, slots=True)
class OptionalOutcomes:
    """Decides what became of combinations of tuples in question, where streams are optional.

    A result contains tuples if it shows them or, in a semi join, exists because of them. Tuples of an anti join are in
    no result.

    Attributes:
        evidence: Where they are found.
        selectors: What selects them, in the order of the streams.
    """

    evidence: Evidence
    selectors: Sequence[TupleSelector]

    @property
    def _query(self) -> Query:
        return self.evidence.tracer.query

    def of(self, members: Sequence[SelectedTuple]) -> Combination:
        """Return what became of one combination; this runs its tests, and may probe state and read results."""
        all_members = [NamedMember(selector, *member) for selector, member in zip(self.selectors, members, strict=True)]
        statuses = tuple(member.status for member in all_members)
        required = [member for member in all_members if member.selector.stream in self._query.members]
        optional = [member for member in all_members if member.selector.stream in self._query.optional]
        subject = Subject.of([member.status.stream for member in required], alone=not optional)
        missing = [member.status for member in required if member.status.fate in NEVER_JOINED]
        if missing:
            reason = format_list([f"{status.stream} is {NEVER_JOINED[status.fate]}" for status in missing])
            return Combination(statuses, False, (), (f"{subject.nothing}: {reason}.",) if len(statuses) > 1 else ())
        rows = [member.row for member in required if member.row is not None]
        if len(rows) < len(required):
            return self._by_results(all_members, (), ())
        tests = tuple(self.evidence.tracer.trace(rows)) if rows else ()
        refusing = [test for test in tests if test.refuses] or [test for test in tests if test.holds == "raises"]
        if refusing:
            return Combination(statuses, False, tests, _refusal(subject.nothing, refusing))
        reasons = [test.message for test in tests if test.holds == "unknown"]
        if reasons:
            message = f"As far as is known here, all else holds, but {reasons[0]}."
            return self._by_results(all_members, tests, (message,))
        partners = [self._check_partner(member, rows, tests, subject) for member in optional]
        if len(required) < len(self._query.members):
            return self._some_required(all_members, tests, partners)
        return self._all_required(all_members, tests, partners, rows, subject)

    # -- partners in question

    def _check_partner(
        self, member: NamedMember, rows: Sequence[StoredTuple], earlier_tests: Sequence[Check], subject: Subject
    ) -> OptionalMember:
        """Return whether a tuple of an optional stream is a partner of the required tuples in question.

        In an as-of stream, only the newest is one.
        """
        several = len(self.selectors) > 1
        name, of_subject = member.status.stream, f" of {subject.name}" if rows else ""
        no_partner, fate = f"{name} is no partner{of_subject}", NEVER_JOINED.get(member.status.fate)
        if fate is not None:
            return OptionalMember(member, False, messages=(f"{no_partner}: it is {fate}.",) if several else ())
        if member.row is None:
            message = f"It is unknown whether {name} is a partner{of_subject}: state has no trace of it."
            return OptionalMember(member, None, messages=(message,) if several else ())
        names = {test.name for test in earlier_tests if test.kind == "conjunct"}
        tests = tuple(test for test in self.evidence.tracer.trace([*rows, member.row]) if test.name not in names)
        refusing = [test for test in tests if test.refuses] or [test for test in tests if test.holds == "raises"]
        if refusing:
            return OptionalMember(member, False, tests, _refusal(no_partner, refusing))
        reasons = [test.message for test in tests if test.holds == "unknown"]
        if reasons:
            message = f"It is unknown whether {name} is a partner{of_subject}: {reasons[0]}."
            return OptionalMember(member, None, tests, (message,))
        is_as_of = member.selector.stream in self._query.as_of_streams and {row.stream for row in rows} == {
            *self._query.members
        }
        if is_as_of and not self.evidence.optional.is_newest(rows, member.row):
            return OptionalMember(member, False, tests, (f"{name} is not the newest partner{of_subject}.",))
        return OptionalMember(member, True, tests, (f"{name} is a partner{of_subject}.",))

    # -- a tuple of each required stream

    def _all_required(
        self,
        members: Sequence[NamedMember],
        tests: tuple[Check, ...],
        partners: Sequence[OptionalMember],
        rows: Sequence[StoredTuple],
        subject: Subject,
    ) -> Combination:
        """Return what became of a combination of all required streams, and of its partners in question.

        Where state does not tell, results are read.
        """
        statuses, query = tuple(member.status for member in members), self._query
        tests, kinds = _all_tests(tests, partners), {query.optional[partner.stream] for partner in partners}
        matching = [partner.member for partner in partners if partner.is_partner]
        if kinds == {"left"} and len(query.optional) == 1 and matching and matching[0].row is not None:
            all_rows = [*rows, matching[0].row]
            batches = latest_batches([row.batches for row in all_rows])
            return joined_combination(self.evidence, statuses, tests, all_rows, batches)
        denied = [member.status.stream for member in matching if query.optional[member.selector.stream] == "anti"]
        if denied:
            reason = f"{format_list(denied)} {'is a partner' if len(denied) == 1 else 'are partners'} of {subject.name}"
            message = f"{reason}, so that {subject.name} {subject.no_result}."
            return Combination(statuses, False, tests, (message,), None, 0)
        outcome = self._outcome_of(rows)
        messages = (*_all_messages(partners), *self._sentences(outcome, subject, rows))
        if "anti" in kinds or any(partner.is_partner is False for partner in partners):
            return Combination(statuses, False, tests, messages, None, 0)
        if outcome.outcome == "unknown" or any(partner.is_partner is None for partner in partners):
            return self._by_results(members, tests, messages, outcome.closing)
        streams = [member.selector.stream for member in matching]
        combination = self._combination_of(statuses, tests, messages, outcome, rows, streams)
        if combination.joined and combination.results is None:
            from_results = self._by_results(members, tests, messages, outcome.closing)
            return from_results if from_results.joined else combination
        return combination

    def _outcome_of(self, rows: Sequence[StoredTuple]) -> RequiredOutcome:
        """Return what a combination of all required streams gives; looks for its partners in every optional stream."""
        optional, query = self.evidence.optional, self._query
        partners = {at: optional.find_partners(rows, at) for at in query.optional}
        closing = optional.closing(rows)
        count = {at: partner.count for at, partner in partners.items()}
        is_complete = {at: partner.is_complete for at, partner in partners.items()}
        return RequiredOutcome(decide_outcome(query, count, is_complete, closing.is_closed), partners, closing)

    def _combination_of(
        self,
        statuses: tuple[TupleStatus, ...],
        tests: tuple[Check, ...],
        messages: tuple[str, ...],
        outcome: RequiredOutcome,
        rows: Sequence[StoredTuple],
        streams: Sequence[int],
    ) -> Combination:
        """Return a combination whose outcome is certain, or that is open."""
        if outcome.outcome != "results":
            has_joined = False if outcome.outcome == "nothing" else None
            return Combination(statuses, has_joined, tests, messages, None, 0)
        count = {at: partners.count for at, partners in outcome.partners.items()}
        left_streams = [at for at, how in self._query.optional.items() if how == "left" and at not in streams]
        is_complete = all(outcome.partners[at].is_complete for at in left_streams)
        results = count_results(self._query, count, streams) if is_complete else None
        return Combination(statuses, True, tests, messages, self._first_batches(outcome, rows), results)

    def _first_batches(self, outcome: RequiredOutcome, rows: Sequence[StoredTuple]) -> BatchRange | None:
        """Return the batch of a combination's first result; None if it is unknown, or the inputs are static."""
        first = [partners.batches for partners in outcome.partners.values() if partners.count]
        if not waits_for_closing(self._query) and first:
            return None if first[0] is None else latest_batches([*(row.batches for row in rows), first[0]])
        return outcome.closing.batches

    def _sentences(self, outcome: RequiredOutcome, subject: Subject, rows: Sequence[StoredTuple]) -> tuple[str, ...]:
        """Return in sentences what a combination gives, and why."""
        query, closing = self._query, outcome.closing
        phrases = {
            at: describe_partners(subject, query.streams[at].name, partners, closing.is_closed)
            for at, partners in outcome.partners.items()
        }
        listing, has_some = "; ".join(phrases.values()), any(partners.count for partners in outcome.partners.values())
        may_come = not all(query.streams[at].table for at in outcome.partners)
        formatter = self.evidence.tracer.formatter
        remarks = () if closing.is_closed else tuple(explain_open(formatter, closing, has_some, may_come))
        match outcome.outcome:
            case "nothing":
                return (f"{subject.nothing}: {self._reason_for_nothing(outcome, phrases)}.",)
            case "open":
                return (f"{subject.open}: {listing}.", *remarks)
            case "unknown":
                return (f"State does not show whether {subject.inside} {subject.a_result}: {listing}.", *remarks)
        results = self._describe_results(outcome, subject, rows)
        if closing.is_closed or "semi" in query.optional.values():
            return (f"{subject.name} {results}: {listing}.",)
        return (f"So far {subject.inside} {results}: {listing}.", *remarks)

    def _reason_for_nothing(self, outcome: RequiredOutcome, phrases: Mapping[int, str]) -> str:
        """Return why there is no result: a partner in an anti stream, or else none in a semi or as-of stream."""
        hows = self._query.optional
        anti = [at for at in phrases if hows[at] == "anti" and outcome.partners[at].count]
        without_partner = [at for at in phrases if hows[at] in ("semi", "asof") and not outcome.partners[at].count]
        return phrases[(anti or without_partner)[0]]

    def _describe_results(self, outcome: RequiredOutcome, subject: Subject, rows: Sequence[StoredTuple]) -> str:
        """Return how many results a combination gives; for a single one also its time and batch."""
        query, partners = self._query, outcome.partners
        left_partners = [partners[at] for at, how in query.optional.items() if how == "left"]
        number = count_results(query, {at: partner.count for at, partner in partners.items()})
        if not all(partner.is_complete for partner in left_partners):
            return f"{subject.gives} at least {count_noun(number, 'result')}"
        if number != 1:
            return f"{subject.gives} {count_noun(number, 'result')}"
        time = max(
            [*(row.ts for row in rows), *(partner.time for partner in left_partners if partner.time is not None)]
        )
        batches = self._first_batches(outcome, rows)
        when = "" if batches is None else f", emitted {describe_batches(batches)}"
        return f"{subject.a_result} at {self.evidence.tracer.formatter.format_time(time)}{when}"

    # -- tuples of some required streams

    def _some_required(
        self, members: Sequence[NamedMember], tests: tuple[Check, ...], partners: Sequence[OptionalMember]
    ) -> Combination:
        """Return what became of tuples if some required streams are not in question, by a survey of their combinations.

        Where that doesn't tell, results are read.
        """
        statuses, query = tuple(member.status for member in members), self._query
        tests = _all_tests(tests, partners)
        messages = _all_messages([partner for partner in partners if not partner.is_partner])
        if any(partner.is_partner is False for partner in partners):
            return Combination(statuses, False, tests, messages, None, 0)
        if any(partner.is_partner is None for partner in partners):
            return self._by_results(members, tests, messages)
        survey = self.evidence.optional.survey([member.row for member in members if member.row is not None])
        streams = {member.selector.stream for member in members}
        required = [query.streams[at].name for at in query.members]
        missing = [query.streams[at].name for at in query.members if at not in streams]
        messages = (describe_survey(survey, len(statuses), missing, required, has_partners=bool(partners)),)
        if any(query.optional[partner.stream] == "anti" for partner in partners):
            return Combination(statuses, False, tests, messages, None, 0)
        if survey.results:
            return Combination(statuses, True, tests, messages, None, survey.results)
        if survey.unknown or survey.obstacle or not survey.is_complete:
            return self._by_results(members, tests, messages, survey=survey)
        return Combination(statuses, None if survey.open else False, tests, messages, None, 0)

    # -- what results show

    def _by_results(
        self,
        members: Sequence[NamedMember],
        tests: tuple[Check, ...],
        messages: tuple[str, ...],
        closing: CombinationClosing | None = None,
        survey: Survey | None = None,
    ) -> Combination:
        """Return what results show, where state doesn't; reads their files.

        [!] While a combination may be open, the absence of results proves nothing.
        """
        statuses, query = tuple(member.status for member in members), self._query
        kinds = {query.optional.get(member.selector.stream) for member in members}
        visible = [member for member in members if member.selector.stream not in query.hidden_streams]
        results = self.evidence.count_results([member.selector for member in visible])
        missing = [member for member in members if member.row is None]
        is_final = (closing is None or closing.is_closed) and not (survey is not None and survey.open)
        is_final = is_final and all(self.evidence.optional.would_find(member.selector) for member in missing)
        messages = (*messages, self._describe_in_output(members, visible, results, is_final))
        is_single = kinds == {None} and len(query.members) == 1 and missing == list(members)
        if is_single and is_final and results and not results.count:
            messages = (*messages, *explain_no_result(query))
        if "anti" in kinds:
            return Combination(statuses, False, tests, messages, None, 0)
        if results is None or (results.count and "semi" in kinds):
            return Combination(statuses, None, tests, messages)
        if results.count:
            return Combination(statuses, True, tests, messages, (results.first, results.last), results.count)
        return Combination(statuses, False if is_final else None, tests, messages, None, 0)

    def _describe_in_output(
        self,
        members: Sequence[NamedMember],
        visible: Sequence[NamedMember],
        results: ResultCount | None,
        is_final: bool,
    ) -> str:
        """Return in a sentence what results show.

        Args:
            members: The tuples in question.
            visible: Those of them that results show.
            results: The results that contain them; None if there is no way to tell.
            is_final: Whether there will be no others.
        """
        everyone = object_pronoun(members)
        if results is None:
            untold = [member.status.name for member in members if member.status.fate in ("joined", "unknown")]
            reason = f", since state has no trace of {format_list(untold)}" if untold else ""
            return f"It is unknown whether there is a result with {everyone}{reason}."
        names = format_list([member.status.stream for member in visible])
        them = everyone if len(visible) == len(members) else names
        if not results.count:
            return f"No result in the output holds {them}{'' if is_final else ' so far'}."
        return f"The output holds {count_noun(results.count, 'result')} with {them}, emitted {results.when}."


def _refusal(start: str, refusing: Sequence[Check]) -> tuple[str, ...]:
    return (f"{start}: {refusing[0].message}.", *(f"Besides, {test.message}." for test in refusing[1:]))


def _all_tests(tests: tuple[Check, ...], partners: Sequence[OptionalMember]) -> tuple[Check, ...]:
    return (*tests, *(test for partner in partners for test in partner.tests))


def _all_messages(partners: Sequence[OptionalMember]) -> tuple[str, ...]:
    return tuple(message for partner in partners for message in partner.messages)
