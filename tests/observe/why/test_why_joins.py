"""Random joins on the engine: what why says of every combination is what the oracle says, and its reasons are true."""

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from tests.batch.test_engine import SCHEMA, cases, prepared, run_case
from tests.budget import search
from watersmeet.observe.why.answer import Answer, Check, Combination
from watersmeet.observe.why.join_state import JoinState
from watersmeet.observe.why.output_files import OutputFiles
from watersmeet.observe.why.question import parse_question
from watersmeet.observe.why.state_evidence import StateEvidence
from watersmeet.observe.why.why_pair import answer_question
from watersmeet.predicate.model import Dialect
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.testing import oracle
from watersmeet.testing.run import Run

DUCK = Duck(Dialect())
Row = Mapping[str, Any]


def null_safe(decide: Callable[..., bool]) -> Callable[..., bool | None]:
    return lambda *values: None if None in values else decide(*values)


def either(first: bool | None, second: bool | None) -> bool | None:
    return True if True in (first, second) else None if None in (first, second) else False


LESS, SAME = null_safe(lambda x, y: x < y), null_safe(lambda x, y: x == y)
BAND, BEGINS = null_safe(lambda x, y: abs(x - y) < 3), null_safe(str.startswith)
SUM, RANGE = null_safe(lambda a, b, c: a + b > c), null_safe(lambda a, b: b - 1 <= a <= b + 2)
CONJUNCTS: dict[str, Callable[[dict[str, Row]], bool | None]] = {
    "abs(a.x - b.x) < 3": lambda r: BAND(r["a"]["x"], r["b"]["x"]),
    "a.x < b.x": lambda r: LESS(r["a"]["x"], r["b"]["x"]),
    "a.k = b.k": lambda r: SAME(r["a"]["k"], r["b"]["k"]),
    "a.x = b.x": lambda r: SAME(r["a"]["x"], r["b"]["x"]),
    "a.x = b.x OR a.k = b.k": lambda r: either(SAME(r["a"]["x"], r["b"]["x"]), SAME(r["a"]["k"], r["b"]["k"])),
    "near(a.x, b.x)": lambda r: BAND(r["a"]["x"], r["b"]["x"]),
    "NOT near(a.x, b.x)": lambda r: null_safe(lambda x, y: abs(x - y) >= 3)(r["a"]["x"], r["b"]["x"]),
    "a.x < 5": lambda r: null_safe(lambda x: x < 5)(r["a"]["x"]),
    "both_null(b.x, a.x)": lambda r: r["a"]["x"] is None and r["b"]["x"] is None,
    "matrix_less(a.x, b.x)": lambda r: LESS(r["a"]["x"], r["b"]["x"]),
    "a.k LIKE concat(b.k, '%')": lambda r: BEGINS(r["a"]["k"], r["b"]["k"]),
    "b.k LIKE 'p%'": lambda r: BEGINS(r["b"]["k"], "p"),
    "a.k >= b.k": lambda r: null_safe(lambda a, b: a >= b)(r["a"]["k"], r["b"]["k"]),
    "a.x BETWEEN b.x - 1 AND b.x + 2": lambda r: RANGE(r["a"]["x"], r["b"]["x"]),
    "b.k <> 'p'": lambda r: null_safe(lambda k: k != "p")(r["b"]["k"]),
    "abs(b.x - c.x) < 3": lambda r: BAND(r["b"]["x"], r["c"]["x"]),
    "b.x = c.x": lambda r: SAME(r["b"]["x"], r["c"]["x"]),
    "a.x + b.x > c.x": lambda r: SUM(r["a"]["x"], r["b"]["x"], r["c"]["x"]),
    "startswith(c.k, b.k)": lambda r: BEGINS(r["c"]["k"], r["b"]["k"]),
    "a.k = c.k": lambda r: SAME(r["a"]["k"], r["c"]["k"]),
    "near(b.x, c.x)": lambda r: BAND(r["b"]["x"], r["c"]["x"]),
}
SQL_WORDS = {True: "TRUE", False: "FALSE", None: "NULL"}


def why(run: Run, folder: Path, **values_by_stream: Any) -> Answer:
    assert run.state is not None
    kinds, names = ("late", "rejected", "denied"), [stream.name for stream in run.query.streams]
    sides = {kind: {name: str(folder / kind / name) for name in names} for kind in kinds}
    question = parse_question(run.query, values_by_stream, DUCK)
    state = JoinState(run.query, run.store, run.state)
    return answer_question(StateEvidence(state, DUCK, float, OutputFiles("me", sides), run.progress), question)


def put_out(run: Run, folder: Path) -> None:
    """Write side outputs as a query does."""
    for (kind, stream), rows in run.sides.items():
        (folder / kind / stream).mkdir(parents=True, exist_ok=True)
        for at, (batch, row) in enumerate(rows):
            plain = pa.table({f.name: pa.array([row[f.name]]).cast(f.type) for f in SCHEMA})
            pq.write_table(plain, folder / kind / stream / f"part-b{batch}-me-run-{at}.parquet")


def is_true(test: Check, rows: dict[str, Row], streams: Mapping[str, oracle.Stream]) -> bool:
    """Whether what a test says of a combination is so, by brute force."""
    if test.kind == "conjunct":
        return test.holds == SQL_WORDS[CONJUNCTS[test.name.strip("()") if " OR " in test.name else test.name](rows)]
    name = test.name.removeprefix("window of ")
    window, ts, last = streams[name].window, rows[name]["ts"], max(row["ts"] for row in rows.values())
    match window:
        case oracle.Sliding(size):
            admitted = last - ts < size
        case oracle.Hopping(size, step, "left"):
            admitted = any(k * step <= ts <= last < k * step + size for k in range(-20, 60))
        case oracle.Hopping(size, step):
            admitted = any(k * step < ts <= last <= k * step + size for k in range(-20, 60))
        case oracle.Unbounded():
            admitted = True
        case oracle.Count():  # told by what results there are
            return True
    return test.holds == SQL_WORDS[admitted]


def check(case: dict[str, Any], folder: Path) -> None:
    run, expected = run_case(case, str(folder / "store"))
    if run.state is None:
        return
    put_out(run, folder)
    streams = {stream.name: stream for stream in case["streams"]}
    rows: dict[str, list[Row]] = {name: [] for name in streams}
    _, batches, _ = prepared(case, str(folder / "other"))
    for batch in batches:
        for at, row in batch:
            rows[run.query.streams[at].name].append(row)
    fates = {row["id"]: row for answer in rows.values() for row in answer}
    combinations = list(product(*rows.values()))
    results = {ids for ids, _ in expected.results}
    dice = Random(len(combinations))
    sampled = dice.sample(combinations, min(15, len(combinations)))
    sampled += [tuple(fates[at] for at in ids) for ids in list(results)[:10]]
    late = {arrival.row["id"] for arrival in expected.late}
    rejected = {arrival.row["id"] for arrival in expected.rejected}
    for members in sampled:
        answer = why(run, folder, **{name: {"id": row["id"]} for name, row in zip(rows, members, strict=True)})
        assert str(answer)
        (combination,) = answer.combinations
        for status, row in zip(answer.tuples, members, strict=True):
            assert (status.fate == "late") == (row["id"] in late)
            assert (status.fate == "rejected") == (row["id"] in rejected)
            assert status.fate != "never arrived"
        by_name = dict(zip(rows, members, strict=True))
        judge(combination, by_name, tuple(row["id"] for row in members) in results, streams)


def judge(
    combination: Combination, rows: dict[str, Row], has_joined: bool, streams: Mapping[str, oracle.Stream]
) -> None:
    """Compare what is said of a combination with what the oracle knows."""
    is_unknown = any(member.fate == "unknown" for member in combination.members)
    assert combination.joined == has_joined or (combination.joined is None and (is_unknown or _open(combination)))
    assert all(is_true(test, rows, streams) for test in combination.tests if test.holds != "unknown")
    if combination.joined is False and all(member.fate in ("stored", "purged") for member in combination.members):
        assert combination.refused_by is not None
    if combination.joined and combination.batches is not None:
        first, last = combination.batches
        assert first <= last


def _open(combination: Combination) -> bool:
    """Whether a count window can't be judged any more, since chunks that were merged tell batches no longer apart."""
    return any(test.holds == "unknown" and test.kind == "window" for test in combination.tests)


@pytest.mark.long
@search(12)
@given(cases())
def test_what_is_said_of_combinations_is_what_the_oracle_says(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        check(case, Path(folder))
