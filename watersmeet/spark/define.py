"""`wm.join` and `wm.sql`: from streams and text to a checked join."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.adapt.auto import Auto
from watersmeet.engine.plan import start, view
from watersmeet.errors import DefinitionError
from watersmeet.model.metadata import Inherited
from watersmeet.model.outer import check_outer, check_shown, hows, windowed
from watersmeet.model.query import RESULT_TIME, Nested, Output, Query, StreamSpec
from watersmeet.model.statement import SourceStream, Statement, parse_statement
from watersmeet.model.windows import Window
from watersmeet.ordering import ordering
from watersmeet.placement import PSP, Strategy
from watersmeet.predicate.python import Predicates, checked
from watersmeet.predicate.scope import TABLE_TIME
from watersmeet.retention.propagation import inherited, without_useless
from watersmeet.show import with_article
from watersmeet.spark import checks
from watersmeet.spark.dialect import dialect_of
from watersmeet.spark.frames import Told, quoted
from watersmeet.spark.identity import ID
from watersmeet.spark.join import Join
from watersmeet.spark.promises import Resolver
from watersmeet.spark.select import Selection, check, check_untrusted, parse_select
from watersmeet.spark.select_columns import check_select, read_columns
from watersmeet.spark.spill import check_spill, weighted
from watersmeet.spark.stream import Part, Stream, check_name, check_text, stream, timed
from watersmeet.spark.where import Where, clauses_of, read_where
from watersmeet.spilling import Spill


def join(
    *streams: Stream,
    where: str | Column | None = None,
    select: str | Sequence[str | Column] | None = None,
    predicates: Predicates = (),
    strategy: Strategy | None = None,
    order: str = "given",
    purge_every: int = 1,
    remember: str | timedelta | None = None,
    spill: Spill | None = None,
    identity: bool = False,
    untrusted: bool = False,
    how: Mapping[str, str] | None = None,
) -> Join:
    """Join streams under any predicate.

    Args:
        *streams: Two or more, each made by `wm.stream` or, to look rows up in, `wm.table`.
        where: The condition in Spark SQL, or a column such as `(a.x < b.x) & (a.zone == b.zone)`, with Python
            predicates mixed in; None for every combination in the windows.
        select: A SELECT list for flat output columns, or a list of columns; by default one struct column per stream,
            and `_time`.
        predicates: The Python predicates that `where` calls: a list, or a dict by their names.
        strategy: Where tuples are kept; by default `wm.Auto()`.
        order: In which order streams are probed: `given`, `selectivity` or `histogram`.
        purge_every: After how many batches tuples are looked for that can no longer join anything, by what streams
            promise or by conditions on event times: 1 takes the least memory, more take less time.
        remember: For how long, by the watermark, values and punctuations are remembered by which rows are denied, such
            as `"1 day"`; by default for ever. See docs/metadata.md.
        spill: When work is put off, to be paid for later, such as `wm.Spill(within="1 second")`; by default never. See
            docs/spilling.md.
        identity: Whether results without a SELECT list have an `_id` too, after `_time`; a list names it like any other
            column. It is the same however often a result is written; see docs/guarantees.md.
        untrusted: Whether `where` and `select` come from people, who may not do what the program may: then they hold
            only Spark's own functions that compute and nothing else. See docs/semantics.md.
        how: The optional streams, by name: `"left"` if results have NULL where there is no partner, `"semi"` if there
            must be one, `"anti"` if there must be none. Conditions that name such a stream say what its partners are.
            See docs/outer-joins.md.

    Raises:
        DefinitionError: If the join can't be; SQL errors underline the span.
    """
    for odd in (one for one in streams if not isinstance(one, Stream)):
        several = isinstance(odd, list | tuple)
        hint = "write wm.join(*streams)" if several else "wrap it, as in wm.stream('a', frame, time='ts')"
        kind = with_article(type(odd).__name__)
        raise DefinitionError(f"wm.join takes streams made by wm.stream(...) and wm.table(...), not {kind}; {hint}.")
    if not isinstance(where, Column):
        check_text("where", where, "a.x < b.y", "combine conditions with AND, and columns with &")
    columns = check_select(select)
    called = checked(predicates)
    if strategy is not None and not isinstance(strategy, Strategy):
        shown = f"wm.{strategy.__name__}, without ()" if isinstance(strategy, type) else repr(strategy)
        raise DefinitionError(f"strategy={shown}: use wm.PSP(nodes=...), ATR, CTR, DSJ, Hash, Auto or Central.")
    purge_every, untrusted = checks.purge_every(purge_every), checks.truth("untrusted", untrusted)
    remembered = checks.remember(remember)
    parts = tuple(timed([one._ws_part for one in streams]))
    frames = tuple(None if isinstance(part.frame, Join) else part.frame for part in parts)
    inner = {at: part.frame for at, part in enumerate(parts) if isinstance(part.frame, Join)}
    specs = _specs(parts)
    optional = hows(how, specs)
    query = Query(specs, how=optional)
    draft = Join(query, frames, PSP(1), inner=inner)
    dialect = dialect_of(draft.spark)
    if untrusted and (columns is not None or isinstance(where, Column)):
        raise DefinitionError("untrusted=True is for text that people wrote: give where and select as strings.")
    read = read_where(draft.spark, where, specs, draft.kinds, called, dialect, untrusted, frames)
    outputs, computed, shown = _outputs(select if columns is None else columns, draft, untrusted, identity)
    identity = checks.identity(identity, select, computed is not None and computed.identity)
    promised, told = _promised(_with_hidden(specs, read), parts, draft.kinds)
    given = Query(
        promised,
        read.conjuncts,
        read.text,
        outputs,
        called,
        dialect,
        shown,
        read.meaning,
        read.careful,
        read.flags,
        how=optional,
    )
    whole = _delayed(windowed(given), parts)
    check_outer(whole, streaming=any(part.streaming for part in parts), spilling=spill is not None)
    full = weighted(without_useless(whole), spill)
    chosen = _checked(strategy or Auto(), full)
    made = Join(
        full, frames, chosen, ordering(order), computed, inner, read, told, purge_every, remembered, spill, identity
    )
    check_spill(made)
    return made


def _with_hidden(specs: Sequence[StreamSpec], read: Where) -> tuple[StreamSpec, ...]:
    """Return the streams with what Spark computes of their tuples."""
    return tuple(
        replace(spec, hidden=tuple(made.hidden for made in computed), tests=tests)
        for spec, computed, tests in zip(specs, read.computed, read.tests, strict=True)
    )


def _promised(
    specs: Sequence[StreamSpec], streams: Sequence[Part], kinds: Sequence[T.StructType]
) -> tuple[tuple[StreamSpec, ...], tuple[Told, ...]]:
    """Return the streams with what they promise, and the punctuations from frames of their own."""
    resolver = Resolver(specs, kinds, [given.streaming for given in streams])
    found = [resolver.resolved(at, given.declared) for at, given in enumerate(streams)]
    full = tuple(
        replace(spec, hidden=spec.hidden + made.hidden, promises=(*made.promises, *_inherited(given)))
        for spec, made, given in zip(specs, found, streams, strict=True)
    )
    return full, tuple(told for made in found for told in made.told)


def _inherited(given: Part) -> Iterator[Inherited]:
    """Return what a stream that is a join promises by the punctuations of its own streams."""
    return inherited(given.frame.query, given.frame.shows) if isinstance(given.frame, Join) else iter(())


def _checked(strategy: Strategy, query: Query) -> Strategy:
    """Return the strategy for the streams of a join.

    Raises:
        DefinitionError: If it can't serve them.
    """
    named = strategy.named([stream.name for stream in query.streams])
    refusal = named.refusal(view(query, start(query)))
    if refusal is not None:
        raise DefinitionError(f"{named.describe()}: {refusal}")
    return named


def _specs(streams: Sequence[Part]) -> tuple[StreamSpec, ...]:
    return tuple(
        StreamSpec(
            given.name,
            given.schema,
            given.schema.names.index(given.time),
            given.window,
            given.delay or 0,
            given.idle,
            nested=Nested(given.frame.times(given.time), given.delay is not None)
            if isinstance(given.frame, Join)
            else None,
            ahead=None if isinstance(given.frame, Join) else given.ahead,
            table=given.table,
            refreshed=given.refresh,
        )
        for given in streams
    )


def _delayed(query: Query, streams: Sequence[Part]) -> Query:
    """Return a join with the delays that streams have by default: its largest time window, whoever wrote that."""
    default = max((spec.window.span for spec in query.streams if spec.window.span is not None), default=0)
    specs = (
        replace(spec, delay=default) if given.delay is None else spec
        for spec, given in zip(query.streams, streams, strict=True)
    )
    return replace(query, streams=tuple(specs))


def _outputs(
    select: Any, join: Join, untrusted: bool, identity: bool
) -> tuple[tuple[Output, ...], Selection | None, str]:
    """Return the engine's output columns, the SELECT list itself if Spark must compute it from them, and its text."""
    ours = select is None
    if ours:
        shown = [stream for at, stream in enumerate(join.query.streams) if at not in join.query.hides]
        columns = [(stream.name, stream.schema.names) for stream in shown]
        checks.alike(columns, "results show every column: rename one, or say what to show with select='...'")
        if not any(stream.table for stream in shown):
            return (), None, ""
        select = _shown(join.query, identity)
    if isinstance(select, str):
        parsed = parse_select(select, join.query, join.spark, untrusted)
    else:
        named = zip((stream.name for stream in join.query.streams), join.frames, strict=True)
        parsed = read_columns(select, join.query, join.spark, dict(named), ours)
    check_shown(join.query, parsed.computed.columns)
    text = parsed.computed.text
    if parsed.plain is not None:
        return parsed.plain, None, text
    outputs = tuple(Output(column.name, column) for column in parsed.computed.columns or (RESULT_TIME,))
    trial = replace(join, query=replace(join.query, outputs=outputs), identity=parsed.computed.identity)
    none = trial._structs(trial._no_results())
    if untrusted:
        return outputs, check_untrusted(parsed.computed, none), text
    check(parsed.computed, none)
    return outputs, parsed.computed, text


def _shown(query: Query, identity: bool) -> list[Column]:
    """Return one struct column per stream, and `_time`, where tables have a column that nobody is to see."""
    shown = []
    for at, spec in enumerate(query.streams):
        columns = {name: F.col(f"{quoted(spec.name)}.{quoted(name)}") for name in spec.schema.names}
        struct = F.struct(*(column for name, column in columns.items() if name != TABLE_TIME))
        if at in query.optional:  # a stream that a result lacks has no time
            struct = F.when(columns[spec.schema.names[spec.time]].isNotNull(), struct)
        shown += [] if at in query.hides else [struct.alias(spec.name)]
    return [*shown, F.col("_time"), *([F.col(ID)] if identity is True else [])]


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
        text: The statement. Windows are `[RANGE size]`, `[RANGE size SLIDE step]`, `[ROWS n]`, or none for unbounded;
            `WATTR column` inside a window names the stream's time column. A stream may have an alias, before its
            window or behind it, such as `orders [ROWS 100] AS o`, and with two aliases it is two streams. Promises may
            follow a window, each after a comma, such as
            `[KEY (id), ORDERED BY seq SLACK 100, PUNCTUATED BY is_end ON auction]`; see docs/metadata.md. Optional
            streams follow with `LEFT [SEMI | ANTI] JOIN c [RANGE size] ON condition`, or are asked for in WHERE with
            `[NOT] EXISTS (SELECT 1 FROM c [RANGE size] WHERE condition)`; see docs/outer-joins.md.
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
        DefinitionError: If the join can't be.
    """
    if text is None or not isinstance(streams, Mapping):
        odd = "text is None" if text is None else f"streams is {with_article(type(streams).__name__)}"
        raise DefinitionError(
            f"{odd}: wm.sql takes a string and a dict of frames, as in wm.sql('SELECT ..', {{'a': a, 'b': b}})."
        )
    check_text("text", text, "SELECT a.id FROM a [RANGE 10 SECONDS], b [ROWS 100] WHERE a.x < b.y")
    check_text("time", time, "ts")
    statement = parse_statement(text, streams)
    made = []
    for source in statement.streams:
        given, column = streams[source.key], source.time or time
        if isinstance(given, Stream):
            made.append(_table(source, given))
            continue
        if column is None:
            raise DefinitionError(f"Stream '{source.name}' has no time column: pass time='...' or write WATTR.")
        options: dict[str, Any] = {"time": column, "window": source.window, "delay": delay, "ahead": ahead}
        options |= {"punctuations": source.punctuations, "constraints": source.constraints}
        made.append(stream(source.name, given, **options))
    if len(made) == 1 and re.search(r"\(\s*SELECT\b", statement.condition or "", re.IGNORECASE):
        raise DefinitionError(
            "A subquery in WHERE must be EXISTS (SELECT ..) or NOT EXISTS (SELECT ..), as a condition of its own and "
            "not in parentheses; write NOT IN (SELECT ..) as NOT EXISTS."
        )
    joined = join(
        *made,
        where=statement.condition,
        select=statement.select,
        predicates=predicates,
        strategy=strategy,
        order=order,
        purge_every=purge_every,
        remember=remember,
        spill=spill,
        identity=identity,
        untrusted=untrusted,
        how={name: kind for name, (kind, _) in statement.optional.items()},
    )
    _check_clauses(joined, statement)
    return joined


def _table(source: SourceStream, given: Stream) -> Stream:
    """Return a table under the name that a statement gives it.

    Raises:
        DefinitionError: If it is no table, or the statement gives it a window, a time or promises.
    """
    if not given._ws_part.table:
        raise DefinitionError(
            f"Stream '{source.name}': give wm.sql the frame itself, not wm.stream(...); its window and its time column "
            "are part of the statement."
        )
    if source != SourceStream(source.name, Window(), None, alias_of=source.alias_of):
        raise DefinitionError(f"Table '{source.name}' has no times: write {source.key} without brackets after FROM.")
    check_name(source.name)
    return Stream(replace(given._ws_part, name=source.name))


def _check_clauses(join: Join, statement: Statement) -> None:
    """Check that WHERE speaks of required streams alone, and each ON of its own stream.

    Raises:
        DefinitionError: If one doesn't: SQL means something else by it than a join does.
    """
    query, reads = join.query, iter(join.where.reads)
    for clause in clauses_of(join.spark, statement.where) if statement.optional else ():
        for name in (query.streams[at].name for at in sorted(next(reads)) if at in query.optional):
            raise DefinitionError(
                f"WHERE {clause}: {name} is optional, so put conditions on it after ON; for results without a "
                f"partner, write LEFT ANTI JOIN {name} or NOT EXISTS."
            )
    for name, (_, on) in statement.optional.items():
        for clause in clauses_of(join.spark, on):
            read = next(reads)  # [!] a constant says the same wherever it stands
            if read and not any(query.streams[at].name == name for at in read):
                raise DefinitionError(f"The condition {clause} says nothing of {name}: put it into WHERE.")
