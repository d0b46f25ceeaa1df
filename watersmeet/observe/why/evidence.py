"""What answers are drawn from: where tuples, results and partners are, whatever holds them.

If no stream is optional, it follows from this what became of a combination: joined or not, why, and in which batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from watersmeet.observe.why.condition_trace import ConditionTracer, StoredTuple
from watersmeet.observe.why.output_files import ResultCount
from watersmeet.observe.why.question import TupleSelector, format_list

MOST_TUPLES = 3
"""The most tuples of a stream that an answer mentions."""
SelectedTuple = tuple[TupleStatus, StoredTuple | None]
"""A tuple in question, and its row if that is available."""
NEVER_JOINED = {
    "late": "late",
    "rejected": "rejected",
    "denied": "denied",
    "not stored": "left out",
    "never arrived": "missing",
}
"""The fates of tuples that no result contains, in words."""
MOST_RESULTS = 10_000
"""Results beyond this are not counted."""


@dataclass(frozen=True, slots=True)
class Completions:
    """The results that contain some tuples, where the question names none of other streams.

    Attributes:
        count: How many there are.
        is_complete: Whether there can be no others.
        obstacle: Why they could not be counted; empty if they could.
    """

    count: int
    is_complete: bool
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class Partners:
    """The partners of a combination in an optional stream.

    Attributes:
        count: How many there are.
        is_complete: Whether there were no others, since removed.
        earliest: The earliest, in words; in an as-of stream the newest, which is the only one that counts.
        time: Its event time.
        batches: The batch in which the first of them arrived; None for static inputs.
        obstacle: Why they could not be looked for; empty if they could.
        is_newest: Whether the stream is an as-of stream.
    """

    count: int
    is_complete: bool = True
    earliest: str = ""
    time: int | None = None
    batches: BatchRange | None = None
    obstacle: str = ""
    is_newest: bool = False


@dataclass(frozen=True, slots=True)
class CombinationClosing:
    """Whether a combination is closed, so that no more partners can come.

    Attributes:
        is_closed: Whether it is.
        deadline: The time that the watermark has to pass; None for static inputs, which end.
        watermark: The watermark; None if there is none yet.
        batches: The batch that closed it, as far as that is known.
    """

    is_closed: bool
    deadline: int | None = None
    watermark: int | None = None
    batches: BatchRange | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """The combinations of the required streams that contain some tuples, or have them as partners.

    Attributes:
        combinations: How many are stored now.
        results: How many results they give with these tuples.
        open: How many of them are not closed and give no result yet.
        unknown: How many of them can't be decided.
        is_complete: Whether there can be no others so far.
        obstacle: Why they could not be looked for; empty if they could.
    """

    combinations: int = 0
    results: int = 0
    open: int = 0
    unknown: int = 0
    is_complete: bool = True
    obstacle: str = ""


class OptionalStreams(ABC):
    """Finds partners in the optional streams of a join."""

    @abstractmethod
    def find_partners(self, rows: Sequence[StoredTuple], optional: int) -> Partners:
        """Return the partners of a combination, given by its members, in an optional stream."""

    @abstractmethod
    def closing(self, rows: Sequence[StoredTuple]) -> CombinationClosing:
        """Return whether a combination, given by its members, is closed."""

    @abstractmethod
    def survey(self, rows: Sequence[StoredTuple]) -> Survey:
        """Return what becomes of the combinations that contain some tuples, of any streams but not of all."""

    @abstractmethod
    def is_newest(self, rows: Sequence[StoredTuple], partner: StoredTuple) -> bool:
        """Tell whether a partner in an as-of stream is the newest of a combination, or equal to it."""

    def would_find(self, selector: TupleSelector) -> bool:
        """Tell whether the selected tuples would be found if an open combination could still contain them."""
        return True


class Evidence(ABC):
    """Finds what an answer needs; `StateEvidence` in a checkpoint, Spark's part of the room in static frames."""

    @property
    @abstractmethod
    def tracer(self) -> ConditionTracer:
        """What tests combinations; used once the tuples have been found."""

    @property
    @abstractmethod
    def optional(self) -> OptionalStreams:
        """The optional streams."""

    @abstractmethod
    def find_tuples(self, selector: TupleSelector) -> list[SelectedTuple]:
        """Return what became of the selected tuples: at least one; answers mention the first `MOST_TUPLES`."""

    @abstractmethod
    def complete(self, rows: Sequence[StoredTuple], missing: Sequence[int]) -> Completions:
        """Count the results that contain some tuples, with others of the missing streams, or say why not."""

    def count_results(self, selectors: Sequence[TupleSelector]) -> ResultCount | None:
        """Count the results that contain the selected tuples; None if there is no way to tell."""
        return None

    @property
    def owes_results(self) -> bool:
        """Whether results may be owed."""
        return False

    def result_batches(self, complete: BatchRange, selectors: Sequence[TupleSelector]) -> BatchRange:
        """Return in which batch a result that is not owed came.

        Args:
            complete: The batch in which its last member came.
            selectors: What selects its members.
        """
        return complete

    def notes(self, selector: TupleSelector, tuples: Sequence[SelectedTuple]) -> Iterator[str]:
        """Yield a remark if more tuples are selected than an answer mentions."""
        if len(tuples) > MOST_TUPLES:
            stream = self.tracer.query.streams[selector.stream].name
            count = sum(bool(status.values) for status, _ in tuples[:MOST_TUPLES])  # one may stand for those not found
            yield f"More than {count} tuples of {stream} have {selector.text}; these are the first {count}."


@dataclass(frozen=True, slots=True)
class InnerOutcomes:
    """Decides what became of combinations of tuples in question.

    Attributes:
        evidence: Where they are found.
        selectors: What selects them, in the order of the streams.
    """

    evidence: Evidence
    selectors: Sequence[TupleSelector]

    def of(self, members: Sequence[SelectedTuple]) -> Combination:
        """Return what became of one combination; this runs its tests, and may probe state and read results."""
        statuses = tuple(status for status, _ in members)
        if any(status.fate in NEVER_JOINED for status in statuses):
            return self._never_joined(statuses)
        rows = [row for _, row in members if row is not None]
        if len(rows) < len(members):
            return self._by_results(statuses)
        tests = tuple(self.evidence.tracer.trace(rows))
        refusing = [test for test in tests if test.refuses]
        if refusing:
            messages = [f"{_they_have(statuses)} not joined: {refusing[0].message}."]
            messages += [f"Besides, {test.message}." for test in refusing[1:]]
            return Combination(statuses, False, tests, tuple(messages))
        open_tests = [test for test in tests if test.holds in ("unknown", "raises")]
        if open_tests:
            return self._describe_undecided(statuses, tests, open_tests)
        if len(rows) == len(self.evidence.tracer.query.streams):
            return self._describe_matching(statuses, tests, rows)
        return self._describe_incomplete(statuses, tests, rows)

    def _never_joined(self, statuses: tuple[TupleStatus, ...]) -> Combination:
        """Return what became of tuples of which some can be in no result; counts results that have such values."""
        missing = [status for status in statuses if status.fate in NEVER_JOINED]
        reason = format_list([f"{status.stream} is {NEVER_JOINED[status.fate]}" for status in missing])
        messages = [f"{_they_have(statuses)} not joined: {reason}."] if len(statuses) > 1 else []
        results = self.evidence.count_results(self.selectors)
        if results is not None and results.count:
            messages.append(
                f"The output holds {count_noun(results.count, 'result')} with such values, of other tuples."
            )
        return Combination(statuses, False, (), tuple(messages))

    def _describe_matching(
        self, statuses: tuple[TupleStatus, ...], tests: tuple[Check, ...], rows: Sequence[StoredTuple]
    ) -> Combination:
        """Return what became of tuples of all streams that pass all tests: they have joined, or that may be owed."""
        complete = latest_batches([row.batches for row in rows])
        if any(row.owed_since is not None and row.owed_since <= complete[1] for row in rows):
            when = self.evidence.tracer.formatter.format_time(max(row.ts for row in rows))
            message = f"They match, at {when}. Some of them were spilled, so the result may still be owed."
            return Combination(statuses, None, tests, (message,), complete)
        batches = self.evidence.result_batches(complete, self.selectors)
        return joined_combination(self.evidence, statuses, tests, rows, batches)

    def _describe_undecided(
        self, statuses: tuple[TupleStatus, ...], tests: tuple[Check, ...], open_tests: Sequence[Check]
    ) -> Combination:
        """Return what became of tuples if some test raises, which prevents a result, or else has no answer here.

        Then results may show it.
        """
        raising = next((test for test in open_tests if test.holds == "raises"), None)
        if raising is not None:
            return Combination(statuses, False, tests, (f"{_they_have(statuses)} not joined: {raising.message}.",))
        from_results, reasons = self._by_results(statuses), "; ".join(test.message for test in open_tests)
        messages = (*from_results.messages, f"As far as is known here, all else holds, but {reasons}.")
        return Combination(statuses, from_results.joined, tests, messages, from_results.batches, from_results.results)

    def _by_results(self, statuses: tuple[TupleStatus, ...]) -> Combination:
        """Return what became of tuples as results show it, where state doesn't; reads their files."""
        results = self.evidence.count_results(self.selectors)
        if results is None:
            untold = [status.name for status in statuses if status.fate in ("joined", "unknown")]
            reason = f", since state has no trace of {format_list(untold)}" if untold else ""
            they = "they" if len(statuses) > 1 else "it"
            return Combination(statuses, None, (), (f"It is unknown whether {they} joined{reason}.",))
        if not results.count and self.evidence.owes_results:
            message = f"No result in the output holds {object_pronoun(statuses)} so far, and some may still be owed."
            return Combination(statuses, None, (), (message,))
        if not results.count:
            message = f"{_they_have(statuses)} not joined: no result in the output holds {object_pronoun(statuses)}."
            return Combination(statuses, False, (), (message,), results=0)
        count, them = count_noun(results.count, "result"), object_pronoun(statuses)
        message = f"{_they_have(statuses)} joined: the output holds {count} with {them}, emitted {results.when}."
        return Combination(statuses, True, (), (message,), (results.first, results.last), results.count)

    def _describe_incomplete(
        self, statuses: tuple[TupleStatus, ...], tests: tuple[Check, ...], rows: Sequence[StoredTuple]
    ) -> Combination:
        """Return what became of tuples that match as far as they go: whether others complete them.

        State shows it, or else results.
        """
        streams = self.evidence.tracer.query.streams
        missing = [at for at in range(len(streams)) if at not in {row.stream for row in rows}]
        names = format_list([streams[at].name for at in missing])
        match, them = ("They match each other. ", "them") if len(statuses) > 1 else ("", "it")
        completions = self.evidence.complete(rows, missing)
        if completions.count:
            many = completions.count > MOST_RESULTS
            count = f"more than {MOST_RESULTS} results" if many else count_noun(completions.count, "result")
            note = " Some may still be owed." if self.evidence.owes_results else ""
            message = f"{_they_have(statuses)} joined: with tuples of {names} that are there now, {count}.{note}"
            return Combination(statuses, True, tests, (message,), results=completions.count)
        message = f"{match}No tuple of {names} that is there now completes {them}."
        if completions.is_complete:
            return Combination(statuses, False, tests, (f"{_they_have(statuses)} not joined. {message}",), results=0)
        from_results, obstacle = self._by_results(statuses), completions.obstacle
        if from_results.joined is not None:
            from_state = f"State alone does not show it: {obstacle}."
            messages = (*from_results.messages, from_state) if obstacle else (message, *from_results.messages)
            return Combination(
                statuses, from_results.joined, tests, messages, from_results.batches, from_results.results
            )
        if obstacle:
            message = f"{match}Whether others complete {them} is unknown: {obstacle}."
            return Combination(statuses, None, tests, (message,))
        purged = f"Others of {names} are unknown, since they were purged or not stored."
        return Combination(statuses, None, tests, (message, purged))


def joined_combination(
    evidence: Evidence,
    statuses: tuple[TupleStatus, ...],
    tests: tuple[Check, ...],
    rows: Sequence[StoredTuple],
    batches: BatchRange,
) -> Combination:
    """Return a combination that has joined, with `batches` as those of its result; negative ones mean static inputs."""
    when, is_static = evidence.tracer.formatter.format_time(max(row.ts for row in rows)), batches[1] < 0
    message = f"They have joined: the result of {when} came {describe_batches(batches)}."
    message = f"They join, at {when}." if is_static else message
    return Combination(statuses, True, tests, (message,), None if is_static else batches, 1)


def _they_have(statuses: Sequence[TupleStatus]) -> str:
    return "It has" if len(statuses) == 1 else "They have"
