"""Joins that go on from checkpoints which an earlier version, or another default, has made."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.query.continuation import continue_join, describe_kept_delays
from watersmeet.query.query import OWN_TIME, DelayFrom, NestedTimes, Query, StreamSpec
from watersmeet.query.windows import Hopping, Sliding, Window

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
TEN = 600_000_000


def join(window: Window, delay: int = TEN, derived: bool = True, source: DelayFrom = "windows") -> Query:
    a = StreamSpec("a", SCHEMA, 1, window, delay, derived=derived, delay_from=source)
    return Query((a, StreamSpec("b", SCHEMA, 1, Window(), TEN, delay_from="windows")))


@pytest.mark.parametrize(
    ("before", "is_kept"),
    [
        (Sliding(TEN + 1), True),  # < 10 minutes was once a microsecond longer
        (Sliding(25 * TEN), True),
        (Window(), True),
        (Sliding(TEN - 1), False),
        (Hopping(TEN, TEN), False),
    ],
)
def test_a_window_by_conditions_is_the_checkpoints_if_that_is_wider(before: Window, is_kept: bool) -> None:
    now, stored = join(Sliding(TEN)), join(before).description()
    assert continue_join(now, stored).streams[0].window == (before if is_kept else Sliding(TEN))
    assert (continue_join(now, stored).description() == stored) is is_kept
    fixed_window = replace(now, streams=(replace(now.streams[0], derived=False), now.streams[1]))
    assert continue_join(fixed_window, stored).streams[0].window == Sliding(TEN)


@pytest.mark.parametrize("source", ["watermark", "windows", "conditions"])
def test_a_delay_that_nobody_wrote_is_the_checkpoints(source: DelayFrom) -> None:
    now, before = join(Window(), TEN, source=source), join(Window(), 0)
    again = continue_join(now, before.description())
    assert again.streams[0].delay == 0 and again.description() == before.description()
    reason = "by its frame's watermark" if source == "watermark" else "by default"
    assert [*describe_kept_delays(now, again)] == [
        f"Stream 'a' keeps the delay of its checkpoint, 0 seconds: {reason} it would now be 10 minutes. For that, "
        "start with a new checkpoint."
    ]


def test_a_delay_that_was_written_stays() -> None:
    now, before = join(Window(), TEN, source="given"), join(Window(), 0)
    assert continue_join(now, before.description()) is now


def test_a_microsecond_is_not_worth_a_sentence() -> None:
    now, before = join(Window()), join(Window(), TEN + 1)
    again = continue_join(now, before.description())
    assert again.streams[0].delay == TEN + 1 and not [*describe_kept_delays(now, again)]


def test_the_delay_of_a_join_with_a_watermark_of_its_own_is_not_used() -> None:
    now = join(Window())
    inner = replace(now.streams[0], nested=NestedTimes(OWN_TIME, delayed=False))
    now = replace(now, streams=(inner, now.streams[1]))
    assert not [*describe_kept_delays(now, continue_join(now, join(Window(), 0).description()))]


@pytest.mark.parametrize("stored", [{}, {"window of 'a'": 5, "delay of 'a'": 7}, {"delay of 'a'": "long"}])
def test_what_a_checkpoint_does_not_say_is_left_alone(stored: dict[str, Any]) -> None:
    now = join(Sliding(TEN))
    assert continue_join(now, stored) is now
    table = replace(now, streams=(now.streams[0], replace(now.streams[1], table=True)))
    assert continue_join(table, {"delay of 'b'": "5 s"}) is table
