"""Bands over columns of every type, closed by ranges, keys and runs, true and false: the oracle's results."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from tests.batch.extremes import EXTREMES
from tests.batch.test_engine import strategies_of
from tests.budget import search
from watersmeet.errors import PredicateError
from watersmeet.limits import limited
from watersmeet.metadata import constraints as metadata
from watersmeet.placement import Central, Hash
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

NAN, INF = float("nan"), float("inf")
V, LO, HI, END = range(2, 6)


@dataclass(frozen=True)
class Kind:
    """A type: some of its values in rising order, and a band of its own with what it means."""

    type: pa.DataType
    values: list[Any]
    band: str = ""
    near: Callable[[Any, Any], bool] = lambda one, two: False


def place(value: Any) -> Any:
    """Where a value stands, as Spark orders them."""
    return (value != value, value) if isinstance(value, float) else value


def within(size: Any) -> Callable[[Any, Any], bool]:
    return lambda one, two: bool(one == one and two == two and abs(one - two) <= size)


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KINDS = {
    "int8": Kind(pa.int8(), [-128, -127, -1, 0, 1, 126, 127], "abs(a.v - b.v) <= 1", lambda x, y: abs(x - y) <= 1),
    "int32": Kind(pa.int32(), [*range(7)], "b.v BETWEEN a.v - 2 AND a.v + 1", lambda x, y: x - 2 <= y <= x + 1),
    "int64": Kind(pa.int64(), [2**60 + n for n in range(6)], "abs(a.v - b.v) < 2", within(1)),
    "float32": Kind(pa.float32(), [-INF, -0.5, 0.0, 0.25, 1.0, INF, NAN], "abs(a.v - b.v) <= 1", within(1)),
    "float64": Kind(pa.float64(), [-INF, -0.0, 0.1, 0.2, 0.3, 1e300, NAN], "abs(a.v - b.v) <= 0.1", within(0.1)),
    "date": Kind(pa.date32(), [date(2026, 1, day) for day in range(1, 7)]),
    "timestamp": Kind(
        pa.timestamp("us", "UTC"),
        [NOON + timedelta(seconds=n) for n in range(6)],
        "b.v BETWEEN a.v - INTERVAL 1 SECOND AND a.v + INTERVAL 2 SECONDS",
        lambda x, y: x - timedelta(seconds=1) <= y <= x + timedelta(seconds=2),
    ),
    "decimal": Kind(
        pa.decimal128(12, 2), [Decimal(n) / 4 for n in range(-2, 4)], "abs(a.v - b.v) <= 0.25", within(0.25)
    ),
    "string": Kind(pa.string(), ["", "a", "a\0", "ab", "b", "ß"]),
    "boolean": Kind(pa.bool_(), [False, True]),
}
FORMS: dict[str, Callable[[Any, Any], bool]] = {
    "b.v BETWEEN a.lo AND a.hi": lambda a, b: place(a["lo"]) <= place(b["v"]) <= place(a["hi"]),
    "b.v > a.lo AND a.hi > b.v": lambda a, b: place(a["lo"]) < place(b["v"]) < place(a["hi"]),
    "a.lo <= b.v AND b.v < a.hi": lambda a, b: place(a["lo"]) <= place(b["v"]) < place(a["hi"]),
    "b.v <= a.v": lambda a, b: place(b["v"]) <= place(a["v"]),
    "b.v > a.v": lambda a, b: place(b["v"]) > place(a["v"]),
}
RANGE = metadata.Pattern(V, LO, HI)
CONSTRAINTS: dict[str, tuple[metadata.Constraint, oracle.OracleConstraint]] = {
    "ranges": (
        metadata.FlaggedPunctuations(END, (RANGE,)),
        oracle.PunctuationFlag("end", {"v": ("lo", "hi")}, "batch"),
    ),
    "ranges by time": (
        metadata.FlaggedPunctuations(END, (RANGE,), "watermark"),
        oracle.PunctuationFlag("end", {"v": ("lo", "hi")}, "watermark"),
    ),
    "key": (metadata.Key((V,)), oracle.UniqueKey(("v",))),
    "runs": (metadata.Clustering(V), oracle.Clusters("v")),
}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    kind = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    forms = [*FORMS, *([kind.band] if kind.band else [])]
    value = st.sampled_from([*kind.values, *kind.values, None])
    ends = st.tuples(value, value).map(lambda pair: sorted(pair, key=place) if None not in pair else list(pair))
    row = st.tuples(st.sampled_from("aaabb"), st.integers(0, 9), value, ends, st.sampled_from([None, False, True]))
    batches = draw(st.lists(st.lists(row, max_size=8), min_size=3, max_size=6))
    names = {"a": st.lists(st.sampled_from(sorted(CONSTRAINTS)), max_size=1)}
    names |= {"b": st.lists(st.sampled_from(sorted(CONSTRAINTS)), min_size=1, max_size=2, unique=True)}
    return {
        "kind": kind,
        "where": draw(st.sampled_from(forms)),
        "promises": {name: draw(found) for name, found in names.items()},
        "batches": batches,
        "strategies": [draw(strategies_of) for _ in batches],
        "limits": draw(st.sampled_from([{}, {"merged_chunks": 2, "tier_rows": 1}, *EXTREMES])),
        "exchanges": [draw(st.sampled_from(["local", "shuffle"])) for _ in batches],
    }


@pytest.mark.long
@search(40)
@given(case=cases())
def test_bands_of_every_type_are_the_oracles(case: dict[str, Any]) -> None:
    kind, where = case["kind"], case["where"]
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("ts", pa.timestamp("us", "UTC")),
            *((name, kind.type) for name in ("v", "lo", "hi")),
            ("end", pa.bool_()),
        ]
    )
    streams = tuple(
        StreamSpec(name, schema, 1, Window(), 3, constraints=tuple(CONSTRAINTS[p][0] for p in case["promises"][name]))
        for name in "ab"
    )
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect())
    arrivals = [
        oracle.Arrival(batch, name, row["ts"], content_key(row), row)
        for batch, rows in enumerate(case["batches"])
        for at, (name, ts, v, (lo, hi), end) in enumerate(rows)
        for row in [{"id": 100 * batch + at, "ts": 5 * batch + ts, "v": v, "lo": lo, "hi": hi, "end": end}]
    ]

    def holds(r: dict[str, Any]) -> bool:
        a, b = r["a"], r["b"]
        if where == kind.band:
            return None not in (a["v"], b["v"]) and kind.near(a["v"], b["v"])
        used = [a[name] for name in ("lo", "hi", "v") if f"a.{name}" in where]
        return None not in [*used, b["v"]] and FORMS[where](a, b)

    theirs = [
        oracle.Stream(name, oracle.Unbounded(), 3, constraints=[CONSTRAINTS[p][1] for p in case["promises"][name]])
        for name in "ab"
    ]
    wanted = oracle.join(theirs, arrivals, holds)
    with TemporaryDirectory() as folder, limited(**case["limits"]):
        run = Run(Query(streams, conjuncts, where), Store(folder))
        for batch, strategy in enumerate(case["strategies"]):
            rows = [("ab".index(arrival.stream), arrival.row) for arrival in arrivals if arrival.batch == batch]
            try:
                run.step(Central() if isinstance(strategy, Hash) else strategy, rows, case["exchanges"][batch])
            except PredicateError as error:  # as Spark would: -128 - 1 is no tinyint
                assert where == kind.band and "Overflow" in str(error)
                return
        run.step(Central(), [])
    assert run.results == wanted.results
    assert sum(p["deniedRows"] for p in run.progress) == len(wanted.denied)
