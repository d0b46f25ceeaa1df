"""Evidence from the state of a query: its chunks, the rows that it refused, its progress and its results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.batch.side_outputs import text_of
from watersmeet.caching import cached_property
from watersmeet.errors import PredicateError
from watersmeet.formatting import value_at
from watersmeet.metadata.closing import ClosingRules
from watersmeet.metadata.expiry import superseding_columns
from watersmeet.observe.why.answer import BatchRange, Fate, TupleStatus, ValueFormatter, count_noun, describe_batches
from watersmeet.observe.why.condition_trace import (
    Compute,
    ConditionTracer,
    Decide,
    StoredTuple,
    build_partial,
    extend_partials,
)
from watersmeet.observe.why.evidence import MOST_RESULTS, MOST_TUPLES, Completions, Evidence, SelectedTuple
from watersmeet.observe.why.join_state import EveryChunk, JoinState
from watersmeet.observe.why.output_files import OutputFiles, ResultCount
from watersmeet.observe.why.question import TupleSelector, format_list
from watersmeet.observe.why.state_partners import StoredOptionalStreams
from watersmeet.probe.answer_cache import AnswerCache
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.hop import Hops
from watersmeet.probe.hop_steps import step
from watersmeet.query.query import StreamSpec
from watersmeet.query.windows import Hopping
from watersmeet.state.chunks.chunk import TIME

REFUSALS = {
    "late": "late, so it was never joined",
    "rejected": "rejected, so it was never joined",
    "denied": "denied, so it was never joined",
}
"""Why rows were not accepted, in words."""


@dataclass(frozen=True)
class StateEvidence(Evidence):
    """The state and the outputs of a query, which may be running.

    Attributes:
        state: Its state.
        duck: A connection of its own.
        clock: Returns seconds.
        outputs: Its output files.
        history: The progress of its last batches.
        decide: Decides conjuncts in Spark; None without Spark.
        compute: Computes values in Spark; None without Spark.
    """

    state: JoinState
    duck: Duck
    clock: Callable[[], float]
    outputs: OutputFiles = field(default_factory=OutputFiles)
    history: Sequence[Mapping[str, Any]] = ()
    decide: Decide | None = None
    compute: Compute | None = None

    @cached_property
    def tracer(self) -> ConditionTracer:
        """See Evidence."""
        query = self.state.evaluated_query
        hops = Hops(query, self.state.table, self.duck, AnswerCache(), self.clock, EveryChunk(), "why")
        return ConditionTracer(query, hops, self._formatter, self.state.count_earlier, self.decide, self.compute)

    @property
    def _formatter(self) -> ValueFormatter:
        return ValueFormatter(self.state.query, self.duck)

    @property
    def optional(self) -> StoredOptionalStreams:
        """See Evidence."""
        return StoredOptionalStreams(self.state, self.tracer, self.history)

    def find_tuples(self, selector: TupleSelector) -> list[SelectedTuple]:
        """See Evidence."""
        return TupleLookup(self.state, self._formatter, self.outputs, self.history).find_tuples(selector)

    def count_results(self, selectors: Sequence[TupleSelector]) -> ResultCount | None:
        """See Evidence."""
        return self.outputs.count_results(selectors, self.state.query.optional)

    def complete(self, rows: Sequence[StoredTuple], missing: Sequence[int]) -> Completions:
        """See Evidence; probes the stored tuples, and stops once there are more than `MOST_RESULTS`."""
        query = self.tracer.query
        if query.counted_streams:
            return Completions(0, False, "with count windows, name a tuple of each stream")
        if conjunct := self.tracer.unanswerable_conjunct():
            return Completions(0, False, f"`{conjunct}` can't be answered here")
        for at in missing:
            if query.streams[at].refreshed and not self.state.is_complete(at):
                return Completions(0, False, f"{query.streams[at].name} is read for each batch, and none of it is kept")
        blocks, streams = iter([build_partial(query, rows)]), tuple(row.stream for row in rows)
        for target in missing:
            blocks = extend_partials(self.tracer.hops, blocks, step(query, streams, target))
            streams = (*streams, target)
        is_complete, count = all(map(self.state.is_complete, missing)), 0
        try:
            for block in blocks:
                count += self.tracer.count_results(block)
                if count > MOST_RESULTS:
                    break
        except PredicateError as error:
            return Completions(count, False, str(error).rstrip("."))
        return Completions(count, is_complete)

    @property
    def owes_results(self) -> bool:
        """See Evidence."""
        return self.state.owes_results

    def result_batches(self, complete: BatchRange, selectors: Sequence[TupleSelector]) -> BatchRange:
        """See Evidence; once units were spilled, any later batch may have paid the result, and files show which."""
        manifest = self.state.manifest
        if not manifest.ledger.unit_count:
            return complete
        results = self.count_results(selectors)
        if results is None or not results.count:
            return complete[0], manifest.batch
        first = max(complete[0], results.first)
        return first, max(first, results.last)

    def notes(self, selector: TupleSelector, tuples: Sequence[SelectedTuple]) -> Iterator[str]:
        """See Evidence; says, too, which of the named columns state does not keep."""
        spec = self.state.query.streams[selector.stream]
        columns = self.state.columns(selector.stream)
        missing = [f"{spec.name}.{spec.schema.names[field]}" for field in selector.values if field not in columns]
        if missing and any(row is not None for _, row in tuples):
            note = "stored tuples were found by the rest, and may have another value"
            yield f"State does not keep {format_list(missing)}: {note}."
        yield from super().notes(selector, tuples)


@dataclass(frozen=True, slots=True)
class TupleLookup:
    """Finds tuples in state, side outputs, samples and results, or says what may have become of them.

    Attributes:
        state: The state of the join.
        formatter: Puts values into words.
        outputs: Its output files.
        history: The progress of its last batches.
    """

    state: JoinState
    formatter: ValueFormatter
    outputs: OutputFiles = field(default_factory=OutputFiles)
    history: Sequence[Mapping[str, Any]] = ()

    def find_tuples(self, selector: TupleSelector) -> list[SelectedTuple]:
        """Return what became of the selected tuples, in state and in side outputs, or else in samples or in results.

        There is at least one status: if none was found, or state can't be searched, the first one says so. Reads files.
        """
        rows = islice(self.state.find(selector), MOST_TUPLES + 1)
        refused_rows = islice(self.outputs.find_refused(self.state.query, selector), MOST_TUPLES + 1)
        tuples: list[SelectedTuple] = [(self._describe_stored(selector, row, dead), row) for row, dead in rows]
        tuples += [(self._describe_refused(selector, *row), None) for row in refused_rows]
        if not tuples and (status := self._find_in_samples(selector) or self._find_in_results(selector)):
            tuples = [(status, None)]
        if tuples and self.state.can_find(selector):
            return tuples
        return [(self._describe_missing(selector, bool(tuples)), None), *tuples]

    def _describe_stored(self, selector: TupleSelector, row: StoredTuple, dead: bool) -> TupleStatus:
        """Return the status of a tuple whose row is still in a chunk: stored, or purged if it is dead there."""
        spec = self.state.query.streams[selector.stream]
        arrival = f"came {describe_batches(row.batches)}, at {self.formatter.format_time(row.ts, selector.stream)}, and"
        arrival = "is a row of the table, and" if spec.table else arrival
        message = f"{arrival} {'was purged: nothing that may still come can match it' if dead else 'is stored'}."
        return describe_tuple(
            self.formatter, selector, "purged" if dead else "stored", message, row.batches, self.state.values(row)
        )

    def _describe_refused(self, selector: TupleSelector, kind: str, batch: int, row: pa.Table) -> TupleStatus:
        """Return the status of a tuple that was refused, as a side output has it."""
        spec = self.state.query.streams[selector.stream]
        time = row.column(spec.time).cast(pa.int64())[0].as_py()
        at = "" if time is None else f", at {self.formatter.format_time(time, selector.stream)},"
        values = {name: row.column(name).combine_chunks() for name in row.schema.names}
        fate: Fate = kind if kind in REFUSALS else "unknown"  # type: ignore[assignment]
        message = f"came in batch {batch}{at} and was {REFUSALS.get(kind, kind)}."
        return describe_tuple(self.formatter, selector, fate, message, (batch, batch), values)

    def _find_in_results(self, selector: TupleSelector) -> TupleStatus | None:
        """Return what results say of a tuple; None if they don't contain it. Reads their files."""
        results = self.outputs.count_results([selector], self.state.query.optional)
        if results is None or not results.count:
            return None
        message = f"is in {count_noun(results.count, 'result')}, and no longer stored."
        return TupleStatus(
            self.state.query.streams[selector.stream].name, selector.text, "joined", message, (0, results.last)
        )

    def _describe_missing(self, selector: TupleSelector, has_others: bool) -> TupleStatus:
        """Return what can be said of a tuple that was not found, or could not be looked for in state.

        Args:
            selector: What selects it.
            has_others: Whether others have been found elsewhere.
        """
        spec, fields = self.state.query.streams[selector.stream], self.state.columns(selector.stream)
        reasons = [] if has_others else list(self._explain_missing(selector))
        if not self.state.can_find(selector):
            missing, available = (
                format_list([spec.schema.names[at] for at in part]) for part in (selector.values, fields)
            )
            head = f"can't be looked for in state by {missing}: state keeps {available or 'none of its columns'}."
        elif reasons:
            head = "is not in state."
        else:
            so_far = f"has not arrived, up to batch {self.state.manifest.batch}."
            message = "is not a row of the table." if spec.table else so_far
            return TupleStatus(spec.name, selector.text, "never arrived", message)
        return TupleStatus(spec.name, selector.text, "unknown", " ".join([head, *reasons]))

    def _find_in_samples(self, selector: TupleSelector) -> TupleStatus | None:
        """Return what the samples in progress say of a tuple; None if they don't contain it."""
        spec = self.state.query.streams[selector.stream]
        values = {spec.schema.names[at]: _format_as_sample(spec, at, value) for at, value in selector.values.items()}
        for progress in reversed(self.history):
            for sample in progress.get("samples", ()):
                matches = sample["stream"] == spec.name and values.items() <= sample["row"].items()
                if matches and sample["kind"] in REFUSALS:
                    batch = int(progress["batchId"])
                    message = f"came in batch {batch} and was {REFUSALS[sample['kind']]}: {sample['reason']}."
                    return TupleStatus(spec.name, selector.text, sample["kind"], message, (batch, batch), sample["row"])
        return None

    def _explain_missing(self, selector: TupleSelector) -> Iterator[str]:
        """Yield why a tuple that can't be found may have come all the same."""
        spec = self.state.query.streams[selector.stream]
        if not self.state.is_complete(selector.stream):
            yield from self._explain_gone(selector)
        kinds = [
            kind
            for kind in ("late", "rejected", "denied")
            if kind not in self.outputs.sides and self._may_have_refused(kind) and not spec.table
        ]
        if kinds:
            paths = format_list([f"{kind}Path" for kind in kinds])
            yield f"It may have been {' or '.join(kinds)}: such rows can't be looked up without {paths}."

    def _explain_gone(self, selector: TupleSelector) -> Iterator[str]:
        """Yield what may have become of a tuple that came and is no longer stored."""
        query, manifest = self.state.query, self.state.manifest
        spec = query.streams[selector.stream]
        if manifest.final:
            yield "The query was closed for good, and no state is left of it."
            return
        mark = manifest.settled if query.optional else manifest.watermark
        if spec.refreshed:
            yield "The table is read for each batch, and none of it is kept."
            return
        if mark is not None and spec.window.span is not None:
            own = int(spec.window.earliest(np.array([mark]))[0])
            limit = (self.state.retained_from[selector.stream] if query.optional else own) - 1
            yield f"Tuples up to {self.formatter.format_time(limit, selector.stream)} have been purged."
        elif spec.window.rows is not None:
            yield f"All but about the last {spec.window.rows} rows have been purged."
        if selector.stream in superseding_columns(query):
            yield "Tuples that a newer one supersedes have been purged."
        if not query.optional and ClosingRules(query).can_have_dead_rows(selector.stream):
            yield "Tuples that can no longer match anything have been purged."
        tests = [spec.hidden[test.holds - len(spec.schema)].text for test in spec.tests]
        tests += [f"{query.name_of(column)} IS NOT NULL" for column in query.required_columns[selector.stream]]
        if tests:
            texts = format_list([f"`{text}`" for text in tests])
            yield f"Only tuples are stored for which {texts} {'holds' if len(tests) == 1 else 'hold'}."
        if isinstance(spec.window, Hopping) and spec.window.step > spec.window.size:
            yield "Tuples in a gap between windows are not stored."

    def _may_have_refused(self, kind: str) -> bool:
        """Tell whether recorded batches refused rows for a reason, or earlier ones may have."""
        since_start = bool(self.history) and self.history[0].get("batchId") == 0
        return not since_start or any(progress.get(f"{kind}Rows") for progress in self.history)


def _format_as_sample(spec: StreamSpec, field: int, value: pa.Scalar) -> str:
    """Return a value of a column as samples show it."""
    if field == spec.time:
        return text_of(spec, TIME, value.cast(pa.int64()).as_py())
    return text_of(spec, "", value.as_py())


def describe_tuple(
    formatter: ValueFormatter,
    selector: TupleSelector,
    fate: Fate,
    message: str,
    batches: BatchRange | None,
    values: Mapping[str, pa.Array],
) -> TupleStatus:
    """Return what became of a tuple whose values are known: by column, an array of the one value."""
    stream = formatter.query.streams[selector.stream].name
    plain_values = {name: value_at(column, 0) for name, column in values.items()}
    return TupleStatus(stream, selector.text, fate, message, batches, plain_values, formatter.format_row(values))
