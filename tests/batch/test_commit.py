"""What is remembered of a batch: hops that are no longer taken and nodes that went weigh less and less."""

import pyarrow as pa
import pytest

from watersmeet.batch.measurements import smooth_hops
from watersmeet.batch.report import StreamIntake
from watersmeet.batch.watermark import advance_stream, held_back_by, join_watermark
from watersmeet.cost.load import smooth_usage
from watersmeet.observe.timing import mark_overdue
from watersmeet.probe.work import HopWork
from watersmeet.query.query import NestedTimes, Query, StreamSpec
from watersmeet.query.windows import Hopping, Sliding, Window
from watersmeet.state.manifest.manifest import Manifest, StreamState
from watersmeet.state.manifest.view import HopView, Usage

OLD, NEW = ((0,), 1), ((0,), 2)


def test_a_hop_that_is_no_longer_taken_weighs_less_and_finds_as_much() -> None:
    known = [HopView(*OLD, 100.0, 5000.0, 50.0)]
    for _ in range(3):
        known = smooth_hops(known, {NEW: HopWork(rows_in=100, pairs=2000, matches=10)})
    old, new = known
    assert (old.rows, old.pairs) == (100 / 8, 5000 / 8)
    assert old.matches / old.rows == pytest.approx(0.5)
    assert (new.rows, new.pairs, new.matches) == (100, 2000, 10)


@pytest.mark.parametrize(("before", "now"), [(1, 8), (8, 1), (3, 3)])
def test_what_all_nodes_used_together_is_the_same_when_nodes_come_or_go(before: int, now: int) -> None:
    usage = [Usage(16 / before, 8 / before, 0)] * before
    for _ in range(4):
        usage = smooth_usage(usage, [Usage(16 / now, 8 / now, 0)] * now)
        assert sum(used.cpu for used in usage) == pytest.approx(16)
        assert sum(used.memory for used in usage) == pytest.approx(8)
    assert len(usage) == now
    assert max(used.cpu for used in usage) == pytest.approx(16 / now, rel=0.5)


def test_inner_joins_are_late_when_the_join_is() -> None:
    after = mark_overdue(Manifest(batch=3, streams=(), inner={1: Manifest(batch=3, streams=())}), overdue=4)
    assert [state.learned.overdue for state in (after, after.inner[1])] == [4, 4]


@pytest.mark.parametrize(("now", "heard", "idle"), [(90, 90, False), (140, 100, False), (160, 100, True)])
def test_a_stream_heard_later_than_now_was_heard_now(now: int, heard: int, idle: bool) -> None:
    spec = StreamSpec("a", WHEN, 0, Window(), delay=0, idle=50)
    after = advance_stream(spec, StreamState(active_at=100), StreamIntake(), now)
    assert (after.active_at, after.idle) == (heard, idle)


WHEN = pa.schema([("ts", pa.timestamp("us", "UTC"))])
OWN, MEMBERS = Sliding(1), Sliding(10)


@pytest.mark.parametrize(
    ("nested", "inner", "latest", "wanted"),
    [
        (None, None, 100, 95),
        (NestedTimes(OWN, delayed=False), 80, 100, 80),
        (NestedTimes(OWN, delayed=False), 80, None, 80),
        (NestedTimes(OWN, delayed=False), None, 100, None),
        (NestedTimes(MEMBERS, delayed=False), 80, 100, 71),
        (NestedTimes(Hopping(20, 10), delayed=False), 80, 100, 61),
        (NestedTimes(MEMBERS, delayed=True), 80, 100, 95),
        (NestedTimes(MEMBERS, delayed=True), 120, 100, 111),
        (NestedTimes(MEMBERS, delayed=True), 120, None, 111),
        (NestedTimes(None, delayed=True), 120, 100, 95),
        (NestedTimes(None, delayed=True), 120, None, None),
    ],
)
def test_the_watermark_of_a_stream_that_is_a_join(
    nested: NestedTimes | None, inner: int | None, latest: int | None, wanted: int | None
) -> None:
    stream = StreamSpec("ab", WHEN, 0, Window(), delay=5, nested=nested)
    query = Query((stream, StreamSpec("c", WHEN, 0, Window(), delay=0)))
    states = [StreamState(latest=latest), StreamState(latest=1000)]
    marks = {} if nested is None else {0: inner}
    assert join_watermark(None, query, states, marks) == wanted
    assert held_back_by(query, states, marks) == "ab"
