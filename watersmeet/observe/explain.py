"""How a join runs, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from watersmeet.arguments import format_duration
from watersmeet.batch.plan import UNKNOWN, Host, start, view, with_lead
from watersmeet.formatting import count_inputs
from watersmeet.metadata.constraints import PunctuationScheme
from watersmeet.metadata.outlook import Outlook
from watersmeet.observe.funnel import format_funnel
from watersmeet.ordering import JoinOrder, Ordering
from watersmeet.placement import Strategy
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.hop_steps import Step, entry_conjuncts, step, steps
from watersmeet.query.query import Query, StreamSpec
from watersmeet.runtime.tree import JoinTree
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.view import HopView


def explain(
    query: Query, strategy: Strategy, ordering: Ordering, manifest: Manifest | None = None, host: Host = UNKNOWN
) -> str:
    """Return how a join runs, as text: its streams, the strategy, and for each stream the hops of its tuples.

    Spark's part, the reasons for what is kept, and the funnel of the last batch follow where there are any.

    Args:
        query: The join.
        strategy: Decides where tuples are kept.
        ordering: Decides in which order streams are probed.
        manifest: The state of a running join, to explain the orders of its next batch and show what its hops did; None
            for a join that has not started.
        host: Where it runs, or would.
    """
    manifest = manifest or start(query)
    state = view(query, manifest, host)
    notes = manifest.learned.ordering.read_by(ordering)
    order, layout = ordering.plan(query, state.chunks, notes), strategy.plan(state)
    expected = ordering.estimates(query, state.chunks, notes)
    tables = sum(stream.table for stream in query.streams)
    lines = [f"Watersmeet join of {count_inputs(len(query.streams) - tables, tables)}, {strategy.describe()}"]
    lines += _format_facts(layout.facts(state))
    lines += [f"  decided before {decision}" for decision in strategy.history(state)]
    outlook = Outlook(query)
    for position, stream in enumerate(query.streams):
        time = stream.schema.field(stream.time).name
        has_own_watermark = stream.nested is not None and not stream.nested.delayed
        delay = "a join with a watermark of its own" if has_own_watermark else _describe_delay(stream)
        optional = f", {OPTIONAL_MEANINGS[query.optional[position]]}" if position in query.optional else ""
        note = " (by conditions on event times)" if stream.derived else ""
        timing = f"{stream.window.describe()} on {time}{note}, {delay}"
        reading = f"a table, read {'for each batch' if stream.refreshed else 'once'}"
        lines.append(f"  {stream.name}: {reading if stream.table else timing}{optional}")
        lines += _explain_hidden(stream)
        lines += _explain_retention(query, outlook, position)
    for origin, stream in enumerate(query.streams if query.emits_combinations else ()):
        for course in order.orders(origin) if not stream.table else ():
            course = with_lead(course, layout.placement.lead(origin))
            names = [query.streams[position].name for position in (origin, *course)]
            lines.append(f"  a new tuple of {stream.name}: {' -> '.join(names)}")
            lines += [f"    first   {conjunct.text}" for conjunct in entry_conjuncts(query, origin)]
            for hop in steps(query, origin, course):
                lines += _describe_hop(query, hop, _describe_matches(expected.get(hop.hop), state.hop(*hop.hop)))
    lines += [line for side in query.sides for line in _explain_optional(side, order)]
    lines += [f"  of the results, Spark keeps those with {query.filter}"] if query.filter else []
    lines += _explain_spark(query)
    lines += _describe_funnel(manifest)
    return "\n".join(lines)


def _describe_delay(stream: StreamSpec) -> str:
    """Return a stream's delay, and where it comes from."""
    return f"delay {format_duration(stream.delay)}{DELAY_SOURCES[stream.delay_from] if stream.delay else ''}"


DELAY_SOURCES = {
    "given": "",
    "watermark": " (its frame's watermark)",
    "windows": " (the largest window)",
    "conditions": " (by conditions on event times)",
}
"""The source of a delay, in words."""
OPTIONAL_MEANINGS = {
    "left": "optional: results have NULL where there is no partner",
    "semi": "tested only: there must be a partner",
    "anti": "tested only: there must be no partner",
    "full": "optional: results have NULL where there is no partner, on either side",
    "asof": "as of: the newest partner no later, without one there is no result",
    "asof left": "as of: the newest partner no later, or NULL where there is none",
}
"""What `how` means for an optional stream, in words."""


def _explain_optional(query: Query, order: JoinOrder) -> Iterator[str]:
    """Yield how the combinations of the required streams are found, when, and then their partners.

    Args:
        query: The join that finds the combinations: one of the `sides` of a join with optional streams.
        order: In which order streams are probed.
    """
    members, early = query.members, [*query.optional.values()] == ["semi"]
    for origin in members:
        course = tuple(at for at in order.orders(origin)[0] if at in members)
        names = " -> ".join(query.streams[at].name for at in (origin, *course))
        name = query.streams[origin].name
        ends = "that the watermark passes" if query.closes_at_its_time else "whose window ends"
        yield f"  a new tuple of {name}: {names}" if early else f"  a tuple of {name} {ends}: {names}"
        yield from (f"    first   {conjunct.text}" for conjunct in entry_conjuncts(query, origin))
        for hop in steps(query, origin, course, of=members):
            yield from _describe_hop(query, hop, "")
    for at in query.optional:
        question = "which is the newest" if at in query.as_of_streams else "is there a"
        yield f"  {question} partner in {query.streams[at].name}?"
        yield from _describe_hop(query, step(query, members, at, of=(*members, at)), "")


def _describe_funnel(manifest: Manifest) -> Iterator[str]:
    """Yield what the tests of the last batch let through; nothing if no pair was proposed and no near-miss recorded."""
    hops_of_batch = manifest.progress.get("funnel", ())
    hops = [hop for hop in hops_of_batch if hop["into"] or any(test.get("missed") for test in hop["tests"])]
    if hops:
        yield f"  pairs in batch {manifest.batch}, and how many passed each test:"
    for hop in hops:
        yield from (f"  {line}" for line in format_funnel(hop))


def _explain_hidden(stream: StreamSpec) -> Iterator[str]:
    """Yield what Spark computes from a stream's tuples when they come in; auxiliary columns are left out."""
    first = len(stream.schema)
    positions_of_tests = {test.holds for test in stream.tests}
    for at, hidden in enumerate(stream.hidden, first):
        if at in positions_of_tests:
            yield f"    only where {hidden.text}, tested by Spark when a tuple comes in"
        elif not (hidden.failed or hidden.punctuation):
            yield f"    {hidden.text}, computed by Spark when a tuple comes in"


def _explain_retention(query: Query, outlook: Outlook, stream: int) -> Iterator[str]:
    """Yield a stream's constraints, what closes it for the tuples of others, and whether its own are kept for ever."""
    for constraint in query.streams[stream].constraints:
        kind = "punctuations" if isinstance(constraint, PunctuationScheme) else "constraint"
        yield f"    {kind}: {query.describe_constraint(stream, constraint)}"
    yield from (f"    closed by {way}" for way in outlook.describe_closing(stream))
    if outlook.is_never_closed(stream):
        yield "    nothing ever closes it"
    if outlook.is_endless(stream):
        yield "    its tuples are kept forever"
    yield from (f"    {reason}" for reason in outlook.describe_superseding(stream))


def _explain_spark(query: Query) -> Iterator[str]:
    """Yield the conjuncts that Spark decides, why it does, and what would be faster."""
    for conjunct in query.conjuncts:
        if conjunct.opaque:
            yield f"  decided by Spark, for combinations that pass the other conjuncts: {conjunct.text}"
            yield f"    why: {conjunct.why}"
            yield f"    faster: {_advise(query, conjunct)}"
        elif not conjunct.exact:
            yield f"  decided here, borderline combinations by Spark: {conjunct.text}"


def _advise(query: Query, opaque: Conjunct) -> str:
    """Return advice on what would leave Spark less to decide, given the other conjuncts on the same streams."""
    others = [c for c in query.conjuncts if not c.opaque and c.streams & opaque.streams and len(c.streams) > 1]
    names = " and ".join(query.streams[at].name for at in sorted(opaque.streams))
    if not others:
        return f"an additional condition on {names}, such as an equality or a range: Spark now decides all combinations"
    return f"an additional, narrower condition on {names}, or a Python predicate instead"


def _format_facts(facts: Mapping[str, Any], depth: int = 1) -> Iterator[str]:
    """Yield facts as lines; those inside others are indented."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield f"{'  ' * depth}{name}:"
            yield from _format_facts(value, depth + 1)
        else:
            yield f"{'  ' * depth}{name}: {value}"


def _describe_hop(query: Query, hop: Step, matches: str) -> list[str]:
    """Return the lines on a hop: how it finds candidates, then its conjuncts by the step that tests them."""
    name = query.streams[hop.target].name
    indexed = {query.name_of(bound.column) for bound in hop.bounds}
    path = f"sorted index on {', '.join(sorted(indexed))}" if indexed else "time range"
    lines = [f"    probe {name} by {path}{matches}"]
    parts: list[tuple[str, tuple[Conjunct, ...]]] = [
        ("sql", hop.sql),
        ("near", hop.near),
        ("python", hop.calls),
        ("early", hop.early_raising),
        ("last", hop.raising),
    ]
    return lines + [f"      {kind:7} {conjunct.text}" for kind, conjuncts in parts for conjunct in conjuncts]


def _describe_matches(expected: float | None, measured: HopView | None) -> str:
    """Return the matches of a partial result: estimated, and as measured in the last batches."""
    figures = [] if expected is None else [f"{expected:.3g} estimated"]
    if measured is not None:
        figures.append(f"{measured.matches / measured.rows:.3g} measured")
    return f"; matches each: {', '.join(figures)}" if figures else ""


# -- a tree of joins


def draw_join_tree(tree: JoinTree, state: Manifest) -> list[str]:
    """Return a tree of joins as lines, with what each did in its last batch; no lines for a single join."""
    return list(_draw_join(tree, state, "", "", "results")) if tree.inner else []


def _draw_join(tree: JoinTree, state: Manifest, first: str, rest: str, name: str) -> Iterator[str]:
    """Yield the lines of a join.

    Args:
        tree: The join.
        state: Its state.
        first: What stands before its first line.
        rest: What stands before all others.
        name: What its results are called where they go.
    """
    yield f"{first}{name}: join{_describe_last_batch(state)}"
    query = tree.operator.query
    streams = query.streams
    for at, stream in enumerate(streams):
        last = at == len(streams) - 1
        branch, indent = ("└─ ", "   ") if last else ("├─ ", "│  ")
        window = query.kind_of(at) if stream.table else stream.window.describe()
        if at in tree.inner:
            child = tree.inner[at]
            own_state = state.inner.get(at) or child.start()
            yield from _draw_join(child, own_state, f"{rest}{branch}", f"{rest}{indent}", f"{stream.name} ({window})")
        else:
            rows = state.progress.get("inputRows", {}).get(stream.name)
            yield f"{rest}{branch}{stream.name} ({window}){'' if rows is None else f': {rows:,} rows'}"


def _describe_last_batch(state: Manifest) -> str:
    """Return a clause on the last batch's results, state and spilled units; empty before the first batch."""
    if not state.progress:
        return ""
    progress = state.progress
    units = len(state.ledger.units)
    spilled = f", {units:,} {'unit' if units == 1 else 'units'} spilled" if units else ""
    return f", {progress['outputRows']:,} results last, {progress['stateRows']:,} rows of state{spilled}"
