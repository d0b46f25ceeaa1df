"""Batches and rounds cut at every moment: whatever a sink has seen of a number, the same comes under it again.

Property 6 of the design. Each start after a cut has another clock and throws other dice: what a step pays was decided
before it began.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest

from tests.budget import one_in
from tests.runtime.test_cuts import NEVER, Cut, Cuttable, Frail, Moments, Sink
from tests.spilling.dice import Dice
from tests.spilling.trees import Setting, Shape, TreeRun, brute_force, given, joins, leaves
from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.errors import StateError
from watersmeet.limits import limited
from watersmeet.placement import PSP, Central, Hash
from watersmeet.runtime.commit_protocol import BatchOffered, Protocol, QuietPeriod
from watersmeet.spilling.controller import Controller
from watersmeet.spilling.interface import Spilling
from watersmeet.spilling.options import Spill
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest import rounds
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle

pytestmark = pytest.mark.long

STRATEGIES = (Central(), Hash(2), PSP(2))
MERGING = {"merged_chunks": 2, "tier_rows": 1}
Decides = Callable[[int], Spilling]
"""Returns what decides in the so-manieth start."""
BY_DICE: Decides = lambda start: Dice(seed=start, spill=0.7, pay=0.5, split=start % 2 == 0)  # noqa: E731
BY_MARKS: Decides = lambda start: Controller(  # noqa: E731
    Spill(memory=(1, 300)[start % 2], policy="random", interval="0 seconds", oldest=f"{start % 7} seconds"), str(start)
)

TREE, ONE = (("a", "b"), "c"), ("a", "b", "c")
SETTINGS = [(TREE, BY_DICE), (ONE, BY_DICE), (ONE, BY_MARKS), (TREE, BY_MARKS)]


def setting_of(shape: Shape) -> Setting:
    windows = {path: [oracle.Sliding(9 + at) for at, _ in enumerate(parts)] for path, parts in joins(shape)}
    where = {path: ["{0}.k = {1}.k"] * (len(parts) - 1) for path, parts in joins(shape)}
    return Setting(shape, windows, dict.fromkeys(leaves(shape), 3), where)


def batches_of(shape: Shape, seed: int, batches: int) -> list[dict[str, list[dict[str, Any]]]]:
    rng, numbers = Random(seed), count()
    return [
        {
            name: [
                {f"id_{name}": next(numbers), "at": 4 * at + rng.randint(-3, 4), "x": 0, "k": rng.choice("pq")}
                for _ in range(3)
            ]
            for name in leaves(shape)
        }
        for at in range(batches)
    ]


@dataclass
class Start(Cuttable, TreeRun):
    """One start of the query, which goes on from what it finds in the store."""

    def go(self, event: BatchOffered | QuietPeriod, rows: dict[str, Any]) -> None:
        """Run a batch or a round; first of all a round that was begun."""
        found = manifests.last(self.store)
        number = 0 if found is None else found.batch + 1
        tree = self._tree("j", STRATEGIES[number % 3], GIVEN_ORDER)
        protocol = Protocol(tree, found or tree.start(), spilling=self.spilling)
        protocol.begun = rounds.read_intent(self.store, number)
        self._exchange = ("local", "shuffle")[number % 2]
        if protocol.begun is not None and isinstance(event, BatchOffered):
            with pytest.raises(StateError, match="must be finished"):
                protocol.handle(event)
            self.offer(protocol, QuietPeriod(event.at))
        self._arrivals = rows
        self.offer(protocol, event)


@dataclass
class Query:
    """A query that is started again and again, and cut at every so-manieth moment."""

    setting: Setting
    folder: Path
    decides: Decides
    every: int
    sink: Sink = field(default_factory=dict)
    starts: int = 0
    cuts: int = 0

    def start(self, folder: Path, sink: Sink, moment: int, spilling: Spilling) -> Start:
        queries, moments = self.setting.queries(), Moments(moment)
        store = Frail(str(folder), moments=moments)
        return Start(queries.pop("j"), store, inner=queries, spilling=spilling, sink=sink, moments=moments)

    def next(self) -> Spilling:
        self.starts += 1
        return self.decides(self.starts)

    def newest(self) -> int:
        found = manifests.newest(Store(str(self.folder)))
        return -1 if found is None else found

    def uncut(self, event: BatchOffered | QuietPeriod, rows: dict[str, Any], name: str) -> dict[int, Any]:
        """Return what comes of a step in a copy of all there is."""
        folder, sink = copytree(self.folder, self.folder.parent / name), dict(self.sink)
        self.start(folder, sink, NEVER, self.next()).go(event, rows)
        return shown(sink)

    def cut(self, event: Callable[[int], BatchOffered | QuietPeriod], rows: dict[str, Any]) -> None:
        """Run a step, cut at its first moment, at a later one, and so on until it gets through."""
        number, wanted, seen = self.newest() + 1, None, list[Any]()
        if isinstance(event(0), BatchOffered):
            wanted = self.uncut(event(0), rows, f"{number}")
        for moment in count(1, self.every):
            try:
                self.start(self.folder, self.sink, moment, self.next()).go(event(self.starts), rows)
                break
            except Cut:
                self.cuts += 1
            if number in self.sink:
                seen.append(shown(self.sink)[number])
            if self.newest() == number:
                if isinstance(event(0), BatchOffered):  # Spark, whose own commit was lost, offers it once more
                    self.start(self.folder, self.sink, NEVER, self.next()).go(event(self.starts), rows)
                break
            if wanted is None and Store(str(self.folder)).read(rounds.path_of(number)):
                wanted = self.uncut(event(0), rows, f"{number}")
        found = {batch: rows for batch, rows in shown(self.sink).items() if batch <= number}
        assert all(rows == found[number] for rows in seen), "a sink has seen something else under this number"
        assert wanted is None or found == {batch: rows for batch, rows in wanted.items() if batch <= number}


def shown(sink: Sink) -> dict[int, Any]:
    return {
        batch: (results, {key: sorted(map(repr, found)) for key, found in sides.items()})
        for batch, (results, sides) in sorted(sink.items())
    }


@pytest.mark.parametrize("seed", one_in(6, range(6)))
@pytest.mark.parametrize("how", one_in(2, SETTINGS), ids=["tree, dice", "dice", "marks", "tree, marks"])
@pytest.mark.parametrize("every", one_in(2, [7, 1]))
def test_cut_in_the_midst_of_everything_it_goes_on(
    tmp_path: Path, every: int, how: tuple[Shape, Decides], seed: int
) -> None:
    shape, decides = how
    setting, batches = setting_of(shape), batches_of(shape, seed, 4)
    query = Query(setting, tmp_path / "state", decides, every)
    query.folder.mkdir()
    with limited(**MERGING):
        for at, rows in enumerate(batches):
            query.cut(lambda clock, at=at: BatchOffered(at, 3.0 * clock), given(shape, rows))  # type: ignore[misc]
            if at > 0:
                query.cut(lambda clock, all=at == 2: QuietPeriod(5.0 * clock, all), {})  # type: ignore[misc]
        before, paying = len(query.sink), Dice(spill=0.0)
        for _ in count():
            known = query.newest()
            query.start(query.folder, query.sink, NEVER, paying).go(QuietPeriod(0.0, True), {})
            if query.newest() == known:
                break
    assert [*sorted(query.sink)] == [*range(len(query.sink))] and before > len(batches), "rounds among the batches"
    expected = brute_force(setting, batches)
    assert sum((results for results, _ in query.sink.values()), Counter()) == expected["j"].results()
    late = Counter(
        (name, row[name])
        for _, sides in query.sink.values()
        for (kind, _), found in sides.items()
        for _, row in found
        for name in row
        if kind == "late" and name.startswith("id_")
    )
    assert late == sum((found.late for found in expected.values()), Counter[Any]())
    assert query.cuts > 60 / every


def test_a_round_that_was_begun_comes_before_any_batch(tmp_path: Path) -> None:
    """Though the start that finds it would have decided otherwise, or nothing."""
    setting, batches = setting_of(TREE), batches_of(TREE, 1, 4)
    query = Query(setting, tmp_path / "state", BY_DICE, 1)
    query.folder.mkdir()
    for at in range(3):
        start = query.start(query.folder, query.sink, NEVER, Dice(spill=1.0, pay=0.0))
        start.go(BatchOffered(at), given(TREE, batches[at]))
    number = query.newest() + 1
    for moment in count(1):
        with pytest.raises(Cut):
            query.start(query.folder, query.sink, moment, Dice(spill=0.0)).go(QuietPeriod(0.0, True), {})
        if Store(str(query.folder)).read(rounds.path_of(number)):
            break
    wanted = query.uncut(QuietPeriod(1.0), {}, "copy")[number]
    query.start(query.folder, query.sink, NEVER, Dice(spill=0.0, pay=0.0)).go(BatchOffered(3), given(TREE, batches[3]))
    assert query.newest() == number + 1 and shown(query.sink)[number] == wanted and wanted[0]
    assert not Store(str(query.folder)).read(rounds.path_of(number + 1))
    assert (
        sum((results for results, _ in query.sink.values()), Counter()) == brute_force(setting, batches)["j"].results()
    )
