"""Windows: which tuples a result at time T still admits.

Every window by time is a monotone function, the *deadline* of a tuple: the last T at which it may take part. A result
is valid if T is at most the deadline of each of its members, and a tuple may be purged once the watermark has passed
its deadline. Times are integer microseconds.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

import numpy as np

from watersmeet.arguments import fields_to_python, format_duration, format_seconds, is_whole, microseconds
from watersmeet.arrays import Ints, Mask
from watersmeet.errors import DefinitionError

FOREVER = int(np.iinfo(np.int64).max)
"""The latest time; later ones count as this."""
NEVER = int(np.iinfo(np.int64).min)
"""The earliest time; earlier ones count as this."""
HORIZON = 1 << 60
"""Placements see times clipped to this, on either side, so that sums don't overflow.

[!] Both the nodes that keep a tuple and those that probe for it follow from its time: both must see the clipped one."""
BEFORE_ALL = NEVER // 2
"""The time of a table's rows: before any that a stream has."""


def clip_to_horizon(times: Ints) -> Ints:
    """Return times as placements see them, within the horizon."""
    return np.clip(times, -HORIZON, HORIZON)


def saturate(change: Callable[[Any], Any], times: Ints, reach: int) -> Ints:
    """Apply a change of at most `reach` microseconds to times, limited to [NEVER, FOREVER] instead of overflowing."""
    if not len(times) or (NEVER + reach <= int(times.min()) and int(times.max()) <= FOREVER - reach):
        changed: Ints = change(times)
        return changed
    exact = change(times.astype(object))
    return np.array([min(max(time, NEVER), FOREVER) for time in exact], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Window:
    """An unbounded window, and the base of the others."""

    def deadline(self, ts: Ints) -> Ints:
        """Return for each tuple the last T at which the window admits it."""
        return np.full_like(ts, FOREVER)

    def earliest(self, high: Ints) -> Ints:
        """Return for each time the earliest tuple whose deadline is not before it."""
        return np.full_like(high, NEVER)

    def admits(self, ts: Ints) -> Mask:
        """Tell which tuples can take part in any result at all."""
        return np.ones(len(ts), dtype=bool)

    @property
    def span(self) -> int | None:
        """How long a tuple stays at most; None if time alone never removes it."""
        return None

    @property
    def bound(self) -> int | None:
        """The span as people write it: ten minutes, whether that very age is admitted (`<=`) or not (`<`)."""
        return self.span

    @property
    def rows(self) -> int | None:
        """How many rows a count window holds; None for other windows."""
        return None

    def describe(self) -> str:
        """Return the window in words, for people."""
        return self.notation

    @property
    def notation(self) -> str:
        """The window as text in checkpoints, to the microsecond; `parse_window` reads it back."""
        return "unbounded"


@dataclass(frozen=True, slots=True)
class Sliding(Window):
    """A sliding window: T - ts < size, strictly.

    Times are whole microseconds: an inclusive bound is a size of one microsecond more.
    """

    size: int

    def __post_init__(self) -> None:
        if self.size <= 0:
            raise DefinitionError("A sliding window must be longer than zero.")

    def deadline(self, ts: Ints) -> Ints:
        """See Window."""
        return saturate(lambda ts: ts + (self.size - 1), ts, self.size)

    def earliest(self, high: Ints) -> Ints:
        """See Window."""
        return saturate(lambda high: high - (self.size - 1), high, self.size)

    @property
    def span(self) -> int | None:
        """See Window."""
        return self.size

    @property
    def bound(self) -> int:
        """See Window."""
        return self.size - self.inclusive

    @property
    def inclusive(self) -> bool:
        """Whether the bound is inclusive: nobody writes a window of ten minutes and a microsecond."""
        return self.size % 1000 == 1

    def describe(self) -> str:
        """See Window."""
        return f"sliding {format_duration(self.bound)}{', inclusive' if self.inclusive else ''}"

    @property
    def notation(self) -> str:
        """See Window."""
        return f"sliding {format_seconds(self.size)}"


Closed = Literal["left", "right"]
"""Which end belongs to a window that begins at regular times: `[start, end)` or `(start, end]`."""


@dataclass(frozen=True, slots=True)
class Hopping(Window):
    """Windows of one size that begin at every step since the epoch, UTC; a tuple must share one with T.

    Closed on the right, some k has k*step < ts <= T <= k*step + size; on the left, k*step <= ts <= T < k*step + size.
    """

    size: int
    step: int
    closed: Closed = "right"

    def __post_init__(self) -> None:
        """Raise DefinitionError if the size, the step or the closed end is none that a window can have."""
        if self.size <= 0 or self.step <= 0:
            raise DefinitionError("A hopping window needs a size and a step longer than zero.")
        if not isinstance(self.closed, str) or self.closed not in get_args(Closed):
            raise DefinitionError(
                f"closed={self.closed!r}: a window is closed on the 'left', [start, end), or on the 'right', "
                "(start, end]."
            )

    @property
    def _first_micro(self) -> int:
        """The first microsecond of a window, counted from its start."""
        return 0 if self.closed == "left" else 1

    @property
    def _last_micro(self) -> int:
        """The last microsecond of a window, counted from its start."""
        return self.size - 1 + self._first_micro

    def deadline(self, ts: Ints) -> Ints:
        """See Window: the end of the latest window that contains ts, or of the one before the gap that does."""
        reach = self.step + self.size
        return saturate(lambda ts: (ts - self._first_micro) // self.step * self.step + self._last_micro, ts, reach)

    def earliest(self, high: Ints) -> Ints:
        """See Window."""
        reach = self.step + self.size
        return saturate(
            lambda high: -((self._last_micro - high) // self.step) * self.step + self._first_micro, high, reach
        )

    def admits(self, ts: Ints) -> Mask:
        """See Window; a step longer than the size leaves gaps, and a tuple in a gap joins nothing."""
        return ts <= self.deadline(ts)

    @property
    def span(self) -> int | None:
        """See Window."""
        return self.size

    def describe(self) -> str:
        """See Window."""
        return self._format(format_duration)

    @property
    def notation(self) -> str:
        """See Window."""
        return self._format(format_seconds)

    def _format(self, duration: Callable[[int], str]) -> str:
        if self.closed == "left" and self.size == self.step:
            return f"tumbling {duration(self.size)}"
        closed = ", closed left" if self.closed == "left" else ""
        return f"hopping {duration(self.size)} every {duration(self.step)}{closed}"


@dataclass(frozen=True, slots=True)
class Count(Window):
    """The last `size` tuples of the stream by arrival, whatever their times."""

    size: int

    def __post_init__(self) -> None:
        fields_to_python(self)
        if not is_whole(self.size):
            raise DefinitionError(f"A count window holds a whole number of rows, at least 1; got {self.size!r}.")

    @property
    def rows(self) -> int | None:
        """See Window."""
        return self.size

    @property
    def notation(self) -> str:
        """See Window."""
        return f"last {self.size} rows"


def window_reaching(micros: int) -> Sliding:
    """Return the window of tuples than which others are at most that much later."""
    return Sliding(max(0, micros) + 1)


# -- windows that users construct; a plain duration is a sliding window


def count(rows: int) -> Count:
    """Return a window of a stream's last `rows` tuples, by arrival.

    >>> count(5000).describe()
    'last 5000 rows'
    """
    return Count(rows)


def hopping(size: str | timedelta, step: str | timedelta, closed: Closed = "right") -> Hopping:
    """Return windows of `size` that start every `step` since the epoch; tuples join if they share one.

    Args:
        size: How long each window is.
        step: How long after one the next begins.
        closed: Which end belongs to a window: `"right"` for `(start, end]`, `"left"` for `[start, end)`, as Spark and
            Flink have it.

    Raises:
        DefinitionError: If size or step is not a duration of at least a microsecond, or `closed` neither of the two.

    >>> hopping("60 seconds", "20 seconds").describe()
    'hopping 1 minute every 20 seconds'
    """
    length = microseconds(size, "size of a hopping window", 1)
    return Hopping(length, microseconds(step, "step of a hopping window", 1), closed)


def tumbling(size: str | timedelta) -> Hopping:
    """Return windows `[start, end)` of `size`, one after the other since the epoch, as Spark's `window` cuts time.

    Raises:
        DefinitionError: If the size is not a duration of at least a microsecond.

    >>> tumbling("600 seconds").describe()
    'tumbling 10 minutes'
    """
    length = microseconds(size, "size of a tumbling window", 1)
    return Hopping(length, length, "left")


def parse_window(text: str) -> Window | None:
    """Return the window of a notation; None if the text is not one.

    >>> parse_window("hopping 60 s every 2.5 s") == hopping("60 seconds", "2500 ms"), parse_window("a whim")
    (True, None)
    """
    length = r"(\d+(?:\.\d+)? s)"
    kinds: dict[str, Callable[..., Window]] = {
        "unbounded": Window,
        r"last (\d+) rows": lambda rows: Count(int(rows)),
        f"sliding {length}": lambda size: Sliding(microseconds(size)),
        f"hopping {length} every {length}": hopping,
        f"hopping {length} every {length}, closed (left)": hopping,
        f"tumbling {length}": tumbling,
    }
    for pattern, make in kinds.items():
        if match := re.fullmatch(pattern, text):
            return make(*match.groups())
    return None
