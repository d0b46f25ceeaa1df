"""What the bench of auctions on Spark makes of a run, and that each competitor finds what it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.measurement import Measurement, run
from bench.metadata import spark_workarounds
from bench.metadata.competitor import COMPETITORS, Setting, batch_figures
from bench.metadata.reference import lost_to_ttl, outcome, reference
from bench.metadata.spark_workarounds import by_batch, has_protobuf
from watersmeet.workload import auctions, write_batches


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("auctions")
    write_batches(auctions(2, 60, np.random.default_rng(0), bids=3), folder)
    return folder


def test_a_ttl_is_as_much_shorter_as_the_replay_is_faster() -> None:
    assert Setting(Path(), ttl=120, pace=1).ttl_ms == 24_000
    assert Setting(Path(), ttl=120, pace=15, files_per_trigger=6).ttl_ms == 60_000


def test_state_of_all_operators_counts() -> None:
    operators = [{"numRowsTotal": 5, "memoryUsedBytes": 100}, {"numRowsTotal": 7, "memoryUsedBytes": 11}]
    told = {"batchId": 2, "numInputRows": 9, "durationMs": {"triggerExecution": 40}, "stateOperators": operators}
    assert batch_figures(told, Setting(Path(), 1, 1, files_per_trigger=4)) == {
        "files": 12,
        "input_rows": 9,
        "ms": 40,
        "state_rows": 12,
        "state_bytes": 111,
    }


def test_batches_stand_beside_what_is_needed(files: Path) -> None:
    own = [{"files": 2, "state_rows": 70, "state_bytes": 2**20, "ms": 30}]
    rows = by_batch(files, {"x": own})
    assert len(rows) == 12
    assert [rows[1][f"x: {name}"] for name in ("rows", "MB", "ms")] == [70, 1.0, 30]
    assert rows[0]["x: rows"] == rows[2]["x: rows"] == ""
    assert rows[0]["came"] < rows[-1]["came"] and rows[-1]["needed"] < rows[-1]["came"]


def test_a_longer_ttl_loses_less(files: Path) -> None:
    lost = [lost_to_ttl(files, seconds) for seconds in (0, 35, 60)]
    assert reference(files).count == lost[0] > lost[1] > lost[2] == 0


def test_without_protobuf_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spark_workarounds, "has_protobuf", lambda: False)
    given = spark_workarounds.parse(["--competitors", "TTL"])
    (measured,) = spark_workarounds.measure(tmp_path, tmp_path, given)
    assert measured == Measurement("TTL", note="needs protobuf 6.33.5 or later")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", list(COMPETITORS))
def test_competitors_find_the_results(name: str, files: Path, tmp_path: Path) -> None:
    if COMPETITORS[name].settings and not has_protobuf():
        pytest.skip("transformWithState needs protobuf")
    arguments = ["--files", str(files), "--out", str(tmp_path), "--ttl", "3600", "--pace", "1"]
    measured = run(name, "bench.metadata.competitor", arguments)
    assert measured.rows == reference(files).count
    assert outcome(tmp_path / "results") == reference(files)
    figures: list[dict[str, Any]] = json.loads((tmp_path / "batches.json").read_text())
    assert [one["files"] for one in figures] == list(range(1, 13))
