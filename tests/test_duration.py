"""Durations as people write them."""

from datetime import timedelta
from typing import Any

import pytest

from watersmeet.duration import microseconds
from watersmeet.errors import DefinitionError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("10 seconds", 10_000_000),
        ("1 second", 1_000_000),
        ("500 ms", 500_000),
        ("0.25 s", 250_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("INTERVAL 2 DAYS", 172_800_000_000),
        ("interval 7 microseconds", 7),
        ("1week", 604_800_000_000),
        (" 3  min ", 180_000_000),
        ("0 seconds", 0),
        (timedelta(milliseconds=1.5), 1_500),
        (timedelta(days=400), 400 * 86_400_000_000),
    ],
)
def test_durations(written: str | timedelta, meant: int) -> None:
    assert microseconds(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "ten seconds",
        "10",
        "10 parsecs",
        "10 seconds ago",
        "-5 seconds",
        "5 s;",
        "1 month",
        timedelta(-1),
        10,
        None,
    ],
)
def test_what_is_no_duration(written: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        microseconds(written, "window of stream 'a'")
    assert str(caught.value) == (
        f"window of stream 'a': {written!r} is not a duration; "
        "write it like '10 seconds', '500 ms' or '1 hour 30 minutes'."
    )


def test_long_durations_are_exact() -> None:
    assert microseconds("36500 days 1 microsecond") == 36500 * 86_400_000_000 + 1
