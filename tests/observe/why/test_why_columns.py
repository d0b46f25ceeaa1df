"""Tuples by columns of all kinds, those among them that state does not keep; rows that were turned away have all."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.observe.why.test_why_joins import DUCK
from watersmeet.observe.why.answer import Answer
from watersmeet.observe.why.join_state import JoinState
from watersmeet.observe.why.output_files import OutputFiles
from watersmeet.observe.why.question import parse_question
from watersmeet.observe.why.state_evidence import StateEvidence
from watersmeet.observe.why.why_pair import answer_question
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Output, Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("tags", pa.list_(pa.string())), ("note", pa.string())]
)
WHERE = "a.x = b.x"


def row(ts: int, x: float, tags: list[str], note: str = "n") -> dict[str, Any]:
    return {"ts": ts, "x": x, "tags": tags, "note": note}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    streams = tuple(StreamSpec(name, SCHEMA, 0, Sliding(100), 0) for name in "ab")
    outputs = (Output("tags", Column(0, 2)), Output("other", Column(1, 2)))
    conjuncts = parse_where(WHERE, [(s.name, s.schema) for s in streams], (), Dialect())
    run = Run(Query(streams, conjuncts, WHERE, outputs), Store(str(tmp_path_factory.mktemp("state"))))
    run.step(Central(), [(0, row(50, 1.0, ["p", "q"])), (0, row(51, 2.0, ["q"])), (1, row(52, 1.0, []))])
    run.step(Central(), [(0, row(3, 7.0, ["late"]))])
    return run


def why(run: Run, late: Path | None = None, **values_by_stream: Any) -> Answer:
    assert run.state is not None
    sides = {"late": {"a": str(late), "b": str(late / "b")}} if late is not None else {}
    ground = StateEvidence(
        JoinState(run.query, run.store, run.state), DUCK, float, OutputFiles("me", sides), run.progress
    )
    return answer_question(ground, parse_question(run.query, values_by_stream, DUCK))


def write_late(run: Run, folder: Path) -> Path:
    for at, (batch, rows) in enumerate(run.sides["late", "a"]):
        pq.write_table(pa.Table.from_pylist([rows], SCHEMA), folder / f"part-b{batch}-me-run-{at}.parquet")
    return folder


def test_by_an_array(run: Run, tmp_path: Path) -> None:
    late = write_late(run, tmp_path)
    assert why(run, a={"tags": ["p", "q"]}, b={"tags": []}).joined
    assert why(run, a={"tags": ["q"]}, b={"tags": "[]"}).joined is False
    assert why(run, late, a={"tags": ["late"]}).tuples[0].fate == "late"
    assert why(run, late, a={"tags": ["q", "p"]}).tuples[0].fate == "never arrived"


@pytest.mark.parametrize("with_outputs", [True, False])
def test_by_a_column_that_state_does_not_keep(run: Run, tmp_path: Path, with_outputs: bool) -> None:
    answer = why(run, write_late(run, tmp_path) if with_outputs else None, a={"note": "n"}, b={"x": 1.0})
    unsaid = "can't be looked for in state by note: state keeps ts, x and tags."
    assert [(status.fate, status.message == unsaid) for status in answer.tuples[:-1]] == [
        ("unknown", True),
        ("late", False),
    ]
    assert [status.joined for status in answer.combinations] == [None, False] and answer.joined is None
    assert "It is unknown whether they joined, since state has no trace of a (note = 'n')." in str(answer)
    assert why(run, a={"note": "other"}).tuples[0].message.startswith(unsaid)


def test_by_such_a_column_and_others(run: Run) -> None:
    answer = why(run, a={"note": "other", "x": 2.0})
    assert answer.tuples[0].fate == "stored"
    assert "State does not keep a.note: stored tuples were found by the rest, and may have another value." in str(
        answer
    )


def test_samples_tell_by_the_event_time_too(run: Run) -> None:
    (status,) = why(run, a={"ts": "1970-01-01 00:00:00.000003"}).tuples
    assert status.fate == "late"
    assert why(run, a={"ts": "1970-01-01 00:00:00.000004"}).tuples[0].fate != "late"


def test_more_rows_that_were_turned_away_than_are_told_of(run: Run, tmp_path: Path) -> None:
    (batch, rows), *_ = run.sides["late", "a"]
    pq.write_table(pa.Table.from_pylist([rows] * 3, SCHEMA), tmp_path / f"part-b{batch}-me-run-0.parquet")
    answer = why(run, tmp_path, a={"note": "n"})
    assert [status.fate for status in answer.tuples] == ["unknown", "late", "late"]
    assert "More than 2 tuples of a have note = 'n'; these are the first 2." in str(answer)
