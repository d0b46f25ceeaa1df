"""`where` as Spark reads it: hidden columns, tests of single tuples, and conditions between streams.

Subexpressions over one stream are computed by Spark when a tuple comes in, as hidden columns. Conditions between
streams go to DuckDB if it gives the same answers as Spark; Spark decides all others, over the combinations for which
the rest of the conjuncts hold.
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
from watersmeet.predicate.conjunct_values import compared_values_of, fixed_column_of
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
from watersmeet.spark.sql.catalyst import (
    ConditionText,
    NodeBuilder,
    ParsedNode,
    UnplacedText,
    error_sentence,
    items,
    parse,
    without_error_log,
)
from watersmeet.spark.sql.column_writer import ColumnWriter
from watersmeet.spark.sql.condition_names import ConditionNames
from watersmeet.spark.sql.convert import Converter
from watersmeet.spark.sql.gaps import GapReader
from watersmeet.spark.sql.hoist import ComputedColumn, Hoist, cannot_raise, collation
from watersmeet.spark.sql.implicit_casts import warn_of_casts
from watersmeet.spark.sql.map_keys import MapKeys
from watersmeet.spark.sql.purity import check_plan, check_tree
from watersmeet.spark.sql.value_limits import MakerLimits, UntrustedLimits

COMPARISONS = frozenset({
    "EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "EqualNullSafe",
})  # fmt: skip


@dataclass(frozen=True)
class Where:
    """A compiled `where`.

    Attributes:
        conjuncts: See `Query`.
        careful: See `Query`.
        flags: See `Query`.
        computed: The hidden columns of each stream.
        tests: For each stream the conjuncts that are tested on its tuples when they come in.
        conditions: Each conjunct as Spark decides it, in written order, over the streams as struct columns.
        sides: For each conjunct that is left to Spark, the values that it compares, over the streams as struct columns.
        meaning: The whole condition as Spark reads it, with everything explicit that depends on settings.
        reads: For each conjunct, in written order, the streams that it names.
        partners: For each conjunct the streams whose partners it restricts, whether it names them or not.
        text: The whole condition as people read it.
    """

    conjuncts: tuple[Conjunct, ...] = ()
    careful: tuple[Conjunct, ...] = ()
    flags: tuple[Column, ...] = ()
    computed: tuple[tuple[ComputedColumn, ...], ...] = ()
    tests: tuple[tuple[Test, ...], ...] = ()
    conditions: tuple[SparkColumn, ...] = ()
    sides: tuple[tuple[SparkColumn, ...], ...] = ()
    meaning: str = ""
    reads: tuple[frozenset[int], ...] = ()
    partners: tuple[tuple[int, ...], ...] = ()
    text: str = ""

    def decide(self, frame: DataFrame, clauses: Sequence[int]) -> DataFrame:
        """Return a frame of the combinations for which the conjuncts of these numbers hold, as Spark decides.

        If there are several, it has further columns, behind all others.

        [!] A combination for which one of them doesn't hold is not a result, even if others raise for it.
        """
        conditions = [self.conditions[clause].cast("boolean") for clause in clauses]
        all_hold = reduce(SparkColumn.__and__, conditions)
        if len(conditions) == 1:
            return frame.where(all_hold)
        builder = NodeBuilder(frame.sparkSession)
        names = [hidden_name(f"d{clause}") for clause in clauses]
        attempts = [builder.null_if_raises(F.struct(condition.alias("holds"))) for condition in conditions]
        outcomes = [F.col(name) for name in names]
        fails = [outcome.isNotNull() & ~F.coalesce(outcome.getField("holds"), F.lit(False)) for outcome in outcomes]
        with_outcomes = frame.select("*", *(attempt.alias(n) for attempt, n in zip(attempts, names, strict=True)))
        return with_outcomes.where(F.when(reduce(SparkColumn.__or__, fails), False).otherwise(all_hold))


@dataclass(frozen=True)
class Criteria:
    """The conditions of a join, as the user wrote them.

    Attributes:
        where: The condition on all combinations, as text or as a column; None for every combination.
        on: The conditions on the partners of optional streams, by position.
        full: Whether it is a full join: then all conditions restrict partners.
    """

    where: str | SparkColumn | None = None
    on: Mapping[int, str | SparkColumn] = field(default_factory=dict)
    full: bool = False

    @property
    def parts(self) -> list[tuple[str | SparkColumn, tuple[int, ...]]]:
        """The conditions, each with the streams whose partners it restricts; none if it restricts all combinations."""
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
    """Compile the conditions of a join; has Spark analyse them, and warns of texts that it would cast implicitly.

    Args:
        spark: The session, whose parser, settings and functions define what the text means.
        criteria: The conditions.
        streams: The join's streams.
        kinds: Their columns in Spark.
        predicates: The Python predicates that the text may call.
        dialect: The session's settings.
        untrusted: Whether the text comes from people, who may do less than the program.
        frames: The streams' frames, to which a column may be bound; None for one that is a join.

    Raises:
        SqlError: If it is not a condition, or not an allowed one; the position is underlined.
        DefinitionError: If Spark can't read a column, or it belongs to another frame.
    """
    parts = criteria.parts
    if not parts:
        return Where(computed=((),) * len(streams), tests=((),) * len(streams))
    for text in (part for part, _ in parts if isinstance(part, str)):
        if not text.strip():
            problem = "where: the condition is empty; leave where out for every combination in the windows."
            raise SqlError(problem, text, 0, 1)
        purity.refuse_variables(text)
    writer = ColumnWriter(spark, dict(zip((stream.name for stream in streams), frames, strict=True)))
    condition = _parse_texts(spark, parts) or _parse_columns(writer, parts)
    return _WhereCompiler(spark, condition, streams, kinds, predicates, dialect, untrusted).compile()


@dataclass(frozen=True)
class _ParsedCondition:
    """Conditions, joined by AND.

    Attributes:
        tree: Spark's tree of them.
        text: The user's text.
        partners: For each conjunct, in written order, the streams whose partners it restricts.
    """

    tree: ParsedNode
    text: ConditionText
    partners: tuple[tuple[int, ...], ...]


def _parse_texts(
    spark: SparkSession, parts: Sequence[tuple[str | SparkColumn, tuple[int, ...]]]
) -> _ParsedCondition | None:
    """Return conditions that are all texts, parsed; None if one is a column."""
    texts = [text for text, _ in parts if isinstance(text, str)]
    if len(texts) < len(parts):
        return None
    lines = [f"{text}\n" if "--" in text else text for text in texts]  # ends comments before the parenthesis
    whole = texts[0] if len(texts) == 1 else " AND ".join(f"({text})" for text in lines)
    trees = [parse(spark, text) for text in texts]
    partners = tuple(streams for tree, (_, streams) in zip(trees, parts, strict=True) for _ in conjuncts_of(tree))
    return _ParsedCondition(trees[0] if len(trees) == 1 else parse(spark, whole), ConditionText(whole), partners)


def _parse_columns(
    writer: ColumnWriter, parts: Sequence[tuple[str | SparkColumn, tuple[int, ...]]]
) -> _ParsedCondition:
    """Return conditions some of which are columns, parsed; texts are turned into columns, and lose their positions."""
    columns = [F.expr(part) if isinstance(part, str) else part for part, _ in parts]
    tree, text = writer.condition(reduce(SparkColumn.__and__, columns))
    counts = [len(conjuncts_of(writer.condition(column)[0])) for column in columns]
    partners = tuple(streams for count, (_, streams) in zip(counts, parts, strict=True) for _ in range(count))
    return _ParsedCondition(tree, UnplacedText(text), partners)


class _WhereCompiler:
    """Compiles one `where`."""

    def __init__(
        self,
        spark: SparkSession,
        condition: _ParsedCondition,
        streams: Sequence[StreamSpec],
        kinds: Sequence[T.StructType],
        predicates: Sequence[PythonPredicate],
        dialect: Dialect,
        untrusted: bool,
    ) -> None:
        """Look up the condition's names, and have Spark compute the constant sizes in it.

        Raises:
            SqlError: If it names what doesn't exist, makes values that are too large, or is untrusted and holds what is
                refused then.
        """
        self._spark, self._streams, self._tree, self._text = spark, streams, condition.tree, condition.text
        self._partners = condition.partners
        self._predicates, self._dialect, self._untrusted = predicates, dialect, untrusted
        self._scope = Scope([(stream.name, stream.schema) for stream in streams], _collations(kinds))
        self._padded = _padded_columns(kinds)
        self._names = ConditionNames(self._tree, self._text, streams, self._scope, predicates)
        fields = [T.StructField(stream.name, kind) for stream, kind in zip(streams, kinds, strict=True)]
        self._empty = spark.createDataFrame([], T.StructType(fields))
        if untrusted:
            check_tree(spark, [self._tree], self._text.error, self._calls_predicate)
        # What is measured, Spark doesn't simplify.
        self._map_keys = MapKeys(spark, self._tree, simplified=not untrusted)
        limits = UntrustedLimits if untrusted else MakerLimits
        self._limits = limits(spark, [self._tree], self._text.error, self._map_keys.make)
        self._hoist = Hoist(self._names, self._text, streams, kinds, spark, self._cannot_raise, self._limits)

    def _calls_predicate(self, part: ParsedNode) -> bool:
        """Tell whether a part calls a Python predicate."""
        return self._names.predicate(part) is not None

    def compile(self) -> Where:
        """Return the compiled condition; raises SqlError if Spark, or a rule of ours, refuses it."""
        parts = conjuncts_of(self._tree)
        self._analyse(parts)
        numbered = enumerate(zip(parts, self._partners, strict=True))
        clauses = [self._clause(part, partners).numbered(at, self._gaps[at]) for at, (part, partners) in numbered]
        tests = [clause for clause in clauses if isinstance(clause, _CompiledTest)]
        hidden = (column for columns in self._hoist.computed for column in columns)
        flags = tuple(column.flag.column for column in hidden if column.flag is not None)
        return Where(
            tuple(conjunct for clause in clauses for conjunct in clause.ordinary),
            tuple(conjunct for clause in clauses for conjunct in clause.careful) if flags else (),
            flags,
            tuple(map(tuple, self._hoist.computed)),
            tuple(tuple(t.test for t in tests if t.stream == at) for at in range(len(self._streams))),
            tuple(self._condition(part, clause) for part, clause in zip(parts, clauses, strict=True)),
            tuple(self._sides(part) if clause.opaque else () for part, clause in zip(parts, clauses, strict=True)),
            str(self._tree.handle.sql()),
            tuple(map(self._names.streams, parts)),
            self._partners,
            self._text.text,
        )

    def _analyse(self, clauses: Sequence[ParsedNode]) -> None:
        """Let Spark check all conjuncts and arguments of Python predicates; learn types and gaps from its plan.

        Warns of texts that Spark casts implicitly.

        Raises:
            SqlError: If Spark can't analyse one, a conjunct is no condition, or it contains what is refused.
        """
        arguments = [argument for call in self._names.calls(self._tree) for argument in call.children]
        try:
            with without_error_log():
                frame = self._select([*clauses, *arguments])
        except AnalysisException as error:
            raise purity.analysis_error(self._text, error, self._predicates) from None
        except (PySparkException, Py4JError) as error:
            raise self._text.error(f"Spark can't read this: {error_sentence(error)}.", None) from None
        for part, column in zip(clauses, frame.schema.fields, strict=False):
            if column.dataType.typeName() not in ("boolean", "void"):
                problem = f"A condition is expected here, not a value of type {column.dataType.simpleString()}."
                raise self._text.error(problem, part)
        plan = frame._jdf.queryExecution().analyzed()
        purity.check(self._text, plan)
        if self._untrusted:
            check_plan(plan, lambda problem, node: self._text.error(problem, None))
        self._limits.learn_types(plan)
        self._map_keys.learn_types(plan)
        nodes = [node for alias in items(plan.expressions()) for node in items(alias.children())]
        reader = GapReader(self._spark, self._streams, self._dialect)
        self._gaps = [reader.read(node) for node, _ in zip(nodes, clauses, strict=False)]
        texts = [(self._text.of(part), part, node) for part, node in zip(clauses, nodes, strict=False)]
        warn_of_casts(self._spark, texts, self._dialect)

    def _select(self, parts: Sequence[ParsedNode]) -> DataFrame:
        """Return a frame of some parts, with an unknown answer for every Python predicate."""
        unknown = F.lit(None).cast("boolean")
        columns = [self._hoist.condition(part, lambda call: unknown) for part in parts]
        return self._empty.select(*(column.alias(f"c{at}") for at, column in enumerate(columns)))

    # -- conjuncts

    def _clause(self, part: ParsedNode, partners: Collection[int]) -> "_CompiledClause":
        """Compile a conjunct, for which hidden columns may be added to streams.

        [!] One that restricts the partners of streams which it doesn't name is not a test: a tuple that fails it has no
        partners, and may be a result because of that.
        """
        self._hoist.prepare(part)
        text, hidden = self._text.of(part), self._hoist.hidden.get(part)
        names_all = self._names.streams(part).issuperset(partners)
        if hidden is not None and names_all and self._streams[hidden.column.stream].window.rows is None:
            return _CompiledTest.of(hidden, text, self._fixed_column(part, text))
        ordinary = replace(self._conjunct(part, text, careful=False), fixed=self._fixed_column(part, text))
        careful = self._conjunct(part, text, careful=True)
        return _CompiledClause((ordinary.after_on(partners),), (careful.after_on(partners),))

    def _fixed_column(self, part: ParsedNode, text: str) -> FixedColumn | None:
        """Return the column that a conjunct `column = literal` fixes to one value; None for any other conjunct.

        [!] Only by a plain literal: values that Spark computes or casts may differ, and beside a CHAR it pads them.
        """
        sides = [*self._names.reads(part)] if part.kind == "EqualTo" else []
        if len(sides) != 1 or sides[0] in self._padded or "Literal" not in [child.kind for child in part.children]:
            return None
        try:
            return fixed_column_of(self._node(part, hoisted=False), self._translator(), text)
        except Refusal:
            return None

    def _conjunct(self, part: ParsedNode, text: str, *, careful: bool) -> Conjunct:
        """Return a conjunct translated to DuckDB or left to Spark; `careful`: it raises where a hidden column did."""
        try:
            return parse_conjunct(self._translator(), self._node(part, careful=careful), text)
        except Refusal as refusal:
            return self._conjunct_left_to_spark(part, text, refusal.problem.split(";")[0].rstrip("."))

    def _conjunct_left_to_spark(self, part: ParsedNode, text: str, why: str) -> Conjunct:
        """Return a conjunct that only Spark can decide, with the calls of Python predicates whose answers it needs.

        Args:
            part: The conjunct.
            text: Its text.
            why: Why DuckDB can't decide it.

        Raises:
            SqlError: If the arguments of a Python predicate can't be computed.
        """
        translator = self._translator()
        for call in self._names.calls(part):
            try:
                translator.expr(self._node(call))
            except Refusal as refusal:
                raise self._text.error(refusal.problem, call) from None
        spark_columns = self._columns_for_spark(part)
        columns = spark_columns | {c for call in translator.calls for a in call.arguments for c in a.columns}
        calls, read = tuple(translator.calls), tuple(sorted(columns))
        try:
            compared = compared_values_of(self._node(part), translator, calls, foreign=read)
        except Refusal:  # of a type that only Spark knows
            compared = ComparedValues()
        return Conjunct(text, None, read, calls, why=why, comparing=compared)

    def _columns_for_spark(self, part: ParsedNode) -> set[Column]:
        """Return the columns that Spark reads to decide a part, without those that only Python predicates read."""
        if part in self._hoist.hidden:
            return self._hoist.hidden[part].columns
        if self._calls_predicate(part):
            return {argument.flag.column for argument in self._arguments_that_may_raise(part) if argument.flag}
        return set(self._names.own_columns(part)).union(*map(self._columns_for_spark, part.children))

    def _arguments_that_may_raise(self, call: ParsedNode) -> list[ComputedColumn]:
        arguments = [self._hoist.hidden[part] for part in call.children if part in self._hoist.hidden]
        return [argument for argument in arguments if argument.flag is not None]

    def _condition(self, part: ParsedNode, clause: "_CompiledClause") -> SparkColumn:
        """Return a conjunct as Spark decides it; if tuples have been tested, it only raises where the test raised."""
        if isinstance(clause, _CompiledTest):
            return self._hoist.hidden[part].guard(F.lit(True))
        return self._hoist.condition(part, self._answer)

    def _sides(self, part: ParsedNode) -> tuple[SparkColumn, ...]:
        """Return the values that a comparison, negated or not, compares, as Spark computes them; () for others."""
        if part.kind == "Not":
            return self._sides(part.children[0])
        is_between = part.kind == "UnresolvedFunction" and [name.lower() for name in part.names] == ["between"]
        sides = part.children if is_between or part.kind in COMPARISONS else ()
        return tuple(self._hoist.condition(side, self._answer) for side in sides)

    def _answer(self, call: ParsedNode) -> SparkColumn:
        """Return the column with the answers of a Python predicate; it raises where computing an argument did."""
        answer = F.col(hidden_name(f"p{call.span[0]}"))
        for argument in self._arguments_that_may_raise(call):
            answer = argument.guard(answer)
        return answer

    # -- DuckDB's side

    def _translator(self) -> Translator:
        return Translator(self._text, self._scope, self._predicates, self._dialect)

    def _node(self, part: ParsedNode, *, careful: bool = False, hoisted: bool = True) -> SqlNode:
        """Return a part as a node for the translator.

        Args:
            part: The part.
            careful: Whether reading a hidden column raises where computing it did.
            hoisted: Whether hidden columns are read, instead of translating what they hold.
        """

        def expr_of(inner: ParsedNode) -> Expr | None:
            if hoisted and inner in self._hoist.hidden:
                return self._hoist.hidden[inner].expr(careful)
            return self._hoist.constants.get(inner)

        return Converter(self._spark, self._text, expr_of, self._names, self._limits.is_guarded).convert(part)

    def _cannot_raise(self, part: ParsedNode) -> bool:
        """Tell whether computing a part can't raise; False if it can't be translated."""
        translator = self._translator()
        try:
            return cannot_raise(part, lambda inner: translator.expr(self._node(inner, hoisted=False)))
        except Refusal:
            return False


@dataclass(frozen=True)
class _CompiledClause:
    """A compiled conjunct: for the ordinary case, and for tuples for which a hidden column could not be computed."""

    ordinary: tuple[Conjunct, ...]
    careful: tuple[Conjunct, ...]

    @property
    def opaque(self) -> bool:
        """Whether it is left to Spark."""
        return any(conjunct.opaque for conjunct in self.ordinary)

    def numbered(self, clause: int, gaps: tuple[Gap, ...]) -> "_CompiledClause":
        """Return the same with the number of the conjunct, and how far apart it lets event times be."""
        both = (self.ordinary, self.careful)
        ordinary, careful = (tuple(replace(c, clause=clause, gaps=gaps) for c in conjuncts) for conjuncts in both)
        return replace(self, ordinary=ordinary, careful=careful)


@dataclass(frozen=True)
class _CompiledTest(_CompiledClause):
    """A conjunct that is tested on tuples when they come in; tuples for which it raised are left to the end."""

    stream: int
    test: Test

    @staticmethod
    def of(hidden: ComputedColumn, text: str, fixed: FixedColumn | None) -> "_CompiledTest":
        """Return the test of a hidden column.

        Args:
            hidden: The column.
            text: The conjunct that it holds.
            fixed: The column of the stream that the conjunct fixes to a value, if it does.
        """
        if hidden.flag is None:
            return _CompiledTest((), (), hidden.column.stream, Test(hidden.column.field, fixed=fixed))
        flag = hidden.flag.column
        sql = f"(CASE WHEN {flag.name} THEN {error_sql(hidden.reason, BOOLEAN)} ELSE TRUE END)"
        conjunct = Conjunct(text, sql, (flag,), raises=True)
        return _CompiledTest((), (conjunct,), flag.stream, Test(hidden.column.field, flag.field))


def _collations(kinds: Sequence[T.StructType]) -> dict[Column, str]:
    """Return the columns whose text is compared by a collation."""
    names: dict[Column, Any] = {
        Column(stream, at): collation(field.dataType)
        for stream, kind in enumerate(kinds)
        for at, field in enumerate(kind.fields)
    }
    return {column: name for column, name in names.items() if name is not None}


def _padded_columns(kinds: Sequence[T.StructType]) -> frozenset[Column]:
    """Return the columns of fixed length, CHAR(n), which Spark compares by special rules."""
    return frozenset(
        Column(stream, at)
        for stream, kind in enumerate(kinds)
        for at, field in enumerate(kind.fields)
        if _LENGTH in field.metadata or isinstance(field.dataType, T.CharType)
    )


_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata in which Spark notes that a text has a length."""


def conjuncts_of(part: ParsedNode) -> list[ParsedNode]:
    """Return the conjuncts of a condition, in written order."""
    return [inner for child in part.children for inner in conjuncts_of(child)] if part.kind == "And" else [part]
