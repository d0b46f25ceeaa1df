"""`wm.join`: from streams and conditions to a checked join."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.adapt.auto import Auto
from watersmeet.batch.plan import start, view
from watersmeet.errors import DefinitionError
from watersmeet.formatting import with_article
from watersmeet.metadata.constraints import Inherited
from watersmeet.metadata.propagation import inherited, without_useless
from watersmeet.ordering import ordering
from watersmeet.placement import PSP, Strategy
from watersmeet.predicate.python import Predicates, check_predicates
from watersmeet.predicate.scope import TABLE_TIME
from watersmeet.query.as_of import AsOf, apply_tolerances
from watersmeet.query.optional_streams import check_optional, check_selected_columns, derive_windows, read_how, read_on
from watersmeet.query.query import RESULT_TIME, DelayFrom, NestedTimes, Output, Query, StreamSpec
from watersmeet.query.windows import window_reaching
from watersmeet.spark.api.constraints import Resolver
from watersmeet.spark.api.join import Join
from watersmeet.spark.api.spill import check_spill, weighted
from watersmeet.spark.api.stream import Part, Stream, check_text, timed
from watersmeet.spark.output.identity import ID
from watersmeet.spark.run import checks
from watersmeet.spark.run.frames import Told, quoted
from watersmeet.spark.sql.dialect import dialect_of
from watersmeet.spark.sql.select import KEPT, Selected, Selection, check, check_untrusted, parse_select
from watersmeet.spark.sql.select_columns import check_select, read_columns
from watersmeet.spark.sql.where import Criteria, Where, read_where
from watersmeet.spilling.options import Spill


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
    how: Mapping[str, str | AsOf] | None = None,
    on: Mapping[str, str | Column] | None = None,
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
            promise, by conditions on event times or since an as-of join has a newer one: 1 takes the least memory, more
            take less time.
        remember: For how long, by the watermark, values and punctuations are remembered by which rows are denied, such
            as `"1 day"`; by default for ever. See docs/metadata.md.
        spill: When work is put off, to be paid for later, such as `wm.Spill(within="1 second")`; by default never. See
            docs/spilling.md.
        identity: Whether results without a SELECT list have an `_id` too, after `_time`; a list names it like any other
            column. It is the same however often a result is written; see docs/guarantees.md.
        untrusted: Whether `where` and `select` come from people, who may not do what the program may: then they hold
            only Spark's own functions that compute and nothing else. See docs/semantics.md.
        how: The optional streams, by name: `"left"` if results have NULL where there is no partner, `"semi"` if there
            must be one, `"anti"` if there must be none, `"full"`, of two streams, if both have NULL where there is no
            partner, `"asof"` or `wm.asof(...)` if only the newest partner counts that is no later. Conditions that name
            such a stream say what its partners are. See docs/outer-joins.md.
        on: For optional streams, by name, conditions that say what their partners are, whatever they name, as after
            ON in SQL: `on={"b": "b.id = a.id AND a.total > 5"}`. Conditions in `where` that name the stream are
            then refused.

    Raises:
        DefinitionError: If the join can't be; SQL errors underline the span.
    """
    options = JoinOptions(predicates, strategy, order, purge_every, remember, spill, identity, untrusted)
    return define(streams, Conditions(where, on, how), select, options)


@dataclass(frozen=True)
class JoinOptions:
    """What `wm.join` and `wm.sql` take alike; see `join`."""

    predicates: Predicates = ()
    strategy: Strategy | None = None
    order: str = "given"
    purge_every: int = 1
    remember: str | timedelta | None = None
    spill: Spill | None = None
    identity: bool = False
    untrusted: bool = False

    @property
    def inside(self) -> "JoinOptions":
        """The same for a join within another: the outermost says what is put off, and shows ids."""
        return replace(self, spill=None, identity=False)


class Conditions(NamedTuple):
    """What a join asks of its streams; see `join`.

    Attributes:
        where: What is asked of all combinations.
        on: What is asked of partners, by optional stream.
        how: The optional streams.
        filter: What is asked of results, their optional streams included; None for nothing.
    """

    where: str | Column | None = None
    on: Mapping[str, str | Column] | None = None
    how: Mapping[str, str | AsOf] | None = None
    filter: str | None = None


def define(
    streams: Sequence[Stream],
    conditions: Conditions,
    select: str | Sequence[str | Column] | None,
    options: JoinOptions,
) -> Join:
    """Define a join; see `join`."""
    for odd in (one for one in streams if not isinstance(one, Stream)):
        several = isinstance(odd, list | tuple)
        hint = "write wm.join(*streams)" if several else "wrap it, as in wm.stream('a', frame, time='ts')"
        kind = with_article(type(odd).__name__)
        raise DefinitionError(f"wm.join takes streams made by wm.stream(...) and wm.table(...), not {kind}; {hint}.")
    where = conditions.where
    if not isinstance(where, Column):
        check_text("where", where, "a.x < b.y", "combine conditions with AND, and columns with &")
    for name, condition in (conditions.on or {}).items() if isinstance(conditions.on, Mapping) else ():
        if not isinstance(condition, Column):
            _check_condition(name, condition)
    columns = check_select(select)
    called, strategy, identity, spill = (
        check_predicates(options.predicates),
        options.strategy,
        options.identity,
        options.spill,
    )
    if strategy is not None and not isinstance(strategy, Strategy):
        shown = f"wm.{strategy.__name__}, without ()" if isinstance(strategy, type) else repr(strategy)
        raise DefinitionError(f"strategy={shown}: use wm.PSP(nodes=...), ATR, CTR, DSJ, Hash, Auto or Central.")
    purge_every, untrusted = checks.purge_every(options.purge_every), checks.truth("untrusted", options.untrusted)
    remembered = checks.remember(options.remember)
    parts = tuple(timed([one._ws_part for one in streams]))
    frames = tuple(None if isinstance(part.frame, Join) else part.frame for part in parts)
    inner = {at: part.frame for at, part in enumerate(parts) if isinstance(part.frame, Join)}
    optional = read_how(conditions.how, specs := _specs(parts))
    specs = apply_tolerances(specs, conditions.how)
    query = Query(specs, how=optional, filter=conditions.filter or "")
    criteria = Criteria(where, read_on(conditions.on, query), query.is_full)
    draft = Join(query, frames, PSP(1), inner=inner)
    dialect = dialect_of(draft.spark)
    if untrusted and (columns is not None or any(isinstance(part, Column) for part, _ in criteria.parts)):
        raise DefinitionError("untrusted=True is for text that people wrote: give where, on and select as strings.")
    read = read_where(draft.spark, criteria, specs, draft.kinds, called, dialect, untrusted, frames)
    _check_on(read, criteria, query)
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
        filter=query.filter,
    )
    whole = _delayed(derive_windows(given), parts)
    check_optional(whole, streaming=any(part.streaming for part in parts), spilling=spill is not None)
    full = weighted(without_useless(whole), spill)
    chosen, sequence = _checked(strategy or Auto(), full), ordering(options.order)
    made = Join(full, frames, chosen, sequence, computed, inner, read, told, purge_every, remembered, spill, identity)
    check_spill(made)
    return made


def _check_condition(name: str, condition: object) -> None:
    """Check what is to be a text that says what a stream's matches are.

    Raises:
        DefinitionError: If it is none, or empty.
    """
    if condition is None or not str(condition).strip():
        raise DefinitionError(f"on={{{name!r}: {condition!r}}}: there is no condition; write 'TRUE' if all match.")
    check_text(f"on={{{name!r}: ...}}", condition, "b.id = a.id", "combine conditions with AND, and columns with &")


def _check_on(read: Where, criteria: Criteria, query: Query) -> None:
    """Check that what `where` asks says nothing of streams whose partners are described apart.

    Raises:
        DefinitionError: If it does: in SQL that would be a condition on results.
    """
    for named, partners in zip(read.reads, read.partners, strict=True):
        for name in (query.streams[at].name for at in sorted(named) if at in criteria.on and not partners):
            raise DefinitionError(
                f"WHERE names '{name}', whose matches are described apart: put all conditions on it after ON, or into "
                f"on={{'{name}': ...}}."
            )


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
    """Return what a stream that is a join promises by the punctuations of its own streams.

    [!] Nothing where its results wait for partners: they may come after the punctuation.
    """
    if not isinstance(given.frame, Join) or given.frame.query.waits:
        return iter(())
    return inherited(given.frame.query, given.frame.shows)


def _checked(strategy: Strategy, query: Query) -> Strategy:
    """Return the strategy for the streams of a join.

    Raises:
        DefinitionError: If it can't serve them.
    """
    named = strategy.resolve_streams([stream.name for stream in query.streams])
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
            nested=NestedTimes(given.frame.times(given.time), given.delay is not None, given.frame.query.waits)
            if isinstance(given.frame, Join)
            else None,
            ahead=None if isinstance(given.frame, Join) else given.ahead,
            table=given.table,
            refreshed=given.refresh,
        )
        for given in streams
    )


def _delayed(query: Query, streams: Sequence[Part]) -> Query:
    """Return a join with the delays that streams have by default: their watermark's, or what windows or conditions say.

    Conditions on event times count where there are no windows by time: both say how far apart tuples may be.
    """
    spans = [span for spec in query.streams if (span := spec.window.bound) is not None]
    timed = [at for at, spec in enumerate(query.streams) if not spec.table]
    bounds = [window_reaching(micros).bound for micros in query.reaches(timed).values()]
    default = max(spans) if spans else max(bounds, default=0)
    source: DelayFrom = "windows" if spans else "conditions"
    specs = list(query.streams)
    for at, given in enumerate(streams):
        if given.delay is None and given.watermark is None:
            specs[at] = replace(specs[at], delay=default, delay_from=source)
        elif given.delay is None and given.watermark is not None:
            specs[at] = replace(specs[at], delay=given.watermark, delay_from="watermark")
    return replace(query, streams=tuple(specs))


def _outputs(
    select: Any, join: Join, untrusted: bool, identity: bool
) -> tuple[tuple[Output, ...], Selection | None, str]:
    """Return the engine's output columns, the SELECT list itself if Spark must compute it from them, and its text."""
    ours = select is None
    if ours:
        shown = [stream for at, stream in enumerate(join.query.streams) if at not in join.query.hidden_streams]
        columns = [(stream.name, stream.schema.names) for stream in shown]
        checks.alike(columns, "results show every column: rename one, or say what to show with select='...'")
        if not any(stream.table for stream in shown) and not join.query.filter:
            return (), None, ""
        select = _shown(join.query, identity)
    parsed = _parsed(select, join, untrusted, ours)
    check_selected_columns(join.query, parsed.computed.columns)
    text = parsed.computed.text
    if parsed.plain is not None and not parsed.computed.filters:
        return parsed.plain, None, text
    outputs = tuple(Output(column.name, column) for column in parsed.computed.columns or (RESULT_TIME,))
    trial = replace(join, query=replace(join.query, outputs=outputs), identity=parsed.computed.identity)
    none = trial._structs(trial._no_results())
    if untrusted:
        return outputs, check_untrusted(parsed.computed, none), text
    check(parsed.computed, none)
    return outputs, parsed.computed, text


def _parsed(select: Any, join: Join, untrusted: bool, ours: bool) -> Selected:
    """Return a SELECT list, read; what is asked of results is one more item of it."""
    condition = join.query.filter
    if isinstance(select, str):
        text = f"{select}, ({condition}) AS {KEPT}" if condition else select
        parsed = parse_select(text, join.query, join.spark, untrusted)
    else:
        columns = [*select, F.expr(condition).alias(KEPT)] if condition else select
        named = zip((stream.name for stream in join.query.streams), join.frames, strict=True)
        parsed = read_columns(columns, join.query, join.spark, dict(named), ours)
    return replace(parsed, computed=replace(parsed.computed, filters=True)) if condition else parsed


def _shown(query: Query, identity: bool) -> list[Column]:
    """Return one struct column per stream, and `_time`, where tables have a column that nobody is to see."""
    shown = [
        struct_of(spec.name, spec.schema.names, at in query.nullable_streams, spec.schema.names[spec.time])
        for at, spec in enumerate(query.streams)
        if at not in query.hidden_streams
    ]
    return [*shown, F.col("_time"), *([F.col(ID)] if identity is True else [])]


def struct_of(stream: str, names: Sequence[str], lacking: bool, time: str) -> Column:
    """Return the tuple of a stream as a struct column of that name.

    Args:
        stream: The stream.
        names: Its columns.
        lacking: Whether results may lack it: then its time is NULL.
        time: Its time column.
    """
    columns = {name: F.col(f"{quoted(stream)}.{quoted(name)}") for name in names}
    struct = F.struct(*(column for name, column in columns.items() if name != TABLE_TIME))
    return (F.when(columns[time].isNotNull(), struct) if lacking else struct).alias(stream)
