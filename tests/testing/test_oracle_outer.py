"""Hand-worked examples of left, semi and anti joins, so that the oracle itself can be trusted."""

from collections.abc import Mapping
from typing import Any

from watersmeet.testing.oracle import Arrival, Hopping, How, Sliding, Stream, Unbounded, Window, join

Rows = dict[str, Mapping[str, Any]]
ORDER, LATE_ORDER = Arrival(0, "a", 0, "a1", {"id": "a1", "k": 1}), Arrival(0, "a", 5, "a2", {"id": "a2", "k": 2})
TEN = Sliding(10)
PAYMENT = Arrival(0, "b", 3, "b1", {"id": "b1", "k": 1})


def same_key(rows: Rows) -> bool:
    return bool(rows["a"]["k"] == rows["b"]["k"])


def pair(how: How, *arrivals: Arrival, a: Window = TEN, b: Window = TEN, delay: int = 0) -> set[Any]:
    """Return what is emitted of a join in which b is optional, as text and time."""
    streams = [Stream("a", a, delay), Stream("b", b, delay)]
    found = join(streams, arrivals, lambda rows: True, how={"b": how}, on={"b": same_key}).results
    assert set(found.values()) <= {1}
    return {("".join(name or "-" for name in names), time) for names, time in found}


def until(ts: int) -> list[Arrival]:
    """Return tuples that move the watermark to `ts`, and match nothing."""
    return [Arrival(1, name, ts, name, {"id": name, "k": name}) for name in "ab"]


def test_a_combination_without_a_partner_is_emitted_once_its_window_is_over() -> None:
    assert pair("anti", ORDER, *until(9)) == set()
    assert pair("anti", ORDER, *until(10)) == {("a1-", 0)}
    assert pair("left", ORDER, *until(10)) == {("a1-", 0)}
    assert pair("semi", ORDER, *until(10)) == set()


def test_a_partner_shows_at_once_in_left_and_semi_joins() -> None:
    assert pair("left", ORDER, LATE_ORDER, PAYMENT) == {("a1b1", 3)}
    assert pair("semi", ORDER, LATE_ORDER, PAYMENT) == {("a1-", 0)}
    assert pair("anti", ORDER, LATE_ORDER, PAYMENT, *until(100)) == {("a2-", 5)}
    assert pair("left", ORDER, LATE_ORDER, PAYMENT, *until(100)) == {("a1b1", 3), ("a2-", 5)}


def test_a_partner_before_the_combination_counts_if_its_own_window_still_holds_it() -> None:
    early = Arrival(0, "b", 0, "b1", {"id": "b1", "k": 2})
    assert pair("anti", early, LATE_ORDER, *until(100), b=Sliding(6)) == set()
    assert pair("anti", early, LATE_ORDER, *until(100), b=Sliding(5)) == {("a2-", 5)}
    assert pair("anti", early, LATE_ORDER, *until(100), b=Unbounded()) == set()


def test_hopping_windows_close_together() -> None:
    assert pair("anti", LATE_ORDER, *until(20), a=Hopping(20, 20)) == set()
    assert pair("anti", LATE_ORDER, *until(21), a=Hopping(20, 20)) == {("a2-", 5)}
    assert pair("anti", LATE_ORDER, *until(21), a=Hopping(4, 20)) == set()  # in a gap: it is no combination at all


def test_without_a_window_nothing_is_closed_before_the_end() -> None:
    assert pair("anti", ORDER, *until(10**9), a=Unbounded()) == set()
    streams = [Stream("a", Unbounded()), Stream("b", Unbounded())]
    ended = join(streams, [ORDER], lambda rows: True, how={"b": "anti"}, ended=True)
    assert dict(ended.results) == {(("a1", None), 0): 1}


def test_each_optional_stream_is_matched_with_the_required_ones_alone() -> None:
    streams = [Stream(name, Sliding(10)) for name in "abc"]
    rows = [ORDER, PAYMENT, Arrival(0, "c", 9, "c1", {"id": "c1"}), Arrival(0, "c", 20, "c2", {"id": "c2"})]
    rows += [Arrival(1, name, 50, name, {"id": name, "k": name}) for name in "abc"]
    both = join(streams, rows, lambda rows: True, how={"b": "left", "c": "left"}, on={"b": same_key})
    assert dict(both.results) == {(("a1", "b1", "c1"), 9): 1}
    mixed = join(streams, rows, lambda rows: True, how={"b": "semi", "c": "anti"}, on={"b": same_key})
    assert dict(mixed.results) == {}
    waiting = join(streams, rows[:3], lambda rows: True, how={"b": "left", "c": "left"}, on={"b": same_key})
    assert dict(waiting.results) == {}  # with several, results come when the combination is closed


def test_a_combination_of_two_required_streams_is_closed_by_the_first_window_to_end() -> None:
    streams = [Stream("a", Sliding(10)), Stream("b", Sliding(100)), Stream("c", Sliding(10))]
    rows = [ORDER, Arrival(0, "b", 4, "b1", {"id": "b1"}), *until(10), Arrival(1, "c", 10, "c", {"id": "c"})]
    found = join(streams, rows, lambda rows: True, how={"c": "anti"}, on={"c": lambda rows: False})
    assert (("a1", "b1", None), 4) in found.results
