"""What a batch warns of, and what of that is news."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.observe.dashboard import recorded_join
from watersmeet.batch.report import StreamIntake
from watersmeet.observe.dashboard.build import verdict
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointSnapshot, RecentBatches
from watersmeet.observe.warnings import Notice, news, notices
from watersmeet.placement import Central
from watersmeet.query.query import OWN_TIME, NestedTimes, Query, StreamSpec
from watersmeet.query.windows import Count, Hopping, Sliding, Window
from watersmeet.state.manifest.manifest import Manifest, StreamState
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SECOND, HOUR = 1_000_000, 3_600_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
NOW = 1_767_225_600 * SECOND
TEN = Sliding(10 * SECOND)
ALL_REJECTED = (
    "Stream 'b': all of its rows so far were rejected, as none has a usable event time; until one has, no state can "
    "leave."
)


def query(*windows: Window, **options: Any) -> Query:
    streams = (StreamSpec(name, SCHEMA, 1, window, 5 * SECOND) for name, window in zip("abc", windows, strict=False))
    return Query(tuple(replace(stream, **options) for stream in streams))


def state(watermark: int | None, *latest: int | None, idle: str = "") -> Manifest:
    streams = (StreamState(time, idle=name in idle) for name, time in zip("abc", latest, strict=False))
    return Manifest(3, tuple(streams), watermark=watermark)


def kinds(join: Query, before: Manifest, after: Manifest, marks: list[int | None] | None = None) -> list[str]:
    own = [spec.watermark(state.latest, None) for spec, state in zip(join.streams, after.streams, strict=True)]
    return [notice.kind for notice in notices(join, before, after, marks or own, [StreamIntake()] * len(own))]


@pytest.mark.parametrize(
    ("windows", "before", "distance", "warned"),
    [
        ((TEN, TEN), 0, 10 * SECOND, False),
        ((TEN, TEN), 0, 10 * SECOND + 1, True),
        ((TEN, Sliding(HOUR)), 0, HOUR, False),
        ((Hopping(10 * SECOND, SECOND), Count(3)), 0, 11 * SECOND, True),
        ((TEN, TEN), None, HOUR, False),
        ((Window(), Count(3)), 0, HOUR, False),
    ],
)
def test_a_watermark_that_jumps(windows: tuple[Window, ...], before: int | None, distance: int, warned: bool) -> None:
    warned_kinds = kinds(query(*windows), state(before, 0, 0), state(distance, distance, distance))
    assert warned_kinds == (["jump"] if warned else [])


def test_a_window_by_conditions_is_told_without_its_microsecond() -> None:
    join = query(Sliding(600 * SECOND + 1), Window())
    (notice,) = notices(join, state(0, 0, 0), state(HOUR, HOUR, HOUR), [0, 0], [StreamIntake()] * 2)
    assert "more than the largest window (10 minutes)" in notice.message


@pytest.mark.parametrize(
    ("elapsed", "warned"), [(0, True), (50 * SECOND, False), (49 * SECOND, True), (-HOUR, True), (None, False)]
)
def test_a_watermark_may_move_as_far_as_the_clock_did(elapsed: int | None, warned: bool) -> None:
    join, before, after = query(TEN, TEN), state(0, 0, 0), state(60 * SECOND, 60 * SECOND, 60 * SECOND)
    warnings = notices(join, before, after, [0, 0], [StreamIntake()] * 2, elapsed)
    assert [notice.kind for notice in warnings] == (["jump"] if warned else [])


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (state(0, 15 * SECOND, 0), []),
        (state(0, 15 * SECOND + 1, 0), ["behind b"]),
        (state(0, 0, HOUR), ["behind a"]),
        (state(0, HOUR, 0, idle="b"), []),
        (state(0, HOUR, 0, idle="ab"), []),
        (state(0, HOUR, None), []),
        (state(None, None, None), []),
    ],
)
def test_a_stream_that_lies_behind(after: Manifest, expected: list[str]) -> None:
    assert kinds(query(TEN, TEN), state(0, 0, 0), after) == expected
    assert kinds(query(Window(), Count(2)), state(0, 0, 0), after) == []


def test_a_join_as_a_stream_has_come_as_far_as_its_watermark() -> None:
    join = query(TEN, TEN)
    join = replace(join, streams=(replace(join.streams[0], nested=NestedTimes(OWN_TIME, False)), join.streams[1]))
    after = state(HOUR - 5 * SECOND, 0, HOUR)  # its last result is an hour ago, and yet it is not behind
    assert kinds(join, after, after, [HOUR - SECOND, HOUR - 5 * SECOND]) == []
    assert kinds(join, after, after, [SECOND, HOUR - 5 * SECOND]) == ["behind a"]


def test_rows_too_far_ahead_are_told_with_the_furthest() -> None:
    intakes = [StreamIntake(too_far=1, furthest=253_402_300_799 * SECOND), StreamIntake(too_far=1200, furthest=2**62)]
    join, same = query(Window(), Count(1), ahead=24 * HOUR), state(0, 0, 0)
    assert [notice.message for notice in notices(join, same, same, [0, 0], intakes)] == [
        "Stream 'a': 1 row was rejected: its event time, 9999-12-31 23:59:59+00:00, lies more than 1 day ahead of the "
        "clock and of all streams. If these times are correct, give the stream a longer ahead='...', or ahead=None.",
        "Stream 'b': 1,200 rows were rejected: their event times, up to 4611686018427387904 µs, lie more than 1 day "
        "ahead of the clock and of all streams. If these times are correct, give the stream a longer ahead='...', "
        "or ahead=None.",
    ]


@pytest.mark.parametrize(
    ("latest", "intake", "warned"),
    [
        (None, StreamIntake(rows=240, rejected=240), True),
        (None, StreamIntake(), False),
        (0, StreamIntake(rows=240, rejected=240), False),
    ],
)
def test_a_stream_whose_rows_were_all_rejected(latest: int | None, intake: StreamIntake, warned: bool) -> None:
    join, after = query(TEN, TEN), state(None, 0, latest)
    warnings = notices(join, state(None, 0, None), after, [0, latest], [StreamIntake(), intake])
    assert warnings == ([Notice("rejected b", ALL_REJECTED)] if warned else [])


def test_progress_and_verdict_say_that_all_rows_were_rejected(tmp_path: Path) -> None:
    run = recorded_join.recorded(tmp_path, batches=0)
    for _ in range(2):
        run.bring([(0, {"id": 1, "ts": NOW, "x": 1.0}), (1, {"id": 1, "ts": None, "x": 1.0})])
        assert run.progress[-1]["warnings"] == [ALL_REJECTED]
    run.bring([(0, {"id": 2, "ts": NOW, "x": 1.0})])
    assert run.progress[-1]["warnings"] == []
    for batches in (2, 3):
        messages = verdict(CheckpointSnapshot(""), RecentBatches(run.progress[:batches]), NOW).messages
        assert messages.count(ALL_REJECTED) == 1 and "no rows yet" not in " ".join(messages)
    run.bring([(1, {"id": 2, "ts": NOW, "x": 1.0}), (1, {"id": 3, "ts": None, "x": 1.0})])
    assert run.progress[-1]["warnings"] == []


def test_what_goes_on_is_told_once_and_rows_too_far_ahead_once_in_a_run() -> None:
    jump, other, far = Notice("jump", "by 2 hours"), Notice("jump", "by 3 hours"), Notice("ahead a", "1 row")
    new, known_kinds = news([jump, far], frozenset())
    assert new == [jump, far]
    new, known_kinds = news([other, far], known_kinds)
    assert new == []
    new, known_kinds = news([], known_kinds)
    new, known_kinds = news([other, far], known_kinds)
    assert new == [other]


def test_progress_has_the_warnings(tmp_path: Path) -> None:
    run = Run(query(TEN, TEN, ahead=24 * HOUR), Store(str(tmp_path)))

    def step(a: list[int], b: list[int]) -> list[str]:
        rows = [(at, {"id": 1, "ts": NOW + time}) for at, times in enumerate((a, b)) for time in times]
        run.step(Central(), rows, now=NOW)
        return list(run.progress[-1]["warnings"])

    assert step([0], [0]) == []
    assert step([SECOND], [10_000 * HOUR]) == [
        "Stream 'b': 1 row was rejected: its event time, 2027-02-21 16:00:00+00:00, lies more than 1 day ahead of the "
        "clock and of all streams. If these times are correct, give the stream a longer ahead='...', or ahead=None."
    ]
    assert step([2 * HOUR, 2 * HOUR + 1], []) == [
        "Stream 'b' holds back the watermark: it is 2 hours behind 'a', more than windows and delays together (15 "
        "seconds). State is kept for it: 5 rows, 0.0 MB, 2 more rows than a batch ago. If it can fall silent, give it "
        "idle='...'."
    ]
    assert step([], [2 * HOUR]) == [
        "The watermark moved by 2 hours in one batch, more than the largest window (10 seconds): tuples from in "
        "between that arrive later are late. If this is not a backlog, check the streams' event times."
    ]
