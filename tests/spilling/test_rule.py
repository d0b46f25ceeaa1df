"""The settle rule by itself, without an engine: rows, units and courses alone, over random schedules."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from tests.budget import search
from watersmeet.spilling.units import NEW, OwedBatches, Role, may_probe, roles
from watersmeet.state.chunks.chunk import HOT


class Row(NamedTuple):
    """A row by when it arrived; of one batch, earlier streams come first."""

    batch: int
    stream: int
    number: int


@dataclass
class Model:
    """Rows in units, and the batches that owe each unit; whatever has arrived joins.

    Attributes:
        streams: How many streams there are.
        units: The unit of each row.
        owed: For each spilled unit the batches whose rows have not probed it: first, and last plus one.
    """

    streams: int
    units: dict[Row, int] = field(default_factory=dict)
    owed: dict[int, tuple[int, int]] = field(default_factory=dict)
    made: int = HOT
    emitted: Counter[tuple[Row, ...]] = field(default_factory=Counter)

    def step(self, batch: int, rows: Mapping[Row, int], pay: Mapping[int, int], back: frozenset[int]) -> None:
        """Bring rows, some of them parked in spilled units, and pay units up to batches; some come back whole."""
        known = {
            unit: OwedBatches(since, pay.get(unit, since), batch if unit in back else batch + 1)
            for unit, (since, _) in self.owed.items()
        }
        self.units |= rows
        for probing in rows:
            self.emitted.update(self.course(probing, known, dict.fromkeys(range(self.streams), NEW)))
        for probing in [row for row in self.units if self.pays(row, known) and row.batch < batch]:
            for paying in range(self.streams):
                if paying != probing.stream:
                    self.emitted.update(self.course(probing, known, roles(paying, self.streams)))
        self.owed = {
            unit: (pay.get(unit, since), batch + 1) for unit, (since, _) in self.owed.items() if unit not in back
        }
        self.units = {row: unit if unit in self.owed else HOT for row, unit in self.units.items()}

    def pays(self, row: Row, known: Mapping[int, OwedBatches]) -> bool:
        return any(owed.since <= row.batch < owed.paid for owed in known.values())

    def course(
        self, probing: Row, known: Mapping[int, OwedBatches], course: Mapping[int, Role]
    ) -> Iterator[tuple[Row, ...]]:
        """Yield the combinations that a row finds in a course."""
        rows = []
        for stream in range(self.streams):
            mine = [row for row in self.units if row.stream == stream and row < probing]
            targets = [row for row in mine if self.may_probe(probing, known.get(self.units[row]), course[stream])]
            rows.append([probing] if stream == probing.stream else targets)
        return product(*rows)

    def may_probe(self, probing: Row, owed: OwedBatches | None, role: Role) -> bool:
        return bool(np.all(may_probe(role, owed, np.array([probing.batch]))))

    def due(self) -> Counter[tuple[Row, ...]]:
        """Return all combinations but those with a target in U(b), b the batch of the last-arrived member."""
        streams = [[row for row in self.units if row.stream == at] for at in range(self.streams)]
        return Counter(found for found in product(*streams) if not self.is_owed(found))

    def is_owed(self, found: Sequence[Row]) -> bool:
        last = max(found)
        ranges = (self.owed.get(self.units[row]) for row in found if row != last)
        return any(range_ is not None and range_[0] <= last.batch < range_[1] for range_ in ranges)

    def spill(self, rows: Sequence[Row], batch: int) -> None:
        """Make a unit of hot rows: any of them, of any stream."""
        self.made += 1
        self.units |= dict.fromkeys(rows, self.made)
        self.owed[self.made] = batch, batch


@search(150)
@given(seed=st.integers(0, 1 << 30), streams=st.integers(2, 4))
def test_each_combination_comes_once_when_the_last_of_its_units_is_settled(seed: int, streams: int) -> None:
    rng, model, number = random.Random(seed), Model(streams), 0
    for batch in range(rng.randint(3, 7)):
        rows: dict[Row, int] = {}
        pay = {
            unit: batch if rng.random() < 0.4 else rng.randint(since, batch)
            for unit, (since, _) in model.owed.items()
            if rng.random() < 0.5
        }
        back = frozenset(unit for unit, end in pay.items() if end == batch and rng.random() < 0.5)
        for _ in range(rng.choice([0, 3, 3])):  # a round brings none
            number += 1
            open_ = [unit for unit in model.owed if unit not in back]
            rows[Row(batch, rng.randrange(streams), number)] = rng.choice([HOT, *open_]) if open_ else HOT
        model.step(batch, rows, pay, back)
        assert model.emitted == model.due()
        for _ in range(rng.randint(0, 2)):
            hot = [row for row, unit in model.units.items() if unit == HOT and rng.random() < 0.5]
            if hot:
                model.spill(hot, batch + 1)
    last = batch + 1
    model.step(last, {}, dict.fromkeys(model.owed, last), frozenset(model.owed))
    assert model.emitted == model.due() and set(model.emitted.values()) <= {1}
    assert not model.owed
