"""What groups of inner joins are worth to the final output, and where their results go, against counts by hand."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from tests.batch.extremes import EXTREMES
from tests.batch.test_engine import strategies_of
from tests.budget import one_in, search
from tests.spilling.dice import Dice
from watersmeet.limits import limited
from watersmeet.placement import PSP, Hash
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import RESULT_TIME, Output, Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.runtime.commit_protocol import JobsFinished, RunJobs
from watersmeet.runtime.tree import Job
from watersmeet.spilling.plan import SpillingReport
from watersmeet.spilling.tallies import code_of, codes_of
from watersmeet.spilling.units import Group, Tally, group_of
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

LEAF = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("g", pa.int64())])
WINDOW, DELAY = 12, 20
PLANS: dict[str, Any] = {
    "linear": (("a", "b"), "c"),
    "long": ((("a", "b"), "c"), "d"),
    "bushy": (("a", "b"), ("c", "d")),
    "semi-bushy": (("a", "b"), "c", ("d", "e")),
}
"""Joins by their streams, which are letters or joins."""


def leaves(plan: Any) -> list[str]:
    return [plan] if isinstance(plan, str) else [leaf for part in plan for leaf in leaves(part)]


def name_of(plan: Any) -> str:
    return "".join(leaves(plan))


def query_of(plan: Any, root: bool = True) -> Query:
    """Return a join: equal in k if it is of letters, else in g; flat, it shows the ids of all letters."""
    schemas = [LEAF if isinstance(part, str) else query_of(part, False).output_schema for part in plan]
    times = ["ts" if isinstance(part, str) else "at" for part in plan]
    named = zip(plan, schemas, times, strict=True)
    streams = tuple(StreamSpec(name_of(p), s, s.names.index(t), Sliding(WINDOW), DELAY) for p, s, t in named)
    by = "k" if all(isinstance(part, str) for part in plan) else "g"
    text = " AND ".join(f"{streams[0].name}.{by} = {other.name}.{by}" for other in streams[1:])
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    if root:
        return Query(streams, conjuncts, text)
    sources = {"id": Column(0, schemas[0].names.index("id"))}
    for at, part in enumerate(plan):
        sources |= {leaf: Column(at, schemas[at].names.index(label_of(part, leaf))) for leaf in leaves(part)}
    sources |= {"k": Column(0, schemas[0].names.index("k")), "g": Column(1, schemas[1].names.index("g"))}
    return Query(streams, conjuncts, text, tuple(Output(n, c) for n, c in {**sources, "at": RESULT_TIME}.items()))


def label_of(part: Any, leaf: str) -> str:
    """Return the column of a stream that holds a letter's id."""
    return "id" if isinstance(part, str) else leaf


def inner_of(plan: Any, path: str = "j") -> Iterator[tuple[str, Any]]:
    """Yield the joins within a join, by path."""
    for at, part in enumerate(plan):
        if not isinstance(part, str):
            yield f"{path}_{at}", part
            yield from inner_of(part, f"{path}_{at}")


Key = tuple[int, ...]
"""The ids of the letters that a row is made of."""


@dataclass
class Watched(Run):
    """Notes the groups that members of results are in, batch by batch, as the chunks themselves say."""

    plan: Any = ()
    traces: dict[tuple[str, Key], set[int]] = field(default_factory=dict)
    credits: Counter[int] = field(default_factory=Counter)
    crossings: Counter[tuple[int, int]] = field(default_factory=Counter)
    worth: dict[str, Counter[Group]] = field(default_factory=dict)
    told: dict[str, list[Job]] = field(default_factory=dict)

    def run(self, action: RunJobs) -> JobsFinished:
        done = super().run(action)
        parts = {"j": self.plan, **dict(inner_of(self.plan))}
        for path, plan in action.plans.items():
            self.told.setdefault(path, []).append(done.jobs[path])
            new = [chunk for report in done.jobs[path].reports for chunk in report.state.fresh]
            if self.traced:
                self._cross(path, parts[path], new, plan.spilling.slice)
                self._trace(path, parts[path], [*plan.chunks, *new], plan.spilling.slice, done.jobs[path])
        return done

    def _rows_of(self, part: Any, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, Key]]:
        for chunk in chunks:
            stream, rows = part[chunk.stream], self.store.open(chunk, pa.int64())
            names = (LEAF if isinstance(stream, str) else query_of(stream, False).output_schema).names
            ids = [Column(chunk.stream, names.index(label_of(stream, leaf))) for leaf in leaves(stream)]
            for key in zip(*(rows.column(column).to_pylist() for column in ids), strict=True):
                yield chunk, key

    def _cross(self, path: str, part: Any, new: Iterable[Chunk], slice: int) -> None:
        for chunk, key in self._rows_of(part, (chunk for chunk in new if chunk.bucket.first)):
            for code in self.traces.get((f"{path}_{chunk.stream}", key), ()):
                self.crossings[code, group_of(chunk, slice).partition] += 1

    def _trace(self, path: str, part: Any, chunks: Iterable[Chunk], slice: int, job: Job) -> None:
        groups = {(chunk.stream, key): group_of(chunk, slice) for chunk, key in self._rows_of(part, chunks)}
        for members in self._results(path, part, job):
            own = {groups[at, key] for at, key in enumerate(members)}
            inner = [self.traces.get((f"{path}_{at}", key), set()) for at, key in enumerate(members)]
            self.worth.setdefault(path, Counter()).update(own)
            whole = tuple(number for key in members for number in key)
            self.traces[path, whole] = {code_of(path, group) for group in own}.union(*inner)
            for found in inner if path == "j" else ():
                self.credits.update(found)

    def _results(self, path: str, part: Any, job: Job) -> Iterator[list[Key]]:
        for row in (row for file in job.files for row in self._read(file).to_pylist()):
            flat = path != "j"
            yield [
                tuple(row[leaf] if flat else row[name_of(stream)][label_of(stream, leaf)] for leaf in leaves(stream))
                for stream in part
            ]


def watched(plan: Any, folder: str, **how: Any) -> Watched:
    inner = {path: query_of(part, False) for path, part in inner_of(plan)}
    return Watched(query_of(plan), Store(folder), name="run", inner=inner, plan=plan, **how)


def homes(plan: Any, path: str = "j") -> dict[str, tuple[str, int]]:
    """Return the join and position of each letter."""
    found: dict[str, tuple[str, int]] = {}
    for at, part in enumerate(plan):
        found |= {part: (path, at)} if isinstance(part, str) else homes(part, f"{path}_{at}")
    return found


def feed(run: Watched, case: Mapping[str, Any], every: int = 1) -> Watched:
    ids, where = count(), homes(run.plan)
    for at, rows in enumerate(case["batches"]):
        run.traced = case.get("traced", {}).get(at, run.traced)
        given: dict[str, list[Any]] = {}
        for name, ts, k, g in rows:
            path, stream = where[name]
            given.setdefault(path, []).append((stream, {"id": next(ids), "ts": 6 * at + ts, "k": k, "g": g}))
        with limited(**case["extremes"], crossing_rows=every):
            run.step(case["strategies"][at], given.pop("j", []), case["exchanges"][at], within=given)
            if case["lulls"][at]:
                run.run_round(case["strategies"][at], case["exchanges"][at])
    return run


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    plan = PLANS[draw(st.sampled_from(sorted(PLANS)))]
    row = st.tuples(st.sampled_from(leaves(plan)), st.integers(0, 9), st.integers(0, 2), st.integers(0, 1))
    batches = draw(st.lists(st.lists(row, min_size=4, max_size=16), min_size=3, max_size=5))
    return {
        "plan": plan,
        "batches": batches,
        "strategies": [draw(strategies_of) for _ in batches],
        "exchanges": [draw(st.sampled_from(["local", "shuffle"])) for _ in batches],
        "extremes": draw(st.sampled_from(EXTREMES)),
        "lulls": [draw(st.booleans()) for _ in batches],
        "dice": draw(st.sampled_from([None, Dice(3, 5), Dice(4, 40, split=True)])),
    }


def summed(parts: Iterable[Mapping[Any, int]]) -> Counter[Any]:
    return sum(map(Counter, parts), Counter())


@pytest.mark.long
@search(10)
@given(cases())
def test_counts_are_those_by_hand(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run = feed(watched(case["plan"], folder, traced=True, spilling=case["dice"]), case)
    assert summed(job.credits for job in run.told["j"]) == run.credits
    assert not any(job.credits for path, jobs in run.told.items() for job in jobs if path != "j")
    assert summed(job.crossings for jobs in run.told.values() for job in jobs) == run.crossings
    for path, jobs in run.told.items():
        told = summed({g: int(t.results) for g, t in job.groups.items() if t.results} for job in jobs)
        assert told == run.worth.get(path, Counter())


def _by_batch(run: Run) -> dict[str, Counter[str]]:
    """Return what each inner join put out in each batch, in no order: Auto may have measured otherwise."""
    return {path: Counter(map(repr, rows)) for path, rows in run.within.items()}


@pytest.mark.long
@search(6)
@given(cases())
def test_nothing_else_changes(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder, TemporaryDirectory() as other:
        traced, plain = (
            feed(watched(case["plan"], at, traced=which, spilling=case["dice"]), case)
            for at, which in ((folder, True), (other, False))
        )
        spills = case["dice"] is not None
        for run in (traced, plain) if spills else ():
            while run.run_round(case["strategies"][-1], case["exchanges"][-1], all=True):
                pass
    assert (traced.results, traced.sides) == (plain.results, plain.sides)
    fields = ["inputRows", "lateRows", "watermark"]
    if not spills:  # what is spilled depends on who owns what, and that on CPU times
        assert _by_batch(traced) == _by_batch(plain)
        fields += ["outputRows", "distinctRows", "samples"]
    of_batches = [[p for p in run.progress if p["inputRows"] or not spills] for run in (traced, plain)]
    one, other_ = ([[p.get(name) for name in fields] for p in progress] for progress in of_batches)
    assert one == other_
    reports = [report for jobs in plain.told.values() for job in jobs for report in job.reports]
    assert not any(report.spilling.credits or report.spilling.crossings for report in reports)


# -- by hand


def steady(plan: Any, batches: int, **how: Any) -> dict[str, Any]:
    rows = [(name, ts, ts % 3, ts % 5) for ts in range(10) for name in leaves(plan)]
    how = {"strategies": [Hash(2)] * batches, "exchanges": ["local"] * batches, **how}
    return {"batches": [rows] * batches, "lulls": [False] * batches, "extremes": {}, **how}


@pytest.mark.long
@pytest.mark.parametrize("exchange", one_in(2, ["local", "shuffle"]))
@pytest.mark.parametrize("plan", ["linear", "bushy"])
def test_hashed_joins(tmp_path: Path, plan: str, exchange: str) -> None:
    run = watched(PLANS[plan], str(tmp_path), traced=True)
    feed(run, steady(run.plan, 3, exchanges=[exchange] * 3))
    credits, crossings = (summed(getattr(job, name) for job in run.told["j"]) for name in ("credits", "crossings"))
    assert credits == run.credits and crossings == run.crossings
    known = codes_of("j_0", (group for job in run.told["j_0"] for group in job.groups))
    assert len({known[code].partition for code in credits if code in known}) > 1
    assert all(code in known for code in credits) == (plan == "linear")
    assert len({partition for _, partition in crossings}) > 1


def test_crossings_are_a_sample(tmp_path: Path) -> None:
    run = watched(PLANS["linear"], str(tmp_path), traced=True)
    feed(run, steady(run.plan, 3), every=10)
    some, all_ = (sum(found.values()) for found in (summed(j.crossings for j in run.told["j"]), run.crossings))
    assert 0.05 * all_ < some < 0.2 * all_


@pytest.mark.long
def test_tracing_begins_and_ends_in_mid_run(tmp_path: Path) -> None:
    """Chunks with traces and without are merged, and only results that have some give credit."""
    case = steady(PLANS["linear"], 6, strategies=[PSP(2)] * 6, extremes={"merged_chunks": 2, "tier_rows": 1})
    run = feed(watched(PLANS["linear"], str(tmp_path)), case | {"traced": {2: True, 4: False}})
    plain = feed(watched(PLANS["linear"], str(tmp_path / "plain")), case)
    assert run.results == plain.results and run.credits
    jobs = run.told["j"]
    assert [bool(job.credits) for job in jobs] == [False, False, True, True, False, False]
    assert summed(job.credits for job in jobs) == run.credits


def test_reports_add_up() -> None:
    one, two = Group(2, 0, 0), Group(2, 1, 0)
    report = SpillingReport(groups={one: Tally(1, 2)}, credits={7: 1}, crossings={(7, 0): 2})
    report.add(SpillingReport(groups={one: Tally(1, 1), two: Tally(3)}, credits={7: 2, 8: 1}, crossings={(7, 1): 1}))
    assert report.groups == {one: Tally(2, 3), two: Tally(3)}
    assert (report.credits, report.crossings) == ({7: 3, 8: 1}, {(7, 0): 2, (7, 1): 1})


def test_the_trace_has_a_name_of_its_own() -> None:
    query = query_of(PLANS["linear"][0], False)
    taken = Query(query.streams, outputs=(Output("_Trace", Column(0, 0)), Output("__trace", Column(0, 0))))
    assert (query.trace_name, taken.trace_name) == ("_trace", "___trace")
    assert query.file_schema == query.traced_schema == query.output_schema
