"""What is said of rows that can't be joined, and what is left when a task ends early."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.batch.intake import Intake
from watersmeet.batch.late_rows import RowAdmission
from watersmeet.batch.operator import Operator
from watersmeet.batch.plan import BatchPlan, ObservingPlan, latest_allowed_times, start
from watersmeet.batch.side_outputs import sample_row
from watersmeet.exchange.message import Wire
from watersmeet.exchange.tasks import Relay
from watersmeet.placement import Central
from watersmeet.predicate.model import Dialect, HiddenColumn
from watersmeet.query import query
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import FOREVER, Sliding
from watersmeet.state.manifest.manifest import Manifest, StreamState
from watersmeet.state.store.store import Store
from watersmeet.testing.run import attempt

TIME = pa.timestamp("us", "UTC")
FAR = 2**62
NESTED = pa.struct([("list", pa.list_(TIME)), ("map", pa.map_(pa.string(), TIME))])
SCHEMA = pa.schema([("id", pa.int64()), ("ts", TIME), ("other", TIME), ("day", pa.date32()), ("nested", NESTED)])


def planned(folder: Path) -> BatchPlan:
    query = Query(tuple(StreamSpec(name, SCHEMA, 1, Sliding(10), 0) for name in "ab"))
    return Operator(query, Central(), Store(str(folder)), "run").plan(start(query))


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
        "ts": "None",
        "id": "7",
        "other": str(FAR),
        "day": str(2**31 - 1),
        "nested": str({"list": [FAR], "map": [("k", FAR)]})[:60],
    }


def test_what_a_test_denies_is_dropped_and_what_it_raised_for_is_kept(tmp_path: Path) -> None:
    hidden = (HiddenColumn("1/id > 0", pa.bool_()), HiddenColumn("1/id > 0 failed", pa.bool_(), failed=True))
    batch = planned(tmp_path)
    tested = replace(batch.query.streams[0], hidden=hidden, tests=(query.Test(5, 6),))
    batch = replace(batch, query=replace(batch.query, streams=(tested, batch.query.streams[1])))
    columns = {"ts": pa.array([1] * 4), "hash": pa.array([0] * 4), "s0_0": pa.array(range(4))}
    columns |= {"s0_5": pa.array([True, False, None, None]), "s0_6": pa.array([False, False, False, True])}
    admission = RowAdmission(batch, "t")
    assert admission.admit(0, pa.record_batch(columns)).column("s0_0").to_pylist() == [0, 3]
    assert admission.report.streams[0].accepted == 4  # they came in time: it is the condition that leaves them out


def arrived(times: list[int | None]) -> pa.RecordBatch:
    columns: dict[str, Any] = {"ts": pa.array(times, pa.int64()), "hash": pa.array([0] * len(times))}
    return pa.record_batch(columns | {"s0_0": pa.array(range(len(times)), pa.int64())})


def test_a_row_from_far_ahead_is_rejected_and_not_believed(tmp_path: Path) -> None:
    streams = tuple(StreamSpec(name, SCHEMA.remove(4).remove(3).remove(2), 1, Sliding(10), 0) for name in "ab")
    query = Query((replace(streams[0], ahead=60_000_000), streams[1]))
    before = Manifest(4, (StreamState(latest=500), StreamState(latest=1000)), watermark=400)
    batch = Operator(query, Central(), Store(str(tmp_path)), "run", sides=True).plan(before, now=700)
    assert batch.intake.latest_allowed == (60_001_000, None)
    admission = RowAdmission(batch, "t")
    assert admission.admit(0, arrived([700, FAR, 60_001_000, 60_001_001, None, 399])).num_rows == 2
    (seen, _) = admission.report.streams
    assert (seen.rejected, seen.late, seen.latest) == (3, 1, 60_001_000)
    assert (seen.too_far, seen.furthest) == (2, FAR)
    assert [(sample["kind"], sample["reason"], sample["row"]["id"]) for sample in admission.report.samples] == [
        ("rejected", "no event time", "4"),
        ("rejected", "event time more than 1 minute ahead of the clock and of all streams", "1"),
        ("rejected", "event time more than 1 minute ahead of the clock and of all streams", "3"),
        ("late", "before the watermark", "5"),
    ]
    assert [(kind, stream) for kind, stream, _ in admission.report.files] == [
        ("rejected", 0),
        ("rejected", 0),
        ("late", 0),
    ]


@pytest.mark.parametrize(
    ("samples", "rows"),
    [
        (None, [{"ts": "None", "id": "0"}, {"ts": "None", "id": "1"}]),
        (frozenset({"id", "other"}), [{"id": "0"}, {"id": "1"}]),
        (frozenset({"ts"}), [{"ts": "None"}] * 2),
        (frozenset[str](), []),
    ],
)
def test_samples_show_the_columns_that_they_may(
    tmp_path: Path, samples: frozenset[str] | None, rows: list[dict[str, str]]
) -> None:
    admission = RowAdmission(replace(planned(tmp_path), observing=ObservingPlan(samples)), "t")
    admission.admit(0, arrived([None, None]))
    assert [sample["row"] for sample in admission.report.samples] == rows
    assert admission.report.streams[0].rejected == 2


def test_times_without_a_zone_are_compared_with_the_clock_on_the_wall() -> None:
    schema = pa.schema([("ts", pa.timestamp("us"))])
    streams = tuple(StreamSpec(name, schema, 0, Sliding(10), 0, ahead=5) for name in "ab")
    for zone, hours in {"UTC": 0, "Asia/Tokyo": 9, "GMT-03:00": -3, "no such zone": 0}.items():
        query = Query(streams, dialect=Dialect(zone))
        assert latest_allowed_times(query, start(query), 7) == (hours * 3_600_000_000 + 12,) * 2
    latest = (StreamState(), StreamState(latest=FOREVER - 1))
    assert latest_allowed_times(query, Manifest(0, latest), 7) == (FOREVER,) * 2


@pytest.mark.parametrize("when", ["while it takes", "while it probes"])
def test_a_hop_that_ends_early_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    os.mkdir(tmp_path / "temp")
    batch = planned(tmp_path / "store")
    relay = Relay(batch, 0, attempt())

    def blocks() -> Any:
        yield Wire(batch.query).messages([0], b"") if when == "while it takes" else Wire(batch.query).block(0, {})
        assert os.listdir(tmp_path / "temp") == []

    if when == "while it takes":
        with pytest.raises(EOFError):
            relay.read(blocks())
    else:
        relay.read(blocks())
        next(relay.actions(), None)
    assert os.listdir(tmp_path / "temp") == []


def test_a_punctuation_from_a_frame_is_shown_with_what_it_says() -> None:
    hidden = (
        HiddenColumn("a frame of their own", pa.bool_(), punctuation=True),
        HiddenColumn("lo", pa.int64(), punctuation=True),
    )
    spec = StreamSpec("a", pa.schema([("ts", TIME), ("k", pa.int64())]), 0, Sliding(10), 0, hidden=hidden)
    rows = pa.record_batch({"ts": [7, 8], "s0_1": [None, 5], "s0_2": [True, None], "s0_3": [3, None]})
    assert sample_row(spec, 0, rows, 0, None) == {"ts": "1970-01-01T00:00:00.000007Z", "k": "None", "lo": "3"}
    assert sample_row(spec, 0, rows, 1, None) == {"ts": "1970-01-01T00:00:00.000008Z", "k": "5"}
