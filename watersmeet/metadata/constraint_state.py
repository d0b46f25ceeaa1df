"""What a stream's promises have come to: tables of marks, runs under way, frontiers; part of the manifest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from watersmeet.errors import AFRESH, StateError
from watersmeet.state.chunks.chunk import lies_in

MARKS = "marks"
"""The folder of a store in which tables of marks lie."""


class MarkFile(NamedTuple):
    """A file of marks, or of values of a run.

    Attributes:
        path: Where it is.
        rows: How many there are in it.
        bytes: Its bytes.
        era: The stretch of the watermark from which marks are dated that are forgotten one day; None before that.
    """

    path: str
    rows: int
    bytes: int
    era: int | None = None


@dataclass(frozen=True, slots=True)
class Promised:
    """What one promise of a stream has come to.

    Attributes:
        files: The tables of what it denies.
        runs: Of a promise of clusters, the values of the last batches that brought some, the oldest first.
        frontier: Of a promised order, the furthest value so far, as JSON can hold it; None before the first.
        batch: The batch that brought that value.
        waiting: Rows that wait for their turn: punctuations to be put out, rows whose partner may still come.
    """

    files: tuple[MarkFile, ...] = ()
    runs: tuple[tuple[MarkFile, ...], ...] = ()
    frontier: int | str | None = None
    batch: int = -1
    waiting: tuple[MarkFile, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        """The files that it consists of."""
        runs = (file for run in self.runs for file in run)
        return frozenset(file.path for file in (*self.files, *runs, *self.waiting))

    def to_json(self) -> list[Any]:
        """Return it as the manifest writes it."""
        return [self.files, self.runs, self.frontier, self.batch, self.waiting]

    @staticmethod
    def from_json(plain: Sequence[Any]) -> "Promised":
        """Return what `to_json` was given."""
        files, runs, frontier, batch, waiting = plain
        return Promised(_files(files), tuple(map(_files, runs)), frontier, batch, _files(waiting))


def _files(plain: Sequence[Sequence[Any]]) -> tuple[MarkFile, ...]:
    files = tuple(MarkFile(*file) for file in plain)
    for file in files:
        if not lies_in(file.path, MARKS):
            raise StateError(
                f"A manifest names the marks {file.path!r}, which are not in the folder {MARKS}/ of its store; restore "
                f"the manifest or {AFRESH}."
            )
    return files


Promises = tuple[tuple[Promised, ...], ...]
"""For each stream what its promises have come to, in their order."""


def at(promises: Promises, stream: int, number: int) -> Promised:
    """Return what a promise has come to; nothing yet before the first batch."""
    return promises[stream][number] if promises else Promised()


def counted(promises: Mapping[str, Sequence[Promised]]) -> dict[str, dict[str, int]]:
    """Return how many marks each stream that promises something has, and their bytes, for `progress`."""
    return {
        name: {
            "marks": sum(file.rows for promised in found for file in promised.files),
            "bytes": sum(file.bytes for promised in found for file in promised.files),
        }
        for name, found in promises.items()
        if found
    }
