"""Runs every test of a join on a combination of tuples: windows first, then conjuncts, each by itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import PredicateError
from watersmeet.formatting import abbreviate
from watersmeet.observe.why.answer import BatchRange, Check, Truth, ValueFormatter, describe_duration, plain_values
from watersmeet.predicate.model import Column, Conjunct
from watersmeet.probe.evaluators.compared_values import SideValues, is_informative, side_values_of
from watersmeet.probe.hop import Hops
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import NOWHERE, Partials
from watersmeet.query.query import Query
from watersmeet.query.windows import FOREVER, Count, Hopping, Sliding

Decide = Callable[[Conjunct, Mapping[str, pa.Array]], bool | None]
"""Evaluates a conjunct for one combination in Spark, given its columns by generated names and its predicates' answers.

Raises a PredicateError if the conjunct does."""
Compute = Callable[[Conjunct, Mapping[str, pa.Array]], Sequence[pa.Array]]
"""Computes the values that a conjunct compares in Spark, given the same; returns none if that raises."""
MOST_DECIDED = 20
"""The most combinations beyond those in question that Spark decides, one by one."""
LONG = 80
"""Characters of a conjunct beyond which sentences abbreviate it."""
LAST = 1 << 40
"""A batch after all others; tuples of this batch may probe everything."""


@dataclass(frozen=True, slots=True)
class StoredTuple:
    """A tuple whose row is available.

    Attributes:
        stream: Its stream.
        ref: The reference to its row.
        ts: Its event time.
        batches: The batch in which it came.
        ordinal: Its arrival ordinal, if its stream has a count window.
        owed_since: The first batch whose tuples have not probed it yet, since its unit is spilled; None if all have.
    """

    stream: int
    ref: int
    ts: int
    batches: BatchRange
    ordinal: int | None = None
    owed_since: int | None = None


CountEarlier = Callable[[int, StoredTuple], tuple[int, int]]
"""Returns how many tuples of a stream came no later than a tuple: at least, and at most."""


@dataclass(frozen=True, slots=True)
class ConditionTracer:
    """Tests combinations, and records what each test said and from which values.

    Attributes:
        query: The join, evaluated as carefully as the stored tuples require.
        hops: Evaluates conjuncts over the chunks of the tuples.
        formatter: Puts values into words.
        count_earlier: Counts what came before a tuple.
        decide: Decides conjuncts in Spark; None without Spark.
        compute: Computes values in Spark; None without Spark.
    """

    query: Query
    hops: Hops
    formatter: ValueFormatter
    count_earlier: CountEarlier
    decide: Decide | None = None
    compute: Compute | None = None

    def trace(self, members: Sequence[StoredTuple]) -> Iterator[Check]:
        """Yield the tests that can be run on tuples of different streams, which need not be all streams.

        An as-of partner later than the others fails, and has no other test of its time. [!] Conjuncts call Python
        predicates and Spark.
        """
        late = self._members_after_others(members)
        yield from (self._check_as_of_time(members, member) for member in late)
        others = [member for member in members if member not in late]
        if len(others) > 1:
            yield from (self._check_window(others, member) for member in others)
        block, streams = build_partial(self.query, members), {member.stream for member in members}
        for conjunct in self.query.conjuncts:
            if conjunct.streams and conjunct.streams <= streams:
                yield self._check_conjunct(conjunct, block)

    def unanswerable_conjunct(self) -> str:
        """Return the text of a conjunct whose Python predicate is not available; empty if there is none."""
        return next((conjunct.text for conjunct in self.query.conjuncts if self._lacks_predicate(conjunct)), "")

    def _lacks_predicate(self, conjunct: Conjunct) -> bool:
        names = {predicate.name for predicate in self.query.predicates}
        return any(call.predicate not in names for call in conjunct.calls)

    def count_results(self, block: Partials) -> int:
        """Count the combinations that are results; of those that Spark must decide, the first `MOST_DECIDED` count.

        [!] Calls Spark, once for each of these, and Python predicates.
        """
        if not self.query.deferred_conjuncts or not len(block):
            return len(block)
        is_undecided = self.hops.pending(block)
        undecided = [block.take(np.array([at])) for at in np.flatnonzero(is_undecided)[:MOST_DECIDED].tolist()]
        return int(np.count_nonzero(~is_undecided)) + sum(map(self._passes, undecided))

    def select_passing(self, block: Partials) -> Partials:
        """Return the combinations that pass the conjuncts over their streams; calls Spark where only it can decide.

        Raises:
            PredicateError: If there is no Spark, or there are too many combinations for it.
        """
        if not self.query.deferred_conjuncts or not len(block):
            return block
        undecided = np.flatnonzero(self.hops.pending(block))
        if len(undecided) > (0 if self.decide is None else MOST_DECIDED):
            text = next(conjunct.text for conjunct in self.query.deferred_conjuncts if not conjunct.exact)
            raise PredicateError(f"`{text}` can't be answered here for all of them")
        failing = [at for at in undecided.tolist() if not self._passes(block.take(np.array([at])))]
        return block.take(np.setdiff1d(np.arange(len(block)), failing))

    def _passes(self, combination: Partials) -> bool:
        conjuncts = (
            conjunct for conjunct in self.query.deferred_conjuncts if conjunct.streams <= {*combination.joined}
        )
        return all(self._check_conjunct(conjunct, combination).holds == "TRUE" for conjunct in conjuncts)

    # -- windows

    def _members_after_others(self, members: Sequence[StoredTuple]) -> list[StoredTuple]:
        """Return the tuples of as-of streams that are later than all tuples of other streams."""
        as_of = self.query.as_of_streams
        times = [member.ts for member in members if member.stream not in as_of]
        return [member for member in members if member.stream in as_of and times and member.ts > max(times)]

    def _check_as_of_time(self, members: Sequence[StoredTuple], member: StoredTuple) -> Check:
        """Return the failed check of an as-of partner: by how much it is later than the latest member that isn't as-of.

        The caller has found the partner to be later, and such a member to be there: neither is tested.
        """
        name, as_of = self.query.streams[member.stream].name, self.query.as_of_streams
        last = max((other for other in members if other.stream not in as_of), key=lambda other: other.ts)
        than = self.query.streams[last.stream].name
        message = (
            f"{name} is {describe_duration(member.ts - last.ts)} later than {than}, and an as-of partner is no later"
        )
        return Check(f"time of {name}", "window", "FALSE", message, {"time": last.ts, name: member.ts})

    def _check_window(self, members: Sequence[StoredTuple], member: StoredTuple) -> Check:
        """Return the test of whether a tuple's window admits the latest of the members, and by how much it doesn't."""
        stream = self.query.streams[member.stream]
        window, name = stream.window, f"window of {stream.name}"
        if isinstance(window, Count):
            return self._check_count_window(members, member, window.size)
        last = max(members, key=lambda other: other.ts)
        times = {"time": last.ts, stream.name: member.ts}
        deadline = _deadline(self.query, member)
        if last.ts <= deadline:
            return Check(name, "window", "TRUE", f"{stream.name} is in its window", times)
        other = self.query.streams[last.stream].name
        age = f"{stream.name} is {describe_duration(last.ts - member.ts)} older than {other}"
        match window:
            case Sliding():
                over = last.ts - member.ts - window.bound
                much = f"{describe_duration(over)} too old" if over else "at exactly that age it is out"
                message = f"{age}, and its window is {describe_duration(window.bound)}: {much}"
            case Hopping(size, step, closed):
                over = last.ts - deadline - (closed == "left")  # such a window ends right after its last moment
                when = f"{describe_duration(over)} earlier" if over else "at exactly that time"
                windows = f"window of {describe_duration(size)} every {describe_duration(step)}"
                message = f"{age}, and the last {windows} that holds it ended {when}"
            case _:
                raise AssertionError(window)
        return Check(name, "window", "FALSE", message, times | {"by": over})

    def _check_count_window(self, members: Sequence[StoredTuple], member: StoredTuple, size: int) -> Check:
        """Return the test of whether a tuple was among the last `size` of its stream when the last member came.

        It is `unknown` where the order of arrival is.
        """
        assert member.ordinal is not None
        counts = [self.count_earlier(member.stream, other) for other in members if other is not member]
        low = max([member.ordinal, *(least for least, _ in counts)]) - member.ordinal
        high = max([member.ordinal, *(most for _, most in counts)]) - member.ordinal
        name = self.query.streams[member.stream].name
        holds: Truth = "FALSE" if low >= size else "TRUE" if high < size else "unknown"
        after = f"{low}" if low == high else f"{low} to {high}"
        by = f": {low - size + 1} too many" if holds == "FALSE" else ""
        message = (
            f"{after} more of {name} had come when the combination was complete, "
            f"and its window is its last {size} rows{by}"
        )
        return Check(f"window of {name}", "window", holds, message, {"newer": low if low == high else [low, high]})

    # -- conjuncts

    def _check_conjunct(self, conjunct: Conjunct, block: Partials) -> Check:
        """Return the test of one conjunct on a block of a single combination, with the values that it compared.

        [!] Calls Python predicates and Spark; without them the answer is "unknown". An error that would stop the query
        becomes the test's message.
        """
        error_message = ""
        try:
            holds, sides = self._evaluate(conjunct, block), self._compared_sides(conjunct, block)
        except PredicateError as error:
            error_message = f"{str(error).rstrip('.')}; it stops the query"
            holds, sides = "raises", side_values_of(self.hops.evaluators.comparisons, conjunct, block)
        columns = {
            c: block.column(c, self.hops.evaluators.reader.table.gather) for c in self._columns_beside(conjunct, sides)
        }
        telling = [side for side in sides if side.is_known(0) and is_informative(self.query, side.compared)]
        values = {side.compared.text: side.plain(0) for side in telling} | plain_values(self.query, columns)
        answer = "can't be answered here" if holds == "unknown" else f"is {holds}"
        comparison = self.formatter.describe_comparison(conjunct.comparing, sides, columns)
        message = error_message or f"`{abbreviate(conjunct.text, LONG)}` {answer}{comparison}"
        return Check(conjunct.text, "conjunct", holds, message, values)

    def _compared_sides(self, conjunct: Conjunct, block: Partials) -> list[SideValues]:
        """Return the values that a conjunct compares, computed by Spark where only it can; none if that raises.

        [!] Spark gets the answers of Python predicates, which are called for them.
        """
        compared = conjunct.comparing.values
        if (
            self.compute is None
            or self._lacks_predicate(conjunct)
            or all(value.sql or value.term for value in compared)
        ):
            return side_values_of(self.hops.evaluators.comparisons, conjunct, block)
        values = self.compute(conjunct, self._read_inputs(conjunct, block))
        return [SideValues(*side, np.zeros(len(block))) for side in zip(compared, values, strict=False)]

    def _read_inputs(self, conjunct: Conjunct, block: Partials) -> dict[str, pa.Array]:
        """Return the inputs for Spark to evaluate a conjunct: its columns, and its Python predicates' answers.

        [!] Calls these predicates unless their answers are cached.
        """
        columns = self.hops.evaluators.reader.read(block, conjunct.columns)
        return columns | {
            call.name: self.hops.evaluators.sql.predicates.booleans(block, call) for call in conjunct.calls
        }

    def _columns_beside(self, conjunct: Conjunct, sides: Sequence[SideValues]) -> list[Column]:
        """Return the columns to show beside what a conjunct compares, without Spark's intermediate values."""
        own = [column for column in conjunct.columns if self.query.is_named(column)]
        hidden = {*own, *self.query.flags, *(column for side in sides for column in side.compared.columns)}
        return own + [column for column in conjunct.columns if column not in hidden]

    def _evaluate(self, conjunct: Conjunct, block: Partials) -> Truth:
        """Return what a conjunct gives for one combination; `unknown` if its predicate, or Spark, is not at hand.

        [!] Calls both.

        Raises:
            PredicateError: If it raises.
        """
        if self._lacks_predicate(conjunct):
            return "unknown"
        answer = self.hops.evaluators.evaluate(conjunct, block)
        if answer != "undecided":
            return answer
        if self.decide is None:
            return "unknown"
        decision = self.decide(conjunct, self._read_inputs(conjunct, block))
        return "NULL" if decision is None else "TRUE" if decision else "FALSE"


def build_partial(query: Query, members: Sequence[StoredTuple]) -> Partials:
    """Return tuples as one partial result, which may probe whatever its windows admit."""
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


def extend_partials(hops: Hops, blocks: Iterator[Partials], hop: Step) -> Iterator[Partials]:
    """Yield the partial results of one more hop; this calls Python predicates."""
    for block in blocks:
        yield from hops.hop(block, hop)


def _deadline(query: Query, member: StoredTuple) -> int:
    """Return the latest result time that the window of a tuple admits."""
    return int(query.streams[member.stream].window.deadline(np.array([member.ts]))[0])
