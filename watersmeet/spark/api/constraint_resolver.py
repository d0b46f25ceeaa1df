"""Constraints and punctuations as users declare them, checked and resolved from names to positions of columns."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.errors import DefinitionError
from watersmeet.metadata.constraints import (
    Clustering,
    Constraint,
    FlaggedPunctuations,
    ForeignKey,
    Key,
    Pattern,
    SortOrder,
)
from watersmeet.metadata.declarations import (
    ClusteringDeclaration,
    ConstraintDeclaration,
    ForeignKeyDeclaration,
    KeyDeclaration,
    OrderDeclaration,
    Punctuations,
)
from watersmeet.metadata.spans import convert_slack
from watersmeet.predicate.model import Column, HiddenColumn
from watersmeet.predicate.scope import same_name
from watersmeet.query.query import StreamSpec
from watersmeet.spark.api.user_frames import NamedColumns, check_upstream, compared_as
from watersmeet.spark.run.frames import PunctuationFrame, check_frame, column_name, is_odd

Declaration = TypeVar("Declaration", bound=ConstraintDeclaration | Punctuations)


class Declarations(NamedTuple):
    """The constraints and punctuations that a user declares for a stream."""

    constraints: tuple[ConstraintDeclaration, ...] = ()
    punctuations: tuple[Punctuations, ...] = ()


class ResolvedConstraints(NamedTuple):
    """Declarations resolved for the core.

    Attributes:
        constraints: The constraints, those by punctuations among them.
        hidden: Hidden columns to be added after all others.
        punctuations: Frames that hold punctuations.
    """

    constraints: tuple[Constraint, ...] = ()
    hidden: tuple[HiddenColumn, ...] = ()
    punctuations: tuple[PunctuationFrame, ...] = ()


def check_declarations(stream: str, constraints: object, punctuations: object) -> Declarations:
    """Check these arguments of `wm.stream` and return the declarations.

    Raises:
        DefinitionError: If an argument has a wrong type.
    """
    if isinstance(constraints, ConstraintDeclaration | str) or not isinstance(constraints, Sequence):
        raise DefinitionError(
            f"Stream '{stream}': constraints must be a list, such as [wm.key('id')]; got {constraints!r}."
        )
    for constraint in constraints:
        if not isinstance(constraint, ConstraintDeclaration):
            raise DefinitionError(
                f"Stream '{stream}': {constraint!r} is not a constraint; use wm.key, wm.ordered, wm.clustered or "
                "wm.foreign_key, and punctuations=... for punctuations."
            )
    is_list = isinstance(punctuations, list | tuple)
    listed: Any = punctuations if is_list else () if punctuations is None else (punctuations,)
    for value in listed:
        if not isinstance(value, Punctuations):
            raise DefinitionError(
                f"Stream '{stream}': punctuations={value!r} must be made by wm.punctuations(flag=..., on=...)."
            )
    return Declarations(tuple(constraints), tuple(listed))


class ConstraintResolver:
    """Resolves the constraints of the streams of a join.

    Args:
        streams: The streams, with the hidden columns of `where`.
        kinds: Their schemas in Spark.
        streaming: Whether their frames are streaming.
    """

    def __init__(self, streams: Sequence[StreamSpec], kinds: Sequence[T.StructType], streaming: Sequence[bool]) -> None:
        self._streams, self._streaming = streams, streaming
        owners = [f"Stream '{stream.name}'" for stream in streams]
        self._columns = [NamedColumns(*pair) for pair in zip(owners, kinds, strict=True)]

    def resolve(self, stream: int, declarations: Declarations) -> ResolvedConstraints:
        """Resolve the declarations of a stream.

        Raises:
            DefinitionError: If they do not fit the stream; the message says why.
        """
        constraints = [self._resolve_constraint(stream, constraint) for constraint in declarations.constraints]
        self._reject_duplicates(stream, declarations.constraints, constraints)
        hidden, frames, in_rows = list[HiddenColumn](), list[PunctuationFrame](), list[tuple[Constraint, ...]]()
        first = len(self._streams[stream].schema) + len(self._streams[stream].hidden)
        for own in declarations.punctuations:
            if own.frame is None:
                resolved = self._resolve_flagged(stream, own)
                in_rows.append(resolved.constraints)
            else:
                resolved = self._resolve_frame(stream, own, first + len(hidden))
            constraints += resolved.constraints
            hidden += resolved.hidden
            frames += resolved.punctuations
        self._reject_duplicates(stream, [own for own in declarations.punctuations if own.frame is None], in_rows)
        framed = [own for own in declarations.punctuations if own.frame is not None]
        self._reject_duplicates(stream, framed, framed)
        return ResolvedConstraints(tuple(constraints), tuple(hidden), tuple(frames))

    def _reject_duplicates(self, stream: int, declarations: Sequence[Declaration], resolved: Sequence[object]) -> None:
        twice = next((own for at, own in enumerate(declarations) if resolved[at] in resolved[:at]), None)
        if twice is not None:
            raise DefinitionError(f"{self._columns[stream].owner} declares {twice} twice; remove one.")

    # -- constraints

    def _resolve_constraint(self, stream: int, declaration: ConstraintDeclaration) -> Constraint:
        """Return a declaration as a constraint on columns; raises DefinitionError if it doesn't suit them."""
        columns = self._columns[stream]
        match declaration:
            case KeyDeclaration(names):
                return Key(
                    self._check_distinct(
                        stream, declaration, [columns.comparable_at(declaration, name) for name in names]
                    )
                )
            case ClusteringDeclaration(name, slack):
                return Clustering(columns.comparable_at(declaration, name), slack)
            case OrderDeclaration(name, _, falling):
                at = columns.comparable_at(declaration, name)
                return SortOrder(at, falling, self._slack(columns, declaration, at))
            case ForeignKeyDeclaration(name, parent):
                return ForeignKey(columns.comparable_at(declaration, name), self._parent(stream, declaration, parent))

    def _check_distinct(self, stream: int, what: object, positions: Sequence[int]) -> tuple[int, ...]:
        """Return the positions of a declaration's columns; raises DefinitionError if one is named twice."""
        twice = next((at for order, at in enumerate(positions) if at in positions[:order]), None)
        if twice is not None:
            columns = self._columns[stream]
            raise DefinitionError(f"{columns.owner}, {what}: it names '{columns.kind.names[twice]}' twice.")
        return tuple(positions)

    def _slack(self, columns: NamedColumns, declaration: OrderDeclaration, at: int) -> Any:
        """Return an order's slack in the unit of its column; raises DefinitionError if it doesn't suit the type."""
        slack = convert_slack(declaration.slack, compared_as(columns.type_of(at)))
        if slack is None:
            kind = columns.type_of(at)
            raise DefinitionError(
                f"{columns.owner}, {declaration}: slack={declaration.slack_text} does not suit a column of type "
                f"{kind.simpleString()}; {_slack_hint(kind)}."
            )
        return slack

    def _parent(self, stream: int, declaration: ForeignKeyDeclaration, parent: str) -> Column:
        """Return the column that a foreign key names as `stream.column`; raises DefinitionError unless it suits."""
        name, _, column = parent.partition(".")
        names = [spec.name for spec in self._streams]
        other = next((at for at, other_name in enumerate(names) if same_name(other_name, name)), None)
        if other is None or other == stream:
            owner = self._columns[stream].owner
            others = (other_name for at, other_name in enumerate(names) if at != stream)
            raise DefinitionError(
                f"{owner}, {declaration}: '{name}' is not another stream of the join; choose from {', '.join(others)}."
            )
        at = self._columns[other].comparable_at(f"of which {self._streams[stream].name} says {declaration}", column)
        mine, theirs = self._columns[stream], self._columns[other].type_of(at)
        self._check_type(mine, declaration, mine.at(declaration, declaration.column), theirs, parent)
        return Column(other, at)

    def _check_type(self, columns: NamedColumns, what: object, at: int, kind: T.DataType, other: str) -> None:
        """Raise DefinitionError if a column's type isn't compared in the same way as that of the other column."""
        own = columns.type_of(at)
        if compared_as(own) != compared_as(kind) or is_odd(kind):
            raise DefinitionError(
                f"{columns.owner}, {what}: '{columns.kind.names[at]}' is of type {own.simpleString()} and '{other}' of "
                f"type {kind.simpleString()}; cast one to the type of the other."
            )

    # -- punctuations

    def _resolve_flagged(self, stream: int, punctuations: Punctuations) -> ResolvedConstraints:
        """Resolve punctuations that are rows of the stream; raises DefinitionError if they don't fit it."""
        columns, flag = self._columns[stream], self._columns[stream].at(punctuations, str(punctuations.flag))
        kind = columns.type_of(flag)
        if not isinstance(kind, T.BooleanType):
            raise DefinitionError(
                f"{columns.owner}, {punctuations}: '{punctuations.flag}' is of type {kind.simpleString()}; a flag is "
                "boolean, and TRUE for punctuations."
            )
        fields, ends = self._patterns(stream, punctuations, columns)
        patterns = tuple(Pattern(at, *pair) for at, pair in zip(fields, ends, strict=True))
        return ResolvedConstraints((FlaggedPunctuations(flag, patterns, punctuations.effect),))

    def _patterns(
        self, stream: int, punctuations: Punctuations, theirs: NamedColumns
    ) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
        """Return the columns of a stream that punctuations match, and for each where its two ends are in `theirs`.

        Args:
            stream: The stream.
            punctuations: Their declaration.
            theirs: The columns that hold the ends: the stream's own, or those of a frame.

        Raises:
            DefinitionError: If there is no such column, one is named twice, or an end is of another type.
        """
        columns = self._columns[stream]
        fields = self._check_distinct(
            stream, punctuations, [columns.comparable_at(punctuations, on) for on, _ in punctuations.on]
        )
        ends = list[tuple[int, int]]()
        for field, (_, between) in zip(fields, punctuations.on, strict=True):
            low, high = theirs.at(punctuations, between.low), theirs.at(punctuations, between.high)
            for end in (low, high):
                self._check_type(columns, punctuations, field, theirs.type_of(end), theirs.kind.names[end])
            ends.append((low, high))
        return fields, ends

    def _resolve_frame(self, stream: int, punctuations: Punctuations, first: int) -> ResolvedConstraints:
        """Resolve punctuations that come in a frame of their own.

        Args:
            stream: The stream.
            punctuations: Their declaration.
            first: The position of their first hidden column.

        Raises:
            DefinitionError: If the frame doesn't fit the stream.
        """
        spec, theirs = self._streams[stream], self._frame_columns(stream, punctuations)
        fields, ends = self._patterns(stream, punctuations, theirs)
        ends_read = sorted({end for pair in ends for end in pair})
        place = {end: first + 1 + order for order, end in enumerate(ends_read)}
        hidden = [HiddenColumn("a frame of their own", pa.bool_(), punctuation=True)]
        hidden += [
            HiddenColumn(theirs.kind.names[end], compared_as(theirs.type_of(end)), punctuation=True)
            for end in ends_read
        ]
        patterns = [Pattern(at, place[low], place[high]) for at, (low, high) in zip(fields, ends, strict=True)]
        time = F.col(column_name(theirs.at(punctuations, str(punctuations.time))))
        values = {spec.time: time, first: F.lit(True), **{at: F.col(column_name(end)) for end, at in place.items()}}
        frame = punctuations.frame.toDF(*(column_name(at) for at in range(len(theirs.kind))))
        constraints = (FlaggedPunctuations(first, tuple(patterns), punctuations.effect),)
        return ResolvedConstraints(constraints, tuple(hidden), (PunctuationFrame(stream, frame, values),))

    def _frame_columns(self, stream: int, punctuations: Punctuations) -> NamedColumns:
        """Return the columns of a frame of punctuations; raises DefinitionError if it doesn't suit its stream."""
        spec, owner = self._streams[stream], f"Punctuations of stream '{self._streams[stream].name}'"
        frame = check_frame(f"{owner}: frame=...", punctuations.frame)
        if frame.isStreaming != self._streaming[stream]:
            kinds = ("streaming", "static") if self._streaming[stream] else ("static", "streaming")
            raise DefinitionError(
                f"{owner}: the stream is {kinds[0]} and their frame is {kinds[1]}; read both with spark.readStream, or "
                "both with spark.read."
            )
        check_upstream(f"{owner}: their frame", frame)
        columns = NamedColumns(owner, frame.schema)
        time = columns.type_of(columns.at(punctuations, str(punctuations.time)))
        if not isinstance(time, T.TimestampType | T.TimestampNTZType) or compared_as(time) != spec.time_type:
            expected = "timestamp_ntz" if spec.time_type.tz is None else "timestamp"
            raise DefinitionError(
                f"{owner}: their time column '{punctuations.time}' is of type {time.simpleString()}, and the stream's "
                f"event times are of type {expected}; cast it."
            )
        return columns


def _slack_hint(kind: T.DataType) -> str:
    """Return in words which slack a column of a type can have."""
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return "give a duration such as '10 seconds'"
    if isinstance(kind, T.DateType):
        return "give a duration in whole days, such as '2 days'"
    if isinstance(kind, T.IntegralType):
        return "give a whole number"
    if isinstance(kind, T.NumericType):
        return "give a number"
    return "leave it out: such values have no distance"
