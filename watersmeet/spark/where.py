"""`where` as Spark reads it: what Spark computes of each tuple, what is decided between streams, and by whom.

Subexpressions over one stream are computed by Spark when a tuple comes in, as hidden columns. What is left between the
streams goes to DuckDB where that answers as Spark does; everything else Spark decides over the combinations that the
other conjuncts let pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.errors import DefinitionError, SqlError
from watersmeet.predicate.expr import Expr, Refusal, fail
from watersmeet.predicate.model import Column, Conjunct, Dialect, Hidden, PythonPredicate
from watersmeet.predicate.parse import conjunct
from watersmeet.predicate.scope import Scope, same
from watersmeet.predicate.source import Node
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import BOOLEAN, Type, from_arrow
from watersmeet.query import Query, StreamSpec, Test
from watersmeet.spark import purity
from watersmeet.spark.catalyst import Builder, Part, parse
from watersmeet.spark.convert import Converter, Text, literal, predicate_named
from watersmeet.spark.frames import arrow_type, hidden_name

UNHOISTED = frozenset({"LambdaFunction", "UnresolvedStar", "UnresolvedStarExceptOrReplace", "NamePlaceholder",
                       "NamedArgumentExpression", "Alias", "UnresolvedNamedLambdaVariable", "UnresolvedCollation"})  # fmt: skip
"""Parts that are no values of their own."""


@dataclass(frozen=True, eq=False)
class Computed:
    """A hidden column as Spark computes it.

    Attributes:
        part: The expression; several parts that say the same share one.
        hidden: The column as the join knows it.
        kind: Its type in Spark's terms.
        column: Its position.
        value: What computes it, over the stream as a struct column of its name.
    """

    part: Part
    hidden: Hidden
    kind: T.DataType
    column: Column
    value: SparkColumn
    flag: "Computed | None" = None


@dataclass(frozen=True)
class Where:
    """What became of a `where`.

    Attributes:
        conjuncts: See `Query`.
        careful: See `Query`.
        flags: See `Query`.
        computed: For each stream its hidden columns.
        tests: For each stream the conjuncts that its tuples are tested by when they come in.
        conditions: Each conjunct as Spark decides it, by its text, over the streams as struct columns.
    """

    conjuncts: tuple[Conjunct, ...] = ()
    careful: tuple[Conjunct, ...] = ()
    flags: tuple[Column, ...] = ()
    computed: tuple[tuple[Computed, ...], ...] = ()
    tests: tuple[tuple[Test, ...], ...] = ()
    conditions: dict[str, SparkColumn] = field(default_factory=dict)


def read_where(
    spark: SparkSession,
    text: str | None,
    streams: Sequence[StreamSpec],
    kinds: Sequence[T.StructType],
    predicates: Sequence[PythonPredicate],
    dialect: Dialect,
) -> Where:
    """Read `where`.

    Args:
        spark: The session, whose parser, settings and functions give the text its meaning.
        text: The condition; None or blank for every combination.
        streams: The join's streams.
        kinds: Their columns in Spark's terms.
        predicates: The Python predicates it may call.
        dialect: The session's settings.

    Raises:
        SqlError: If it is no condition, or one that must not be; the place is underlined.
    """
    nothing = Where(computed=((),) * len(streams), tests=((),) * len(streams))
    if text is None or not text.strip():
        return nothing
    return _Reader(spark, text, streams, kinds, predicates, dialect).where()


class _Reader:
    """Reads one `where`."""

    def __init__(
        self,
        spark: SparkSession,
        text: str,
        streams: Sequence[StreamSpec],
        kinds: Sequence[T.StructType],
        predicates: Sequence[PythonPredicate],
        dialect: Dialect,
    ) -> None:
        self._spark, self._text, self._streams, self._kinds = spark, Text(text), streams, kinds
        self._builder = Builder(spark)
        self._scope = Scope([(stream.name, stream.schema) for stream in streams], _collated(kinds))
        self._predicates, self._dialect = predicates, dialect
        self._tree = parse(spark, text)
        self._computed: list[list[Computed]] = [[] for _ in streams]
        self._by_part: dict[Part, Computed] = {}
        self._folded: dict[Part, Expr] = {}

    def where(self) -> Where:
        """Return what became of it."""
        clauses = _flat(self._tree)
        for part in self._tree.walk():
            self._resolve(part)
        purity.check(self._text, self._analysed(clauses))
        made = [self._clause(part) for part in clauses]
        tests = [found for found in made if isinstance(found, _Tested)]
        flags = tuple(c.flag.column for stream in self._computed for c in stream if c.flag is not None)
        careful = tuple(c for found in made for c in found.careful) if flags else ()
        return Where(
            tuple(c for found in made for c in found.calm),
            careful,
            flags,
            tuple(map(tuple, self._computed)),
            tuple(tuple(t.test for t in tests if t.stream == at) for at in range(len(self._streams))),
            {self._text.of(part): self._condition(part, found) for part, found in zip(clauses, made, strict=True)},
        )

    def _condition(self, part: Part, made: "_Made") -> SparkColumn:
        """Return a conjunct as Spark decides it; of one that a tuple was tested by, only whether it raised is left."""
        if not isinstance(made, _Tested):
            return self._builder.column(self._rebuilt(part))
        return F.lit(True) if made.test.failed is None else _checked(self._by_part[part], F.lit(True))

    # -- names

    @cached_property
    def _reads(self) -> dict[Part, frozenset[Column]]:
        return {}

    def _resolve(self, part: Part) -> frozenset[Column]:
        """Return the columns that a part reads.

        Raises:
            SqlError: If it names what isn't there, or holds what `where` can't.
        """
        if part not in self._reads:
            try:
                self._reads[part] = self._own(part).union(*map(self._resolve, part.children))
            except Refusal as refusal:
                raise self._text.error(refusal.problem, part) from None
        return self._reads[part]

    def _own(self, part: Part) -> frozenset[Column]:
        purity.refuse(part)
        if part.kind == "UnresolvedStar":
            return self._star(part)
        if part.kind == "UnresolvedAttribute" or (
            part.kind == "UnresolvedNamedLambdaVariable" and not self._bound(part)
        ):
            purity.refuse_name(part.names, self._scope)
            return frozenset({self._scope.column(part.names)})
        return frozenset()

    @cached_property
    def _variables(self) -> dict[Part, frozenset[str]]:
        """For each name inside a lambda the variables that are bound there."""
        found: dict[Part, frozenset[str]] = {}

        def visit(part: Part, bound: frozenset[str]) -> None:
            if part.kind == "LambdaFunction":
                bound |= {variable.names[0].lower() for variable in part.children[1:]}
            found[part] = bound
            for child in part.children:
                visit(child, bound)

        visit(self._tree, frozenset())
        return found

    def _bound(self, part: Part) -> bool:
        return part.names[0].lower() in self._variables[part]

    def _star(self, part: Part) -> frozenset[Column]:
        target = part.handle.target()
        name = str(target.get().mkString(".")) if target.isDefined() else ""
        for position, stream in enumerate(self._streams):
            if same(stream.name, name):
                return frozenset(Column(position, at) for at in range(len(stream.schema)))
        raise Refusal(f"`{name}{'.' if name else ''}*` stands for no stream; write {self._streams[0].name}.*.")

    def _streams_of(self, part: Part) -> set[int]:
        return {column.stream for column in self._resolve(part)}

    def _calls(self, part: Part) -> list[Part]:
        """Return the calls of Python predicates in a part, in the order of the text."""
        return [p for p in part.walk() if p.kind == "UnresolvedFunction" and self._predicate(p) is not None]

    def _predicate(self, part: Part) -> PythonPredicate | None:
        return predicate_named(self._predicates, part.names)

    # -- Spark's own analysis

    @cached_property
    def _empty(self) -> DataFrame:
        fields = [T.StructField(s.name, kind) for s, kind in zip(self._streams, self._kinds, strict=True)]
        return self._spark.createDataFrame([], T.StructType(fields))

    def _analysed(self, clauses: Sequence[Part]) -> Any:
        """Let Spark check all conjuncts, and the arguments of Python predicates."""
        calls = [argument for call in self._calls(self._tree) for argument in call.children]
        shown = [self._qualified(part) for part in (*clauses, *calls)]
        try:
            frame = self._empty.select(*(c.alias(f"c{at}") for at, c in enumerate(shown)))
        except AnalysisException as error:
            raise purity.analysis_error(self._text, error, self._predicates) from None
        for part, kind in zip(clauses, frame.schema.fields, strict=False):
            if kind.dataType.typeName() not in ("boolean", "void"):
                problem = f"A condition is expected here, not a value of type {kind.dataType.simpleString()}."
                raise self._text.error(problem, part)
        return frame._jdf.queryExecution().analyzed()

    def _qualified(self, part: Part) -> SparkColumn:
        """Return a part over struct columns, with an unknown answer for every Python predicate."""
        unknown = self._builder.node(F.lit(None).cast("boolean"))

        def replaced(inner: Part) -> Any:
            if inner.kind == "UnresolvedFunction" and self._predicate(inner) is not None:
                return unknown
            return self._name(inner)

        return self._builder.column(self._builder.rebuilt(part, replaced))

    def _name(self, part: Part) -> Any:
        """Return a column's name with its stream's before it, or None if the part is none."""
        if part.kind == "UnresolvedAttribute":
            return self._builder.attribute(*self._full(part))
        if part.kind == "UnresolvedNamedLambdaVariable" and not self._bound(part):
            return self._builder.variable(*self._full(part))
        return None

    def _full(self, part: Part) -> list[str]:
        column = self._scope.column(part.names)
        stream = self._streams[column.stream]
        named = len(part.names) > 1 and same(stream.name, part.names[0])
        return [stream.name, stream.schema.field(column.field).name, *part.names[2 if named else 1 :]]

    # -- hidden columns

    def _roots(self, part: Part) -> list[Part]:
        """Return the largest parts that Spark can compute beforehand: over one stream, and no bare columns."""
        if part.kind in UNHOISTED:
            inner = () if part.kind == "LambdaFunction" else part.children
            return [root for child in inner for root in self._roots(child)]
        if not self._calls(part):
            reads = self._streams_of(part)
            if not reads:
                return [] if part.kind == "Literal" else [part]
            if len(reads) == 1:
                return [] if self._is_bare(part) else [part]
        return [root for child in part.children for root in self._roots(child)]

    def _is_bare(self, part: Part) -> bool:
        return part.kind == "UnresolvedAttribute" and len(self._full(part)) == 2

    def _prepare(self, clause: Part) -> None:
        """Fold the constants of a conjunct and hoist what reads one stream."""
        home = min(self._streams_of(clause), default=0)
        for root in self._roots(clause):
            if self._streams_of(root):
                self._hoist(root, next(iter(self._streams_of(root))))
            elif not self._fold(root):
                self._hoist(root, home)

    def _fold(self, part: Part) -> bool:
        """Let Spark compute a constant now; not if it raises or takes a function of the user's."""
        frame = self._spark.range(1).select(self._builder.column(part.handle).alias("c"))
        shown = frame._jdf.queryExecution().optimizedPlan().expressions()
        made = shown.apply(0).children().apply(0) if shown.size() == 1 and shown.apply(0).children().size() else None
        value = literal(made) if made is not None and made.getClass().getSimpleName() == "Literal" else None
        if value is not None:
            self._folded[part] = value
        return value is not None

    def _hoist(self, part: Part, stream: int) -> None:
        """Let Spark compute a part of each tuple of a stream, where its type can be stored."""
        known = next((c for c in self._computed[stream] if c.part.handle.equals(part.handle)), None)
        if known is not None:
            self._by_part[part] = known
            return
        value = self._qualified(part)
        kind = self._empty.select(value.alias("c")).schema[0].dataType
        type_ = arrow_type(kind)
        if type_ is None:
            return
        if self._calm(part):
            self._by_part[part] = self._add(stream, part, type_, kind, value)
            return
        tried = self._builder.tried(F.struct(value.alias("v")))
        at = len(self._computed[stream])
        self._computed[stream] += [None, None]  # type: ignore[list-item]
        text = self._text.of(part)
        fields = len(self._streams[stream].schema) + at
        flag = Computed(part, Hidden(f"{text} failed", pa.bool_()), T.BooleanType(), Column(stream, fields + 1), tried.isNull())
        made = Computed(part, Hidden(text, type_), kind, Column(stream, fields), tried.getField("v"), flag)
        self._computed[stream][at:] = [made, flag]
        self._by_part[part] = made

    def _add(self, stream: int, part: Part, type_: pa.DataType, kind: T.DataType, value: SparkColumn) -> Computed:
        column = Column(stream, len(self._streams[stream].schema) + len(self._computed[stream]))
        made = Computed(part, Hidden(self._text.of(part), type_), kind, column, value)
        self._computed[stream].append(made)
        return made

    def _calm(self, part: Part) -> bool:
        """Tell whether computing a part can't raise, as far as is known here."""
        try:
            return not self._translator().expr(self._node(part, hoisted=False)).raises
        except Refusal:
            return False

    # -- conjuncts

    def _translator(self) -> Translator:
        return Translator(self._text, self._scope, self._predicates, self._dialect)

    def _node(self, part: Part, *, careful: bool = False, hoisted: bool = True) -> Node:
        """Return a part as the translator takes it."""

        def known(inner: Part) -> Expr | None:
            if inner in self._folded:
                return self._folded[inner]
            return _expr(self._by_part[inner], careful) if hoisted and inner in self._by_part else None

        return Converter(self._spark, self._text, known, self._predicates).node(part)

    def _clause(self, part: Part) -> "_Made":
        self._prepare(part)
        text = self._text.of(part)
        found = self._by_part.get(part)
        if found is not None and self._streams_of(part) and self._streams[found.column.stream].window.rows is None:
            return _Tested.of(found, text)
        return _Made((self._carried(part, text, careful=False),), (self._carried(part, text, careful=True),))

    def _carried(self, part: Part, text: str, *, careful: bool) -> Conjunct:
        """Return a conjunct carried over to DuckDB, or left to Spark."""
        try:
            return conjunct(self._translator(), self._node(part, careful=careful), text)
        except Refusal as refusal:
            return self._opaque(part, text, refusal.problem)

    def _opaque(self, part: Part, text: str, why: str) -> Conjunct:
        """Return a conjunct that only Spark can decide."""
        translator = self._translator()
        for call in self._calls(part):
            try:
                translator.expr(self._node(call))
            except Refusal as refusal:
                raise self._text.error(refusal.problem, call) from None
        columns = self._left(part) | {c for call in translator.calls for a in call.arguments for c in a.columns}
        return Conjunct(text, None, tuple(sorted(columns)), tuple(translator.calls), why=why)

    def _left(self, part: Part) -> set[Column]:
        """Return the columns that Spark reads to decide a part."""
        if part in self._by_part:
            made = self._by_part[part]
            return {made.column} | ({made.flag.column} if made.flag else set())
        if part.kind == "UnresolvedFunction" and self._predicate(part) is not None:
            flags = [self._by_part[p].flag for p in part.children if p in self._by_part]
            return {flag.column for flag in flags if flag is not None}
        return set(self._own(part)).union(*map(self._left, part.children))

    def _rebuilt(self, part: Part) -> Any:
        """Return a conjunct as Spark decides it: over struct columns, hidden ones and the answers of predicates."""

        def replaced(inner: Part) -> Any:
            if inner in self._by_part:
                return self._builder.node(_shown(self._by_part[inner]))
            if inner.kind == "UnresolvedFunction" and self._predicate(inner) is not None:
                failing = [self._by_part[p] for p in inner.children if p in self._by_part and self._by_part[p].flag]
                answer = F.col(hidden_name(f"p{self._text.span(self._node(inner))[0]}"))
                for made in failing:
                    answer = F.when(_shown(made).isNull(), answer).otherwise(answer)
                return self._builder.node(answer)
            return self._name(inner)

        return self._builder.rebuilt(part, replaced)


@dataclass(frozen=True)
class _Made:
    """What became of a conjunct: as it is decided in the ordinary case, and where a hidden column has no value."""

    calm: tuple[Conjunct, ...]
    careful: tuple[Conjunct, ...]


@dataclass(frozen=True)
class _Tested(_Made):
    """A conjunct that tuples are tested by when they come in; only one that raised for a tuple is left to the end."""

    stream: int
    test: Test

    @staticmethod
    def of(made: Computed, text: str) -> "_Tested":
        """Return the test by a hidden column."""
        if made.flag is None:
            return _Tested((), (), made.column.stream, Test(made.column.field))
        flag = made.flag.column
        sql = f"(CASE WHEN {flag.name} THEN {fail(_reason(made), BOOLEAN)} ELSE TRUE END)"
        late = Conjunct(text, sql, (flag,), raises=True)
        return _Tested((), (late,), flag.stream, Test(made.column.field, flag.field))


def _expr(made: Computed, careful: bool) -> Expr:
    """Return a hidden column as the translator takes it."""
    type_ = Type("unsupported", name=collation(made.kind) or "") if collation(made.kind) else from_arrow(made.hidden.type)
    name = made.column.name
    if made.flag is None or not careful:
        return Expr(name, type_, frozenset({made.column}))
    sql = f"(CASE WHEN {made.flag.column.name} THEN {fail(_reason(made), type_)} ELSE {name} END)"
    return Expr(sql, type_, frozenset({made.column, made.flag.column}), raises=True, plain=name)


def _reason(made: Computed) -> str:
    return f"an error when Spark computed `{made.hidden.text}`"


def _shown(made: Computed) -> SparkColumn:
    """Return a hidden column as Spark reads it where it decides a conjunct."""
    value = F.col(hidden_name(made.column.name))
    return value if made.flag is None else _checked(made, value)


def _checked(made: Computed, value: SparkColumn) -> SparkColumn:
    """Return a value that raises where computing a hidden column did."""
    assert made.flag is not None
    error = F.raise_error(F.lit(_reason(made)))
    return F.when(F.col(hidden_name(made.flag.column.name)), error).otherwise(value)


def collation(kind: T.DataType) -> str | None:
    """Return a type's name if it holds text that is compared by a collation, not byte by byte; else None."""
    name = kind.simpleString()
    return name if "collate" in name.lower() else None


def _collated(kinds: Sequence[T.StructType]) -> dict[Column, str]:
    found = {
        Column(stream, at): collation(field.dataType)
        for stream, kind in enumerate(kinds)
        for at, field in enumerate(kind.fields)
    }
    return {column: name for column, name in found.items() if name is not None}


def _flat(part: Part) -> list[Part]:
    return [p for child in part.children for p in _flat(child)] if part.kind == "And" else [part]
