"""Deliveries: files that a batch has prepared, to appear in an output folder once the batch's manifest is written.

The manifest names them, so a restart can finish an interrupted delivery: a file that is no longer where it was
prepared has been delivered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.errors import AFRESH, StateError

STAGING = "_watersmeet_staging"
"""The hidden folder of an output folder in which files are prepared if they can't be in the store."""
_FOLDERS = ("results", "sides", STAGING)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The files of a batch for one output folder.

    Attributes:
        output: Which of the query's outputs it is, such as `path` or `latePath/a`.
        folder: The folder, as Spark spells it and as Arrow does.
        moves: For each file its source, below `STAGING` of the folder or in the store, and its path in the folder.
    """

    output: str
    folder: tuple[str, str]
    moves: tuple[tuple[str, str], ...]

    def to_json(self) -> list[Any]:
        """Return the delivery as the manifest stores it."""
        return [self.output, self.folder, self.moves]

    @classmethod
    def from_json(cls, plain: Sequence[Any]) -> "Delivery":
        """Return a delivery of a manifest.

        Raises:
            StateError: If it names files outside the folders of prepared files; only an edited manifest can do that.
        """
        output, (spark, arrow), moves = plain
        for source, target in moves:
            if source.split("/")[0] not in _FOLDERS or not (_stays_inside(source) and _stays_inside(target)):
                raise StateError(
                    f"A manifest is to deliver {source!r} as {target!r}, which are not files of an output; restore the "
                    f"manifest or {AFRESH}."
                )
        return cls(output, (spark, arrow), tuple((source, target) for source, target in moves))

    def rename(self, name: str) -> "Delivery":
        """Return the delivery with another name for its only file."""
        ((source, _),) = self.moves
        return replace(self, moves=((source, name),))

    @property
    def stored(self) -> list[str]:
        """The prepared files that lie in the store."""
        return [source for source, _ in self.moves if not is_staged(source)]


def is_staged(source: str) -> bool:
    """Tell whether a file was prepared in its output folder; else it was in the store."""
    return source.startswith(f"{STAGING}/")


def _stays_inside(path: str) -> bool:
    return all(part.strip(".") for part in path.split("/")) and "\0" not in path
