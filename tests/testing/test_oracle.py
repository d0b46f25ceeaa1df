"""Hand-worked examples of every rule of the semantics, so that the oracle itself can be trusted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from watersmeet.testing.oracle import (
    Arrival,
    Count,
    Hopping,
    Outcome,
    Sliding,
    Stream,
    Unbounded,
    Window,
    join,
)

NAN = float("nan")
Rows = dict[str, Mapping[str, Any]]


def always(rows: Rows) -> bool:
    return True


def arrival(batch: int, stream: str, ts: int | None, id: str, **columns: object) -> Arrival:
    return Arrival(batch, stream, ts, id, {"id": id, **columns})


def pair(a: Window, b: Window, *arrivals: Arrival, delay: int = 1000) -> dict[tuple[tuple[Any, ...], int], int]:
    return dict(join([Stream("a", a, delay), Stream("b", b, delay)], arrivals, always).results)


def ids(outcome: Outcome) -> set[str]:
    return {"".join(names) for names, _ in outcome.results}


def test_sliding_window_is_open_at_its_old_end() -> None:
    w = Sliding(10)
    assert pair(w, w, arrival(0, "a", 1, "a"), arrival(0, "b", 10, "b")) == {(("a", "b"), 10): 1}
    assert pair(w, w, arrival(0, "a", 0, "a"), arrival(0, "b", 10, "b")) == {}


def test_each_stream_has_its_own_window() -> None:
    old_a = [arrival(0, "a", 0, "a"), arrival(0, "b", 50, "b")]
    old_b = [arrival(0, "b", 0, "b"), arrival(0, "a", 50, "a")]
    assert pair(Sliding(100), Sliding(10), *old_a) == {(("a", "b"), 50): 1}
    assert pair(Sliding(100), Sliding(10), *old_b) == {}


def test_equal_timestamps_join_once() -> None:
    w = Sliding(1)
    assert pair(w, w, arrival(0, "a", 5, "a"), arrival(0, "b", 5, "b")) == {(("a", "b"), 5): 1}
    assert pair(w, w, arrival(1, "a", 5, "a"), arrival(0, "b", 5, "b")) == {(("a", "b"), 5): 1}


def test_disorder_both_ways() -> None:
    w = Sliding(10)
    assert pair(w, w, arrival(1, "b", 12, "b"), arrival(2, "a", 8, "a")) == {(("a", "b"), 12): 1}
    assert pair(w, w, arrival(1, "b", 8, "b"), arrival(2, "a", 12, "a")) == {(("a", "b"), 12): 1}
    assert pair(w, w, arrival(1, "b", 18, "b"), arrival(2, "a", 8, "a")) == {}


def test_time_of_a_three_way_result_is_its_largest() -> None:
    streams = [Stream(name, Sliding(10), 100) for name in "abc"]
    arrivals = [arrival(0, "a", 9, "a"), arrival(0, "c", 11, "c"), arrival(1, "b", 12, "b")]
    assert dict(join(streams, arrivals, always).results) == {(("a", "b", "c"), 12): 1}


def test_members_fit_the_whole_result_not_only_their_neighbour() -> None:
    streams = [Stream(name, Sliding(10), 100) for name in "abc"]
    arrivals = [arrival(0, "a", 0, "a"), arrival(0, "b", 6, "b"), arrival(0, "c", 12, "c")]
    assert not join(streams, arrivals, always).results


def test_identical_rows_are_counted_not_merged() -> None:
    w = Sliding(10)
    assert pair(w, w, arrival(0, "a", 1, "a"), arrival(0, "a", 1, "a"), arrival(1, "b", 2, "b")) == {(("a", "b"), 2): 2}


def test_late_is_judged_by_the_watermark_before_the_batch() -> None:
    streams = [Stream("a", Sliding(100), 5), Stream("b", Sliding(100), 0)]
    arrivals = [
        arrival(0, "a", 25, "x"),
        arrival(0, "b", 30, "y"),
        arrival(0, "a", 1, "p"),  # the watermark of its own batch does not judge it
        arrival(1, "a", 20, "q"),  # at the watermark: in time
        arrival(1, "a", 19, "r"),  # behind it
    ]
    outcome = join(streams, arrivals, always)
    assert outcome.watermarks == {0: 20, 1: 20}
    assert [late.row["id"] for late in outcome.late] == ["r"]
    assert ids(outcome) == {"xy", "py", "qy"}


def test_watermark_waits_for_every_stream_and_never_falls() -> None:
    streams = [Stream("a", Unbounded(), 2), Stream("b", Unbounded(), 3)]
    arrivals = [arrival(0, "a", 10, "x"), arrival(1, "b", 9, "y"), arrival(2, "a", 4, "z"), arrival(4, "b", 99, "w")]
    outcome = join(streams, arrivals, always)
    assert outcome.watermarks == {0: None, 1: 6, 2: 6, 4: 8}
    assert [late.row["id"] for late in outcome.late] == ["z"]


def test_idle_stream_does_not_hold_the_watermark() -> None:
    streams = [Stream("a", Unbounded(), 0), Stream("b", Unbounded(), 0)]
    arrivals = [arrival(0, "a", 10, "x"), arrival(2, "b", 7, "y"), arrival(3, "b", 12, "z"), arrival(4, "a", 11, "w")]
    outcome = join(streams, arrivals, always, idle={1: {"b"}})
    assert outcome.watermarks == {0: None, 1: 10, 2: 10, 3: 10, 4: 11}
    assert [late.row["id"] for late in outcome.late] == ["y"]
    assert ids(outcome) == {"xz", "wz"}


def test_watermark_stays_when_all_streams_are_idle() -> None:
    streams = [Stream("a", Unbounded(), 0), Stream("b", Unbounded(), 0)]
    arrivals = [arrival(0, "a", 10, "x"), arrival(0, "b", 20, "y"), arrival(1, "a", 30, "z")]
    outcome = join(streams, arrivals, always, idle={0: {"b"}, 1: {"a", "b"}})
    assert outcome.watermarks == {0: 10, 1: 10}


def test_late_tuples_move_their_stream_watermark() -> None:
    streams = [Stream("a", Unbounded(), 0), Stream("b", Unbounded(), 0)]
    arrivals = [arrival(0, "a", 10, "x"), arrival(1, "b", 7, "y"), arrival(1, "a", 20, "z")]
    outcome = join(streams, arrivals, always, idle={0: {"b"}, 2: set()})
    assert [late.row["id"] for late in outcome.late] == ["y"]
    assert outcome.watermarks == {0: 10, 1: 10, 2: 10}


def test_null_event_time_is_rejected() -> None:
    streams = [Stream("a", Unbounded(), 0), Stream("b", Unbounded(), 0)]
    arrivals = [arrival(0, "a", None, "x"), arrival(1, "b", 7, "y")]
    outcome = join(streams, arrivals, always)
    assert [bad.row["id"] for bad in outcome.rejected] == ["x"]
    assert outcome.watermarks == {0: None, 1: None}
    assert not outcome.results


@pytest.mark.parametrize(("answer", "results"), [(True, 1), (False, 0), (None, 0), (np.True_, 1), (np.False_, 0)])
def test_only_true_is_a_match(answer: bool | None, results: int) -> None:
    streams = [Stream("a", Unbounded(), 0), Stream("b", Unbounded(), 0)]
    outcome = join(streams, [arrival(0, "a", 1, "a"), arrival(0, "b", 1, "b")], lambda rows: answer)
    assert len(outcome.results) == results


def test_predicate_sees_one_row_a_stream() -> None:
    streams = [Stream("a", Unbounded(), 0), Stream("b", Unbounded(), 0)]
    arrivals = [arrival(0, "a", t, f"a{t}", v=t) for t in range(3)]
    arrivals += [arrival(0, "b", t, f"b{t}", v=t) for t in range(3)]
    outcome = join(streams, arrivals, lambda rows: bool(rows["a"]["v"] < rows["b"]["v"]))
    assert ids(outcome) == {"a0b1", "a0b2", "a1b2"}


def test_count_window_counts_arrivals_not_times() -> None:
    arrivals = [
        arrival(0, "a", 50, "x"),
        arrival(1, "a", 40, "y"),
        arrival(2, "b", 45, "b"),
        arrival(3, "a", 60, "z"),  # pushes y out, but b is already here: only z's own results are new
    ]
    assert pair(Count(1), Unbounded(), *arrivals) == {(("y", "b"), 45): 1, (("z", "b"), 60): 1}


def test_count_window_is_as_of_the_last_member() -> None:
    early = [arrival(0, "b", 9, "b"), arrival(1, "a", 1, "x"), arrival(1, "a", 2, "y"), arrival(1, "a", 3, "z")]
    assert len(pair(Count(1), Unbounded(), *early)) == 3
    late = [arrival(2, "b", 9, "b"), *early[1:]]
    assert pair(Count(2), Unbounded(), *late) == {(("y", "b"), 9): 1, (("z", "b"), 9): 1}


def test_count_window_breaks_ties_by_stream_then_key() -> None:
    a = [arrival(0, "a", 5, "k1"), arrival(0, "a", 5, "k2")]
    b = [arrival(0, "b", 5, "b")]
    assert pair(Count(1), Unbounded(), *b, *reversed(a)) == {(("k2", "b"), 5): 1}
    # Stream b comes after a: at one time both a's arrive first, so the window of b is still empty when they probe.
    assert pair(Unbounded(), Count(1), *a, *b) == {(("k1", "b"), 5): 1, (("k2", "b"), 5): 1}


def test_count_window_of_three_streams_uses_the_last_arrived_of_all() -> None:
    streams = [Stream("a", Count(1), 100), Stream("b", Unbounded(), 100), Stream("c", Unbounded(), 100)]
    arrivals = [
        arrival(0, "a", 1, "x"),
        arrival(1, "b", 2, "b"),
        arrival(2, "a", 3, "y"),
        arrival(3, "c", 4, "c"),
    ]
    assert dict(join(streams, arrivals, always).results) == {(("y", "b", "c"), 4): 1}


def test_late_tuples_do_not_count_in_a_count_window() -> None:
    streams = [Stream("a", Count(1), 0), Stream("b", Unbounded(), 0)]
    arrivals = [
        arrival(0, "a", 10, "x"),
        arrival(0, "b", 10, "y"),
        arrival(1, "a", 5, "late"),
        arrival(2, "b", 11, "z"),
    ]
    outcome = join(streams, arrivals, always)
    assert [late.row["id"] for late in outcome.late] == ["late"]
    assert ids(outcome) == {"xy", "xz"}


def test_hopping_windows_open_after_their_start_and_close_at_their_end() -> None:
    w = Hopping(10, 10)
    assert pair(w, w, arrival(0, "a", 1, "a"), arrival(0, "b", 10, "b")) == {(("a", "b"), 10): 1}
    assert pair(w, w, arrival(0, "a", 10, "a"), arrival(0, "b", 11, "b")) == {}
    assert pair(w, w, arrival(0, "a", 0, "a"), arrival(0, "b", 1, "b")) == {}
    assert pair(w, w, arrival(0, "a", -9, "a"), arrival(0, "b", 0, "b")) == {(("a", "b"), 0): 1}


def test_tumbling_windows_open_at_their_start_and_close_before_their_end() -> None:
    w = Hopping(10, 10, "left")
    assert pair(w, w, arrival(0, "a", 0, "a"), arrival(0, "b", 9, "b")) == {(("a", "b"), 9): 1}
    assert pair(w, w, arrival(0, "a", 9, "a"), arrival(0, "b", 10, "b")) == {}
    assert pair(w, w, arrival(0, "a", 10, "a"), arrival(0, "b", 10, "b")) == {(("a", "b"), 10): 1}
    gaps = Hopping(5, 10, "left")
    assert pair(gaps, Unbounded(), arrival(0, "a", 15, "a"), arrival(0, "b", 2, "b")) == {}


def test_overlapping_hopping_windows_emit_once() -> None:
    w = Hopping(30, 10)
    assert pair(w, w, arrival(0, "a", 21, "a"), arrival(0, "b", 25, "b")) == {(("a", "b"), 25): 1}
    assert pair(w, w, arrival(0, "a", 21, "a"), arrival(0, "b", 50, "b")) == {(("a", "b"), 50): 1}
    assert pair(w, w, arrival(0, "a", 20, "a"), arrival(0, "b", 41, "b")) == {}


def test_tuple_in_a_gap_of_hopping_windows_joins_nothing() -> None:
    w = Hopping(5, 10)
    assert pair(w, w, arrival(0, "a", 15, "a"), arrival(0, "b", 15, "b")) == {(("a", "b"), 15): 1}
    assert pair(w, w, arrival(0, "a", 16, "a"), arrival(0, "b", 16, "b")) == {}
    assert pair(w, Unbounded(), arrival(0, "a", 16, "a"), arrival(0, "b", 2, "b")) == {}
    assert pair(Unbounded(), w, arrival(0, "a", 16, "a"), arrival(0, "b", 12, "b")) == {}


def test_unbounded_window_never_forgets() -> None:
    arrivals = [arrival(0, "a", 0, "a"), arrival(9, "b", 10**15, "b")]
    assert pair(Unbounded(), Sliding(1), *arrivals) == {(("a", "b"), 10**15): 1}


def literal(streams: list[Stream], arrivals: list[Arrival]) -> set[tuple[str, ...]]:
    """The definition once more, over the plain product, for streams in which nothing is late."""
    position = {s.name: i for i, s in enumerate(streams)}
    order = sorted(arrivals, key=lambda a: (a.batch, a.ts or 0, position[a.stream], a.key))
    rank = {a.row["id"]: i for i, a in enumerate(order)}
    found = set()
    for combination in itertools.product(*([a for a in order if a.stream == s.name] for s in streams)):
        t = max(a.ts or 0 for a in combination)
        last = max(rank[a.row["id"]] for a in combination)
        if all(
            is_admitted(s.window, a, t, [o for o in order[: last + 1] if o.stream == s.name])
            for s, a in zip(streams, combination, strict=True)
        ):
            found.add(tuple(a.row["id"] for a in combination))
    return found


def is_admitted(window: Window, member: Arrival, t: int, arrived: list[Arrival]) -> bool:
    ts = member.ts or 0
    match window:
        case Sliding(size):
            return t - ts < size
        case Count(rows):
            return member in arrived[-rows:]
        case Hopping(size, step, "left"):
            return any(k * step <= ts <= t < k * step + size for k in range(-100, 100))
        case Hopping(size, step):
            return any(k * step < ts <= t <= k * step + size for k in range(-100, 100))
        case Unbounded():
            return True


@pytest.mark.parametrize("seed", range(20))
def test_pruned_enumeration_equals_the_plain_product(seed: int) -> None:
    rng = np.random.default_rng(seed)
    windows: list[Window] = [Sliding(7), Count(3), Hopping(12, 5), Hopping(4, 9), Hopping(8, 8, "left"), Unbounded()]
    streams = [Stream(name, windows[rng.integers(len(windows))], 1000) for name in "abc"]
    arrivals = [
        arrival(int(rng.integers(4)), name, int(rng.integers(1, 40)), f"{name}{i}") for name in "abc" for i in range(9)
    ]
    outcome = join(streams, arrivals, always)
    assert {names for names, _ in outcome.results} == literal(streams, arrivals)


def test_event_times_too_far_ahead_are_rejected() -> None:
    streams = [Stream("a", Sliding(10), 0, ahead=5), Stream("b", Sliding(10), 0)]
    arrivals = [
        arrival(0, "a", 15, "as far ahead of the clock as it may be"),
        arrival(0, "a", 16, "too far"),
        arrival(0, "b", 40, "b, which may be any time"),
        arrival(1, "a", 45, "as far ahead of b as it may be"),
        arrival(1, "a", 46, "too far again"),
        arrival(2, "a", 51, "too far ahead of what was believed"),
    ]
    outcome = join(streams, arrivals, always, clock={0: 10, 1: 12, 2: 13})
    assert [a.row["id"] for a in outcome.rejected] == [
        "too far",
        "too far again",
        "too far ahead of what was believed",
    ]
    assert outcome.watermarks == {0: 15, 1: 40, 2: 40}
    assert ids(outcome) == {"as far ahead of b as it may beb, which may be any time"}
    assert not join(streams, arrivals, always).rejected
