"""When there is time for a round, by what Spark says of the query."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.spark.checkpoint.lease import LeaseLost
from watersmeet.spark.run.round_scheduler import (
    IDLE_SECONDS,
    MIN_SECONDS,
    POLL_SECONDS,
    ROUND_SECONDS,
    RoundScheduler,
)

SOON, LONG_AGO = 0.05, 60.0


def slack(active: bool, ended: float, due: float | None) -> float:
    """Return the time for a round where a batch of 0.1 s ended so many seconds ago."""
    now = time.monotonic()
    runner: Any = SimpleNamespace(times=(now - ended - 0.1, now - ended), due=due)
    query: Any = SimpleNamespace(status={"isTriggerActive": active})
    return RoundScheduler(query, runner, ends=False)._quiet_seconds()


@pytest.mark.parametrize("due", [None, 1.0, 30.0])
@pytest.mark.parametrize("ended", [SOON, IDLE_SECONDS + 1.0, LONG_AGO])
def test_there_is_no_lull_while_spark_plans_or_commits(ended: float, due: float | None) -> None:
    assert slack(True, ended, due) == 0.0


def test_until_the_next_batch_is_due_there_is_time_for_a_round() -> None:
    assert slack(False, SOON, 30.0) == pytest.approx(30.0 - SOON - 0.1, abs=0.05)
    assert slack(False, SOON, 0.5) < MIN_SECONDS


@pytest.mark.parametrize(("due", "expected"), [(None, ROUND_SECONDS), (1.0, ROUND_SECONDS), (5.0, 5.0)])
def test_where_nothing_new_has_come_a_round_may_take_longer(due: float | None, expected: float) -> None:
    assert slack(False, LONG_AGO, due) == expected
    assert slack(False, SOON, None) == 0.0


def test_where_no_batch_comes_after_a_start_what_was_owed_is_paid() -> None:
    runner: Any = SimpleNamespace(times=(None, None), due=None)
    query: Any = SimpleNamespace(status={"isTriggerActive": False})
    scheduler = RoundScheduler(query, runner, ends=False)
    assert scheduler._quiet_seconds() == 0.0
    scheduler._start_time -= IDLE_SECONDS + 0.1
    assert scheduler._quiet_seconds() == ROUND_SECONDS
    runner.times = (time.monotonic(), None)  # the first batch is under way
    assert scheduler._quiet_seconds() == 0.0


def test_a_round_that_pays_nothing_is_not_tried_again_before_the_next_batch() -> None:
    tried, state, now = list[int](), SimpleNamespace(batch=3), time.monotonic() - LONG_AGO

    def round(seconds: float) -> bool:
        tried.append(state.batch)
        return False

    protocol = SimpleNamespace(state=state)
    runner: Any = SimpleNamespace(times=(now, now), due=None, protocol=protocol, round=round)
    query: Any = SimpleNamespace(status={"isTriggerActive": False}, isActive=True)
    scheduler = RoundScheduler(query, runner, ends=False)
    scheduler.start()
    for batch in (3, 4):
        state.batch = batch
        time.sleep(8 * POLL_SECONDS)
    scheduler.end()
    assert tried == [3, 4]


def test_a_round_without_the_lease_is_the_last(caplog: pytest.LogCaptureFixture) -> None:
    def round(seconds: float) -> bool:
        raise LeaseLost("Another run has taken over.")

    now = time.monotonic() - LONG_AGO
    runner: Any = SimpleNamespace(
        times=(now, now), due=None, protocol=SimpleNamespace(state=SimpleNamespace(batch=3)), round=round
    )
    query: Any = SimpleNamespace(status={"isTriggerActive": False}, isActive=True)
    scheduler = RoundScheduler(query, runner, ends=False)
    scheduler.start()
    scheduler.join(10)
    assert not scheduler.is_alive() and isinstance(scheduler.error, LeaseLost) and not caplog.text


def test_an_interrupted_stop_stops() -> None:
    """Ctrl-C while it settles: nobody would pay any more for a query that went on."""
    done = list[str]()
    query = JoinQuery.__new__(JoinQuery)
    spark = SimpleNamespace(stop=lambda: done.append("stopped"), isActive=True)
    lease = SimpleNamespace(end=lambda: done.append("left"))
    runner = SimpleNamespace(
        close=lambda: (_ for _ in ()).throw(KeyboardInterrupt), checkpoint=SimpleNamespace(lease=lease)
    )
    query._query, query._rounds, query._runner = cast(Any, spark), None, cast(Any, runner)
    with pytest.raises(KeyboardInterrupt):
        query.stop(settle=True)
    assert done == ["stopped"] and not query._settling
