"""Where pairs go: what is proposed at each hop, and what every test leaves of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from watersmeet.observe.dashboard.course import Progress
from watersmeet.observe.dashboard.view import Hop, Step
from watersmeet.observe.dashboard.words import count, magnitudes, milliseconds, percent
from watersmeet.observe.near_misses import nearly


def funnel(progress: Progress) -> tuple[Hop, ...]:
    """Return the hops of a batch; without a funnel among what is recorded, what hops looked at and found."""
    known = progress.get("funnel")
    hops = [*(_tested(known) if known else _counted(progress.get("hops", [])))]
    shares = iter(magnitudes([number for _, steps in hops for _, number, _, _ in steps]))
    return tuple(
        Hop(title, tuple(Step(label, count(number), next(shares), note, near) for label, number, note, near in steps))
        for title, steps in hops
    )


KINDS = {"sql": "SQL", "near": "floating point", "python": "Python", "raising": "may raise an error"}
"""How tests are called that are not named by their kind."""
_Steps = list[tuple[str, int, str, tuple[str, ...]]]


def _tested(hops: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, _Steps]]:
    for hop in hops:
        steps: _Steps = [("pairs in time", hop["inTime"], "", ()), ("pairs proposed", hop["into"], "", ())]
        for test in hop["tests"]:
            cost = f", {milliseconds(test['ms'])}" if test.get("ms") else ""
            kind = f"{KINDS[test['kind']]}, " if test.get("kind") in KINDS else ""
            note = f"{kind}{percent(test['out'], test['in'])} pass{cost}"
            steps.append((test["name"], test["out"], note, tuple(nearly(test))))
        yield f"{', '.join(hop['from'])} → {hop['stream']}", steps


def _counted(hops: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, _Steps]]:
    for number, hop in enumerate(hops, 1):
        asked, pairs, matches = hop["rowsIn"], hop["pairs"], hop["matches"]
        yield (
            f"Hop {number}",
            [
                ("tuples ask" if number == 1 else "partial results ask", asked, "", ()),
                ("pairs looked at", pairs, f"{count(pairs / asked)} for each" if asked else "", ()),
                ("pairs that match", matches, f"{percent(matches, pairs)} of them" if pairs else "", ()),
            ],
        )
