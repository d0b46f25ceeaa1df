"""How a join runs, in words."""

from watersmeet.kernel.steps import Step, entry_conjuncts, steps
from watersmeet.ordering import Ordering
from watersmeet.placement import Strategy
from watersmeet.predicate.model import Conjunct
from watersmeet.query import Query


def explain(query: Query, strategy: Strategy, ordering: Ordering) -> str:
    """Return the streams, the strategy, and for each stream the hops of its tuples."""
    lines = [f"Watersmeet join of {len(query.streams)} streams, {strategy.describe()}"]
    for stream in query.streams:
        time = stream.schema.field(stream.time).name
        lines.append(f"  {stream.name}: {stream.window.describe()} on {time}, delay {stream.delay / 1e6:g} s")
    order = ordering.plan(query, (), {})
    for origin, stream in enumerate(query.streams):
        (course,) = order.orders(origin)
        names = [query.streams[at].name for at in (origin, *course)]
        lines.append(f"  a new tuple of {stream.name}: {' -> '.join(names)}")
        lines += [f"    first   {conjunct.text}" for conjunct in entry_conjuncts(query, origin)]
        for step in steps(query, origin, course):
            lines += _hop(query, step)
    return "\n".join(lines)


def _hop(query: Query, step: Step) -> list[str]:
    name = query.streams[step.target].name
    indexed = {query.name_of(bound.column) for bound in step.bounds}
    path = f"sorted index on {', '.join(sorted(indexed))}" if indexed else "time range"
    lines = [f"    probe {name} by {path}"]
    parts: list[tuple[str, tuple[Conjunct, ...]]] = [
        ("sql", step.sql),
        ("python", step.calls),
        ("early", step.hopeful),
        ("last", step.raising),
    ]
    return lines + [f"      {kind:7} {conjunct.text}" for kind, found in parts for conjunct in found]
