"""The auctions' demo on a few seconds: its plain join, its verdict, its picture, and one tiny run."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from examples import auctions as demo
from watersmeet.formatting import format_time
from watersmeet.workload import START, auctions, write_batches

TINY = demo.Settings(rate=1.0, seconds=120.0, seconds_per_file=20.0)


def history(batches: int) -> dict[str, list[dict[str, Any]]]:
    found = [
        {
            "watermark": None if batch == 0 else format_time(START + batch * demo.MINUTE),
            "distinctRows": 1000 * batch,
            "outputRows": 7,
            "durationMs": {"total": 800.0},
        }
        for batch in range(batches)
    ]
    return dict.fromkeys(demo.KINDS, found)


def test_the_plain_join(tmp_path: Path) -> None:
    settings = replace(TINY, folder=tmp_path)
    given = list(auctions(settings.rate, settings.seconds, np.random.default_rng(0)))
    write_batches(given, tmp_path / "fed")
    paid = {row for batch in given for row in batch.payments["auction"].to_pylist()}
    bids = [row for batch in given for row in batch.bids.to_pylist() if not row["is_end"] and row["auction"] in paid]
    assert [row[0] for row in demo.offline(settings).tolist()] == sorted(row["auction"] for row in bids)
    assert len(demo.read_results(tmp_path / "nothing")) == 0


def test_the_verdict_says_who_lost_what() -> None:
    wanted = np.array([[1, 2, 3, 4], [2, 2, 3, 4]], np.int64)
    found = dict.fromkeys(demo.KINDS, wanted) | {"one-hour windows": wanted[1:]}
    equal, sentence = demo.verdict(found, wanted)
    assert equal and "one-hour windows finds 1" in sentence
    equal, sentence = demo.verdict(found | {demo.METADATA: wanted[:1]}, wanted)
    assert not equal and "DIFFER" in sentence


def test_the_view_and_the_picture(tmp_path: Path) -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    view = demo.View(console, TINY)
    console.print(view.table(dict.fromkeys(demo.KINDS, ())), view.table(history(3)), view.line(history(3)))
    shown = console.export_text()
    assert "starting" in shown and "2 of 2" in shown and "2,000 rows" in shown
    demo.draw(tmp_path / "auctions.png", history(3), dict.fromkeys(demo.KINDS, 5), 6, "a test")
    assert (tmp_path / "auctions.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.spark
def test_a_tiny_run_finds_everything(spark: SparkSession, tmp_path: Path) -> None:
    settings = replace(TINY, folder=tmp_path)
    done = demo.join_live(spark, settings, demo.View(Console(quiet=True), settings))
    wanted = demo.offline(settings)
    found = {kind: demo.read_results(demo.results_of(settings, kind)) for kind in demo.KINDS}
    assert len(wanted) > 0
    assert all(np.array_equal(rows, wanted) for rows in found.values())
    last = {kind: batches[-1]["distinctRows"] for kind, batches in done.items()}
    assert last[demo.METADATA] < last["no metadata, no window"]
