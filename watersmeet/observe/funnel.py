"""The funnel of a batch: for each hop how many pairs were proposed, and what each test let through in which time."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from watersmeet.batch.report import TaskReport
from watersmeet.observe.near_misses import Misses, describe_near_misses, merge_misses
from watersmeet.predicate.model import Conjunct
from watersmeet.probe.hop_steps import Hop
from watersmeet.probe.work import HopWork, TestCounts, Texts
from watersmeet.query.query import Query

KINDS = ("window", "sql", "near", "python", "raising")
"""The kinds of tests, in the order in which they are made; conjuncts that may raise are tried earlier if another hop is
the last."""


def funnel(query: Query, tasks: Sequence[TaskReport], most: int = 0) -> list[dict[str, Any]]:
    """Return the work of the hops of a batch, over all orders, courses and nodes; hops from fewer streams come first.

    Hops that nothing probed are left out.

    Each hop has the `stream` that was probed, `from` which others, the pairs `inTime`, the pairs that access paths
    proposed (`into`), and `tests`: each with its name, its kind, the pairs that came (`in`) and passed (`out`), `ms`.
    With near-misses, up to `most` of each conjunct are listed as `missed`; tests that have some are listed even if no
    pair came to them.
    """
    hops: dict[Hop, HopWork] = defaultdict(HopWork)
    for task in tasks:
        for hop, work in task.work.hops.items():
            hops[hop].add(work)
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
        for (joined, target), work in sorted(hops.items(), key=lambda entry: (len(entry[0][0]), entry[0]))
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
