"""Partners in state: the engine's own hops find them, and the settled time says which combinations are closed."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.batch.outer_joins import NO_ROW, Newest, alone, closing_times, is_closed, partner_step
from watersmeet.errors import PredicateError
from watersmeet.observe.why.answer import BatchRange, describe_batches, latest_batches
from watersmeet.observe.why.condition_trace import ConditionTracer, StoredTuple, build_partial, extend_partials
from watersmeet.observe.why.evidence import CombinationClosing, OptionalStreams, Partners, Survey
from watersmeet.observe.why.join_state import JoinState
from watersmeet.observe.why.optional_outcome import Outcome, count_results, decide_outcome
from watersmeet.observe.why.question import TupleSelector
from watersmeet.probe.hop_steps import step
from watersmeet.probe.partials import Partials, concat
from watersmeet.probe.search import AT
from watersmeet.spilling.units import ALL, NEWEST

MOST_COMBINATIONS = 10_000
"""About how many combinations are examined at most."""
NO_ROWS: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class StoredOptionalStreams(OptionalStreams):
    """Finds partners in the state of a query.

    Attributes:
        state: The state.
        tracer: What tests combinations.
        history: The progress of the last batches.
    """

    state: JoinState
    tracer: ConditionTracer
    history: Sequence[Mapping[str, Any]] = ()

    def find_partners(self, rows: Sequence[StoredTuple], optional: int) -> Partners:
        """See OptionalStreams; probes state, calling Python predicates and Spark. An error becomes the `obstacle`."""
        obstacle = self._obstacle()
        if obstacle:
            return Partners(0, False, obstacle=obstacle)
        block = build_partial(self.tracer.query, rows)
        is_complete = bool(self.state.complete_at(optional, block.high)[0])
        try:
            pairs = list(self._find_pairs(block, optional))
        except PredicateError as error:
            return Partners(0, False, obstacle=str(error).rstrip("."))
        if not pairs:
            return Partners(0, is_complete)
        if optional in self.tracer.query.as_of_streams:
            newest = self.state.tuple_at(int(self._find_newest(pairs, 1, optional).row[0]))
            return Partners(1, is_complete, self._describe_partner(newest), newest.ts, newest.batches, is_newest=True)
        refs = np.concatenate([block.rows[optional] for block in pairs])
        times = np.concatenate([block.times[optional] for block in pairs])
        first = self.state.tuple_at(int(refs[np.argmin(times)]))
        return Partners(len(refs), is_complete, self._describe_partner(first), first.ts, self.state.first_arrival(refs))

    def is_newest(self, rows: Sequence[StoredTuple], partner: StoredTuple) -> bool:
        """See OptionalStreams; calls Python predicates and Spark, whose errors it raises as PredicateError."""
        block, stream = build_partial(self.tracer.query, rows), partner.stream
        newest = self._find_newest(list(self._find_pairs(block, stream)), 1, stream)
        content = self.tracer.hops.contents(np.array([partner.ref]))
        return bool(newest.ts[0] == partner.ts and newest.content[0] == content[0])

    def closing(self, rows: Sequence[StoredTuple]) -> CombinationClosing:
        """See OptionalStreams; the watermark closes a combination, and progress tells in which batch."""
        query, manifest = self.tracer.query, self.state.manifest
        deadline = int(closing_times(query, build_partial(query, rows))[0])
        has_closed = is_closed(deadline, manifest.settled)
        batches = self._closing_batches(deadline, latest_batches([row.batches for row in rows])) if has_closed else None
        return CombinationClosing(has_closed, deadline, manifest.watermark, batches)

    def survey(self, rows: Sequence[StoredTuple]) -> Survey:
        """See OptionalStreams; probes state, calling Python predicates and Spark. An error becomes the `obstacle`."""
        obstacle = self._obstacle()
        if obstacle:
            return Survey(is_complete=False, obstacle=obstacle)
        try:
            return self._survey_combinations(rows)
        except PredicateError as error:
            return Survey(is_complete=False, obstacle=str(error).rstrip("."))

    def would_find(self, selector: TupleSelector) -> bool:
        """See OptionalStreams."""
        return self.state.can_find(selector)

    # -- one combination

    def _obstacle(self) -> str:
        conjunct = self.tracer.unanswerable_conjunct()
        return f"`{conjunct}` can't be answered here" if conjunct else ""

    def _find_pairs(self, block: Partials, optional: int) -> Iterator[Partials]:
        """Yield blocks of pairs of a combination and a partner, whose tag `AT` is the combination's position.

        [!] Sets the tag of `block`, too; calls Python predicates and Spark.

        Raises:
            PredicateError: If one raises, or too many pairs are left to Spark.
        """
        block.tags[AT] = np.arange(len(block))
        role = NEWEST if optional in self.tracer.query.as_of_streams else ALL
        pairs = self.tracer.hops.hop(block, partner_step(self.tracer.query, optional, role))
        return filter(len, map(self.tracer.select_passing, pairs))

    def _find_newest(self, pairs: Sequence[Partials], combinations: int, stream: int) -> Newest:
        """Return the newest partner of each combination among some pairs of `_find_pairs`; row `NO_ROW` without one."""
        newest = Newest(combinations)
        for block in pairs:
            rows = block.rows[stream]
            newest.offer(block.tags[AT], block.times[stream], self.tracer.hops.contents(rows), rows)
        return newest

    def _describe_partner(self, partner: StoredTuple) -> str:
        """Return a partner in words."""
        spec, formatter = self.state.query.streams[partner.stream], self.tracer.formatter
        time = spec.schema.names[spec.time]
        columns = {name: values for name, values in self.state.values(partner).items() if name != time}
        text = formatter.format_row(columns)
        if spec.table:
            return f"with {text}" if text else ""
        summary, when = f" ({text})" if text else "", formatter.format_time(partner.ts, partner.stream)
        return f"of {when}{summary}, which came {describe_batches(partner.batches)}"

    def _closing_batches(self, deadline: int, arrival: BatchRange) -> BatchRange:
        """Return in which batch a combination was closed, as far as the history tells.

        Args:
            deadline: The time that the watermark had to pass, in microseconds.
            arrival: The batch in which its last member came.
        """
        first, last = arrival[0], self.state.manifest.batch
        for progress in self.history:
            if is_closed(deadline, progress.get("settled")):
                last = min(last, int(progress["batchId"]))
                break
            first = max(first, int(progress["batchId"]) + 1)
        return min(first, last), last

    # -- many combinations

    def _survey_combinations(self, rows: Sequence[StoredTuple]) -> Survey:
        """Return what becomes of all combinations that contain the tuples: results, open ones and unknown ones.

        Raises:
            PredicateError: If a predicate raises, or too many combinations are left to Spark.
        """
        query, settled = self.tracer.query, self.state.manifest.settled
        in_question = {row.stream: row.ref for row in rows if row.stream in query.optional}
        combinations, is_complete = self._combinations(rows)
        if combinations is None:
            return Survey(is_complete=is_complete)
        count, selected = self._count_partners(combinations, in_question)
        ends = closing_times(query, combinations)
        complete = {at: self.state.complete_at(at, combinations.high) for at in query.optional}
        outcomes, results = Counter[Outcome](), 0
        for number in np.flatnonzero(selected).tolist():
            own_count = {at: int(counts[number]) for at, counts in count.items()}
            own_complete = {at: bool(flags[number]) for at, flags in complete.items()}
            outcome = decide_outcome(query, own_count, own_complete, is_closed(int(ends[number]), settled))
            outcomes[outcome] += 1
            results += count_results(query, own_count, [*in_question]) if outcome == "results" else 0
        return Survey(outcomes.total(), results, outcomes["open"], outcomes["unknown"], is_complete)

    def _count_partners(self, combinations: Partials, in_question: Mapping[int, int]) -> tuple[dict[int, Ints], Mask]:
        """Return how many partners combinations have, by stream, and which of them have those in question."""
        count, selected = dict[int, Ints](), np.ones(len(combinations), bool)
        for at in self.tracer.query.optional:
            pairs = list(self._find_pairs(combinations, at))
            if at in self.tracer.query.as_of_streams:
                newest = self._find_newest(pairs, len(combinations), at)
                count[at] = (newest.row != NO_ROW).astype(np.int64)
                if at in in_question:
                    row = self.state.tuple_at(in_question[at])
                    content = self.tracer.hops.contents(np.array([row.ref]))
                    selected &= (newest.ts == row.ts) & (newest.content == content)
                continue
            places = np.concatenate([NO_ROWS, *(block.tags[AT] for block in pairs)])
            count[at] = np.bincount(places, minlength=len(combinations))
            if at in in_question:
                refs = np.concatenate([NO_ROWS, *(block.rows[at] for block in pairs)])
                selected &= np.isin(np.arange(len(combinations)), places[refs == in_question[at]])
        return count, selected

    def _combinations(self, rows: Sequence[StoredTuple]) -> tuple[Partials | None, bool]:
        """Return the combinations of the required streams that contain some tuples, and whether there are no more.

        If none of the tuples is of a required stream, it is those combinations that the first tuple is a partner of.
        None if there are none; beyond about `MOST_COMBINATIONS` no more are looked for. Calls Python predicates.
        """
        query = self.tracer.query
        start = [row for row in rows if row.stream in query.members] or rows[:1]
        streams, of = tuple(row.stream for row in start), {*query.members, *(row.stream for row in start)}
        blocks = iter([build_partial(query, start)])
        missing = [at for at in query.members if at not in streams]
        for target in missing:
            blocks = extend_partials(self.tracer.hops, blocks, step(query, streams, target, ALL, of=of))
            streams = (*streams, target)
        combinations, count = list[Partials](), 0
        for block in filter(len, map(self.tracer.select_passing, blocks)):
            combinations.append(block)
            count += len(block)
            if count > MOST_COMBINATIONS:
                return alone(query, concat(combinations)), False
        last = np.array([max(row.ts for row in rows)])
        is_complete = all(bool(self.state.complete_at(at, last)[0]) for at in missing)
        return (alone(query, concat(combinations)) if combinations else None), is_complete
