"""The verdict: what an engineer is told first."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.observe.dashboard.recorded_join import SECOND, START, recorded
from watersmeet.observe.dashboard.build import verdict
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointReader, CheckpointSnapshot, RecentBatches, Runner
from watersmeet.state.store.places import store_of

NOW = START + 14 * SECOND
RUNS = Runner("process 7 on mill")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> CheckpointSnapshot:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    recorded(folder, batches=3)
    return replace(CheckpointReader(store_of(str(folder))).read(0.0), runner=RUNS)


def verdict_of(snapshot: CheckpointSnapshot, now: int = NOW, **last: Any) -> tuple[str, str, str]:
    on_time = {name: {**part, "late": 0} for name, part in snapshot.progress[-1]["streams"].items()}
    progress = [*snapshot.progress[:-1], {**snapshot.progress[-1], "streams": on_time, "warnings": [], **last}]
    outcome = verdict(snapshot, RecentBatches(progress), now)
    return outcome.level, outcome.title, " ".join(outcome.messages)


LONG = {"plan": 1.0, "job": 1.0, "commit": 1.0, "total": 1500.0}


def test_a_join_that_keeps_up_is_healthy(snapshot: CheckpointSnapshot) -> None:
    assert verdict_of(snapshot) == ("good", "Healthy", "It keeps up: the last batch took 500 ms of 1 s.")
    assert verdict_of(snapshot, triggerMs=None) == ("good", "Healthy", "The last batch took 500 ms.")


@pytest.mark.parametrize(
    ("last", "level", "says"),
    [
        ({"durationMs": LONG}, "watch", "The last batch took 1.50 s, longer than the trigger's 1 s."),
        ({"overload": {"says": "Too much."}}, "bad", "Too much."),
        ({"spilling": {"overload": "Debts grow."}}, "bad", "Debts grow."),
        ({"warnings": ["Stream 'b' holds back."]}, "watch", "Stream 'b' holds back."),
        ({"watermark": None}, "watch", "Stream 'b' has had no rows yet: no state can leave before it has."),
        ({"rejectedRows": 4}, "watch", "4 rows of the last 3 batches were rejected, 6.56 %."),
    ],
)
def test_what_is_worth_a_look(snapshot: CheckpointSnapshot, last: dict[str, Any], level: str, says: str) -> None:
    outcome = verdict_of(snapshot, **last)
    assert outcome[0] == level and outcome[2].startswith(says)


def test_one_row_of_one_batch(snapshot: CheckpointSnapshot) -> None:
    once = replace(snapshot, progress=snapshot.progress[:1])
    rows: dict[str, Any] = {"inputRows": {"a": 4}}
    assert verdict_of(once, **rows, rejectedRows=1)[2].startswith("1 row of the last batch was rejected, 25 %.")
    assert verdict_of(once, **rows, rejectedRows=2)[2].startswith("2 rows of the last batch were rejected, 50 %.")


def late(rows: int, late: int) -> dict[str, Any]:
    return {"streams": {"b": {"rows": rows, "late": late, "neededDelayMs": {"p99": 35_000.0, "max": 35_000.0}}}}


LATE = "Stream 'b': 50% of its rows of the last batch came too late and were not joined (5 of 10); delay='35 seconds' "


@pytest.mark.parametrize(("share", "level"), [(0.49, "watch"), (0.5, "good")])
def test_many_late_rows_are_worth_a_look_and_how_many_is_said_by_the_query(
    snapshot: CheckpointSnapshot, share: float, level: str
) -> None:
    once = replace(snapshot, progress=snapshot.progress[:1])
    outcome = verdict_of(once, **late(10, 5), lateWarning=share)
    assert outcome[0] == level and outcome[2].startswith(f"{LATE}would have kept them.") == (level == "watch")
    warned = verdict_of(once, **late(10, 5), lateWarning=share, warnings=[f"{LATE}would have kept them."])
    assert warned[2].count(LATE) == 1


@pytest.mark.parametrize(("before", "level"), [(39, "watch"), (40, "good")])
def test_late_rows_of_long_ago_are_not_forgotten(snapshot: CheckpointSnapshot, before: int, level: str) -> None:
    """More than one row in twenty of all batches on record, none in the last ten of them."""
    old = [{**snapshot.progress[0], **late(1, 1)} for _ in range(3)]
    fine = [{**snapshot.progress[0], **late(1, 0)} for _ in range(before + 17)]
    outcome = verdict(snapshot, RecentBatches([*old, *fine]), NOW)
    assert outcome.level == level and ("too late" in " ".join(outcome.messages)) == (level == "watch")


def test_the_worst_comes_first(snapshot: CheckpointSnapshot) -> None:
    outcome = verdict_of(snapshot, overload={"says": "Too much."}, durationMs=LONG)
    assert outcome[:2] == ("bad", "Trouble") and outcome[2].startswith("Too much. The last batch took 1.50 s")


def test_silence_a_crash_and_a_stop_are_told_apart(snapshot: CheckpointSnapshot) -> None:
    later = NOW + 120 * SECOND
    assert verdict_of(snapshot, later)[2].startswith("No batch for 2.1 min")
    crashed = replace(snapshot, runner=Runner("process 7 on mill", silence=25.0))
    assert verdict_of(crashed)[2] == "It seems to have crashed: process 7 on mill has given no sign of life for 25.0 s."
    ended = replace(snapshot, runner=Runner("process 7 on mill", has_ended=True, silence=500.0))
    assert verdict_of(ended, later)[:2] == ("off", "Stopped")
    assert "Too much." in verdict_of(ended, overload={"says": "Too much."})[2]


@pytest.mark.parametrize(("silent", "level"), [(20.0, "good"), (20.1, "bad")])
@pytest.mark.parametrize(("running", "seems"), [(True, "to hang, or to be suspended"), (None, "to have crashed")])
def test_a_lease_expires(
    snapshot: CheckpointSnapshot, silent: float, level: str, running: bool | None, seems: str
) -> None:
    outcome = verdict_of(replace(snapshot, runner=Runner("process 7 on mill", silence=silent, is_running=running)))
    assert outcome[0] == level and (seems in outcome[2]) == (level == "bad")


def test_nobody_runs_it(snapshot: CheckpointSnapshot) -> None:
    dead = replace(snapshot, runner=Runner("process 7 on mill", silence=1.0, is_running=False))
    says = (
        "It is not running: process 7 on mill is gone, and did not stop it properly. Start it again; nothing is lost."
    )
    assert verdict_of(dead) == ("bad", "Not running", says)
    unborn = verdict(replace(dead, progress=()), RecentBatches(()), NOW)
    assert (unborn.title, unborn.messages) == ("Not running", (says,))
    ended = replace(snapshot, runner=Runner("process 7 on mill", has_ended=True, is_running=False))
    assert verdict_of(ended)[:2] == ("off", "Stopped")


def test_a_join_that_was_closed_for_good_is_finished(snapshot: CheckpointSnapshot) -> None:
    assert snapshot.manifest is not None
    final = replace(snapshot, manifest=replace(snapshot.manifest, final=True))
    assert verdict_of(final)[1] == "Healthy", "as long as somebody runs it"
    finished = verdict_of(replace(final, runner=Runner(has_ended=True)))
    assert finished[:2] == ("off", "Finished") and finished[2].startswith("It was closed for good ")


def test_what_cannot_be_read_is_said(snapshot: CheckpointSnapshot) -> None:
    assert verdict_of(replace(snapshot, problem="It is damaged.")) == ("bad", "Can't be read", "It is damaged.")
