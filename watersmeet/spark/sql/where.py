"""`where` as Spark reads it: what Spark computes of each tuple, what is decided between streams, and by whom.

Subexpressions over one stream are computed by Spark when a tuple comes in, as hidden columns. What is left between the
streams goes to DuckDB where that answers as Spark does; everything else Spark decides over the combinations that the
other conjuncts let pass.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from watersmeet.errors import SqlError
from watersmeet.predicate.column_conditions import fixed_column_of
from watersmeet.predicate.conjunct_values import compared_values_of
from watersmeet.predicate.expr import Expr, Refusal, error_sql
from watersmeet.predicate.model import Column, ComparedValues, Conjunct, Dialect, FixedColumn, Gap, PythonPredicate
from watersmeet.predicate.parse import parse_conjunct
from watersmeet.predicate.scope import Scope
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import BOOLEAN
from watersmeet.query.query import StreamSpec, Test
from watersmeet.spark.run.frames import hidden_name
from watersmeet.spark.sql import purity
from watersmeet.spark.sql.calm import is_calm
from watersmeet.spark.sql.catalyst import Builder, Part, items, parse, quiet, said
from watersmeet.spark.sql.convert import Converter, Text, Unplaced
from watersmeet.spark.sql.gaps import Gaps
from watersmeet.spark.sql.growing import Growing
from watersmeet.spark.sql.hoist import Computed, Hoist, collation
from watersmeet.spark.sql.implicit_casts import warn_of_casts
from watersmeet.spark.sql.names import Names
from watersmeet.spark.sql.sizes import Sizes
from watersmeet.spark.sql.untrusted import check as check_untrusted
from watersmeet.spark.sql.untrusted import check_plan
from watersmeet.spark.sql.written import Written

COMPARISONS = frozenset({
    "EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "EqualNullSafe",
})  # fmt: skip


@dataclass(frozen=True)
class Where:
    """What became of a `where`.

    Attributes:
        conjuncts: See `Query`.
        careful: See `Query`.
        flags: See `Query`.
        computed: For each stream its hidden columns.
        tests: For each stream the conjuncts that its tuples are tested by when they come in.
        conditions: Each conjunct as Spark decides it, in written order, over the streams as struct columns.
        sides: Of each that is left to Spark the values that it compares, likewise.
        meaning: The whole as Spark reads it, whatever its text leaves to the session's settings.
        reads: For each conjunct, in written order, the streams that it names.
        partners: For each the streams whose partners it is about, whether it names them or not.
        text: The whole as people read it.
    """

    conjuncts: tuple[Conjunct, ...] = ()
    careful: tuple[Conjunct, ...] = ()
    flags: tuple[Column, ...] = ()
    computed: tuple[tuple[Computed, ...], ...] = ()
    tests: tuple[tuple[Test, ...], ...] = ()
    conditions: tuple[SparkColumn, ...] = ()
    sides: tuple[tuple[SparkColumn, ...], ...] = ()
    meaning: str = ""
    reads: tuple[frozenset[int], ...] = ()
    partners: tuple[tuple[int, ...], ...] = ()
    text: str = ""

    def decide(self, frame: DataFrame, clauses: Sequence[int]) -> DataFrame:
        """Keep the combinations for which some conjuncts hold, as Spark decides it.

        [!] A combination that one of them denies is no result, whatever the others raise for it.
        """
        conditions = [self.conditions[clause].cast("boolean") for clause in clauses]
        all_hold = reduce(SparkColumn.__and__, conditions)
        if len(conditions) == 1:
            return frame.where(all_hold)
        builder = Builder(frame.sparkSession)
        names = [hidden_name(f"d{clause}") for clause in clauses]
        tried = [builder.tried(F.struct(c.alias("holds"))).alias(n) for c, n in zip(conditions, names, strict=True)]
        known = [F.col(name) for name in names]
        denied = [found.isNotNull() & ~F.coalesce(found.getField("holds"), F.lit(False)) for found in known]
        return frame.select("*", *tried).where(F.when(reduce(SparkColumn.__or__, denied), False).otherwise(all_hold))


@dataclass(frozen=True)
class Criteria:
    """What a join asks of combinations, as the user wrote it.

    Attributes:
        where: The condition, as text or as a column; None for every combination.
        on: What is asked of the partners of optional streams, by position.
        full: Whether it is a full join: then all of it is asked of partners.
    """

    where: str | SparkColumn | None = None
    on: Mapping[int, str | SparkColumn] = field(default_factory=dict)
    full: bool = False

    @property
    def parts(self) -> list[tuple[str | SparkColumn, tuple[int, ...]]]:
        """The conditions, each with the streams whose partners it is about; none if it is about all combinations."""
        both = (0, 1) if self.full else None
        own = [] if self.where is None else [(self.where, both or ())]
        return own + [(condition, both or (at,)) for at, condition in self.on.items()]


def read_where(
    spark: SparkSession,
    criteria: Criteria,
    streams: Sequence[StreamSpec],
    kinds: Sequence[T.StructType],
    predicates: Sequence[PythonPredicate],
    dialect: Dialect,
    untrusted: bool = False,
    frames: Sequence[DataFrame | None] = (),
) -> Where:
    """Read `where`.

    Args:
        spark: The session, whose parser, settings and functions give the text its meaning.
        criteria: The conditions.
        streams: The join's streams.
        kinds: Their columns in Spark's terms.
        predicates: The Python predicates it may call.
        dialect: The session's settings.
        untrusted: Whether the text comes from people, who may not do what the program may.
        frames: The streams' frames, to which a column may be bound; None for one that is a join.

    Raises:
        SqlError: If it is no condition, or one that must not be; the place is underlined.
    """
    parts = criteria.parts
    if not parts:
        return Where(computed=((),) * len(streams), tests=((),) * len(streams))
    for text in (part for part, _ in parts if isinstance(part, str)):
        if not text.strip():
            problem = "where: the condition is empty; leave where out for every combination in the windows."
            raise SqlError(problem, text, 0, 1)
        purity.refuse_variables(text)
    written = Written(spark, dict(zip((stream.name for stream in streams), frames, strict=True)))
    read = _read_text(spark, parts) or _read_columns(written, parts)
    return _Reader(spark, read, streams, kinds, predicates, dialect, untrusted).where()


@dataclass(frozen=True)
class _Read:
    """Conditions, joined by AND.

    Attributes:
        tree: As Spark read them.
        text: As the user wrote them.
        partners: For each conjunct, in written order, the streams whose partners it is about.
    """

    tree: Part
    text: Text
    partners: tuple[tuple[int, ...], ...]


def _read_text(spark: SparkSession, parts: Sequence[tuple[str | SparkColumn, tuple[int, ...]]]) -> _Read | None:
    """Return what conditions come to that are all texts; None if one is a column."""
    texts = [text for text, _ in parts if isinstance(text, str)]
    if len(texts) < len(parts):
        return None
    ended = [f"{text}\n" if "--" in text else text for text in texts]  # what follows is no part of a comment
    whole = texts[0] if len(texts) == 1 else " AND ".join(f"({text})" for text in ended)
    trees = [parse(spark, text) for text in texts]
    partners = tuple(of for tree, (_, of) in zip(trees, parts, strict=True) for _ in conjuncts_of(tree))
    return _Read(trees[0] if len(trees) == 1 else parse(spark, whole), Text(whole), partners)


def _read_columns(written: Written, parts: Sequence[tuple[str | SparkColumn, tuple[int, ...]]]) -> _Read:
    """Return what conditions come to of which some are columns."""
    columns = [F.expr(part) if isinstance(part, str) else part for part, _ in parts]
    tree, text = written.condition(reduce(SparkColumn.__and__, columns))
    counts = [len(conjuncts_of(written.condition(column)[0])) for column in columns]
    partners = tuple(of for count, (_, of) in zip(counts, parts, strict=True) for _ in range(count))
    return _Read(tree, Unplaced(text), partners)


class _Reader:
    """Reads one `where`."""

    def __init__(
        self,
        spark: SparkSession,
        read: _Read,
        streams: Sequence[StreamSpec],
        kinds: Sequence[T.StructType],
        predicates: Sequence[PythonPredicate],
        dialect: Dialect,
        untrusted: bool,
    ) -> None:
        self._spark, self._streams, self._tree, self._text = spark, streams, read.tree, read.text
        self._partners = read.partners
        self._predicates, self._dialect, self._untrusted = predicates, dialect, untrusted
        self._scope = Scope([(stream.name, stream.schema) for stream in streams], _collated(kinds))
        self._padded = _padded(kinds)
        self._names = Names(self._tree, self._text, streams, self._scope, predicates)
        fields = [T.StructField(stream.name, kind) for stream, kind in zip(streams, kinds, strict=True)]
        self._empty = spark.createDataFrame([], T.StructType(fields))
        if untrusted:
            check_untrusted(spark, [self._tree], self._text.error, self._is_own)
        self._sizes = (Growing if untrusted else Sizes)(spark, [self._tree], self._text.error)
        self._hoist = Hoist(self._names, self._text, streams, kinds, spark, self._is_calm, self._sizes)

    def _is_own(self, part: Part) -> bool:
        """Tell whether a part calls a Python predicate."""
        return self._names.predicate(part) is not None

    def where(self) -> Where:
        """Return what became of it."""
        clauses = conjuncts_of(self._tree)
        self._analyse(clauses)
        named = enumerate(zip(clauses, self._partners, strict=True))
        made = [self._clause(part, of).placed(at, self._gaps[at]) for at, (part, of) in named]
        tests = [found for found in made if isinstance(found, _Tested)]
        flags = tuple(made.flag.column for stream in self._hoist.computed for made in stream if made.flag is not None)
        return Where(
            tuple(c for found in made for c in found.calm),
            tuple(c for found in made for c in found.careful) if flags else (),
            flags,
            tuple(map(tuple, self._hoist.computed)),
            tuple(tuple(t.test for t in tests if t.stream == at) for at in range(len(self._streams))),
            tuple(self._condition(part, found) for part, found in zip(clauses, made, strict=True)),
            tuple(self._sides(part) if found.opaque else () for part, found in zip(clauses, made, strict=True)),
            str(self._tree.handle.sql()),
            tuple(map(self._names.streams, clauses)),
            self._partners,
            self._text.text,
        )

    def _analyse(self, clauses: Sequence[Part]) -> None:
        """Let Spark check all conjuncts, and the arguments of Python predicates."""
        arguments = [argument for call in self._names.calls(self._tree) for argument in call.children]
        try:
            with quiet():
                frame = self._select([*clauses, *arguments])
        except AnalysisException as error:
            raise purity.analysis_error(self._text, error, self._predicates) from None
        except (PySparkException, Py4JError) as error:
            raise self._text.error(f"Spark can't read this: {said(error)}.", None) from None
        for part, found in zip(clauses, frame.schema.fields, strict=False):
            if found.dataType.typeName() not in ("boolean", "void"):
                problem = f"A condition is expected here, not a value of type {found.dataType.simpleString()}."
                raise self._text.error(problem, part)
        plan = frame._jdf.queryExecution().analyzed()
        purity.check(self._text, plan)
        if self._untrusted:
            check_plan(plan, lambda problem, node: self._text.error(problem, None))
        self._sizes.analysed(plan)
        read = [node for shown in items(plan.expressions()) for node in items(shown.children())]
        gaps = Gaps(self._spark, self._streams, self._dialect)
        self._gaps = [gaps.of(node) for node, _ in zip(read, clauses, strict=False)]
        written = [(self._text.of(part), part, node) for part, node in zip(clauses, read, strict=False)]
        warn_of_casts(self._spark, written, self._dialect)

    def _select(self, parts: Sequence[Part]) -> DataFrame:
        """Return a frame of some parts, with an unknown answer for every Python predicate."""
        unknown = F.lit(None).cast("boolean")
        made = [self._hoist.decided(part, lambda call: unknown) for part in parts]
        return self._empty.select(*(column.alias(f"c{at}") for at, column in enumerate(made)))

    # -- conjuncts

    def _clause(self, part: Part, partners: Collection[int]) -> "_Made":
        """Return what becomes of a conjunct.

        [!] One that is about the partners of streams which it doesn't name is no test: a tuple that fails it has no
        partners, and may be a result for that.
        """
        self._hoist.prepare(part)
        text, found = self._text.of(part), self._hoist.hidden.get(part)
        whole = self._names.streams(part).issuperset(partners)
        if found is not None and whole and self._streams[found.column.stream].window.rows is None:
            return _Tested.of(found, text, self._fixed(part, text))
        calm = replace(self._carried(part, text, careful=False), fixed=self._fixed(part, text))
        return _Made((calm.after_on(partners),), (self._carried(part, text, careful=True).after_on(partners),))

    def _fixed(self, part: Part, text: str) -> FixedColumn | None:
        """Return the column that a conjunct gives one value.

        [!] By a literal as it stands: what Spark computes or casts is its own affair, and beside a CHAR it pads it.
        """
        sides = [*self._names.reads(part)] if part.kind == "EqualTo" else []
        if len(sides) != 1 or sides[0] in self._padded or "Literal" not in [child.kind for child in part.children]:
            return None
        try:
            return fixed_column_of(self._node(part, hoisted=False), self._translator(), text)
        except Refusal:
            return None

    def _carried(self, part: Part, text: str, *, careful: bool) -> Conjunct:
        """Return a conjunct carried over to DuckDB, or left to Spark."""
        try:
            return parse_conjunct(self._translator(), self._node(part, careful=careful), text)
        except Refusal as refusal:
            return self._opaque(part, text, refusal.problem.split(";")[0].rstrip("."))

    def _opaque(self, part: Part, text: str, why: str) -> Conjunct:
        """Return a conjunct that only Spark can decide."""
        translator = self._translator()
        for call in self._names.calls(part):
            try:
                translator.expr(self._node(call))
            except Refusal as refusal:
                raise self._text.error(refusal.problem, call) from None
        columns = self._left(part) | {c for call in translator.calls for a in call.arguments for c in a.columns}
        calls, read = tuple(translator.calls), tuple(sorted(columns))
        try:
            compared = compared_values_of(self._node(part), translator, calls, foreign=read)
        except Refusal:  # of a type that only Spark knows
            compared = ComparedValues()
        return Conjunct(text, None, read, calls, why=why, comparing=compared)

    def _left(self, part: Part) -> set[Column]:
        """Return the columns that Spark reads to decide a part, but for those that Python predicates do."""
        if part in self._hoist.hidden:
            return self._hoist.hidden[part].columns
        if self._names.predicate(part) is not None:
            return {made.flag.column for made in self._failing(part) if made.flag is not None}
        return set(self._names.own(part)).union(*map(self._left, part.children))

    def _failing(self, call: Part) -> list[Computed]:
        """Return the arguments of a call whose computing may raise."""
        found = [self._hoist.hidden[part] for part in call.children if part in self._hoist.hidden]
        return [made for made in found if made.flag is not None]

    def _condition(self, part: Part, made: "_Made") -> SparkColumn:
        """Return a conjunct as Spark decides it; of one that tuples were tested by, only whether it raised is left."""
        if isinstance(made, _Tested):
            return self._hoist.hidden[part].checked(F.lit(True))
        return self._hoist.decided(part, self._answer)

    def _sides(self, part: Part) -> tuple[SparkColumn, ...]:
        """Return the values that a comparison compares, as Spark computes them."""
        if part.kind == "Not":
            return self._sides(part.children[0])
        between = part.kind == "UnresolvedFunction" and [name.lower() for name in part.names] == ["between"]
        compared = part.children if between or part.kind in COMPARISONS else ()
        return tuple(self._hoist.decided(side, self._answer) for side in compared)

    def _answer(self, call: Part) -> SparkColumn:
        """Return the answer of a Python predicate as Spark reads it."""
        answer = F.col(hidden_name(f"p{call.span[0]}"))
        for made in self._failing(call):
            answer = made.checked(answer)
        return answer

    # -- DuckDB's side

    def _translator(self) -> Translator:
        return Translator(self._text, self._scope, self._predicates, self._dialect)

    def _node(self, part: Part, *, careful: bool = False, hoisted: bool = True) -> SqlNode:
        """Return a part as the translator takes it."""

        def known(inner: Part) -> Expr | None:
            if hoisted and inner in self._hoist.hidden:
                return self._hoist.hidden[inner].expr(careful)
            return self._hoist.constants.get(inner)

        return Converter(self._spark, self._text, known, self._names, self._sizes.is_guarded).node(part)

    def _is_calm(self, part: Part) -> bool:
        """Tell whether computing a part can't raise, as far as is known here."""
        translator = self._translator()
        try:
            return is_calm(part, lambda inner: translator.expr(self._node(inner, hoisted=False)))
        except Refusal:
            return False


@dataclass(frozen=True)
class _Made:
    """What became of a conjunct: as it is decided in the ordinary case, and where a hidden column has no value."""

    calm: tuple[Conjunct, ...]
    careful: tuple[Conjunct, ...]

    @property
    def opaque(self) -> bool:
        """Whether it is left to Spark."""
        return any(conjunct.opaque for conjunct in self.calm)

    def placed(self, clause: int, gaps: tuple[Gap, ...]) -> "_Made":
        """Return the same with the number of the conjunct, and how far apart it lets event times be."""
        both = (self.calm, self.careful)
        calm, careful = (tuple(replace(c, clause=clause, gaps=gaps) for c in found) for found in both)
        return replace(self, calm=calm, careful=careful)


@dataclass(frozen=True)
class _Tested(_Made):
    """A conjunct that tuples are tested by when they come in; only one that raised for a tuple is left to the end."""

    stream: int
    test: Test

    @staticmethod
    def of(made: Computed, text: str, fixed: FixedColumn | None) -> "_Tested":
        """Return the test by a hidden column, and what it fixes."""
        if made.flag is None:
            return _Tested((), (), made.column.stream, Test(made.column.field, fixed=fixed))
        flag = made.flag.column
        sql = f"(CASE WHEN {flag.name} THEN {error_sql(made.reason, BOOLEAN)} ELSE TRUE END)"
        late = Conjunct(text, sql, (flag,), raises=True)
        return _Tested((), (late,), flag.stream, Test(made.column.field, flag.field))


def _collated(kinds: Sequence[T.StructType]) -> dict[Column, str]:
    """Return the columns whose text is compared by a collation."""
    found: dict[Column, Any] = {
        Column(stream, at): collation(field.dataType)
        for stream, kind in enumerate(kinds)
        for at, field in enumerate(kind.fields)
    }
    return {column: name for column, name in found.items() if name is not None}


def _padded(kinds: Sequence[T.StructType]) -> frozenset[Column]:
    """Return the columns of a fixed length, CHAR(n), which Spark compares by rules of their own."""
    return frozenset(
        Column(stream, at)
        for stream, kind in enumerate(kinds)
        for at, field in enumerate(kind.fields)
        if _LENGTH in field.metadata or isinstance(field.dataType, T.CharType)
    )


_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark notes that a text has a length."""


def conjuncts_of(part: Part) -> list[Part]:
    """Return the conjuncts of a condition, in written order."""
    return [inner for child in part.children for inner in conjuncts_of(child)] if part.kind == "And" else [part]
