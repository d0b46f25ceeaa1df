"""What became of a combination: joined or not, why, in which batch, and where that can't be told."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.observe.why.answer import Batches, Check, Combination, Tuple
from watersmeet.observe.why.asked import Asked, listed
from watersmeet.observe.why.judged import Judged, Seen
from watersmeet.observe.why.outcome import OptionalStreams
from watersmeet.observe.why.outputs import Results
from watersmeet.observe.why.voice import in_batch, latest

NOT_TAKEN = {
    "late": "late, so it was never joined",
    "rejected": "rejected, so it was never joined",
    "denied": "denied, so it was never joined",
}
"""What sentences say of rows that were not taken."""
NEVER = {
    "late": "late",
    "rejected": "rejected",
    "denied": "denied",
    "not stored": "left out",
    "never arrived": "missing",
}
"""The fates of tuples that no result has."""
MOST = 3
"""Tuples of a stream that are told of, if several have the values asked for."""
MOST_RESULTS = 10_000
"""Results are not counted beyond this."""
Member = tuple[Tuple, Seen | None]
"""A tuple, and where its values are at hand."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The results that some tuples are part of, where not all streams were asked about.

    Attributes:
        count: How many there are.
        whole: Whether there can be no others.
        stopped: Why they could not be counted; empty if they could.
    """

    count: int
    whole: bool
    stopped: str = ""


class Ground(ABC):
    """What answers are drawn from."""

    @property
    @abstractmethod
    def judged(self) -> Judged:
        """What tests combinations."""

    @property
    @abstractmethod
    def optional(self) -> OptionalStreams:
        """What is known of optional streams."""

    @abstractmethod
    def tuples(self, asked: Asked) -> list[Member]:
        """Return what became of the tuples that have the values, at least one: `MOST` and another if there are."""

    @abstractmethod
    def completed(self, seen: Sequence[Seen], missing: Sequence[int]) -> Completed:
        """Return the results that tuples are part of, with others of the missing streams."""

    def results(self, asked: Sequence[Asked]) -> Results | None:
        """Return the results that hold all that is asked for; None if there is nothing to tell it from."""
        return None

    @property
    def owing(self) -> bool:
        """Whether results may be owed."""
        return False

    def came(self, complete: Batches, asked: Sequence[Asked]) -> Batches:
        """Return in which batch a result came that is not owed.

        Args:
            complete: In which batch its last member came.
            asked: What it holds.
        """
        return complete

    def notes(self, asked: Asked, found: Sequence[Member]) -> Iterator[str]:
        """Yield what is to be said of a search."""
        if len(found) > MOST:
            stream = self.judged.query.streams[asked.stream].name
            shown = sum(bool(told.values) for told, _ in found[:MOST])  # one may stand for those that were not found
            yield f"More than {shown} tuples of {stream} have {asked.text}; these are the first {shown}."


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Judges combinations of what was asked for.

    Attributes:
        ground: What is known.
        asked: What was asked for, in the order of the streams.
    """

    ground: Ground
    asked: Sequence[Asked]

    def of(self, members: Sequence[Member]) -> Combination:
        """Return what became of one combination."""
        found = tuple(member for member, _ in members)
        never = [member for member in found if member.fate in NEVER]
        if never:
            who = listed([f"{member.stream} is {NEVER[member.fate]}" for member in never])
            told = [f"{_they(found)} not joined: {who}."] if len(found) > 1 else []
            results = self.ground.results(self.asked)
            if results is not None and results.count:
                told.append(f"The output holds {many(results.count, 'result')} with such values, of other tuples.")
            return Combination(found, False, (), tuple(told))
        seen = [there for _, there in members if there is not None]
        if len(seen) < len(members):
            return self._by_results(found)
        tests = tuple(self.ground.judged.tests(seen))
        refusing = [test for test in tests if test.refuses]
        if refusing:
            says = [f"{_they(found)} not joined: {refusing[0].says}."]
            says += [f"Besides, {test.says}." for test in refusing[1:]]
            return Combination(found, False, tests, tuple(says))
        left = [test for test in tests if test.holds in ("unknown", "raises")]
        if left:
            return self._open(found, tests, left)
        if len(seen) == len(self.ground.judged.query.streams):
            return self._whole(found, tests, seen)
        return self._completed(found, tests, seen)

    def _whole(self, found: tuple[Tuple, ...], tests: tuple[Check, ...], seen: Sequence[Seen]) -> Combination:
        """Return what is to be said of tuples of all streams that pass all tests: they have joined, or will."""
        complete = latest([there.batches for there in seen])
        if any(there.unasked is not None and there.unasked <= complete[1] for there in seen):
            when = self.ground.judged.voice.time(max(there.ts for there in seen))
            says = f"They match, at {when}. Work on some of them was put off, so the result may still be owed."
            return Combination(found, None, tests, (says,), complete)
        return joined(self.ground, found, tests, seen, self.ground.came(complete, self.asked))

    def _open(self, found: tuple[Tuple, ...], tests: tuple[Check, ...], left: Sequence[Check]) -> Combination:
        """Return what is to be said where some test has no answer here; results may know."""
        raising = next((test for test in left if test.holds == "raises"), None)
        if raising is not None:
            return Combination(found, False, tests, (f"{_they(found)} not joined: {raising.says}.",))
        known, why = self._by_results(found), "; ".join(test.says for test in left)
        says = (*known.says, f"As far as can be told here all else holds, but {why}.")
        return Combination(found, known.joined, tests, says, known.batches, known.results)

    def _by_results(self, found: tuple[Tuple, ...]) -> Combination:
        """Return what results say, where state doesn't."""
        results = self.ground.results(self.asked)
        if results is None:
            gone = [member.name for member in found if member.fate in ("joined", "unknown")]
            why = f", since state does not tell of {listed(gone)}" if gone else ""
            told = "they" if len(found) > 1 else "it"
            return Combination(found, None, (), (f"It can't be told whether {told} joined{why}.",))
        if not results.count and self.ground.owing:
            says = f"No result in the output holds {all_of(found)} so far, and some may still be owed."
            return Combination(found, None, (), (says,))
        if not results.count:
            says = f"{_they(found)} not joined: no result in the output holds {all_of(found)}."
            return Combination(found, False, (), (says,), results=0)
        batches = results.first, results.last
        when = in_batch(batches) if results.first == results.last else f"in batches {results.first} to {results.last}"
        some = many(results.count, "result")
        says = f"{_they(found)} joined: the output holds {some} with {all_of(found)}, put out {when}."
        return Combination(found, True, (), (says,), batches, results.count)

    def _completed(self, found: tuple[Tuple, ...], tests: tuple[Check, ...], seen: Sequence[Seen]) -> Combination:
        """Return what is to be said of tuples that match as far as they go: whether others complete them."""
        streams = self.ground.judged.query.streams
        missing = [at for at in range(len(streams)) if at not in {there.stream for there in seen}]
        names = listed([streams[at].name for at in missing])
        match, them = ("They match each other. ", "them") if len(found) > 1 else ("", "it")
        more = self.ground.completed(seen, missing)
        if more.count:
            some = f"more than {MOST_RESULTS} results" if more.count > MOST_RESULTS else many(more.count, "result")
            owed = " Some may still be owed." if self.ground.owing else ""
            says = f"{_they(found)} joined: with tuples of {names} that are there now, {some}.{owed}"
            return Combination(found, True, tests, (says,), results=more.count)
        says = f"{match}No tuple of {names} that is there now completes {them}."
        if more.whole:
            return Combination(found, False, tests, (f"{_they(found)} not joined. {says}",), results=0)
        known = self._by_results(found)
        if known.joined is not None:
            stopped = f"From state alone it can't be told: {more.stopped}."
            told = (*known.says, stopped) if more.stopped else (says, *known.says)
            return Combination(found, known.joined, tests, told, known.batches, known.results)
        if more.stopped:
            says = f"{match}Whether others complete {them} can't be told: {more.stopped}."
            return Combination(found, None, tests, (says,))
        left = f"It can't be told of others of {names}, which were purged or not stored."
        return Combination(found, None, tests, (says, left))


def joined(
    ground: Ground, found: tuple[Tuple, ...], tests: tuple[Check, ...], seen: Sequence[Seen], batches: Batches
) -> Combination:
    """Return what is to be said of a combination whose result came in a batch, if its inputs aren't static."""
    when = ground.judged.voice.time(max(there.ts for there in seen))
    came = "" if batches[1] < 0 else f" came {in_batch(batches)}"
    says = f"They have joined: the result of {when}{came}." if came else f"They join, at {when}."
    return Combination(found, True, tests, (says,), batches if came else None, 1)


def _they(found: Sequence[Tuple]) -> str:
    return "It has" if len(found) == 1 else "They have"


def all_of(found: Sequence[Tuple]) -> str:
    """Return how sentences speak of tuples together."""
    return "them all" if len(found) > 2 else "both" if len(found) == 2 else "it"


def many(count: int, word: str) -> str:
    """Return a number of things."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
