"""`join.why` on static frames: tuples are looked up in the frames themselves, so every question has an answer."""

import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TypeVar

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
from watersmeet.caching import cached_property
from watersmeet.errors import DefinitionError, PredicateError
from watersmeet.exchange.tasks import CONTENT, rows_of
from watersmeet.observe.why.answer import MOST_COLUMNS, Answer, TupleStatus, ValueFormatter
from watersmeet.observe.why.condition_trace import ConditionTracer, StoredTuple
from watersmeet.observe.why.evidence import (
    MOST_TUPLES,
    CombinationClosing,
    Completions,
    Evidence,
    OptionalStreams,
    Partners,
    SelectedTuple,
    Survey,
)
from watersmeet.observe.why.join_state import EveryChunk
from watersmeet.observe.why.question import TupleSelector, Values, find_join, parse_question
from watersmeet.observe.why.state_evidence import describe_tuple
from watersmeet.observe.why.why_pair import answer_question
from watersmeet.predicate.model import Column
from watersmeet.probe.answer_cache import AnswerCache
from watersmeet.probe.chunk_table import ChunkTable, Target
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.hop import Hops
from watersmeet.probe.partials import references
from watersmeet.query.query import How
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.api.why_running import computer, decider
from watersmeet.spark.run.frames import column_name, content_hash, quote_name, tag_rows, to_stored
from watersmeet.spark.sql.catalyst import error_sentence
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store.store import Store

STATIC = (-1, -1)
"""The batch of static rows: before any other."""
Value = TypeVar("Value")
FINGERPRINT = "print"
"""The column that distinguishes a row of a stream from all rows that differ from it."""


def why_static(join: JoinDefinition, values: Mapping[str, Values]) -> Answer:
    """Return what becomes of tuples of static inputs; runs Spark jobs, and calls Python predicates.

    Raises:
        DefinitionError: If an input is streaming, the session's settings have changed, or there is no such stream,
            column or value.
        PredicateError: If the join can't be computed.
    """
    if any(frame.isStreaming for _, frame in join.leaves):
        raise DefinitionError("join.why() looks at static inputs; ask the query that runs: query.why(...).")
    join.check_settings()
    find_join({"j": join.query}, values)
    duck = Duck(join.query.dialect)
    question = parse_question(join.query, values, duck)
    with _temporary_folder() as folder:
        side = join.query.as_left_join({one.stream for one in question})
        return answer_question(StaticFrames(replace(join, query=side), folder, duck, question), question)


@contextmanager
def _temporary_folder() -> Iterator[str]:
    """Make a folder on the driver for a `with`, and remove it at the end."""
    folder = tempfile.mkdtemp(prefix="watersmeet-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class StaticFrames(Evidence):
    """The static inputs of a join; the rows in question are stored as a batch would store them.

    Attributes:
        join: The join.
        folder: Where those rows are stored.
        duck: A connection of its own.
        question: The tuples in question.
    """

    join: JoinDefinition
    folder: str
    duck: Duck
    question: Sequence[TupleSelector]
    _chunks: list[Chunk] = field(default_factory=list)
    _fingerprints: dict[int, int] = field(default_factory=dict)

    @cached_property
    def _plan(self) -> BatchPlan:
        join = self.join
        operator = Operator(join.query, join.strategy, Store(self.folder), uuid.uuid4().hex[:12], join.ordering)
        return operator.plan(operator.start())

    @cached_property
    def _formatter(self) -> ValueFormatter:
        return ValueFormatter(self.join.query, self.duck)

    @cached_property
    def tracer(self) -> ConditionTracer:
        """See Evidence; to be read only after all tuples have been looked up."""
        query = self.join.query.careful_query() if any_flagged(self.join.query, self._chunks) else self.join.query
        targets = [Target(at, chunk) for at, chunk in enumerate(self._chunks)]
        table = ChunkTable(self._plan.store, query, targets)
        hops = Hops(query, table, self.duck, AnswerCache(), time.perf_counter, EveryChunk(), "why")
        return ConditionTracer(
            query, hops, self._formatter, partial(_as_of, self.join), decider(self.join), computer(self.join)
        )

    @property
    def optional(self) -> "StaticOptionalStreams":
        """See Evidence."""
        return StaticOptionalStreams(self.join, self._formatter, self._fingerprints)

    # -- tuples

    def find_tuples(self, selector: TupleSelector) -> list[SelectedTuple]:
        """See Evidence; finds the rows by a Spark job, and stores those that intake would store."""
        spec = self.join.query.streams[selector.stream]
        matches = _tag_stream(self.join, selector.stream).where(_row_matches(selector)).limit(MOST_TUPLES + 1)
        own = [F.col(Column(selector.stream, at).name) for at in range(len(spec.schema))]
        marked = matches.withColumn(FINGERPRINT, fingerprint(self.join, selector.stream, own))
        rows = marked.toArrow().combine_chunks()
        members = [
            self._take_in(selector, block) for at in range(rows.num_rows) for block in rows.slice(at, 1).to_batches()
        ]
        return members or [
            (TupleStatus(spec.name, selector.text, "never arrived", "is not among the rows of the input."), None)
        ]

    def _take_in(self, selector: TupleSelector, block: pa.RecordBatch) -> SelectedTuple:
        """Return what intake does with a row of the input, and its tuple if it is stored; keeps the tuple's chunk."""
        query, at = self.join.query, selector.stream
        spec = query.streams[at]
        own = [field for field in range(len(spec.schema)) if not (spec.table and field == spec.time)]
        values = {spec.schema.names[field]: block.column(f"s{at}_{field}") for field in own}
        selected = partial(describe_tuple, self._formatter, selector, batches=None, values=values)
        intake = Intake(self._plan, f"t{len(self._chunks)}-{at}", len(self._chunks))
        for stream, rows in rows_of(block, self._plan):
            intake.add(stream, rows)
        report = intake.finish()
        if report.streams[at].rejected:
            return selected("rejected", f"is rejected: {report.samples[0]['reason']}."), None
        if report.streams[at].punctuations:
            return selected("rejected", "is a punctuation, which joins nothing."), None
        ts = block.column(f"s{at}_{spec.time}").cast(pa.int64())[0].as_py()
        when = "" if spec.table else f"of {self._formatter.format_time(ts, at)} "
        chunk = next((chunk for chunk in report.chunks if chunk.bucket.first), None)
        if chunk is None:
            reason = self._reason_not_stored(selector.stream, block)
            return selected("not stored", f"{when}can join nothing: {reason}."), None
        self._chunks.append(chunk)
        ref = int(references(len(self._chunks) - 1, np.zeros(1, np.int64))[0])
        self._fingerprints[ref] = block.column(FINGERPRINT)[0].as_py()
        ordinal = _ordinal(self.join, at, ts, block) if at in query.counted_streams else None
        message = f"{when}is among the rows of the input."
        return selected("stored", message), StoredTuple(at, ref, ts, STATIC, ordinal)

    def _reason_not_stored(self, stream: int, block: pa.RecordBatch) -> str:
        """Return why intake stores no tuple for a row: a test fails, it lacks a value, or it is in no window."""
        query = self.join.query
        spec = query.streams[stream]
        for test in spec.tests:
            holds = block.column(f"s{stream}_{test.holds}")[0].as_py()
            failed = test.failed is not None and block.column(f"s{stream}_{test.failed}")[0].as_py()
            if not holds and not failed:
                word = "NULL" if holds is None else "FALSE"
                text = spec.hidden[test.holds - len(spec.schema)].text
                return f"`{text}` is {word}{self._describe_inputs(text, stream, block)}"
        for column in query.required_columns[stream]:
            if not block.column(column.name)[0].is_valid:
                return f"{query.name_of(column)} is NULL, and an equality asks for it"
        return "it lies in a gap between windows"

    def _describe_inputs(self, text: str, stream: int, block: pa.RecordBatch) -> str:
        """Return the columns of a tuple that a condition names, with values, in parentheses; empty without any."""
        spec = self.join.query.streams[stream]
        names = {f"{spec.name}.{name}": at for at, name in enumerate(spec.schema.names)}
        inputs = {
            n: at for n, at in names.items() if re.search(rf"(?<![\w.]){re.escape(n)}(?![\w.])", text, re.IGNORECASE)
        }
        values = self._formatter.format_row({name: block.column(f"s{stream}_{at}") for name, at in inputs.items()})
        return f" ({values})" if values else ""

    def complete(self, rows: Sequence[StoredTuple], missing: Sequence[int]) -> Completions:
        """See Evidence; computes the join itself, over the rows in question unless that would change a count window.

        Raises:
            PredicateError: If it can't be computed.
        """
        query = replace(self.join.query, outputs=(), select="")
        wide = replace(self.join, query=query, select=None)
        for one in self.question if not query.counted_streams else ():
            wide = replace(wide, frames=tuple(_restrict_frame(wide, at, one) for at in range(len(query.streams))))
        results = wide.toDF()
        for one in self.question:
            results = results.where(_result_matches(self.join, one))
        try:
            return Completions(results.count(), True)
        except Exception as error:
            raise PredicateError(f"The join could not be computed: {error_sentence(error)}.") from None


# -- what Spark counts


def _tag_stream(join: JoinDefinition, stream: int) -> DataFrame:
    """Return the rows of a stream in the form that batches have, with all columns."""
    frame = join.frames[stream]
    assert frame is not None  # joins of static inputs are frames
    return tag_rows(join.query, stream, frame, True, join.hidden_columns()[stream])


def _rows_and_times(join: JoinDefinition, stream: int, ts: int) -> tuple[DataFrame, SparkColumn, SparkColumn]:
    """Return the rows of a stream, their time column, and a given time as a literal."""
    spec = join.query.streams[stream]
    moment = pa.scalar(ts, pa.int64()).cast(spec.time_type)
    return _tag_stream(join, stream), F.col(f"s{stream}_{spec.time}"), _literal(moment)


def _ordinal(join: JoinDefinition, stream: int, ts: int, block: pa.RecordBatch) -> int:
    """Return the arrival ordinal of a tuple, from 1, by time and then content; Spark counts the rows before it."""
    rows, time, moment = _rows_and_times(join, stream, ts)
    own = block.column(CONTENT)[0].as_py()
    return 1 + rows.where((time < moment) | ((time == moment) & (F.col(CONTENT) < own))).count()


def _as_of(join: JoinDefinition, stream: int, row: StoredTuple) -> tuple[int, int]:
    """Return how many tuples of a stream come no later than a tuple of another, at least and at most; Spark counts."""
    rows, time, moment = _rows_and_times(join, stream, row.ts)
    count = rows.where(time <= moment if stream < row.stream else time < moment).count()
    return count, count


def _restrict_frame(join: JoinDefinition, at: int, selector: TupleSelector) -> DataFrame | None:
    """Return the frame of a stream, restricted to the rows in question if it is the selector's; None for a join."""
    frame = join.frames[at]
    if frame is None or at != selector.stream:
        return frame
    names = [f"_c{number}" for number in range(len(frame.columns))]
    rows = frame.toDF(*names).where(
        _conjunction(F.col(names[f]).eqNullSafe(_literal(v)) for f, v in selector.values.items())
    )
    return rows.toDF(*frame.columns)


def _result_matches(join: JoinDefinition, selector: TupleSelector) -> SparkColumn:
    """Return the condition that a result has the values in question."""
    stream = join.query.streams[selector.stream]
    whole, names = F.col(quote_name(stream.name)), stream.schema.names
    return _conjunction(whole.getField(names[f]).eqNullSafe(_literal(value)) for f, value in selector.values.items())


def _row_matches(selector: TupleSelector) -> SparkColumn:
    """Return the condition that a tag_rows row has the values in question."""
    columns = [(F.col(Column(selector.stream, f).name), value) for f, value in selector.values.items()]
    return _conjunction(column.eqNullSafe(_literal(value)) for column, value in columns)


def _conjunction(conditions: Iterator[SparkColumn]) -> SparkColumn:
    first, *rest = conditions
    for condition in rest:
        first = first & condition
    return first


def _literal(value: pa.Scalar) -> SparkColumn:
    """Return a value, which may be NULL or nested, as a literal of Spark's of its type."""
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


@dataclass(frozen=True)
class StaticOptionalStreams(OptionalStreams):
    """The optional streams of a join of static inputs.

    Attributes:
        join: The join.
        formatter: Puts values into words.
        fingerprints: The fingerprints of the tuples in question, by their references.
    """

    join: JoinDefinition
    formatter: ValueFormatter
    fingerprints: Mapping[int, int] = field(default_factory=dict)

    def find_partners(self, rows: Sequence[StoredTuple], optional: int) -> Partners:
        """See OptionalStreams; Spark computes a left or as-of join with this stream alone.

        Raises:
            PredicateError: If it can't be computed.
        """
        query, spec = self.join.query, self.join.query.streams[optional]
        whole, fields = F.col(quote_name(spec.name)), self.join.kinds[optional].fields
        columns = [c.field for c in query.stored_columns[optional] if c.field < len(fields)][:MOST_COLUMNS]
        described = [to_stored(whole.getField(fields[at].name), fields[at].dataType).alias(f"c{at}") for at in columns]
        time = whole.getField(fields[spec.time].name)
        hows: dict[int, How] = {at: "asof left" if at in query.as_of_streams else "left" for at in query.optional}
        partners = self._join(rows, hows, [optional]).where(whole.isNotNull())
        first = F.min_by(F.struct(time.alias("time"), *described), time)
        (row,) = _compute(partners.agg(F.count(F.lit(1)).alias("n"), first.alias("first")).toArrow).to_batches()
        number, earliest = row.column("n")[0].as_py(), row.column("first")
        if not number:
            return Partners(0)
        values = self.formatter.format_row({fields[at].name: earliest.field(f"c{at}") for at in columns})
        if spec.table:
            return Partners(number, earliest=f"with {values}" if values else "")
        ts = earliest.field("time").cast(pa.int64())[0].as_py()
        details = f" ({values})" if values else ""
        newest = optional in query.as_of_streams
        return Partners(
            number, earliest=f"of {self.formatter.format_time(ts, optional)}{details}", time=ts, is_newest=newest
        )

    def is_newest(self, rows: Sequence[StoredTuple], partner: StoredTuple) -> bool:
        """See OptionalStreams."""
        hows: dict[int, How] = {at: "asof" if at == partner.stream else "left" for at in self.join.query.optional}
        matches = self._join(rows, hows, [partner.stream]).where(self._contains(partner))
        return bool(_compute(matches.count))

    def _contains(self, row: StoredTuple) -> SparkColumn:
        """Return the condition that a result contains a tuple, or one equal to it."""
        whole = F.col(quote_name(self.join.query.streams[row.stream].name))
        fields = self.join.kinds[row.stream].fields
        own = [to_stored(whole.getField(field.name), field.dataType) for field in fields]
        return fingerprint(self.join, row.stream, own) == self.fingerprints[row.ref]

    def closing(self, rows: Sequence[StoredTuple]) -> CombinationClosing:
        """See OptionalStreams: static inputs end."""
        return CombinationClosing(True)

    def survey(self, rows: Sequence[StoredTuple]) -> Survey:
        """See OptionalStreams; Spark counts the combinations, and their results unless an anti join leaves none.

        Raises:
            PredicateError: If the join can't be computed.
        """
        query = self.join.query
        members = [one.stream for one in rows if one.stream in query.optional]
        hows: dict[int, How] = {at: "semi" if at in members else "left" for at in query.optional}
        hows |= {at: "asof" if at in members else "asof left" for at in query.as_of_streams}
        newest = [self._contains(one) for one in rows if one.stream in query.as_of_streams]
        combinations = _compute(_where(self._join(rows, hows, members), newest).count)
        if not combinations or any(query.optional[at] == "anti" for at in members):
            return Survey(combinations)
        has_partners = [
            F.col(quote_name(query.streams[at].name)).isNotNull() for at in members if at not in query.hidden_streams
        ]
        results = _where(self._join(rows, query.optional, [*query.optional]), [*newest, *has_partners])
        return Survey(combinations, _compute(results.count))

    def _join(self, rows: Sequence[StoredTuple], how: Mapping[int, How], with_rows: Sequence[int]) -> DataFrame:
        """Return a frame, not yet computed, of the join of the tuples in question with all others.

        Args:
            rows: The tuples.
            how: How optional streams are joined.
            with_rows: The optional streams that keep their rows; the others are taken to be empty.
        """
        query = self.join.query
        hows = tuple(how.get(at, "inner") for at in range(len(query.streams)))
        own = {one.stream: one for one in rows if one.stream not in query.as_of_streams}  # a newer one may replace it
        frames = []
        for at, frame in enumerate(self.join.frames):
            assert frame is not None  # joins of static inputs are frames
            if at in query.optional and at not in with_rows:
                frame = frame.limit(0)
            frames.append(self._restrict_to_row(frame, own[at]) if at in own else frame)
        plain = replace(query, how=hows, outputs=(), select="")
        return replace(self.join, query=plain, frames=tuple(frames), select=None, identity=False).toDF()

    def _restrict_to_row(self, frame: DataFrame, row: StoredTuple) -> DataFrame:
        """Restrict a frame to the row that is a tuple."""
        names = [column_name(at) for at in range(len(frame.columns))]
        own = [to_stored(F.col(n), f.dataType) for n, f in zip(names, frame.schema.fields, strict=True)]
        numbered = frame.toDF(*names)
        matching = numbered.where(fingerprint(self.join, row.stream, own) == self.fingerprints[row.ref]).limit(1)
        return matching.toDF(*frame.columns)


def fingerprint(join: JoinDefinition, stream: int, values: Sequence[SparkColumn]) -> SparkColumn:
    """Return a hash of a stream's row, from the values of its columns as state stores them."""
    kinds = [
        from_arrow_type(join.query.type_of(Column(stream, at)), prefer_timestamp_ntz=True) for at in range(len(values))
    ]
    return content_hash([(value.cast(kind), kind) for value, kind in zip(values, kinds, strict=True)])


def _where(frame: DataFrame, conditions: Sequence[SparkColumn]) -> DataFrame:
    return reduce(DataFrame.where, conditions, frame)


def _compute(compute: Callable[[], Value]) -> Value:
    """Let Spark compute a join.

    Raises:
        PredicateError: If it fails.
    """
    try:
        return compute()
    except Exception as error:
        raise PredicateError(f"The join could not be computed: {error_sentence(error)}.") from None
