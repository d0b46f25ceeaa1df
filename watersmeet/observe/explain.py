"""How a join runs, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from watersmeet.arguments import format_duration
from watersmeet.batch.plan import UNKNOWN, Host, led, start, view
from watersmeet.formatting import count_inputs
from watersmeet.metadata.constraints import Speaking
from watersmeet.metadata.outlook import Outlook
from watersmeet.observe.funnel import lines as lines_of
from watersmeet.ordering import JoinOrder, Ordering
from watersmeet.placement import Strategy
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.hop_steps import Step, entry_conjuncts, step, steps
from watersmeet.query.query import Query, StreamSpec
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.view import HopView


def explain(
    query: Query, strategy: Strategy, ordering: Ordering, manifest: Manifest | None = None, host: Host = UNKNOWN
) -> str:
    """Return the streams, the strategy, and for each stream the hops of its tuples.

    Args:
        query: The join.
        strategy: Where tuples are kept.
        ordering: In which order streams are probed.
        manifest: The state of a running join: the orders are then those of its next batch, with what its hops did.
        host: Where it runs, or would.
    """
    manifest = manifest or start(query)
    state = view(query, manifest, host)
    known = manifest.learned.ordering.read_by(ordering)
    order, layout = ordering.plan(query, state.chunks, known), strategy.plan(state)
    expected = ordering.estimates(query, state.chunks, known)
    tables = sum(stream.table for stream in query.streams)
    lines = [f"Watersmeet join of {count_inputs(len(query.streams) - tables, tables)}, {strategy.describe()}"]
    lines += _facts(layout.facts(state))
    lines += [f"  decided before {told}" for told in strategy.history(state)]
    outlook = Outlook(query)
    for at, stream in enumerate(query.streams):
        time = stream.schema.field(stream.time).name
        own = stream.nested is not None and not stream.nested.delayed
        delay = "a join with a watermark of its own" if own else _delay(stream)
        optional = f", {ASKED[query.optional[at]]}" if at in query.optional else ""
        by = " (by conditions on event times)" if stream.derived else ""
        timed = f"{stream.window.describe()} on {time}{by}, {delay}"
        read = f"a table, read {'for each batch' if stream.refreshed else 'once'}"
        lines.append(f"  {stream.name}: {read if stream.table else timed}{optional}")
        lines += _computed(stream)
        lines += _retained(query, outlook, at)
    for origin, stream in enumerate(query.streams if query.emits_combinations else ()):
        for course in order.orders(origin) if not stream.table else ():
            course = led(course, layout.placement.lead(origin))
            names = [query.streams[at].name for at in (origin, *course)]
            lines.append(f"  a new tuple of {stream.name}: {' -> '.join(names)}")
            lines += [f"    first   {conjunct.text}" for conjunct in entry_conjuncts(query, origin)]
            for hop in steps(query, origin, course):
                lines += _hop(query, hop, _matches(expected.get(hop.hop), state.hop(*hop.hop)))
    lines += [line for side in query.sides for line in _closing(side, order)]
    lines += [f"  of the results, Spark keeps those with {query.filter}"] if query.filter else []
    lines += _left_to_spark(query)
    lines += _funnel(manifest)
    return "\n".join(lines)


def _delay(stream: StreamSpec) -> str:
    """Return a stream's delay, and where it comes from."""
    return f"delay {format_duration(stream.delay)}{DELAYED[stream.delay_from] if stream.delay else ''}"


DELAYED = {
    "given": "",
    "watermark": " (its frame's watermark)",
    "windows": " (the largest window)",
    "conditions": " (by conditions on event times)",
}
"""Where a delay comes from, in words."""
ASKED = {
    "left": "optional: results have NULL where there is no partner",
    "semi": "only asked: there must be a partner",
    "anti": "only asked: there must be no partner",
    "full": "optional: results have NULL where there is no partner, on either side",
    "asof": "as of: the newest partner no later, without one there is no result",
    "asof left": "as of: the newest partner no later, or NULL where there is none",
}
"""What a join asks of an optional stream, in words."""


def _closing(query: Query, order: JoinOrder) -> Iterator[str]:
    """Yield how the combinations of required streams are found, and how their partners are."""
    members, early = query.members, [*query.optional.values()] == ["semi"]
    for origin in members:
        course = tuple(at for at in order.orders(origin)[0] if at in members)
        names = " -> ".join(query.streams[at].name for at in (origin, *course))
        name = query.streams[origin].name
        ends = "that the watermark passes" if query.closes_at_its_time else "whose window ends"
        yield f"  a new tuple of {name}: {names}" if early else f"  a tuple of {name} {ends}: {names}"
        yield from (f"    first   {conjunct.text}" for conjunct in entry_conjuncts(query, origin))
        for hop in steps(query, origin, course, of=members):
            yield from _hop(query, hop, "")
    for at in query.optional:
        asks = "which is the newest" if at in query.as_of_streams else "is there a"
        yield f"  {asks} partner in {query.streams[at].name}?"
        yield from _hop(query, step(query, members, at, of=(*members, at)), "")


def _funnel(manifest: Manifest) -> Iterator[str]:
    """Yield what the tests of the last batch let through."""
    found = manifest.progress.get("funnel", ())
    hops = [hop for hop in found if hop["into"] or any(test.get("missed") for test in hop["tests"])]
    if hops:
        yield f"  pairs in batch {manifest.batch}, and what each test let through:"
    for hop in hops:
        yield from (f"  {line}" for line in lines_of(hop))


def _computed(stream: StreamSpec) -> Iterator[str]:
    """Yield what Spark computes of a stream's tuples when they come in."""
    first = len(stream.schema)
    tests = {test.holds for test in stream.tests}
    for at, hidden in enumerate(stream.hidden, first):
        if at in tests:
            yield f"    only where {hidden.text}, tested by Spark when a tuple comes in"
        elif not (hidden.failed or hidden.told):
            yield f"    {hidden.text}, computed by Spark when a tuple comes in"


def _retained(query: Query, outlook: Outlook, stream: int) -> Iterator[str]:
    """Yield what a stream promises, what closes it for the tuples of others, and whether its own are kept for ever."""
    for promise in query.streams[stream].promises:
        kind = "punctuations" if isinstance(promise, Speaking) else "promises"
        yield f"    {kind}: {query.describe_constraint(stream, promise)}"
    yield from (f"    closed by {way}" for way in outlook.closing(stream))
    if outlook.open(stream):
        yield "    nothing ever closes it"
    if outlook.endless(stream):
        yield "    its tuples are kept for ever"
    yield from (f"    {said}" for said in outlook.superseded(stream))


def _left_to_spark(query: Query) -> Iterator[str]:
    """Yield the conjuncts that Spark decides, why, and what would be faster."""
    for conjunct in query.conjuncts:
        if conjunct.opaque:
            yield f"  decided by Spark, for combinations that pass the other conjuncts: {conjunct.text}"
            yield f"    why: {conjunct.why}"
            yield f"    faster: {_advice(query, conjunct)}"
        elif not conjunct.exact:
            yield f"  decided here, borderline combinations by Spark: {conjunct.text}"


def _advice(query: Query, opaque: Conjunct) -> str:
    """Return what would leave Spark less to decide."""
    others = [c for c in query.conjuncts if not c.opaque and c.streams & opaque.streams and len(c.streams) > 1]
    names = " and ".join(query.streams[at].name for at in sorted(opaque.streams))
    if not others:
        return f"a second condition on {names}, such as an equality or a range: Spark now decides all combinations"
    return f"a narrower second condition on {names}, or a Python predicate instead"


def _facts(facts: Mapping[str, Any], depth: int = 1) -> Iterator[str]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield f"{'  ' * depth}{name}:"
            yield from _facts(value, depth + 1)
        else:
            yield f"{'  ' * depth}{name}: {value}"


def _hop(query: Query, step: Step, matches: str) -> list[str]:
    name = query.streams[step.target].name
    indexed = {query.name_of(bound.column) for bound in step.bounds}
    path = f"sorted index on {', '.join(sorted(indexed))}" if indexed else "time range"
    lines = [f"    probe {name} by {path}{matches}"]
    parts: list[tuple[str, tuple[Conjunct, ...]]] = [
        ("sql", step.sql),
        ("near", step.near),
        ("python", step.calls),
        ("early", step.early_raising),
        ("last", step.raising),
    ]
    return lines + [f"      {kind:7} {conjunct.text}" for kind, found in parts for conjunct in found]


def _matches(expected: float | None, seen: HopView | None) -> str:
    """Return the matches a partial result finds: as estimated, beside what the last batches measured."""
    said = [] if expected is None else [f"{expected:.3g} estimated"]
    if seen is not None:
        said.append(f"{seen.matches / seen.rows:.3g} measured")
    return f"; matches each: {', '.join(said)}" if said else ""
