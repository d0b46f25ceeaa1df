"""`join.why` on static frames: the tuples are looked up in the frames themselves, so that everything can be told."""

import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from watersmeet.batch.intake import Intake
from watersmeet.batch.node import any_flagged
from watersmeet.batch.operator import Operator
from watersmeet.batch.plan import BatchPlan
from watersmeet.errors import DefinitionError, PredicateError
from watersmeet.exchange.tasks import CONTENT, rows_of
from watersmeet.metadata.orphans import Judged
from watersmeet.observe.why.answer import Answer, TupleStatus
from watersmeet.observe.why.condition_trace import ConditionTracer, StoredTuple
from watersmeet.observe.why.evidence import MOST_TUPLES, Completions, Evidence, SelectedTuple
from watersmeet.observe.why.join_state import EveryChunk
from watersmeet.observe.why.question import TupleSelector, Values, find_join, parse_question
from watersmeet.observe.why.state_evidence import describe_tuple
from watersmeet.observe.why.value_text import ValueFormatter
from watersmeet.predicate.model import Column
from watersmeet.probe.answer_cache import AnswerCache
from watersmeet.probe.chunk_table import ChunkTable, Target
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.hop import Hops
from watersmeet.probe.partials import references
from watersmeet.spark.api.asking import computer, decider
from watersmeet.spark.api.asking_optional import PRINT, Beside, printed
from watersmeet.spark.run.frames import quoted, tagged
from watersmeet.spark.sql.catalyst import said
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store.store import Store

if TYPE_CHECKING:
    from watersmeet.spark.api.join import Join

STATIC = (-1, -1)
"""The batch of what was there before any."""


def why_static(join: "Join", given: Mapping[str, Values]) -> Answer:
    """Return what becomes of tuples of static inputs.

    Raises:
        DefinitionError: If an input is streaming, or there is no such stream, column or value.
    """
    if any(frame.isStreaming for _, frame in join.leaves):
        raise DefinitionError("join.why() looks at static inputs; ask the query that runs: query.why(...).")
    join.check_settings()
    find_join({"j": join.query}, given)
    duck = Duck(join.query.dialect)
    question = parse_question(join.query, given, duck)
    with _folder() as folder:
        side = join.query.as_left_join({one.stream for one in question})
        return answered(Frames(replace(join, query=side), folder, duck, question), question)


@contextmanager
def _folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="watersmeet-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Frames(Evidence):
    """The static inputs of a join; the rows that are asked about are stored as a batch would store them.

    Attributes:
        join: The join.
        folder: Where they are stored.
        duck: A connection of its own.
        question: What is asked.
    """

    join: "Join"
    folder: str
    duck: Duck
    question: Sequence[TupleSelector]
    _chunks: list[Chunk] = field(default_factory=list)
    _prints: dict[int, int] = field(default_factory=dict)

    @cached_property
    def _plan(self) -> BatchPlan:
        join = self.join
        operator = Operator(join.query, join.strategy, Store(self.folder), uuid.uuid4().hex[:12], join.ordering)
        return operator.plan(operator.start())

    @cached_property
    def _formatter(self) -> ValueFormatter:
        return ValueFormatter(self.join.query, self.duck)

    @cached_property
    def judged(self) -> Judged:
        """See Ground; to be asked for once all tuples have been looked up."""
        query = self.join.query.careful_query() if any_flagged(self.join.query, self._chunks) else self.join.query
        targets = [Target(at, chunk) for at, chunk in enumerate(self._chunks)]
        table = ChunkTable(self._plan.store, query, targets)
        hops = Hops(query, table, self.duck, AnswerCache(), time.perf_counter, EveryChunk(), "why")
        return ConditionTracer(
            query, hops, self._formatter, partial(_as_of, self.join), decider(self.join), computer(self.join)
        )

    @property
    def optional(self) -> Beside:
        """See Evidence."""
        return Beside(self.join, self._formatter, self._prints)

    # -- tuples

    def find_tuples(self, selector: TupleSelector) -> list[SelectedTuple]:
        """See Evidence."""
        spec = self.join.query.streams[selector.stream]
        found = _tagged(self.join, selector.stream).where(_has(selector)).limit(MOST_TUPLES + 1)
        own = [F.col(Column(selector.stream, at).name) for at in range(len(spec.schema))]
        rows = found.withColumn(PRINT, printed(self.join, selector.stream, own)).toArrow().combine_chunks()
        members = [
            self._tuple(selector, block) for at in range(rows.num_rows) for block in rows.slice(at, 1).to_batches()
        ]
        return members or [
            (TupleStatus(spec.name, selector.text, "never arrived", "is not among the rows of the input."), None)
        ]

    def _tuple(self, selector: TupleSelector, block: pa.RecordBatch) -> SelectedTuple:
        query, at = self.join.query, selector.stream
        spec = query.streams[at]
        own = [field for field in range(len(spec.schema)) if not (spec.table and field == spec.time)]
        values = {spec.schema.names[field]: block.column(f"s{at}_{field}") for field in own}
        tell = partial(describe_tuple, self._formatter, selector, batches=None, values=values)
        intake = Intake(self._plan, f"t{len(self._chunks)}-{at}", len(self._chunks))
        for stream, rows in rows_of(block, self._plan):
            intake.add(stream, rows)
        report = intake.finish()
        if report.streams[at].rejected:
            return tell("rejected", f"is rejected: {report.samples[0]['reason']}."), None
        if report.streams[at].punctuations:
            return tell("rejected", "is a punctuation, which joins nothing."), None
        ts = block.column(f"s{at}_{spec.time}").cast(pa.int64())[0].as_py()
        when = "" if spec.table else f"of {self._formatter.format_time(ts, at)} "
        stored = next((chunk for chunk in report.chunks if chunk.bucket.first), None)
        if stored is None:
            why = self._left_out(selector.stream, block)
            return tell("not stored", f"{when}can join nothing: {why}."), None
        self._chunks.append(stored)
        ref = int(references(len(self._chunks) - 1, np.zeros(1, np.int64))[0])
        self._prints[ref] = block.column(PRINT)[0].as_py()
        ordinal = _ordinal(self.join, at, ts, block) if at in query.counted_streams else None
        says = f"{when}is among the rows of the input."
        return tell("stored", says), StoredTuple(at, ref, ts, STATIC, ordinal)

    def _left_out(self, stream: int, block: pa.RecordBatch) -> str:
        """Return why a tuple was not even stored."""
        query = self.join.query
        spec = query.streams[stream]
        for test in spec.tests:
            holds = block.column(f"s{stream}_{test.holds}")[0].as_py()
            failed = test.failed is not None and block.column(f"s{stream}_{test.failed}")[0].as_py()
            if not holds and not failed:
                word = "NULL" if holds is None else "FALSE"
                text = spec.hidden[test.holds - len(spec.schema)].text
                return f"`{text}` is {word}{self._read_by(text, stream, block)}"
        for column in query.required_columns[stream]:
            if not block.column(column.name)[0].is_valid:
                return f"{query.name_of(column)} is NULL, and an equality asks for it"
        return "it lies in a gap between windows"

    def _read_by(self, text: str, stream: int, block: pa.RecordBatch) -> str:
        """Return the columns of a tuple that a condition names, with their values."""
        spec = self.join.query.streams[stream]
        names = {f"{spec.name}.{name}": at for at, name in enumerate(spec.schema.names)}
        named = {
            n: at for n, at in names.items() if re.search(rf"(?<![\w.]){re.escape(n)}(?![\w.])", text, re.IGNORECASE)
        }
        text = self._formatter.format_row({name: block.column(f"s{stream}_{at}") for name, at in named.items()})
        return f" ({text})" if text else ""

    def complete(self, seen: Sequence[StoredTuple], missing: Sequence[int]) -> Completions:
        """See Evidence; the join itself is computed, of the rows that are asked about."""
        query = replace(self.join.query, outputs=(), select="")
        wide = replace(self.join, query=query, select=None)
        for one in self.question if not query.counted_streams else ():
            wide = replace(wide, frames=tuple(_only(wide, at, one) for at in range(len(query.streams))))
        found = wide.toDF()
        for one in self.question:
            found = found.where(_equal(self.join, one))
        try:
            return Completions(found.count(), True)
        except Exception as error:
            raise PredicateError(f"The join could not be computed: {said(error)}.") from None


# -- what Spark counts


def _tagged(join: "Join", stream: int) -> DataFrame:
    """Return the rows of a stream as a batch takes them, with all columns."""
    frame = join.frames[stream]
    assert frame is not None  # joins of static inputs are frames
    return tagged(join.query, stream, frame, True, join.computed()[stream])


def _timed(join: "Join", stream: int, ts: int) -> tuple[DataFrame, SparkColumn, SparkColumn]:
    """Return the rows of a stream, their times, and another time to compare these with."""
    spec = join.query.streams[stream]
    moment = pa.scalar(ts, pa.int64()).cast(spec.time_type)
    return _tagged(join, stream), F.col(f"s{stream}_{spec.time}"), _literal(moment)


def _ordinal(join: "Join", stream: int, ts: int, block: pa.RecordBatch) -> int:
    """Return the arrival ordinal of a tuple."""
    rows, time, moment = _timed(join, stream, ts)
    own = block.column(CONTENT)[0].as_py()
    return 1 + rows.where((time < moment) | ((time == moment) & (F.col(CONTENT) < own))).count()


def _as_of(join: "Join", stream: int, seen: StoredTuple) -> tuple[int, int]:
    """Return how many tuples of a stream come no later than another's."""
    rows, time, moment = _timed(join, stream, seen.ts)
    count = rows.where(time <= moment if stream < seen.stream else time < moment).count()
    return count, count


def _only(join: "Join", at: int, selector: TupleSelector) -> DataFrame | None:
    """Return the frame of a stream, with no other rows than those asked about if it is asked."""
    frame = join.frames[at]
    if frame is None or at != selector.stream:
        return frame
    names = [f"_c{number}" for number in range(len(frame.columns))]
    kept = frame.toDF(*names).where(_all(F.col(names[f]).eqNullSafe(_literal(v)) for f, v in selector.values.items()))
    return kept.toDF(*frame.columns)


def _equal(join: "Join", selector: TupleSelector) -> SparkColumn:
    """Return whether a result has what is asked for."""
    stream = join.query.streams[selector.stream]
    whole, names = F.col(quoted(stream.name)), stream.schema.names
    return _all(whole.getField(names[f]).eqNullSafe(_literal(value)) for f, value in selector.values.items())


def _has(selector: TupleSelector) -> SparkColumn:
    """Return whether a tagged row has what is asked for."""
    columns = [(F.col(Column(selector.stream, f).name), value) for f, value in selector.values.items()]
    return _all(column.eqNullSafe(_literal(value)) for column, value in columns)


def _all(conditions: Iterator[SparkColumn]) -> SparkColumn:
    first, *rest = conditions
    for condition in rest:
        first = first & condition
    return first


def _literal(value: pa.Scalar) -> SparkColumn:
    """Return a value as Spark takes it."""
    kind = from_arrow_type(value.type, prefer_timestamp_ntz=True)
    if not value.is_valid:
        return F.lit(None).cast(kind)
    if pa.types.is_timestamp(value.type):
        micros = F.timestamp_micros(F.lit(value.cast(pa.int64()).as_py()))
        if value.type.tz is not None:
            return micros
        return F.lit(pc.strftime(value, "%Y-%m-%d %H:%M:%S").as_py()).cast(kind)
    if pa.types.is_struct(value.type):
        return F.struct(*map(_literal, value.values())).cast(kind)
    if pa.types.is_nested(value.type):
        return F.array(*map(_literal, value)).cast(kind)
    return F.lit(value.as_py()).cast(kind)
