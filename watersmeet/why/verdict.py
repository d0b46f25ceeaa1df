"""What became of a combination: joined or not, why, in which batch, and where that can't be told."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.errors import PredicateError
from watersmeet.kernel.hop import Hops
from watersmeet.kernel.partials import Partials
from watersmeet.kernel.steps import Step, step
from watersmeet.why.answer import Combination, Check, Tuple
from watersmeet.why.asked import Asked, listed
from watersmeet.why.judged import Judged, Seen, block_of
from watersmeet.why.kept import Kept
from watersmeet.why.outputs import Outputs
from watersmeet.why.voice import in_batch, latest

NOT_TAKEN = {
    "late": "late, so it was never joined",
    "rejected": "rejected, so it was never joined",
    "denied": "denied, so it was never joined",
}
"""What sentences say of rows that were not taken."""
NEVER = {**NOT_TAKEN, "not stored": "not stored", "never arrived": "not there"}
"""The fates of tuples that no result has."""
MOST_RESULTS = 10_000
"""Results are not counted beyond this."""
Member = tuple[Tuple, Seen | None]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Judges combinations of what was asked for.

    Attributes:
        kept: The state of the join.
        judged: Tests combinations.
        outputs: Results, where state no longer tells.
        asked: What was asked for, in the order of the streams.
    """

    kept: Kept
    judged: Judged
    outputs: Outputs
    asked: Sequence[Asked]

    def of(self, members: Sequence[Member]) -> Combination:
        """Return what became of one combination."""
        found = tuple(member for member, _ in members)
        never = [member for member in found if member.fate in NEVER]
        if never:
            who = listed([f"{member.name} is {NEVER[member.fate]}" for member in never])
            return Combination(found, False, (), (f"{self._they(found)} not joined: {who}.",))
        seen = [there for _, there in members if there is not None]
        if len(seen) < len(members):
            return self._by_results(found)
        tests = tuple(self.judged.tests(seen))
        refusing = [test for test in tests if test.refuses]
        if refusing:
            first, *rest = refusing
            says = [f"{self._they(found)} not joined: {first.says}."]
            says += [f"Besides, {test.says}." for test in rest]
            return Combination(found, False, tests, tuple(says))
        open_ = [test for test in tests if test.holds in ("unknown", "raises")]
        if open_:
            return self._open(found, tests, open_)
        if len(seen) == len(self.kept.query.streams):
            return self._joined(found, tests, seen)
        return self._completed(found, tests, seen)

    def _they(self, found: Sequence[Tuple]) -> str:
        return "It has" if len(found) == 1 else "They have"

    def _joined(self, found: tuple[Tuple, ...], tests: tuple[Check, ...], seen: Sequence[Seen]) -> Combination:
        """Return what is to be said of a combination that passes all tests."""
        batches, time = latest([there.batches for there in seen]), max(there.ts for there in seen)
        when = self.judged.voice.time(time)
        if any(there.cold for there in seen):
            says = f"They match, at {when}. Work on some of them is put off, so the result may still be owed."
            return Combination(found, None, tests, (says,), batches)
        says = f"They have joined: the result of {when} came {in_batch(batches)}."
        return Combination(found, True, tests, (says,), batches, 1)

    def _open(self, found: tuple[Tuple, ...], tests: tuple[Check, ...], left: Sequence[Check]) -> Combination:
        """Return what is to be said where some test has no answer here; results may know."""
        raising = next((test for test in left if test.holds == "raises"), None)
        if raising is not None:
            return Combination(found, False, tests, (f"{self._they(found)} not joined: {raising.says}.",))
        known = self._by_results(found)
        why = "; ".join(test.says for test in left)
        says = known.says if known.joined is not None else ("It can't be told whether they joined.",)
        return Combination(
            found, known.joined, tests, (*says, f"All else holds, but {why}."), known.batches, known.results
        )

    def _by_results(self, found: tuple[Tuple, ...]) -> Combination:
        """Return what results say, where state doesn't."""
        results = self.outputs.results(self.asked)
        if results is None:
            gone = [member.name for member in found if member.fate in ("joined", "unknown")]
            says = "It can't be told whether they joined" if len(found) > 1 else "It can't be told whether it joined"
            why = f", since nothing is left of {listed(gone)}" if gone else ""
            return Combination(found, None, (), (f"{says}{why}.",))
        if not results.count:
            return Combination(
                found, False, (), (f"{self._they(found)} not joined: no result holds {_all(found)}.",), results=0
            )
        batches = results.first, results.last
        whole = _plural(results.count, "result")
        says = f"{self._they(found)} joined: the output holds {whole} with {_all(found)}, put out {_when(batches)}."
        return Combination(found, True, (), (says,), batches, results.count)

    # -- fewer streams than the join has

    def _completed(self, found: tuple[Tuple, ...], tests: tuple[Check, ...], seen: Sequence[Seen]) -> Combination:
        """Return what is to be said of tuples that match as far as they go: whether others complete them."""
        query = self.judged.query
        missing = [at for at in range(len(query.streams)) if at not in {there.stream for there in seen}]
        names = listed([query.streams[at].name for at in missing])
        match = "They match as far as they go. " if len(found) > 1 else ""
        if query.counted:
            says = f"{match}With count windows, name tuples of {names} as well to learn whether they joined."
            return Combination(found, None, tests, (says,))
        count, stopped = self._count(seen, missing)
        if count:
            more = f"more than {MOST_RESULTS} results" if count > MOST_RESULTS else _plural(count, "result")
            owed = " Some may still be owed." if self.kept.state.ledger.units else ""
            says = f"{self._they(found)} joined: there are {more} with stored tuples of {names}.{owed}"
            says = says.replace("there are 1 ", "there is 1 ")
            return Combination(found, True, tests, (says,), results=count)
        whole = all(self.kept.is_whole(at) for at in missing)
        says = f"{match}No stored tuple of {names} completes {'them' if len(found) > 1 else 'it'}{stopped}."
        if whole:
            return Combination(found, False, tests, (says,), results=0)
        known = self._by_results(found)
        if known.joined is None:
            return Combination(found, None, tests, (says, f"Others of {names} have been purged, or were not stored."))
        return Combination(found, known.joined, tests, (says, *known.says), known.batches, known.results)

    def _count(self, seen: Sequence[Seen], missing: Sequence[int]) -> tuple[int, str]:
        """Return how many combinations the tuples are part of, and what stopped them if there are none."""
        query, hops = self.judged.query, self.judged.hops
        blocks, joined = iter([block_of(query, seen)]), tuple(there.stream for there in seen)
        for target in missing:
            blocks = _longer(hops, blocks, step(query, joined, target))
            joined = (*joined, target)
        count = 0
        try:
            for block in blocks:
                count += self.judged.count(block)
                if count > MOST_RESULTS:
                    break
        except PredicateError as error:
            return count, f": {str(error).rstrip('.')}"
        return count, ""


def _longer(hops: Hops, blocks: Iterator[Partials], hop: Step) -> Iterator[Partials]:
    for block in blocks:
        yield from hops.hop(block, hop)


def _all(found: Sequence[Tuple]) -> str:
    return "them all" if len(found) > 2 else "both" if len(found) == 2 else "it"


def _when(batches: tuple[int, int]) -> str:
    return in_batch(batches) if batches[0] == batches[1] else f"in batches {batches[0]} to {batches[1]}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
