"""Constraints of streams, true and false, on the engine against the oracle: same results, same rows denied."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from tests.batch.extremes import EXTREMES
from tests.batch.test_engine import strategies_of
from tests.budget import search
from watersmeet.limits import limited
from watersmeet.metadata import constraints as metadata
from watersmeet.placement import Central, Hash
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding, Window
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("k", pa.int64()),
        ("x", pa.float64()),
        ("t", pa.string()),
        ("end", pa.bool_()),
        ("low", pa.int64()),
        ("high", pa.int64()),
    ]
)
NAMES = SCHEMA.names
NAN = float("nan")

FOREIGN = metadata.ForeignKey(2, Column(0, 2)), oracle.ParentKey("k", "a", "k")
CONSTRAINTS: dict[str, tuple[Any, oracle.OracleConstraint]] = {
    "key": (metadata.Key((2,)), oracle.UniqueKey(("k",))),
    "key of two": (metadata.Key((2, 4)), oracle.UniqueKey(("k", "t"))),
    "key of text": (metadata.Key((4,)), oracle.UniqueKey(("t",))),
    "clustered": (metadata.Clustering(2), oracle.Clusters("k")),
    "clustered, slack": (metadata.Clustering(4, 1), oracle.Clusters("t", 1)),
    "rising": (metadata.SortOrder(3), oracle.Order("x")),
    "rising, slack": (metadata.SortOrder(2, False, 1), oracle.Order("k", False, 1)),
    "falling": (metadata.SortOrder(3, True), oracle.Order("x", True)),
    "rising text": (metadata.SortOrder(4), oracle.Order("t")),
    "ends": (
        metadata.FlaggedPunctuations(5, (metadata.Pattern(2, 2, 2),)),
        oracle.PunctuationFlag("end", {"k": "k"}, "batch"),
    ),
    "ends by time": (
        metadata.FlaggedPunctuations(5, (metadata.Pattern(2, 2, 2),), "watermark"),
        oracle.PunctuationFlag("end", {"k": "k"}, "watermark"),
    ),
    "ends of two": (
        metadata.FlaggedPunctuations(5, (metadata.Pattern(2, 2, 2), metadata.Pattern(4, 4, 4))),
        oracle.PunctuationFlag("end", {"k": "k", "t": "t"}, "batch"),
    ),
    "key of number": (metadata.Key((2, 3)), oracle.UniqueKey(("k", "x"))),
    "ends of number": (
        metadata.FlaggedPunctuations(5, (metadata.Pattern(3, 3, 3),)),
        oracle.PunctuationFlag("end", {"x": "x"}, "batch"),
    ),
    "ranges": (
        metadata.FlaggedPunctuations(5, (metadata.Pattern(2, 6, 7),)),
        oracle.PunctuationFlag("end", {"k": ("low", "high")}, "batch"),
    ),
    "range and text": (
        metadata.FlaggedPunctuations(5, (metadata.Pattern(2, 6, 7), metadata.Pattern(4, 4, 4))),
        oracle.PunctuationFlag("end", {"k": ("low", "high"), "t": "t"}, "batch"),
    ),
}


def _equal(one: Any, two: Any) -> bool:
    return one is not None and two is not None and bool(one == two or (one != one and two != two))


def _below(one: Any, two: Any) -> bool:
    """one < two, as Spark orders doubles."""
    if one is None or two is None or one != one:
        return False
    return bool(two != two or one < two)


def _near(one: Any, two: Any) -> bool:
    return None not in (one, two) and abs(one - two) <= 1


WHERE: dict[str, Any] = {
    "a.k = b.k": lambda r: _equal(r["a"]["k"], r["b"]["k"]),
    "a.k = b.k AND a.t = b.t": lambda r: _equal(r["a"]["k"], r["b"]["k"]) and _equal(r["a"]["t"], r["b"]["t"]),
    "a.x = b.x": lambda r: _equal(r["a"]["x"], r["b"]["x"]),
    "a.x < b.x": lambda r: _below(r["a"]["x"], r["b"]["x"]),
    "a.k <= b.k AND a.t = b.t": lambda r: (
        r["a"]["k"] is not None
        and r["b"]["k"] is not None
        and r["a"]["k"] <= r["b"]["k"]
        and _equal(r["a"]["t"], r["b"]["t"])
    ),
    "abs(a.k - b.k) <= 1": lambda r: _near(r["a"]["k"], r["b"]["k"]),
    "abs(a.k - b.k) <= 1 AND a.t = b.t": lambda r: _near(r["a"]["k"], r["b"]["k"]) and _equal(r["a"]["t"], r["b"]["t"]),
    "a.k >= b.low AND a.k < b.high": lambda r: (
        None not in (r["a"]["k"], r["b"]["low"], r["b"]["high"]) and r["b"]["low"] <= r["a"]["k"] < r["b"]["high"]
    ),
    "": lambda r: True,
}
CONSTANTS: dict[str, Any] = {
    "a.k = b.k AND b.t = 'p'": lambda r: _equal(r["a"]["k"], r["b"]["k"]) and r["b"]["t"] == "p",
    "'pq' = a.t AND a.k = b.k": lambda r: _equal(r["a"]["k"], r["b"]["k"]) and r["a"]["t"] == "pq",
    "a.k = b.k AND b.k = 2 AND a.t = b.t": lambda r: (
        r["b"]["k"] == 2 and _equal(r["a"]["k"], r["b"]["k"]) and _equal(r["a"]["t"], r["b"]["t"])
    ),
    "a.x = 0e0 AND b.t = 'p'": lambda r: r["a"]["x"] == 0.0 and r["b"]["t"] == "p",
    "a.k = b.k AND b.x = 1e0": lambda r: _equal(r["a"]["k"], r["b"]["k"]) and r["b"]["x"] == 1.0,
}
THIRD: dict[str, Any] = {
    "b.k = c.k": lambda r: _equal(r["b"]["k"], r["c"]["k"]),
    "a.k = c.k": lambda r: _equal(r["a"]["k"], r["c"]["k"]),
    "b.t = c.t": lambda r: _equal(r["b"]["t"], r["c"]["t"]),
    "b.x >= c.x": lambda r: not _below(r["b"]["x"], r["c"]["x"]) and None not in (r["b"]["x"], r["c"]["x"]),
}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    names = "ab" if draw(st.booleans()) else "abc"
    promises = {name: draw(st.lists(st.sampled_from(sorted(CONSTRAINTS)), max_size=2, unique=True)) for name in names}
    row = st.fixed_dictionaries(
        {
            "ts": st.one_of(st.integers(0, 16), st.none()) if draw(st.booleans()) else st.integers(0, 16),
            "k": st.one_of(st.integers(0, 4), st.just(2**53), st.just(2**53 + 1), st.none()),
            "x": st.sampled_from([0.0, -0.0, 1.0, 2.5, NAN, float("inf"), None]),
            "t": st.sampled_from(["", "p", "pq", "pq\0", None]),
            "end": st.sampled_from([None, None, False, False, True]),
            "low": st.one_of(st.integers(0, 3), st.none()),
            "high": st.one_of(st.integers(1, 5), st.integers(1, 5), st.none()),
        }
    )
    size = 12 if len(names) == 2 else 9
    batches: list[list[tuple[str, dict[str, Any]]]] = draw(
        st.lists(st.lists(st.tuples(st.sampled_from(names), row), max_size=size), min_size=2, max_size=6)
    )
    return {
        "names": names,
        "promises": promises,
        "where": [
            draw(st.sampled_from(sorted(WHERE | CONSTANTS))),
            draw(st.sampled_from(sorted(THIRD))) if names == "abc" else "",
        ],
        "batches": [
            [(n, r | {"ts": None if r["ts"] is None else 5 * b + r["ts"]}) for n, r in rows]
            for b, rows in enumerate(batches)
        ],
        "delays": [draw(st.integers(0, 10)) for _ in names],
        "windows": [draw(st.sampled_from([None, None, 8])) for _ in names],
        "strategies": [draw(strategies_of) for _ in batches],
        "exchanges": [draw(st.sampled_from(["local", "shuffle"])) for _ in batches],
        "foreign": draw(st.booleans()),
        "every": draw(st.sampled_from([1, 1, 2, 4])),
        "extremes": draw(st.sampled_from(EXTREMES)) | draw(st.sampled_from([{}, {"purge_pairs": 0}])),
    }


def query_of(case: dict[str, Any]) -> Query:
    """Return a case's join."""
    named = zip(case["names"], case["delays"], case["windows"], strict=True)
    streams = tuple(
        StreamSpec(
            name,
            SCHEMA,
            1,
            Window() if window is None else Sliding(window),
            delay,
            constraints=tuple(mine for mine, _ in constraints_of(case, name)),
        )
        for name, delay, window in named
    )
    text = " AND ".join(part for part in case["where"] if part)
    return Query(streams, parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect()), text)


def constraints_of(case: dict[str, Any], name: str) -> list[tuple[Any, oracle.OracleConstraint]]:
    """Return what a stream promises, to the engine and to the oracle."""
    return [CONSTRAINTS[found] for found in case["promises"][name]] + [FOREIGN] * (name == "b" and case["foreign"])


def expected(case: dict[str, Any], arrivals: list[oracle.Arrival]) -> oracle.Outcome:
    """Return what the oracle makes of a case."""
    streams = [
        oracle.Stream(
            name,
            oracle.Unbounded() if window is None else oracle.Sliding(window),
            delay,
            constraints=[theirs for _, theirs in constraints_of(case, name)],
        )
        for name, delay, window in zip(case["names"], case["delays"], case["windows"], strict=True)
    ]
    parts = [(WHERE | CONSTANTS)[case["where"][0]], *([THIRD[case["where"][1]]] if case["where"][1] else [])]
    return oracle.join(streams, arrivals, lambda r: all(part(r) for part in parts))


def arrivals_of(case: dict[str, Any]) -> list[oracle.Arrival]:
    """Return a case's rows, numbered."""
    rows = [(batch, name, values) for batch, found in enumerate(case["batches"]) for name, values in found]
    numbered = [(batch, name, {"id": number, **values}) for number, (batch, name, values) in enumerate(rows)]
    return [oracle.Arrival(batch, name, row["ts"], content_key(row), row) for batch, name, row in numbered]


def run_case(case: dict[str, Any], folder: str) -> tuple[Run, oracle.Outcome, list[oracle.Arrival]]:
    run = Run(query_of(case), Store(folder), purge_every=case.get("every", 1), remember=case.get("remember"))
    arrivals = arrivals_of(case)
    for batch in range(len(case["batches"])):
        strategy = case["strategies"][batch]
        if isinstance(strategy, Hash) and "=" not in run.query.where.replace("<=", "").replace(">=", ""):
            strategy = Central()
        rows = [(case["names"].index(a.stream), a.row) for a in arrivals if a.batch == batch]
        with limited(**case["extremes"]):
            run.step(strategy, rows, case["exchanges"][batch])
    with limited(**case["extremes"]):
        run.step(Central(), [])  # orphans are told, and punctuations put out, a batch after they could be
        run.step(Central(), [])
    return run, expected(case, arrivals), arrivals


@pytest.mark.long
@search(40)
@given(cases())
def test_constraints_true_and_false(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted, arrivals = run_case(case, folder)
    assert run.results == wanted.results
    shown = ("lateRows", "rejectedRows", "deniedRows", "punctuations", "orphanRows")
    found = [sum(p[name] for p in run.progress) for name in shown]
    told: list[list[Any]] = [wanted.late, wanted.rejected, [*wanted.denied], wanted.punctuations, [*wanted.orphans]]
    assert found == [len(rows) for rows in told]
    assert_denied_alike(run, wanted)
    assert_nothing_after_its_punctuation(case, run, arrivals)
    for p in run.progress:
        assert p["watermark"] == wanted.watermarks.get(p["batchId"], p["watermark"])


def assert_denied_alike(run: Run, wanted: oracle.Outcome) -> None:
    """The very rows that the oracle denies, rejects and finds late, or orphaned, are written."""
    for kind, arrivals in (
        ("late", wanted.late),
        ("rejected", wanted.rejected),
        ("denied", [arrival for arrival, _ in wanted.denied]),
        ("orphan", [arrival for _, arrival in wanted.orphans]),
    ):
        found = Counter(row["id"] for (side, _), rows in run.sides.items() if side == kind for _, row in rows)
        assert found == Counter(arrival.row["id"] for arrival in arrivals), kind


def assert_nothing_after_its_punctuation(case: dict[str, Any], run: Run, arrivals: list[oracle.Arrival]) -> None:
    """No result of a later batch has a member that a punctuation of the output speaks of."""
    batch_of = {arrival.row["id"]: arrival for arrival in arrivals}
    put_out = {name: rows for (kind, name), rows in run.sides.items() if kind == "punctuation"}
    for ids, _ in run.results:
        made = max(batch_of[member].batch for member in ids)
        for name, member in zip(case["names"], ids, strict=True):
            row = batch_of[member].row
            for batch, said in put_out.get(name, []):
                assert batch > made or not spoken_of(row, said)


def spoken_of(row: Any, said: dict[str, Any]) -> bool:
    """Tell whether a punctuation of the output speaks of a row."""
    names = {name.removesuffix("_low").removesuffix("_high") for name in said}
    return all(
        _equal(row[name], said[name])
        if name in said
        else row[name] is not None and said[f"{name}_low"] <= row[name] <= said[f"{name}_high"]
        for name in names
    )


def test_a_promise_about_the_event_time(tmp_path: Path) -> None:
    key, order = metadata.Key((2, 1)), metadata.SortOrder(1, slack=2)
    streams = (
        StreamSpec("a", SCHEMA, 1, Window(), 100, constraints=(key,)),
        StreamSpec("b", SCHEMA, 1, Window(), 100, constraints=(order,)),
    )
    text = "a.k = b.k AND a.ts = b.ts"
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    run = Run(Query(streams, conjuncts, text), Store(str(tmp_path)))
    batches = [[(0, 1, 5), (1, 1, 5)], [(0, 1, 5), (0, 2, 5), (1, 1, 2), (1, 1, 3)], [(1, 2, 9)]]
    number = 0
    for rows in batches:
        blank = dict.fromkeys(NAMES)
        run.step(Central(), [(at, blank | {"id": (number := number + 1), "ts": ts, "k": k}) for at, k, ts in rows])
    assert run.results == {((1, 2), 5): 1}
    assert [p["deniedRows"] for p in run.progress] == [0, 2, 0]
    reasons = [sample["reason"] for sample in run.progress[1]["samples"]]
    assert reasons[0].startswith("k 1, ts 1970-01-01 00:00:00.000005") and "seen before (key), in batch 0" in reasons[0]
    assert "which the order had reached" in reasons[1]
    assert run.progress[1]["purgedRows"] == 1  # the row of b whose key a has had
    assert run.progress[1]["purgeMs"] > 0
