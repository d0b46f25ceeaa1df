"""The funnel of a batch: for each hop how many pairs were proposed, and what each test let through in which time."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from watersmeet.batch.report import TaskReport
from watersmeet.observe.near_misses import Misses, nearly, together
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.work import HopWork, TestCounts, Texts
from watersmeet.query.query import Query

KINDS = ("window", "sql", "near", "python", "raising")
"""What tests are, in the order in which they are made if all are; what may raise is tried earlier if another hop is
the last."""


def funnel(query: Query, tasks: Sequence[TaskReport], most: int = 0) -> list[dict[str, Any]]:
    """Return what the hops of a batch did, over all orders, courses and nodes; shorter combinations first.

    Each hop has the `stream` that was probed, `from` which others, the pairs `inTime`, the pairs that access paths
    proposed (`into`), and `tests`: each with its name, its kind, the pairs that came (`in`) and passed (`out`), `ms`.
    If near-misses are asked for, up to `most` of each conjunct are shown as `missed`; a test to which no pair came is
    among the tests if it has some.
    """
    hops: dict[Hop, HopWork] = defaultdict(HopWork)
    for task in tasks:
        for hop, work in task.work.hops.items():
            hops[hop].add(work)
    names = [stream.name for stream in query.streams]

    def missed(hop: Hop) -> Misses:
        return together(task.work.near_misses.get(hop, {}) for task in tasks)

    return [
        {
            "stream": names[target],
            "from": [names[at] for at in joined],
            "inTime": work.pairs,
            "into": work.search.pairs_in,
            "tests": [_shown("window", "window", work.search), *_tests(query, work, missed((joined, target)), most)],
        }
        for (joined, target), work in sorted(hops.items(), key=lambda found: (len(found[0][0]), found[0]))
        if work.rows_in or work.search.pairs_in
    ]


def _shown(name: str, kind: str, tested: TestCounts) -> dict[str, Any]:
    ms = round(1000 * max(tested.seconds, 0.0), 3)
    return {"name": name, "kind": kind, "in": tested.pairs_in, "out": tested.pairs_out, "ms": ms}


def _tests(query: Query, work: HopWork, missed: Misses, most: int) -> list[dict[str, Any]]:
    """Return the conjuncts that were tested, in the order in which most pairs met them.

    A test sees what those before it have left, so that each has fewer pairs than the one before. Predicates are asked
    by their cost, which may change from block to block.
    """
    conjuncts = {conjunct.text: (at, conjunct) for at, conjunct in enumerate((*query.conjuncts, *query.careful))}
    found = [part for texts, whole in work.tests.items() for part in _apart(texts, whole, work.single_tests)]
    seen = {text for texts, _ in found for text in texts}
    found += [((text,), TestCounts()) for text, misses in missed.items() if misses and text not in seen]
    shown = [(*conjuncts[texts[0]], texts, tested) for texts, tested in found]
    placed = sorted(shown, key=lambda one: (-one[3].pairs_in, -one[3].pairs_out, KINDS.index(_kind(one[1])), one[0]))
    made = [_shown(" AND ".join(texts), _kind(conjunct), tested) for _, conjunct, texts, tested in placed]
    if most:
        for test, (_, _, texts, _) in zip(made, placed, strict=True):
            test["missed"] = [miss for text in texts for miss in missed.get(text, ())[:most]]
    return made


def _kind(conjunct: Conjunct) -> str:
    if conjunct.raises:
        return "raising"
    return "python" if conjunct.calls else "near" if conjunct.near else "sql"


def _apart(texts: Texts, whole: TestCounts, samples: Mapping[str, TestCounts]) -> Iterator[tuple[Texts, TestCounts]]:
    """Yield what each of some conjuncts let through that were tested at once: the whole, divided as samples were.

    Where DuckDB has joined all blocks with whole chunks there are no samples, and they stay together.
    """
    known = [samples.get(text, TestCounts()) for text in texts]
    if len(texts) == 1 or not known[0].pairs_in:
        yield texts, whole
        return
    left = [float(whole.pairs_in)]
    for tested in known[:-1]:
        left.append(left[-1] * (tested.pairs_out / tested.pairs_in if tested.pairs_in else 1.0))
    left = [max(pairs, whole.pairs_out) for pairs in left] + [float(whole.pairs_out)]
    seconds = sum(tested.seconds for tested in known)
    shares = [tested.seconds / seconds if seconds else 1 / len(texts) for tested in known]
    for text, (came, passed), share in zip(texts, pairwise(left), shares, strict=True):
        yield (text,), TestCounts(round(came), round(passed), whole.blocks, whole.seconds * share)


def lines(hop: Mapping[str, Any]) -> list[str]:
    """Return a hop of a funnel as people read it."""
    head = (
        f"  {' and '.join(hop['from'])} -> {hop['stream']}: {hop['into']:,} pairs proposed, {hop['inTime']:,} in time"
    )
    tests = [(f"{test['in']:,} -> {test['out']:,}", f"{test['ms']:,.1f} ms", test["name"]) for test in hop["tests"]]
    wide = [max(len(test[at]) for test in tests) for at in range(2)]
    under = " " * (8 + sum(wide))
    shown = [f"    {pairs:>{wide[0]}}  {ms:>{wide[1]}}  {name}" for pairs, ms, name in tests]
    near = [[f"{under}{line}" for line in nearly(test)] for test in hop["tests"]]
    return [head, *(line for first, rest in zip(shown, near, strict=True) for line in (first, *rest))]
