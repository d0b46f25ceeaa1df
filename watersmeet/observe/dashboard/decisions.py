"""What was decided from batch to batch, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from watersmeet.observe.dashboard.course import Course, Progress
from watersmeet.observe.dashboard.view import Said
from watersmeet.observe.dashboard.words import count

LISTED = 20
"""Decisions that are shown."""
NAMES = {"chosen": "Strategy", "master": "Master stream", "segmentSeconds": "Seconds of a segment", "ring": "Ring",
         "lengths": "Ring lengths", "order": "Join order"}  # fmt: skip


def decisions(course: Course) -> tuple[Said, ...]:
    """Return the last decisions, the last one first."""
    found = [(batch["batchId"], says) for batch in course.batches for says in _of(batch)]
    found = sorted([*found[-LISTED:], *_moved(course)], key=lambda entry: -entry[0])
    return tuple(Said(str(batch), says) for batch, says in found)


def _moved(course: Course) -> Iterator[tuple[int, str]]:
    """Yield for each reason the last batch before which rows changed their nodes: many batches may move some."""
    moves = [(batch["batchId"], moved) for batch in course.batches if (moved := _moves(batch)).get("rows")]
    for batch, moved in {moved["why"]: (batch, moved) for batch, moved in moves}.values():
        often = sum(other["why"] == moved["why"] for _, other in moves)
        again = f", as in {often} of the last {len(course.batches)} batches" if often > 1 else ""
        yield batch, f"{count(moved['rows'])} rows changed their node{again}: {moved['why']}"


def _moves(batch: Progress) -> Mapping[str, Any]:
    found: Mapping[str, Any] = batch.get("placement", {}).get("moved", {})
    return found


def _of(batch: Progress) -> Iterator[str]:
    for name, (before, after) in batch.get("changes", {}).items():
        yield from _changed(name, before, after)
    facts = batch.get("placement", {})
    for entry in facts.get("decisions", []):
        made = "" if entry.get("made", True) else " (not made: a dry run)"
        yield f"{entry['before']} → {entry['after']}{made}: {entry['why']}"
    decision = batch.get("spilling", {}).get("decision")
    if decision is not None and not decision.get("routine"):
        yield decision["why"]
    for name, inner in batch.get("inner", {}).items():
        yield from (f"In '{name}': {says}" for says in _of(inner))


def _changed(name: str, before: Any, after: Any) -> Iterator[str]:
    """Yield what changed; of orders only those that did."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in after:
            if before.get(key) != after[key]:
                yield f"{NAMES.get(name, name)} of '{key}': {_shown(before.get(key))} → {_shown(after[key])}"
    else:
        yield f"{NAMES.get(name, name)}: {_shown(before)} → {_shown(after)}"


def _shown(value: Any) -> str:
    """Return a value in words: orders as their streams, several of them with `or` between.

    >>> _shown([["b", "c"], ["c", "b"]]), _shown([0, 1]), _shown(None)
    ('b, c or c, b', '0, 1', 'nothing')
    """
    if isinstance(value, list):
        nested = any(isinstance(part, list) for part in value)
        return (" or " if nested else ", ").join(_shown(part) for part in value)
    return "nothing" if value is None else str(value)
