"""The last batches as progress records them: trends, rates, how fast the watermark moves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from watersmeet.observe.dashboard.dashboard_view import Series

TREND_BATCHES = 60
"""Batches of which trends are drawn."""
RECENT = 10
"""Batches over which rates are averaged."""
Progress = Mapping[str, Any]


def start_time(progress: Progress) -> int:
    """Return when a batch was offered, in microseconds since the epoch."""
    return round(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1e6)


def end_time(progress: Progress) -> int:
    """Return when a batch's results were in the sink, in microseconds since the epoch."""
    return start_time(progress) + round(1000 * float(progress["durationMs"]["total"]))


@dataclass(frozen=True)
class RecentBatches:
    """The last batches of a query, or of a join within it.

    Attributes:
        progress: What they did, oldest first.
        part: Returns the part of a batch's progress that is the join's.
    """

    progress: Sequence[Progress]
    part: Callable[[Progress], Progress] = lambda progress: progress

    @cached_property
    def latest(self) -> Sequence[Progress]:
        """The batches to draw, rounds included."""
        return self.progress[-TREND_BATCHES:]

    @cached_property
    def with_rows(self) -> Sequence[Progress]:
        """The last batches that took input, over which rates are averaged."""
        return [progress for progress in self.progress if not progress.get("round")][-RECENT - 1 :]

    def series(self, measure: Callable[[Progress], float | None]) -> Series:
        """Return the trend of a number over the batches to draw."""
        return tuple(measure(self.part(progress)) for progress in self.latest)

    def per_second(self, measure: Callable[[Progress], float]) -> float | None:
        """Return the rate of a number per second; None if there are too few batches to tell."""
        if len(self.with_rows) < 2:
            return None
        elapsed = start_time(self.with_rows[-1]) - start_time(self.with_rows[0])
        total = sum(measure(self.part(progress)) for progress in self.with_rows[1:])
        return total / elapsed * 1e6 if elapsed > 0 else None

    @cached_property
    def watermark_speed(self) -> float | None:
        """The seconds by which the watermark moves per second; None if it doesn't move, or that is unknown."""
        parts = [(start_time(progress), self.part(progress)) for progress in self.with_rows]
        marks = [(time, mark) for time, part in parts if (mark := part.get("watermark")) is not None]
        if len(marks) < 3:
            return None
        elapsed, distance = marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]
        return distance / elapsed if elapsed > 0 and distance > 0 else None
