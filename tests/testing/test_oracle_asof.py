"""Hand-worked examples of as-of joins, so that the oracle itself can be trusted."""

from typing import Any

import pytest

from watersmeet.testing.oracle import Arrival, AsOf, Hopping, How, Sliding, Stream, Unbounded, Window, join

INNER, LEFT = AsOf(), AsOf(left=True)


def row(stream: str, ts: int, key: str, symbol: str = "x", batch: int = 0) -> Arrival:
    return Arrival(batch, stream, ts, key, {"id": key, "symbol": symbol})


TRADE = row("trades", 10, "t")
END = [row(name, 100, f"end of {name}", name, 9) for name in ("trades", "quotes")]


def matches(how: How, *rows: Arrival, trades: Window | None = None, quotes: Window | None = None) -> set[Any]:
    """Return the trades that are out, each with its quote, and when."""
    streams = [Stream("trades", trades or Unbounded()), Stream("quotes", quotes or Unbounded())]

    def same_symbol(rows: Any) -> bool:
        return bool(rows["trades"]["symbol"] == rows["quotes"]["symbol"])

    found = join(streams, rows, lambda rows: True, how={"quotes": how}, on={"quotes": same_symbol}).results
    assert set(found.values()) <= {1}
    return {(*ids, time) for ids, time in found}


def test_the_newest_quote_no_later_than_the_trade_is_its_partner() -> None:
    quotes = [row("quotes", ts, f"q{ts}") for ts in (3, 7, 11)]
    assert matches(INNER, TRADE, *quotes, *END) == {("t", "q7", 10)}
    assert matches(INNER, TRADE, row("quotes", 10, "same"), *quotes, *END) == {("t", "same", 10)}
    assert matches(INNER, TRADE, row("quotes", 9, "other", "y"), *quotes, *END) == {("t", "q7", 10)}


def test_without_a_quote_only_a_left_join_has_a_result() -> None:
    later = row("quotes", 11, "q11")
    assert matches(INNER, TRADE, later, *END) == set()
    assert matches(LEFT, TRADE, later, *END) == {("t", None, 10)}


@pytest.mark.parametrize("tolerance", [2, 3])
def test_a_quote_may_be_as_old_as_the_tolerance(tolerance: int) -> None:
    quote = row("quotes", 7, "q7")
    assert matches(AsOf(tolerance), TRADE, quote, *END) == ({("t", "q7", 10)} if tolerance == 3 else set())
    assert matches(AsOf(tolerance, True), TRADE, quote, *END) == {("t", "q7" if tolerance == 3 else None, 10)}
    assert matches(INNER, TRADE, quote, *END, quotes=Sliding(tolerance)) == set()


def test_of_equally_new_quotes_the_one_of_greatest_content_counts_whenever_it_came() -> None:
    assert matches(INNER, row("quotes", 7, "z"), TRADE, row("quotes", 7, "b", batch=1), *END) == {("t", "z", 10)}
    assert matches(INNER, row("quotes", 7, "b"), TRADE, row("quotes", 7, "z", batch=1), *END) == {("t", "z", 10)}


def test_a_trade_waits_until_the_watermark_has_passed_it() -> None:
    quote = row("quotes", 7, "q7")
    waiting = [row(name, 10, name, name, 1) for name in ("trades", "quotes")]
    certain = [row(name, 11, name, name, 1) for name in ("trades", "quotes")]
    assert matches(LEFT, TRADE, quote, *waiting) == set()
    assert matches(LEFT, TRADE, quote, *certain) == {("t", "q7", 10)}
    assert matches(LEFT, TRADE, quote, *certain, trades=Sliding(50)) == {("t", "q7", 10)}  # its window has no say
    assert matches(LEFT, TRADE, quote, *END, trades=Hopping(5, 20)) == set()  # in a gap it joins nothing


def test_of_several_required_streams_the_latest_member_sets_the_time() -> None:
    streams = [Stream("trades", Sliding(6)), Stream("orders", Sliding(6)), Stream("quotes", Unbounded())]
    rows = [TRADE, row("orders", 12, "o"), row("quotes", 11, "q"), row("quotes", 13, "late"), *END]
    rows += [row("orders", 100, "end of orders", batch=9)]
    found = join(streams, rows, lambda rows: True, how={"quotes": INNER}).results
    assert (("t", "o", "q"), 12) in found and not any("late" in ids for ids, _ in found if "t" in ids)


def test_beside_another_optional_stream_results_come_when_the_combination_is_closed() -> None:
    streams = [Stream("trades", Sliding(20)), Stream("quotes", Unbounded()), Stream("news", Sliding(5))]
    rows = [TRADE, row("quotes", 7, "q7"), *END, row("news", 12, "n")]
    how: dict[str, How] = {"quotes": INNER, "news": "left"}
    assert not join(streams, rows, lambda rows: True, how=how).results
    closed = join(streams, [*rows, row("news", 100, "end", batch=9)], lambda rows: True, how=how).results
    assert dict(closed) == {(("t", "q7", "n"), 12): 1}
