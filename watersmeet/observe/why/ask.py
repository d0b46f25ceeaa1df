"""Answers why: finds the tuples that are asked about and judges their combinations."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, product
from typing import Any

from watersmeet.errors import PredicateError
from watersmeet.observe.why.answer import Answer, Batches
from watersmeet.observe.why.asked import Asked, listed
from watersmeet.observe.why.judged import Compute, Decide, Judged, Seen, block_of, longer
from watersmeet.observe.why.kept import Anywhere, Kept
from watersmeet.observe.why.lookup import Lookup
from watersmeet.observe.why.outer import OuterVerdicts
from watersmeet.observe.why.outputs import Outputs, Results
from watersmeet.observe.why.partners import Stored
from watersmeet.observe.why.verdict import MOST, MOST_RESULTS, Completed, Ground, Member, Verdicts
from watersmeet.observe.why.voice import Voice
from watersmeet.probe.answer_cache import AnswerCache
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.hop import Hops
from watersmeet.probe.hop_steps import step

MOST_COMBINATIONS = 6
"""Combinations that are told of, if several tuples have the values asked for."""


def answered(ground: Ground, asked: Sequence[Asked]) -> Answer:
    """Return the answer to a question.

    Args:
        ground: What it is drawn from.
        asked: The tuples, in the order of the streams.
    """
    found = [ground.tuples(one) for one in asked]
    notes = [note for one, some in zip(asked, found, strict=True) for note in ground.notes(one, some)]
    shown = [some[:MOST] for some in found]
    chosen = list(islice(product(*shown), MOST_COMBINATIONS + 1))
    if len(chosen) > MOST_COMBINATIONS:
        notes.append(f"There are more combinations; these are the first {MOST_COMBINATIONS}.")
    if ground.judged.query.filter:
        notes.append(f"Of the results, Spark keeps those with {ground.judged.query.filter}: not looked at here.")
    verdicts = OuterVerdicts(ground, asked) if ground.judged.query.optional else Verdicts(ground, asked)
    combinations = [verdicts.of(members) for members in chosen[:MOST_COMBINATIONS]]
    return Answer(tuple(found for some in shown for found, _ in some), tuple(combinations), tuple(notes))


@dataclass(frozen=True)
class Query(Ground):
    """A query that runs, or ran: what it has kept and put out.

    Attributes:
        kept: Its state.
        duck: A connection of its own.
        clock: Returns seconds.
        outputs: What it has put out.
        history: The progress of its batches, the last ones.
        decide: Lets Spark decide what only Spark can; None where there is none.
        compute: Lets Spark compute what only Spark can; None where there is none.
    """

    kept: Kept
    duck: Duck
    clock: Callable[[], float]
    outputs: Outputs = field(default_factory=Outputs)
    history: Sequence[Mapping[str, Any]] = ()
    decide: Decide | None = None
    compute: Compute | None = None

    @cached_property
    def judged(self) -> Judged:
        """See Ground."""
        query = self.kept.decided
        hops = Hops(query, self.kept.table, self.duck, AnswerCache(), self.clock, Anywhere(), "why")
        return Judged(query, hops, Voice(self.kept.query, self.duck), self.kept.as_of, self.decide, self.compute)

    @property
    def optional(self) -> Stored:
        """See Ground."""
        return Stored(self.kept, self.judged, self.history)

    def tuples(self, asked: Asked) -> list[Member]:
        """See Ground."""
        return Lookup(self.kept, Voice(self.kept.query, self.duck), self.outputs, self.history).tuples(asked)

    def results(self, asked: Sequence[Asked]) -> Results | None:
        """See Ground."""
        return self.outputs.results(asked, self.kept.query.optional)

    def completed(self, seen: Sequence[Seen], missing: Sequence[int]) -> Completed:
        """See Ground; the tuples that state holds are probed."""
        query = self.judged.query
        if query.counted_streams:
            return Completed(0, False, "with count windows, name a tuple of each stream")
        if lacking := self.judged.unanswered():
            return Completed(0, False, f"`{lacking}` can't be answered here")
        gone = [query.streams[at] for at in missing if query.streams[at].refreshed and not self.kept.is_whole(at)]
        if gone:
            return Completed(0, False, f"{gone[0].name} is read for each batch, and none of it is kept")
        blocks, joined = iter([block_of(query, seen)]), tuple(there.stream for there in seen)
        for target in missing:
            blocks = longer(self.judged.hops, blocks, step(query, joined, target))
            joined = (*joined, target)
        whole, count = all(map(self.kept.is_whole, missing)), 0
        try:
            for block in blocks:
                count += self.judged.count(block)
                if count > MOST_RESULTS:
                    break
        except PredicateError as error:
            return Completed(count, False, str(error).rstrip("."))
        return Completed(count, whole)

    @property
    def owing(self) -> bool:
        """See Ground."""
        return self.kept.owing

    def came(self, complete: Batches, asked: Sequence[Asked]) -> Batches:
        """See Ground; where work has been put off, any later batch may have paid the result, and files tell which."""
        state = self.kept.state
        if not state.ledger.made:
            return complete
        known = self.results(asked)
        if known is None or not known.count:
            return complete[0], state.batch
        first = max(complete[0], known.first)
        return first, max(first, known.last)

    def notes(self, asked: Asked, found: Sequence[Member]) -> Iterator[str]:
        """See Ground."""
        spec = self.kept.query.streams[asked.stream]
        kept = self.kept.columns(asked.stream)
        lacking = [f"{spec.name}.{spec.schema.names[field]}" for field in asked.values if field not in kept]
        if lacking and any(seen is not None for _, seen in found):
            rest = "what is stored was found by the rest, and may have another value"
            yield f"State does not keep {listed(lacking)}: {rest}."
        yield from super().notes(asked, found)
