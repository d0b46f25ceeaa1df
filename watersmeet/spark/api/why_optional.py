"""`join.why` on static frames with optional streams: Spark joins the tuples in question with all others, and counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from watersmeet.errors import PredicateError
from watersmeet.observe.why.answer import MOST_COLUMNS, ValueFormatter
from watersmeet.observe.why.condition_trace import StoredTuple
from watersmeet.observe.why.evidence import CombinationClosing, OptionalStreams, Partners, Survey
from watersmeet.predicate.model import Column
from watersmeet.query.query import How
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.run.content import content_hash
from watersmeet.spark.run.frames import column_name, quote_name, to_stored
from watersmeet.spark.sql.catalyst import error_sentence

Value = TypeVar("Value")
FINGERPRINT = "print"
"""The column that distinguishes a row of a stream from all rows that differ from it."""


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
