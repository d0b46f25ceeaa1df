"""The ring's protocol under random schedules: every result once, whatever order links deliver in."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.budget import one_in
from tests.exchange.ring_model import (
    Case,
    Crash,
    Kept,
    Ring,
    Row,
    SlowState,
    expected,
    in_waves,
    random_batches,
    random_case,
)
from watersmeet.exchange.ring import (
    Action,
    BuildMessage,
    Completion,
    EndOfInputMessage,
    PartialMessage,
    ProbeMessage,
    ReleaseMessage,
    Result,
    RingNode,
    Wave,
)


def play(
    seed: int,
    case: Case | None = None,
    node: type[RingNode] = RingNode,
    state: type[SlowState] = SlowState,
    crashes: bool = True,
    wave: int | None = None,
    tuples: int = 24,
) -> tuple[list[frozenset[int]], list[frozenset[int]], int]:
    """Run random batches on a ring; return its results, those expected, and the most rows that a node held."""
    dice = random.Random(seed)
    case = case or random_case(dice)
    batches = random_batches(dice, case, tuples)
    rows, mark, results, most = list[Row](), 0, list[frozenset[int]](), 0
    for batch in batches:
        while True:
            waves = in_waves(dice, batch, wave or dice.choice((1, 1, 3)))
            ring = Ring(case, rows, mark, dice, node, state)
            try:
                after = ring.run(waves, dice.randint(1, 60) if crashes and dice.random() < 0.15 else None)
            except Crash:  # what came out is taken back: the batch runs again, interleaved otherwise
                nodes = dice.randint(1, 5)
                case = Case(
                    case.streams, nodes, case.windows, case.delay, case.orders, case.placement, case.interleaved
                )
                continue
            break
        rows, mark = [Row(row.id, row.stream, row.ts, row.x) for row in after], ring.mark
        assert not ring.left or state is not SlowState, "rows that were handed on are kept"
        results += ring.results
        most = max(most, *(state.most for state in ring.states))
    return sorted(results, key=sorted), expected(case, batches), most


@pytest.mark.parametrize("block", one_in(4, range(20)))
def test_every_result_comes_once(block: int) -> None:
    total = 0
    for seed in range(100 * block, 100 * block + 100):
        results, wanted, _ = play(seed)
        assert results == wanted, seed
        total += len(wanted)
    assert total > 1000


# -- the paper as printed: each reading loses or doubles results, or keeps state for too long


class DropsAtHome(RingNode):
    """A partial result that comes home is dropped, not probed with."""

    def _continue(self, partial: PartialMessage) -> Iterator[Action]:
        if partial.maker == self.number and not partial.end:
            return
        yield from super()._continue(partial)


class TrustsSlices(SlowState):
    """Windows are not tested: of tuples in order, purging leaves just those that the window admits (Property 1)."""

    def is_too_old(self, kept: Kept) -> bool:
        return self.mark - kept.row.ts >= self.case.end(kept.row.stream, self.node)

    def admits(self, rows: Iterable[Row]) -> bool:
        return True


class PurgesNextOnly(TrustsSlices):
    """A probe purges only the stream that it looks at next."""

    def streams_to_purge(self, rows: list[Row]) -> set[int]:
        return {self.case.orders[row.stream][0] for row in rows}


class EndsWithEnd(RingNode):
    """Rows that were handed on go as the END passes, though partial results of the wave come behind it."""

    def _continue(self, partial: PartialMessage) -> Iterator[Action]:
        yield from super()._continue(partial)
        if partial.end and self.number:
            self._state.drop(partial.wave.last + 1)


class HandsOnAgain(SlowState):
    """Rows that were handed on, and are kept for waves under way, are handed on again."""

    def leaves(self, kept: Kept) -> bool:
        return self.is_too_old(kept)


class TailDropsAtOnce(SlowState):
    """The tail drops rows that its window has passed, though waves under way still see them."""

    def ended(self, kept: list[Kept]) -> None:
        self.kept = [other for other in self.kept if other not in kept]


class SeesWhatMoved(SlowState):
    """Arrival in the batch decides alone: rows that moved are seen at both nodes."""

    def sees(self, kept: Kept, number: int) -> bool:
        return kept.row.number < number


class SeesItsSuccessor(SlowState):
    """The probe that hands a row on still sees it here, and at the next node too."""

    def sees(self, kept: Kept, number: int) -> bool:
        return kept.since < number <= kept.until


class DropsNever(SlowState):
    """Rows that were handed on stay as long as the batch."""

    def drop(self, number: int) -> None:
        pass


def losses(node: type[RingNode] = RingNode, state: type[SlowState] = SlowState, seeds: int = 60, **kwargs: Any) -> int:
    """Return how many results are lost, doubled or wrong over some schedules."""
    wrong = 0
    for seed in range(seeds):
        case = kwargs.get("case") or random_case(random.Random(seed), streams=3, nodes=3, placement="slices")
        results, wanted, _ = play(seed, case, node, state, crashes=False)
        wrong += sum(((counted := Counter(results)) - Counter(wanted)).values()) + sum(
            (Counter(wanted) - counted).values()
        )
    return wrong


@pytest.mark.parametrize("node", [DropsAtHome, EndsWithEnd])
def test_wrong_readings_of_the_protocol_are_noticed(node: type[RingNode]) -> None:
    assert losses(node) > 0


@pytest.mark.parametrize("state", [HandsOnAgain, TailDropsAtOnce, SeesWhatMoved, SeesItsSuccessor])
def test_wrong_readings_of_the_state_are_noticed(state: type[SlowState]) -> None:
    assert losses(state=state) > 0


def in_order(interleaved: int | None, delay: int = 0) -> Case:
    orders = ((1, 2), (2, 0), (0, 1))
    return Case(3, 3, (10, 6, 10), delay, orders, "slices", interleaved)


def test_purging_keeps_the_windows_of_tuples_in_order() -> None:
    """Property 1: no window need be tested; but only if all streams are purged."""
    for seed in range(40):
        results, wanted, _ = play(seed, in_order(None), state=TrustsSlices, crashes=False, wave=1)
        assert results == wanted
    wrong = [play(seed, in_order(None), state=PurgesNextOnly, crashes=False, wave=1) for seed in range(40)]
    assert any(len(results) > len(wanted) for results, wanted, _ in wrong)


def test_rows_go_once_no_unit_can_see_them() -> None:
    """Figure 5 deletes at a later purge; a node need not keep its rows for that long."""
    kept, all_kept = 0, 0
    for seed in range(10):
        kept += play(seed, in_order(9), crashes=False, wave=1, tuples=120)[2]
        all_kept += play(seed, in_order(9), state=DropsNever, crashes=False, wave=1, tuples=120)[2]
    assert kept < all_kept / 2


# -- exact actions


class Scripted:
    """A part of the state that yields what it is told to."""

    def __init__(self, moved: list[str], found: list[str]) -> None:
        self.moved, self.found, self.dropped = moved, found, list[int]()

    def insert(self, rows: str, since: int) -> None:
        return None

    def purge(self, rows: str, wave: Wave) -> list[str]:
        return self.moved

    def probe(self, block: str, wave: Wave) -> list[str]:
        return [f"{block}{more}" for more in self.found]

    def drop(self, number: int) -> None:
        self.dropped.append(number)


ONE = Wave(1, 1)


def test_the_head_marks_the_last_partial_result_and_renews_the_mark() -> None:
    head = RingNode(0, 2, 3, Scripted(["old"], ["x", "y"]))
    assert [*head.enter("a", 1)] == [
        BuildMessage("old"),
        ProbeMessage(ONE, "a"),
        PartialMessage(ONE, 1, "ax", 0),
        PartialMessage(ONE, 1, "ay", 0, end=True),
    ]
    assert [*head.handle(PartialMessage(ONE, 1, "az", 1))] == [  # the other node's: it goes on, and is probed with
        PartialMessage(ONE, 1, "az", 1),
        PartialMessage(ONE, 2, "azx", 0),
        PartialMessage(ONE, 2, "azy", 0),
    ]
    assert [*head.handle(PartialMessage(ONE, 1, "ay", 0, end=True))] == [
        PartialMessage(ONE, 2, "ayx", 0),
        PartialMessage(ONE, 2, "ayy", 0, end=True),
    ]
    assert [*head.enter("b", 1)] == []
    *results, release, build, probe, first, last = head.handle(PartialMessage(ONE, 2, "ayy", 0, end=True))
    assert [*map(Result, ("ayyx", "ayyy"))] == results and release == ReleaseMessage(ONE)
    assert (build, probe) == (BuildMessage("old"), ProbeMessage(Wave(2, 2), "b"))
    assert (first.end, last.end) == (False, True)  # type: ignore[union-attr]


def test_without_matches_the_mark_travels_alone() -> None:
    head = RingNode(0, 2, 2, Scripted([], []))
    assert [*head.enter("a", 1)] == [ProbeMessage(ONE, "a"), PartialMessage(ONE, 1, None, 0, end=True)]
    assert [*head.handle(PartialMessage(ONE, 1, None, 0, end=True))] == [ReleaseMessage(ONE)]


def test_two_streams_need_no_mark() -> None:
    """The next tuples enter at once: whatever is under way is in front of them."""
    state = Scripted([], ["x"])
    head = RingNode(0, 2, 1, state)
    assert [*head.enter("a", 1)] == [ProbeMessage(ONE, "a"), Result("ax"), ReleaseMessage(ONE)]
    many = [action for _ in range(2000) for action in head.enter("b", 1)]
    assert len(many) == 6000 and state.dropped[-1] == 2002


def test_the_tail_passes_on_partial_results_alone() -> None:
    tail = RingNode(1, 2, 2, Scripted(["old"], ["x"]))
    assert [*tail.handle(ProbeMessage(ONE, "a"))] == [PartialMessage(ONE, 1, "ax", 1)]
    assert [*tail.handle(PartialMessage(ONE, 1, "ay", 0, end=True))] == [
        PartialMessage(ONE, 1, "ay", 0, end=True),
        Result("ayx"),
    ]
    assert [*tail.handle(PartialMessage(ONE, 1, "ax", 1))] == [Result("axx")]
    assert [*tail.handle(ReleaseMessage(ONE))] == []
    assert [*tail.handle(EndOfInputMessage())] == [Completion()]


@pytest.mark.parametrize(("interleaved", "under_way"), [(None, 1), (1, 1), (3, 3)])
def test_as_many_tuples_are_under_way_as_the_threshold_allows(interleaved: int | None, under_way: int) -> None:
    head = RingNode(0, 3, 2, Scripted([], []), interleaved)
    probes = [action for _ in range(5) for action in head.enter("a", 1) if isinstance(action, ProbeMessage)]
    assert len(probes) == under_way
    more = [*head.handle(PartialMessage(ONE, 1, None, 0, end=True))]
    assert sum(isinstance(action, ProbeMessage) for action in more) == 1
