"""The windows a user names, and what they admit."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import watersmeet as wm
from watersmeet.errors import DefinitionError
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import FOREVER, NEVER, Closed, Hopping, Sliding, Window, parse_window

HOPPING = st.builds(Hopping, st.integers(1, 20), st.integers(1, 20), st.sampled_from(["left", "right"]))


def test_what_users_write() -> None:
    assert wm.count(3).rows == 3
    assert wm.hopping("1 minute", "20 seconds") == Hopping(60_000_000, 20_000_000)
    assert wm.hopping("1 minute", "20 seconds", closed="left") == Hopping(60_000_000, 20_000_000, "left")
    assert wm.tumbling("1 minute") == Hopping(60_000_000, 60_000_000, "left")


@pytest.mark.parametrize("rows", [0, -1, 2.5, "3", True, None])
def test_count_windows_hold_whole_rows(rows: Any) -> None:
    with pytest.raises(DefinitionError, match="A count window holds a whole number of rows, at least 1; got "):
        wm.count(rows)


@pytest.mark.parametrize(
    ("size", "step", "problem"),
    [
        ("0 seconds", "1 second", "size of a hopping window: '0 seconds' is too short; it must be at least 1 micro"),
        ("1 second", "0 seconds", "step of a hopping window: '0 seconds' is too short; it must be at least 1 micro"),
        ("soon", "1 second", "size of a hopping window: 'soon' is not a duration"),
        ("1 second", "often", "step of a hopping window: 'often' is not a duration"),
    ],
)
def test_hopping_windows_have_a_size_and_a_step(size: str, step: str, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        wm.hopping(size, step)


def test_tumbling_windows_have_a_size_and_hopping_ones_a_closed_end() -> None:
    with pytest.raises(DefinitionError, match="size of a tumbling window: 'soon' is not a duration"):
        wm.tumbling("soon")
    with pytest.raises(DefinitionError, match=r"closed='both': a window is closed on the 'left', \[start, end\), or"):
        wm.hopping("1 second", "1 second", closed="both")  # type: ignore[arg-type]


def test_windows_are_longer_than_zero() -> None:
    with pytest.raises(DefinitionError, match="A sliding window must be longer than zero"):
        Sliding(0)
    with pytest.raises(DefinitionError, match="needs a size and a step longer than zero"):
        Hopping(1, 0)


def test_sliding_is_strict() -> None:
    assert Sliding(10).deadline(np.array([5])).tolist() == [14]


def test_unbounded_windows_never_end() -> None:
    assert Window().deadline(np.array([0])).tolist() == [FOREVER]
    assert Window().span is None and Window().rows is None


@given(st.integers(-100, 100), st.integers(1, 30), st.integers(1, 30))
def test_a_window_closed_on_the_left_ends_before_its_end(ts: int, size: int, step: int) -> None:
    window = Hopping(size, step, "left")
    starts = [k * step for k in range(-200, 200) if k * step <= ts < k * step + size]
    assert bool(window.admits(np.array([ts]))[0]) == bool(starts)
    if starts:
        assert int(window.deadline(np.array([ts]))[0]) == max(starts) + size - 1


@given(st.integers(-100, 100), st.integers(1, 30), st.integers(1, 30))
def test_a_hopping_deadline_is_the_end_of_the_last_window_that_holds_the_tuple(ts: int, size: int, step: int) -> None:
    window = Hopping(size, step)
    starts = [k * step for k in range(-200, 200) if k * step < ts <= k * step + size]
    admitted = bool(window.admits(np.array([ts]))[0])
    assert admitted == bool(starts)
    if starts:
        assert int(window.deadline(np.array([ts]))[0]) == max(starts) + size


@given(
    st.integers(-50, 50),
    st.one_of(st.builds(Sliding, st.integers(1, 20)), HOPPING),
)
def test_earliest_is_the_first_tuple_still_admitted(high: int, window: Window) -> None:
    """Probes look no further back than this, so it must not be later than any tuple whose deadline still holds."""
    times = np.arange(high - 100, high + 1)
    alive = times[(window.deadline(times) >= high) & window.admits(times)]
    earliest = int(window.earliest(np.array([high]))[0])
    assert not len(alive) or earliest <= alive.min()


def test_descriptions_tell_all_windows_apart() -> None:
    sizes = [1, 999_999, 1_000_000, 1_234_567_000_000, 1_234_568_000_000, 1_234_567_000_001]
    ends: tuple[Closed, ...] = ("left", "right")
    windows: list[Window] = [*(Sliding(size) for size in sizes)]
    windows += [Hopping(one, two, closed) for one in sizes for two in sizes for closed in ends]
    assert (
        len({window.notation for window in windows}) == len({window.describe() for window in windows}) == len(windows)
    )


@pytest.mark.parametrize(
    ("window", "words", "notation"),
    [
        (Sliding(660_000_000), "sliding 11 minutes", "sliding 660 s"),
        (Sliding(660_000_001), "sliding 11 minutes, inclusive", "sliding 660.000001 s"),
        (Sliding(10_000_000), "sliding 10 seconds", "sliding 10 s"),
        (Sliding(1), "sliding 0 seconds, inclusive", "sliding 0.000001 s"),
        (wm.tumbling("600 seconds"), "tumbling 10 minutes", "tumbling 600 s"),
        (wm.hopping("2 hours", "90 seconds"), "hopping 2 hours every 90 seconds", "hopping 7200 s every 90 s"),
        (
            wm.hopping("1 minute", "20 seconds", "left"),
            "hopping 1 minute every 20 seconds, closed left",
            "hopping 60 s every 20 s, closed left",
        ),
        (wm.count(5), "last 5 rows", "last 5 rows"),
        (Window(), "unbounded", "unbounded"),
    ],
)
def test_windows_are_told_in_words_and_noted_to_the_microsecond(window: Window, words: str, notation: str) -> None:
    """What is noted is compared by checkpoints, those of earlier versions among them."""
    assert (window.describe(), window.notation) == (words, notation)
    assert parse_window(notation) == window


@pytest.mark.parametrize(
    "window", [Sliding(1), Sliding(10), Sliding(2**63), Hopping(7, 3), Hopping(3, 7), Hopping(7, 3, "left")]
)
def test_windows_at_the_ends_of_time_do_not_wrap(window: Sliding | Hopping) -> None:
    times = np.array([NEVER, NEVER + 1, NEVER + 8, -1, 0, 5, FOREVER - 8, FOREVER - 1, FOREVER])

    def clipped(values: list[int]) -> list[int]:
        return [min(max(value, NEVER), FOREVER) for value in values]

    exact = [int(time) for time in times]
    if isinstance(window, Sliding):
        deadlines, earliest = [t + window.size - 1 for t in exact], [t - window.size + 1 for t in exact]
    else:
        first = 0 if window.closed == "left" else 1
        last = window.size - 1 + first
        deadlines = [(t - first) // window.step * window.step + last for t in exact]
        earliest = [-((last - t) // window.step) * window.step + first for t in exact]
    assert window.deadline(times).tolist() == clipped(deadlines)
    assert window.earliest(times).tolist() == clipped(earliest)


def test_delays_are_described_with_all_their_digits() -> None:
    schema = pa.schema([("ts", pa.timestamp("us", "UTC"))])

    def notation(delay: int) -> str:
        streams = tuple(StreamSpec(name, schema, 0, Window(), delay) for name in "ab")
        return str(Query(streams).description()["delay of 'a'"])

    assert notation(1_234_567_000_000) == "1234567 s"
    assert notation(1_234_568_000_000) != notation(1_234_567_000_000) != notation(1_234_567_000_001)
