"""Each result once: of its members, only the one that arrived last finds it.

Every member of a result probes the streams of all others. So that only one of them emits it, a probe asks only for
what arrived before the probing tuple: chunks of earlier batches did; of the batch's own, what has an earlier time, and
of what has the same time, streams named earlier in the query.
"""

import numpy as np

from watersmeet.kernel.probe import Probe, Times
from watersmeet.model.windows import FOREVER, NEVER


def arrived_before(probe: Probe, times: Times) -> Times:
    """Return which times each partial result asks a chunk for, as only what arrived before is admitted.

    [!] This is what makes results exactly once. Every exchange, placement and access path goes through here.

    Args:
        probe: The probe; `moment` is the time of the tuple that a partial result began with.
        times: What the windows admit.
    """
    (low, high), mine, moment = times, probe.mine, probe.block.moment
    if probe.target.fresh:
        high = np.minimum(high, moment)
    if probe.target.fresh and probe.step.target > probe.block.origin:  # what has the same time came later
        mine = mine & (moment > NEVER)
        high = np.minimum(high, np.maximum(moment, NEVER + 1) - 1)
    return Times(low, high) if np.all(mine) else Times(np.where(mine, low, FOREVER), np.where(mine, high, NEVER))
