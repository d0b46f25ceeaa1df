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
from watersmeet.metadata.declarations import Constraint, Punctuations
from watersmeet.predicate.scope import OURS, TABLE_TIME, list_names, same_name
from watersmeet.query.windows import BEFORE_ALL, Sliding, Window
from watersmeet.spark.api.constraints import Declared, declared
from watersmeet.spark.api.join import Join
from watersmeet.spark.api.upstream import check_upstream
from watersmeet.spark.output.identity import ID
from watersmeet.spark.run.frames import arrow_schema, check_frame, quoted


@dataclass(frozen=True)
class Part:
    """A frame with its part in a join."""

    name: str
    frame: "DataFrame | Join"
    schema: pa.Schema
    time: str
    window: Window
    delay: int | None
    idle: int | None
    ahead: int | None
    declared: Declared
    table: bool = False
    refresh: bool = False
    watermark: int | None = None

    @property
    def session(self) -> SparkSession:
        """The session of its frame."""
        return self.frame.spark if isinstance(self.frame, Join) else self.frame.sparkSession

    @property
    def streaming(self) -> bool:
        """Whether it is a stream, not a static frame."""
        return isinstance(self.frame, Join) or self.frame.isStreaming


class Stream:
    """A stream or a table as the user holds it, who asks it for columns; made by `wm.stream` and `wm.table`.

    [!] What else it knows is `_ws_part`: an attribute `name` would be taken for the column of that name, and compared.
    """

    __slots__ = ("_ws_part",)

    def __init__(self, part: Part) -> None:
        self._ws_part = part

    def __getitem__(self, name: str) -> Column:
        """Return a column, or a field of one, as `where` and `select` take it.

        Raises:
            DefinitionError: If the stream has no such column.
        """
        part = self._ws_part
        what = f"{'Table' if part.table else 'Stream'} '{part.name}'"
        if not isinstance(name, str):
            raise DefinitionError(f"{what}: {name!r} is not the name of a column, such as 'id'.")
        whole = any(same_name(name, known) for known in part.schema.names)
        if not whole and not any(same_name(name.partition(".")[0], known) for known in part.schema.names):
            raise DefinitionError(f"{what} has no column '{name}'; it has {list_names(name, part.schema.names)}.")
        return F.col(f"{quoted(part.name)}.{quoted(name) if whole else name}")

    def __getattr__(self, name: str) -> Column:
        """Return a column by its name."""
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
    frame: "DataFrame | Join",
    *,
    time: str = "_time",
    window: str | timedelta | Window | None = None,
    delay: str | timedelta | None = None,
    idle: str | timedelta | None = None,
    ahead: str | timedelta | None = "1 day",
    punctuations: Punctuations | Sequence[Punctuations] | None = None,
    constraints: Sequence[Constraint] = (),
) -> Stream:
    """Name a frame as a stream of a join.

    Args:
        name: Its name in `where`, `select` and the results.
        frame: A streaming frame of any source, a static one, or a join, whose results are then the tuples.
        time: The event-time column: timestamp or timestamp_ntz; of a join by default its results' `_time`.
        window: A duration for a sliding window, `wm.tumbling(size)`, `wm.hopping(size, step)`, `wm.count(n)`, or None
            for unbounded.
        delay: How far out of order its tuples may come; by default what the frame's `withWatermark` says of the time
            column, or else as far as the join's largest time window or, without windows, as conditions on event times
            reach. Of a join that is known, unless `time` is some other column than `_time` or a member's event time.
        idle: After what silence the stream no longer holds the watermark; by default never.
        ahead: How far an event time may lie ahead of the clock and of all streams of the join; a row beyond is
            rejected. None for no limit. Results of a join and static frames have none.
        punctuations: What says that some rows no longer come: `wm.punctuations(...)`, or several. See docs/metadata.md.
        constraints: What else is promised: `wm.key`, `wm.ordered`, `wm.clustered`, `wm.foreign_key`.

    Raises:
        DefinitionError: If the time column is missing, a duration is none, or the frame isn't a classic Spark frame.
    """
    check_name(name)
    if not isinstance(time, str):
        raise DefinitionError(f"Stream '{name}': time={time!r} is not the name of a column, such as time='ts'.")
    if isinstance(frame, Join) and any(part.isStreaming for _, part in frame.leaves):
        frame = frame.with_time()
        schema = frame.schema
    else:
        if isinstance(frame, Join):
            frame = (frame.with_time() if time.lower() == "_time" else frame).toDF()
        frame = check_frame(f"Stream '{name}'", frame)
        check_upstream(f"Stream '{name}'", frame)
        schema = arrow_schema(frame)
    column = _time_column(name, schema.names, time)
    if isinstance(frame, Join) and delay is None and frame.times(column) is None:
        raise DefinitionError(
            f"Stream '{name}': its '{column}' is neither the results' _time nor the event time of a member with a time "
            "window, so its delay is unknown; give delay='...', how far behind the latest one a result may come, or "
            "use time='_time'."
        )
    part = Part(
        name,
        frame,
        schema,
        column,
        _window(window, f"window of stream '{name}'"),
        None if delay is None else microseconds(delay, f"delay of stream '{name}'"),
        None if idle is None else microseconds(idle, f"idle timeout of stream '{name}'"),
        None if ahead is None else microseconds(ahead, f"ahead of stream '{name}'"),
        declared(name, constraints, punctuations),
        watermark=None if isinstance(frame, Join) else _watermark(name, frame, column, delay is not None),
    )
    return Stream(part)


def _watermark(stream: str, frame: DataFrame, time: str, delayed: bool) -> int | None:
    """Return the delay of the watermark that a frame has on its time column, in microseconds; None if it has none."""
    marked = {field.name: int(field.metadata[WATERMARK]) for field in frame.schema if WATERMARK in field.metadata}
    if time in marked:
        return marked[time] * 1000
    for other in marked if not delayed else ():
        warn(
            f"Stream '{stream}': its frame has a watermark on '{other}', and its time is '{time}', so that the "
            f"watermark's delay is not used: give delay='...', or time='{other}'.",
            DefinitionWarning,
            stacklevel=3,
        )
    return None


WATERMARK = "spark.watermarkDelayMs"
"""Where Spark notes what `withWatermark` says of a column."""


def table(name: str, frame: DataFrame, *, refresh: bool = False) -> Stream:
    """Name a static frame as a table of a join: rows to look up, without times, beside one stream or more.

    Its rows never expire, never hold the watermark and bring about no results of their own: a combination of the
    streams' tuples is joined with them when its last tuple comes. By default the table is read once, when the join
    first starts, and kept in its checkpoint.

    Args:
        name: Its name in `where`, `select` and the results.
        frame: A static frame.
        refresh: Whether it is read anew for each batch, whose results are then those with the table as it is: what
            changes has no effect on results that are there.

    Raises:
        DefinitionError: If the frame is streaming, or isn't a classic Spark frame.
    """
    check_name(name)
    found = check_frame(f"Table '{name}'", frame.toDF() if isinstance(frame, Join) else frame)
    if found.isStreaming:
        raise DefinitionError(
            f"Table '{name}' is a streaming frame; a table is a static one: use wm.stream('{name}', ..., time='...')."
        )
    if not isinstance(refresh, bool):
        raise DefinitionError(f"Table '{name}': refresh={refresh!r} is neither True nor False.")
    promises = declared(name, (), None)
    part = Part(name, found, arrow_schema(found), "", Window(), None, None, None, promises, table=True, refresh=refresh)
    return Stream(part)


def timed(streams: Sequence[Part]) -> list[Part]:
    """Return the streams of a join, tables among them with a time before all others, of the type that streams have."""
    first = next((given for given in streams if not given.table), None)
    column = None if first is None else first.schema.field(first.time)
    ntz = column is not None and getattr(column.type, "tz", "UTC") is None
    moment = table_time(T.TimestampNTZType() if ntz else T.TimestampType())
    return [_timed(given, moment) if given.table else given for given in streams]


def table_time(kind: T.DataType) -> Column:
    """Return the time of a table's rows: before all others."""
    return F.timestamp_micros(F.lit(BEFORE_ALL)).cast(kind)


def _timed(given: Part, moment: Column) -> Part:
    assert isinstance(given.frame, DataFrame)
    frame = given.frame.withColumn(TABLE_TIME, moment)
    return replace(given, frame=frame, schema=arrow_schema(frame), time=TABLE_TIME)


def check_name(name: object) -> None:
    """Check the name of a stream.

    Raises:
        DefinitionError: If it can't be one.
    """
    if not isinstance(name, str):
        raise DefinitionError(
            f"{shorten(name)} can't name a stream: its name comes first, as in wm.stream('a', frame, ...)."
        )
    if not name.isidentifier():
        raise DefinitionError(f"{name!r} can't name a stream: use letters, digits and underscores.")
    if name.lower() in ("_time", ID) or name.lower().startswith(OURS):
        raise DefinitionError(f"'{name}' can't name a stream: that name is reserved; use another.")


def check_text(what: str, given: object, example: str, several: str = "") -> None:
    """Check an argument that is a text, or None.

    Args:
        what: Its name.
        given: What was given.
        example: Such a text.
        several: What to do instead of giving a list.

    Raises:
        DefinitionError: If it is anything else.
    """
    if given is None or isinstance(given, str):
        return
    hint = "; to use a Python function, decorate it with @wm.predicate and call it by name" if callable(given) else ""
    hint = f"; {several}" if several and isinstance(given, list | tuple) else hint
    kind = with_article(type(given).__name__)
    raise DefinitionError(f"{what} must be a string such as '{example}', not {kind}{hint}.")


def _time_column(stream: str, columns: Sequence[str], time: str) -> str:
    found = [column for column in columns if column == time] or [c for c in columns if c.lower() == str(time).lower()]
    alike = [column for column in columns if found and column.lower() == found[0].lower()]
    if len(alike) > 1:
        raise DefinitionError(
            f"Stream '{stream}' has two columns called {' and '.join(alike)}; rename all but its time."
        )
    if not found and time == "_time":
        raise DefinitionError(f"Stream '{stream}' needs a time column: give time='...', one of {', '.join(columns)}.")
    if not found:
        raise DefinitionError(f"Stream '{stream}' has no time column '{time}'; it has {', '.join(columns)}.")
    return found[0]


def _window(window: str | timedelta | Window | None, what: str) -> Window:
    if window is None:
        return Window()
    return window if isinstance(window, Window) else Sliding(microseconds(window, what, 1))
