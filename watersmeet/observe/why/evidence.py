"""What answers are drawn from: where tuples, results and partners are found, whatever holds them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.observe.why.answer import BatchRange, TupleStatus
from watersmeet.observe.why.condition_trace import ConditionTracer, StoredTuple
from watersmeet.observe.why.output_files import ResultCount
from watersmeet.observe.why.question import TupleSelector

MOST_TUPLES = 3
"""The most tuples of a stream that an answer mentions."""
SelectedTuple = tuple[TupleStatus, StoredTuple | None]
"""A tuple in question, and its row if that is available."""


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
        """Yield remarks on a search."""
        if len(tuples) > MOST_TUPLES:
            stream = self.tracer.query.streams[selector.stream].name
            count = sum(bool(status.values) for status, _ in tuples[:MOST_TUPLES])  # one may stand for those not found
            yield f"More than {count} tuples of {stream} have {selector.text}; these are the first {count}."
