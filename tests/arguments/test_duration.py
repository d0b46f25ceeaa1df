"""Durations as people write them."""

from datetime import timedelta
from typing import Any

import pytest

from watersmeet.arguments import format_seconds, microseconds
from watersmeet.errors import DefinitionError


@pytest.mark.parametrize(
    ("text", "length"),
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
def test_durations(text: str | timedelta, length: int) -> None:
    assert microseconds(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "ten seconds",
        "10",
        "10 parsecs",
        "10 seconds ago",
        "-5 parsecs",
        "--5 seconds",
        "5 s;",
        "1 month",
        10,
        None,
    ],
)
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        microseconds(text, "window of stream 'a'")
    assert str(caught.value) == (
        f"window of stream 'a': {text!r} is not a duration; "
        "write it like '10 seconds', '500 ms' or '1 hour 30 minutes'."
    )


def test_long_durations_are_exact() -> None:
    assert microseconds("36500 days 1 microsecond") == 36500 * 86_400_000_000 + 1
    assert microseconds("9999999.999999 days 0.000001 s") == 863_999_999_999_913_601


@pytest.mark.parametrize("text", ["-5 seconds", " - 1 hour 3 s", "interval -2 days", timedelta(-1)])
def test_a_duration_is_never_negative(text: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        microseconds(text, "delay of stream 'a'")
    assert str(caught.value) == f"delay of stream 'a': {text!r} is negative; a duration is zero or longer."


def test_a_duration_is_not_longer_than_time_itself() -> None:
    with pytest.raises(DefinitionError, match="'99999999999 weeks' is too long; a duration is at most 10000000 days"):
        microseconds("99999999999 weeks")


def test_seconds_have_all_their_digits() -> None:
    assert [format_seconds(n) for n in (0, 1, 10_000_000, 1_234_567_000_000, 1_234_567_000_010)] == [
        "0 s", "0.000001 s", "10 s", "1234567 s", "1234567.00001 s",
    ]  # fmt: skip
