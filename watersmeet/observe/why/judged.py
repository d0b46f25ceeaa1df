"""Puts a combination of tuples to every test of its join: windows first, then conjuncts, each on its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import PredicateError
from watersmeet.formatting import abbreviate
from watersmeet.observe.why.answer import Batches, Check, Holds
from watersmeet.observe.why.voice import Voice, lasting, plain_values
from watersmeet.predicate.model import Column, Conjunct
from watersmeet.probe.evaluators.compared_values import SideValues, is_informative, side_values_of
from watersmeet.probe.hop import Hops
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import NOWHERE, Partials
from watersmeet.query.query import Query
from watersmeet.query.windows import FOREVER, Count, Hopping, Sliding

Decide = Callable[[Conjunct, Mapping[str, pa.Array]], bool | None]
"""Lets Spark answer a conjunct for one combination: its columns by generated names, and what its predicates say.

Raises a PredicateError if the conjunct does."""
Compute = Callable[[Conjunct, Mapping[str, pa.Array]], Sequence[pa.Array]]
"""Lets Spark compute what a conjunct compares that is left to it, likewise; nothing where that raises."""
MOST_DECIDED = 20
"""So many combinations that are found beside those asked about are decided by Spark, one by one."""
LONG = 80
"""A conjunct that is longer than this is abbreviated in a sentence."""
LAST = 1 << 40
"""A batch after all others: what has its number may ask for everything."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A tuple whose values are at hand.

    Attributes:
        stream: Its stream.
        ref: The reference of its row.
        ts: Its event time.
        batches: In which batch it came.
        ordinal: Its arrival ordinal, if its stream has a count window.
        unasked: The first batch whose tuples have not asked for it yet, since it is cold; None if all have.
    """

    stream: int
    ref: int
    ts: int
    batches: Batches
    ordinal: int | None = None
    unasked: int | None = None


AsOf = Callable[[int, Seen], tuple[int, int]]
"""Returns how many tuples of a stream had come no later than a tuple: at least, and at most."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Tests combinations.

    Attributes:
        query: The join, as it is decided for the tuples that are there.
        hops: Evaluates conjuncts over the chunks in which they are.
        voice: Finds the words.
        as_of: Says what had come when.
        decide: Lets Spark decide; None where there is no Spark.
        compute: Lets Spark compute values; None where there is no Spark.
    """

    query: Query
    hops: Hops
    voice: Voice
    as_of: AsOf
    decide: Decide | None = None
    compute: Compute | None = None

    def tests(self, members: Sequence[Seen]) -> Iterator[Check]:
        """Yield the tests that tuples of different streams can be put to, perhaps not of all."""
        later = self._later(members)
        yield from (self._too_late(members, member) for member in later)
        rest = [member for member in members if member not in later]
        if len(rest) > 1:
            yield from (self._window(rest, member) for member in rest)
        block, streams = block_of(self.query, members), {member.stream for member in members}
        for conjunct in self.query.conjuncts:
            if conjunct.streams and conjunct.streams <= streams:
                yield self._conjunct(conjunct, block)

    def unanswered(self) -> str:
        """Return a conjunct that calls a Python predicate which is not at hand; empty if there is none."""
        return next((conjunct.text for conjunct in self.query.conjuncts if self._lacks(conjunct)), "")

    def _lacks(self, conjunct: Conjunct) -> bool:
        known = {predicate.name for predicate in self.query.predicates}
        return any(call.predicate not in known for call in conjunct.calls)

    def count(self, block: Partials) -> int:
        """Return how many of some combinations are results; of those that Spark has to decide, the first few."""
        if not self.query.deferred_conjuncts or not len(block):
            return len(block)
        later = self.hops.pending(block)
        left = [block.take(np.array([at])) for at in np.flatnonzero(later)[:MOST_DECIDED].tolist()]
        return int(np.count_nonzero(~later)) + sum(map(self._passes, left))

    def passing(self, block: Partials) -> Partials:
        """Return those of some combinations that pass the conjuncts over their streams, as Spark has it where it must.

        Raises:
            PredicateError: If there is no Spark to ask, or there is too much to ask it.
        """
        if not self.query.deferred_conjuncts or not len(block):
            return block
        later = np.flatnonzero(self.hops.pending(block))
        if len(later) > (0 if self.decide is None else MOST_DECIDED):
            text = next(conjunct.text for conjunct in self.query.deferred_conjuncts if not conjunct.exact)
            raise PredicateError(f"`{text}` can't be answered here for all of them")
        denied = [at for at in later.tolist() if not self._passes(block.take(np.array([at])))]
        return block.take(np.setdiff1d(np.arange(len(block)), denied))

    def _passes(self, combination: Partials) -> bool:
        asked = (conjunct for conjunct in self.query.deferred_conjuncts if conjunct.streams <= {*combination.joined})
        return all(self._conjunct(conjunct, combination).holds == "TRUE" for conjunct in asked)

    # -- windows

    def _later(self, members: Sequence[Seen]) -> list[Seen]:
        """Return the tuples of as-of streams that are later than all others."""
        as_of = self.query.as_of_streams
        times = [member.ts for member in members if member.stream not in as_of]
        return [member for member in members if member.stream in as_of and times and member.ts > max(times)]

    def _too_late(self, members: Sequence[Seen], member: Seen) -> Check:
        name, as_of = self.query.streams[member.stream].name, self.query.as_of_streams
        last = max((other for other in members if other.stream not in as_of), key=lambda other: other.ts)
        than = self.query.streams[last.stream].name
        says = f"{name} is {lasting(member.ts - last.ts)} later than {than}, and an as-of partner is no later"
        return Check(f"time of {name}", "window", "FALSE", says, {"time": last.ts, name: member.ts})

    def _window(self, members: Sequence[Seen], member: Seen) -> Check:
        stream = self.query.streams[member.stream]
        window, name = stream.window, f"window of {stream.name}"
        if isinstance(window, Count):
            return self._count_window(members, member, window.size)
        last = max(members, key=lambda other: other.ts)
        times = {"time": last.ts, stream.name: member.ts}
        deadline = _deadline(self.query, member)
        if last.ts <= deadline:
            return Check(name, "window", "TRUE", f"{stream.name} is in its window", times)
        age = f"{stream.name} is {lasting(last.ts - member.ts)} older than {self.query.streams[last.stream].name}"
        match window:
            case Sliding():
                over = last.ts - member.ts - window.bound
                much = f"{lasting(over)} too old" if over else "at exactly that age it is out"
                says = f"{age}, and its window is {lasting(window.bound)}: {much}"
            case Hopping(size, step, closed):
                over = last.ts - deadline - (closed == "left")  # such a window ends right after its last moment
                when = f"{lasting(over)} earlier" if over else "at exactly that time"
                says = f"{age}, and the last window of {lasting(size)} every {lasting(step)} that holds it ended {when}"
            case _:
                raise AssertionError(window)
        return Check(name, "window", "FALSE", says, times | {"by": over})

    def _count_window(self, members: Sequence[Seen], member: Seen, size: int) -> Check:
        """Return whether a tuple was among the last ones of its stream when the last member came."""
        assert member.ordinal is not None
        known = [self.as_of(member.stream, other) for other in members if other is not member]
        low = max([member.ordinal, *(least for least, _ in known)]) - member.ordinal
        high = max([member.ordinal, *(most for _, most in known)]) - member.ordinal
        name = self.query.streams[member.stream].name
        holds: Holds = "FALSE" if low >= size else "TRUE" if high < size else "unknown"
        after = f"{low}" if low == high else f"{low} to {high}"
        by = f": {low - size + 1} too many" if holds == "FALSE" else ""
        says = (
            f"{after} more of {name} had come when the combination was complete, "
            f"and its window is its last {size} rows{by}"
        )
        return Check(f"window of {name}", "window", holds, says, {"newer": low if low == high else [low, high]})

    # -- conjuncts

    def _conjunct(self, conjunct: Conjunct, block: Partials) -> Check:
        raised = ""
        try:
            holds, sides = self._holds(conjunct, block), self._sides(conjunct, block)
        except PredicateError as error:
            raised = f"{str(error).rstrip('.')}; it stops the query"
            holds, sides = "raises", side_values_of(self.hops.evaluators.comparisons, conjunct, block)
        columns = {c: block.column(c, self.hops.evaluators.reader.table.gather) for c in self._shown(conjunct, sides)}
        computed = [side for side in sides if side.is_known(0) and is_informative(self.query, side.compared)]
        values = {side.compared.text: side.plain(0) for side in computed} | plain_values(self.query, columns)
        answer = "can't be answered here" if holds == "unknown" else f"is {holds}"
        told = self.voice.compared(conjunct.comparing, sides, columns)
        says = raised or f"`{abbreviate(conjunct.text, LONG)}` {answer}{told}"
        return Check(conjunct.text, "conjunct", holds, says, values)

    def _sides(self, conjunct: Conjunct, block: Partials) -> list[SideValues]:
        """Return what a conjunct compares, as Spark computes it where it must."""
        compared = conjunct.comparing.values
        if self.compute is None or self._lacks(conjunct) or all(value.sql or value.term for value in compared):
            return side_values_of(self.hops.evaluators.comparisons, conjunct, block)
        values = self.compute(conjunct, self._read(conjunct, block))
        return [SideValues(*side, np.zeros(len(block))) for side in zip(compared, values, strict=False)]

    def _read(self, conjunct: Conjunct, block: Partials) -> dict[str, pa.Array]:
        """Return what Spark needs for a conjunct: its columns, and what its predicates say."""
        columns = self.hops.evaluators.reader.read(block, conjunct.columns)
        return columns | {
            call.name: self.hops.evaluators.sql.predicates.booleans(block, call) for call in conjunct.calls
        }

    def _shown(self, conjunct: Conjunct, sides: Sequence[SideValues]) -> list[Column]:
        """Return the columns that are shown beside what a conjunct compares: not what Spark computes on the way."""
        named = [column for column in conjunct.columns if self.query.is_named(column)]
        compared = {column for side in sides for column in side.compared.columns}
        left = [c for c in conjunct.columns if c not in named and c not in compared and c not in self.query.flags]
        return named + left

    def _holds(self, conjunct: Conjunct, block: Partials) -> Holds:
        if self._lacks(conjunct):
            return "unknown"
        found = self.hops.evaluators.evaluate(conjunct, block)
        if found != "undecided":
            return found
        if self.decide is None:
            return "unknown"
        decided = self.decide(conjunct, self._read(conjunct, block))
        return "NULL" if decided is None else "TRUE" if decided else "FALSE"


def block_of(query: Query, members: Sequence[Seen]) -> Partials:
    """Return tuples as one partial result, which may ask for whatever its windows admit."""
    last = np.array([max(member.ts for member in members)])
    return Partials(
        joined=tuple(member.stream for member in members),
        rows={member.stream: np.array([member.ref]) for member in members},
        moment=np.array([FOREVER]),
        high=last,
        deadline=np.array([min(_deadline(query, member) for member in members)]),
        here=np.array([NOWHERE]),
        batch=np.array([LAST]),
        times={member.stream: np.array([member.ts]) for member in members},
    )


def longer(hops: Hops, blocks: Iterator[Partials], hop: Step) -> Iterator[Partials]:
    """Yield what partial results become by a hop."""
    for block in blocks:
        yield from hops.hop(block, hop)


def _deadline(query: Query, member: Seen) -> int:
    """Return the last time of a result that the window of a tuple admits."""
    return int(query.streams[member.stream].window.deadline(np.array([member.ts]))[0])
