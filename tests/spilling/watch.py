"""What is looked at after each step of a join with spilling: in which units its rows are, and what has come."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from watersmeet.predicate.model import Column
from watersmeet.state.chunks.chunk import HOT
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.testing import oracle
from watersmeet.testing.run import Rows, Run

Row = tuple[int, int]
"""A row by its stream and id."""


def state_of(run: Run) -> Manifest:
    assert run.state is not None
    return run.state


def labels(run: Run) -> dict[Row, int]:
    """Return the unit of each row that is stored; of a row that is stored several times it is one and the same."""
    found: dict[Row, int] = {}
    for chunk in state_of(run).chunks.values():
        kind = run.query.streams[chunk.stream].time_type
        for number in run.store.open(chunk, kind).column(Column(chunk.stream, 0)).to_pylist():
            assert found.setdefault((chunk.stream, number), chunk.unit) == chunk.unit, "copies in different units"
    return found


@dataclass
class Watch:
    """Follows a run step by step.

    Attributes:
        run: The run, whose rows are known by unique ids.
        wanted: What the oracle makes of all its rows.
        came: The number of the step in which each row came, its time and its stream, by id.
        before: The state before the last step, and the unit of each row.
    """

    run: Run
    wanted: oracle.Outcome
    came: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    before: tuple[Manifest, dict[Row, int]] | None = None

    def brought(self, rows: Rows) -> None:
        """Note the rows of a batch that is about to run."""
        self.came |= {row["id"]: (self.run.batch + 1, row["ts"], at) for at, row in rows if row["ts"] is not None}

    def look(self) -> None:
        """Check what must hold after each step."""
        state, now = state_of(self.run), labels(self.run)
        assert self.run.results == self.due(state, now), "property 2: all but what is owed, and nothing else"
        if self.before is not None:
            self.kept(*self.before, state, now)
        assert {chunk.unit for chunk in state.chunks.values()} - {HOT} == {unit.number for unit in state.ledger.units}
        assert state.settled is None or (state.watermark is not None and state.settled <= state.watermark)
        self.before = state, now

    def due(self, state: Manifest, now: dict[Row, int]) -> Counter[Any]:
        """Return the oracle's results so far without those that have a target in U(b), b that of the last member."""
        return Counter(
            {
                (ids, time): times
                for (ids, time), times in self.wanted.results.items()
                if all(member in self.came for member in ids) and not self.is_owed(ids, state, now)
            }
        )

    def is_owed(self, ids: Sequence[int], state: Manifest, now: dict[Row, int]) -> bool:
        last = max(ids, key=self.came.__getitem__)
        batch = self.came[last][0]
        spilled = {unit.number for unit in state.ledger.units if unit.since <= batch}
        return any(now.get(row, HOT) in spilled for row in enumerate(ids) if row[1] != last)

    def kept(self, was: Manifest, old: dict[Row, int], state: Manifest, now: dict[Row, int]) -> None:
        """Check that what is owed changes by decisions alone, whatever is merged, moved or united (property 7)."""
        before, after = ({unit.number: unit for unit in one.ledger.units} for one in (was, state))
        round = self.run.progress[-1]["round"]  # it has decided for itself
        for row, unit in now.items():
            earlier = before.get(old.get(row, HOT))
            left = earlier and (earlier if round else earlier.after(was.batch + 1))
            if left is None:  # it was hot, came back, or came in this step
                assert unit == HOT or after[unit].since == state.batch + 1
            elif unit != HOT or not round:
                assert after[unit].group == left.group
                assert after[unit].since >= left.since if round else after[unit].since == left.since
