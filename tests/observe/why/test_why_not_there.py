"""Answers about spilled results, and about tables that state does not keep."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.observe.why.test_why_partners import MINUTE, messages_of, put_results, query_of, why
from tests.spilling.hand import Hand, in_stream
from watersmeet.placement import Central
from watersmeet.query.query import Query
from watersmeet.query.windows import BEFORE_ALL, Window
from watersmeet.state.chunks.chunk import HOT
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

PAIR: dict[str, Any] = {"orders": {"id": 1}, "payments": {"id": 11}}


def row(id: int, minute: int, k: str = "p") -> dict[str, Any]:
    return {"id": id, "ts": MINUTE * minute, "x": 1.0, "k": k}


@pytest.fixture
def spilled(tmp_path: Path) -> Run:
    """A join whose orders are spilled after each step: the payment of batch 1 has not probed them."""
    run = Run(query_of(), Store(str(tmp_path / "store")), spilling=Hand(in_stream(0)))
    run.step(Central(), [(0, row(1, 0)), (1, row(10, 0))])
    run.step(Central(), [(1, row(11, 1))])
    return run


def test_a_result_is_owed_until_its_last_tuple_has_probed_what_is_spilled(spilled: Run, tmp_path: Path) -> None:
    answer = why(spilled, tmp_path, **PAIR)
    assert answer.joined is None
    assert "may still be owed" in messages_of(answer)[0]
    before = why(spilled, tmp_path, orders={"id": 1}, payments={"id": 10})  # found before the order was spilled
    assert before.joined and "They have joined" in messages_of(before)[0]


def test_what_is_spilled_and_paid_owes_nothing(spilled: Run, tmp_path: Path) -> None:
    assert messages_of(why(spilled, tmp_path, orders={"id": 1}))[0].endswith("2 results. Some may still be owed.")
    assert spilled.run_round(Central(), all=True)
    assert spilled.state is not None
    assert all(chunk.unit != HOT for chunk in spilled.state.chunks.values() if chunk.stream == 0)
    put_results(spilled, tmp_path)
    paid = why(spilled, tmp_path, **PAIR)
    assert paid.joined
    assert messages_of(paid) == ["They have joined: the result of 1970-01-01 00:01:00 came in one of batches 1 to 2."]
    messages = messages_of(why(spilled, tmp_path, sink=True, **PAIR))
    assert messages == ["They have joined: the result of 1970-01-01 00:01:00 came in batch 2."]
    assert messages_of(why(spilled, tmp_path, orders={"id": 1}))[0].endswith("2 results.")


def test_that_there_is_no_result_says_nothing_while_some_are_owed(spilled: Run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    bare = replace(spilled.query, predicates=(), conjuncts=query_of("near(orders.x, payments.x)").conjuncts)
    answer = why(spilled, tmp_path, bare, sink=True, **PAIR)
    assert answer.joined is None
    assert messages_of(answer)[0] == "No result in the output holds both so far, and some may still be owed."


def refreshed() -> Query:
    query = query_of()
    table = replace(query.streams[1], window=Window(), table=True, refreshed=True)
    return replace(query, streams=(query.streams[0], table))


@pytest.fixture
def read_anew(tmp_path: Path) -> Run:
    """A join with a table that is read for each batch."""
    run, table = Run(refreshed(), Store(str(tmp_path / "store"))), row(11, 0) | {"ts": BEFORE_ALL}
    run.step(Central(), [(0, row(1, 0)), (0, row(2, 0, "q")), (1, table)])
    put_results(run, tmp_path)
    return run


NOT_KEPT = "payments is read for each batch, and none of it is kept"


def test_what_is_missing_in_a_table_that_is_read_anew_is_told_by_results(read_anew: Run, tmp_path: Path) -> None:
    untold = why(read_anew, tmp_path, orders={"id": 1})
    assert untold.joined is None
    assert messages_of(untold) == [f"Whether others complete it is unknown: {NOT_KEPT}."]
    for order, has_joined in ((1, True), (2, False)):
        assert why(read_anew, tmp_path, sink=True, orders={"id": order}).joined is has_joined
    messages = messages_of(why(read_anew, tmp_path, sink=True, orders={"id": 1}))
    assert messages == [
        "It has joined: the output holds 1 result with it, emitted in batch 0.",
        f"State alone does not show it: {NOT_KEPT}.",
    ]


def test_a_row_of_such_a_table(read_anew: Run, tmp_path: Path) -> None:
    (row,) = why(read_anew, tmp_path, payments={"id": 11}).tuples
    assert row.fate == "unknown"
    assert row.message == "is not in state. The table is read for each batch, and none of it is kept."
    assert why(read_anew, tmp_path, sink=True, **PAIR).joined
