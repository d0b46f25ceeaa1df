"""`wm.sql`: a join as text."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from pyspark.sql import DataFrame

from watersmeet.errors import DefinitionError
from watersmeet.formatting import with_article
from watersmeet.placement import Strategy
from watersmeet.predicate.python import Predicates
from watersmeet.query.statement import SourceStream, parse_statement
from watersmeet.query.windows import Window
from watersmeet.spark.api.define import Join, JoinOptions
from watersmeet.spark.api.stream import Stream, check_name, check_text, stream
from watersmeet.spark.sql.relations import join_statement
from watersmeet.spilling.options import Spill


def sql(
    text: str,
    streams: Mapping[str, DataFrame | Stream],
    *,
    time: str | None = None,
    delay: str | timedelta | None = None,
    ahead: str | timedelta | None = "1 day",
    predicates: Predicates = (),
    strategy: Strategy | None = None,
    order: str = "given",
    purge_every: int = 1,
    remember: str | timedelta | None = None,
    spill: Spill | None = None,
    identity: bool = False,
    untrusted: bool = False,
) -> Join:
    """Join streams as text: `SELECT a.id, b.id AS other FROM a [RANGE 10 SECONDS], b [ROWS 100] WHERE a.x < b.y`.

    Args:
        text: The statement. Windows are `[RANGE size]`, `[RANGE size TUMBLING]`, `[RANGE size SLIDE step]`, with
            `CLOSED LEFT` if they are `[start, end)`, `[ROWS n]`, or none for unbounded; `WATTR column` inside a window
            names the stream's time column. A stream may have an alias, before its window or behind it, such as
            `orders [ROWS 100] AS o`, and with two aliases it is two streams. Constraints may follow a window, each
            after a comma, such as `[KEY (id), ORDERED BY seq SLACK 100, PUNCTUATED BY is_end ON auction]`; see
            docs/metadata.md. Streams may be joined with
            `[INNER | LEFT | RIGHT | FULL | LEFT SEMI | LEFT ANTI | ASOF] JOIN c [RANGE size] ON condition`, or
            `USING (columns)`, and asked for in WHERE with `[NOT] EXISTS (SELECT 1 FROM c [RANGE size] WHERE ..)` or
            `x [NOT] IN (SELECT c.y FROM c [RANGE size] WHERE ..)`; see docs/outer-joins.md.
        streams: The frames, by the names the statement uses; a static one to look rows up in is a `wm.table`.
        time: The time column of streams without WATTR.
        delay: See `wm.stream`.
        ahead: See `wm.stream`.
        predicates: See `wm.join`.
        strategy: See `wm.join`.
        order: See `wm.join`.
        purge_every: See `wm.join`.
        remember: See `wm.join`.
        spill: See `wm.join`.
        identity: See `wm.join`; for `SELECT *`.
        untrusted: Whether the text comes from people; see `wm.join`.

    Raises:
        SqlError: If the statement can't be parsed; the span is underlined.
        DefinitionError: If the join is not possible.
    """
    if text is None or not isinstance(streams, Mapping):
        problem = "text is None" if text is None else f"streams is {with_article(type(streams).__name__)}"
        raise DefinitionError(
            f"{problem}: wm.sql takes a string and a dict of frames, as in wm.sql('SELECT ..', {{'a': a, 'b': b}})."
        )
    check_text("text", text, "SELECT a.id FROM a [RANGE 10 SECONDS], b [ROWS 100] WHERE a.x < b.y")
    check_text("time", time, "ts")
    statement = parse_statement(text, streams)
    sources = {
        source.name: _table(source, frame)
        if isinstance(frame := streams[source.key], Stream)
        else _stream(source, frame, time, delay, ahead)
        for source in statement.streams
    }
    options = JoinOptions(predicates, strategy, order, purge_every, remember, spill, identity, untrusted)
    return join_statement(statement, sources, options)


def _stream(
    source: SourceStream,
    frame: DataFrame,
    time: str | None,
    delay: str | timedelta | None,
    ahead: str | timedelta | None,
) -> Stream:
    """Return a frame as a stream of a statement.

    Raises:
        DefinitionError: If it has no time column.
    """
    column = source.time or time
    if column is None:
        raise DefinitionError(f"Stream '{source.name}' has no time column: pass time='...' or write WATTR.")
    return stream(
        source.name,
        frame,
        time=column,
        window=source.window,
        delay=delay,
        ahead=ahead,
        punctuations=source.punctuations,
        constraints=source.constraints,
    )


def _table(source: SourceStream, table: Stream) -> Stream:
    """Return a table under its name in a statement.

    Raises:
        DefinitionError: If it is not a table, or the statement gives it a window, a time or constraints.
    """
    if not table._ws_part.table:
        raise DefinitionError(
            f"Stream '{source.name}': give wm.sql the frame itself, not wm.stream(...); its window and its time column "
            "are part of the statement."
        )
    if source != SourceStream(source.name, Window(), None, alias_of=source.alias_of):
        raise DefinitionError(f"Table '{source.name}' has no times: write {source.key} without brackets after FROM.")
    check_name(source.name)
    return Stream(replace(table._ws_part, name=source.name))
