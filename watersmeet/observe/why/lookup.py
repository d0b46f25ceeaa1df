"""Looks tuples up in what a query has kept: its state, the rows that it turned away, its progress and its results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.batch.side_outputs import text_of
from watersmeet.formatting import value_at
from watersmeet.metadata.closing import Closings
from watersmeet.metadata.superseded import superseding
from watersmeet.observe.why.answer import Batches, Fate, Tuple
from watersmeet.observe.why.asked import Asked, listed
from watersmeet.observe.why.judged import Seen
from watersmeet.observe.why.kept import Kept
from watersmeet.observe.why.outputs import Outputs, Results
from watersmeet.observe.why.verdict import MOST, NOT_TAKEN, Member
from watersmeet.observe.why.voice import Voice, in_batch
from watersmeet.query.query import StreamSpec
from watersmeet.query.windows import Hopping
from watersmeet.state.chunks.rows import TIME


@dataclass(frozen=True, slots=True)
class Lookup:
    """Finds tuples, or says what may have become of them.

    Attributes:
        kept: The state of the join.
        voice: Finds the words.
        outputs: What it has put out.
        history: The progress of its batches, the last ones.
    """

    kept: Kept
    voice: Voice
    outputs: Outputs = field(default_factory=Outputs)
    history: Sequence[Mapping[str, Any]] = ()

    def tuples(self, asked: Asked) -> list[Member]:
        """Return what became of the tuples that have the values: one more than are told of, if there are."""
        stored: list[Member] = [
            (self._stored(asked, seen, dead), seen) for seen, dead in islice(self.kept.found(asked), MOST + 1)
        ]
        away = [
            (self._away(asked, *told), None)
            for told in islice(self.outputs.turned_away(self.kept.query, asked), MOST + 1)
        ]
        told: list[Member] = [*stored, *away] or self._elsewhere(asked)
        if told and self.kept.finds(asked):
            return told
        return [(self._unfound(asked, bool(told)), None), *told]

    def _stored(self, asked: Asked, seen: Seen, dead: bool) -> Tuple:
        spec = self.kept.query.streams[asked.stream]
        came = f"came {in_batch(seen.batches)}, at {self.voice.time(seen.ts, asked.stream)}, and"
        came = "is a row of the table, and" if spec.table else came
        says = f"{came} {'was purged: nothing that may still come can match it' if dead else 'is stored'}."
        return told(self.voice, asked, "purged" if dead else "stored", says, seen.batches, self.kept.values(seen))

    def _away(self, asked: Asked, kind: str, batch: int, row: pa.Table) -> Tuple:
        spec = self.kept.query.streams[asked.stream]
        time = row.column(spec.time).cast(pa.int64())[0].as_py()
        at = "" if time is None else f", at {self.voice.time(time, asked.stream)},"
        values = {name: row.column(name).combine_chunks() for name in row.schema.names}
        fate: Fate = kind if kind in NOT_TAKEN else "unknown"  # type: ignore[assignment]
        says = f"came in batch {batch}{at} and was {NOT_TAKEN.get(kind, kind)}."
        return told(self.voice, asked, fate, says, (batch, batch), values)

    def _elsewhere(self, asked: Asked) -> list[Member]:
        """Return what samples say of a tuple or, if they don't know it, results."""
        found = self._sample(asked) or self._joined(asked)
        return [] if found is None else [(found, None)]

    def _joined(self, asked: Asked) -> Tuple | None:
        """Return what results say of a tuple."""
        results = self.outputs.results([asked], self.kept.query.optional)
        if results is None or not results.count:
            return None
        says = f"is in {_results(results)}, and no longer stored."
        return Tuple(self.kept.query.streams[asked.stream].name, asked.text, "joined", says, (0, results.last))

    def _unfound(self, asked: Asked, others: bool) -> Tuple:
        """Return what can be said of a tuple that was not found, or could not be looked for in state.

        Args:
            asked: What was asked for.
            others: Whether others have been found elsewhere.
        """
        spec, kept = self.kept.query.streams[asked.stream], self.kept.columns(asked.stream)
        reasons = [] if others else list(self._reasons(asked))
        if not self.kept.finds(asked):
            lacking, known = (listed([spec.schema.names[field] for field in some]) for some in (asked.values, kept))
            head = f"can't be looked for in state by {lacking}: state keeps {known or 'none of its columns'}."
        elif reasons:
            head = "is not in state."
        else:
            says = (
                "is not a row of the table" if spec.table else f"has not arrived, up to batch {self.kept.state.batch}"
            )
            return Tuple(spec.name, asked.text, "never arrived", f"{says}.")
        return Tuple(spec.name, asked.text, "unknown", " ".join([head, *reasons]))

    def _sample(self, asked: Asked) -> Tuple | None:
        """Return what the samples in progress say of a tuple."""
        spec = self.kept.query.streams[asked.stream]
        wanted = {spec.schema.names[at]: _sampled(spec, at, value) for at, value in asked.values.items()}
        for progress in reversed(self.history):
            for sample in progress.get("samples", ()):
                if (
                    sample["stream"] == spec.name
                    and wanted.items() <= sample["row"].items()
                    and sample["kind"] in NOT_TAKEN
                ):
                    says = (
                        f"came in batch {progress['batchId']} and was {NOT_TAKEN[sample['kind']]}: {sample['reason']}."
                    )
                    batch = int(progress["batchId"])
                    return Tuple(spec.name, asked.text, sample["kind"], says, (batch, batch), sample["row"])
        return None

    def _reasons(self, asked: Asked) -> Iterator[str]:
        """Yield why it can't be told whether a tuple came that can't be found."""
        spec = self.kept.query.streams[asked.stream]
        if not self.kept.is_whole(asked.stream):
            yield from self._gone(asked)
        uncounted = [
            kind
            for kind in ("late", "rejected", "denied")
            if kind not in self.outputs.sides and self._some(kind) and not spec.table
        ]
        if uncounted:
            paths = listed([f"{kind}Path" for kind in uncounted])
            yield f"It may have been {' or '.join(uncounted)}: rows that are can't be looked up without {paths}."

    def _gone(self, asked: Asked) -> Iterator[str]:
        """Yield what may have become of a tuple that came and is no longer stored."""
        query, state = self.kept.query, self.kept.state
        spec = query.streams[asked.stream]
        if state.final:
            yield "The query was closed for good, and no state is left of it."
            return
        mark = state.settled if query.optional else state.watermark
        if spec.refreshed:
            yield "The table is read for each batch, and none of it is kept."
            return
        if mark is not None and spec.window.span is not None:
            own = int(spec.window.earliest(np.array([mark]))[0])
            limit = (self.kept.first[asked.stream] if query.optional else own) - 1
            yield f"Tuples up to {self.voice.time(limit, asked.stream)} have been purged."
        elif spec.window.rows is not None:
            yield f"All but about the last {spec.window.rows} rows have been purged."
        if asked.stream in superseding(query):
            yield "Tuples that a newer one stands in for have been purged."
        if not query.optional and Closings(query).possible(asked.stream):
            yield "What can match nothing any more has been purged."
        tests = [spec.hidden[test.holds - len(spec.schema)].text for test in spec.tests]
        tests += [f"{query.name_of(column)} IS NOT NULL" for column in query.required_columns[asked.stream]]
        if tests:
            texts = listed([f"`{text}`" for text in tests])
            yield f"Only tuples are stored for which {texts} {'holds' if len(tests) == 1 else 'hold'}."
        if isinstance(spec.window, Hopping) and spec.window.step > spec.window.size:
            yield "Tuples in a gap between windows are not stored."

    def _some(self, kind: str) -> bool:
        """Tell whether rows were turned away for a reason, or may have been before what is known."""
        known = bool(self.history) and self.history[0].get("batchId") == 0
        return not known or any(progress.get(f"{kind}Rows") for progress in self.history)


def _sampled(spec: StreamSpec, field: int, value: pa.Scalar) -> str:
    """Return a value of a column as samples show it."""
    if field == spec.time:
        return text_of(spec, TIME, value.cast(pa.int64()).as_py())
    return text_of(spec, "", value.as_py())


def _results(found: Results) -> str:
    return f"{found.count} result{'s' if found.count > 1 else ''}"


def told(
    voice: Voice, asked: Asked, fate: Fate, says: str, batches: Batches | None, values: Mapping[str, pa.Array]
) -> Tuple:
    """Return what became of a tuple whose values are known."""
    stream = voice.query.streams[asked.stream].name
    plainly = {name: value_at(found, 0) for name, found in values.items()}
    return Tuple(stream, asked.text, fate, says, batches, plainly, voice.row(values))
