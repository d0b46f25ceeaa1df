"""The view says what is recorded."""

import doctest
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.observe.dashboard.recorded_join import SECOND, START, Timed, recorded
from watersmeet.observe.dashboard.build import build_view, list_decisions
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointReader, CheckpointSnapshot, RecentBatches, Runner
from watersmeet.observe.dashboard.dashboard_view import DashboardView, Table
from watersmeet.observe.dashboard.joins import draw_funnel
from watersmeet.query.windows import BEFORE_ALL, Sliding
from watersmeet.state.store.places import store_of

NOW = START + 14 * SECOND


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    recorded(path, windows=(Sliding(4 * SECOND),) * 2)
    return path


@pytest.fixture(scope="module")
def snapshot(folder: Path) -> CheckpointSnapshot:
    return replace(CheckpointReader(store_of(str(folder))).read(0.0), runner=Runner("process 7 on mill"))


def column(table: Table, name: str) -> list[str]:
    return [row[table.columns.index(name)].text for row in table.rows]


def view_with(snapshot: CheckpointSnapshot, **last: Any) -> DashboardView:
    """The view, where the last batch said something else."""
    return build_view(replace(snapshot, progress=(*snapshot.progress[:-1], {**snapshot.progress[-1], **last})), NOW)


@pytest.mark.parametrize("name", ["dashboard_view", "build", "terminal"])
def test_examples_in_docstrings(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"watersmeet.observe.dashboard.{name}"))
    assert tried and not failed


def test_the_title_is_the_querys_name_or_its_streams(snapshot: CheckpointSnapshot) -> None:
    assert build_view(snapshot, NOW).title == "a, b" and build_view(replace(snapshot, progress=()), NOW).title == "a, b"
    assert view_with(snapshot, name="deliveries").title == "deliveries"
    assert build_view(replace(snapshot, query={}, progress=(), manifest=None), NOW).title == "join"


def test_streams_show_rows_in_late_gone_and_who_holds(snapshot: CheckpointSnapshot) -> None:
    (join,) = build_view(snapshot, NOW).joins
    streams = join.streams
    assert column(streams, "stream") == ["a", "b · holds watermark"]
    assert column(streams, "window") == ["sliding 4 seconds"] * 2
    assert column(streams, "rows in") == ["11", "10"] and column(streams, "late") == ["1", "0"]
    assert column(streams, "ahead") == ["3.00 s", "0.00 s"]
    assert column(streams, "per second") == ["5.1/s", "5/s"]
    assert streams.note == "In the last 6 batches: 1 late."
    assert join.watermark == "Watermark 2023-11-14 22:13:28.0, held by 'b'."
    before, now = (progress["streams"] for progress in snapshot.progress[-2:])
    expected = [before[name]["stateRows"] + 10 - now[name]["stateRows"] for name in "ab"]
    assert column(streams, "left state") == [str(number) for number in expected] and sum(expected) > 0


def test_figures_are_those_of_the_last_batches(snapshot: CheckpointSnapshot) -> None:
    figures = {figure.label: figure for figure in build_view(snapshot, NOW).figures}
    assert figures["batch time"].value == "500 ms" and figures["batch time"].limit == 1000
    assert figures["batch time"].series == (500.0,) * 6
    assert figures["rows in"].value == "10/s"
    assert figures["watermark behind"].value == "4.50 s" and figures["watermark behind"].note == "held by b"
    assert figures["read to result"].note.startswith("median; 99 % in ")
    assert figures["results"].note == f"{snapshot.progress[-1]['outputRows']} in the last batch"


def test_a_watermark_of_long_ago_is_shown_as_a_time(snapshot: CheckpointSnapshot) -> None:
    figures = {figure.label: figure.value for figure in view_with(snapshot, watermark=START - 10**14).figures}
    assert figures["watermark"] == "2020-09-13 12:26:40.0"


def test_a_table_has_no_times_and_holds_nothing(snapshot: CheckpointSnapshot) -> None:
    assert snapshot.manifest is not None
    first, second = snapshot.manifest.streams
    manifest = replace(snapshot.manifest, streams=(first, replace(second, latest=BEFORE_ALL, idle=True)))
    (join,) = build_view(replace(snapshot, manifest=manifest), NOW).joins
    assert column(join.streams, "stream")[1] == "b · table"
    assert column(join.streams, "latest")[1] == column(join.streams, "ahead")[1] == "–"


def test_where_pairs_go_by_hops_or_by_the_funnel(snapshot: CheckpointSnapshot) -> None:
    last, hops = snapshot.progress[-1], build_view(snapshot, NOW).joins[0].funnel
    assert [hop.title for hop in hops] == ["a → b", "b → a"]
    for hop, recorded_hop in zip(hops, last["funnel"], strict=True):
        counts = [recorded_hop["inTime"], recorded_hop["into"], *(test["out"] for test in recorded_hop["tests"])]
        assert [step.count for step in hop.steps] == [f"{number:,}" for number in counts]
        assert [step.label for step in hop.steps[2:]] == ["window", "abs(a.x - b.x) < 2"]
    (older,) = draw_funnel({"hops": last["hops"]})
    counted = [last["hops"][0][name] for name in ("rowsIn", "pairs", "matches")]
    assert [step.count for step in older.steps] == [f"{number:,}" for number in counted]
    tests: list[dict[str, Any]] = [
        {"name": "window", "kind": "window", "in": 1000, "out": 10, "ms": 0},
        {"name": "similar(a.x, b.x)", "kind": "python", "in": 10, "out": 0, "ms": 12.5},
    ]
    miss = {"a": {"x": "1.5", "ts": "2026-01-01T12:00:00.000Z"}, "b": {"x": "2.5", "ts": "2026-01-01T12:00:01.000Z"}}
    tests[1]["missed"] = [miss]
    (hop,) = draw_funnel(
        {"funnel": [{"stream": "c", "from": ["a", "b"], "inTime": 2000, "into": 1000, "tests": tests}]}
    )
    assert hop.title == "a, b → c"
    assert [(step.label, step.count, step.note) for step in hop.steps] == [
        ("pairs in time", "2,000", ""),
        ("pairs proposed", "1,000", ""),
        ("window", "10", "1 % pass"),
        ("similar(a.x, b.x)", "0", "Python, 0 % pass, 12 ms"),
    ]
    fails = {"name": "a.x / b.x > 2", "kind": "raising", "in": 4, "out": 1, "ms": 0}
    (risky,) = draw_funnel({"funnel": [{"stream": "b", "from": ["a"], "inTime": 9, "into": 4, "tests": [fails]}]})
    assert risky.steps[-1].note == "may raise an error, 25 % pass"
    assert hop.steps[0].share == 1.0 and hop.steps[3].share == 0.0
    assert [step.near_misses for step in hop.steps] == [(), (), (), ("nearly: a.x = 1.5, b.x = 2.5",)]
    assert draw_funnel({}) == ()


def test_predicates_and_nodes(snapshot: CheckpointSnapshot) -> None:
    costs = {"near": {"pairs": 2000, "matches": 100, "ms": 50.0}, "alike": {"pairs": 0, "matches": 0, "ms": 0.0}}
    nodes = [{"rows": 1, "bytes": 10, "cpuMs": ms, "pairs": 5, "rowsIn": 0} for ms in (90.0, 0.0, 0.0)]
    (join,) = view_with(snapshot, predicates=costs, nodes=nodes).joins
    assert column(join.predicates, "predicate") == ["near()", "alike()"]
    assert column(join.predicates, "per 1,000") == ["25 ms", "–"] and column(join.predicates, "match") == ["5 %", "–"]
    assert column(join.predicates, "of the batch") == ["10 %", "0 %"]
    assert [row[1].share for row in join.nodes.rows] == [1.0, 0.0, 0.0]
    assert join.nodes.note == "The busiest node does 3.0 times the average work."


def test_batches_are_drawn_against_the_trigger(snapshot: CheckpointSnapshot) -> None:
    late = {**snapshot.progress[-1]["durationMs"], "total": 2000.0, "job": 1500.0}
    batches = view_with(snapshot, durationMs=late).batches
    assert [bar.is_late for bar in batches.bars] == [False] * 5 + [True]
    assert batches.top == "2.30 s" and batches.trigger == pytest.approx(1 / 2.3)
    assert batches.bars[-1].message == "batch 5: 2.00 s (plan 50 ms, job 1.50 s, commit 100 ms)"
    assert (batches.first, batches.last, batches.trigger_text) == ("batch 0", "batch 5", "trigger 1 s")


def test_what_is_spilled_and_owed_is_listed_if_there_may_be_any(snapshot: CheckpointSnapshot) -> None:
    assert build_view(snapshot, NOW).owed_results == Table()
    spilling: dict[str, Any] = {
        "owedProbes": 1200,
        "owedResults": 30,
        "oldestOwed": 12.5,
        "paidResults": 4,
        "spilledBytes": 5000,
    }
    spilling |= {"hotBytes": 9000, "units": {"hot": 3, "cold": 1, "owing": 1}}
    table = view_with(snapshot, spilling=spilling).owed_results
    assert column(table, "now") == ["1,200", "30", "12.5 s", "4", "5 kB, 1 of 4 units", "9 kB"]
    assert table.rows[0][2].series == (None,) * 5 + (1200,)


def test_decisions_are_in_words_and_the_last_come_first() -> None:
    moved = {"moved": {"rows": 5, "why": "tuples aged."}}
    entry = {
        "batch": 2,
        "kind": "nodes",
        "before": "PSP(nodes=1)",
        "after": "PSP(nodes=2)",
        "why": "less.",
        "made": False,
    }
    orders = [{"a": [["b", "c"]], "b": [["a"]]}, {"a": [["c", "b"]], "b": [["a"]]}]
    inner = {"ab": {"changes": {"master": [None, "a"]}}}
    batches = [
        {"batchId": 0, "placement": moved, "changes": {"order": orders}},
        {"batchId": 1, "placement": {**moved, "decisions": [entry]}, "changes": {"segmentSeconds": [2.0, 4.0]}},
        {"batchId": 2, "spilling": {"decision": {"why": "too slow", "routine": False}}, "inner": inner},
        {"batchId": 3, "spilling": {"decision": {"why": "time to spare", "routine": True}}},
    ]
    assert [(entry.batch, entry.message) for entry in list_decisions(RecentBatches(batches))] == [
        ("2", "too slow"),
        ("2", "In 'ab': Master stream: nothing → a"),
        ("1", "Seconds of a segment: 2.0 → 4.0"),
        ("1", "PSP(nodes=1) → PSP(nodes=2) (not made: a dry run): less."),
        ("1", "5 rows changed their node, as in 2 of the last 4 batches: tuples aged."),
        ("0", "Join order of 'a': b, c → c, b"),
    ]


def test_rows_that_were_not_joined_are_sampled(snapshot: CheckpointSnapshot) -> None:
    samples = build_view(snapshot, NOW).refused_rows
    assert [[cell.text for cell in row] for row in samples.rows] == [
        ["5", "a", "late: before the watermark", "ts: 2023-11-14T22:11:40.000Z, id: -1, x: 0.0"]
    ]


def test_what_earlier_versions_did_not_record_is_left_out(snapshot: CheckpointSnapshot) -> None:
    old = tuple(
        {key: value for key, value in p.items() if key not in ("streams", "triggerMs")} for p in snapshot.progress
    )
    view = build_view(replace(snapshot, progress=old), NOW)
    assert column(view.joins[0].streams, "rows in") == ["11", "10"]
    assert view.batches.trigger is None and column(view.joins[0].streams, "left state") == ["0", "0"]


def test_a_query_before_its_first_batch(tmp_path: Path) -> None:
    recorded(tmp_path, batches=0)
    view = build_view(CheckpointReader(store_of(str(tmp_path))).read(0.0), NOW)
    assert (view.verdict.title, view.figures, view.joins) == ("No batch yet", (), ())


def test_joins_within_joins_are_shown_too(tmp_path: Path, snapshot: CheckpointSnapshot) -> None:
    assert snapshot.manifest is not None
    manifest = replace(snapshot.manifest, inner={0: snapshot.manifest})
    query = {**snapshot.query, "join 'a'": {**snapshot.query, "where": "inside"}}
    progress = tuple({**batch, "inner": {"a": batch}} for batch in snapshot.progress)
    outer, inner = build_view(replace(snapshot, manifest=manifest, query=query, progress=progress), NOW).joins
    assert (outer.name, inner.name, inner.where) == ("", "a", "inside")
    assert inner.streams == outer.streams


def test_the_harness_leaves_what_a_query_leaves(tmp_path: Path) -> None:
    run = recorded(tmp_path, batches=3)
    assert isinstance(run, Timed) and run.progress[-1]["triggerMs"] == 1000
    assert run.progress[-1]["outputRows"] > 0
