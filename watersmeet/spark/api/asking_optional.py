"""`join.why` on static frames with optional streams: Spark joins the tuples asked about with all others, and counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from watersmeet.errors import PredicateError
from watersmeet.observe.why.condition_trace import StoredTuple
from watersmeet.observe.why.evidence import CombinationClosing, OptionalStreams, Partners, Survey
from watersmeet.observe.why.value_text import ValueFormatter
from watersmeet.predicate.model import Column
from watersmeet.query.query import How
from watersmeet.spark.run.content import content_hash
from watersmeet.spark.run.frames import column_name, quoted, stored
from watersmeet.spark.sql.catalyst import said

if TYPE_CHECKING:
    from watersmeet.spark.api.join import Join

Made = TypeVar("Made")
PRINT = "print"
"""The column that tells a row of a stream from all others but its like."""


@dataclass(frozen=True)
class Beside(OptionalStreams):
    """The optional streams of a join of static inputs.

    Attributes:
        join: The join.
        formatter: Puts values into words.
        prints: What tells the tuples that are asked about from others, by their references.
    """

    join: "Join"
    formatter: ValueFormatter
    prints: Mapping[int, int] = field(default_factory=dict)

    def find_partners(self, seen: Sequence[StoredTuple], optional: int) -> Partners:
        """See OptionalStreams: as a left or as-of join with this stream alone finds them."""
        query, spec = self.join.query, self.join.query.streams[optional]
        whole, fields = F.col(quoted(spec.name)), self.join.kinds[optional].fields
        kept = [c.field for c in query.stored_columns[optional] if c.field < len(fields)][:SHOWN]
        told = [stored(whole.getField(fields[at].name), fields[at].dataType).alias(f"c{at}") for at in kept]
        time = whole.getField(fields[spec.time].name)
        hows: dict[int, How] = {at: "asof left" if at in query.as_of_streams else "left" for at in query.optional}
        found = self._joined(seen, hows, [optional]).where(whole.isNotNull())
        first = F.min_by(F.struct(time.alias("time"), *told), time)
        (row,) = _computed(found.agg(F.count(F.lit(1)).alias("n"), first.alias("first")).toArrow).to_batches()
        number, earliest = row.column("n")[0].as_py(), row.column("first")
        if not number:
            return Partners(0)
        values = self.formatter.format_row({fields[at].name: earliest.field(f"c{at}") for at in kept})
        if spec.table:
            return Partners(number, earliest=f"with {values}" if values else "")
        ts = earliest.field("time").cast(pa.int64())[0].as_py()
        shown = f" ({values})" if values else ""
        newest = optional in query.as_of_streams
        return Partners(number, first=f"of {self.voice.time(ts, optional)}{shown}", time=ts, newest=newest)

    def is_newest(self, seen: Sequence[StoredTuple], partner: StoredTuple) -> bool:
        """See OptionalStreams."""
        hows: dict[int, How] = {at: "asof" if at == partner.stream else "left" for at in self.join.query.optional}
        found = self._joined(seen, hows, [partner.stream])
        return bool(_computed(found.where(self._is(partner)).count))

    def _is(self, seen: StoredTuple) -> SparkColumn:
        """Return whether a result shows a tuple, or its like."""
        whole = F.col(quoted(self.join.query.streams[seen.stream].name))
        fields = self.join.kinds[seen.stream].fields
        own = [stored(whole.getField(field.name), field.dataType) for field in fields]
        return printed(self.join, seen.stream, own) == self.prints[seen.ref]

    def closing(self, seen: Sequence[StoredTuple]) -> CombinationClosing:
        """See OptionalStreams: static inputs end."""
        return CombinationClosing(True)

    def survey(self, seen: Sequence[StoredTuple]) -> Survey:
        """See OptionalStreams."""
        query = self.join.query
        named = [there.stream for there in seen if there.stream in query.optional]
        matched: dict[int, How] = {at: "semi" if at in named else "left" for at in query.optional}
        matched |= {at: "asof" if at in named else "asof left" for at in query.as_of_streams}
        newest = [self._is(there) for there in seen if there.stream in query.as_of_streams]
        combinations = _computed(_where(self._joined(seen, matched, named), newest).count)
        if not combinations or any(query.optional[at] == "anti" for at in named):
            return Survey(combinations)
        found = _where(self._joined(seen, query.optional, [*query.optional]), newest)
        for at in named:
            found = (
                found.where(F.col(quoted(query.streams[at].name)).isNotNull())
                if at not in query.hidden_streams
                else found
            )
        return Survey(combinations, _computed(found.count))

    def _joined(self, seen: Sequence[StoredTuple], how: Mapping[int, How], there: Sequence[int]) -> DataFrame:
        """Return the join of the tuples asked about with all others; there are no rows of some optional streams.

        Args:
            seen: The tuples.
            how: What is asked of the optional streams.
            there: Those of which there are rows.
        """
        query = self.join.query
        hows = tuple(how.get(at, "inner") for at in range(len(query.streams)))
        own = {
            one.stream: one for one in seen if one.stream not in query.as_of_streams
        }  # a newer one may stand in for it
        frames = []
        for at, frame in enumerate(self.join.frames):
            assert frame is not None  # joins of static inputs are frames
            if at in query.optional and at not in there:
                frame = frame.limit(0)
            frames.append(self._only(frame, own[at]) if at in own else frame)
        made = replace(query, how=hows, outputs=(), select="")
        return replace(self.join, query=made, frames=tuple(frames), select=None, identity=False).toDF()

    def _only(self, frame: DataFrame, seen: StoredTuple) -> DataFrame:
        """Return the row of a frame that is a tuple."""
        names = [column_name(at) for at in range(len(frame.columns))]
        own = [stored(F.col(n), f.dataType) for n, f in zip(names, frame.schema.fields, strict=True)]
        numbered = frame.toDF(*names)
        mine = numbered.where(printed(self.join, seen.stream, own) == self.prints[seen.ref]).limit(1)
        return mine.toDF(*frame.columns)


def printed(join: "Join", stream: int, values: Sequence[SparkColumn]) -> SparkColumn:
    """Return what tells a row of a stream from others, by the values of its columns as state keeps them."""
    kinds = [
        from_arrow_type(join.query.type_of(Column(stream, at)), prefer_timestamp_ntz=True) for at in range(len(values))
    ]
    return content_hash([(value.cast(kind), kind) for value, kind in zip(values, kinds, strict=True)])


def _where(frame: DataFrame, conditions: Sequence[SparkColumn]) -> DataFrame:
    return reduce(DataFrame.where, conditions, frame)


def _computed(compute: Callable[[], Made]) -> Made:
    try:
        return compute()
    except Exception as error:
        raise PredicateError(f"The join could not be computed: {said(error)}.") from None
