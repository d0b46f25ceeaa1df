"""The map of state, and when slices go: as it then happens."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.budget import one_in
from tests.observe.dashboard.recorded_join import SECOND, START, recorded
from watersmeet.observe.dashboard.dashboard_view import short_time
from watersmeet.observe.dashboard.joins import SliceExpiry, SliceState, draw_state_map, expiry_of
from watersmeet.placement import PSP
from watersmeet.query.windows import BEFORE_ALL, Closed, Count, Hopping, Sliding, Window, parse_window

LENGTHS = st.integers(1, 10**15)


HOPPING = st.builds(Hopping, LENGTHS, LENGTHS, st.sampled_from(get_args(Closed)))
TUMBLING = LENGTHS.map(lambda size: Hopping(size, size, "left"))


@given(st.one_of(st.builds(Sliding, LENGTHS), HOPPING, TUMBLING, st.builds(Count, LENGTHS)))
def test_windows_are_read_as_they_were_written(window: Window) -> None:
    assert parse_window(window.notation) == window
    assert parse_window(Window().notation) == Window() and parse_window("") is None


@pytest.mark.parametrize(
    "window", one_in(3, [Hopping(6 * SECOND, 2 * SECOND), Sliding(4 * SECOND), wm.tumbling("4 seconds")])
)
def test_slices_go_when_the_map_says(tmp_path: Path, window: Window) -> None:
    """What is predicted after each batch is what the next ones do, chunk by chunk."""
    run = recorded(tmp_path, batches=4, windows=(window, window))
    checked, expired = 0, 0
    for batch in range(4, 14):
        assert run.state is not None
        before = run.state
        run.bring([(at, {"id": batch, "ts": START + 2 * batch * SECOND, "x": 1.0}) for at in range(2)], PSP(nodes=2))
        after = run.state
        assert after is not None and after.settled is not None
        for key, chunk in before.chunks.items():
            slice_state = SliceState()
            slice_state.add(chunk)
            predicted = expiry_of(window, slice_state, 0)
            assert predicted.time is not None
            over = after.settled > predicted.time
            merged = any(
                other.stream == chunk.stream and other.low <= chunk.low and chunk.high <= other.high
                for other in after.chunks.values()
            )
            assert key not in after.chunks if over else key in after.chunks or merged
            checked, expired = checked + 1, expired + over
    assert expired > 5 and checked > expired


def test_a_count_window_lets_go_by_rows() -> None:
    slice_state = SliceState(last=90)
    assert expiry_of(Count(50), slice_state, 100) == SliceExpiry(rows=40)
    assert SliceExpiry(rows=40).describe(None, None, None) == "after 40 more rows"


def test_without_a_window_nothing_goes_by_time() -> None:
    slice_state = SliceState(high=5)
    assert expiry_of(Window(), slice_state, 0) == expiry_of(None, slice_state, 0) == SliceExpiry()
    assert SliceExpiry().describe(5, 1.0, 5) == "not by time" and SliceExpiry().remaining(5, 1.0) == ""


def test_in_what_time_a_slice_goes_follows_from_the_watermarks_speed() -> None:
    expiry = SliceExpiry(time=START + 10 * SECOND)
    assert expiry.remaining(START, 0.5) == "20.0 s" and expiry.remaining(START, None) == ""
    assert (
        expiry.describe(START, 2.0, START)
        == f"once the watermark passes {short_time(expiry.time, START)}, in about 5.00 s"
    )


def test_the_map_has_a_lane_for_each_stream_and_node(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    assert run.state is not None
    state_map = draw_state_map(run.state, ["a", "b"], [Sliding(10 * SECOND)] * 2, 1.0)
    owners = {(chunk.stream, node) for chunk in run.state.chunks.values() for node in chunk.owners}
    assert [(lane.stream, lane.node) for lane in state_map.lanes] == [
        ("ab"[at], f"node {n}") for at, n in sorted(owners)
    ]
    blocks = [block for lane in state_map.lanes for block in lane.blocks]
    assert all(0 <= block.start <= block.end <= 1 and 0 < block.weight <= 1 for block in blocks)
    assert state_map.watermark is not None and 0 < state_map.watermark < 1
    assert state_map.next_to_leave.note == "A slice leaves once the watermark has passed the time in 'leaves at'."
    goes = [row[1].text for row in state_map.next_to_leave.rows]
    assert goes == sorted(goes) and len(goes) == min(6, len({(c.stream, c.start) for c in run.state.chunks.values()}))


def test_tables_are_not_on_the_map_of_times(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    assert run.state is not None
    without_table = draw_state_map(run.state, ["a", "b"], [None, None], None)
    chunk = next(iter(run.state.chunks.values()))
    table = replace(chunk, id="table", low=BEFORE_ALL, high=BEFORE_ALL, stream=2)
    beside = replace(run.state, chunks={**run.state.chunks, table.id: table})
    assert draw_state_map(beside, ["a", "b", "zones"], [None] * 3, None) == without_table


def test_many_slices_and_nodes_are_drawn_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(tmp_path)
    assert run.state is not None
    monkeypatch.setattr("watersmeet.observe.dashboard.joins.COLUMNS", 2)
    monkeypatch.setattr("watersmeet.observe.dashboard.joins.NODES", 1)
    state_map = draw_state_map(run.state, ["a", "b"], [None, None], None)
    assert all(len(lane.blocks) <= 2 for lane in state_map.lanes)
    assert {lane.node for lane in state_map.lanes} <= {"node 0", "nodes 1+"}
    assert state_map.next_to_leave.note.startswith("No slice leaves by its window")
