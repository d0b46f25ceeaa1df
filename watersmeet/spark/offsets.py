"""Which input a batch has: Spark writes a batch's offsets to its part of the checkpoint before it runs the batch."""

from dataclasses import dataclass

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
