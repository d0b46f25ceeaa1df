"""What streams promise, from the names that people give to the positions that the core knows, and checked."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.errors import DefinitionError
from watersmeet.metadata.constraints import Clustered, ForeignKey, Key, Ordered, Pattern, Promise, Punctuated
from watersmeet.metadata.declarations import (
    Between,
    ClusteredBy,
    Constraint,
    KeyOf,
    OrderedBy,
    Punctuations,
    References,
)
from watersmeet.metadata.frontiers import slack_of
from watersmeet.predicate.model import Column, HiddenColumn
from watersmeet.predicate.scope import same_name
from watersmeet.query.query import StreamSpec
from watersmeet.spark.api.columns import Columns, compared_as
from watersmeet.spark.api.upstream import check_upstream
from watersmeet.spark.run.frames import Told, check_frame, column_name, is_odd

Given = TypeVar("Given", bound=Constraint | Punctuations)


class Declared(NamedTuple):
    """What people promise of a stream."""

    constraints: tuple[Constraint, ...] = ()
    punctuations: tuple[Punctuations, ...] = ()


class Resolved(NamedTuple):
    """What the core knows of it: the promises, hidden columns behind all others, and punctuations to be read."""

    promises: tuple[Promise, ...] = ()
    hidden: tuple[HiddenColumn, ...] = ()
    told: tuple[Told, ...] = ()


def declared(stream: str, constraints: object, punctuations: object) -> Declared:
    """Return what `wm.stream` was given.

    Raises:
        DefinitionError: If it is something else.
    """
    if isinstance(constraints, Constraint | str) or not isinstance(constraints, Sequence):
        raise DefinitionError(
            f"Stream '{stream}': constraints must be a list, such as [wm.key('id')]; got {constraints!r}."
        )
    for given in constraints:
        if not isinstance(given, Constraint):
            raise DefinitionError(
                f"Stream '{stream}': {given!r} is no constraint; use wm.key, wm.ordered, wm.clustered or "
                "wm.foreign_key, and punctuations=... for punctuations."
            )
    several = isinstance(punctuations, list | tuple)
    found: Any = punctuations if several else () if punctuations is None else (punctuations,)
    for said in found:
        if not isinstance(said, Punctuations):
            raise DefinitionError(
                f"Stream '{stream}': punctuations={said!r} must be made by wm.punctuations(flag=..., on=...)."
            )
    return Declared(tuple(constraints), tuple(found))


class Resolver:
    """Resolves what the streams of a join promise.

    Args:
        streams: The streams, with the hidden columns that `where` takes.
        kinds: Their columns in Spark's terms.
        streaming: Whether their frames are streaming.
    """

    def __init__(self, streams: Sequence[StreamSpec], kinds: Sequence[T.StructType], streaming: Sequence[bool]) -> None:
        self._streams, self._streaming = streams, streaming
        self._columns = [Columns(f"Stream '{stream.name}'", kind) for stream, kind in zip(streams, kinds, strict=True)]

    def resolved(self, stream: int, given: Declared) -> Resolved:
        """Return what a stream promises.

        Raises:
            DefinitionError: If it can't promise that; the message says why.
        """
        constraints = [self._constraint(stream, constraint) for constraint in given.constraints]
        self._refuse_twice(stream, given.constraints, constraints)
        promises, hidden, told = list[Promise](constraints), list[HiddenColumn](), list[Told]()
        first = len(self._streams[stream].schema) + len(self._streams[stream].hidden)
        for said in given.punctuations:
            made = self._flagged(stream, said) if said.frame is None else self._told(stream, said, first + len(hidden))
            promises += made.promises
            hidden += made.hidden
            told += made.told
        flagged = [said for said in given.punctuations if said.frame is None]
        self._refuse_twice(stream, flagged, [p for p in promises if isinstance(p, Punctuated) and p.flag < first])
        self._refuse_twice(stream, framed := [said for said in given.punctuations if said.frame is not None], framed)
        return Resolved(tuple(promises), tuple(hidden), tuple(told))

    def _refuse_twice(self, stream: int, given: Sequence[Given], made: Sequence[object]) -> None:
        twice = next((said for at, said in enumerate(given) if made[at] in made[:at]), None)
        if twice is not None:
            raise DefinitionError(f"{self._columns[stream].owner} promises {twice} twice; leave one out.")

    # -- constraints

    def _constraint(self, stream: int, given: Constraint) -> Promise:
        columns = self._columns[stream]
        match given:
            case KeyOf(names):
                return Key(self._once(stream, given, [columns.comparable(given, name) for name in names]))
            case ClusteredBy(name, slack):
                return Clustered(columns.comparable(given, name), slack)
            case OrderedBy(name, _, falling):
                at = columns.comparable(given, name)
                return Ordered(at, falling, self._slack(columns, given, at))
            case References(name, parent):
                return ForeignKey(columns.comparable(given, name), self._parent(stream, given, parent))

    def _once(self, stream: int, what: object, positions: Sequence[int]) -> tuple[int, ...]:
        twice = next((at for order, at in enumerate(positions) if at in positions[:order]), None)
        if twice is not None:
            columns = self._columns[stream]
            raise DefinitionError(f"{columns.owner}, {what}: it names '{columns.kind.names[twice]}' twice.")
        return tuple(positions)

    def _slack(self, columns: Columns, given: OrderedBy, at: int) -> Any:
        found = slack_of(given.slack, compared_as(columns.type_of(at)))
        if found is None:
            kind = columns.type_of(at)
            raise DefinitionError(
                f"{columns.owner}, {given}: slack={given.shown} does not go with a column of type "
                f"{kind.simpleString()}; {_slack_hint(kind)}."
            )
        return found

    def _parent(self, stream: int, given: References, parent: str) -> Column:
        name, _, column = parent.partition(".")
        names = [spec.name for spec in self._streams]
        found = next((at for at, known in enumerate(names) if same_name(known, name)), None)
        if found is None or found == stream:
            others, owner = (known for at, known in enumerate(names) if at != stream), self._columns[stream].owner
            raise DefinitionError(
                f"{owner}, {given}: '{name}' is no other stream of the join; choose from {', '.join(others)}."
            )
        at = self._columns[found].comparable(f"of which {self._streams[stream].name} says {given}", column)
        mine, theirs = self._columns[stream], self._columns[found].type_of(at)
        self._check_type(mine, given, mine.at(given, given.column), theirs, parent)
        return Column(found, at)

    def _check_type(self, columns: Columns, what: object, at: int, kind: T.DataType, other: str) -> None:
        own = columns.type_of(at)
        if compared_as(own) != compared_as(kind) or is_odd(kind):
            raise DefinitionError(
                f"{columns.owner}, {what}: '{columns.kind.names[at]}' is of type {own.simpleString()} and '{other}' of "
                f"type {kind.simpleString()}; cast one to the type of the other."
            )

    # -- punctuations

    def _flagged(self, stream: int, said: Punctuations) -> Resolved:
        """Return punctuations that are rows of the stream."""
        columns, flag = self._columns[stream], self._columns[stream].at(said, str(said.flag))
        if not isinstance(columns.type_of(flag), T.BooleanType):
            raise DefinitionError(
                f"{columns.owner}, {said}: '{said.flag}' is of type {columns.type_of(flag).simpleString()}; a flag is "
                "boolean, and TRUE for punctuations."
            )
        fields, ends = self._patterns(stream, said, columns)
        patterns = tuple(Pattern(at, *found) for at, found in zip(fields, ends, strict=True))
        return Resolved((Punctuated(flag, patterns, said.effect),))

    def _patterns(
        self, stream: int, said: Punctuations, theirs: Columns
    ) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
        """Return the columns that punctuations speak of, and for each where its ends are among those of theirs."""
        columns = self._columns[stream]
        fields = self._once(stream, said, [columns.comparable(said, name) for name, _ in said.on])
        return fields, [
            self._ends(columns, said, at, theirs, ends) for at, (_, ends) in zip(fields, said.on, strict=True)
        ]

    def _ends(self, columns: Columns, said: Punctuations, at: int, theirs: Columns, ends: Between) -> tuple[int, int]:
        low, high = theirs.at(said, ends.low), theirs.at(said, ends.high)
        for end in (low, high):
            self._check_type(columns, said, at, theirs.type_of(end), theirs.kind.names[end])
        return low, high

    def _told(self, stream: int, said: Punctuations, first: int) -> Resolved:
        """Return punctuations from a frame of their own.

        Args:
            stream: The stream.
            said: What was said of them.
            first: The position of the first hidden column that is theirs.
        """
        spec, theirs = self._streams[stream], self._frame(stream, said)
        fields, ends = self._patterns(stream, said, theirs)
        needed = sorted({end for found in ends for end in found})
        place = {end: first + 1 + order for order, end in enumerate(needed)}
        hidden = [HiddenColumn("a frame of their own", pa.bool_(), told=True)]
        hidden += [HiddenColumn(theirs.kind.names[end], compared_as(theirs.type_of(end)), told=True) for end in needed]
        patterns = [Pattern(at, place[low], place[high]) for at, (low, high) in zip(fields, ends, strict=True)]
        time = F.col(column_name(theirs.at(said, str(said.time))))
        values = {spec.time: time, first: F.lit(True), **{at: F.col(column_name(end)) for end, at in place.items()}}
        frame = said.frame.toDF(*(column_name(at) for at in range(len(theirs.kind))))
        return Resolved(
            (Punctuated(first, tuple(patterns), said.effect),), tuple(hidden), (Told(stream, frame, values),)
        )

    def _frame(self, stream: int, said: Punctuations) -> Columns:
        """Return the columns of a frame of punctuations, if it goes with the stream."""
        spec, owner = self._streams[stream], f"Punctuations of stream '{self._streams[stream].name}'"
        frame = check_frame(f"{owner}: frame=...", said.frame)
        if frame.isStreaming != self._streaming[stream]:
            kinds = ("streaming", "static") if self._streaming[stream] else ("static", "streaming")
            raise DefinitionError(
                f"{owner}: the stream is {kinds[0]} and their frame is {kinds[1]}; read both with spark.readStream, or "
                "both with spark.read."
            )
        check_upstream(f"{owner}: their frame", frame)
        columns = Columns(owner, frame.schema)
        time = columns.type_of(columns.at(said, str(said.time)))
        if not isinstance(time, T.TimestampType | T.TimestampNTZType) or compared_as(time) != spec.time_type:
            wanted = "timestamp_ntz" if spec.time_type.tz is None else "timestamp"
            raise DefinitionError(
                f"{owner}: their time column '{said.time}' is of type {time.simpleString()}, and the stream's event "
                f"times are of type {wanted}; cast it."
            )
        return columns


def _slack_hint(kind: T.DataType) -> str:
    """Return what slack goes with a column of a type."""
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return "give a duration such as '10 seconds'"
    if isinstance(kind, T.DateType):
        return "give a duration in whole days, such as '2 days'"
    if isinstance(kind, T.IntegralType):
        return "give a whole number"
    if isinstance(kind, T.NumericType):
        return "give a number"
    return "leave it out: such values have no distance"
