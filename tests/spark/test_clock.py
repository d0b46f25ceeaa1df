"""The driver's clock goes on however the host's is set."""

import time

import pytest

from watersmeet.spark.run.batch import Clock

HOUR = 3600.0


def test_a_clock_that_is_set_back_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    real, clock = time.time, Clock()
    assert clock() == pytest.approx(real(), abs=1)
    monkeypatch.setattr(time, "time", lambda: real() - HOUR)
    assert clock() == pytest.approx(real(), abs=1)
    assert clock() <= clock.latest() <= clock() + 1


def test_a_clock_that_was_behind_at_the_start_is_believed_once_it_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - HOUR)
    clock = Clock()
    monkeypatch.setattr(time, "time", real)
    assert clock() == pytest.approx(real() - HOUR, abs=1)
    assert clock.latest() == pytest.approx(real(), abs=1)
