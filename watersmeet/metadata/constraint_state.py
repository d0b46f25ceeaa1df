"""The state of a stream's constraints after a batch: mark files, open runs and frontiers; part of the manifest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

MARKS = "marks"
"""The folder of a store that holds tables of marks."""


class MarkFile(NamedTuple):
    """A file of marks, of values of a run, or of rows that wait.

    Attributes:
        path: Its path in the store.
        rows: How many rows it has.
        bytes: Its size.
        era: The start of the period of the watermark to which its marks belong, if they are to be dropped one day; None
            while they are not dated.
    """

    path: str
    rows: int
    bytes: int
    era: int | None = None


@dataclass(frozen=True, slots=True)
class ConstraintState:
    """The state of one constraint after a batch.

    Attributes:
        files: The tables of marks: the values that it denies.
        runs: Of a clustering, the values of the latest batches that brought any, oldest first.
        frontier: Of a sort order, the furthest value so far, as JSON can hold it; None before the first.
        batch: The batch that brought the frontier.
        waiting: Rows that wait: punctuations until they may be emitted, rows with a foreign key until their parent
            has come.
    """

    files: tuple[MarkFile, ...] = ()
    runs: tuple[tuple[MarkFile, ...], ...] = ()
    frontier: int | str | None = None
    batch: int = -1
    waiting: tuple[MarkFile, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the files that it consists of."""
        runs = (file for run in self.runs for file in run)
        return frozenset(file.path for file in (*self.files, *runs, *self.waiting))

    def to_json(self) -> list[Any]:
        """Return the state as the manifest stores it."""
        return [self.files, self.runs, self.frontier, self.batch, self.waiting]

    @staticmethod
    def from_json(plain: Sequence[Any]) -> "ConstraintState":
        """Return the state that `to_json` stored."""
        files, runs, frontier, batch, waiting = plain
        return ConstraintState(_files(files), tuple(map(_files, runs)), frontier, batch, _files(waiting))


def _files(plain: Sequence[Sequence[Any]]) -> tuple[MarkFile, ...]:
    return tuple(MarkFile(*file) for file in plain)


ConstraintStates = tuple[tuple[ConstraintState, ...], ...]
"""For each stream the states of its constraints, in their order; empty before the first batch."""


def state_of(states: ConstraintStates, stream: int, number: int) -> ConstraintState:
    """Return the state of a constraint; an empty one before the first batch."""
    return states[stream][number] if states else ConstraintState()


def count_marks(states: Mapping[str, Sequence[ConstraintState]]) -> dict[str, dict[str, int]]:
    """Return for `progress` how many marks each stream with constraints has, and their bytes."""
    files = {name: [file for state in own for file in state.files] for name, own in states.items() if own}
    return {
        name: {"marks": sum(file.rows for file in own), "bytes": sum(file.bytes for file in own)}
        for name, own in files.items()
    }
