"""The MJoin bench measures what it says, and writes its table, runs and picture."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from random import Random

import numpy as np
import pytest

from bench import common
from papers.mjoin import figures
from papers.mjoin.feed import news_feed
from papers.mjoin.plots import PANELS, Panel, Traces
from papers.mjoin.runs import ORDERS, Plan, Trace, by_turns, contenders, fastest, measure

pytestmark = pytest.mark.long


def trace(*seconds: float) -> Trace:
    return Trace(np.array(seconds), np.zeros(len(seconds)), np.zeros(len(seconds)))


def test_a_run_is_measured_as_results_come_out() -> None:
    feed = news_feed(30, "ordered", np.random.default_rng(0))
    ticks = count()
    xjoin = next(contender for contender in contenders() if contender.name == "XJoin")
    measured = measure(xjoin.make(Random(0)), feed, (50, 100, 200), lambda: float(next(ticks)))
    assert measured.seconds.tolist() == [1, 2, 3]
    assert measured.tuples.tolist() == sorted(measured.tuples)
    assert measured.punctuations.tolist() == [0, 0, 0]


@pytest.mark.slow
def test_every_panel_has_its_contenders_and_they_a_trace_a_seed() -> None:
    found = by_turns(Plan(30, (50, 200), range(2), 1), lambda: 0.0, lambda: None)
    assert {*found} == {(order, contender.name) for order in ORDERS for contender in contenders()}
    assert all(len(traces) == 2 for traces in found.values())
    assert {(panel.order, name) for panel in PANELS for name in (*panel.compared, *panel.beside)} <= {*found}


def test_the_least_time_counts() -> None:
    assert fastest([trace(1, 5), trace(2, 3)]).seconds.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ((1, 1, 1), "ours is below theirs at 3 of 3 marks; at the last it has 0.5 of it."),
        ((3, 3, 1), "ours is below theirs at 1 of 3 marks, from 30 results on; at the last it has 0.5 of it."),
        ((1, 3, 3), "ours is below theirs at 1 of 3 marks; at the last it has 1.5 of it."),
    ],
)
def test_the_verdict_says_where_the_lines_cross(times: tuple[float, ...], said: str) -> None:
    panel, plan = Panel(9, "", "random", ("ours", "theirs")), Plan(1, (10, 20, 30), range(1), 1)
    found: Traces = {("random", "ours"): [trace(*times)], ("random", "theirs"): [trace(2, 2, 2)]}
    assert figures.verdict(panel, plan, found) == f"Figure 9, news random: {said}"


@pytest.mark.slow
def test_the_bench_writes_table_runs_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (common, figures):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "PLAN", Plan(40, (100, 200, 300), range(10), 1))
    monkeypatch.setattr(figures, "TABLE_MARKS", (100, 300))
    monkeypatch.setattr(sys, "argv", ["figures.py", "--quick"])
    figures.main()
    assert (tmp_path / "mjoin.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "mjoin.csv").read_text().splitlines()) == 1 + sum(2 + len(p.beside) for p in PANELS)
    runs = (tmp_path / "mjoin_runs.csv").read_text().splitlines()
    assert len(runs) == 1 + len(ORDERS) * len(contenders()) * 2 * 3
