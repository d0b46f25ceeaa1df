"""From a statement's FROM and WHERE to one join, or joins that are streams of others, which mean what SQL means.

Most statements are one join: streams that every result has, and optional streams that are matched with these alone. A
condition after ON that names an optional stream, and full and right joins of more than two streams, need the results
of what stands before: that becomes an inner join, a stream of the one that follows.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from watersmeet.errors import DefinitionError
from watersmeet.predicate.scope import TABLE_TIME
from watersmeet.query.query import How
from watersmeet.query.sql_joins import JoinKind
from watersmeet.query.statement import JoinedStream, Relation, Statement
from watersmeet.query.windows import Sliding
from watersmeet.spark.api.define import Conditions, Join, JoinOptions, define
from watersmeet.spark.api.output_columns import struct_of
from watersmeet.spark.api.stream import Stream, stream
from watersmeet.spark.run.frames import quoted
from watersmeet.spark.sql.catalyst import Part, parse
from watersmeet.spark.sql.convert import Text
from watersmeet.spark.sql.dialect import dialect_of
from watersmeet.spark.sql.names import ATTRIBUTE
from watersmeet.spark.sql.renaming import Merged, Names
from watersmeet.spark.sql.strictness import Attribute, Resolve, null_rejected
from watersmeet.spark.sql.where import conjuncts_of

HOWS: dict[JoinKind, How] = {
    "left": "left", "semi": "semi", "anti": "anti", "asof": "asof", "asof left": "asof left"
}  # fmt: skip
"""What a join asks of the stream on its right."""


@dataclass(frozen=True)
class Draft:
    """Streams that are joined, as far as a statement has been read.

    Attributes:
        streams: The streams of the join, by name; those that are joins among them.
        how: What is asked of the optional ones.
        on: What their partners are.
        where: What is asked of all combinations.
        paths: Where each stream of the statement is found that may still be named: `b`, or `a_b.b` inside a join.
        merged: The columns of USING, by their names in small letters.
    """

    streams: Mapping[str, Stream]
    how: Mapping[str, How] = field(default_factory=dict)
    on: Mapping[str, str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    merged: Mapping[str, Merged] = field(default_factory=dict)

    @staticmethod
    def of(name: str, one: Stream) -> "Draft":
        """Return a single stream."""
        return Draft({name: one}, paths={name: name})

    @property
    def is_full(self) -> bool:
        """Whether it is a full join, to which nothing can be added."""
        return "full" in self.how.values()

    @property
    def is_as_of(self) -> bool:
        """Whether only the newest partner counts in some stream."""
        return any(kind in ("asof", "asof left") for kind in self.how.values())

    def lacks(self, names: Collection[str]) -> bool:
        """Tell whether results may lack one of some streams of the statement."""
        return any(name in self.paths and (self.is_full or self.root(name) in self.how) for name in names)

    def root(self, name: str) -> str:
        """Return the stream of the join in which a stream of the statement is found."""
        return self.paths[name].partition(".")[0]

    def times(self, other: "Draft") -> "Draft":
        """Return the product of two drafts, neither of them a full join."""
        return Draft(
            {**self.streams, **other.streams},
            {**self.how, **other.how},
            {**self.on, **other.on},
            self.where + other.where,
            {**self.paths, **other.paths},
            {name: merged for name, merged in self.merged.items() if name not in other.merged} | dict(other.merged),
        )


def join_statement(statement: Statement, sources: Mapping[str, Stream], options: JoinOptions) -> Join:
    """Return the join that a statement describes.

    Args:
        statement: The statement.
        sources: Its streams, by the names that it gives them.
        options: What else the user said.

    Raises:
        SqlError: If a condition can't be read; the span is underlined.
        DefinitionError: If the join can't be.
    """
    return _Builder(sources, options).build(statement)


class _Builder:
    def __init__(self, sources: Mapping[str, Stream], options: JoinOptions) -> None:
        self._sources, self._options = sources, options
        self._spark = next(iter(sources.values()))._ws_part.session
        self._columns = {name: _columns(source) for name, source in sources.items()}

    def build(self, statement: Statement) -> Join:
        if len(self._sources) == 1 and re.search(r"\(\s*SELECT\b", statement.where or "", re.IGNORECASE):
            raise DefinitionError(
                "A subquery in WHERE must be [NOT] EXISTS (SELECT ..) or x [NOT] IN (SELECT ..), outside parentheses."
            )
        draft = reduce(self._joined, statement.subqueries, self._listed(statement.relations))
        draft, condition = self._filtered(draft, statement)
        names = self._names(draft)
        select: str | list[SparkColumn] | None = statement.select and names.listed(statement.select)
        if select is None and any("." in path for path in draft.paths.values()):
            select = self._everything(draft)
        return self._defined(draft, select, condition and names.condition(condition), self._options)

    # -- FROM

    def _listed(self, relations: Sequence[Relation]) -> Draft:
        """Return the FROM list.

        [!] To Spark a comma is one more join: those that follow it join all that stands before, unless a setting says
        otherwise.
        """
        first, *others = ((self._single(relation), relation.joins) for relation in relations)
        draft = reduce(self._joined, first[1], first[0])
        for single, joins in others:
            if self._joins_precede_commas:
                draft = self._product(draft, reduce(self._joined, joins, single))
            else:
                draft = reduce(self._joined, joins, self._product(draft, single))
        return draft

    @property
    def _joins_precede_commas(self) -> bool:
        setting = self._spark.conf.get("spark.sql.ansi.relationPrecedence", "false")
        return setting == "true" and dialect_of(self._spark).ansi

    def _single(self, relation: Relation) -> Draft:
        return Draft.of(relation.first.name, self._sources[relation.first.name])

    def _product(self, one: Draft, two: Draft) -> Draft:
        return self._open(one).times(self._open(two))

    def _open(self, draft: Draft) -> Draft:
        """Return a draft to which streams can be added that every result has.

        [!] Not to an as-of join: its partners are those before the streams that stand before it, not before all.
        """
        return self._nested(draft) if draft.is_full or draft.is_as_of else draft

    def _joined(self, draft: Draft, joined: JoinedStream) -> Draft:
        """Return a draft to which one more stream is joined."""
        name, (on, merged) = joined.stream.name, self._condition(draft, joined)
        right = Draft.of(name, self._sources[name])
        draft = self._open(draft) if draft.is_full or joined.kind == "inner" else draft
        if joined.kind in ("right", "full"):
            return self._either_side(draft, right, joined, on, merged)
        if draft.lacks(self._names(draft.times(right)).streams(on)):
            draft = self._nested(draft)
        both = replace(draft.times(right), merged={**draft.merged, **merged})
        if joined.kind == "inner":
            return replace(both, where=both.where + ((on,) if on else ()))
        how = {**both.how, name: HOWS[joined.kind]}
        paths = draft.paths if joined.kind in ("semi", "anti") else both.paths  # what is only asked has no name later
        return replace(both, how=how, on={**both.on, name: on or "TRUE"}, paths=paths)

    def _either_side(
        self, draft: Draft, right: Draft, joined: JoinedStream, on: str, merged: Mapping[str, Merged]
    ) -> Draft:
        """Return a right or full join, whose left side may be missing as a whole."""
        left = draft if len(draft.streams) == 1 else self._nested(draft)
        (before,), (name,) = left.streams, right.streams
        both = replace(left.times(right), merged={**left.merged, **merged})
        if joined.kind == "full":
            return replace(both, how={name: "full"}, on={name: on})
        return replace(both, streams={**right.streams, **left.streams}, how={before: "left"}, on={before: on})

    def _condition(self, draft: Draft, joined: JoinedStream) -> tuple[str, dict[str, Merged]]:
        """Return the condition of a join, and the columns that USING merges."""
        name, parts, merged = joined.stream.name, list[str](), dict[str, Merged]()
        for column in joined.using:
            left, own = self._using(draft, column), f"{quoted(name)}.{quoted(column)}"
            if column.lower() not in map(str.lower, self._columns[name]):
                raise DefinitionError(f"USING ({column}): '{name}' has no such column.")
            parts.append(f"{left.text} = {own}")
            streams = left.streams | {name}
            kinds = {"right": Merged(own, frozenset({name})), "full": Merged(f"coalesce({left.text}, {own})", streams)}
            merged[column.lower()] = kinds.get(joined.kind, left)
        return " AND ".join(parts) if joined.using else joined.on, merged

    def _using(self, draft: Draft, column: str) -> Merged:
        """Return what a column of USING is on the left side."""
        if column.lower() in draft.merged:
            return draft.merged[column.lower()]
        owners = self._names(draft).owners(column)
        if len(owners) != 1:
            which = (
                f"both {' and '.join(owners)} have it; write ON" if owners else "no stream before it has such a column"
            )
            raise DefinitionError(f"USING ({column}): {which}.")
        return Merged(f"{quoted(owners[0])}.{quoted(column)}", frozenset(owners))

    # -- joins within joins

    def _nested(self, draft: Draft) -> Draft:
        """Return a draft as a single stream, a join of its own, whose window is the widest that its streams were given.

        [!] Windows that follow from conditions say nothing of the streams that are yet to be joined.
        """
        if len(draft.streams) == 1:
            return draft
        inner = self._defined(draft, None, None, self._options.inside)
        name = "_".join(draft.streams)
        while name.lower() in {known.lower() for known in self._sources}:
            name += "_"
        windows = [one._ws_part.window for one in draft.streams.values() if not one._ws_part.table]
        spans = [window.span for window in windows if window.span is not None]
        nested = stream(name, inner, window=Sliding(max(spans)) if len(spans) == len(windows) else None)
        return Draft(
            {name: nested}, paths={of: f"{name}.{path}" for of, path in draft.paths.items()}, merged=draft.merged
        )

    def _defined(
        self, draft: Draft, select: str | Sequence[SparkColumn] | None, condition: str | None, options: JoinOptions
    ) -> Join:
        """Return a draft as a join; streams that every result has come first."""
        renamed = self._names(draft).condition
        required = [one for name, one in draft.streams.items() if name not in draft.how]
        optional = [one for name, one in draft.streams.items() if name in draft.how]
        where = [renamed(text) for text in draft.where]
        whole = " AND ".join(f"({text})" for text in where) if len(where) > 1 else where[0] if where else None
        on = {name: renamed(text) for name, text in draft.on.items()}
        asked = Conditions(whole, on, draft.how, condition)
        return define([*required, *optional], asked, select, options)

    def _everything(self, draft: Draft) -> list[SparkColumn]:
        """Return what `SELECT *` stands for where streams are inside joins: a struct per stream, and the time."""
        shown = []
        for name, path in draft.paths.items():
            root, _, inside = path.partition(".")
            if inside:
                shown.append(F.col(f"{quoted(root)}.{inside}").alias(name))
            else:
                part = draft.streams[root]._ws_part
                shown.append(struct_of(root, part.schema.names, draft.lacks([name]), part.time))
        return [*shown, F.col("_time")]

    # -- WHERE

    def _filtered(self, draft: Draft, statement: Statement) -> tuple[Draft, str | None]:
        """Return a draft with what WHERE asks of combinations, and what it asks of results that may lack a stream."""
        if statement.where is None:
            return draft, None
        parts = conjuncts_of(parse(self._spark, statement.where))
        texts = {part: Text(statement.where).of(part) for part in parts}
        draft = reduce(self._with_required, parts, draft)
        late = [part for part in parts if draft.is_full or draft.lacks(self._names(draft).streams(texts[part]))]
        if not late:
            return replace(draft, where=(statement.where, *draft.where)), None
        early = tuple(texts[part] for part in parts if part not in late)
        for part in late:
            others = [statement.select or "", *(texts[other] for other in late if other is not part)]
            name = self._unmatched(draft, part, ", ".join(others)) if statement.select is not None else None
            if name is not None:
                late = [other for other in late if other is not part]
                draft = replace(draft, how={**draft.how, name: "anti"})
        return replace(draft, where=early + draft.where), " AND ".join(f"({texts[part]})" for part in late) or None

    def _with_required(self, draft: Draft, part: Part) -> Draft:
        """Return a draft in which streams are required that a condition of WHERE does not hold without.

        [!] Not as-of streams: WHERE looks at the newest partner, it does not choose it.
        """
        names = {attribute.stream for attribute in null_rejected(part, self._resolve(draft))}
        for root in {draft.root(name) for name in names if draft.lacks([name])}:
            if draft.is_full or draft.how[root] == "left":
                draft = _require(draft, root)
        return draft

    def _unmatched(self, draft: Draft, part: Part, others: str) -> str | None:
        """Return the stream b of which `b.x IS NULL` says that there is no partner: no partner has NULL there.

        Args:
            draft: The streams.
            part: The condition.
            others: What else the statement asks of results; it must not name the stream.
        """
        if part.kind != "IsNull":
            return None
        (value,) = part.children
        asked = self._resolve(draft)(value.names) if value.kind == ATTRIBUTE else None
        if asked is None or value.names[-1].lower() != asked.column or draft.how.get(asked.stream) != "left":
            return None
        on = conjuncts_of(parse(self._spark, draft.on[asked.stream])) if asked.stream in draft.on else []
        never = {attribute for condition in on for attribute in null_rejected(condition, self._resolve(draft))}
        never.add(Attribute(asked.stream, draft.streams[asked.stream]._ws_part.time.lower()))
        named = self._names(draft).streams(others)
        return asked.stream if asked in never and asked.stream not in named else None

    def _resolve(self, draft: Draft) -> Resolve:
        """Return what tells which column of which stream a name means."""
        names = self._names(draft)

        def resolve(path: list[str]) -> Attribute | None:
            stream = names.stream(path[0]) if len(path) > 1 else None
            if stream is not None:
                return Attribute(stream, path[1].lower())
            owners = names.owners(path[0])
            return Attribute(owners[0], path[0].lower()) if len(owners) == 1 else None

        return resolve

    def _names(self, draft: Draft) -> Names:
        return Names(draft.paths, self._columns, draft.merged)


def _require(draft: Draft, root: str) -> Draft:
    """Return a draft whose results all have a tuple of a stream."""
    if draft.is_full:
        (other,) = (name for name in draft.streams if name != root)
        return replace(draft, how={other: "left"}, on=dict.fromkeys([other], *draft.on.values()))
    how = {name: kind for name, kind in draft.how.items() if name != root}
    on = {name: text for name, text in draft.on.items() if name != root}
    asked = (draft.on[root],) if root in draft.on else ()
    return replace(draft, how=how, on=on, where=draft.where + asked)


def _columns(source: Stream) -> list[str]:
    return [name for name in source._ws_part.schema.names if name != TABLE_TIME]
