"""Each result once: of its members, only the one that arrived last finds it.

Every member of a result probes the streams of all others. So that only one of them emits it, a probe asks only for
what arrived before the probing tuple: what came in earlier batches than it did; of its own batch, what has an earlier
time, and of what has the same time, streams named earlier in the query.

A combination that is looked for once it is closed is found by the member that expires first, instead. Of those with the
same deadline that is the one of the stream named first. One that is closed at its own time is found by its latest
member; of those with the same time that is the one of the stream named last.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.probe.chunk_probe import Probe, Times
from watersmeet.probe.partials import references
from watersmeet.query.windows import FOREVER, NEVER
from watersmeet.spilling.owed import Among

OWN = "own"
"""What a block notes the reference of the probing tuple by, where rows of its own stream are asked for: of those that
came with it at the same time, the lower reference is the earlier one."""
NEWEST = "newest"
"""What a block notes by the time of the newest partner that each combination is known to have, where nothing older is
asked for."""


def arrived_before(probe: Probe, times: Times) -> Times:
    """Return which times each partial result asks a chunk for, as only what arrived before is admitted.

    [!] This is what makes results exactly once. Every exchange, placement and access path goes through here.

    Args:
        probe: The probe; `moment` is the time of the tuple that a partial result began with, `batch` its batch.
        times: What the windows admit.
    """
    (low, high), mine, block = times, probe.mine, probe.block
    among = probe.step.role.among
    came = probe.target.chunk.arrived
    if among in _BY_TIME:
        low, high = _BY_TIME[among](probe, times)
    elif came.last >= int(block.batch.min()):
        mine = mine & (block.batch >= came.first)
        if probe.rows.arrivals is None:  # all in one batch
            alike = block.batch <= came.last
            latest, some = _latest(probe)
            mine = mine & (some | ~alike)
            high = np.where(alike, np.minimum(high, latest), high)
    return Times(low, high) if np.all(mine) else Times(np.where(mine, low, FOREVER), np.where(mine, high, NEVER))


def came_before(probe: Probe, partial: Ints, row: Ints) -> NDArray[np.bool_] | None:
    """Return which pairs are of a row that arrived before the probing tuple; None if times have told them apart."""
    arrivals, block, among = probe.rows.arrivals, probe.block, probe.step.role.among
    if among in _BY_TIME:
        return None
    if among == "earlier" and probe.target.chunk.arrived.last >= int(block.batch.min()):
        lower = references(probe.target.number, row) < block.noted[OWN][partial]
        earlier: NDArray[np.bool_] = lower | (probe.rows.ts[row] < block.moment[partial])
        return earlier
    if arrivals is None or probe.target.chunk.arrived.last < int(block.batch.min()):
        return None
    came, batch = arrivals[row], block.batch[partial]
    latest, some = (found[partial] for found in _latest(probe))
    before: NDArray[np.bool_] = (came < batch) | ((came == batch) & some & (probe.rows.ts[row] <= latest))
    return before


def _latest(probe: Probe) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the latest time of what came before each tuple within its batch, and whether there can be such."""
    moment = probe.block.moment
    if probe.step.target < probe.block.origin or probe.step.role.among == "earlier":
        return moment, np.ones(len(moment), bool)
    return np.maximum(moment, NEVER + 1) - 1, moment > NEVER  # what has the same time came later


def _expiring(probe: Probe, times: Times) -> Times:
    """Return the times of what expires after a partial result's first member does, whenever it came."""
    (low, high), until, window = times, probe.block.deadline, probe.sought.window
    if probe.step.target > probe.block.origin:
        return Times(np.maximum(low, window.earliest(until)), high)
    later = np.maximum(low, window.earliest(np.minimum(until, FOREVER - 1) + 1))
    return Times(np.where(until < FOREVER, later, FOREVER), np.where(until < FOREVER, high, NEVER))


def _preceding(probe: Probe, times: Times) -> Times:
    """Return the times up to a partial result's first member, whenever rows came."""
    (low, high), (latest, some) = times, _latest(probe)
    return Times(np.where(some, low, FOREVER), np.where(some, np.minimum(high, latest), NEVER))


def _newest(probe: Probe, times: Times) -> Times:
    """Return the times up to that of a combination, from that of the newest partner known."""
    (low, high), known = times, probe.block.noted.get(NEWEST)
    return Times(low if known is None else np.maximum(low, known), np.minimum(high, probe.block.high))


_BY_TIME: Mapping[Among, Callable[[Probe, Times], Times]] = {
    "expiring": _expiring,
    "all": lambda probe, times: times,
    "preceding": _preceding,
    "newest": _newest,
}
"""What a role leaves of the times that windows admit, where it does not matter when rows came."""
