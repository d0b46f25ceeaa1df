"""What spilling keeps: all members of owed results, and nothing more once they have come."""

from pathlib import Path
from typing import Any

from tests.engine.test_engine import SCHEMA
from tests.spilling.watch import state_of
from watersmeet.model.query import Query, StreamSpec
from watersmeet.model.windows import Count, Sliding, Window
from watersmeet.placement import Central
from watersmeet.spilling import Controller, Spill
from watersmeet.state.store import Store
from watersmeet.testing.dice import Dice
from watersmeet.testing.run import Run

EVERYTHING = Dice(cool=1.0, pay=0.0)
NOTHING = Dice(cool=0.0, pay=0.0)


def run_of(folder: Path, *windows: Window, delay: int = 0, **more: Any) -> Run:
    streams = tuple(StreamSpec(n, SCHEMA, 1, w, delay) for n, w in zip("abcd", windows, strict=False))
    return Run(Query(streams, (), ""), Store(str(folder)), **more)


def row(number: int, ts: int) -> dict[str, Any]:
    return {"id": number, "ts": ts, "x": 0.0, "k": "p"}


def test_a_unit_goes_with_the_last_of_its_chunks(tmp_path: Path) -> None:
    """Otherwise rows of count windows, and what metadata close, would stay for ever: nobody pays what isn't there."""
    run = run_of(tmp_path, Sliding(5), Count(2))
    run.spilling = Controller(Spill(memory=1, interval="1 hour", oldest="1 hour"))
    run.step(Central(), [(0, row(0, 0))])
    assert state_of(run).ledger.units
    run.spilling = Controller(Spill(memory="1 TB", interval="1 hour", oldest="1 hour"))
    for batch in range(2, 12):
        run.step(Central(), [(0, row(10 * batch, 10 * batch)), (1, row(10 * batch + 1, 10 * batch + 1))])
    assert not state_of(run).ledger.taken and not state_of(run).ledger.units
    assert run.progress[-1]["distinctRows"] == 3  # the last of the first stream, and two rows of the second
    assert not run.lull(Central(), all=True)
