"""What the diary says of the last batches: courses, rates, how fast the watermark moves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from watersmeet.observe.dashboard.view import Series

SHOWN = 60
"""Batches of which a course is drawn."""
RECENT = 10
"""Batches over which rates are taken."""
Progress = Mapping[str, Any]


def began(progress: Progress) -> int:
    """Return when a batch was offered, in microseconds since the epoch."""
    return round(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1e6)


def ended(progress: Progress) -> int:
    """Return when its results were there."""
    return began(progress) + round(1000 * float(progress["durationMs"]["total"]))


@dataclass(frozen=True)
class Course:
    """The last batches of a query, or of a join within it.

    Attributes:
        batches: What they did, oldest first.
        own: Returns what a join did of what its batch did.
    """

    batches: Sequence[Progress]
    own: Callable[[Progress], Progress] = lambda progress: progress

    @cached_property
    def shown(self) -> Sequence[Progress]:
        """The batches that are drawn, rounds among them."""
        return self.batches[-SHOWN:]

    @cached_property
    def brought(self) -> Sequence[Progress]:
        """The last batches that took rows: rates are taken from them."""
        return [found for found in self.batches if not found.get("round")][-RECENT - 1 :]

    def series(self, of: Callable[[Progress], float | None]) -> Series:
        """Return the course of a number over the batches that are drawn."""
        return tuple(of(self.own(found)) for found in self.shown)

    def per_second(self, of: Callable[[Progress], float]) -> float | None:
        """Return a number a second, from the first of the last batches to the last; None if that can't be told."""
        if len(self.brought) < 2:
            return None
        passed = began(self.brought[-1]) - began(self.brought[0])
        return sum(of(self.own(found)) for found in self.brought[1:]) / passed * 1e6 if passed > 0 else None

    @cached_property
    def speed(self) -> float | None:
        """How far the watermark moves while a second passes; None if it doesn't, or nobody knows."""
        marks = [
            (began(found), mark) for found in self.brought if (mark := self.own(found).get("watermark")) is not None
        ]
        if len(marks) < 3:
            return None
        passed, moved = marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]
        return moved / passed if passed > 0 and moved > 0 else None
