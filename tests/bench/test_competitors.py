"""The competitors of the benches answer what the oracle answers, so that their times may be compared."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import common, measurement
from bench.common import STREAMS, WINDOW, Task
from bench.joins.references import duckdb_band, numpy_band, numpy_images
from bench.measurement import Measurement, UsageSampler, run
from watersmeet.testing import oracle
from watersmeet.workload import similar

pytestmark = pytest.mark.long

EPSILON = 40.0


def expected(files: Path, match: Callable[[Any, Any], bool]) -> list[tuple[int, ...]]:
    """The ids of the oracle's results, when a matches b and b matches c."""
    streams = [oracle.Stream(name, oracle.Sliding(WINDOW * 1_000_000), WINDOW * 1_000_000) for name in STREAMS]
    arrivals = []
    for name in STREAMS:
        table = pq.read_table(files / name)
        times = table["ts"].cast(pa.int64()).to_pylist()
        arrivals += [
            oracle.Arrival(0, name, ts, row["id"], row) for ts, row in zip(times, table.to_pylist(), strict=True)
        ]
    outcome = oracle.join(streams, arrivals, lambda rows: match(rows["a"], rows["b"]) and match(rows["b"], rows["c"]))
    return sorted(ids for ids, _ in outcome.results.elements())


def read_results(task: Task) -> list[tuple[int, ...]]:
    table = pq.read_table(task.results)
    return sorted(zip(*(table[f"{name}_id"].to_pylist() for name in STREAMS), strict=True))


def in_band(x: Any, y: Any) -> bool:
    return bool(abs(x["x"] - y["x"]) < EPSILON)


def alike(x: Any, y: Any) -> bool:
    return bool(similar(x["img"], [y["img"]])[0])


@pytest.fixture(scope="module")
def band(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return common.band_files(tmp_path_factory.mktemp("band"), rate=4, seconds=30)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return common.image_files(tmp_path_factory.mktemp("images"), rate=2, seconds=25, pixels=50)


@pytest.mark.parametrize("competitor", [duckdb_band, numpy_band])
def test_band_references(competitor: Callable[[Task], None], band: Path, tmp_path: Path) -> None:
    task = Task(band, tmp_path, EPSILON)
    competitor(task)
    assert read_results(task) == expected(band, in_band) != []


def test_image_reference(pictures: Path, tmp_path: Path) -> None:
    task = Task(pictures, tmp_path)
    numpy_images(task)
    assert read_results(task) == expected(pictures, alike) != []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", ["dummy-key", "buckets"])
def test_band_in_spark(name: str, band: Path, tmp_path: Path) -> None:
    arguments = ["--files", str(band), "--out", str(tmp_path), "--epsilon", str(EPSILON)]
    measured = run(name, "bench.joins.competitor", arguments)
    results = expected(band, in_band)
    assert read_results(Task(band, tmp_path)) == results
    assert measured.rows == len(results)
    assert measured.seconds is not None and measured.seconds > 0
    assert measured.peak_rss_mb is not None and measured.peak_rss_mb > 200


@pytest.mark.slow
@pytest.mark.spark
def test_images_in_spark(pictures: Path, tmp_path: Path) -> None:
    measured = run("images-udf", "bench.joins.competitor", ["--files", str(pictures), "--out", str(tmp_path)])
    assert read_results(Task(pictures, tmp_path)) == expected(pictures, alike)
    assert measured.workers_rss_mb is not None and measured.workers_rss_mb > 20


def test_files_are_made_once(band: Path) -> None:
    before = [path.stat().st_mtime for path in sorted(band.rglob("*.parquet"))]
    common.band_files(band, rate=4, seconds=30)
    assert [path.stat().st_mtime for path in sorted(band.rglob("*.parquet"))] == before


def test_runs_report_what_the_process_printed(tmp_path: Path, band: Path) -> None:
    arguments = ["--files", str(band), "--out", str(tmp_path), "--epsilon", "40"]
    measured = run("numpy", "bench.joins.competitor", arguments)
    assert measured.rows == len(expected(band, in_band))
    assert measured.note == ""


def test_failures_and_timeouts_are_noted(tmp_path: Path) -> None:
    arguments = ["--files", str(tmp_path), "--out", str(tmp_path)]
    assert run("numpy", "bench.joins.competitor", arguments) == Measurement("numpy", note="failed with exit code 1")
    assert run("numpy", "bench.joins.competitor", arguments, timeout=0.01).note == "not done after 0 s"


def used() -> tuple[float, float, float]:
    """What a process that computes a little with 50 MB uses."""
    with UsageSampler(0.01) as usage:
        ballast = bytearray(50 << 20)
        while usage.cpu_seconds < 0.05:
            sum(range(10_000))
    assert ballast
    return usage.peak_rss_mb, usage.workers_rss_mb, usage.cpu_seconds


def test_usage_of_a_process_is_seen() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:  # this one may have Spark's workers
        peak, workers, seconds = alone.submit(used).result()
    assert peak > 50 and workers == 0
    assert 0.05 <= seconds < 5


def test_report_writes_csv_and_png(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "RESULTS", tmp_path)
    measurement.report(
        "Title", "slug", [Measurement("x", 1.5, 10, 2.5, 100, 0), Measurement("y", note="not done")], base="x"
    )
    assert (tmp_path / "slug.csv").read_text().splitlines() == [
        "name,seconds,rows,cpu_seconds,peak_rss_mb,workers_rss_mb,note",
        "x,1.5,10,2.5,100,0,",
        "y,,,,,,not done",
    ]
    assert (tmp_path / "slug.png").read_bytes().startswith(b"\x89PNG")
