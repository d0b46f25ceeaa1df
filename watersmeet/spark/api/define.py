"""`wm.join`, which defines and checks a join, and the `Join` that it returns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from watersmeet.adapt.auto import Auto
from watersmeet.adapt.findings import Finding
from watersmeet.batch.plan import start, view
from watersmeet.errors import DefinitionError
from watersmeet.formatting import with_article
from watersmeet.metadata.constraints import InheritedPunctuations
from watersmeet.metadata.propagation import drop_useless_punctuations, inherit_punctuations
from watersmeet.observe.dashboard.notebook import render_definition, stream_table
from watersmeet.observe.explain import explain
from watersmeet.observe.why.answer import Answer
from watersmeet.observe.why.question import Values
from watersmeet.ordering import ordering
from watersmeet.placement import PSP, Strategy
from watersmeet.predicate.python import Predicates, check_predicates
from watersmeet.query.optional_streams import AsOf, apply_tolerances, check_optional, derive_windows, read_how, read_on
from watersmeet.query.query import DelayFrom, NestedTimes, Query, StreamSpec
from watersmeet.query.windows import window_reaching
from watersmeet.spark.api.advise import check_join
from watersmeet.spark.api.constraint_resolver import ConstraintResolver
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.api.spill import check_spill, with_weight
from watersmeet.spark.api.stream import Stream, StreamPart, add_table_times, check_text
from watersmeet.spark.api.why_running import merge_values
from watersmeet.spark.api.why_static import why_static
from watersmeet.spark.api.writer import JoinWriter
from watersmeet.spark.run import checks
from watersmeet.spark.run.frames import PunctuationFrame, host, is_local
from watersmeet.spark.sql.dialect import dialect_of
from watersmeet.spark.sql.select_columns import check_select, output_columns
from watersmeet.spark.sql.where import Criteria, Where, read_where
from watersmeet.spilling.decisions import describe_options
from watersmeet.spilling.options import Spill


class Join(JoinDefinition):
    """A join of streams; made by `wm.join` or `wm.sql`."""

    def __repr__(self) -> str:
        query = self.query
        streams = ", ".join(f"{stream.name} [{query.kind_of(at)}]" for at, stream in enumerate(query.streams))
        return f"Join({streams}; where {query.where or 'TRUE'}; {self.strategy.describe()})"

    def _repr_html_(self) -> str:
        facts = [("where", self.query.where), ("select", self.query.select), ("strategy", self.strategy.describe())]
        return render_definition(facts, stream_table(self.query))

    @property
    def writeStream(self) -> JoinWriter:
        """The writer that starts the join on streaming inputs; mirrors Spark's."""
        return JoinWriter(self)

    def check(self, samples: Mapping[str, DataFrame] | None = None) -> list[Finding]:
        """Return what is worth knowing before the join starts; `start()` logs its warnings.

        Without samples: state that grows without bound, useless constraints, streams that no condition connects with
        the others, more nodes than tasks run at once. With samples: delays shorter than the actual disorder, and, if
        every stream has a sample, Python predicates that take most of the time: these are then called for some ten
        seconds. Spark jobs read the samples.

        Args:
            samples: Static frames by stream, with their rows in the order of arrival.

        Raises:
            DefinitionError: If a sample belongs to no stream, or lacks a column.
        """
        return check_join(self, samples)

    def explain(self) -> None:
        """Print how the join runs: streams, strategy, join orders, where each conjunct is decided, what is spilled."""
        where = host(self.spark, shared=is_local(self.spark))
        print(explain(self.query, self.strategy, self.ordering, host=where))
        if self.spill is not None:
            initial = view(self.query, start(self.query), where, self.spill.partitions)
            placement = self.strategy.plan(initial).placement
            print("\n".join(describe_options(self.spill, placement.buckets if placement.apart else 1)))

    def why(self, tuples: Mapping[str, Values] | None = None, /, **streams: Values) -> Answer:
        """Return what became of tuples of static inputs, and of their combination.

        Spark looks them up in the inputs and counts results; Python predicates are called.

        Args:
            tuples: The values by which to find the tuple of each stream, as a dict or as a text.
            streams: The same, by the names of the streams: `join.why(a={"id": 17}, b="id = 4")`.

        Raises:
            DefinitionError: If an input is streaming, or there is no such stream, column or value.
        """
        return why_static(self, merge_values(tuples, streams))


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
        purge_every: Every how many batches to remove tuples that can no longer join anything, because of constraints,
            conditions on event times or a newer partner in an as-of join. 1 takes the least memory, more takes less
            time.
        remember: How long, by the watermark, to remember the values and punctuations by which rows are denied, such as
            `"1 day"`; by default for ever. See docs/metadata.md.
        spill: When to spill work, whose results are paid later, such as `wm.Spill(within="1 second")`; by default
            never. See docs/spilling.md.
        identity: Whether results without a SELECT list have an `_id` too, after `_time`; a list names it like any other
            column. It is the same however often a result is written; see docs/guarantees.md.
        untrusted: Whether `where` and `select` come from people who may do less than the program: the text may then
            only use Spark's own functions, and only those that purely compute. See docs/semantics.md.
        how: The optional streams, by name: `"left"` if results have NULL where there is no partner, `"semi"` if there
            must be one, `"anti"` if there must be none, `"full"`, of two streams, if both have NULL where there is no
            partner, `"asof"` or `wm.asof(...)` if only the newest partner that is no later counts. Conditions that name
            such a stream define its partners. See docs/outer-joins.md.
        on: Conditions that define the partners of optional streams, by name; they may name any stream, as after ON in
            SQL: `on={"b": "b.id = a.id AND a.total > 5"}`. Conditions in `where` may then not name the stream.

    Raises:
        DefinitionError: If the join is invalid; SQL errors underline the span.
    """
    options = JoinOptions(predicates, strategy, order, purge_every, remember, spill, identity, untrusted)
    return define(streams, Conditions(where, on, how), select, options)


@dataclass(frozen=True)
class JoinOptions:
    """The options that `wm.join` and `wm.sql` share; see `join`."""

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
        """The options of a join within another: only the outermost spills, and has ids."""
        return replace(self, spill=None, identity=False)


class Conditions(NamedTuple):
    """The conditions of a join; see `join`.

    Attributes:
        where: The condition on combinations.
        on: The conditions on partners, by optional stream.
        how: The optional streams.
        filter: The condition on results, including their optional streams; None for none.
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
    """Define a join; see `join`.

    Has Spark parse and analyse conditions and columns, and warns of texts that it would cast implicitly.

    Raises:
        DefinitionError: If the join is invalid.
    """
    _check_streams(streams)
    _check_conditions(conditions)
    columns, predicates = check_select(select), check_predicates(options.predicates)
    _check_strategy(options.strategy)
    purge_every, untrusted = (
        checks.parse_purge_every(options.purge_every),
        checks.parse_bool("untrusted", options.untrusted),
    )
    remember, spill = checks.parse_remember(options.remember), options.spill
    parts = tuple(add_table_times([stream._ws_part for stream in streams]))
    draft = _draft(parts, conditions.how, conditions.filter or "")
    query, dialect = draft.query, dialect_of(draft.spark)
    criteria = Criteria(conditions.where, read_on(conditions.on, query), query.is_full)
    if untrusted and (columns is not None or any(isinstance(part, Column) for part, _ in criteria.parts)):
        raise DefinitionError("untrusted=True is for text that people wrote: give where, on and select as strings.")
    where = read_where(draft.spark, criteria, query.streams, draft.kinds, predicates, dialect, untrusted, draft.frames)
    _check_on(where, criteria, query)
    selected = select if columns is None else columns
    outputs, selection, text = output_columns(selected, draft, untrusted, options.identity)
    identity = checks.parse_identity(options.identity, select, selection is not None and selection.identity)
    specs, punctuations = _with_constraints(_with_hidden(query.streams, where), parts, draft.kinds)
    complete = Query(
        specs,
        where.conjuncts,
        where.text,
        outputs,
        predicates,
        dialect,
        text,
        where.meaning,
        where.careful,
        where.flags,
        how=query.how,
        filter=query.filter,
    )
    complete = _with_delays(derive_windows(complete), parts)
    check_optional(complete, streaming=any(part.streaming for part in parts), spilling=spill is not None)
    complete = with_weight(drop_useless_punctuations(complete), spill)
    strategy = _for_streams(options.strategy or Auto(), complete)
    how = (strategy, ordering(options.order), selection, draft.inner, where, punctuations)
    whole = Join(complete, draft.frames, *how, purge_every, remember, spill, identity)
    check_spill(whole)
    return whole


def _check_streams(streams: Sequence[object]) -> None:
    """Raise DefinitionError for a stream that neither `wm.stream` nor `wm.table` made."""
    for value in (one for one in streams if not isinstance(one, Stream)):
        hint = "wrap it, as in wm.stream('a', frame, time='ts')"
        hint = "write wm.join(*streams)" if isinstance(value, list | tuple) else hint
        kind = with_article(type(value).__name__)
        raise DefinitionError(f"wm.join takes streams made by wm.stream(...) and wm.table(...), not {kind}; {hint}.")


def _check_conditions(conditions: Conditions) -> None:
    """Raise DefinitionError for a condition in `where` or `on` that is neither a column nor a text, or is empty."""
    if not isinstance(conditions.where, Column):
        check_text("where", conditions.where, "a.x < b.y", "combine conditions with AND, and columns with &")
    for name, condition in (conditions.on or {}).items() if isinstance(conditions.on, Mapping) else ():
        if not isinstance(condition, Column):
            _check_condition(name, condition)


def _check_strategy(strategy: object) -> None:
    if strategy is not None and not isinstance(strategy, Strategy):
        text = f"wm.{strategy.__name__}, without ()" if isinstance(strategy, type) else repr(strategy)
        raise DefinitionError(f"strategy={text}: use wm.PSP(nodes=...), ATR, CTR, DSJ, Hash, Auto or Central.")


def _draft(parts: Sequence[StreamPart], how: Mapping[str, str | AsOf] | None, filter: str) -> JoinDefinition:
    """Return a join that knows its streams and no conditions yet; raises DefinitionError if `how` doesn't suit them."""
    specs = _stream_specs(parts)
    optional = read_how(how, specs)
    query = Query(apply_tolerances(specs, how), how=optional, filter=filter)
    frames = tuple(None if isinstance(part.frame, JoinDefinition) else part.frame for part in parts)
    inner = {at: part.frame for at, part in enumerate(parts) if isinstance(part.frame, JoinDefinition)}
    return JoinDefinition(query, frames, PSP(1), inner=inner)


def _check_condition(name: str, condition: object) -> None:
    """Check the text of a condition on a stream's partners.

    Raises:
        DefinitionError: If it is not a text, or empty.
    """
    if condition is None or not str(condition).strip():
        raise DefinitionError(f"on={{{name!r}: {condition!r}}}: there is no condition; write 'TRUE' if all match.")
    check_text(f"on={{{name!r}: ...}}", condition, "b.id = a.id", "combine conditions with AND, and columns with &")


def _check_on(where: Where, criteria: Criteria, query: Query) -> None:
    """Check that `where` doesn't name a stream that has conditions of its own in `on`.

    Raises:
        DefinitionError: If it does: in SQL that would be a condition on results.
    """
    for streams, partners in zip(where.reads, where.partners, strict=True):
        for name in (query.streams[at].name for at in sorted(streams) if at in criteria.on and not partners):
            raise DefinitionError(
                f"WHERE names '{name}', whose partners have conditions of their own: put all conditions on it after "
                f"ON, or into on={{'{name}': ...}}."
            )


def _with_hidden(specs: Sequence[StreamSpec], where: Where) -> tuple[StreamSpec, ...]:
    """Return the streams with the hidden columns that Spark computes for `where`, and the tests that these hold."""
    return tuple(
        replace(spec, hidden=tuple(column.hidden for column in computed), tests=tests)
        for spec, computed, tests in zip(specs, where.computed, where.tests, strict=True)
    )


def _with_constraints(
    specs: Sequence[StreamSpec], parts: Sequence[StreamPart], kinds: Sequence[T.StructType]
) -> tuple[tuple[StreamSpec, ...], tuple[PunctuationFrame, ...]]:
    """Return the streams with their constraints and the hidden columns these need, and the frames of punctuations.

    Raises:
        DefinitionError: If a constraint doesn't fit its stream.
    """
    resolver = ConstraintResolver(specs, kinds, [part.streaming for part in parts])
    resolved = [resolver.resolve(at, part.declarations) for at, part in enumerate(parts)]
    full = tuple(
        replace(spec, hidden=spec.hidden + own.hidden, constraints=(*own.constraints, *_inherited_constraints(part)))
        for spec, own, part in zip(specs, resolved, parts, strict=True)
    )
    return full, tuple(frame for own in resolved for frame in own.punctuations)


def _inherited_constraints(part: StreamPart) -> Iterator[InheritedPunctuations]:
    """Return the punctuations that a stream which is a join inherits from its own streams.

    [!] There are none if its results wait for partners: they may come after the punctuation.
    """
    if not isinstance(part.frame, JoinDefinition) or part.frame.query.waits:
        return iter(())
    return inherit_punctuations(part.frame.query, part.frame.output_positions)


def _for_streams(strategy: Strategy, query: Query) -> Strategy:
    """Return the strategy with positions in place of the names of streams among its options.

    Raises:
        DefinitionError: If it doesn't support them.
    """
    own = strategy.resolve_streams([stream.name for stream in query.streams])
    refusal = own.refusal(view(query, start(query)))
    if refusal is not None:
        raise DefinitionError(f"{own.describe()}: {refusal}")
    return own


def _stream_specs(parts: Sequence[StreamPart]) -> tuple[StreamSpec, ...]:
    """Return the streams of the query; one that is a join also says what its result times depend on."""
    return tuple(
        StreamSpec(
            part.name,
            part.schema,
            part.schema.names.index(part.time),
            part.window,
            part.delay or 0,
            part.idle,
            nested=NestedTimes(part.frame.time_window(part.time), part.delay is not None, part.frame.query.waits)
            if isinstance(part.frame, JoinDefinition)
            else None,
            ahead=None if isinstance(part.frame, JoinDefinition) else part.ahead,
            table=part.table,
            refreshed=part.refresh,
        )
        for part in parts
    )


def _with_delays(query: Query, parts: Sequence[StreamPart]) -> Query:
    """Return a join with the default delays of its streams: from their watermarks, or from windows or conditions.

    Without windows by time, conditions on event times count: both bound how far apart tuples may be.
    """
    spans = [span for spec in query.streams if (span := spec.window.bound) is not None]
    moving = [at for at, spec in enumerate(query.streams) if not spec.table]
    bounds = [window_reaching(micros).bound for micros in query.reaches(moving).values()]
    default = max(spans) if spans else max(bounds, default=0)
    source: DelayFrom = "windows" if spans else "conditions"
    specs = list(query.streams)
    for at, part in enumerate(parts):
        if part.delay is None and part.watermark is None:
            specs[at] = replace(specs[at], delay=default, delay_from=source)
        elif part.delay is None and part.watermark is not None:
            specs[at] = replace(specs[at], delay=part.watermark, delay_from="watermark")
    return replace(query, streams=tuple(specs))
