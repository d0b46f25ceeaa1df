"""The verdict: what an engineer is told first."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.recorded_join import SECOND, START, recorded
from watersmeet.dashboard.course import Course
from watersmeet.dashboard.recorded import Holder, Reader, Recorded
from watersmeet.dashboard.verdict import verdict
from watersmeet.state.places import store_of

NOW = START + 14 * SECOND
RUNS = Holder("process 7 on mill")


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    recorded(folder, batches=3)
    return replace(Reader(store_of(str(folder))).read(0.0), holder=RUNS)


def judged(read: Recorded, now: int = NOW, **last: Any) -> tuple[str, str, str]:
    progress = [*read.progress[:-1], {**read.progress[-1], "lateRows": 0, **last}]
    found = verdict(read, Course(progress), now)
    return found.level, found.title, " ".join(found.says)


LONG = {"plan": 1.0, "job": 1.0, "commit": 1.0, "total": 1500.0}


def test_a_join_that_keeps_up_is_healthy(read: Recorded) -> None:
    assert judged(read) == ("good", "Healthy", "It keeps up: the last batch took 500 ms of 1 s.")
    assert judged(read, triggerMs=None) == ("good", "Healthy", "The last batch took 500 ms.")


@pytest.mark.parametrize(
    ("last", "level", "says"),
    [
        ({"durationMs": LONG}, "watch", "The last batch took 1.50 s, longer than the trigger's 1 s."),
        ({"overload": {"says": "Too much."}}, "bad", "Too much."),
        ({"spilling": {"overload": "Debts grow."}}, "bad", "Debts grow."),
        ({"warnings": ["Stream 'b' holds back."]}, "watch", "Stream 'b' holds back."),
        ({"watermark": None}, "watch", "Stream 'b' has brought no rows yet: no state can go before it does."),
        ({"lateRows": 30}, "watch", "30 rows of the last 3 batches were late, 49.2 %."),
        ({"rejectedRows": 4}, "watch", "4 rows of the last 3 batches were rejected, 6.56 %."),
    ],
)
def test_what_is_worth_a_look(read: Recorded, last: dict[str, Any], level: str, says: str) -> None:
    found = judged(read, **last)
    assert found[0] == level and found[2].startswith(says)


def test_one_row_of_one_batch(read: Recorded) -> None:
    once = replace(read, progress=read.progress[:1])
    rows: dict[str, Any] = {"inputRows": {"a": 4}}
    assert judged(once, **rows, lateRows=1)[2].startswith("1 row of the last batch was late, 25 %.")
    assert judged(once, **rows, lateRows=2)[2].startswith("2 rows of the last batch were late, 50 %.")


def test_the_worst_comes_first(read: Recorded) -> None:
    found = judged(read, overload={"says": "Too much."}, durationMs=LONG)
    assert found[:2] == ("bad", "Trouble") and found[2].startswith("Too much. The last batch took 1.50 s")


def test_silence_a_crash_and_a_stop_are_told_apart(read: Recorded) -> None:
    later = NOW + 120 * SECOND
    assert judged(read, later)[2].startswith("No batch for 2.1 min")
    crashed = replace(read, holder=Holder("process 7 on mill", silent=25.0))
    assert judged(crashed, later)[2].startswith("It seems to have crashed: process 7 on mill has given no sign of life")
    stopped = replace(read, holder=Holder("process 7 on mill", ended=True, silent=500.0))
    assert judged(stopped, later)[:2] == ("off", "Stopped")
    assert "Too much." in judged(stopped, overload={"says": "Too much."})[2]


def test_a_join_that_was_closed_for_good_is_finished(read: Recorded) -> None:
    assert read.manifest is not None
    closed = replace(read, manifest=replace(read.manifest, final=True))
    assert judged(closed)[1] == "Healthy", "as long as somebody runs it"
    finished = judged(replace(closed, holder=Holder(ended=True)))
    assert finished[:2] == ("off", "Finished") and finished[2].startswith("It was closed for good ")


def test_what_cannot_be_read_is_said(read: Recorded) -> None:
    assert judged(replace(read, problem="It is damaged.")) == ("bad", "Can't be read", "It is damaged.")
