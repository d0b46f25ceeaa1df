"""What is said of rows that can't be joined, and what is left when a task ends early."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine import WORKER
from watersmeet import query
from watersmeet.engine.intake import Intake, Judge
from watersmeet.engine.plan import BatchPlan, plan, start
from watersmeet.engine.relay import Relay
from watersmeet.engine.ship import Wire
from watersmeet.kernel.window import Sliding
from watersmeet.placement import Central
from watersmeet.predicate.model import Hidden
from watersmeet.query import Query, StreamSpec
from watersmeet.state.store import Store

TIME = pa.timestamp("us", "UTC")
FAR = 2**62
NESTED = pa.struct([("list", pa.list_(TIME)), ("map", pa.map_(pa.string(), TIME))])
SCHEMA = pa.schema([("id", pa.int64()), ("ts", TIME), ("other", TIME), ("day", pa.date32()), ("nested", NESTED)])


def planned(folder: Path) -> BatchPlan:
    query = Query(tuple(StreamSpec(name, SCHEMA, 1, Sliding(10), 0) for name in "ab"))
    return plan(query, start(query), Central(), Store(str(folder)), "run")


def test_a_row_without_event_time_is_shown_whatever_its_other_times_are(tmp_path: Path) -> None:
    far = pa.array([FAR], pa.int64()).cast(TIME)
    one = pa.array([0, 1], pa.int32())
    lists, maps = pa.ListArray.from_arrays(one, far), pa.MapArray.from_arrays(one, ["k"], far)
    columns: dict[str, Any] = {"ts": pa.array([None], pa.int64()), "hash": pa.array([0]), "s0_0": pa.array([7])}
    columns |= {"s0_2": far, "s0_3": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())}
    columns |= {"s0_4": pa.StructArray.from_arrays([lists, maps], fields=list(NESTED))}
    intake = Intake(planned(tmp_path), "t", 0)
    intake.add(0, pa.record_batch(columns))
    (sample,) = intake.finish().samples
    assert sample["row"] == {
        "event time (µs)": "None",
        "id": "7",
        "other": str(FAR),
        "day": str(2**31 - 1),
        "nested": str({"list": [FAR], "map": [("k", FAR)]})[:60],
    }


def test_what_a_test_denies_is_dropped_and_what_it_raised_for_is_kept(tmp_path: Path) -> None:
    hidden = (Hidden("1/id > 0", pa.bool_()), Hidden("1/id > 0 failed", pa.bool_(), failed=True))
    batch = planned(tmp_path)
    tested = replace(batch.query.streams[0], hidden=hidden, tests=(query.Test(5, 6),))
    batch = replace(batch, query=replace(batch.query, streams=(tested, batch.query.streams[1])))
    columns = {"ts": pa.array([1] * 4), "hash": pa.array([0] * 4), "s0_0": pa.array(range(4))}
    columns |= {"s0_5": pa.array([True, False, None, None]), "s0_6": pa.array([False, False, False, True])}
    judge = Judge(batch, "t")
    assert judge.accepted(0, pa.record_batch(columns)).column("s0_0").to_pylist() == [0, 3]
    assert judge.report.streams[0].accepted == 4  # they came in time: it is the condition that leaves them out


@pytest.mark.parametrize("when", ["while it takes", "while it probes"])
def test_a_hop_that_ends_early_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    os.mkdir(tmp_path / "temp")
    batch = planned(tmp_path / "store")
    relay = Relay(batch, 0, 0, "t", WORKER)

    def blocks() -> Any:
        yield Wire(batch.query).messages([0], b"") if when == "while it takes" else Wire(batch.query).block(0, {})
        assert os.listdir(tmp_path / "temp") == []

    if when == "while it takes":
        with pytest.raises(EOFError):
            relay.take(blocks())
    else:
        relay.take(blocks())
        next(relay.probe(), None)
    assert os.listdir(tmp_path / "temp") == []
