"""Deliveries: files that a batch has made ready, to appear in an output folder once the batch's manifest is written.

The manifest names them, so whoever finds it can finish what was cut: a file that is no longer where it was made ready
has been delivered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.errors import AFRESH, StateError

STAGING = "_watersmeet_staging"
"""The hidden folder of an output folder in which files are made ready, where that can't be done in the store."""
_FOLDERS = ("results", "sides", STAGING)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one output folder is to get of a batch.

    Attributes:
        output: Which of the query's outputs it is, such as `path` or `latePath/a`.
        folder: Where that was, as Spark spells it and as Arrow does.
        moves: Where each file was made ready, below `STAGING` of the folder or in the store, and its path in the
            folder.
    """

    output: str
    folder: tuple[str, str]
    moves: tuple[tuple[str, str], ...]

    def to_json(self) -> list[Any]:
        """Return it as the manifest writes it."""
        return [self.output, self.folder, self.moves]

    @classmethod
    def from_json(cls, plain: Sequence[Any]) -> "Delivery":
        """Return a delivery of a manifest.

        Raises:
            StateError: If it names files elsewhere than such files are: nobody but a hand writes that.
        """
        output, (spark, arrow), moves = plain
        for source, target in moves:
            if source.split("/")[0] not in _FOLDERS or not (_stays_inside(source) and _stays_inside(target)):
                raise StateError(
                    f"A manifest is to deliver {source!r} as {target!r}, which are not files of an output; restore the "
                    f"manifest or {AFRESH}."
                )
        return cls(output, (spark, arrow), tuple((source, target) for source, target in moves))

    def renamed(self, name: str) -> "Delivery":
        """Return a delivery of one file, under another name."""
        ((source, _),) = self.moves
        return replace(self, moves=((source, name),))

    @property
    def stored(self) -> list[str]:
        """The files of the store among those that were made ready."""
        return [source for source, _ in self.moves if not is_staged(source)]


def is_staged(source: str) -> bool:
    """Tell whether a file was made ready in its output folder; else it was in the store."""
    return source.startswith(f"{STAGING}/")


def _stays_inside(path: str) -> bool:
    return all(part.strip(".") for part in path.split("/")) and "\0" not in path
