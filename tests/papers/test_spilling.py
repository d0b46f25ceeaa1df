"""The bench of the spilling thesis' figures: its plans and data are what it says, and a small run of it is exact."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench import common
from papers.spilling import figures
from papers.spilling.plans import TREES, Shape, joins_of, leaves, queries
from papers.spilling.runs import CEILING, Case, run
from papers.spilling.streams import Setting, streams
from watersmeet.predicate.numbers import bucket
from watersmeet.query.windows import Hopping
from watersmeet.workload.tuples import SECOND, START

TINY = Setting((1, 2, 3), fast=600, slow=6000, phase=100, phases=2, size=30, step=40, partitions=6)
CASE = Case("bushy", TINY, 0, "local", interval=20)

each_plan = pytest.mark.parametrize("shape", TREES)


@each_plan
def test_plans_have_a_join_for_each_stream_but_one(shape: Shape) -> None:
    joins = joins_of(shape)
    assert len(joins) == len(leaves(TREES[shape])) - 1
    asked = Counter(key for join in joins for key in join.keys)
    assert set(asked.values()) == {1}
    made = queries(shape, Hopping(60 * SECOND, 80 * SECOND))
    assert [*made] == [join.path for join in joins]
    assert all(len(query.streams) == 2 and query.where.count("=") == 1 for query in made.values())


def test_the_linear_plan_as_sql() -> None:
    made = queries("linear", Hopping(60 * SECOND, 80 * SECOND))
    assert [query.where for query in made.values()] == [
        "s0.e_y = f.x",
        "s0.d_y = e.x",
        "s0.c_y = d.x",
        "s0.b_y = c.x",
        "a.x = b.x",
    ]


def test_a_tuple_joins_as_many_as_its_partition_says() -> None:
    setting = Setting((1, 2, 4), fast=20, phases=1, partitions=6)
    made = {name: _in_windows(table, setting) for name, table in streams("bushy", setting, 1).items()}
    partners = Counter(zip(made["b"]["window"].tolist(), made["b"]["x"].tolist(), strict=True))
    joined = np.array(
        [partners[key] for key in zip(made["a"]["window"].tolist(), made["a"]["x"].tolist(), strict=True)]
    )
    third = bucket(pa.array(made["a"]["x"]), 6) // 2
    assert [float(joined[third == at].mean()) for at in range(3)] == pytest.approx([1, 2, 4], rel=0.1)


def _in_windows(table: pa.Table, setting: Setting) -> dict[str, np.ndarray]:
    """Return a stream's columns without what lies in gaps, with its window."""
    since = table.column("ts").cast(pa.int64()).to_numpy() - START
    window, after = np.divmod(since, round(setting.step * SECOND))
    inside = after < setting.size * SECOND
    return {"x": table.column("x").to_numpy()[inside], "window": window[inside]}


def test_fast_and_slow_phases_take_turns() -> None:
    made = streams("bushy", replace(TINY, fast=50, slow=500, phases=4), 3)["a"]
    counts = np.histogram((made.column("ts").cast(pa.int64()).to_numpy() - START) / SECOND / TINY.phase, range(5))[0]
    assert counts.tolist() == pytest.approx([2000, 200, 2000, 200], rel=0.2)


@pytest.mark.long
def test_what_was_spilled_comes_in_the_end_and_not_before() -> None:
    whole = run(CASE.ceiling)
    found = run(CASE, whole.peak)
    assert whole.total("results") == whole.end[0] and not whole.total("spilled")
    behind = whole.series["results"] - found.series["results"]
    assert (behind >= 0).all() and behind.max() > 20 and found.end == whole.end
    assert 0 < found.total("unspilled") <= found.total("spilled")
    assert all((np.diff(series) >= 0).all() for series in found.series.values())
    assert found.peak < whole.peak


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        ([0.0, 0.0, 0.0], "no difference"),
        ([1.0, 3.0, 2.0], "+2.0 ± 2.5 % of the results without a limit, noise"),
        ([-2.0, -2.1, -1.9], "-2.0 ± 0.2 % of the results without a limit"),
    ],
)
def test_noise_is_told_from_a_difference(apart: list[float], said: str) -> None:
    assert figures.interval(np.array(apart)) == said


@pytest.mark.slow
def test_the_bench_writes_table_runs_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (common, figures):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "D1", replace(TINY, phase=50))
    monkeypatch.setattr(figures, "INTERVALS", (20, 120))
    figures.main(["intervals", "--quick", "--processes", "1"])
    assert (tmp_path / "spill_intervals.png").read_bytes().startswith(b"\x89PNG")
    table = (tmp_path / "spill_intervals.csv").read_text().splitlines()
    assert [line.split(",")[2] for line in table[1:]] == ["20 s", "120 s", CEILING]
    assert len((tmp_path / "spill_intervals_runs.csv").read_text().splitlines()) == 1 + 3 * 2 * 5


def test_unknown_figures_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        figures.main(["5.11"])
    assert "there are policies, correlation, intervals, appendix, not 5.11" in capsys.readouterr().err
