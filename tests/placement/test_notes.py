"""What strategies write down for their next batch: it survives JSON, no result depends on it, tasks don't get it."""

import json
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.batch.scatter import Forgetful
from tests.batch.test_engine import SCHEMA, cases, run_case, scattered, strategies_of
from tests.budget import FEW
from watersmeet.adapt.auto import Auto, AutoNotes
from watersmeet.batch.operator import Operator
from watersmeet.placement import ATR, CTR, DSJ, PSP, Central, Layout, Notes, Strategy
from watersmeet.placement.atr import AtrNotes
from watersmeet.placement.ctr import CtrNotes
from watersmeet.placement.dsj import DsjNotes
from watersmeet.placement.slices_by_age import PspNotes
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.manifest.view import StateView, StoredNotes, StreamView
from watersmeet.state.store.store import Store


def busy(batch: int) -> StateView:
    """Two streams with a chunk of each batch's time."""
    latest = 10 * batch + 9
    chunks = tuple(
        Chunk(f"{at}-{b}", at, b, 10 * b, 10 * b + 10, WHOLE, 5, 50, 10 * b, 10 * b + 9, (0,), Place("p", 0, 0, ""))
        for at in (0, 1)
        for b in range(max(0, batch - 3), batch + 1)
    )
    return StateView((StreamView(40, latest, 5, 10, 30, 0.5),) * 2, chunks, names=("a", "b"), batch=batch + 1)


@pytest.mark.parametrize(
    "strategy, kind",
    [
        (PSP(3), PspNotes),
        (PSP(3, relocation="passive", lengths=(3, 2)), PspNotes),
        (DSJ(3), DsjNotes),
        (ATR(3, "10 us", search=True), AtrNotes),
        (CTR(3), CtrNotes),
        (Auto(3), AutoNotes),
    ],
)
def test_notes_come_back_from_json_as_they_were(strategy: Strategy, kind: type[Notes]) -> None:
    restored = StoredNotes()
    for batch in range(4):
        layout, after = strategy.plan(replace(busy(batch), notes=restored)), busy(batch + 1)
        notes = layout.keep(after)
        restored = StoredNotes(*json.loads(json.dumps(notes)))
        assert kind.read(restored) == kind.read(notes) is not None
        assert strategy.plan(replace(after, notes=restored)) == strategy.plan(replace(after, notes=notes))
    assert kind.read(restored._replace(version=kind.VERSION + 1)) is None
    assert kind.read(restored._replace(by="OtherNotes")) is None
    assert kind.read(restored._replace(notes={})) is None


def test_a_strategy_without_notes_stores_nothing() -> None:
    assert Central().plan(busy(0)).keep(busy(1)) == StoredNotes()


@dataclass(frozen=True, slots=True)
class Count(Notes):
    batches: int

    @classmethod
    def from_json(cls, plain: Any) -> "Count":
        return cls(int(plain["batches"]))


@pytest.mark.parametrize("notes", [{}, {"batches": "many"}, {"batches": None}])
def test_notes_that_make_no_sense_are_as_good_as_none(notes: dict[str, Any]) -> None:
    assert Count.read(Count(3).kept()) == Count(3)
    assert Count.read(StoredNotes("Count", notes, 1)) is None


def test_of_a_layout_only_the_placement_travels_to_tasks(tmp_path: Path) -> None:
    query = Query(tuple(StreamSpec(name, SCHEMA, 1, Sliding(10), 0) for name in "ab"))
    operator = Operator(query, Auto(3), Store(str(tmp_path)), "run")
    plan = operator.plan(operator.start())
    there = pickle.loads(pickle.dumps(plan))
    assert there.placement == plan.placement
    assert there.layout == Layout(plan.placement) != plan.layout


@pytest.mark.long
@FEW
@given(case=st.one_of(cases(), scattered()), data=st.data())
def test_no_result_depends_on_notes(case: dict[str, Any], data: st.DataObject) -> None:
    noting = st.one_of(
        st.integers(1, 5).map(PSP),
        st.builds(PSP, st.integers(1, 5), relocation=st.just("passive")),
        st.integers(1, 5).map(DSJ),
        st.builds(ATR, st.integers(1, 5), st.sampled_from(["1 us", "3 us", "12 us"]), search=st.booleans()),
        st.builds(CTR, st.integers(1, 5), st.sampled_from(["1 us", "3 us", "12 us"])),
        st.integers(1, 5).map(Auto),
        strategies_of,
    )
    first, then = data.draw(noting), data.draw(noting)
    case["strategies"] = [Forgetful(data.draw(st.sampled_from([first, first, then]))) for _ in case["batches"]]
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results
