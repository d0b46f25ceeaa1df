"""What is worth knowing of a join before it starts: findings, each a sentence; pure, so that each can be tested."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from watersmeet.adapt.report import duration
from watersmeet.arguments import format_duration, format_roughly, round_up
from watersmeet.metadata.outlook import Outlook
from watersmeet.query.query import Query, StreamSpec

DOMINANT = 0.5
"""From which part of the time on a predicate is said to dominate."""
Severity = Literal["warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that `join.check()` found.

    Attributes:
        severity: `warning` if the join will not do what people want; `note` if it could do better.
        kind: What it is about: `state`, `promise`, `tie`, `nodes`, `delay` or `predicate`.
        says: What was found, and what to do, in a sentence or two.
    """

    severity: Severity
    kind: str
    says: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.says}"


def defined(query: Query) -> Iterator[Finding]:
    """Yield what the definition of a join shows; a start logs the warnings among it."""
    outlook = Outlook(query)
    yield from (Finding("warning", "state", says) for says in outlook.growing())
    yield from (Finding("warning", "promise", says) for says in outlook.useless())
    yield from _untied(query)


def _untied(query: Query) -> Iterator[Finding]:
    """Yield that streams are tied to each other by no condition: each tuple of one joins all of the other."""
    parts = [{at} for at in range(len(query.streams))]
    for conjunct in query.conjuncts:
        touched = [part for part in parts if part & conjunct.streams]
        parts = [part for part in parts if not part & conjunct.streams]
        parts += [set().union(*touched)] if touched else []
    if len(parts) < 2:
        return
    named = [" and ".join(f"'{query.streams[at].name}'" for at in sorted(part)) for part in sorted(parts, key=min)]
    yield Finding(
        "warning" if query.where else "note",  # who gives no condition at all may well mean it
        "tie",
        f"No condition of `where` ties {named[0]} to {', nor to '.join(named[1:])}: whatever the windows admit is "
        "joined, every combination of them. If that is not what you want, add a condition over both.",
    )


def placed(nodes: int | None, slots: int | None) -> Iterator[Finding]:
    """Yield that more nodes were asked for than tasks run at once."""
    if nodes is not None and slots is not None and nodes > slots:
        yield Finding(
            "note",
            "nodes",
            f"The strategy has {nodes} nodes, and {slots} tasks run at once: nodes take turns. More than {slots} make "
            "no batch faster here.",
        )


def disordered(stream: StreamSpec, times: NDArray[np.int64]) -> Iterator[Finding]:
    """Yield that a stream's delay is too short for how its tuples come.

    Args:
        stream: The stream.
        times: Event times of a sample, in the order in which they came.
    """
    if not len(times):
        return
    behind = np.maximum.accumulate(times) - times
    late, most = int((behind > stream.delay).sum()), int(behind.max())
    if late:
        yield Finding(
            "warning",
            "delay",
            f"Stream '{stream.name}': in the sample, tuples come up to {format_roughly(most)} after later ones, and "
            f"its delay is {format_duration(stream.delay)}: up to {late:,} of {len(times):,} tuples would be late, "
            f"and not be joined. Give it delay='{format_duration(round_up(most))}' or more.",
        )


def costly(predicates: Mapping[str, Mapping[str, Any]], seconds: float) -> Iterator[Finding]:
    """Yield that a Python predicate takes most of the time.

    Args:
        predicates: Pairs asked, matches and milliseconds, by predicate.
        seconds: How long the sample took altogether.
    """
    for name, cost in predicates.items():
        took = cost["ms"] / 1000
        if seconds > 0 and took > DOMINANT * seconds and cost["pairs"]:
            yield Finding(
                "note",
                "predicate",
                f"Predicate '{name}' takes {min(1.0, took / seconds):.0%} of the time over the sample: "
                f"{duration(took / cost['pairs'])} a call, {cost['pairs']:,} calls, of which "
                f"{cost['matches'] / cost['pairs']:.1%} match. A cheap condition in `where` that rules out most pairs, "
                "or form='matrix', would help most.",
            )
