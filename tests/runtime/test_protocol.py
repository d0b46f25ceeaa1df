"""The batch protocol: what it asks for, event by event, as whole lists of actions."""

import doctest
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.batch.operator import Operator
from watersmeet.batch.report import IntakeReport, ResultFiles, StateReport, StreamIntake, TaskReport
from watersmeet.errors import StateError
from watersmeet.observe import progress
from watersmeet.observe.timing import describe_freshness, measure_latency, time_steps
from watersmeet.placement import PSP, Central
from watersmeet.query.query import NestedTimes, Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.runtime.commit_protocol import (
    BatchOffered,
    Commit,
    Deliver,
    Event,
    FilesDelivered,
    JobsFinished,
    ManifestWritten,
    Protocol,
    Publish,
    QuietPeriod,
    RecordIntent,
    Remove,
    ResultsPublished,
    Retract,
    RunJobs,
    StateLoaded,
    Sweep,
    Warn,
    Withdraw,
)
from watersmeet.runtime.tree import Job, JoinTree
from watersmeet.spilling.interface import Spilling, SpillingTree
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.manifest import rounds
from watersmeet.state.manifest.delivery import Delivery
from watersmeet.state.manifest.generations import Fence
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import Round, SpillPlan
from watersmeet.state.store.store import Store

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("id", pa.int64())])
STORE = Store("nowhere")
SECOND = 1_000_000


def stream(name: str, nested: NestedTimes | None = None) -> StreamSpec:
    return StreamSpec(name, SCHEMA, 0, Sliding(10 * SECOND), delay=0, nested=nested)


def operator(*names: str, run: str = "r", nodes: int = 1) -> Operator:
    query = Query(tuple(map(stream, names)))
    return Operator(query, Central() if nodes == 1 else PSP(nodes), STORE, run)


def alone(nodes: int = 1) -> JoinTree:
    return JoinTree(operator("a", "b", nodes=nodes))


def chunk(name: str, at: int, second: int) -> Chunk:
    low = second * SECOND
    return Chunk(name, at, 0, low, low + 1, WHOLE, 1, 16, low, low, (0,), Place(f"chunks/{name}", 0, 16, ""))


def report(
    files: Sequence[str] = (),
    chunks: Sequence[Chunk] = (),
    second: int = 0,
    sides: Sequence[tuple[str, int, str]] = (),
) -> TaskReport:
    """What node 0 says: each stream brought a row at the given second."""
    streams = [StreamIntake(1, 1, earliest=second * SECOND, latest=second * SECOND) for _ in "ab"]
    intake = IntakeReport(streams, files=list(sides), reads=[(1.0, 2)])
    results, state = ResultFiles(files=list(files)), StateReport(fresh=list(chunks))
    return TaskReport(0, results=results, state=state, intakes=[intake])


def through(protocol: Protocol, number: int, done: TaskReport, at: float = 0.0) -> list[Any]:
    """Drive a batch whose steps take a second each; return all that it was asked to do."""
    asked: list[Any] = list(protocol.handle(BatchOffered(number, at, input=f"input {number}")))
    if not any(isinstance(action, RunJobs) for action in asked):
        return asked
    for event in (JobsFinished({"j": Job([done])}, at + 1, at + 2), ResultsPublished(at + 3, at + 3)):
        asked += protocol.handle(event)
    written = asked[-1].manifest
    return asked + protocol.handle(ManifestWritten(replace(written, digest=f"digest {number}")))


def kinds(actions: list[Any]) -> list[type]:
    return [type(action) for action in actions]


def test_a_batch_is_planned_run_published_and_committed_in_this_order() -> None:
    tree = alone()
    protocol = Protocol(tree, tree.start(), exchange="local")
    start = protocol.state
    (sweep, run) = protocol.handle(BatchOffered(0, 100.0, input="offsets"))
    assert sweep == Sweep(frozenset())
    assert run == RunJobs({"j": tree.operator.plan(start)})
    done = report(
        ["results/r1"], [chunk("c0", 0, 5)], sides=[("late", 1, "sides/s1"), ("late", 1, "sides/s2")], second=5
    )
    asked = protocol.handle(JobsFinished({"j": Job([done], 0.5)}, 101.0, 103.0))
    assert asked == [Withdraw(0), Publish(0, ("results/r1",), {"late": {"b": ["sides/s1", "sides/s2"]}})]
    (commit,) = protocol.handle(ResultsPublished(103.5, host=4.0))
    assert isinstance(commit, Commit) and commit.before == start and commit.history == ()
    assert commit.manifest.batch == 0 and commit.manifest.input == "offsets"
    assert set(commit.manifest.chunks) == {"c0"} and commit.manifest.watermark == 5 * SECOND
    told = commit.manifest.progress
    assert told["durationMs"] == {"plan": 1000, "job": 2000, "commit": 500, "total": 3500}
    assert told["latencyMs"] == {"p50": 3000, "p95": 3000, "p99": 3000}
    assert (told["strategy"], told["exchange"], told["warnings"]) == ("Central(nodes=1)", "local", [])
    assert protocol.state is start, "nothing counts before its manifest is written"
    assert protocol.handle(ManifestWritten(commit.manifest)) == []
    assert protocol.state == commit.manifest and protocol.history == [commit.manifest.progress]


def test_only_the_first_batch_sweeps_and_withdraws_and_files_live_for_one_more_batch() -> None:
    tree = alone()
    protocol = Protocol(tree, tree.start())
    assert kinds(through(protocol, 0, report(chunks=[chunk("c0", 0, 0)]))) == [
        Sweep,
        RunJobs,
        Withdraw,
        Publish,
        Commit,
    ]
    purging = report(chunks=[chunk("c1", 0, 60)], second=60)  # the watermark passes c0
    assert kinds(through(protocol, 1, purging, at=60.0)) == [RunJobs, Publish, Commit]
    assert set(protocol.state.chunks) == {"c1"}
    asked = through(protocol, 2, report(second=61), at=61.0)
    assert asked[0] == Remove(frozenset({"chunks/c0"})), "batch 1 might have been asked for again until now"
    assert kinds(asked[1:]) == [RunJobs, Publish, Commit]
    assert kinds(through(protocol, 3, report(second=61), at=62.0)) == [RunJobs, Publish, Commit]


def test_a_batch_that_has_its_manifest_is_done_at_once_and_the_next_one_withdraws() -> None:
    tree = alone()
    found = Manifest(7, tree.start().streams, {"c": chunk("c", 0, 5)}, offered=7, chain=("six", "seven"))
    protocol = Protocol(tree, found, generation="000000000003-0123abcd")
    assert protocol.handle(BatchOffered(7)) == [
        Sweep(frozenset({"chunks/c", "six", "seven", Fence("000000000003-0123abcd", 8).path}))
    ]
    assert protocol.state is found and protocol.history == []
    asked = through(protocol, 8, report())
    assert kinds(asked) == [RunJobs, Withdraw, Publish, Commit] and asked[1] == Withdraw(8)


def test_a_batch_that_another_run_has_committed_is_retracted_and_changes_nothing() -> None:
    tree = alone()
    protocol = Protocol(tree, tree.start())
    protocol.handle(BatchOffered(0))
    protocol.handle(JobsFinished({"j": Job([report()])}))
    protocol.handle(ResultsPublished())
    assert protocol.handle(ManifestWritten(None)) == [Retract(0)]
    assert protocol.state == tree.start() and protocol.history == []


FILES = (Delivery("path", ("/out", "/out"), (("results/r1", "part-0"),)),)


def test_files_are_delivered_after_their_manifest_and_until_it_is_done() -> None:
    tree = alone()
    protocol = Protocol(tree, tree.start())
    assert protocol.handle(StateLoaded()) == []
    protocol.handle(BatchOffered(0))
    protocol.handle(JobsFinished({"j": Job([report(["results/r1"])])}))
    (commit,) = protocol.handle(ResultsPublished(deliveries=FILES))
    assert isinstance(commit, Commit) and commit.manifest.deliveries == FILES
    assert protocol.handle(ManifestWritten(commit.manifest)) == [Deliver(0, FILES)]
    asked = protocol.handle(BatchOffered(1))
    assert asked[0] == Deliver(0, FILES), "it failed, or was never tried"
    assert protocol.handle(FilesDelivered(0)) == []
    protocol.handle(JobsFinished({"j": Job([report()])}))
    (commit,) = protocol.handle(ResultsPublished())
    assert isinstance(commit, Commit) and commit.manifest.deliveries == ()
    assert protocol.handle(ManifestWritten(commit.manifest)) == []


def test_a_start_delivers_what_the_last_run_left() -> None:
    tree = alone()
    found = Manifest(7, tree.start().streams, digest="seven", offered=7, deliveries=FILES)
    protocol = Protocol(tree, found)
    assert protocol.handle(StateLoaded()) == [Deliver(7, FILES)]
    assert kinds(protocol.handle(BatchOffered(7))) == [Deliver, Sweep], "before anything is swept"
    protocol.handle(FilesDelivered(7))
    assert protocol.handle(BatchOffered(7)) == []


class Always(Spilling):
    """Has nothing to put off, and pays nothing in every round that there is time for."""

    def decide(self, tree: SpillingTree, after: Manifest, took: float, now: float, round: bool) -> Manifest:
        return after

    def round(self, tree: SpillingTree, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        return {"j": SpillPlan()} if seconds else {}


def test_a_round_is_written_down_before_it_runs_and_again_if_it_was_cut() -> None:
    tree = alone()
    protocol = Protocol(tree, tree.start(), spilling=Always())
    first = protocol.handle(QuietPeriod(seconds=1.0))
    assert kinds(first) == [Sweep, RecordIntent, RunJobs] and first[1] == RecordIntent(Round(0, {"j": SpillPlan()}))
    assert protocol.handle(QuietPeriod(seconds=9.0)) == first[1:], "writing it down may have failed"
    protocol.handle(JobsFinished({"j": Job([report()])}))
    (commit,) = protocol.handle(ResultsPublished())
    protocol.handle(ManifestWritten(commit.manifest))  # type: ignore[union-attr]
    assert protocol.begun is None and kinds(protocol.handle(QuietPeriod(seconds=1.0)))[-2:] == [RecordIntent, RunJobs]


def test_a_lull_delivers_what_is_left() -> None:
    tree = alone()
    found = Manifest(7, tree.start().streams, digest="seven", offered=7, deliveries=FILES)
    protocol = Protocol(tree, found, spilling=Always())
    assert protocol.undelivered and protocol.handle(QuietPeriod()) == [Deliver(7, FILES)]
    protocol.handle(FilesDelivered(7))
    assert not protocol.undelivered and protocol.handle(QuietPeriod()) == []


def finished(protocol: Protocol) -> list[Any]:
    """Drive a final round; return all that it was asked to do."""
    asked: list[Any] = list(protocol.handle(QuietPeriod(final=True)))
    for event in (JobsFinished({"j": Job([report(["results/r9"])])}), ResultsPublished(deliveries=FILES)):
        asked += protocol.handle(event)
    return asked + protocol.handle(ManifestWritten(replace(asked[-1].manifest, digest="final")))


def test_a_final_round_is_written_down_closes_everything_and_removes_the_state_at_once() -> None:
    tree = alone()
    protocol = Protocol(tree, tree.start())
    through(protocol, 0, report(chunks=[chunk("c0", 0, 0)]))
    before = protocol.state
    asked = finished(protocol)
    assert asked[:2] == [RecordIntent(Round(1, {}, final=True)), RunJobs(tree.plan(before, None, "final"))]
    assert asked[2] == Publish(1, ("results/r9",), {})
    commit = asked[3]
    assert isinstance(commit, Commit) and commit.manifest.final and not commit.manifest.chunks
    assert (commit.manifest.batch, commit.manifest.offered) == (1, 0)
    assert (commit.manifest.progress["round"], commit.manifest.progress["final"]) == (True, True)
    assert asked[4:] == [Deliver(1, FILES), Remove(frozenset({"chunks/c0", rounds.path_of(1)}))]
    assert not before.progress["final"]
    protocol.handle(FilesDelivered(1))
    assert protocol.handle(QuietPeriod(final=True)) == [], "once is enough"


def test_a_final_round_that_was_cut_is_run_again_whatever_is_asked_for_next() -> None:
    tree = alone()
    protocol = Protocol(tree, tree.start(), begun=Round(0, {}, final=True))
    with pytest.raises(StateError, match="must be finished before the next batch"):
        protocol.handle(BatchOffered(0))
    asked = protocol.handle(QuietPeriod())
    assert asked[1:] == [
        RecordIntent(Round(0, {}, final=True)),
        RunJobs(tree.plan(tree.start(), None, "final")),
    ]


def test_what_is_owed_is_paid_before_the_final_round() -> None:
    tree = alone()
    protocol = Protocol(tree, tree.start(), spilling=Once())
    told = []
    for batch in range(2):
        asked = finished(protocol)
        told += [action for action in asked if isinstance(action, RecordIntent)]
        assert protocol.state.final == (batch == 1)
    assert told == [RecordIntent(Round(0, {"j": SpillPlan()})), RecordIntent(Round(1, {}, final=True))]


class Once(Always):
    """Pays nothing in one round, but only where all is to be paid."""

    def round(self, tree: SpillingTree, state: Manifest, all: bool, seconds: float | None) -> dict[str, SpillPlan]:
        return {"j": SpillPlan()} if all and state.batch < 0 else {}


def test_a_start_after_the_final_round_sweeps_and_refuses_rows_but_not_a_batch_without_any() -> None:
    tree = alone()
    last = Manifest(7, tree.start().streams, digest="seven", offered=6, chain=("seven",))
    closed = replace(last, final=True, deliveries=FILES)
    protocol = Protocol(tree, closed)
    with pytest.raises(StateError, match="The checkpoint at nowhere was closed for good"):
        protocol.handle(BatchOffered(7))
    needed = frozenset({"seven"})
    assert protocol.handle(QuietPeriod(final=True)) == [Deliver(7, FILES), Sweep(needed)]
    protocol.handle(FilesDelivered(7))
    assert protocol.handle(BatchOffered(6)) == [], "Spark's own commit was lost: this batch is in"
    asked = protocol.handle(BatchOffered(7, rows=False))
    assert asked == [RunJobs(tree.plan(closed, None))]
    for event in (JobsFinished({"j": Job([TaskReport(0)])}), ResultsPublished()):
        asked = protocol.handle(event)
    assert isinstance(asked[-1], Commit) and asked[-1].manifest.final and asked[-1].manifest.offered == 7


def test_nothing_is_withdrawn_or_published_if_a_node_did_not_report() -> None:
    tree = alone(nodes=3)
    protocol = Protocol(tree, tree.start())
    protocol.handle(BatchOffered(0))
    with pytest.raises(StateError, match=r"Batch 0: no report from nodes \[1, 2\]"):
        protocol.handle(JobsFinished({"j": Job([report()])}))


@pytest.mark.parametrize("event", [JobsFinished({}), ResultsPublished(), ManifestWritten(None)])
def test_events_of_no_batch_are_errors(event: Event) -> None:
    tree = alone()
    with pytest.raises(StateError, match="No batch is in progress"):
        Protocol(tree, tree.start()).handle(event)


def test_inner_joins_run_first_and_are_committed_with_the_outer_one() -> None:
    inner = JoinTree(operator("a", "b", run="r-j_1"), path="j_1")
    outer = Operator(Query((stream("c"), stream("ab", NestedTimes(None, delayed=False)))), Central(), STORE, "r-j")
    tree = JoinTree(outer, {1: inner})
    protocol = Protocol(tree, tree.start())
    run = protocol.handle(BatchOffered(0))[-1]
    assert isinstance(run, RunJobs) and list(run.plans) == ["j_1", "j"]
    jobs = {
        "j_1": Job([report(["results/inner"], [chunk("ci", 0, 3)], sides=[("late", 0, "sides/a")], second=3)]),
        "j": Job([report(["results/outer"], [chunk("co", 0, 4)], sides=[("late", 0, "sides/c")], second=4)]),
    }
    publish = protocol.handle(JobsFinished(jobs))[-1]
    sides = {"late": {"a": ["sides/a"], "c": ["sides/c"]}}
    assert publish == Publish(0, ("results/outer",), sides, inner=("results/inner",))
    (commit,) = protocol.handle(ResultsPublished())
    assert isinstance(commit, Commit)
    assert set(commit.manifest.chunks) == {"co"} and set(commit.manifest.inner[1].chunks) == {"ci"}
    assert commit.manifest.files == {"chunks/co", "chunks/ci"}


def test_batches_that_are_late_are_told_once_and_noted_in_every_one() -> None:
    tree = alone()
    protocol = Protocol(tree, tree.start(), due=2.0)
    asked = [through(protocol, number, report(second=number), at=10.0 * number) for number in range(8)]
    warned = [action.message for actions in asked for action in actions if isinstance(action, Warn)]
    assert len(warned) == 1 and "took longer than the trigger's 2 s" in warned[0]
    late = ["overload" in told for told in protocol.history]
    assert late == sorted(late) and late[-1] and protocol.state.learned.overdue == 8
    quick = Protocol(tree, tree.start(), due=60.0)
    through(quick, 0, report())
    assert quick.state.learned.overdue == 0 and "overload" not in quick.history[0]


def test_a_warning_that_goes_on_is_told_once() -> None:
    tree = alone()
    protocol = Protocol(tree, tree.start())
    seconds = [0, 1000, 2000, 2001, 5000]
    asked = [through(protocol, at, report(second=second)) for at, second in enumerate(seconds)]
    told = [[action.message[:13] for action in actions if isinstance(action, Warn)] for actions in asked]
    assert told == [[], ["The watermark"], [], [], ["The watermark"]]
    assert [len(found["warnings"]) for found in protocol.history] == [0, 1, 1, 0, 1]


def test_times_are_those_between_the_steps() -> None:
    told = time_steps(0.0, 0.0011, 0.5, 0.75)
    assert told["timestamp"] == "1970-01-01T00:00:00.000Z"
    assert told["durationMs"] == {"plan": 1.1, "job": 498.9, "commit": 250.0, "total": 750.0}
    assert measure_latency([], now=5.0) == {}
    assert describe_freshness({}) == describe_freshness({**told, "batchId": 0, "latencyMs": {}}) == []
    assert doctest.testmod(progress).failed == 0
    assert measure_latency([(1.0, 1), (4.0, 99)], now=5.0) == {"p50": 1000.0, "p95": 1000.0, "p99": 1000.0}
