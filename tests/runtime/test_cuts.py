"""A join whose streams promise something, cut at every step of the batch protocol: the same results, the same outputs.

Property 8 of the design of metadata, on the engine: every write, publication and removal is cut short in its midst, and
the run that follows goes on. tests/spark/test_crashes.py does the same between steps through Spark.
"""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.budget import one_in
from tests.metadata.test_corners import unneeded
from tests.metadata.test_denial import arrivals_of, expected, query_of
from tests.metadata.test_properties import row
from watersmeet.batch.operator import Operator
from watersmeet.limits import limited
from watersmeet.placement import PSP, Central, Hash
from watersmeet.runtime.commit_protocol import BatchOffered, Protocol, Publish, ResultsPublished, Withdraw
from watersmeet.runtime.tree import JoinTree
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

pytestmark = pytest.mark.long

BATCHES = 5
STRATEGIES = (Central(), Hash(2), PSP(2))
NEVER = 1 << 30


def made() -> dict[str, Any]:
    """A join of three streams that promise a bit of everything, not all of it true."""
    rng = random.Random(108)
    batches = [[("abc"[at % 3], row(rng, batch)) for at in range(21)] for batch in range(BATCHES)]
    batches[2][0][1]["ts"] = None
    return {
        "names": "abc",
        "promises": {
            "a": ["key", "rising, slack"],
            "b": ["clustered, slack", "ends"],
            "c": ["rising, slack", "ends by time"],
        },
        "where": ["a.k = b.k", "b.k = c.k"],
        "batches": [*batches, [], []],
        "delays": [2, 2, 2],
        "windows": [None] * 3,
        "foreign": True,
    }


CASE = made()


class Cut(Exception):
    """Ends a run where a crash would."""


@dataclass
class Moments:
    """Counts the moments at which a run may be cut, and cuts it at one of them."""

    left: int

    def __call__(self) -> bool:
        """Tell whether this is the moment."""
        self.left -= 1
        return self.left == 0

    def pass_by(self) -> None:
        if self():
            raise Cut


@dataclass(frozen=True)
class Frail(Store):
    """A store that leaves things half done."""

    moments: Moments = field(default_factory=lambda: Moments(NEVER), compare=False)

    def write(self, path: str, data: Any) -> None:
        if self.moments():
            super().write(path, bytes(data)[: len(data) // 2])
            raise Cut
        super().write(path, data)

    def publish(self, path: str, data: bytes) -> bool:
        self.moments.pass_by()
        published = super().publish(path, data)
        self.moments.pass_by()
        return published

    def remove(self, paths: Iterable[str]) -> None:
        found = sorted(paths)
        if found and self.moments():
            super().remove(found[::2])
            raise Cut
        super().remove(found)


Sink = dict[int, tuple[Counter[Any], dict[Any, Any]]]
"""For each batch its results and side outputs, as a sink holds them that can be withdrawn from."""


@dataclass
class Cuttable(Run):
    """A run whose sink can be withdrawn from, and which may be cut there."""

    sink: Sink = field(default_factory=dict)
    moments: Moments = field(default_factory=lambda: Moments(NEVER))

    def withdraw(self, action: Withdraw) -> None:
        self.moments.pass_by()
        for batch in [batch for batch in self.sink if batch >= action.first]:
            del self.sink[batch]

    def publish(self, action: Publish) -> ResultsPublished:
        self.moments.pass_by()
        assert action.batch not in self.sink, "what an earlier run left was not withdrawn"
        self.results, self.sides = Counter(), {}
        self.sink[action.batch] = self.results, self.sides
        return super().publish(action)


class Start(Cuttable):
    """One start of the query, which goes on from what it finds in the store."""

    def go(self, first: int, last: int) -> None:
        """Run batches."""
        found = manifests.last(self.store)
        protocol: Protocol | None = None
        for batch in range(first, last):
            tree = JoinTree(Operator(self.query, STRATEGIES[batch % 3], self.store, self.name, sides=True))
            protocol = protocol or Protocol(tree, found or tree.start())
            protocol.tree = tree
            self._arrivals, self._exchange = {tree.path: rows(batch)}, ("local", "shuffle")[batch % 2]
            self.offer(protocol, BatchOffered(batch))
        assert protocol is None or protocol.state.batch == last - 1


def rows(batch: int) -> list[tuple[int, Any]]:
    return [(CASE["names"].index(a.stream), a.row) for a in arrivals_of(CASE) if a.batch == batch]


def start(folder: Path, sink: Sink, moment: int = NEVER) -> Start:
    moments = Moments(moment)
    return Start(query_of(CASE), Frail(str(folder), moments=moments), sink=sink, moments=moments)


def state_of(folder: Path) -> Manifest:
    store = Store(str(folder))
    found = manifests.load(store, manifests.newest(store) or 0)
    assert found is not None
    return found


def shown(sink: Sink) -> dict[int, Any]:
    """What a sink holds, in an order of its own."""
    return {
        batch: (results, {key: sorted(map(repr, found)) for key, found in sides.items()})
        for batch, (results, sides) in sorted(sink.items())
    }


class Uncut(NamedTuple):
    """What a start comes to that runs all batches and is never cut, and after how many moments."""

    sink: Sink
    state: Manifest
    moments: int


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory) -> Uncut:
    """The oracle's results, and its rows on the sides."""
    folder, sink = tmp_path_factory.mktemp("uncut"), Sink()
    run = start(folder, sink)
    with limited(merged_chunks=2, tier_rows=1):
        run.go(0, len(CASE["batches"]))
    wanted = expected(CASE, arrivals_of(CASE))
    assert sum((results for results, _ in sink.values()), Counter()) == wanted.results
    told = Counter(kind for _, sides in sink.values() for (kind, _), found in sides.items() for _ in found)
    assert told.keys() == {"late", "rejected", "denied", "orphan", "punctuation"}
    sizes = [len(wanted.late), len(wanted.rejected), len(wanted.denied), len(wanted.orphans)]
    assert [told[kind] for kind in ("late", "rejected", "denied", "orphan")] == sizes
    return Uncut(sink, state_of(folder), NEVER - run.moments.left)


def assert_same(folder: Path, sink: Sink, uncut: Uncut) -> None:
    assert shown(sink) == shown(uncut.sink)
    found, wanted = state_of(folder), uncut.state
    for name in ("distinctRows", "stateRows", "watermark", "promises"):
        assert found.progress[name] == wanted.progress[name], name
    assert found.streams == wanted.streams


@pytest.mark.parametrize("every", one_in(2, [5, 1]))
def test_cut_in_the_midst_of_everything_it_goes_on(tmp_path: Path, uncut: Uncut, every: int) -> None:
    """Each batch is begun again and again, cut at its first moment, at a later one, and so on until it gets through.

    Where its manifest was written before the cut, it is offered once more, as Spark does whose own commit was lost.
    """
    sink, cuts = Sink(), 0
    with limited(merged_chunks=2, tier_rows=1):
        for batch in range(len(CASE["batches"])):
            for moment in count(1, every):
                try:
                    start(tmp_path, sink, moment).go(batch, batch + 1)
                    break
                except Cut:
                    cuts += 1
        assert_same(tmp_path, sink, uncut)
        assert unneeded(Store(str(tmp_path)), state_of(tmp_path)) == set()
    assert cuts > 15 * BATCHES / every


@pytest.mark.parametrize("share", one_in(2, [0.25, 0.5, 0.7, 0.9]))
def test_cut_after_some_batches_it_goes_on(tmp_path: Path, uncut: Uncut, share: float) -> None:
    """A start that has run batches of its own removes files as it goes; cut there, the next one misses none."""
    sink, batches = Sink(), len(CASE["batches"])
    with limited(merged_chunks=2, tier_rows=1):
        with pytest.raises(Cut):
            start(tmp_path, sink, int(uncut.moments * share)).go(0, batches)
        start(tmp_path, sink).go(manifests.newest(Store(str(tmp_path))) or 0, batches)
        assert_same(tmp_path, sink, uncut)
