"""What a pair of a partial result and a row must pass before any conjunct: windows and the arrival order.

The filters are applied in the order of `ADMISSION`. Those by time narrow the times that a partial result looks for in a
chunk, before any pair exists; the others test pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.probe.chunk_probe import Probe, Times
from watersmeet.probe.emitted_once import limit_times, mask_pairs
from watersmeet.query.windows import FOREVER, NEVER

EVER = Times(np.array([NEVER]), np.array([FOREVER]))


def _all_times(probe: Probe, times: Times) -> Times:
    return times


def _all_pairs(probe: Probe, partial: Ints, row: Ints) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Admission:
    """A filter of pairs that does not depend on `where`.

    Attributes:
        narrow: Narrows the times that each partial result of a probe looks for.
        mask: Returns which pairs, given by the positions of the partial results and by rows, it admits; None for all.
    """

    narrow: Callable[[Probe, Times], Times] = _all_times
    mask: Callable[[Probe, Ints, Ints], Mask | None] = _all_pairs


def _in_window(probe: Probe, times: Times) -> Times:
    return probe.input.times  # the same for all chunks; as the first filter it narrows EVER


def _in_count_window(probe: Probe, partial: Ints, row: Ints) -> Mask | None:
    size = probe.input.window.rows
    if size is None:
        return None
    assert probe.rows.ordinals is not None
    mask: Mask = probe.rows.ordinals[row] > probe.block.asof[probe.step.target][partial] - size
    return mask


ADMISSION = (
    Admission(narrow=_in_window),
    Admission(narrow=limit_times, mask=mask_pairs),
    Admission(mask=_in_count_window),
)


def admit_times(probe: Probe) -> Times:
    """Return the times that each partial result looks for in the chunk."""
    return reduce(lambda times, filter_: filter_.narrow(probe, times), ADMISSION, EVER)


def admit_pairs(probe: Probe, times: Times | None, partial: Ints, row: Ints) -> tuple[Ints, Ints]:
    """Return the pairs that are admitted.

    Args:
        probe: The probe.
        times: The result of `admit_times`; None if the pairs were looked up by it.
        partial: The positions of their partial results.
        row: Their rows of the chunk.
    """
    masks = [mask for filter_ in ADMISSION if (mask := filter_.mask(probe, partial, row)) is not None]
    if times is not None:
        ts = probe.rows.ts[row]
        masks.append((ts >= times.low[partial]) & (ts <= times.high[partial]))
    if not masks:
        return partial, row
    mask = reduce(np.logical_and, masks)
    return (partial, row) if mask.all() else (partial[mask], row[mask])
