"""Constraints and punctuations as users declare them, by the names of columns.

The join resolves these names to positions once it knows all of its streams; see docs/metadata.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, get_args

from watersmeet.arguments import check_choice, format_duration, is_whole, microseconds, to_python
from watersmeet.errors import DefinitionError
from watersmeet.metadata.constraints import Effect


@dataclass(frozen=True, slots=True)
class KeyDeclaration:
    """A key: no later batch repeats the values of these columns; made by `wm.key`."""

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
    """Rows with the same value arrive together; made by `wm.clustered`."""

    column: str
    slack: int = 0

    def __post_init__(self) -> None:
        """Check the column's name and the slack.

        Raises:
            DefinitionError: If one can't be right.
        """
        _check_name("wm.clustered", self.column)
        if not is_whole(self.slack, 0):
            raise DefinitionError(
                f"{self}: the slack is in batches, a whole number that isn't negative; got {self.slack!r}."
            )

    def __str__(self) -> str:
        return f"wm.clustered({self.column!r})"


@dataclass(frozen=True, slots=True)
class OrderDeclaration:
    """Values of a column never decrease, or never increase; made by `wm.ordered`."""

    column: str
    slack: int | float | Decimal | timedelta = 0
    falling: bool = False

    def __post_init__(self) -> None:
        """Check the column's name, the direction and the slack.

        Raises:
            DefinitionError: If one can't be right.
        """
        _check_name("wm.ordered", self.column)
        if not isinstance(self.falling, bool):
            raise DefinitionError(f"{self}: falling is True or False; got {self.falling!r}.")
        if isinstance(self.slack, timedelta):
            microseconds(self.slack, f"slack of {self}")
        elif isinstance(self.slack, bool) or not isinstance(self.slack, int | float | Decimal):
            raise DefinitionError(
                f"{self}: a slack is a number or a duration such as '10 seconds'; got {self.slack!r}."
            )
        elif not _is_finite(self.slack):
            raise DefinitionError(f"{self}: slack={self.slack} must be zero or more, and finite.")

    def __str__(self) -> str:
        return f"wm.ordered({self.column!r})"

    @property
    def slack_text(self) -> str:
        """The slack as users write it."""
        if isinstance(self.slack, timedelta):
            return repr(format_duration(self.slack // timedelta(microseconds=1)))
        return str(self.slack)


@dataclass(frozen=True, slots=True)
class ForeignKeyDeclaration:
    """Every value of a column occurs in a column of another stream; made by `wm.foreign_key`."""

    column: str
    parent: str

    def __post_init__(self) -> None:
        """Check the names of both columns.

        Raises:
            DefinitionError: If one can't be right.
        """
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
    """The two columns of punctuations that hold the ends of an inclusive range; made by `wm.between`."""

    low: str
    high: str

    def __post_init__(self) -> None:
        for column in (self.low, self.high):
            _check_name("wm.between", column)


PatternColumns = tuple[tuple[str, Between], ...]
"""Columns of a stream, each with the two columns of the punctuations that bound it; equal ones for a constant."""


@dataclass(frozen=True, slots=True)
class Punctuations:
    """Where a stream's punctuations come from: flagged rows of its own, or another frame; made by `wm.punctuations`."""

    on: PatternColumns
    effect: Effect
    flag: str | None = None
    frame: Any = None
    time: str | None = None

    def __str__(self) -> str:
        return "wm.punctuations(frame=...)" if self.flag is None else f"wm.punctuations(flag={self.flag!r})"


ConstraintDeclaration = KeyDeclaration | ClusteringDeclaration | OrderDeclaration | ForeignKeyDeclaration


# -- what users call


def key(*columns: str) -> KeyDeclaration:
    """Declare that values of some columns, taken together, arrive in one batch only.

    >>> print(key("id"))
    wm.key('id')
    """
    return KeyDeclaration(columns)


def clustered(column: str, slack: int = 0) -> ClusteringDeclaration:
    """Declare that rows with the same value arrive together: a value that has been missing does not come back.

    Args:
        column: The column.
        slack: For how many batches with rows of the stream a value may be missing and still come back.

    Raises:
        DefinitionError: If the column is no name, or the slack is not a whole number from 0.

    >>> print(clustered("zone", slack=2))
    wm.clustered('zone')
    """
    return ClusteringDeclaration(column, to_python(slack))


def ordered(
    column: str, slack: int | float | Decimal | str | timedelta | None = None, falling: bool = False
) -> OrderDeclaration:
    """Declare that values of a column never decrease from one batch to the next.

    Args:
        column: The column.
        slack: How far behind the highest value later ones may lie: a number; for times a duration such as
            `"10 seconds"`, for dates a whole number of days.
        falling: Whether values never increase instead.

    Raises:
        DefinitionError: If the column is no name, the slack is no number or duration from 0, or `falling` no boolean.

    >>> print(ordered("seq", slack=100))
    wm.ordered('seq')
    """
    if isinstance(slack, str):
        slack = timedelta(microseconds=microseconds(slack, f"slack of wm.ordered({column!r})"))
    return OrderDeclaration(column, 0 if slack is None else to_python(slack), to_python(falling))


def foreign_key(column: str, parent: str) -> ForeignKeyDeclaration:
    """Declare that every value of a column occurs in a column of another stream.

    Args:
        column: The column.
        parent: The stream and its column, such as `"auctions.id"`.

    Raises:
        DefinitionError: If one of them is no name of that form.

    >>> print(foreign_key("auction", "auctions.id"))
    wm.foreign_key('auction', 'auctions.id')
    """
    return ForeignKeyDeclaration(column, parent)


def between(low: str, high: str) -> Between:
    """Name the two columns of punctuations that hold an inclusive range of values which no later row has.

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
    """Declare where a stream's punctuations come from: no row that matches a punctuation arrives after it.

    Args:
        flag: A boolean column of the stream that is TRUE for punctuations; NULL means data.
        frame: Instead of a flag, a frame that holds only punctuations; it must be streaming if the stream is.
        on: The columns that punctuations match: a name, several, or a dict from columns of the stream to columns of the
            punctuations; `wm.between(low, high)` names two, for a range. Columns not named match any value.
        time: The event-time column of the frame.
        effect: When they take effect: with `batch` at the end of their batch, with `watermark` once the join's
            watermark has passed their event time. By default `batch` with a flag and `watermark` with a frame.

    Raises:
        DefinitionError: If there is neither a flag nor a frame, or both, or the other arguments don't go with it.

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
    declaration = Punctuations(_read_pattern(on), default if effect is None else effect, flag, frame, time)
    check_choice(f"{declaration}: effect", declaration.effect, get_args(Effect))
    if frame is None and time is not None:
        raise DefinitionError(
            f"{declaration}: time={time!r} goes with a frame; rows of the stream have its event time."
        )
    if frame is not None and not (isinstance(time, str) and time):
        raise DefinitionError(f"{declaration}: give the frame's event-time column, such as time='ts'; got {time!r}.")
    return declaration


def _read_pattern(value: object) -> PatternColumns:
    """Return the columns that punctuations match, each with the columns that bound it.

    Raises:
        DefinitionError: If there are none, or one is no name.
    """
    if isinstance(value, Mapping):
        pairs = [*value.items()]
    elif isinstance(value, str):
        pairs = [(value, value)]
    else:
        pairs = [(name, name) for name in value] if isinstance(value, Iterable) else []
    if not pairs:
        raise DefinitionError(
            "wm.punctuations(on=...) names the columns that punctuations match: a name, a list of names, or a dict "
            f"such as {{'seq': wm.between('lo', 'hi')}}; got {value!r}."
        )
    for name, _ in pairs:
        _check_name("wm.punctuations(on=...)", name)
    return tuple((name, _ends(name, value)) for name, value in pairs)


def _ends(name: str, value: object) -> Between:
    if isinstance(value, Between):
        return value
    _check_name(f"wm.punctuations(on={{{name!r}: ...}})", value, ", or wm.between('lo', 'hi')")
    return Between(str(value), str(value))


def _check_name(where: str, value: object, other: str = "") -> None:
    if not isinstance(value, str) or not value:
        raise DefinitionError(f"{where}: {value!r} is not the name of a column, such as 'id'{other}.")


def _is_finite(value: int | float | Decimal) -> bool:
    try:
        return isfinite(value) and value >= 0
    except (OverflowError, ValueError):
        return False
