"""Exchanges over the stages of one process: what travels, and how errors of ours do."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.batch.operator import Operator
from watersmeet.errors import PredicateError, StateError
from watersmeet.exchange.exchanges import run_local, run_shuffle
from watersmeet.exchange.message import REPORT, Attempt, Blocks, Failure, messages, outcome, read_reports, report_errors
from watersmeet.placement import DSJ, PSP, Central, Strategy
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.predicate.python import predicate
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Here, blocks

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64())])


@predicate
def fails(x: float, ys: Any) -> Any:
    raise ValueError("no good")


def query_of(text: str) -> Query:
    streams = tuple(StreamSpec(name, SCHEMA, 1, Sliding(100), 0) for name in "abc")
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (fails,), Dialect())
    return Query(streams, conjuncts, text, (), (fails,))


def input_of(query: Query, tasks: int) -> Here:
    rows = [(at % 3, {"id": at, "ts": at, "x": float(at % 4)}) for at in range(30)]
    return Here([[blocks(query, rows[task::tasks])] for task in range(tasks)])


@pytest.mark.long
@pytest.mark.parametrize("strategy", [Central(), PSP(3), DSJ(4)])
@pytest.mark.parametrize("tasks", [1, 4])
def test_both_exchanges_find_the_same_and_every_node_reports(tmp_path: Path, strategy: Strategy, tasks: int) -> None:
    query = query_of("a.x = b.x AND b.x = c.x")
    found = {}
    for name in ("inline", "hops"):
        operator = Operator(query, strategy, Store(str(tmp_path / name)), "run")
        plan = operator.plan(operator.start())
        stage = input_of(query, tasks)
        reports = run_local(stage, plan, shares=2) if name == "inline" else run_shuffle(stage, plan)
        assert {report.node for report in reports} == set(range(plan.placement.nodes))
        assert (sum(bool(r.intakes) for r in reports), sum(bool(r.state.fresh) for r in reports)) == (1, 1)
        found[name] = sum(report.results.rows for report in reports)
    assert found["inline"] == found["hops"] > 0


@pytest.mark.parametrize("exchange", ["inline", "hops"])
def test_an_error_in_any_task_arrives_as_it_was(tmp_path: Path, exchange: str) -> None:
    query = query_of("fails(a.x, b.x) AND b.x = c.x")
    operator = Operator(query, PSP(3), Store(str(tmp_path)), "run")
    plan = operator.plan(operator.start())
    with pytest.raises(PredicateError, match="'fails' raised ValueError: no good"):
        run_local(input_of(query, 2), plan, 2) if exchange == "inline" else run_shuffle(input_of(query, 2), plan)


def test_reports_travel_as_they_are_and_the_first_failure_is_raised() -> None:
    sent = messages([(1, {"rows": 3}), (0, Counter(a=2))])
    assert sent.schema == REPORT and read_reports([sent]) == [{"rows": 3}, Counter(a=2)]
    failed = messages([(0, Failure(StateError, "gone")), (1, Failure(PredicateError, "later"))])
    with pytest.raises(StateError, match=r"^gone$"):
        read_reports([sent, failed])
    assert outcome([]) == []


def test_other_errors_are_not_taken_for_ours() -> None:
    def broken(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        raise KeyError("a bug")
        yield

    with pytest.raises(KeyError, match="a bug"):
        Here([[]]).run(report_errors(broken, [0]), REPORT)


def test_rows_go_to_the_partitions_that_they_name() -> None:
    sent = Here([[messages([(2, "x"), (0, "y")])], [messages([(2, "z")])]]).partition_by_node(3)
    assert [read_reports(part) for part in sent._partitions] == [["y"], [], ["x", "z"]]


class Losing(Here):
    """Stages of which the last blocks get lost on the way to the driver."""

    lost = 1

    def collect(self) -> list[pa.RecordBatch]:
        made = super().collect()
        return made[: max(0, len(made) - self.lost)]


@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("exchange", ["inline", "hops"])
def test_a_report_that_gets_lost_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str, lost: int
) -> None:
    query = query_of("a.x = b.x AND b.x = c.x")
    operator = Operator(query, PSP(3), Store(str(tmp_path)), "run")
    plan, stage = operator.plan(operator.start()), Losing(input_of(query, 2)._partitions)
    monkeypatch.setattr(Losing, "lost", lost)
    with pytest.raises(StateError, match=f"Only {3 - lost} of 3 reports of tasks reached the driver: .* start again"):
        run_local(stage, plan, shares=3) if exchange == "inline" else run_shuffle(stage, plan)
