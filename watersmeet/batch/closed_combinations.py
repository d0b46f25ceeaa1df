"""Closed combinations: those of the required streams for which no further partner can arrive.

A combination is closed once the watermark has passed the deadline of the member that expires first: all later rows are
beyond it. If only as-of partners are asked for, it is closed once the watermark has passed its own time.

A batch closes combinations by the watermark after it, as far as its tasks can know that watermark: they know the rows
of the batch, but neither which streams have become idle nor how far inner joins have advanced. The rest is closed by
the next batch.

When no more rows will come, everything is closed: in the only batch of a static frame, and in the final round of a
query that is closed for good.
"""

from collections.abc import Sequence
from typing import NamedTuple

from watersmeet.arrays import Ints
from watersmeet.batch.intake_report import IntakeReport, total
from watersmeet.batch.plan import BatchPlan
from watersmeet.probe.partials import Partials
from watersmeet.query.query import Query
from watersmeet.query.windows import FOREVER, NEVER


class Span(NamedTuple):
    """The deadlines that pass in a batch, both ends included; empty if the first is later than the last."""

    first: int
    last: int


def closing_mark(plan: BatchPlan, intakes: Sequence[IntakeReport]) -> int | None:
    """Return the time before which every deadline has passed after a batch; None for minus infinity.

    It lies between the watermarks before and after the batch. Tasks and the commit compute the same mark.

    Args:
        plan: The batch's plan.
        intakes: What the intake tasks reported.
    """
    specs, intake = plan.query.streams, total(intakes, len(plan.query.streams))
    latest = [
        max((time for time in (before, new.latest) if time is not None), default=None)
        for before, new in zip(plan.times.latest, intake, strict=True)
    ]
    marks = [spec.watermark(latest[at], plan.times.inner.get(at)) for at, spec in enumerate(specs) if not spec.table]
    finite = [mark for mark in marks if mark is not None]
    if len(finite) < len(marks):
        return plan.times.watermark
    return max(NEVER if plan.times.watermark is None else plan.times.watermark, min(finite))


def closing_span(plan: BatchPlan, intakes: Sequence[IntakeReport]) -> Span:
    """Return the deadlines that pass in a batch; all remaining ones if no more rows will come."""
    first = NEVER if plan.times.settled is None else plan.times.settled
    if plan.intake.repeatable or plan.is_final:
        return Span(first, FOREVER)
    mark = closing_mark(plan, intakes)
    if mark is None or mark == NEVER:
        return Span(FOREVER, NEVER)
    return Span(first, mark - 1)


def closing_times(query: Query, combinations: Partials) -> Ints:
    """Return the times that the watermark has to pass before combinations of the required streams are closed."""
    return combinations.high if query.closes_at_its_time else combinations.deadline


def is_closed(deadline: int, settled: int | None) -> bool:
    """Tell whether the batches so far have closed a combination.

    Args:
        deadline: See `closing_times`.
        settled: The closing mark after the last of them; None for minus infinity.
    """
    return settled is not None and deadline < settled
