"""`wm.stream`: a frame or a join as a stream of a join, checked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from warnings import warn

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.arguments import microseconds
from watersmeet.errors import DefinitionError, DefinitionWarning
from watersmeet.formatting import shorten, with_article
from watersmeet.metadata.declarations import ConstraintDeclaration, Punctuations
from watersmeet.predicate.scope import OURS, TABLE_TIME, list_names, same_name
from watersmeet.query.windows import BEFORE_ALL, Sliding, Window
from watersmeet.spark.api.constraint_resolver import Declarations, check_declarations
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.api.user_frames import check_upstream
from watersmeet.spark.output.identity import ID
from watersmeet.spark.run.frames import arrow_schema, check_frame, quote_name

WATERMARK = "spark.watermarkDelayMs"
"""The key under which Spark notes the delay of `withWatermark` in the metadata of a column."""


@dataclass(frozen=True)
class StreamPart:
    """A frame and its part in a join.

    Attributes:
        name: The stream's name.
        frame: Its rows: a frame, or a join of streams.
        schema: Its columns, as state keeps them.
        time: Its time column, as the frame spells it; empty for a table until `add_table_times`.
        window: Its window.
        delay: The delay that the user gave it, as all times here in microseconds; None for the default.
        idle: After how long a silence it no longer holds back the watermark; None for never.
        ahead: How far an event time may lie ahead; None for no limit.
        declarations: What is known of its rows.
        table: Whether it is a table.
        refresh: Whether the table is read anew for each batch.
        watermark: The delay of the frame's own watermark on the time column; None if there is none.
    """

    name: str
    frame: DataFrame | JoinDefinition
    schema: pa.Schema
    time: str
    window: Window
    delay: int | None
    idle: int | None
    ahead: int | None
    declarations: Declarations
    table: bool = False
    refresh: bool = False
    watermark: int | None = None

    @property
    def session(self) -> SparkSession:
        """The session of its frame."""
        return self.frame.spark if isinstance(self.frame, JoinDefinition) else self.frame.sparkSession

    @property
    def streaming(self) -> bool:
        """Whether it is a stream, not a static frame."""
        return isinstance(self.frame, JoinDefinition) or self.frame.isStreaming


class Stream:
    """A stream or a table, whose attributes are its columns; made by `wm.stream` and `wm.table`.

    [!] All else is in `_ws_part`: an attribute `name` would hide the column of that name.
    """

    __slots__ = ("_ws_part",)

    def __init__(self, part: StreamPart) -> None:
        self._ws_part = part

    def __getitem__(self, name: str) -> Column:
        """Return a column, or a field of one, as `where` and `select` take it.

        Raises:
            DefinitionError: If the stream has no column of that name.
        """
        part = self._ws_part
        what = f"{'Table' if part.table else 'Stream'} '{part.name}'"
        if not isinstance(name, str):
            raise DefinitionError(f"{what}: {name!r} is not the name of a column, such as 'id'.")
        is_whole = any(same_name(name, column) for column in part.schema.names)
        if not is_whole and not any(same_name(name.partition(".")[0], column) for column in part.schema.names):
            raise DefinitionError(f"{what} has no column '{name}'; it has {list_names(name, part.schema.names)}.")
        return F.col(f"{quote_name(part.name)}.{quote_name(name) if is_whole else name}")

    def __getattr__(self, name: str) -> Column:
        """Return a column by its name; raises AttributeError if there is none."""
        if name.startswith("__") or name == "_ws_part":
            raise AttributeError(name)
        try:
            return self[name]
        except DefinitionError as error:
            raise AttributeError(str(error)) from None

    def __repr__(self) -> str:
        part = self._ws_part
        return f"Stream({part.name}: {', '.join(part.schema.names)})"


def stream(
    name: str,
    frame: DataFrame | JoinDefinition,
    *,
    time: str = "_time",
    window: str | timedelta | Window | None = None,
    delay: str | timedelta | None = None,
    idle: str | timedelta | None = None,
    ahead: str | timedelta | None = "1 day",
    punctuations: Punctuations | Sequence[Punctuations] | None = None,
    constraints: Sequence[ConstraintDeclaration] = (),
) -> Stream:
    """Name a frame as a stream of a join.

    Args:
        name: Its name in `where`, `select` and the results.
        frame: A streaming frame of any source, a static one, or a join, whose results are then the tuples.
        time: The event-time column: timestamp or timestamp_ntz; of a join by default its results' `_time`.
        window: A duration for a sliding window, `wm.tumbling(size)`, `wm.hopping(size, step)`, `wm.count(n)`, or None
            for unbounded.
        delay: How far out of order its tuples may come; by default the delay of the frame's `withWatermark` on the time
            column, else the join's largest time window or, without windows, the reach of conditions on event times.
            Not needed for a join, unless `time` is another column than `_time` or a member's event time.
        idle: After how long a silence the stream no longer holds back the watermark; by default never.
        ahead: How far an event time may lie ahead of the clock and of all streams of the join; rows further ahead are
            rejected. None for no limit. It does not apply to results of a join and to static frames.
        punctuations: What announces that some rows no longer come: `wm.punctuations(...)`, or several. See
            docs/metadata.md.
        constraints: What else is known of its rows: `wm.key`, `wm.ordered`, `wm.clustered`, `wm.foreign_key`.

    Raises:
        DefinitionError: If the time column is missing, a duration is invalid, the frame isn't a classic Spark frame, or
            Spark can't run it as a stream.
    """
    check_name(name)
    if not isinstance(time, str):
        raise DefinitionError(f"Stream '{name}': time={time!r} is not the name of a column, such as time='ts'.")
    if isinstance(frame, JoinDefinition) and any(part.isStreaming for _, part in frame.leaves):
        frame = frame.with_time()
        schema = frame.schema
    else:
        if isinstance(frame, JoinDefinition):
            frame = (frame.with_time() if time.lower() == "_time" else frame).toDF()
        frame = check_frame(f"Stream '{name}'", frame)
        check_upstream(f"Stream '{name}'", frame)
        schema = arrow_schema(frame)
    column = _find_time_column(name, schema.names, time)
    if isinstance(frame, JoinDefinition) and delay is None and frame.time_window(column) is None:
        raise DefinitionError(
            f"Stream '{name}': its '{column}' is neither the results' _time nor the event time of a member with a time "
            "window, so its delay is unknown; give delay='...', how far behind the latest one a result may come, or "
            "use time='_time'."
        )
    part = StreamPart(
        name,
        frame,
        schema,
        column,
        _window(window, f"window of stream '{name}'"),
        None if delay is None else microseconds(delay, f"delay of stream '{name}'"),
        None if idle is None else microseconds(idle, f"idle timeout of stream '{name}'"),
        None if ahead is None else microseconds(ahead, f"ahead of stream '{name}'"),
        check_declarations(name, constraints, punctuations),
        watermark=None if isinstance(frame, JoinDefinition) else _watermark(name, frame, column, delay is not None),
    )
    return Stream(part)


def _watermark(stream: str, frame: DataFrame, time: str, has_delay: bool) -> int | None:
    """Return the delay of the watermark on a frame's time column, in microseconds; None if it has none.

    Warns of a watermark on another column, unless the stream has a delay of its own.
    """
    delays = {field.name: int(field.metadata[WATERMARK]) for field in frame.schema if WATERMARK in field.metadata}
    if time in delays:
        return delays[time] * 1000
    for other in delays if not has_delay else ():
        warn(
            f"Stream '{stream}': its frame has a watermark on '{other}', and its time is '{time}', so the "
            f"watermark's delay is not used: give delay='...', or time='{other}'.",
            DefinitionWarning,
            stacklevel=3,
        )
    return None


def table(name: str, frame: DataFrame, *, refresh: bool = False) -> Stream:
    """Name a static frame as a table of a join: rows to look up, without times, beside one stream or more.

    Its rows never expire, never hold back the watermark and cause no results by themselves: a combination of the
    streams' tuples is joined with them when its last tuple arrives. By default the table is read once, when the join
    first starts, and stored in its checkpoint.

    Args:
        name: Its name in `where`, `select` and the results.
        frame: A static frame.
        refresh: Whether to read it anew for each batch, whose results then reflect the table as it is; changes do not
            affect earlier results.

    Raises:
        DefinitionError: If the frame is streaming, or isn't a classic Spark frame.
    """
    check_name(name)
    rows = check_frame(f"Table '{name}'", frame.toDF() if isinstance(frame, JoinDefinition) else frame)
    if rows.isStreaming:
        raise DefinitionError(
            f"Table '{name}' is a streaming frame; a table is a static one: use wm.stream('{name}', ..., time='...')."
        )
    if not isinstance(refresh, bool):
        raise DefinitionError(f"Table '{name}': refresh={refresh!r} is neither True nor False.")
    none = Declarations()
    part = StreamPart(name, rows, arrow_schema(rows), "", Window(), None, None, None, none, table=True, refresh=refresh)
    return Stream(part)


def add_table_times(parts: Sequence[StreamPart]) -> list[StreamPart]:
    """Return the streams of a join; tables get a time column, which is before all times, and of the streams' type."""
    first = next((part for part in parts if not part.table), None)
    column = None if first is None else first.schema.field(first.time)
    ntz = column is not None and getattr(column.type, "tz", "UTC") is None
    moment = table_time(T.TimestampNTZType() if ntz else T.TimestampType())
    return [_with_time(part, moment) if part.table else part for part in parts]


def table_time(kind: T.DataType) -> Column:
    """Return the time of a table's rows: before all others."""
    return F.timestamp_micros(F.lit(BEFORE_ALL)).cast(kind)


def _with_time(part: StreamPart, moment: Column) -> StreamPart:
    assert isinstance(part.frame, DataFrame)
    frame = part.frame.withColumn(TABLE_TIME, moment)
    return replace(part, frame=frame, schema=arrow_schema(frame), time=TABLE_TIME)


def check_name(name: object) -> None:
    """Check the name of a stream.

    Raises:
        DefinitionError: If it is not an identifier, or is reserved.
    """
    if not isinstance(name, str):
        raise DefinitionError(
            f"{shorten(name)} can't name a stream: its name comes first, as in wm.stream('a', frame, ...)."
        )
    if not name.isidentifier():
        raise DefinitionError(f"{name!r} can't name a stream: use letters, digits and underscores.")
    if name.lower() in ("_time", ID) or name.lower().startswith(OURS):
        raise DefinitionError(f"'{name}' can't name a stream: that name is reserved; use another.")


def check_text(what: str, value: object, example: str, several: str = "") -> None:
    """Check that an argument is a text, or None.

    Args:
        what: Its name.
        value: Its value.
        example: A valid text.
        several: What to do instead of passing a list.

    Raises:
        DefinitionError: If it is anything else.
    """
    if value is None or isinstance(value, str):
        return
    hint = "; to use a Python function, decorate it with @wm.predicate and call it by name" if callable(value) else ""
    hint = f"; {several}" if several and isinstance(value, list | tuple) else hint
    kind = with_article(type(value).__name__)
    raise DefinitionError(f"{what} must be a string such as '{example}', not {kind}{hint}.")


def _find_time_column(stream: str, columns: Sequence[str], time: str) -> str:
    """Return the time column as the stream spells it; raises DefinitionError unless exactly one has the name."""
    matches = [column for column in columns if column == time] or [c for c in columns if c.lower() == time.lower()]
    alike = [column for column in columns if matches and column.lower() == matches[0].lower()]
    if len(alike) > 1:
        raise DefinitionError(
            f"Stream '{stream}' has two columns called {' and '.join(alike)}; rename all but its time."
        )
    if not matches and time == "_time":
        raise DefinitionError(f"Stream '{stream}' needs a time column: give time='...', one of {', '.join(columns)}.")
    if not matches:
        raise DefinitionError(f"Stream '{stream}' has no time column '{time}'; it has {', '.join(columns)}.")
    return matches[0]


def _window(window: str | timedelta | Window | None, what: str) -> Window:
    if window is None:
        return Window()
    return window if isinstance(window, Window) else Sliding(microseconds(window, what, 1))
