"""Hand-worked examples of the rules of constraints: denial, orphans and punctuations, as the oracle has them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tests.testing.test_oracle import always, arrival, ids
from watersmeet.testing.oracle import (
    Arrival,
    Clusters,
    Count,
    OracleConstraint,
    Order,
    Outcome,
    ParentKey,
    PunctuationFlag,
    Sliding,
    Stream,
    Unbounded,
    UniqueKey,
    Window,
    join,
)

NAN = float("nan")


def join_alone(*promises: OracleConstraint, arrivals: Sequence[Arrival]) -> Outcome:
    """A join of `a`, which makes the promises, with `b`, which makes none; nothing is late."""
    streams = [Stream("a", Unbounded(), 1000, constraints=promises), Stream("b", Unbounded(), 1000)]
    return join(streams, arrivals, always)


def values(*batches: Sequence[object]) -> list[Arrival]:
    """Rows of stream `a`, named by their batch and place, with a value `v` each."""
    return [arrival(b, "a", 1, f"{b}{i}", v=v) for b, rows in enumerate(batches) for i, v in enumerate(rows)]


def denied(outcome: Outcome) -> list[str]:
    return [row.row["id"] for row, _ in outcome.denied]


def names(arrivals: Sequence[Arrival]) -> list[str]:
    return [a.row["id"] for a in arrivals]


def test_key_denies_later_batches_and_duplicates_in_one_batch_all_join() -> None:
    rows = [*values([7, 7], [7, 8], [8, 9]), arrival(3, "b", 1, "b")]
    outcome = join_alone(UniqueKey(("v",)), arrivals=rows)
    assert outcome.denied == [(rows[2], UniqueKey(("v",))), (rows[4], UniqueKey(("v",)))]
    assert ids(outcome) == {"00b", "01b", "11b", "21b"}


def test_key_of_two_columns_is_their_pair_and_null_is_never_marked() -> None:
    pairs: list[list[tuple[object, object]]] = [[(1, 1), (1, None)], [(1, 2), (1, None)], [(1, 1), (2, 1), (1, 2)]]
    rows = [arrival(b, "a", 1, f"{b}{i}", x=x, y=y) for b, batch in enumerate(pairs) for i, (x, y) in enumerate(batch)]
    assert denied(join_alone(UniqueKey(("x", "y")), arrivals=rows)) == ["20", "22"]


def test_key_that_was_seen_and_joined_still_joins_a_third_stream() -> None:
    streams = [
        Stream("a", Unbounded(), 99, constraints=[UniqueKey(("id",))]),
        *(Stream(n, Unbounded(), 99) for n in "bc"),
    ]
    arrivals = [arrival(0, "a", 1, "x"), arrival(1, "b", 1, "y"), arrival(2, "c", 1, "z"), arrival(3, "b", 1, "w")]
    assert ids(join(streams, arrivals, always)) == {"xyz", "xwz"}


def test_order_denies_below_the_frontier_of_earlier_batches_never_at_it() -> None:
    rising = join_alone(Order("v"), arrivals=values([5, 3, None], [5, 4, None, 9], [9, 8]))
    assert denied(rising) == ["11", "21"]
    falling = join_alone(Order("v", falling=True), arrivals=values([5, 7, None], [5, 6, None, 1], [1, 2]))
    assert denied(falling) == ["11", "21"]


def test_nan_is_highest_never_raises_a_rising_frontier_and_is_denied_by_a_falling_one() -> None:
    rising = join_alone(Order("v"), arrivals=values([1.0, NAN], [NAN, 1.0, 0.5], [float("inf")], [NAN, 1.0]))
    assert denied(rising) == ["12", "31"]
    falling = join_alone(Order("v", falling=True), arrivals=values([NAN], [NAN, 5.0], [NAN, 5.0, float("inf")]))
    assert denied(falling) == ["20", "22"]
    loose = join_alone(Order("v", falling=True, slack=1.0), arrivals=values([NAN, 5.0], [NAN, 6.0, 6.5]))
    assert denied(loose) == ["10", "12"]


@pytest.mark.parametrize(
    ("frontier", "slack", "kept", "gone"),
    [
        (10, 3, 7, 6),
        (2**53 + 2, 1, 2**53 + 1, 2**53),
        (1.5, 0.5, 1.0, 0.75),
        (Decimal(10**37 + 2), 1, Decimal(10**37 + 1), Decimal(10**37)),
        (datetime(2024, 1, 1, 1), timedelta(hours=1), datetime(2024, 1, 1), datetime(2023, 12, 31, 23, 59, 59, 999999)),
        (datetime(2024, 1, 1, 1), 1, datetime(2024, 1, 1, 0, 59, 59, 999999), datetime(2024, 1, 1, 0, 59, 59, 999998)),
        (date(2024, 1, 10), timedelta(hours=36), date(2024, 1, 9), date(2024, 1, 8)),
        ("b", 0, "b", "az"),
        (b"\xff", 0, b"\xff", b"\x7f"),
    ],
)
def test_slack_of_an_order(frontier: Any, slack: Any, kept: Any, gone: Any) -> None:
    assert denied(join_alone(Order("v", slack=slack), arrivals=values([frontier], [kept, gone]))) == ["11"]


@pytest.mark.parametrize(
    ("frontier", "slack", "kept", "gone"),
    [
        (10, 3, 13, 14),
        (Decimal("0.1"), Decimal("0.1"), Decimal("0.2"), Decimal("0.21")),
        (date(2024, 1, 10), timedelta(hours=36), date(2024, 1, 11), date(2024, 1, 12)),
    ],
)
def test_slack_of_a_falling_order(frontier: Any, slack: Any, kept: Any, gone: Any) -> None:
    assert denied(join_alone(Order("v", True, slack), arrivals=values([frontier], [kept, gone]))) == ["11"]


def test_slack_that_leaves_the_calendar_denies_nothing() -> None:
    rows = values([datetime(9999, 12, 31)], [datetime(9999, 12, 31, 1), datetime(2024, 1, 1)], [datetime(2024, 1, 3)])
    assert denied(join_alone(Order("v", falling=True, slack=timedelta(days=1)), arrivals=rows)) == ["20"]


def test_run_is_over_after_one_batch_without_the_value() -> None:
    rows = values(["x"], ["x", "y"], ["y"], ["x", "y"], ["x", "z"])
    assert denied(join_alone(Clusters("v"), arrivals=rows)) == ["30", "40"]  # over for ever, violators or not


def test_run_with_slack_counts_anew_from_each_batch_that_has_the_value() -> None:
    rows = values(["x"], ["y"], ["x"], ["y"], ["y"], ["x"])
    assert denied(join_alone(Clusters("v", slack=1), arrivals=rows)) == ["50"]
    assert denied(join_alone(Clusters("v", slack=2), arrivals=rows)) == []


def test_batches_without_any_value_end_no_run() -> None:
    rows = [
        *values(["x"], [None], [], [], ["x"]),
        arrival(2, "b", 1, "b", v="y"),
        arrival(3, "a", 1, "end", v="y", stop=True),
    ]
    assert denied(join_alone(Clusters("v"), PunctuationFlag("stop", {"v": "v"}), arrivals=rows)) == []


@pytest.mark.parametrize("slack", [0, 1, 2])
def test_runs_by_their_definition(slack: int) -> None:
    """A value is over after a batch if some batch had it and, of the batches with values since, more than the slack
    lacked it before any had it again."""
    for batches in itertools.product(["", "x", "y", "xy"], repeat=4):
        outcome = join_alone(Clusters("v", slack), arrivals=[*values(*batches), arrival(3, "b", 1, "b")])
        filled = [batch for batch in batches if batch]
        over = any("x" in have and is_run_of_lacks(filled[i + 1 :], slack + 1) for i, have in enumerate(filled))
        assert ({"v": "x"} in outcome.denials[3]["a"]) == over, batches


def is_run_of_lacks(batches: Sequence[str], length: int) -> bool:
    return len(batches) >= length and not any("x" in batch for batch in batches[:length])


END = PunctuationFlag("end", {"v": "v"})


def test_punctuation_denies_from_the_end_of_its_own_batch() -> None:
    rows = [
        arrival(0, "a", 9, "end", v=7, end=True),
        arrival(0, "a", 10, "own batch", v=7, end=False),
        arrival(1, "a", 1, "denied", v=7, end=None),
        arrival(1, "a", 1, "other value", v=8, end=None),
        arrival(1, "a", 1, "null", v=None, end=False),
        arrival(1, "b", 1, "+"),
    ]
    outcome = join_alone(END, arrivals=rows)
    assert outcome.denied == [(rows[2], END)]
    assert outcome.punctuations == [rows[0]]
    assert ids(outcome) == {"own batch+", "other value+", "null+"}


def test_punctuations_join_nothing_take_no_ordinal_and_move_no_time() -> None:
    streams = [Stream("a", Count(1), 0, constraints=[END]), Stream("b", Unbounded(), 0)]
    arrivals = [
        arrival(0, "a", 10, "x", v=1),
        arrival(0, "b", 10, "y"),
        arrival(1, "a", 5000, "announced", v=7, end=True),
        arrival(1, "b", 6000, "z"),
        arrival(2, "a", 11, "in time", v=2),
    ]
    outcome = join(streams, arrivals, always)
    assert outcome.watermarks == {0: 10, 1: 10, 2: 11}
    assert not outcome.late
    assert ids(outcome) == {"xy", "xz", "in timey", "in timez"}


def test_punctuations_do_not_say_how_far_ahead_is_believed() -> None:
    streams = [Stream("a", Unbounded(), 0, ahead=5, constraints=[END]), Stream("b", Unbounded(), 0)]
    arrivals = [
        arrival(0, "a", 15, "end", v=1, end=True),
        arrival(0, "a", 16, "end too far ahead", v=2, end=True),
        arrival(1, "a", 16, "too far", v=3),
        arrival(1, "a", 15, "denied", v=1),
        arrival(1, "a", 15, "accepted", v=2),
    ]
    outcome = join(streams, arrivals, always, clock={0: 10, 1: 10})
    assert names(outcome.rejected) == ["end too far ahead", "too far"]
    assert denied(outcome) == ["denied"]


def test_pattern_of_two_values_is_not_a_pattern_of_one() -> None:
    pattern = PunctuationFlag("end", {"item": "item", "ip": "ip"})
    rows = [
        arrival(0, "a", 1, "end", item=79, ip="here", end=True),
        arrival(1, "a", 1, "both", item=79, ip="here"),
        arrival(1, "a", 1, "item only", item=79, ip="there"),
        arrival(1, "a", 1, "ip only", item=80, ip="here"),
        arrival(1, "a", 1, "ip unknown", item=79, ip=None),
    ]
    assert denied(join_alone(pattern, arrivals=rows)) == ["both"]
    assert denied(join_alone(PunctuationFlag("end", {"item": "item"}), arrivals=rows)) == [
        "both",
        "ip unknown",
        "item only",
    ]
    assert len(denied(join_alone(PunctuationFlag("end", {}), arrivals=rows))) == 4


def test_range_includes_both_ends() -> None:
    pattern = PunctuationFlag("end", {"v": ("low", "high"), "zone": "where"})
    ends = {"low": 3, "high": 5, "where": "z"}
    rows = [arrival(0, "a", 1, "end", end=True, **ends), arrival(0, "a", 1, "none", end=True, low=9, high=8, where="z")]
    rows += [arrival(1, "a", 1, str(v), v=v, zone="z") for v in (2, 3, 4, 5, 6, 8, 9, None)]
    rows += [arrival(1, "a", 1, "elsewhere", v=4, zone="y")]
    assert denied(join_alone(pattern, arrivals=rows)) == ["3", "4", "5"]


def test_nan_is_the_upper_end_of_a_range_and_above_infinity() -> None:
    pattern = PunctuationFlag("end", {"v": ("low", "high")})
    found = {}
    for high in (float("inf"), NAN):
        rows = [arrival(0, "a", 1, "end", end=True, low=1.0, high=high), *values([], [0.5, 1.0, float("inf"), NAN])]
        found[str(high)] = denied(join_alone(pattern, arrivals=rows))
    assert found == {"inf": ["11", "12"], "nan": ["11", "12", "13"]}


def test_null_in_a_punctuation_is_rejected_and_never_a_wildcard() -> None:
    key, pattern = UniqueKey(("item",)), PunctuationFlag("end", {"item": "item", "v": ("low", "high")})
    rows = [
        arrival(0, "a", 1, "no item", end=True, item=None, low=1, high=9),
        arrival(0, "a", 1, "no low", end=True, item=1, low=None, high=9),
        arrival(0, "a", 1, "no high", end=True, item=1, low=1, high=None),
        arrival(0, "a", None, "no time", end=True, item=1, low=1, high=9),
        arrival(1, "a", 1, "accepted", item=1, v=5),
    ]
    outcome = join_alone(key, pattern, arrivals=rows)
    assert names(outcome.rejected) == ["no item", "no low", "no high", "no time"]
    assert (outcome.punctuations, outcome.denied) == ([], [])


def test_each_flag_has_its_own_pattern() -> None:
    promises = [PunctuationFlag("end", {"v": "v"}), PunctuationFlag("below", {"n": ("low", "high")})]
    rows = [
        arrival(0, "a", 1, "v is 7", end=True, v=7, low=None, high=None),
        arrival(0, "a", 1, "n is 1 to 3", below=True, v=None, low=1, high=3),
        arrival(1, "a", 1, "by v", v=7, n=9),
        arrival(1, "a", 1, "by n", v=8, n=2),
        arrival(1, "a", 1, "accepted", v=8, n=9),
    ]
    outcome = join_alone(*promises, arrivals=rows)
    assert outcome.denied == [(rows[3], promises[1]), (rows[2], promises[0])]
    assert not outcome.rejected


def test_effect_by_watermark_is_when_the_joins_watermark_is_past_the_punctuation() -> None:
    pattern = PunctuationFlag("end", {"v": "v"}, effect="watermark")
    streams = [Stream("a", Unbounded(), 0, constraints=[pattern]), Stream("b", Unbounded(), 0)]
    arrivals = [
        arrival(0, "a", 10, "end", v=7, end=True),
        arrival(0, "a", 99, "a's own watermark is not meant", v=1),
        arrival(1, "a", 99, "no watermark yet", v=7),
        arrival(1, "b", 10, "b at the punctuation's time"),
        arrival(2, "a", 99, "not past it", v=7),
        arrival(2, "b", 11, "b past it"),
        arrival(3, "a", 99, "denied", v=7),
    ]
    outcome = join(streams, arrivals, always)
    assert outcome.watermarks == {0: None, 1: 10, 2: 11, 3: 11}
    assert denied(outcome) == ["denied"]
    assert [batch for batch, by_stream in outcome.denials.items() if {"v": 7} in by_stream["a"]] == [2, 3]


@pytest.mark.parametrize("effect", ["batch", "watermark"])
def test_punctuation_behind_the_watermark_still_counts(effect: Any) -> None:
    pattern = PunctuationFlag("end", {"v": "v"}, effect)
    streams = [Stream("a", Unbounded(), 0, constraints=[pattern]), Stream("b", Unbounded(), 0)]
    arrivals = [
        arrival(0, "a", 10, "x", v=1),
        arrival(0, "b", 10, "y"),
        arrival(1, "a", 9, "end", v=7, end=True),
        arrival(1, "a", 10, "own batch", v=7),
        arrival(2, "a", 10, "denied", v=7),
    ]
    outcome = join(streams, arrivals, always)
    assert (names(outcome.punctuations), outcome.late, denied(outcome)) == (["end"], [], ["denied"])


EQUAL: list[tuple[object, object]] = [
    (0.0, -0.0),
    (NAN, -float("nan")),
    (Decimal("1.0"), Decimal("1.00")),
    (2**53, 2**53),
    ("alike", "alike"),
    (b"\x00", b"\x00"),
    (False, False),
    (date(2024, 1, 1), date(2024, 1, 1)),
    (datetime(2024, 1, 1, 1), datetime(2024, 1, 1, 1)),
]
UNEQUAL: list[tuple[object, object]] = [
    (None, None),
    (NAN, 1.0),
    (2**53, 2**53 + 1),
    (Decimal(10**37), Decimal(10**37 + 1)),
    ("alike to the end", "alike to the End"),
    ("a", "a "),
    (b"", b"\x00"),
    (True, False),
    (date(2024, 1, 1), date(2024, 1, 2)),
    (datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1)),
]


@pytest.mark.parametrize(
    ("one", "other", "same"), [(*pair, True) for pair in EQUAL] + [(*pair, False) for pair in UNEQUAL]
)
def test_marks_are_compared_as_sql_does(one: Any, other: Any, same: bool) -> None:
    wanted = ["20"] if same else []
    assert denied(join_alone(UniqueKey(("v",)), arrivals=values([one], [], [other]))) == wanted
    if one is not None:
        end = arrival(0, "a", 1, "end", v=one, end=True)
        assert denied(join_alone(END, arrivals=[end, *values([], [], [other])])) == wanted
    assert denied(join_alone(Clusters("v"), arrivals=values([one], ["another"], [other]))) == wanted


def test_order_of_judgement() -> None:
    promises: list[OracleConstraint] = [UniqueKey(("id",)), END]
    streams = [Stream("a", Unbounded(), 0, constraints=promises), Stream("b", Unbounded(), 0)]
    arrivals = [
        arrival(0, "a", 10, "x", v=1),
        arrival(0, "b", 10, "y"),
        arrival(0, "a", 10, "end of 7", v=7, end=True),
        arrival(1, "a", None, "x", v=7, end=False),
        arrival(1, "a", None, "no time: rejected, punctuation or not", v=7, end=True),
        arrival(1, "a", 9, "x", v=7, end=True),
        arrival(1, "a", 9, "x", v=7),
        arrival(1, "a", 10, "x", v=7),
        arrival(1, "a", 10, "new", v=7),
        arrival(1, "a", 10, "z", v=2),
    ]
    outcome = join(streams, arrivals, always)
    assert outcome.rejected == arrivals[3:5]
    assert outcome.punctuations == [arrivals[2], arrivals[5]]
    assert outcome.late == [arrivals[6]]
    assert outcome.denied == [(arrivals[8], promises[1]), (arrivals[7], promises[0])]
    assert outcome.denials[0]["a"].reasons({"id": "x", "v": 7}) == promises
    assert ids(outcome) == {"xy", "zy"}


def test_rows_mark_whatever_their_verdict() -> None:
    promises: list[OracleConstraint] = [UniqueKey(("v",)), Order("n")]
    streams = [Stream("a", Unbounded(), 0, 100, promises), Stream("b", Unbounded(), 0)]
    arrivals = [
        arrival(0, "a", 10, "x", v=0, n=0),
        arrival(0, "b", 10, "y"),
        arrival(1, "a", 9, "late", v=1, n=1),
        arrival(1, "a", None, "no time", v=2, n=None),
        arrival(1, "a", 9999, "too far ahead", v=3, n=2),
        arrival(2, "a", 10, "as the late one", v=1, n=5),
        arrival(2, "a", 10, "as the one without time", v=2, n=5),
        arrival(2, "a", 10, "as the one too far ahead", v=3, n=5),
        arrival(2, "a", 10, "below the one too far ahead", v=4, n=1),
        arrival(3, "a", 10, "as a denied one", v=4, n=5),
        arrival(3, "a", 10, "below a denied one", v=5, n=4),
        arrival(3, "a", 10, "z", v=6, n=5),
    ]
    outcome = join(streams, arrivals, always, clock=dict.fromkeys(range(4), 0))
    assert names(outcome.late) == ["late"]
    assert names(outcome.rejected) == ["no time", "too far ahead"]
    assert sorted(denied(outcome)) == sorted(names(arrivals[5:11]))
    assert ids(outcome) == {"xy", "zy"}


def test_late_and_rejected_rows_extend_a_run() -> None:
    streams = [Stream("a", Unbounded(), 0, constraints=[Clusters("v")]), Stream("b", Unbounded(), 0)]
    arrivals = [arrival(0, "a", 10, "x", v="x"), arrival(0, "b", 10, "y")]
    arrivals += [arrival(b, "a", 10, f"other {b}", v="other") for b in (1, 2, 3)]
    arrivals += [arrival(1, "a", 9, "late", v="x"), arrival(2, "a", None, "no time", v="x")]
    arrivals += [arrival(3, "a", 10, "accepted", v="x")]
    outcome = join(streams, arrivals, always)
    assert (names(outcome.late), names(outcome.rejected), denied(outcome)) == (["late"], ["no time"], [])


def test_denied_rows_move_their_stream_watermark() -> None:
    streams = [Stream("a", Unbounded(), 0, constraints=[UniqueKey(("v",))]), Stream("b", Unbounded(), 0)]
    arrivals = [
        arrival(0, "a", 10, "x", v=1),
        arrival(0, "b", 50, "y"),
        arrival(1, "a", 20, "denied", v=1),
        arrival(2, "a", 19, "late", v=2),
    ]
    outcome = join(streams, arrivals, always)
    assert outcome.watermarks == {0: 10, 1: 20, 2: 20}
    assert (denied(outcome), names(outcome.late)) == (["denied"], ["late"])


def test_count_window_counts_accepted_rows_only_also_those_that_match_nothing() -> None:
    rows = [*values([1], [1], [2]), arrival(3, "b", 1, "b")]
    streams = [Stream("a", Count(2), 1000, constraints=[UniqueKey(("v",))]), Stream("b", Unbounded(), 1000)]
    assert denied(join(streams, rows, always)) == ["10"]
    assert ids(join(streams, rows, always)) == {"00b", "20b"}
    unmatched = [*rows, *values([], [], [], [], [9]), arrival(5, "b", 1, "c")]
    assert ids(join(streams, unmatched, lambda r: bool(r["a"]["v"] != 9))) == {"00b", "20b", "20c"}


def test_constraints_are_each_streams_own() -> None:
    rows = [*values([1], [2]), arrival(0, "b", 1, "b", v=1), arrival(1, "b", 1, "c", v=1)]
    outcome = join_alone(UniqueKey(("v",)), arrivals=rows)
    assert not outcome.denied
    assert [{"v": 2} in outcome.denials[batch]["a"] for batch in (0, 1)] == [False, True]
    assert {"v": 1} not in outcome.denials[1]["b"]


BIDS = Stream("bids", Unbounded(), 0, constraints=[ParentKey("item", "items", "id")])


def orphans(promise: OracleConstraint, *arrivals: Arrival) -> list[tuple[int, str]]:
    outcome = join([Stream("items", Unbounded(), 0, constraints=[promise]), BIDS], arrivals, always)
    return [(batch, orphan.row["id"]) for batch, orphan in outcome.orphans]


def test_orphan_is_known_when_its_parent_is_denied_and_was_never_accepted() -> None:
    assert orphans(
        PunctuationFlag("end", {"id": "id"}),
        arrival(0, "bids", 1, "of 7", item="7"),
        arrival(0, "bids", 1, "of 8", item="8"),
        arrival(0, "bids", 1, "of none", item=None),
        arrival(1, "items", 1, "8"),
        arrival(2, "items", 1, "7", end=True),
        arrival(2, "items", 1, "8", end=True),
        arrival(3, "bids", 1, "of 7, afterwards", item="7"),
        arrival(3, "bids", 1, "of 8, afterwards", item="8"),
        arrival(3, "bids", 1, "of 9, which may come", item="9"),
    ) == [(2, "of 7"), (3, "of 7, afterwards")]


def test_parent_of_the_punctuations_own_batch_is_accepted() -> None:
    parent = arrival(0, "items", 1, "7")
    end, bid = arrival(0, "items", 1, "7", end=True), arrival(0, "bids", 1, "bid", item="7")
    assert orphans(PunctuationFlag("end", {"id": "id"}), parent, end, bid) == []
    assert orphans(PunctuationFlag("end", {"id": "id"}), end, bid) == [(0, "bid")]


def test_orphans_are_decided_by_marks_also_of_parents_never_accepted() -> None:
    accepted, rejected = arrival(0, "items", 1, "7"), arrival(0, "items", None, "7")
    bids = [arrival(0, "bids", 1, "bid", item="7")] * 2
    assert orphans(UniqueKey(("id",)), accepted, *bids) == []
    assert orphans(UniqueKey(("id",)), rejected, *bids) == [(0, "bid"), (0, "bid")]
    assert orphans(Order("id"), arrival(1, "items", 1, "8"), *bids) == [(1, "bid"), (1, "bid")]
    assert orphans(Clusters("id"), rejected, arrival(3, "items", 1, "8"), *bids) == [(3, "bid"), (3, "bid")]


@pytest.mark.parametrize(
    "promise", [UniqueKey(("id", "v")), Order("v"), PunctuationFlag("end", {"id": "id", "v": "v"})]
)
def test_only_promises_about_the_parents_column_alone_make_orphans(promise: OracleConstraint) -> None:
    rejected, end = arrival(0, "items", None, "7", v=1), arrival(0, "items", 1, "7", v=1, end=True)
    assert orphans(promise, rejected, end, arrival(0, "bids", 1, "bid", item="7")) == []


def test_late_and_denied_rows_are_no_orphans() -> None:
    child = Stream("bids", Unbounded(), 0, constraints=[ParentKey("item", "items", "id"), UniqueKey(("id",))])
    parent = Stream("items", Unbounded(), 0, constraints=[PunctuationFlag("end", {"id": "id"})])
    arrivals = [
        arrival(0, "items", 10, "8"),
        arrival(0, "items", 10, "7", end=True),
        arrival(0, "bids", 10, "x", item="8"),
        arrival(1, "bids", 10, "x", item="7"),
        arrival(1, "bids", 9, "late", item="7"),
    ]
    outcome = join([parent, child], arrivals, always)
    assert (names(outcome.late), denied(outcome), outcome.orphans) == (["late"], ["x"], [])


@pytest.mark.parametrize("seed", range(20))
def test_join_is_that_of_the_rows_not_denied(seed: int) -> None:
    rng = np.random.default_rng(seed)
    windows: list[Window] = [Count(3), Sliding(9)]
    every: list[OracleConstraint] = [UniqueKey(("v",)), Order("v", slack=2), Order("v", True, 2), Clusters("v", 1), END]
    streams = [Stream(n, windows[rng.integers(2)], 1000, constraints=[every[rng.integers(5)]]) for n in "ab"]
    rows = [
        arrival(int(batch), name, int(rng.integers(30)), f"{name}{i}", v=int(rng.integers(9)), end=bool(i % 7 == 0))
        for i, (batch, name) in enumerate(zip(rng.integers(6, size=40), "ab" * 20, strict=True))
    ]
    outcome = join(streams, rows, always)
    unpromised = [Stream(stream.name, stream.window, 1000) for stream in streams]
    gone = {*denied(outcome), *names(outcome.punctuations)}
    kept = [row for row in rows if row.row["id"] not in gone]
    assert outcome.results == join(unpromised, kept, always).results
    data = [row for row in rows if row not in outcome.punctuations and row.batch]
    assert {r.row["id"] for r in data if r.row in outcome.denials[r.batch - 1][r.stream]} == {*denied(outcome)}
