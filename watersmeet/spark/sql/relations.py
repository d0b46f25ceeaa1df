"""Turns a statement's FROM and WHERE into one join, or joins that are streams of others, with the semantics of SQL.

Most statements are one join: required streams, and optional streams that are matched with these alone. A condition
after ON that names an optional stream, and full and right joins of more than two streams, need the results of the
relations before them: these become an inner join, a stream of the next one.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from watersmeet.errors import DefinitionError
from watersmeet.predicate.scope import TABLE_TIME
from watersmeet.query.query import How
from watersmeet.query.sql_joins import JoinKind
from watersmeet.query.statement import JoinedStream, Relation, Statement
from watersmeet.query.windows import Sliding
from watersmeet.spark.api.define import Conditions, Join, JoinOptions, define
from watersmeet.spark.api.stream import Stream, stream
from watersmeet.spark.run.frames import quote_name
from watersmeet.spark.sql.catalyst import ConditionText, ParsedNode, parse
from watersmeet.spark.sql.condition_names import ATTRIBUTE, FUNCTION
from watersmeet.spark.sql.dialect import dialect_of
from watersmeet.spark.sql.select_columns import struct_of
from watersmeet.spark.sql.statement_names import StatementNames, UsingColumn
from watersmeet.spark.sql.where import conjuncts_of

HOWS: dict[JoinKind, How] = {
    "left": "left", "semi": "semi", "anti": "anti", "asof": "asof", "asof left": "asof left"
}  # fmt: skip
"""The role of the stream on the right of a join."""
COMPARISONS = {"EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"}
STRICT = {"Add", "Subtract", "Multiply", "Divide", "UnaryMinus", "Cast"}
"""Operators that are NULL if an operand is."""


@dataclass(frozen=True)
class Draft:
    """The join of the relations of a statement that have been read so far.

    Attributes:
        streams: The streams of the join, by name; some may be joins.
        how: The roles of optional streams.
        on: The conditions on their partners.
        where: The conditions on all combinations.
        paths: The path of each stream of the statement that may still be named: `b`, or `a_b.b` inside a join.
        using: The columns of USING, by their names in lower case.
    """

    streams: Mapping[str, Stream]
    how: Mapping[str, How] = field(default_factory=dict)
    on: Mapping[str, str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    using: Mapping[str, UsingColumn] = field(default_factory=dict)

    @staticmethod
    def of(name: str, one: Stream) -> "Draft":
        """Return the draft of a single stream."""
        return Draft({name: one}, paths={name: name})

    @property
    def is_full(self) -> bool:
        """Whether it is a full join, to which no stream can be added."""
        return "full" in self.how.values()

    @property
    def is_as_of(self) -> bool:
        """Whether a stream has only its newest partner in results."""
        return any(kind in ("asof", "asof left") for kind in self.how.values())

    def may_lack(self, names: Collection[str]) -> bool:
        """Tell whether results may lack one of these streams of the statement."""
        return any(name in self.paths and (self.is_full or self.root(name) in self.how) for name in names)

    def root(self, name: str) -> str:
        """Return the join's stream that is, or contains, a stream of the statement."""
        return self.paths[name].partition(".")[0]

    def product(self, other: "Draft") -> "Draft":
        """Return the product of two drafts, neither of them a full join."""
        return Draft(
            {**self.streams, **other.streams},
            {**self.how, **other.how},
            {**self.on, **other.on},
            self.where + other.where,
            {**self.paths, **other.paths},
            {**self.using, **other.using},
        )


def join_statement(statement: Statement, sources: Mapping[str, Stream], options: JoinOptions) -> Join:
    """Return the join that a statement describes.

    Args:
        statement: The statement.
        sources: Its streams, by their names in the statement.
        options: The user's other options.

    Raises:
        SqlError: If a condition can't be read; the span is underlined.
        DefinitionError: If the join is not possible.
    """
    return _JoinBuilder(sources, options).build(statement)


class _JoinBuilder:
    """Builds the join of one statement, as a draft that grows relation by relation.

    A draft to which the next relation can't be added as a stream becomes a join of its own, a stream of a new draft.
    """

    def __init__(self, sources: Mapping[str, Stream], options: JoinOptions) -> None:
        self._sources, self._options = sources, options
        self._spark = next(iter(sources.values()))._ws_part.session
        self._columns = {name: _columns(source) for name, source in sources.items()}

    def build(self, statement: Statement) -> Join:
        """Return the join of a statement: the relations of FROM, then subqueries, then the rest of WHERE.

        Raises:
            DefinitionError: If WHERE has a subquery that can't be read, or the join is not possible.
        """
        if len(self._sources) == 1 and re.search(r"\(\s*SELECT\b", statement.where or "", re.IGNORECASE):
            raise DefinitionError(
                "A subquery in WHERE must be [NOT] EXISTS (SELECT ..) or x [NOT] IN (SELECT ..), outside parentheses."
            )
        draft = reduce(self._join, statement.subqueries, self._read_from(statement.relations))
        draft, condition = self._apply_where(draft, statement)
        names = self._names(draft)
        select: str | list[SparkColumn] | None = statement.select and names.select_list(statement.select)
        if select is None and any("." in path for path in draft.paths.values()):
            select = self._all_streams(draft)
        return self._define(draft, select, condition and names.condition(condition), self._options)

    # -- FROM

    def _read_from(self, relations: Sequence[Relation]) -> Draft:
        """Return the draft of a FROM list.

        [!] To Spark a comma is one more join: joins after it apply to all relations before them, unless a setting
        changes that.
        """
        first, *others = ((self._single_draft(relation), relation.joins) for relation in relations)
        draft = reduce(self._join, first[1], first[0])
        for single, joins in others:
            if self._joins_precede_commas:
                draft = self._product(draft, reduce(self._join, joins, single))
            else:
                draft = reduce(self._join, joins, self._product(draft, single))
        return draft

    @property
    def _joins_precede_commas(self) -> bool:
        setting = self._spark.conf.get("spark.sql.ansi.relationPrecedence", "false")
        return setting == "true" and dialect_of(self._spark).ansi

    def _single_draft(self, relation: Relation) -> Draft:
        return Draft.of(relation.first.name, self._sources[relation.first.name])

    def _product(self, one: Draft, two: Draft) -> Draft:
        return self._make_extensible(one).product(self._make_extensible(two))

    def _make_extensible(self, draft: Draft) -> Draft:
        """Return a draft to which required streams can be added.

        [!] They can't be added to an as-of join: its partners are no later than the streams before it, not than all.
        """
        return self._nest(draft) if draft.is_full or draft.is_as_of else draft

    def _join(self, draft: Draft, join: JoinedStream) -> Draft:
        """Return a draft with one more stream.

        What precedes it becomes a join of its own where the condition reads results that may lack a stream, and where
        the draft can't be extended.
        """
        name, (on, using) = join.stream.name, self._condition(draft, join)
        right = Draft.of(name, self._sources[name])
        draft = self._make_extensible(draft) if draft.is_full or join.kind == "inner" else draft
        if join.kind in ("right", "full"):
            return self._join_right(draft, right, join, on, using)
        if draft.may_lack(self._names(draft.product(right)).streams(on)):
            draft = self._nest(draft)
        both = replace(draft.product(right), using={**draft.using, **using})
        if join.kind == "inner":
            return replace(both, where=both.where + ((on,) if on else ()))
        how = {**both.how, name: HOWS[join.kind]}
        paths = draft.paths if join.kind in ("semi", "anti") else both.paths  # streams of EXISTS can't be named later
        return replace(both, how=how, on={**both.on, name: on or "TRUE"}, paths=paths)

    def _join_right(
        self, draft: Draft, right: Draft, join: JoinedStream, on: str, using: Mapping[str, UsingColumn]
    ) -> Draft:
        """Return a right or full join, in which results may lack the left side as a whole.

        Several streams on the left become a join of their own.
        """
        left = draft if len(draft.streams) == 1 else self._nest(draft)
        (before,), (name,) = left.streams, right.streams
        both = replace(left.product(right), using={**left.using, **using})
        if join.kind == "full":
            return replace(both, how={name: "full"}, on={name: on})
        return replace(both, streams={**right.streams, **left.streams}, how={before: "left"}, on={before: on})

    def _condition(self, draft: Draft, join: JoinedStream) -> tuple[str, dict[str, UsingColumn]]:
        """Return the condition of a join, and what its columns of USING mean behind it, by their names in lower case.

        Raises:
            DefinitionError: If one side lacks a column of USING, or several streams on the left have it.
        """
        name, parts, using = join.stream.name, list[str](), dict[str, UsingColumn]()
        for column in join.using:
            left, own = self._left_column(draft, column), f"{quote_name(name)}.{quote_name(column)}"
            if column.lower() not in map(str.lower, self._columns[name]):
                raise DefinitionError(f"USING ({column}): '{name}' has no such column.")
            parts.append(f"{left.text} = {own}")
            if join.kind == "right":
                using[column.lower()] = UsingColumn(own, frozenset({name}))
            elif join.kind == "full":
                using[column.lower()] = UsingColumn(f"coalesce({left.text}, {own})", left.streams | {name})
            else:
                using[column.lower()] = left
        return " AND ".join(parts) if join.using else join.on, using

    def _left_column(self, draft: Draft, column: str) -> UsingColumn:
        """Return a column of USING as it is on the left side; raises DefinitionError unless one stream there has it."""
        if column.lower() in draft.using:
            return draft.using[column.lower()]
        owners = self._names(draft).owners(column)
        if len(owners) != 1:
            problem = (
                f"both {' and '.join(owners)} have it; write ON" if owners else "no stream before it has such a column"
            )
            raise DefinitionError(f"USING ({column}): {problem}.")
        return UsingColumn(f"{quote_name(owners[0])}.{quote_name(column)}", frozenset(owners))

    # -- joins within joins

    def _nest(self, draft: Draft) -> Draft:
        """Define a draft of several streams as a join, and return a draft with it as the only stream.

        Its window is the widest of its streams' own; there is none if one of them has no window by time.

        [!] Windows that follow from conditions don't hold for streams that are joined later.
        """
        if len(draft.streams) == 1:
            return draft
        inner = self._define(draft, None, None, self._options.inside)
        name = "_".join(draft.streams)
        while name.lower() in {source.lower() for source in self._sources}:
            name += "_"
        windows = [one._ws_part.window for one in draft.streams.values() if not one._ws_part.table]
        spans = [window.span for window in windows if window.span is not None]
        nested = stream(name, inner, window=Sliding(max(spans)) if len(spans) == len(windows) else None)
        return Draft(
            {name: nested}, paths={of: f"{name}.{path}" for of, path in draft.paths.items()}, using=draft.using
        )

    def _define(
        self, draft: Draft, select: str | Sequence[SparkColumn] | None, condition: str | None, options: JoinOptions
    ) -> Join:
        """Return a draft as a join; required streams come first, and `condition` filters the results."""
        with_paths = self._names(draft).condition
        required = [one for name, one in draft.streams.items() if name not in draft.how]
        optional = [one for name, one in draft.streams.items() if name in draft.how]
        where = [with_paths(text) for text in draft.where]
        whole = " AND ".join(f"({text})" for text in where) if len(where) > 1 else where[0] if where else None
        on = {name: with_paths(text) for name, text in draft.on.items()}
        return define([*required, *optional], Conditions(whole, on, draft.how, condition), select, options)

    def _all_streams(self, draft: Draft) -> list[SparkColumn]:
        """Return the list for `SELECT *` if streams are inside joins: a struct for each that can be named, and time."""
        structs = []
        for name, path in draft.paths.items():
            root, _, inside = path.partition(".")
            if inside:
                structs.append(F.col(f"{quote_name(root)}.{inside}").alias(name))
            else:
                part = draft.streams[root]._ws_part
                structs.append(struct_of(root, part.schema.names, draft.may_lack([name]), part.time))
        return [*structs, F.col("_time")]

    # -- WHERE

    def _apply_where(self, draft: Draft, statement: Statement) -> tuple[Draft, str | None]:
        """Return a draft with WHERE's conditions on combinations, and the text of those on results, if any.

        Those are conditions that read a stream which results may lack. A stream without which a condition can't hold
        becomes required; `b.x IS NULL` may become an anti join with b.
        """
        if statement.where is None:
            return draft, None
        parts = conjuncts_of(parse(self._spark, statement.where))
        texts = {part: ConditionText(statement.where).of(part) for part in parts}
        draft = reduce(self._with_required, parts, draft)
        late = [part for part in parts if draft.is_full or draft.may_lack(self._names(draft).streams(texts[part]))]
        if not late:
            return replace(draft, where=(statement.where, *draft.where)), None
        early = tuple(texts[part] for part in parts if part not in late)
        for part in late:
            others = [statement.select or "", *(texts[other] for other in late if other is not part)]
            name = self._anti_stream(draft, part, ", ".join(others)) if statement.select is not None else None
            if name is not None:
                late = [other for other in late if other is not part]
                draft = replace(draft, how={**draft.how, name: "anti"})
        return replace(draft, where=early + draft.where), " AND ".join(f"({texts[part]})" for part in late) or None

    def _with_required(self, draft: Draft, part: ParsedNode) -> Draft:
        """Return a draft in which streams are required without which a condition of WHERE can't hold.

        [!] Except as-of streams: WHERE tests the newest partner, it does not choose it.
        """
        names = {attribute.stream for attribute in _null_rejecting_columns(part, self._resolver(draft))}
        for root in {draft.root(name) for name in names if draft.may_lack([name])}:
            if draft.is_full or draft.how[root] == "left":
                draft = _require(draft, root)
        return draft

    def _anti_stream(self, draft: Draft, part: ParsedNode, others: str) -> str | None:
        """Return the stream b if a condition is `b.x IS NULL` and no partner has NULL there: an anti join with b.

        None for any other condition.

        Args:
            draft: The streams.
            part: The condition.
            others: The rest of the statement that reads results; it must not name the stream.
        """
        if part.kind != "IsNull":
            return None
        (value,) = part.children
        column = self._resolver(draft)(value.names) if value.kind == ATTRIBUTE else None
        if column is None or value.names[-1].lower() != column.column or draft.how.get(column.stream) != "left":
            return None
        on = conjuncts_of(parse(self._spark, draft.on[column.stream])) if column.stream in draft.on else []
        never_null = {
            attribute for condition in on for attribute in _null_rejecting_columns(condition, self._resolver(draft))
        }
        never_null.add(Attribute(column.stream, draft.streams[column.stream]._ws_part.time.lower()))
        is_read = column.stream in self._names(draft).streams(others)
        return column.stream if column in never_null and not is_read else None

    def _resolver(self, draft: Draft) -> "Resolve":
        """Return a function that finds the column that a name means; None for unknown and ambiguous names."""
        names = self._names(draft)

        def resolve(path: list[str]) -> Attribute | None:
            """Return the column that a name means; None if no stream has it, or several."""
            stream = names.stream(path[0]) if len(path) > 1 else None
            if stream is not None:
                return Attribute(stream, path[1].lower())
            owners = names.owners(path[0])
            return Attribute(owners[0], path[0].lower()) if len(owners) == 1 else None

        return resolve

    def _names(self, draft: Draft) -> StatementNames:
        return StatementNames(draft.paths, self._columns, draft.using)


def _require(draft: Draft, root: str) -> Draft:
    """Return a draft in which an optional stream is required: its ON becomes a condition on all combinations.

    A full join becomes a left join, in which the other stream is optional.
    """
    if draft.is_full:
        (other,) = (name for name in draft.streams if name != root)
        return replace(draft, how={other: "left"}, on=dict.fromkeys([other], *draft.on.values()))
    how = {name: kind for name, kind in draft.how.items() if name != root}
    on = {name: text for name, text in draft.on.items() if name != root}
    condition = (draft.on[root],) if root in draft.on else ()
    return replace(draft, how=how, on=on, where=draft.where + condition)


def _columns(source: Stream) -> list[str]:
    return [name for name in source._ws_part.schema.names if name != TABLE_TIME]


# -- columns whose NULL keeps a condition from being TRUE


class Attribute(NamedTuple):
    """A column of a stream, both in lower case."""

    stream: str
    column: str


Resolve = Callable[[list[str]], Attribute | None]
"""Returns the column that a name means; None if it is ambiguous or unknown."""


def _null_rejecting_columns(condition: ParsedNode, resolve: Resolve) -> frozenset[Attribute]:
    """Return columns whose NULL keeps a condition from being TRUE; there may be others."""
    return frozenset(_not_null_columns(condition, resolve))


def _not_null_columns(part: ParsedNode, resolve: Resolve) -> Iterator[Attribute]:
    """Yield the columns that can't be NULL where a condition is TRUE, as far as its operators say."""
    if part.kind in COMPARISONS:
        for side in part.children:
            yield from _strict_columns(side, resolve)
    elif part.kind in ("In", "IsNotNull") or _is_between(part):
        yield from _strict_columns(part.children[0], resolve)
    elif part.kind == "Not" and (part.children[0].kind in {*COMPARISONS, "In"} or _is_between(part.children[0])):
        yield from _not_null_columns(part.children[0], resolve)


def _strict_columns(value: ParsedNode, resolve: Resolve) -> Iterator[Attribute]:
    """Yield columns whose NULL makes a value NULL."""
    if value.kind == ATTRIBUTE:
        attribute = resolve(value.names)
        yield from () if attribute is None else (attribute,)
    elif value.kind in STRICT or (value.kind == FUNCTION and value.names == ["abs"]):
        for child in value.children:
            yield from _strict_columns(child, resolve)


def _is_between(part: ParsedNode) -> bool:
    return part.kind == FUNCTION and part.names == ["between"]
