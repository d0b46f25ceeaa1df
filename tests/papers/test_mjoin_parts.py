"""The parts of MJoin and XJoin by themselves: feed, schedules, state, and what only an exact order of events shows."""

from __future__ import annotations

import io
from itertools import groupby
from random import Random
from typing import Any

import numpy as np
import pytest

from papers.mjoin.binary_join import Operator, Result
from papers.mjoin.feed import MANY, ONE, Element, Order, Punctuation, Row, Side, clustered, news_feed
from papers.mjoin.mjoin import MJoin, Settings
from papers.mjoin.schedule import (
    PriorityStreams,
    RandomStreams,
    Sequential,
    StreamSchedule,
    TupleSchedule,
    ValueOriented,
)
from papers.mjoin.state import DiskPart, Memory, State
from papers.mjoin.xjoin import XJoin

# -- the feed


@pytest.mark.parametrize("order", ["ordered", "random"])
def test_the_feed_keeps_its_promises(order: Order) -> None:
    news, access = news_feed(200, order, np.random.default_rng(1)).elements
    assert sorted(item.key for item in news) == list(range(200))
    assert ([item.key for item in news] == list(range(200))) == (order == "ordered")
    ended: set[int] = set()
    for is_end, stretch in groupby(access, lambda element: isinstance(element, Punctuation)):
        keys = {element.key for element in stretch}
        assert not keys & ended
        assert is_end or len(keys) <= 10
        ended |= keys if is_end else set()
    assert ended == set(range(200))
    assert 1_800 < len(access) - 200 < 2_200


def test_a_clustered_feed_has_the_same_records_together() -> None:
    feed = news_feed(50, "random", np.random.default_rng(2))
    news, access = clustered(feed).elements
    assert news == feed.elements[ONE]
    assert len([*groupby(access, lambda row: row.key)]) == len({row.key for row in access})
    assert {*access} == {row for row in feed.elements[MANY] if isinstance(row, Row)}


# -- schedules


def pick(schedule: StreamSchedule, *queued: int) -> str:
    """Which streams are read, a for the one and b for the many, until both queues are empty."""
    left, read = [*queued], ""
    while any(left):
        side = schedule.pick((left[ONE] > 0, left[MANY] > 0))
        left[side] -= 1
        read += "ab"[side]
    return read


@pytest.mark.parametrize(
    ("quotas", "queued", "read"),
    [
        ((2, 3), (4, 6), "aabbbaabbb"),
        ((2, 3), (1, 5), "abbbbb"),
        ((2, 2), (5, 2), "aabbaaa"),
        ((1, 1), (2, 2), "abab"),
    ],
)
def test_priority_with_quotas(quotas: tuple[int, int], queued: tuple[int, int], read: str) -> None:
    assert pick(PriorityStreams(quotas), *queued) == read


def test_the_one_is_read_as_soon_as_it_is_there_again() -> None:
    schedule = PriorityStreams((3, 9))
    ready = [(True, True), (False, True), (True, True), (True, True), (True, True)]
    assert [schedule.pick(one) for one in ready] == [ONE, MANY, ONE, ONE, MANY]


def test_quotas_must_let_each_stream_be_read() -> None:
    with pytest.raises(ValueError, match=r"quotas: each stream needs at least 1, not \(0, 5\)"):
        PriorityStreams((0, 5))


def test_random_streams_are_fair_and_never_wait() -> None:
    read = pick(RandomStreams(Random(3)), 1_000, 1_000)
    assert 400 < read[:1_000].count("a") < 600
    assert pick(RandomStreams(Random(3)), 0, 3) == "bbb"


@pytest.mark.parametrize(("key", "wanted", "waits"), [(1, set(), False), (1, {2}, True), (2, {1, 2}, False)])
def test_which_tuples_wait(key: int, wanted: set[int], waits: bool) -> None:
    assert ValueOriented().waits(key, wanted) == waits
    assert not Sequential().waits(key, wanted)


# -- state


def test_what_is_flushed_comes_back() -> None:
    state: State[Row] = State(Memory(buckets=2))
    rows = [Row(key, key) for key in range(6)]
    for row in rows:
        state.insert(row)
    state.flush(0)
    state.insert(Row(8, 8))
    state.flush(0)
    assert (state.in_memory, state.on_disk) == (3, 4)
    assert state.read_disk(0) == [rows[0], rows[2], rows[4], Row(8, 8)]
    state.write_disk(0, [rows[2]])
    assert state.read_disk(0) == [rows[2]] and state.on_disk == 1
    state.write_disk(0, [])
    assert not state.has_disk_part(0) and state.read_disk(0) == []


def test_a_disk_part_can_be_written_anew_and_grow() -> None:
    part: DiskPart[Row] = DiskPart(io.BytesIO())
    for rows in ([Row(1, 1), Row(2, 2)], [Row(3, 3)]):
        part.append(rows)
    part.replace([Row(2, 2)])
    part.append([Row(4, 4)])
    assert part.read() == [Row(2, 2), Row(4, 4)]


# -- operators


def join(operator: Operator, *arrivals: tuple[Side, Element] | None) -> list[str]:
    """Let elements arrive, work at each None and at the end; return results as `one-many` and ends as `!key`."""
    for arrival in arrivals:
        if arrival is None:
            operator.run()
        else:
            operator.offer(*arrival)
    operator.finish()
    operator.run()
    return [describe(element) for element in operator.output]


def describe(element: Result | Punctuation) -> str:
    return f"!{element.key}" if isinstance(element, Punctuation) else f"{element[ONE].number}-{element[MANY].number}"


def one(key: int, number: int = 0) -> tuple[Side, Element]:
    return ONE, Row(key, number)


def many(key: int, number: int = 0) -> tuple[Side, Element]:
    return MANY, Row(key, number)


def end(key: int) -> tuple[Side, Element]:
    return MANY, Punctuation(key)


def mjoin(tuples: TupleSchedule, quotas: tuple[int, int] = (9, 9), **settings: Any) -> MJoin:
    return MJoin(PriorityStreams(quotas), tuples, Settings(Memory(), **settings))


def test_value_oriented_scheduling_lets_a_punctuation_go_out_first() -> None:
    arrivals = [many(1), many(2, 1), many(3, 2), end(3), None, one(1, 1), one(2, 2), one(3, 3), one(4, 4)]
    assert join(mjoin(Sequential()), *arrivals) == ["1-0", "2-1", "3-2", "!3"]
    # Once it is out nothing else is wanted, so that 4 needs not wait; 1 and 2 do, until their stream's turn ends.
    assert join(mjoin(ValueOriented()), *arrivals) == ["3-2", "!3", "1-0", "2-1"]


def test_the_turn_of_another_stream_ends_all_waiting() -> None:
    operator = mjoin(ValueOriented(), quotas=(1, 9))
    for arrival in (many(3), end(3)):
        operator.offer(*arrival)
    operator.run()
    operator.offer(*one(1, 1))
    operator.step()
    assert operator.halves[ONE].waiting == [Row(1, 1)] and operator.in_memory == 2
    operator.offer(*many(1, 5))
    operator.step()
    assert operator.halves[ONE].waiting == [] and describe(operator.output[-1]) == "1-5"


def test_a_cluster_is_read_to_its_end_once_its_partner_is_there() -> None:
    operator = mjoin(Sequential(), quotas=(1, 1), clustered=True)
    arrivals = [one(7, 7), one(8, 8), *(many(7, number) for number in range(3)), many(8, 3)]
    assert join(operator, *arrivals) == ["7-0", "7-1", "7-2", "!7", "8-3", "!8"]
    assert operator.in_memory == 0


def test_a_batch_of_punctuations_is_purged_at_once() -> None:
    operator = mjoin(Sequential(), purge_every=2)
    for arrival in (one(1), one(2), one(3), end(1), end(2), end(3)):
        operator.offer(*arrival)
    kept = []
    while operator.step():
        kept.append(operator.in_memory)
    assert kept == [1, 2, 3, 3, 1, 1, 0]


def test_xjoin_knows_what_a_visit_could_not_have_seen() -> None:
    """The one's first two lie on disk while 2-0 is in memory; 2-2 is flushed to the same part after 2-0 has left."""
    operator = XJoin(RandomStreams(Random(0)), Memory(buckets=1, limit=1))
    arrivals = [one(0), one(1, 1), None, many(2), None, many(9, 1), None, one(2, 2), one(3, 3)]
    assert join(operator, *arrivals) == ["2-0"]
