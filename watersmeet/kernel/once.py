"""Each result once: of its members, only the one that arrived last finds it.

Every member of a result probes the streams of all others. So that only one of them emits it, a probe asks only for
what arrived before the probing tuple: chunks of earlier batches did; of the batch's own, what has an earlier time, and
of what has the same time, streams named earlier in the query.
"""

from typing import Any

import numpy as np

from watersmeet.kernel.partials import Ints, Partials
from watersmeet.kernel.steps import Step
from watersmeet.kernel.table import Target
from watersmeet.model.windows import FOREVER, NEVER


def arrived_before(block: Partials, step: Step, target: Target, mine: Any, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return the earliest and the latest time of what each partial result asks a chunk for, as it arrived before.

    [!] This is what makes results exactly once. Every exchange, placement and access path goes through here.

    Args:
        block: Partial results; `moment` is the time of the tuple that began the probe.
        step: The hop.
        target: The chunk.
        mine: Which of them ask this chunk at all.
        low: The earliest time that their windows admit.
        high: The latest.
    """
    if target.fresh:
        high = np.minimum(high, block.moment)
    if target.fresh and step.target > block.origin:  # what has the same time came later
        mine = mine & (block.moment > NEVER)
        high = np.minimum(high, np.maximum(block.moment, NEVER + 1) - 1)
    return (low, high) if np.all(mine) else (np.where(mine, low, FOREVER), np.where(mine, high, NEVER))
