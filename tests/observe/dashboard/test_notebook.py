"""What notebooks show, and times as people read them."""

import doctest
import importlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.observe.dashboard.recorded_join import START, query, recorded
from tests.times import instant
from watersmeet.formatting import EARLIEST, format_time
from watersmeet.observe.dashboard.build import build_view
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointReader
from watersmeet.observe.dashboard.dashboard_view import NOTHING
from watersmeet.observe.dashboard.notebook import (
    ProgressList,
    render_definition,
    render_summary,
    render_trend,
    stream_table,
)
from watersmeet.observe.progress import format_progress
from watersmeet.state.store.places import store_of

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def folder_and_progress(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ProgressList]:
    folder = tmp_path_factory.mktemp("checkpoint")
    run = recorded(folder, batches=3)
    return folder, ProgressList(format_progress(entry, zoned=True) for entry in run.progress)


@pytest.mark.parametrize("name", ["observe.dashboard.notebook", "formatting", "query.windows"])
def test_examples_in_docstrings(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"watersmeet.{name}"))
    assert tried and not failed


@given(st.integers(EARLIEST, np.iinfo(np.int64).max))
def test_times_as_text_are_the_times(time: int) -> None:
    assert instant(format_time(time)) == instant(format_time(time, zoned=False)) == time


@given(st.datetimes(timezones=st.just(UTC)))
def test_python_reads_them_back(time: datetime) -> None:
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    assert datetime.fromisoformat(format_time(since // (datetime.resolution))) == time


def test_the_earliest_time_there_is_has_a_text() -> None:
    assert format_time(EARLIEST - 1) == format_time(EARLIEST)


def test_progress_shows_times_as_text(folder_and_progress: tuple[Path, ProgressList]) -> None:
    last = folder_and_progress[1][-1]
    assert last["watermark"] == last["settled"] == "2023-11-14T22:13:22.000Z" == last["streams"]["b"]["watermark"]
    assert last["streams"]["a"]["latest"] == "2023-11-14T22:13:26.000Z"
    assert datetime.fromisoformat(last["timestamp"]).timestamp() == START / 1e6 + 6
    inner = format_progress({"watermark": None, "inner": {"ab": {"watermark": 1}}}, zoned=False)
    assert inner["watermark"] is None and inner["inner"]["ab"]["watermark"] == "1970-01-01T00:00:00.000001"


def test_progress_is_a_list_that_shows_itself_as_a_table(folder_and_progress: tuple[Path, ProgressList]) -> None:
    progress = folder_and_progress[1]
    assert isinstance(progress, list) and progress[-1]["batchId"] == 2 and progress[1:] == list(progress)[1:]
    lines = repr(progress).splitlines()
    assert lines[0].startswith("rows in: ") and lines[3].split()[:3] == ["batch", "offered", "rows"]
    assert len(lines) == 3 + 1 + 3 + 1 and "3 of 3 batches" in lines[-1]
    html = progress._repr_html_()
    assert html.count("<svg") == 3 and html.count("<tr>") == 1 + 1 + 3
    assert repr(ProgressList()) == ProgressList()._repr_html_() == "no batch yet"


def test_tables_and_optional_streams_are_told_as_such() -> None:
    join = query()
    first, second = join.streams[:2]
    join = replace(join, streams=(first, replace(second, table=True)), how=("inner", "anti"))
    window, table = ([cell.text for cell in row] for row in stream_table(join).rows)
    time = second.schema.field(second.time).name
    assert window[1] == first.window.describe()
    assert table[1:4] == ["table, anti", NOTHING, NOTHING] and time not in table[4]


def test_what_data_says_is_escaped(folder_and_progress: tuple[Path, ProgressList]) -> None:
    folder, progress = folder_and_progress
    evil = ProgressList([{**progress[-1], "heldBackBy": EVIL}])
    pages = [evil._repr_html_(), render_definition([("where", EVIL), ("select", "")], stream_table(query()))]
    snapshot = CheckpointReader(store_of(str(folder))).read(0.0)
    pages.append(render_summary(build_view(snapshot, START)))
    assert not any("<script" in html for html in pages)
    assert "&lt;script&gt;" in pages[0] and "&lt;script&gt;" in pages[1] and "sliding 10 seconds" in pages[2]
    assert "select" not in pages[1]


def test_a_course_with_gaps_is_drawn_in_parts() -> None:
    assert render_trend((1.0, None, 2.0, 1.0)).count("M") == 2 and render_trend(()).count("M") == 0
