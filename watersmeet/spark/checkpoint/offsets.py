"""Spark's part of the checkpoint, and whether the join's belongs to it.

Spark writes a batch's offsets before it runs the batch, and that it is done once the join has committed it.
"""

import re
from dataclasses import dataclass

from watersmeet.errors import AFRESH, StateError
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.formats import digest
from watersmeet.state.store.store import Store


@dataclass(frozen=True, slots=True)
class Offsets:
    """Spark's logs of the batches that it has begun and done.

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

    def check_done(self, newest: int | None) -> None:
        """Check that the join has done what Spark believes to be done: with no new input no batch would notice.

        Args:
            newest: The last batch of which there is state, if there is any.

        Raises:
            StateError: If it has not; its state is gone, or the checkpoint is another query's.
        """
        found = (re.fullmatch(r"commits/(\d+)", name) for name in self.checkpoint.names("commits"))
        done = max((int(match[1]) for match in found if match), default=-1)
        if done > (-1 if newest is None else newest):
            raise self._apart(f"Spark has finished batch {done}, but the newest state is {_shown(newest)}")

    def check_begun(self, batch: int, newest: Manifest) -> None:
        """Check that a batch which Spark runs is the one after the newest state, or that one again, with its input.

        Raises:
            StateError: If it isn't.
        """
        if newest.offered not in (batch - 1, batch):
            last = newest.offered if newest.offered >= 0 else None
            raise self._apart(f"Spark runs batch {batch}, but the newest state is {_shown(last)}")
        if self.of(newest.offered) not in (newest.input, None):
            raise self._apart(f"Batch {newest.offered} was computed from different input than Spark now has for it")

    def _apart(self, how: str) -> StateError:
        return StateError(
            f"{how}: Spark's part of the checkpoint at {self.checkpoint.root} and the join's do not belong together; "
            f"restore both or {AFRESH}."
        )


def _shown(batch: int | None) -> str:
    return "missing" if batch is None else f"of batch {batch}"
