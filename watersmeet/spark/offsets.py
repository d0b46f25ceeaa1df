"""Spark's part of the checkpoint: which batches it has done, and which input they had.

Spark writes a batch's offsets before it runs the batch, and that it is done once the join has committed it.
"""

import re
from dataclasses import dataclass

from watersmeet.errors import StateError
from watersmeet.state import manifest as manifests
from watersmeet.state.sealed import digest
from watersmeet.state.store import Store


@dataclass(frozen=True, slots=True)
class Offsets:
    """Spark's log of offsets.

    Attributes:
        checkpoint: The folder that Spark keeps its part of the checkpoint in.
    """

    checkpoint: Store

    def of(self, batch: int) -> str | None:
        """Return what identifies a batch's input, or None if Spark has forgotten it.

        [!] It is the whole file, the moment at which Spark made the batch included: sources number their offsets, and
        one that lost its own log gives a number to other input.
        """
        data = self.checkpoint.read(f"offsets/{batch}")
        return None if data is None else digest(data)

    def check(self, state: Store) -> None:
        """Check that the join has done what Spark believes to be done: with no new input no batch would notice.

        Raises:
            StateError: If it has not; its state is gone, or the checkpoint is another query's.
        """
        found = (re.fullmatch(r"commits/(\d+)", name) for name in self.checkpoint.names("commits"))
        done = max((int(match[1]) for match in found if match), default=-1)
        newest = manifests.newest(state)
        if done > (-1 if newest is None else newest):
            there = "missing" if newest is None else f"of batch {newest}"
            raise StateError(
                f"Spark has done batch {done}, but the newest state at {state.root} is {there}: Spark's part of the "
                "checkpoint and the join's do not belong together; restore both or start a new checkpoint."
            )
