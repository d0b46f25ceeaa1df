"""The funnel of a batch: for each hop how many pairs were proposed, and what each test let through in which time.

Where a conjunct without an access path dominates, a hint says what would make the join faster. A great circle or a
distance is never shorter than its difference in latitude or along one axis: a condition on that difference loses no
result, and can be looked up in an index.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import floor, log10, pi
from typing import Any

import sqlglot
from sqlglot import exp

from watersmeet.batch.measurements import hop_work
from watersmeet.batch.report import TaskReport
from watersmeet.formatting import abbreviate
from watersmeet.observe.near_misses import Misses, describe_near_misses, merge_misses
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.work import HopWork, TestCounts, Texts
from watersmeet.query.query import Query

KINDS = ("window", "sql", "near", "python", "raising")
"""The kinds of tests, in the order in which they are made; conjuncts that may raise are tried earlier if another hop is
the last."""
MIN_PAIRS = 100_000
"""A conjunct is worth a hint if it tested at least this many pairs in a batch,"""
MIN_MS = 200
"""took at least this time,"""
TIME_SHARE = 0.5
"""and this share of the time of all tests,"""
PASSING_SHARE = 0.1
"""and let at most this share of its pairs pass."""
RADII = ((6_300, 6_400), (6_300_000, 6_400_000), (3_900, 4_000))
"""Radii of the earth, in kilometres, metres and miles."""


def funnel(query: Query, tasks: Sequence[TaskReport], most: int = 0) -> list[dict[str, Any]]:
    """Return the work of the hops of a batch, over all orders, courses and nodes; hops from fewer streams come first.

    Hops that nothing probed are left out.

    Each hop has the `stream` that was probed, `from` which others, the pairs `inTime`, the pairs that access paths
    proposed (`into`), and `tests`: each with its name, its kind, the pairs that came (`in`) and passed (`out`), `ms`.
    With near-misses, up to `most` of each conjunct are listed as `missed`; tests that have some are listed even if no
    pair came to them.
    """
    names = [stream.name for stream in query.streams]

    def misses_at(hop: Hop) -> Misses:
        return merge_misses(task.work.near_misses.get(hop, {}) for task in tasks)

    return [
        {
            "stream": names[target],
            "from": [names[at] for at in joined],
            "inTime": work.pairs,
            "into": work.search.pairs_in,
            "tests": [
                _test_entry("window", "window", work.search),
                *_test_entries(query, work, misses_at((joined, target)), most),
            ],
        }
        for (joined, target), work in sorted(hop_work(tasks).items(), key=lambda entry: (len(entry[0][0]), entry[0]))
        if work.rows_in or work.search.pairs_in
    ]


def _test_entry(name: str, kind: str, counts: TestCounts) -> dict[str, Any]:
    ms = round(1000 * max(counts.seconds, 0.0), 3)
    return {"name": name, "kind": kind, "in": counts.pairs_in, "out": counts.pairs_out, "ms": ms}


def _test_entries(query: Query, work: HopWork, misses: Misses, most: int) -> list[dict[str, Any]]:
    """Return entries for the conjuncts that were tested, in the order in which most pairs met them.

    A test sees the pairs that passed those before it, so each has fewer than the one before. Predicates are called in
    the order of their cost, which may change from block to block.
    """
    conjuncts = {conjunct.text: (at, conjunct) for at, conjunct in enumerate((*query.conjuncts, *query.careful))}
    measured = [part for texts, whole in work.tests.items() for part in _split(texts, whole, work.single_tests)]
    texts_seen = {text for texts, _ in measured for text in texts}
    measured += [((text,), TestCounts()) for text, rows in misses.items() if rows and text not in texts_seen]
    rows = [(*conjuncts[texts[0]], texts, counts) for texts, counts in measured]
    ordered = sorted(rows, key=lambda row: (-row[3].pairs_in, -row[3].pairs_out, KINDS.index(_kind(row[1])), row[0]))
    tests = [_test_entry(" AND ".join(texts), _kind(conjunct), counts) for _, conjunct, texts, counts in ordered]
    if most:
        for test, (_, _, texts, _) in zip(tests, ordered, strict=True):
            test["missed"] = [miss for text in texts for miss in misses.get(text, ())[:most]]
    return tests


def _kind(conjunct: Conjunct) -> str:
    if conjunct.raises:
        return "raising"
    return "python" if conjunct.calls else "near" if conjunct.near else "sql"


def _split(texts: Texts, whole: TestCounts, samples: Mapping[str, TestCounts]) -> Iterator[tuple[Texts, TestCounts]]:
    """Yield what each of several conjuncts that were tested at once let through, and its share of the time.

    These are estimates, which divide the total as in samples. Where DuckDB joined all blocks with whole chunks there
    are no samples, and the conjuncts stay together.
    """
    parts = [samples.get(text, TestCounts()) for text in texts]
    if len(texts) == 1 or not parts[0].pairs_in:
        yield texts, whole
        return
    remaining = [float(whole.pairs_in)]
    for counts in parts[:-1]:
        remaining.append(remaining[-1] * (counts.pairs_out / counts.pairs_in if counts.pairs_in else 1.0))
    remaining = [max(pairs, whole.pairs_out) for pairs in remaining] + [float(whole.pairs_out)]
    seconds = sum(counts.seconds for counts in parts)
    shares = [counts.seconds / seconds if seconds else 1 / len(texts) for counts in parts]
    for text, (before, after), share in zip(texts, pairwise(remaining), shares, strict=True):
        yield (text,), TestCounts(round(before), round(after), whole.blocks, whole.seconds * share)


def format_funnel(hop: Mapping[str, Any]) -> list[str]:
    """Return a hop of a funnel as lines of text: a heading, then a line for each test, with a few near-misses below."""
    head = (
        f"  {' and '.join(hop['from'])} -> {hop['stream']}: {hop['into']:,} pairs proposed, {hop['inTime']:,} in time"
    )
    tests = [(f"{test['in']:,} -> {test['out']:,}", f"{test['ms']:,.1f} ms", test["name"]) for test in hop["tests"]]
    widths = [max(len(test[at]) for test in tests) for at in range(2)]
    under = " " * (8 + sum(widths))
    rows = [f"    {pairs:>{widths[0]}}  {ms:>{widths[1]}}  {name}" for pairs, ms, name in tests]
    near_misses = [[f"{under}{line}" for line in describe_near_misses(test)] for test in hop["tests"]]
    return [head, *(line for first, rest in zip(rows, near_misses, strict=True) for line in (first, *rest))]


def find_hints(query: Query, funnel: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the hints that the funnel of a batch suggests, a sentence or two each; none if no conjunct dominates."""
    total = sum(test["ms"] for hop in funnel for test in hop["tests"])
    conjuncts = {conjunct.text: conjunct for conjunct in query.conjuncts}
    totals: dict[str, dict[str, float]] = {}
    for hop in funnel:
        for test in (test for test in hop["tests"] if test["in"]):
            work = totals.setdefault(test["name"], {"in": 0, "out": 0, "ms": 0.0, "inTime": 0})
            for key in ("in", "out", "ms"):
                work[key] += test[key]
            work["inTime"] += hop["inTime"]
    work_of = {text: work for text, work in totals.items() if text in conjuncts}
    return [_hint(query, conjuncts[text]) for text, work in work_of.items() if _dominates(conjuncts[text], work, total)]


def _dominates(conjunct: Conjunct, work: Mapping[str, float], total: float) -> bool:
    """Tell whether most time goes into a conjunct that no index narrows and that lets few pairs pass."""
    return (
        not conjunct.bounds
        and len(conjunct.streams) > 1
        and work["in"] >= max(MIN_PAIRS, work["inTime"] / 2)
        and work["out"] <= PASSING_SHARE * work["in"]
        and work["ms"] >= max(MIN_MS, TIME_SHARE * total)
    )


def _hint(query: Query, conjunct: Conjunct) -> str:
    """Return the hint on a conjunct: a condition that follows from it, or advice to find one.

    It has no figures: it is given only once, and they are in the funnel.
    """
    text = abbreviate(conjunct.text, 80)
    problem = f"`{text}` is tested on most pairs within the windows, takes most of the time and lets few pass."
    narrower = narrower_condition(conjunct.text)
    if narrower is not None:
        return f"{problem} Adding `{narrower}` loses no result, and can be looked up in an index."
    names = " and ".join(query.streams[at].name for at in sorted(conjunct.streams))
    return (
        f"{problem} An additional condition on {names} that can be looked up in an index, such as an equality or "
        "`abs(x - y) < c`, would leave fewer pairs to test."
    )


def narrower_condition(text: str) -> str | None:
    """Return a condition that follows from a limit on a distance, and that an index can look up; None if none does.

    >>> narrower_condition("sqrt(pow(a.x - b.x, 2) + pow(a.y - b.y, 2)) < 5")
    'abs(a.x - b.x) <= 5'
    >>> narrower_condition("a.x * b.x < 5") is None
    True
    """
    try:
        tree = sqlglot.parse_one(text, dialect="spark").unnest()
    except sqlglot.errors.SqlglotError:
        return None
    if isinstance(tree, exp.LT | exp.LTE):
        distance, limit = tree.this.unnest(), _number(tree.expression)
    elif isinstance(tree, exp.GT | exp.GTE):
        distance, limit = tree.expression.unnest(), _number(tree.this)
    else:
        return None
    if limit is None or limit < 0:
        return None
    return _great_circle(distance, limit) or _find_axis_difference(distance, limit)


def _number(node: exp.Expr) -> float | None:
    bare = node.unnest()
    return float(bare.this) if isinstance(bare, exp.Literal) and not bare.is_string else None


def _great_circle(distance: exp.Expr, limit: float) -> str | None:
    """Return the condition on the difference in latitude that a great circle allows; None if it isn't one.

    It has to name the radius of the earth and take the cosines of two columns: these are the latitudes.
    """
    names = {name for node in distance.walk() if (name := _name(node))}
    radius = next((r for node in distance.walk() if (r := _radius(node)) is not None), None)
    if radius is None or not {"sin", "cos"} <= names or not names & {"asin", "acos", "atan2"}:
        return None
    cosines = [_argument(node) for node in distance.walk() if _name(node) == "cos"]
    columns = dict.fromkeys(c.sql(dialect="spark") for node in cosines if (c := _column(node)) is not None)
    if len(columns) != 2:
        return None
    one, two = columns
    angle = limit / radius * (180 / pi if "radians" in names else 1.0)
    return f"abs({one} - {two}) <= {_round_up(angle)}"


def _radius(node: exp.Expr) -> float | None:
    """Return the earth's radius if a node is that number or twice it, in one of several units; None otherwise."""
    value = _number(node) if isinstance(node, exp.Literal) else None
    for low, high in RADII:
        if value is not None and low <= value <= high:
            return value
        if value is not None and 2 * low <= value <= 2 * high:
            return value / 2
    return None


def _name(node: exp.Expr) -> str:
    """Return the name of a function; empty for other nodes."""
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    return node.key if isinstance(node, exp.Func) and not isinstance(node, exp.Binary) else ""


def _argument(node: exp.Expr) -> exp.Expr | None:
    argument = node.expressions[0] if isinstance(node, exp.Anonymous) and node.expressions else node.args.get("this")
    return argument.unnest() if isinstance(argument, exp.Expr) else None


def _column(node: exp.Expr | None) -> exp.Column | None:
    """Return the column of an argument, which may be in radians."""
    if node is not None and _name(node) == "radians":
        node = _argument(node)
    return node if isinstance(node, exp.Column) else None


def _find_axis_difference(distance: exp.Expr, limit: float) -> str | None:
    """Return the condition on the difference along one axis that a distance allows; None if it isn't one.

    Distances are written with `sqrt`, with `hypot`, or squared, in which case so is the limit.
    """
    name, bound = _name(distance), limit
    if name == "hypot":
        arguments = distance.expressions or [distance.this, distance.args.get("expression")]
        squares = [_find_difference(argument) for argument in arguments]
    else:
        content = _argument(distance) if name == "sqrt" else distance
        bound = limit if name == "sqrt" else limit**0.5
        squares = [_find_squared_difference(part) for part in _summands(content)] if content is not None else []
    if not squares or None in squares:
        return None
    exact = bound if name in ("sqrt", "hypot") else float(_round_up(bound))
    return f"abs({squares[0]}) <= {exact:g}"


def _summands(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the terms of a sum, parentheses removed; the node itself if it is not a sum."""
    bare = node.unnest()
    if isinstance(bare, exp.Add):
        yield from _summands(bare.this)
        yield from _summands(bare.expression)
    else:
        yield bare


def _find_squared_difference(node: exp.Expr) -> str | None:
    """Return the difference whose square a term is; None if it is none."""
    if isinstance(node, exp.Mul) and node.this.unnest() == node.expression.unnest():
        return _find_difference(node.this)
    if isinstance(node, exp.Pow) and _number(node.expression) == 2:
        return _find_difference(node.this)
    return None


def _find_difference(node: exp.Expr | None) -> str | None:
    """Return a difference of two columns of different streams, as it is written; None for anything else."""
    bare = None if node is None else node.unnest()
    sides = [bare.this.unnest(), bare.expression.unnest()] if isinstance(bare, exp.Sub) else []
    if len(sides) != 2 or not all(isinstance(side, exp.Column) and side.table for side in sides):
        return None
    one, two = sides
    return None if one.table == two.table else f"{one.sql(dialect='spark')} - {two.sql(dialect='spark')}"


def _round_up(value: float) -> str:
    """Return a number above 0 rounded up to three digits, always to a larger number; 0 for any other.

    >>> _round_up(0.0179864), _round_up(1234.5)
    ('0.0180', '1240')
    """
    if value <= 0:
        return "0"
    digits = 2 - floor(log10(value))
    step = 10.0**-digits
    rounded = (floor(value / step) + 1) * step
    return f"{rounded:.{max(digits, 0)}f}"
