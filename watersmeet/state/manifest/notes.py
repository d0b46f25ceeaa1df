"""What a strategy or a join order writes down for its next batch, as the manifest holds it."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Kept(NamedTuple):
    """Notes for the next batch. They steer only: whoever can't read them starts anew, with the same results.

    Attributes:
        by: Whose they are; nobody else reads them.
        notes: The notes, as JSON can hold them.
        version: Of their form.
    """

    by: str = ""
    notes: Mapping[str, Any] = {}
    version: int = 0

    def read_by(self, reader: object) -> Mapping[str, Any]:
        """Return the notes if they are of the reader's kind; else none."""
        return self.notes if self.by == type(reader).__name__ else {}
