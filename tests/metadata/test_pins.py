"""Constants in `where` pin constrained columns: what they close, and what they must not."""

from decimal import Decimal
from pathlib import Path
from pickle import dumps, loads
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from tests.budget import search
from tests.metadata.test_denial import CONSTANTS, assert_denied_alike, run_case
from watersmeet.metadata.constraints import Constraint, FlaggedPunctuations, Key, Pattern
from watersmeet.metadata.outlook import Outlook
from watersmeet.observe.explain import explain
from watersmeet.ordering import Given
from watersmeet.placement import PSP, Central
from watersmeet.predicate.conjunct_values import value_of
from watersmeet.predicate.model import Column, Dialect, FixedColumn
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

TIME = pa.timestamp("us", "UTC")
TYPES = {
    "id": pa.int64(), "ts": TIME, "auction": pa.int64(), "kind": pa.string(), "end": pa.bool_(), "n": pa.int8(),
    "x": pa.float64(), "f": pa.float32(), "price": pa.decimal128(4, 2), "day": pa.date32(),
}  # fmt: skip
SCHEMA = pa.schema(TYPES)
AT = {name: at for at, name in enumerate(TYPES)}


def ends(*names: str) -> FlaggedPunctuations:
    return FlaggedPunctuations(AT["end"], tuple(Pattern(AT[name], AT[name], AT[name]) for name in names))


def query_of(where: str, *bids: Constraint, auctions: tuple[Constraint, ...] = ()) -> Query:
    streams = tuple(
        StreamSpec(name, SCHEMA, AT["ts"], Window(), 1000, constraints=promises)
        for name, promises in (("a", auctions), ("b", bids))
    )
    return Query(streams, parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect()), where)


def step(run: Run, *rows: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    number = 100 * (run.batch + 1)
    blank = dict.fromkeys(SCHEMA.names)
    made = [(at, {**blank, "id": number + n, "ts": number + n, **row}) for n, (at, row) in enumerate(rows)]
    run.step(Central(), made)
    return dict(run.progress[-1])


def auctions(*ids: int) -> list[tuple[int, dict[str, Any]]]:
    return [(0, {"auction": each, "kind": "house"}) for each in ids]


def ended(**values: Any) -> tuple[int, dict[str, Any]]:
    return 1, {"end": True, **values}


@pytest.mark.parametrize("constant", ["b.kind = 'bid'", "'bid' = b.kind", "(b.kind = 'bid')"])
def test_a_pattern_closes_where_a_constant_pins_the_rest(tmp_path: Path, constant: str) -> None:
    run = Run(query_of(f"a.auction = b.auction AND {constant}", ends("auction", "kind")), Store(str(tmp_path)))
    step(run, *auctions(78, 79))
    step(run, ended(auction=79, kind="ask"))  # [!] says nothing of bids
    assert step(run)["distinctRows"] == 2
    step(run, ended(auction=79, kind="bid"))
    assert step(run)["distinctRows"] == 1
    step(run, *((1, {"auction": each, "kind": "bid"}) for each in (78, 79)))
    assert (sum(run.results.values()), run.progress[-1]["deniedRows"]) == (1, 1)


def test_without_the_constant_it_closes_nothing(tmp_path: Path) -> None:
    run = Run(query_of("a.auction = b.auction", ends("auction", "kind")), Store(str(tmp_path)))
    step(run, *auctions(79))
    step(run, ended(auction=79, kind="bid"))
    assert step(run)["distinctRows"] == 1


def test_a_key_of_which_a_constant_pins_a_part(tmp_path: Path) -> None:
    run = Run(query_of("a.auction = b.auction AND b.kind = 'bid'", Key((2, 3))), Store(str(tmp_path)))
    step(run, *auctions(78, 79), (1, {"auction": 78, "kind": "ask"}), (1, {"auction": 79, "kind": "bid"}))
    assert step(run, *auctions(79))["purgedRows"] > 0
    assert step(run)["distinctRows"] - len(run.results) == 1  # the auction 78, and the bid, which may meet others


def test_constants_alone_close_a_stream_for_all(tmp_path: Path) -> None:
    run = Run(query_of("a.auction < b.auction AND b.kind = 'bid'", ends("kind")), Store(str(tmp_path)))
    step(run, *auctions(78, 79))
    step(run, ended(kind="ask"))
    assert step(run)["distinctRows"] == 2
    step(run, ended(kind="bid"))
    assert step(run)["distinctRows"] == 0


def test_a_constant_of_an_equal_column_is_one_of_its_own(tmp_path: Path) -> None:
    where = "a.auction = b.auction AND a.kind = b.kind AND a.kind = 'bid'"
    run = Run(query_of(where, ends("kind")), Store(str(tmp_path)))
    step(run, (0, {"auction": 1, "kind": "bid"}), (0, {"auction": 2, "kind": "bid"}))
    step(run, ended(kind="bid"))
    assert step(run)["distinctRows"] == 0
    told = Outlook(run.query).describe_closing(1)
    assert "`a.kind = b.kind AND a.kind = 'bid'` and punctuations of b.kind" in told


@pytest.mark.parametrize(
    ("condition", "column", "value"),
    [
        ("b.kind = 'bid'", "kind", "bid"),
        ("b.kind = ''", "kind", ""),
        ("b.auction = 5", "auction", 5),
        ("b.auction = -5", "auction", -5),
        ("9007199254740993 = b.auction", "auction", 2**53 + 1),
        ("b.n = 127", "n", 127),
        ("b.end = true", "end", True),
        ("b.x = 1e0", "x", 1.0),
        ("b.x = -0e0", "x", -0.0),
        ("b.price = 12.50", "price", Decimal("12.50")),
    ],
)
def test_what_fixes_a_column(condition: str, column: str, value: Any) -> None:
    (fixed,) = query_of(f"a.auction = b.auction AND {condition}").fixed_columns
    assert fixed == FixedColumn(Column(1, AT[column]), value, condition)
    made = value_of(fixed, TYPES[column])
    assert (made.as_py(), made.type) == (value, TYPES[column])
    assert loads(dumps(fixed)) == fixed


@pytest.mark.parametrize(
    "condition",
    [
        "b.n = 128",  # no value of its type
        "b.auction = 5.0",
        "b.auction = 5e0",
        "b.auction = '5'",
        "b.price = 12.5",  # a decimal of another scale
        "b.price = 12",
        "b.x = 1.0",
        "b.f = 1e0",
        "b.x = CAST(9007199254740993 AS DOUBLE)",
        "CAST(b.auction AS INT) = 5",
        "b.auction + 1 = 5",
        "b.auction <=> 5",
        "b.auction IN (5)",
        "b.auction >= 5",
        "NOT b.auction = 5",
        "b.auction = 5 OR b.kind = 'bid'",
        "b.kind = NULL",
        "b.kind LIKE 'bid'",
        "upper(b.kind) = 'BID'",
    ],
)
def test_what_fixes_nothing(condition: str) -> None:
    assert query_of(f"a.auction = b.auction AND ({condition})").fixed_columns == ()


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.date32(), 1, "1970-01-02"),
        (TIME, 1, "1970-01-01 00:00:00.000001+00:00"),
        (pa.timestamp("us"), -1, "1969-12-31 23:59:59.999999"),
        (pa.large_string(), "p", "p"),
        (pa.float32(), 0.5, "0.5"),
    ],
)
def test_days_and_microseconds_are_as_spark_counts_them(kind: pa.DataType, value: Any, wanted: str) -> None:
    made = value_of(FixedColumn(Column(0, 0), value, ""), kind)
    assert (str(made.as_py()), made.type) == (wanted, kind)


def test_people_are_told() -> None:
    query = query_of("a.auction = b.auction AND b.kind = 'bid'", ends("auction", "kind"), auctions=(Key((2,)),))
    told = explain(query, PSP(1), Given())
    wanted = "`a.auction = b.auction` and `b.kind = 'bid'` and punctuations of b.auction, b.kind"
    assert f"    closed by {wanted}\n" in told and "kept for ever" not in told
    assert list(Outlook(query).warn()) == []


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("b.kind <> 'bid'", "b.kind and b.n"),
        ("b.kind = 'bid'", "b.n"),
        ("b.n = 5", "b.kind"),
        ("b.n = 500", "b.kind and b.n"),
    ],
)
def test_people_are_told_what_is_not_pinned(condition: str, named: str) -> None:
    query = query_of(f"a.auction = b.auction AND {condition}", ends("auction", "kind", "n"), auctions=(Key((2,)),))
    (_, found) = Outlook(query).warn()
    kinds = " and ".join({"b.kind": "string", "b.n": "tinyint"}[name] for name in named.split(" and "))
    assert (
        f"equates {named} with no column of another stream of the same type ({kinds}), and with no constant." in found
    )


TEXTS = ("key of two", "ends of two", "range and text")
PINNED = {
    "a.k = b.k AND b.t = 'p'": ("b", TEXTS),
    "'pq' = a.t AND a.k = b.k": ("a", TEXTS),
    "a.k = b.k AND b.k = 2 AND a.t = b.t": ("a", (*TEXTS, "ends")),
    "a.x = 0e0 AND b.t = 'p'": ("a", ("ends of number",)),
    "a.k = b.k AND b.x = 1e0": ("b", ("key of number",)),
}
"""For each condition the stream of which it pins something, and promises that it helps to close."""


@st.composite
def pinned(draw: st.DrawFn) -> dict[str, Any]:
    """Joins of two streams with so few values that most rows match some, and most promises close some."""
    where = draw(st.sampled_from(sorted(CONSTANTS)))
    stream, promises = PINNED[where]
    columns = {
        "k": st.sampled_from([2, 2, 2, 1]),
        "x": st.sampled_from([0.0, -0.0, 1.0]),
        "t": st.sampled_from(["p", "pq"]),
        "end": st.sampled_from([None, None, True]),
        "low": st.just(1),
        "high": st.sampled_from([1, 2]),
    }
    row = st.tuples(st.sampled_from("ab"), st.fixed_dictionaries({"ts": st.just(0), **columns}))
    batches = draw(st.lists(st.lists(row, min_size=1, max_size=3), min_size=4, max_size=8))
    return {
        "names": "ab",
        "promises": {"a": [], "b": [], stream: [draw(st.sampled_from(promises))]},
        "where": [where, ""],
        "batches": batches,
        "delays": [10, 10],
        "windows": [None, None],
        "strategies": [Central()] * len(batches),
        "exchanges": ["local"] * len(batches),
        "foreign": False,
        "extremes": {},
    }


@pytest.mark.long
@search(40)
@given(pinned())
def test_constants_under_promises_true_and_false(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted, _ = run_case(case, folder)
    assert run.results == wanted.results
    assert_denied_alike(run, wanted)
