"""What people promise of a stream, by the names of its columns: keys, orders, clusters, punctuations.

A join resolves the names once it knows all of its streams; see docs/metadata.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, get_args

from watersmeet.arguments import format_duration, is_whole, microseconds, to_python
from watersmeet.errors import DefinitionError
from watersmeet.metadata.constraints import Effect


@dataclass(frozen=True, slots=True)
class KeyDeclaration:
    """No two rows have the same values of some columns; made by `wm.key`."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise DefinitionError("wm.key() names no column; give one or more, such as wm.key('id').")
        for column in self.columns:
            _check_name("wm.key", column)

    def __str__(self) -> str:
        return f"wm.key({', '.join(map(repr, self.columns))})"


@dataclass(frozen=True, slots=True)
class ClusteringDeclaration:
    """Rows of one value come together; made by `wm.clustered`."""

    column: str
    slack: int = 0

    def __post_init__(self) -> None:
        _check_name("wm.clustered", self.column)
        if not is_whole(self.slack, 0):
            raise DefinitionError(
                f"{self}: the slack is in batches, a whole number that isn't negative; got {self.slack!r}."
            )

    def __str__(self) -> str:
        return f"wm.clustered({self.column!r})"


@dataclass(frozen=True, slots=True)
class OrderDeclaration:
    """Values of a column don't fall, or don't rise; made by `wm.ordered`."""

    column: str
    slack: int | float | Decimal | timedelta = 0
    falling: bool = False

    def __post_init__(self) -> None:
        _check_name("wm.ordered", self.column)
        if not isinstance(self.falling, bool):
            raise DefinitionError(f"{self}: falling is True or False; got {self.falling!r}.")
        if isinstance(self.slack, timedelta):
            microseconds(self.slack, f"slack of {self}")
        elif isinstance(self.slack, bool) or not isinstance(self.slack, int | float | Decimal):
            raise DefinitionError(
                f"{self}: a slack is a number or a duration such as '10 seconds'; got {self.slack!r}."
            )
        elif not _is_amount(self.slack):
            raise DefinitionError(f"{self}: slack={self.slack} must be zero or more, and finite.")

    def __str__(self) -> str:
        return f"wm.ordered({self.column!r})"

    @property
    def shown(self) -> str:
        """The slack as people write it."""
        if isinstance(self.slack, timedelta):
            return repr(format_duration(self.slack // timedelta(microseconds=1)))
        return str(self.slack)


@dataclass(frozen=True, slots=True)
class ForeignKeyDeclaration:
    """Each value of a column is one of another stream's column; made by `wm.foreign_key`."""

    column: str
    parent: str

    def __post_init__(self) -> None:
        _check_name("wm.foreign_key", self.column)
        if not isinstance(self.parent, str) or not all(self.parent.partition(".")):
            raise DefinitionError(
                f"wm.foreign_key({self.column!r}, {self.parent!r}): the second is another stream's column, such as "
                "'auctions.id'."
            )

    def __str__(self) -> str:
        return f"wm.foreign_key({self.column!r}, {self.parent!r})"


@dataclass(frozen=True, slots=True)
class Between:
    """The two columns of punctuations that hold the ends of a range, both included; made by `wm.between`."""

    low: str
    high: str

    def __post_init__(self) -> None:
        for column in (self.low, self.high):
            _check_name("wm.between", column)


On = tuple[tuple[str, Between], ...]
"""Columns of a stream, each with the columns of the punctuations that hold the ends; equal ones hold a constant."""


@dataclass(frozen=True, slots=True)
class Punctuations:
    """Punctuations of a stream: rows of its own that a flag tells, or those of another frame; see `punctuations`."""

    on: On
    effect: Effect
    flag: str | None = None
    frame: Any = None
    time: str | None = None

    def __str__(self) -> str:
        return "wm.punctuations(frame=...)" if self.flag is None else f"wm.punctuations(flag={self.flag!r})"


ConstraintDeclaration = KeyDeclaration | ClusteringDeclaration | OrderDeclaration | ForeignKeyDeclaration


# -- what users call


def key(*columns: str) -> KeyDeclaration:
    """Promise that values of some columns, taken together, come in one batch only.

    >>> print(key("id"))
    wm.key('id')
    """
    return KeyDeclaration(columns)


def clustered(column: str, slack: int = 0) -> ClusteringDeclaration:
    """Promise that rows of one value come together: a value that was missing does not come again.

    Args:
        column: The column.
        slack: In how many batches that bring rows of the stream a value may be missing and still come again.

    >>> print(clustered("zone", slack=2))
    wm.clustered('zone')
    """
    return ClusteringDeclaration(column, to_python(slack))


def ordered(
    column: str, slack: int | float | Decimal | str | timedelta | None = None, falling: bool = False
) -> OrderDeclaration:
    """Promise that values of a column don't fall from one batch to the next.

    Args:
        column: The column.
        slack: How far back values may lie: a number; for times a duration such as `"10 seconds"`, for dates in days.
        falling: Whether values don't rise instead.

    >>> print(ordered("seq", slack=100))
    wm.ordered('seq')
    """
    if isinstance(slack, str):
        slack = timedelta(microseconds=microseconds(slack, f"slack of wm.ordered({column!r})"))
    return OrderDeclaration(column, 0 if slack is None else to_python(slack), to_python(falling))


def foreign_key(column: str, parent: str) -> ForeignKeyDeclaration:
    """Promise that each value of a column is one of another stream's column.

    Args:
        column: The column.
        parent: The stream and its column, such as `"auctions.id"`.

    >>> print(foreign_key("auction", "auctions.id"))
    wm.foreign_key('auction', 'auctions.id')
    """
    return ForeignKeyDeclaration(column, parent)


def between(low: str, high: str) -> Between:
    """Name the two columns of punctuations between whose values, both included, no more rows come.

    >>> between("lo", "hi")
    Between(low='lo', high='hi')
    """
    return Between(low, high)


def punctuations(
    *,
    flag: str | None = None,
    frame: Any = None,
    on: "str | Iterable[str] | Mapping[str, str | Between] | None" = None,
    time: str | None = None,
    effect: Effect | None = None,
) -> Punctuations:
    """Say where a stream's punctuations come from: each says that no more rows come whose columns match it.

    Args:
        flag: A boolean column of the stream that is TRUE for them; NULL means data.
        frame: Or else a frame of their own, streaming if the stream is.
        on: The columns that they speak of: a name, several, or a dict from columns of the stream to those of the
            punctuations; `wm.between(low, high)` names two, for a range. Any value will do in columns not named.
        time: The event-time column of the frame.
        effect: From when on they count: `batch` is the end of their batch, `watermark` when the join's watermark has
            passed their event time. By default `batch` with a flag and `watermark` with a frame.

    >>> print(punctuations(flag="is_end", on="auction"))
    wm.punctuations(flag='is_end')
    """
    if (flag is None) == (frame is None):
        raise DefinitionError(
            "wm.punctuations needs a flag, a boolean column of the stream, or a frame of their own: "
            f"{'it was given neither' if flag is None else 'not both'}."
        )
    if flag is not None:
        _check_name("wm.punctuations(flag=...)", flag)
    default: Effect = "batch" if frame is None else "watermark"
    made = Punctuations(_on(on), default if effect is None else effect, flag, frame, time)
    if not isinstance(made.effect, str) or made.effect not in get_args(Effect):
        raise DefinitionError(f"{made}: effect={effect!r} is unknown; use one of {', '.join(get_args(Effect))}.")
    if frame is None and time is not None:
        raise DefinitionError(f"{made}: time={time!r} goes with a frame; rows of the stream have its event time.")
    if frame is not None and not (isinstance(time, str) and time):
        raise DefinitionError(f"{made}: give the frame's event-time column, such as time='ts'; got {time!r}.")
    return made


def _on(given: object) -> On:
    """Return what punctuations speak of, each column with the columns that hold the ends."""
    if isinstance(given, Mapping):
        pairs = [*given.items()]
    elif isinstance(given, str):
        pairs = [(given, given)]
    else:
        pairs = [(name, name) for name in given] if isinstance(given, Iterable) else []
    if not pairs:
        raise DefinitionError(
            "wm.punctuations(on=...) says of which columns they speak: a name, a list of names, or a dict such as "
            f"{{'seq': wm.between('lo', 'hi')}}; got {given!r}."
        )
    for name, _ in pairs:
        _check_name("wm.punctuations(on=...)", name)
    return tuple((name, _ends(name, value)) for name, value in pairs)


def _ends(name: str, given: object) -> Between:
    if isinstance(given, Between):
        return given
    _check_name(f"wm.punctuations(on={{{name!r}: ...}})", given, ", or wm.between('lo', 'hi')")
    return Between(str(given), str(given))


def _check_name(where: str, given: object, other: str = "") -> None:
    if not isinstance(given, str) or not given:
        raise DefinitionError(f"{where}: {given!r} is not the name of a column, such as 'id'{other}.")


def _is_amount(given: int | float | Decimal) -> bool:
    try:
        return isfinite(given) and given >= 0
    except (OverflowError, ValueError):
        return False
