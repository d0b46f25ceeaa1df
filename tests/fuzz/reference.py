"""What Spark itself answers, combination by combination: the reference for conditions and SELECT lists."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tests.fuzz.data import CROSS, Data, quoted, readers, table
from tests.predicate.engines import SIMPLIFICATIONS

MOST_ONE_BY_ONE = 6_000
"""More combinations than this are not asked about one by one."""
FUNCTIONS = (
    "sq_near(x DOUBLE, y DOUBLE) RETURNS BOOLEAN RETURN abs(x - y) < 3",
    "sq_less(x DOUBLE, y DOUBLE) RETURNS BOOLEAN RETURN x < y AND NOT isnan(y)",
    "sq_first(x STRING, y STRING) RETURNS BOOLEAN RETURN left(x, 1) = left(y, 1)",
    "sq_no_value(x STRING, y STRING) RETURNS BOOLEAN RETURN x IS NULL AND y IS NULL",
)
"""What the Python predicates answer, said in SQL."""

ATTRIBUTES = "org.apache.spark.sql.catalyst.expressions.package$AttributeSeq"

Ids = tuple[int, ...]


class NotSpark(Exception):
    """Spark itself refuses the text."""


class TooMany(Exception):
    """A condition raises somewhere among more combinations than can be asked one by one."""


@dataclass
class Truth:
    """What Spark answers.

    Attributes:
        holds: The combinations for which all conjuncts are TRUE.
        raises: Those for which the join must raise: conjuncts raise, and all others are TRUE.
        may_raise: Those for which it may: what rules them out can raise too, and stands behind what raises.
        body: The output of those that hold, as text.
    """

    holds: set[Ids] = field(default_factory=set)
    raises: set[Ids] = field(default_factory=set)
    may_raise: set[Ids] = field(default_factory=set)
    body: dict[Ids, str] = field(default_factory=dict)


def define(spark: SparkSession) -> None:
    """Define the namesakes of the Python predicates."""
    for function in FUNCTIONS:
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {function}")


@contextmanager
def setting(spark: SparkSession, **values: str) -> Iterator[None]:
    """Set what Spark's optimizer does for a while."""
    for key, value in values.items():
        spark.conf.set(f"spark.sql.{key.replace('__', '.')}", value)
    try:
        yield
    finally:
        for key in values:
            spark.conf.unset(f"spark.sql.{key.replace('__', '.')}")


def frames(spark: SparkSession, data: Data, folder: Path, *, streaming: bool) -> list[DataFrame]:
    """The streams as frames; streaming ones take a file a batch."""
    made = []
    for at, shape in enumerate(data.shapes):
        schema = from_arrow_schema(table(data, shape, []).schema, prefer_timestamp_ntz=True)
        reader: Any = spark.readStream.option("maxFilesPerTrigger", 1) if streaming else spark.read
        made.append(reader.schema(schema).parquet(str(folder / str(at))).selectExpr(*readers(shape)))
    return made


class Reference:
    """Asks Spark about all combinations of rows of some streams."""

    def __init__(self, spark: SparkSession, data: Data, folder: Path) -> None:
        self.spark, self.data = spark, data
        self.names = [shape.name for shape in data.shapes]
        self.ids = [f"id{at}" for at in range(len(data.shapes))]
        schema = from_arrow_schema(pq.read_schema(folder / CROSS), prefer_timestamp_ntz=True)
        stored = spark.read.schema(schema).parquet(str(folder / CROSS))
        ids = [f"s{at}_id AS id{at}" for at in range(len(data.shapes))]
        structs = [
            f"struct({', '.join(readers(shape, f's{at}_'))}) AS {quoted(shape.name)}"
            for at, shape in enumerate(data.shapes)
        ]
        times = ", ".join(f"s{at}_ts" for at in range(len(data.shapes)))
        self.cross = stored.selectExpr(*ids, *structs, f"greatest({times}) AS _time").coalesce(1)
        self.small = data.combinations <= MOST_ONE_BY_ONE
        self.jvm, self._rows, self._kept = Jvm(spark), None, False

    def evaluate(self, conjuncts: Sequence[str], select: Sequence[str] | None) -> DataFrame:
        """The ids of all combinations, what each conjunct answers, and the output as text; not computed yet.

        Raises:
            NotSpark: If Spark refuses the condition or the SELECT list.
        """
        texts = [re.sub(r"\bpy_", "sq_", text) for text in conjuncts]
        items = list(select) if select is not None else [*(quoted(name) for name in self.names), "_time"]
        kept = [*self.ids, *(f"_w{n}" for n in range(len(texts)))]
        try:
            answers = self.cross.selectExpr("*", *(f"({text}) AS _w{n}" for n, text in enumerate(texts)))
            shown = answers.selectExpr(*kept, f"struct({', '.join(items)}) AS _s")
            return shown.selectExpr(*kept, "make_valid_utf8(cast(_s AS string)) AS _s")
        except (AnalysisException, ParseException) as error:
            raise NotSpark(str(error).splitlines()[0]) from None

    def truth(self, conjuncts: Sequence[str], select: Sequence[str] | None) -> Truth:
        """Spark's answer to a condition.

        Raises:
            NotSpark: If Spark refuses it.
            TooMany: If it raises for some of too many combinations.
        """
        combinations = self.evaluate(conjuncts, select)
        every = " AND ".join(f"_w{n}" for n in range(len(conjuncts)))
        with setting(self.spark, subexpressionElimination__enabled="false"):
            try:
                found = (combinations.where(every) if every else combinations).select(*self.ids, "_s").toArrow()
            except Exception:
                if not self.small:
                    raise TooMany from None
                return self._one_by_one(conjuncts, select)
        keys = list(zip(*(found.column(name).to_pylist() for name in self.ids), strict=True))
        return Truth(set(keys), body=dict(zip(keys, found.column("_s").to_pylist(), strict=True)))

    def _one_by_one(self, conjuncts: Sequence[str], select: Sequence[str] | None) -> Truth:
        """Some conjunct raises for some combination: ask which for which."""
        if not self._kept:
            self.cross, self._kept = self.cross.localCheckpoint(), True
        verdicts = [self._verdicts(re.sub(r"\bpy_", "sq_", text)) for text in conjuncts]
        truth = Truth()
        for ids, answers in zip(self._ids(), zip(*verdicts, strict=True), strict=True):
            if all(answer is True for answer in answers):
                truth.holds.add(ids)
            elif all(answer is not False for answer in answers):
                (truth.raises if None in answers else truth.may_raise).add(ids)
            elif any(answer in (None, "perhaps") for answer in answers[: answers.index(False)]):
                truth.may_raise.add(ids)
        found = self.evaluate((), select).toArrow()
        truth.body = {tuple(key): text for *key, text in zip(*(c.to_pylist() for c in found.columns), strict=True)}
        return truth

    def _verdicts(self, text: str) -> list[Any]:
        """For each combination whether the conjunct is TRUE; None if it raises, "perhaps" if only as written."""
        plain = self._answers(text)
        with setting(self.spark, optimizer__excludedRules=SIMPLIFICATIONS):
            written = self._answers(text)
        return [
            "perhaps" if one is None and other is not None else one for one, other in zip(written, plain, strict=True)
        ]

    def _answers(self, text: str) -> list[bool | None]:
        expressions = self.jvm.jvm.org.apache.spark.sql.catalyst.expressions
        execution = self.cross._jdf.queryExecution()
        try:
            plan = self.cross.selectExpr(f"({text}) AS w")._jdf.queryExecution().optimizedPlan()
        except Exception:  # a constant that raises: the optimizer has tried it
            return [None] * len(self._internal())
        inputs = self.jvm.construct(ATTRIBUTES, execution.analyzed().output())
        bound = expressions.BindReferences.bindReference(plan.expressions().head().child(), inputs, False)
        return self.jvm.answers(expressions.Predicate.createInterpreted(bound), self._internal())

    def _internal(self) -> Any:
        """The rows of the cross product, as Spark keeps them."""
        if self._rows is None:
            self._rows = self.cross._jdf.queryExecution().executedPlan().executeCollect()
        return self._rows

    def _ids(self) -> list[Ids]:
        found = self.cross.select(*self.ids).toArrow()
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


class Jvm:
    """Calls into the JVM that no Python exception must cross: each would take as long as hundreds of rows."""

    def __init__(self, spark: SparkSession) -> None:
        self.jvm: Any = spark._jvm
        self.gateway: Any = spark.sparkContext._gateway
        self.object = self.kind("java.lang.Object")

    def kind(self, name: str) -> Any:
        """A class."""
        return self.jvm.java.lang.Class.forName(name)

    def array(self, kind: Any, value: Any) -> Any:
        """An array of one element."""
        made = self.gateway.new_array(kind, 1)
        made[0] = value
        return made

    def construct(self, name: str, argument: Any) -> Any:
        """An object of a class whose name Python can't spell."""
        return self.kind(name).getConstructors()[0].newInstance(self.array(self.jvm.java.lang.Object, argument))

    def answers(self, predicate: Any, rows: Any) -> list[bool | None]:
        """What an interpreted predicate answers for each of some rows; None where it raises."""
        one = self.array(self.jvm.java.lang.Class, self.kind("[Ljava.lang.Object;"))
        as_list = self.kind("java.util.Arrays").getMethod("asList", one)
        listed = as_list.invoke(None, self.array(self.jvm.java.lang.Object, rows))
        told = listed.stream().map(self._caught(predicate)).toList().toString()
        return [{"true": True, "false": False}.get(word) for word in told[1:-1].split(", ") if word]

    def _caught(self, predicate: Any) -> Any:
        """A function of a row that never throws."""
        handles, types = self.jvm.java.lang.invoke.MethodHandles, self.jvm.java.lang.invoke.MethodType
        boolean = self.kind("java.lang.Boolean").getField("TYPE").get(None)
        kind = types.methodType(boolean, self.kind("org.apache.spark.sql.catalyst.InternalRow"))
        evaluate = handles.publicLookup().findVirtual(predicate.getClass(), "eval", kind).bindTo(predicate)
        evaluate = evaluate.asType(types.methodType(self.object, self.object))
        thrown = self.kind("java.lang.Throwable")
        told = handles.dropArguments(
            handles.constant(self.object, "raises"), 0, self.array(self.jvm.java.lang.Class, thrown)
        )
        safe = handles.catchException(evaluate, thrown, told)
        return self.jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
            self.kind("java.util.function.Function"), safe
        )
