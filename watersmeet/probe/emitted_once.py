"""Each result once: of its members, only the one that arrived last finds it.

Every member of a result probes the streams of all others. So that only one of them emits it, a probe looks only for
rows that arrived before the probing tuple: those of earlier batches; in its own batch, those with an earlier time; and
among those with the same time, those of streams named earlier in the query.

A combination that is looked for once it is closed is found by the member that expires first instead; among equal
deadlines, by the one of the stream named first. One that is closed at its own time is found by its latest member; among
equal times, by the one of the stream named last.
"""

from collections.abc import Callable, Mapping

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.probe.candidates import Probe, Times
from watersmeet.probe.partials import references
from watersmeet.query.windows import FOREVER, NEVER
from watersmeet.spilling.units import Among

OWN = "own"
"""The tag with the reference of the probing tuple, for probes of its own stream: among rows of the same batch and time
the lower reference is the earlier one."""
NEWEST = "newest"
"""The tag with the time of the newest partner known of each combination, if nothing older is looked for."""


def limit_times(probe: Probe, times: Times) -> Times:
    """Limit the times that each partial result looks for in a chunk to rows that arrived before it.

    A partial result that looks for nothing gets an empty interval.

    [!] This makes results exactly once. Every exchange, placement and access path goes through here.

    Args:
        probe: The probe; `moment` is the time of the tuple that a partial result began with, `batch` its batch.
        times: The times that the windows admit.
    """
    (low, high), mask, block = times, probe.mask, probe.block
    among = probe.step.role.among
    arrived = probe.target.chunk.arrived
    if among in _BY_TIME:
        low, high = _BY_TIME[among](probe, times)
    elif arrived.last >= int(block.batch.min()):
        mask = mask & (block.batch >= arrived.first)
        if probe.rows.arrivals is None:  # all in one batch
            same_batch = block.batch <= arrived.last
            latest, has_any = _latest_time(probe)
            mask = mask & (has_any | ~same_batch)
            high = np.where(same_batch, np.minimum(high, latest), high)
    return Times(low, high) if np.all(mask) else Times(np.where(mask, low, FOREVER), np.where(mask, high, NEVER))


def mask_pairs(probe: Probe, partial: Ints, row: Ints) -> Mask | None:
    """Return for each pair whether its row arrived before the probing tuple; None if `limit_times` ensured that."""
    arrivals, block, among = probe.rows.arrivals, probe.block, probe.step.role.among
    if among in _BY_TIME:
        return None
    if among == "earlier" and probe.target.chunk.arrived.last >= int(block.batch.min()):
        lower = references(probe.target.number, row) < block.tags[OWN][partial]
        earlier: Mask = lower | (probe.rows.ts[row] < block.moment[partial])
        return earlier
    if arrivals is None or probe.target.chunk.arrived.last < int(block.batch.min()):
        return None
    arrived, batch = arrivals[row], block.batch[partial]
    latest, has_any = (part[partial] for part in _latest_time(probe))
    before: Mask = (arrived < batch) | ((arrived == batch) & has_any & (probe.rows.ts[row] <= latest))
    return before


def _latest_time(probe: Probe) -> tuple[Ints, Mask]:
    """Return the latest time of rows that precede each tuple within its batch, and whether there can be any."""
    moment = probe.block.moment
    if probe.step.target < probe.block.origin or probe.step.role.among == "earlier":
        return moment, np.ones(len(moment), bool)
    return np.maximum(moment, NEVER + 1) - 1, moment > NEVER  # rows with the same time are later


def _limit_to_expiring(probe: Probe, times: Times) -> Times:
    """Limit the times to rows that expire after a partial result's first member, whenever they arrived."""
    (low, high), until, window = times, probe.block.deadline, probe.input.window
    if probe.step.target > probe.block.origin:
        return Times(np.maximum(low, window.earliest(until)), high)
    later = np.maximum(low, window.earliest(np.minimum(until, FOREVER - 1) + 1))
    return Times(np.where(until < FOREVER, later, FOREVER), np.where(until < FOREVER, high, NEVER))


def _limit_to_preceding(probe: Probe, times: Times) -> Times:
    """Limit the times to those up to a partial result's first member, whenever rows arrived."""
    (low, high), (latest, has_any) = times, _latest_time(probe)
    return Times(np.where(has_any, low, FOREVER), np.where(has_any, np.minimum(high, latest), NEVER))


def _limit_to_newest(probe: Probe, times: Times) -> Times:
    """Limit the times to those from the newest partner known to the combination's own."""
    (low, high), newest = times, probe.block.tags.get(NEWEST)
    return Times(low if newest is None else np.maximum(low, newest), np.minimum(high, probe.block.high))


_BY_TIME: Mapping[Among, Callable[[Probe, Times], Times]] = {
    "expiring": _limit_to_expiring,
    "all": lambda probe, times: times,
    "preceding": _limit_to_preceding,
    "newest": _limit_to_newest,
}
"""How roles limit times if it doesn't matter when rows arrived."""
