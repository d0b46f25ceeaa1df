"""Checks of a join before it starts. Each finding is a sentence; all checks are pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from watersmeet.arguments import format_duration, format_roughly, round_up
from watersmeet.arrays import Ints
from watersmeet.formatting import format_seconds
from watersmeet.metadata.outlook import Outlook
from watersmeet.query.query import Query, StreamSpec

DOMINANT = 0.5
"""The part of the time from which on a predicate dominates."""
Severity = Literal["warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of `join.check()`.

    Attributes:
        severity: `warning` if the join will not do what the user probably wants; `note` if it could do better.
        kind: What it is about: `state`, `promise`, `tie`, `nodes`, `delay` or `predicate`.
        says: The problem and the remedy, in a sentence or two.
    """

    severity: Severity
    kind: str
    says: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.says}"


def check_definition(query: Query) -> Iterator[Finding]:
    """Yield findings about the definition of a join; a start logs the warnings among them."""
    outlook = Outlook(query)
    yield from (Finding("warning", "state", text) for text in outlook.warn_of_growth())
    yield from (Finding("warning", "promise", text) for text in outlook.warn_of_useless())
    yield from _check_ties(query)


def _check_ties(query: Query) -> Iterator[Finding]:
    """Yield a finding if no condition ties some streams to others: each tuple of one joins all of the other."""
    parts = [{at} for at in range(len(query.streams))]
    for conjunct in query.conjuncts:
        tied = [part for part in parts if part & conjunct.streams]
        parts = [part for part in parts if not part & conjunct.streams]
        parts += [set().union(*tied)] if tied else []
    if len(parts) < 2:
        return
    groups = [" and ".join(f"'{query.streams[at].name}'" for at in sorted(part)) for part in sorted(parts, key=min)]
    yield Finding(
        "warning" if query.where else "note",  # a join without any condition may be intended
        "tie",
        f"No condition of `where` ties {groups[0]} to {', nor to '.join(groups[1:])}: every combination that the "
        "windows admit is joined. If that is not what you want, add a condition over both.",
    )


def check_slots(nodes: int | None, slots: int | None) -> Iterator[Finding]:
    """Yield a finding if a strategy has more nodes than tasks run at once; nothing if one of the numbers is unknown."""
    if nodes is not None and slots is not None and nodes > slots:
        yield Finding(
            "note",
            "nodes",
            f"The strategy has {nodes} nodes, and {slots} tasks run at once: nodes take turns. More than {slots} make "
            "no batch faster here.",
        )


def check_delay(stream: StreamSpec, times: Ints) -> Iterator[Finding]:
    """Yield a finding if a stream's delay is too short for the disorder of its tuples.

    Args:
        stream: The stream.
        times: Event times of a sample, in microseconds, in order of arrival.
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


def check_predicate_costs(predicates: Mapping[str, Mapping[str, Any]], seconds: float) -> Iterator[Finding]:
    """Yield a finding for each Python predicate that takes most of the time.

    Args:
        predicates: Pairs evaluated, matches and milliseconds, by predicate.
        seconds: The time that the run over the whole sample took.
    """
    for name, cost in predicates.items():
        in_predicate = cost["ms"] / 1000
        if seconds > 0 and in_predicate > DOMINANT * seconds and cost["pairs"]:
            yield Finding(
                "note",
                "predicate",
                f"Predicate '{name}' takes {min(1.0, in_predicate / seconds):.0%} of the time over the sample: "
                f"{format_seconds(in_predicate / cost['pairs'])} a call, {cost['pairs']:,} calls, of which "
                f"{cost['matches'] / cost['pairs']:.1%} match. A cheap condition in `where` that rules out most pairs, "
                "or form='matrix', would help most.",
            )
