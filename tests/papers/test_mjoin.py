"""MJoin and XJoin find what a brute force finds, however they are scheduled, purged and short of memory."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from papers.mjoin.binary_join import Operator, Result
from papers.mjoin.feed import MANY, ONE, OTHER, SIDES, Element, Feed, Punctuation, Row, Side
from papers.mjoin.mjoin import MJoin, Settings
from papers.mjoin.schedule import (
    PriorityStreams,
    RandomStreams,
    Sequential,
    StreamSchedule,
    TupleSchedule,
    ValueOriented,
)
from papers.mjoin.state import Memory
from papers.mjoin.xjoin import XJoin

pytestmark = pytest.mark.long

MANY_CASES = settings(max_examples=300, deadline=None)
KEYS = 6
Ending = Literal["some", "both", "many"]
"""Keys whose end is announced: some in each stream; all in both; all in the many, and all are in the one."""


@dataclass(frozen=True, slots=True)
class Case:
    """A feed, and when what of it arrives.

    Attributes:
        feed: What comes in.
        arrivals: 0 and 1 let an element of that stream arrive, more is the number of steps that there is time for.
    """

    feed: Feed
    arrivals: Sequence[int]


@st.composite
def punctuated(draw: st.DrawFn, keys: Sequence[int], ended: frozenset[int]) -> list[Element]:
    """A stream with these keys in this order, and punctuations anywhere after the last tuple that they speak of."""
    stream: list[Element] = [Row(key, number) for number, key in enumerate(keys)]
    for key in draw(st.permutations(sorted(ended))):
        last = max((at for at, element in enumerate(stream) if element.key == key), default=-1)
        stream.insert(draw(st.integers(last + 1, len(stream))), Punctuation(key))
    return stream


@st.composite
def feeds(draw: st.DrawFn, clustered: bool, ending: Ending) -> Feed:
    """Streams in which a key comes once in the one; `ending` says of which keys an end is announced."""
    some, every = st.frozensets(st.integers(0, KEYS - 1)), frozenset(range(KEYS))
    one = draw(st.permutations(range(KEYS)))[: None if ending == "many" else draw(st.integers(0, KEYS))]
    many = draw(st.lists(st.integers(0, KEYS - 1), max_size=25))
    if clustered:
        many.sort(key=draw(st.permutations(range(KEYS))).index)
    ended = {"some": (draw(some), draw(some)), "both": (every, every), "many": (frozenset[int](), every)}[ending]
    return Feed((draw(punctuated(one, ended[ONE])), draw(punctuated(many, ended[MANY]))))


@st.composite
def cases(draw: st.DrawFn, clustered: bool = False, ending: Ending = "some") -> Case:
    return Case(draw(feeds(clustered, ending)), draw(st.lists(st.integers(0, 9), max_size=60)))


streams = st.one_of(
    st.builds(RandomStreams, st.builds(Random, st.integers(0, 99))),
    st.builds(PriorityStreams, st.tuples(st.integers(1, 5), st.integers(1, 5))),
)
memories = st.builds(
    Memory, st.integers(1, 4), st.one_of(st.integers(0, 8), st.just(float("inf"))), file=st.just(io.BytesIO)
)


class Witness(MJoin):
    """MJoin that remembers what has arrived."""

    def __init__(self, streams: StreamSchedule, tuples: TupleSchedule, settings: Settings) -> None:
        super().__init__(streams, tuples, settings)
        self.arrived: tuple[set[Row], set[Row]] = (set(), set())

    def offer(self, side: Side, element: Element) -> None:
        super().offer(side, element)
        if isinstance(element, Row):
            self.arrived[side].add(element)

    def dropped_rows(self, side: Side) -> set[Row]:
        """What has arrived and is nowhere any more."""
        state = self.states[side]
        stored = [row for at, bucket in enumerate(state.buckets) for row in (*bucket, *state.read_disk(at))]
        return self.arrived[side].difference(stored, self.queues[side], self.halves[side].waiting)


@st.composite
def runs(draw: st.DrawFn, ending: Ending = "some") -> tuple[Witness, Case]:
    """An MJoin of any settings, and something to join."""
    clustered = draw(st.booleans())
    config = Settings(
        draw(memories), draw(st.sampled_from([1, 2, 5, 100])), clustered, ending != "some" or draw(st.booleans())
    )
    operator = Witness(draw(streams), draw(st.sampled_from([Sequential(), ValueOriented()])), config)
    return operator, draw(cases(clustered, ending))


def steps(operator: Operator, case: Case) -> Iterator[None]:
    """Let a case's elements arrive and the operator work; pause after each of its steps."""
    coming = [iter(case.feed.elements[side]) for side in SIDES]
    for action in case.arrivals:
        if action < len(SIDES):
            for element in islice(coming[action], 1):
                operator.offer(SIDES[action], element)
            continue
        for _ in range(action):
            operator.step()
            yield
    for side in SIDES:
        for element in coming[side]:
            operator.offer(side, element)
    operator.finish()
    while operator.step():
        yield


def run(operator: Operator, case: Case) -> None:
    for _ in steps(operator, case):
        pass


def results(output: Sequence[Result | Punctuation]) -> Counter[Result]:
    return Counter(element for element in output if not isinstance(element, Punctuation))


def brute_force(feed: Feed) -> Counter[Result]:
    rows = [[element for element in stream if isinstance(element, Row)] for stream in feed.elements]
    return Counter((one, many) for one in rows[ONE] for many in rows[MANY] if one.key == many.key)


@MANY_CASES
@given(runs())
def test_mjoin_gives_each_result_once(drawn: tuple[Witness, Case]) -> None:
    operator, case = drawn
    for _ in steps(operator, case):
        assert sum(state.in_memory for state in operator.states) <= operator.settings.memory.limit
    assert results(operator.output) == brute_force(case.feed)
    assert operator.results == results(operator.output).total()


@MANY_CASES
@given(runs())
def test_what_is_gone_has_no_later_result(drawn: tuple[Witness, Case]) -> None:
    operator, case = drawn
    dropped_rows: list[set[Row]] = [set(), set()]
    seen = 0
    for _ in steps(operator, case):
        for pair in results(operator.output[seen:]):
            assert not any(pair[side] in dropped_rows[side] for side in SIDES)
        dropped_rows, seen = [operator.dropped_rows(side) for side in SIDES], len(operator.output)


@MANY_CASES
@given(runs())
def test_no_result_follows_its_punctuation(drawn: tuple[Witness, Case]) -> None:
    operator, case = drawn
    run(operator, case)
    ended: set[int] = set()
    for element in operator.output:
        if isinstance(element, Punctuation):
            ended.add(element.key)
        else:
            assert element[ONE].key not in ended


@pytest.mark.parametrize(("ending", "times"), [("both", 2), ("many", 1)])
@MANY_CASES
@given(data=st.data())
def test_when_all_has_ended_nothing_is_kept_and_every_punctuation_passed_on(
    ending: Ending, times: int, data: st.DataObject
) -> None:
    operator, case = data.draw(runs(ending))
    run(operator, case)
    assert operator.in_memory == operator.on_disk == 0
    assert not any(bucket for state in operator.states for bucket in state.buckets)
    sent = Counter(element for element in operator.output if isinstance(element, Punctuation))
    assert sent == Counter({Punctuation(key): times for key in range(KEYS)})


@MANY_CASES
@given(cases(), streams, st.integers(1, 4))
def test_immediate_purging_keeps_nothing_useless(case: Case, streams: StreamSchedule, buckets: int) -> None:
    operator = MJoin(streams, Sequential(), Settings(Memory(buckets), purge_every=1))
    for _ in steps(operator, case):
        for side in SIDES:
            kept = [row for bucket in operator.states[side].buckets for row in bucket]
            assert not any(operator.halves[OTHER[side]].is_closed(row.key) for row in kept)


@MANY_CASES
@given(cases(), streams, memories)
def test_xjoin_gives_each_result_once_and_keeps_everything(case: Case, streams: StreamSchedule, memory: Memory) -> None:
    operator = XJoin(streams, memory)
    for _ in steps(operator, case):
        assert operator.in_memory <= memory.limit
    assert results(operator.output) == brute_force(case.feed)
    assert operator.results == len(operator.output)
    rows = sum(isinstance(element, Row) for stream in case.feed.elements for element in stream)
    assert operator.in_memory + operator.on_disk == rows
