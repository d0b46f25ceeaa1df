"""What the kernel knows of routes: somebody says at which copy of a chunk a partial result probes it."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from watersmeet.predicate.model import Column
from watersmeet.probe.chunk_table import Target
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import Partials

Seat = int | NDArray[np.int64]
"""The node at which each partial result of a block probes a chunk, or one node for all; NOWHERE where none does."""
NOWHERE = -1


Hashes = Callable[[Partials, Column], NDArray[np.uint64]]
"""Returns the hashes of a member's column, for a whole block."""


class Router(Protocol):
    """Names for each partial result and chunk the one node at which they meet."""

    tracked: tuple[int, ...]

    def seats(self, block: Partials, step: Step, hashes: Hashes) -> Callable[[Target], Seat]:
        """Return the seats of a block's partial results at each chunk of `step.target`."""
