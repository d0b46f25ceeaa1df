"""The funnel of a batch: for each hop how many pairs were proposed, and what each test let through in which time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from watersmeet.engine.report import TaskReport
from watersmeet.kernel.steps import Hop
from watersmeet.kernel.work import HopWork, Tested, Texts
from watersmeet.model.query import Query
from watersmeet.predicate.model import Conjunct

KINDS = ("window", "sql", "near", "python", "raising")
"""What tests are, in the order in which they are made."""


def funnel(query: Query, tasks: Iterable[TaskReport]) -> list[dict[str, Any]]:
    """Return what the hops of a batch did, over all orders, courses and nodes; shorter combinations first.

    Each hop has the `stream` that was probed, `from` which others, the pairs `inTime`, the pairs that access paths
    proposed (`into`), and `tests`: each with its name, its kind, the pairs that came (`in`) and passed (`out`), `ms`.
    """
    hops: dict[Hop, HopWork] = defaultdict(HopWork)
    for task in tasks:
        for hop, work in task.hops.items():
            hops[hop].add(work)
    names = [stream.name for stream in query.streams]
    return [
        {
            "stream": names[target],
            "from": [names[at] for at in joined],
            "inTime": work.pairs,
            "into": work.search.came,
            "tests": [_shown("window", "window", work.search), *_tests(query, work)],
        }
        for (joined, target), work in sorted(hops.items(), key=lambda found: (len(found[0][0]), found[0]))
        if work.rows_in or work.search.came
    ]


def _shown(name: str, kind: str, tested: Tested) -> dict[str, Any]:
    ms = round(1000 * max(tested.seconds, 0.0), 3)
    return {"name": name, "kind": kind, "in": tested.came, "out": tested.passed, "ms": ms}


def _tests(query: Query, work: HopWork) -> list[dict[str, Any]]:
    """Return the conjuncts that were tested, in the order in which they were; those of one kind as written."""
    conjuncts = {conjunct.text: (at, conjunct) for at, conjunct in enumerate((*query.conjuncts, *query.careful))}
    found = [part for texts, whole in work.tests.items() for part in _apart(texts, whole, work.alone)]
    shown = [(*conjuncts[texts[0]], " AND ".join(texts), tested) for texts, tested in found]
    placed = sorted(shown, key=lambda one: (KINDS.index(_kind(one[1])), one[0]))
    return [_shown(text, _kind(conjunct), tested) for _, conjunct, text, tested in placed]


def _kind(conjunct: Conjunct) -> str:
    if conjunct.raises:
        return "raising"
    return "python" if conjunct.calls else "near" if conjunct.near else "sql"


def _apart(texts: Texts, whole: Tested, samples: Mapping[str, Tested]) -> Iterator[tuple[Texts, Tested]]:
    """Yield what each of some conjuncts let through that were tested at once: the whole, divided as samples were.

    Where DuckDB has joined all blocks with whole chunks there are no samples, and they stay together.
    """
    known = [samples.get(text, Tested()) for text in texts]
    if len(texts) == 1 or not known[0].came:
        yield texts, whole
        return
    left = [float(whole.came)]
    for tested in known[:-1]:
        left.append(left[-1] * (tested.passed / tested.came if tested.came else 1.0))
    left = [max(pairs, whole.passed) for pairs in left] + [float(whole.passed)]
    seconds = sum(tested.seconds for tested in known)
    shares = [tested.seconds / seconds if seconds else 1 / len(texts) for tested in known]
    for text, (came, passed), share in zip(texts, pairwise(left), shares, strict=True):
        yield (text,), Tested(round(came), round(passed), whole.blocks, whole.seconds * share)


def lines(hop: Mapping[str, Any]) -> list[str]:
    """Return a hop of a funnel as people read it."""
    head = (
        f"  {' and '.join(hop['from'])} -> {hop['stream']}: {hop['into']:,} pairs proposed, {hop['inTime']:,} in time"
    )
    tests = [(f"{test['in']:,} -> {test['out']:,}", f"{test['ms']:,.1f} ms", test["name"]) for test in hop["tests"]]
    wide = [max(len(test[at]) for test in tests) for at in range(2)]
    return [head, *(f"    {pairs:>{wide[0]}}  {ms:>{wide[1]}}  {name}" for pairs, ms, name in tests)]
