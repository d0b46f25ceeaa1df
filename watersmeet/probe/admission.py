"""What a pair of a partial result and a row must pass before any conjunct is asked: windows and the arrival order.

The filters are applied in the order of `ADMISSION`. Those by time narrow the times that a partial result asks a chunk
for, before any pair is made; the others judge pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.probe.chunk_probe import Probe, Times
from watersmeet.probe.emitted_once import arrived_before, came_before
from watersmeet.query.windows import FOREVER, NEVER

EVER = Times(np.array([NEVER]), np.array([FOREVER]))


def _same(probe: Probe, times: Times) -> Times:
    return times


def _any(probe: Probe, partial: Ints, row: Ints) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Admission:
    """A filter of pairs that knows nothing of `where`.

    Attributes:
        narrow: Returns what it leaves of the times that each partial result of a probe asks for.
        mask: Returns which pairs, given by the positions of the partial results and by rows, it admits; None for all.
    """

    narrow: Callable[[Probe, Times], Times] = _same
    mask: Callable[[Probe, Ints, Ints], Mask | None] = _any


def _in_window(probe: Probe, times: Times) -> Times:
    return probe.sought.times  # as the first it narrows EVER, and they are the same for all chunks


def _in_count_window(probe: Probe, partial: Ints, row: Ints) -> Mask | None:
    size = probe.sought.window.rows
    if size is None:
        return None
    assert probe.rows.ordinals is not None
    admitted: Mask = probe.rows.ordinals[row] > probe.block.asof[probe.step.target][partial] - size
    return admitted


ADMISSION = (
    Admission(narrow=_in_window),
    Admission(narrow=arrived_before, mask=came_before),
    Admission(mask=_in_count_window),
)


def admitted_times(probe: Probe) -> Times:
    """Return the times that each partial result asks the chunk for."""
    return reduce(lambda times, filter_: filter_.narrow(probe, times), ADMISSION, EVER)


def admitted(probe: Probe, times: Times | None, partial: Ints, row: Ints) -> tuple[Ints, Ints]:
    """Return the pairs that are admitted.

    Args:
        probe: The probe.
        times: What `admitted_times` returned; None if the pairs were found by it.
        partial: The positions of their partial results.
        row: Their rows of the chunk.
    """
    masks = [mask for filter_ in ADMISSION if (mask := filter_.mask(probe, partial, row)) is not None]
    if times is not None:
        ts = probe.rows.ts[row]
        masks.append((ts >= times.low[partial]) & (ts <= times.high[partial]))
    if not masks:
        return partial, row
    keep = reduce(np.logical_and, masks)
    return (partial, row) if keep.all() else (partial[keep], row[keep])
