"""Makes a failing case smaller, as far as a few tries go."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import watersmeet as wm
from tests.fuzz.case import Case

SECONDS = 40.0


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float = SECONDS) -> Case:
    """Return a smaller case that fails too: fewer conjuncts and rows, a plainer way to run."""
    end = time.monotonic() + seconds
    while True:
        for smaller in _smaller(case):
            if time.monotonic() > end:
                return case
            if fails(smaller):
                case = smaller
                break
        else:
            return case


def _smaller(case: Case) -> Iterator[Case]:
    """Yield simpler cases, the boldest first."""
    for at in range(len(case.conjuncts) if len(case.conjuncts) > 1 else 0):
        yield replace(case, conjuncts=case.conjuncts[:at] + case.conjuncts[at + 1 :])
    rows = case.data.rows
    size = len(rows) // 2
    while size >= 1:
        for start in range(0, len(rows), size):
            kept = rows[:start] + rows[start + size :]
            if {row.stream for row in kept} == {row.stream for row in rows}:
                yield replace(case, data=replace(case.data, rows=kept))
        size //= 2
    if case.select is not None:
        yield replace(case, select=None)
    if case.order != "given":
        yield replace(case, order="given")
    if not isinstance(case.strategy, wm.Central):
        yield replace(case, strategy=wm.Central())
    if case.exchange not in (None, "driver"):
        yield replace(case, exchange="driver")
    if case.zone != "UTC":
        yield replace(case, zone="UTC")
