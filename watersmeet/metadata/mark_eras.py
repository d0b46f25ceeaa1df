"""How long marks are remembered: they are dated by eras, stretches of the watermark, and forgotten an era at a time.

[!] A mark is forgotten only in a batch that has looked for the tuples that it shows to be dead, and which batch that is
follows from the state before it. Otherwise, what a row joins that should not have come any more would depend on what
happened to have been purged by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.metadata.constraint_state import MarkFile

_ERAS = 4
"""Into how many eras the time is cut for which marks are remembered: they are forgotten at most one later."""


@dataclass(frozen=True, slots=True)
class Recall:
    """What becomes of marks in a batch.

    Attributes:
        remember: For how many microseconds of the watermark marks are remembered; None for ever.
        watermark: The watermark before the batch; None for minus infinity.
        purges: Whether the batch has looked at all that the marks let go.
    """

    remember: int | None = None
    watermark: int | None = None
    purges: bool = True

    @property
    def dates(self) -> bool:
        """Whether marks are to be dated; those from before the first watermark count as made at it."""
        return self.remember is not None and self.watermark is not None

    def dated(self, files: Sequence[MarkFile], since: int) -> tuple[MarkFile, ...]:
        """Return tables of marks, each with its era; those that have one keep it.

        Args:
            files: The tables.
            since: The latest time that the watermark has to pass before some mark of those without an era is in effect.
        """
        if self.remember is None or self.watermark is None:
            return tuple(files)
        era = max(self.watermark, since) // self._step * self._step
        return tuple(file._replace(era=era) if file.era is None else file for file in files)

    def kept(self, files: Sequence[MarkFile]) -> tuple[MarkFile, ...]:
        """Return the tables that are remembered after the batch."""
        if self.remember is None or self.watermark is None or not self.purges:
            return tuple(files)
        last = self.watermark - self.remember - self._step
        return tuple(file for file in files if file.era is None or file.era > last)

    @property
    def _step(self) -> int:
        return max(1, (self.remember or 0) // _ERAS)


EVERYTHING = Recall()
"""Nothing is forgotten."""
