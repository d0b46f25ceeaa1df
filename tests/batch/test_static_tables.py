"""Tables: rows that are there before all others, and never bring about a result, whoever keeps them."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.test_engine import assert_alike, band_case, cases, prepared
from tests.budget import search
from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.errors import DefinitionError
from watersmeet.limits import limited
from watersmeet.placement import ATR, CTR, DSJ, PSP, Central
from watersmeet.query.query import Query
from watersmeet.query.windows import BEFORE_ALL
from watersmeet.testing import oracle
from watersmeet.testing.run import Run


def with_tables(case: dict[str, Any], tables: set[str]) -> dict[str, Any]:
    """Return a case in which some streams are tables, all of whose rows come in the first batch."""
    streams = [replace(s, table=True, window=oracle.Unbounded()) if s.name in tables else s for s in case["streams"]]
    moved = [(n, BEFORE_ALL, x, k) for rows in case["batches"] for n, _, x, k in rows if n in tables]
    others = [[row for row in rows if row[0] not in tables] for rows in case["batches"]]
    return case | {"streams": streams, "batches": [moved + others[0], *others[1:]]}


def run_with_tables(case: dict[str, Any], folder: str) -> tuple[Run, oracle.Outcome]:
    run, batches, wanted = prepared(case, folder)
    given = {s.name: s for s in case["streams"]}
    specs = [replace(s, table=given[s.name].table, refreshed=given[s.name].refreshed) for s in run.query.streams]
    run.query = replace(run.query, streams=tuple(specs))
    for at, rows in enumerate(batches):
        with limited(**case.get("limits", [{}] * len(batches))[at]):
            run.step(case["strategies"][at], rows, case["exchanges"][at], case["orderings"][at] or GIVEN_ORDER)
    return run, wanted


@st.composite
def cases_with_tables(draw: st.DrawFn) -> dict[str, Any]:
    case = draw(cases())
    names = [stream.name for stream in case["streams"]]
    return with_tables(case, set(draw(st.lists(st.sampled_from(names), min_size=1, max_size=len(names) - 1))))


def with_refreshed(case: dict[str, Any], tables: set[str]) -> dict[str, Any]:
    """Return a case in which some streams are tables whose rows of each batch are all that they have then."""
    kind: dict[str, Any] = {"table": True, "refreshed": True, "window": oracle.Unbounded()}
    streams = [replace(s, **kind) if s.name in tables else s for s in case["streams"]]
    batches = [[(n, BEFORE_ALL if n in tables else ts, x, k) for n, ts, x, k in rows] for rows in case["batches"]]
    return case | {"streams": streams, "batches": batches}


@st.composite
def cases_with_refreshed(draw: st.DrawFn) -> dict[str, Any]:
    """Of the streams of a case, some are read for each batch; of two or more others, one may be read once."""
    case = draw(cases())
    names = draw(st.permutations([stream.name for stream in case["streams"]]))
    cut = draw(st.integers(1, len(names) - 1))
    once = set(names[cut : cut + 1]) if cut < len(names) - 1 and draw(st.booleans()) else set()
    return with_refreshed(with_tables(case, once), set(names[:cut]))


@search(60)
@given(case=cases_with_tables())
def test_a_table_is_joined_as_the_oracle_says(case: dict[str, Any]) -> None:
    """Under every placement, order and exchange, new ones for each batch."""
    with TemporaryDirectory() as folder:
        assert_alike(*run_with_tables(case, folder))


@pytest.mark.long
@search(60)
@given(case=cases_with_refreshed())
def test_a_table_is_what_it_is_in_each_batch(case: dict[str, Any]) -> None:
    """Under every placement, order and exchange, new ones for each batch."""
    with TemporaryDirectory() as folder:
        run, wanted = run_with_tables(case, folder)
        assert_alike(run, wanted)
        read_anew = {at for at, stream in enumerate(run.query.streams) if stream.refreshed}
        assert run.state is not None and not read_anew & {chunk.stream for chunk in run.state.chunks.values()}


ROWS: list[list[tuple[str, int, float, str]]] = [
    [("b", 0, 1.0, "p"), ("b", 0, 2.0, "q"), ("a", 5, 1.0, "p")],
    [("a", 90, 2.0, "p")],
    [("a", 400, 9.0, "p")],
    [("a", 900, 3.0, "q"), ("a", 1, 1.0, "q")],
]


@pytest.mark.parametrize("strategy", [Central(), PSP(3), DSJ(3), ATR(3), CTR(3)], ids=lambda s: type(s).__name__)
def test_a_table_stays_for_good_and_holds_no_watermark(tmp_path: Path, strategy: Any) -> None:
    case = with_tables(band_case(ROWS, [10, 10], [strategy] * 4), {"b"})
    run, wanted = run_with_tables(case, str(tmp_path))
    assert_alike(run, wanted)
    # A tuple that comes 900 units later finds the table as it was; the one from long ago is late.
    assert sorted(time for _, time in run.results) == [5, 5, 90, 90, 900, 900]
    assert [p["watermark"] for p in run.progress] == [1, 86, 396, 896]
    assert [p["lateRows"] for p in run.progress] == [0, 0, 0, 1]
    assert all(p["heldBackBy"] == "a" and p["idle"] == [] for p in run.progress)
    assert run.progress[-1]["distinctRows"] >= 2


@pytest.mark.parametrize("strategy", [Central(), PSP(3), DSJ(3), ATR(3), CTR(3)], ids=lambda s: type(s).__name__)
def test_what_a_table_has_now_makes_no_results_of_what_came_before(tmp_path: Path, strategy: Any) -> None:
    rows = [
        [("a", 1, 1.0, "p"), ("b", 0, 1.0, "p")],
        [("a", 2, 2.0, "p")],  # the table is empty now
        [("b", 0, 1.0, "p"), ("b", 0, 2.0, "p")],  # it has partners for both, but neither is new
        [("a", 3, 2.0, "p"), ("b", 0, 2.0, "p"), ("b", 0, 9.0, "p")],
    ]
    run, wanted = run_with_tables(with_refreshed(band_case(rows, [10, 10], [strategy] * 4), {"b"}), str(tmp_path))
    assert_alike(run, wanted)
    assert [p["outputRows"] for p in run.progress] == [1, 0, 0, 1]
    assert [p["distinctRows"] for p in run.progress] == [1, 1, 0, 1]  # no other stream waits for tuples of this one
    assert [p["purgedRows"] for p in run.progress] == [0, 1, 1, 0]  # the table's rows don't count
    assert [p["lateRows"] for p in run.progress] == [0, 0, 0, 0]
    told = [p["warnings"] for p in run.progress]
    assert [len(said) for said in told] == [0, 1, 0, 0]
    assert told[1][0].startswith("Table 'b' had 1 rows in the batch before and has none now, so that nothing matches")


def test_rows_of_tables_alone_are_no_results(tmp_path: Path) -> None:
    rows = [[("a", 0, 1.0, "p"), ("b", 0, 1.0, "p")], [("c", 7, 1.0, "p")]]
    case = with_tables(band_case(rows, [9, 9, 9], [PSP(2)] * 2), {"a", "b"})
    run, wanted = run_with_tables(case, str(tmp_path))
    assert_alike(run, wanted)
    assert [p["outputRows"] for p in run.progress] == [0, 1]


def test_tables_need_a_stream(tmp_path: Path) -> None:
    run, _, _ = prepared(band_case([[]], [9, 9], [Central()]), str(tmp_path))
    with pytest.raises(DefinitionError, match="A join needs a stream beside its tables"):
        Query(tuple(replace(stream, table=True) for stream in run.query.streams))
