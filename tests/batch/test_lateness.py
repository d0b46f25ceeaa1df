"""Late rows: which delay would have kept them, and when they are many."""

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.arguments import LONGEST
from watersmeet.observe import lateness
from watersmeet.observe.lateness import warn_late_rows
from watersmeet.placement import Central
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SECOND = 1_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def run_join(folder: Path, delay: int = 5, idle: int | None = None) -> Run:
    streams = (
        StreamSpec("a", SCHEMA, 1, Sliding(60 * SECOND), 0),
        StreamSpec("b", SCHEMA, 1, Sliding(60 * SECOND), delay * SECOND, None if idle is None else idle * SECOND),
    )
    return Run(Query(streams), Store(str(folder)), steady=True)


def bring(run: Run, a: list[float], b: list[float], now: float = 0) -> list[str]:
    times = [(0, seconds) for seconds in a] + [(1, seconds) for seconds in b]
    rows = [(at, {"id": n, "ts": round(seconds * SECOND)}) for n, (at, seconds) in enumerate(times)]
    run.step(Central(), rows, now=round(now * SECOND))
    return [says for says in run.progress[-1]["warnings"] if "too late" in says]


EARLIER = [70.5, 80.0]


def test_examples_in_docstrings() -> None:
    failed, tried = doctest.testmod(lateness)
    assert tried and not failed


def test_many_late_rows_are_warned_of_with_the_delay_that_keeps_them(tmp_path: Path) -> None:
    run = run_join(tmp_path / "short")
    assert bring(run, [100], [100, 100]) == []
    assert bring(run, [101], EARLIER) == [
        "Stream 'b': 50% of its rows of the last 2 batches came too late and were not joined (2 of 4); "
        "delay='30 seconds' would have kept them."
    ]
    assert run.progress[-1]["streams"]["b"]["neededDelayMs"] == {"p99": 30_000.0, "max": 30_000.0}
    assert run.progress[-1]["streams"]["a"]["neededDelayMs"] == {}
    with_delay = run_join(tmp_path / "long", delay=30)
    assert bring(with_delay, [100], [100, 100]) == bring(with_delay, [101], EARLIER) == []
    assert with_delay.progress[-1]["lateRows"] == 0


def test_what_goes_on_is_logged_once(tmp_path: Path) -> None:
    run, logged = run_join(tmp_path), list[str]()
    run.warn = lambda action: logged.append(action.message)  # type: ignore[method-assign]
    bring(run, [100], [100, 100])
    first = bring(run, [101], EARLIER)
    assert bring(run, [101], EARLIER) != first and logged == first


def test_the_final_round_warns_as_the_batches_before_it_did(tmp_path: Path) -> None:
    """The verdict, which counts anew, shows the sentence once."""
    run = run_join(tmp_path)
    bring(run, [100], [100, 100])
    warned = bring(run, [101], EARLIER)
    assert run.finish(Central()) and run.progress[-1]["final"]
    assert run.progress[-1]["warnings"] == warned == [notice.message for notice in warn_late_rows(run.progress)]


def test_a_row_of_a_broken_clock_does_not_make_the_delay(tmp_path: Path) -> None:
    run = run_join(tmp_path)
    bring(run, [2e9], [2e9] * 100)
    (says,) = bring(run, [2e9], [2e9 - 34.2] * 200 + [0])
    assert says.endswith("(201 of 301); delay='35 seconds' would have kept nearly all of them.")


def test_no_delay_keeps_rows_of_a_stream_that_was_idle(tmp_path: Path) -> None:
    run = run_join(tmp_path, idle=10)
    bring(run, [100], [100], now=0)
    bring(run, [200], [], now=20)
    (says,) = bring(run, [201], [150], now=21)
    assert says.endswith(
        "(1 of 2); it had been idle, and the watermark moved on without it: a longer idle='...' would have kept them."
    )
    (says,) = bring(run, [202], [160], now=22)  # it is not idle any more, but the watermark has not come back
    assert "a longer idle" in says


def batch(rows: int, late: int, delay: float = 1000.0, **more: Any) -> dict[str, Any]:
    needed = {"p99": delay, "max": delay} if late else {}
    return {"streams": {"b": {"rows": rows, "late": late, "neededDelayMs": needed}}, **more}


@pytest.mark.parametrize(
    ("late", "share", "many"), [(5, 0.05, False), (6, 0.05, True), (0, 0.0, False), (1, 0.0, True)]
)
def test_what_many_are_can_be_set(late: int, share: float, many: bool) -> None:
    assert bool(warn_late_rows([batch(100, late)], share)) == many


def test_none_are_many_if_all_may_be_late() -> None:
    assert warn_late_rows([batch(10, 10)], 1.0) == []


def test_the_last_ten_batches_count_and_rounds_do_not() -> None:
    batches = [batch(10, 10), *(batch(1, 0) for _ in range(9)), *(batch(0, 0, round=True) for _ in range(5))]
    (notice,) = warn_late_rows(batches)
    assert "of its rows of the last 10 batches" in notice.message and "(10 of 19)" in notice.message
    assert warn_late_rows([*batches, batch(1, 0)]) == [] and warn_late_rows([]) == []


def test_the_delay_of_few_rows_does_not_decide() -> None:
    (notice,) = warn_late_rows([batch(1, 1, 9e9), batch(100, 99, 90_000.0)])
    assert notice.message.endswith("delay='2 minutes' would have kept nearly all of them.")


def test_streams_of_inner_joins_are_told_apart() -> None:
    inner = batch(10, 0, inner={"ab": batch(10, 5, inner={"b": batch(10, 5)})})
    first, second = warn_late_rows([inner])
    assert first.kind == "late ab/b" and first.message.startswith("Stream 'b' of join 'ab': 50% of its rows")
    assert second.kind == "late ab/b/b" and second.message.startswith("Stream 'b' of join 'ab/b': 50% of its rows")


def test_times_at_both_ends_of_the_range() -> None:
    ends = np.array([-(2**63), 2**63 - 1])
    assert max(lateness.lost_by_delay(2**63 - 1, ends)) <= LONGEST and min(lateness.lost_by_delay(2**63 - 1, ends)) == 1


def test_what_an_earlier_version_did_not_record() -> None:
    (notice,) = warn_late_rows([{"streams": {"b": {"rows": 2, "late": 1}}}])
    assert notice.message.endswith("(1 of 2); a longer delay would have kept them.")
