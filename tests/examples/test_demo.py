"""The demo's own parts, on a few images: its brute force, its verdict, its picture, and one tiny run."""

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from examples import auctions, demo
from watersmeet.workload import START

TINY = demo.Settings(rate=3.0, seconds=4.0, pixels=100, nodes=2)


def camera(times: list[float], shades: list[int]) -> demo.Camera:
    ts = np.array([START + round(time * demo.SECOND) for time in times], np.int64)
    return demo.Camera(ts, np.array([[shade] * 3 for shade in shades], np.uint8))


def ids(results: demo.Ints) -> list[list[int]]:
    return [[int(number) for number in row[:3]] for row in results]


def test_the_brute_force_knows_windows_and_similarity() -> None:
    gate = camera([0.0, 5.0, 5.0], [10, 10, 200])
    yard = camera([9.0], [12])
    road = camera([9.5, 10.0, 12.0], [14, 14, 90])
    # gate 0 is too old for road 1 (ten seconds exactly), gate 2 and road 2 show something else.
    assert ids(demo.brute_force([gate, yard, road])) == [[0, 0, 0], [1, 0, 0], [1, 0, 1]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows, "identical"),
        (lambda rows: rows[1:], "1 are missing, 0 are wrong, 0 are duplicates"),
        (lambda rows: demo.in_order(np.concatenate([rows, rows[:1]])), "0 are missing, 0 are wrong, 1 are duplicates"),
        (lambda rows: demo.in_order(np.add(rows, [[1, 0, 0, 0], [0, 0, 0, 0]])), "1 are missing, 1 are wrong"),
    ],
)
def test_the_verdict_says_what_differs(change: Any, said: str) -> None:
    wanted = np.array([[1, 2, 3, 40], [2, 2, 3, 50]], np.int64)
    equal, sentence = demo.verdict(change(wanted), wanted)
    assert equal == (said == "identical")
    assert said in sentence


def history(batches: int, nodes: int) -> list[dict[str, Any]]:
    return [
        {
            "batchId": batch,
            "inputRows": dict.fromkeys(demo.CAMERAS, 3),
            "outputRows": 5 * batch,
            "stateRows": 9,
            "nodes": [{"rows": 4 + node} for node in range(nodes)],
            "durationMs": {"total": 800.0},
        }
        for batch in range(batches)
    ]


def test_the_view_and_the_picture(tmp_path: Path) -> None:
    settings = replace(TINY, folder=tmp_path)
    assert demo.record(settings) > 0
    cameras = [demo.Camera.read(tmp_path / "cameras" / name) for name in demo.CAMERAS]
    results = demo.brute_force(cameras)
    console = Console(record=True, width=120, file=io.StringIO())
    view = demo.View(console, settings)
    console.print(view.panel([]), view.panel(history(2, 2)))
    demo.show_some(console, results)
    shown = console.export_text()
    assert "starting workers" in shown
    assert "node 1" in shown
    assert f"of {len(results)} results" in shown
    demo.draw(tmp_path / "demo.png", settings, history(2, 2), cameras, results)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.spark
def test_a_tiny_run_equals_the_brute_force(spark: SparkSession, tmp_path: Path) -> None:
    settings = replace(TINY, folder=tmp_path)
    taken = demo.record(settings)
    progress = demo.View(Console(quiet=True), settings).follow(demo.start(spark, settings))
    assert sum(sum(batch["inputRows"].values()) for batch in progress) == taken
    assert len(progress) == settings.batches
    cameras = [demo.Camera.read(tmp_path / "cameras" / name) for name in demo.CAMERAS]
    equal, sentence = demo.verdict(demo.read_results(tmp_path / "results"), demo.brute_force(cameras))
    assert equal, sentence


@pytest.mark.parametrize(("main", "target"), [(demo.main, "make demo"), (auctions.main, "make demo-auctions")])
def test_what_a_demo_draws_with_may_be_missing(
    main: Any, target: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    assert main(["--rate", "2"]) == 2
    assert capsys.readouterr().err.startswith(f"The demo needs rich: run `{target}`, or pip install")
