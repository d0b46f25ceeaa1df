"""Documented expressions decided by a join, compared with Spark's own answer over the same rows.

Many expressions go into one join: its streams hold a row for each, number n, and all the same values; the conjunct of
an expression rules out no row but its own, and that only if the join's answer isn't Spark's.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

import watersmeet as wm
from tests.predicate.registry import ESCAPED, OF_THE_SESSION, Example, Pieces, pieces
from watersmeet.spark.run.versions import to_arrow_schema

FORMS = ("constants", "one stream", "two streams")
"""Where an expression's literals go: they stay, they are columns of stream a, or of a and b by turns."""
TOGETHER = 40
"""Expressions in one join."""
PLAIN = (T.NumericType, T.StringType, T.BinaryType, T.BooleanType, T.DateType, T.DatetimeType, T.DayTimeIntervalType)


@dataclass
class Outcome:
    """What became of some examples; each text says the function, the form and the expression."""

    answered: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    not_spark: list[str] = field(default_factory=list)
    raising: int = 0

    def add(self, other: "Outcome") -> None:
        """Add what became of others."""
        self.answered += other.answered
        self.refused += other.refused
        self.different += other.different
        self.not_spark += other.not_spark
        self.raising += other.raising

    def summary(self) -> str:
        """The counts, and by function those that were refused or answered differently."""
        lines = [
            f"{len(self.answered)} answered as Spark answers ({self.raising} of them raise), {len(self.refused)} "
            f"refused, {len(self.different)} different, {len(self.not_spark)} that Spark itself refuses here"
        ]
        for title, texts in (("different", self.different), ("refused", self.refused)):
            by_function = Counter(text.split(":")[0] for text in texts)
            counts = ", ".join(f"{name} {count}" for name, count in sorted(by_function.items()))
            lines += [f"{title}: {counts}"] if counts else []
        return "\n".join(lines)


@dataclass(frozen=True)
class Form:
    """An expression in one form.

    Attributes:
        example: The documented one.
        name: Where its literals went.
        cut: It, cut at its literals.
        moved: The stream that each moved literal is a column of, by the literal's position.
        kind: The type of its value.
    """

    example: Example
    name: str
    cut: Pieces
    moved: dict[int, str]
    kind: T.DataType

    def text(self, number: int = 0) -> str:
        """The expression over the columns of a join in which it has this number."""
        return self.cut.render(lambda at: f"{self.moved[at]}.c{number}_{at}" if at in self.moved else None)

    def value(self, number: int = 0) -> str:
        """The expression as a value that a column can hold and `<=>` compare."""
        return _comparable(self.text(number), self.kind)

    def columns(self, stream: str, number: int) -> list[str]:
        """The literals that are columns of a stream, as Spark's select takes them."""
        return [f"{self.cut.literals[at]} AS c{number}_{at}" for at, to in self.moved.items() if to == stream]

    def __str__(self) -> str:
        return f"{self.example.function}: {self.name}: {self.text()}"


def _comparable(text: str, kind: T.DataType) -> str:
    if _is_plain(kind):
        return f"({text})"
    match kind.typeName():
        case "void":
            return f"(({text}) IS NULL)"
        case "variant":
            return f"to_json({text})"
        case "geometry" | "geography":
            return f"hex(st_asbinary({text}))"
        case _:
            return f"cast(({text}) AS string)"


def _is_plain(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _is_plain(kind.elementType)
    if isinstance(kind, T.StructType):
        return len(kind) > 0 and all(_is_plain(part.dataType) for part in kind)
    collated = isinstance(kind, T.StringType) and "collate" in kind.simpleString().lower()
    return isinstance(kind, PLAIN) and not collated and not isinstance(kind, T.CharType | T.VarcharType)


@contextmanager
def settings(spark: SparkSession, ansi: bool, zone: str) -> Iterator[None]:
    """A session in one mode and zone, that is quiet about what it is asked in vain."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def compare(spark: SparkSession, examples: Sequence[Example], forms: Sequence[str] = FORMS) -> Outcome:
    """Let joins decide examples, and tell where they don't answer as Spark does; see `Comparison`."""
    outcome = Outcome()
    for escaped in (False, True):
        spark.conf.set(ESCAPED, str(escaped).lower())
        try:
            outcome.add(Comparison(spark, forms).run([e for e in examples if e.escaped == escaped]))
        finally:
            spark.conf.unset(ESCAPED)
    return outcome


class Comparison:
    """Asks joins and Spark the same, in the session as it is set."""

    def __init__(self, spark: SparkSession, forms: Sequence[str]) -> None:
        self.spark, self.forms, self.outcome = spark, forms, Outcome()

    def run(self, examples: Sequence[Example]) -> Outcome:
        """Compare every example in every form."""
        forms = [form for example in examples for form in self._forms(example)]
        for start in range(0, len(forms), TOGETHER):
            self._group(forms[start : start + TOGETHER])
        return self.outcome

    def _forms(self, example: Example) -> Iterator[Form]:
        cut, texts = pieces(example.text), set()
        for name in self.forms:
            form = self._form(example, name, cut)
            if form is None:
                self.outcome.not_spark.append(f"{example.function}: {name}: {example.text}")
            elif form.text() not in texts:
                texts.add(form.text())
                yield form

    def _form(self, example: Example, name: str, cut: Pieces) -> Form | None:
        """The example with as many literals moved as Spark allows: some arguments must be constants."""
        streams = ["a", "b"] if name == "two streams" else ["a"]
        needed = [at for at in range(len(cut.literals)) if cut.must_move(at)]
        movable = needed if name == "constants" else list(range(len(cut.literals)))
        whole = self._place(example, name, cut, movable, streams)
        if whole is not None or movable == needed:
            return whole
        best, places = self._place(example, name, cut, needed, streams), needed
        for at in movable:
            more = self._place(example, name, cut, sorted({*places, at}), streams)
            best, places = (more, sorted({*places, at})) if more is not None else (best, places)
        return best

    def _place(
        self, example: Example, name: str, cut: Pieces, literals: Sequence[int], streams: Sequence[str]
    ) -> Form | None:
        """The example with these literals moved; None if Spark can't take it so."""
        moved = {at: streams[turn % len(streams)] for turn, at in enumerate(literals)}
        form = Form(example, name, cut, moved, T.NullType())
        try:
            values = self._values([form])
            if not all(_has_arrow(part.dataType) for part in values.select("a.*", "b.*").schema):
                return None
            kind = values.selectExpr(f"({form.text()}) AS v").schema[0].dataType
            form = Form(example, name, cut, moved, kind)
            values.selectExpr(f"{form.value()} <=> {form.value()}")
        except Exception:
            return None
        return form

    def _values(self, group: Sequence[Form]) -> DataFrame:
        """One row with the literals of some expressions, one struct a stream."""
        structs = []
        for stream in "ab":
            columns = [column for number, form in enumerate(group) for column in form.columns(stream, number)]
            structs.append(f"struct({', '.join([f'1 AS only_{stream}', *columns])}) AS {stream}")
        return self.spark.range(1, numPartitions=1).selectExpr(*structs)

    def _group(self, group: Sequence[Form]) -> None:
        """Compare some expressions in one join; those that don't go together are taken apart."""
        values = self._values(group)
        try:
            values = values.localCheckpoint()
            answers = values.selectExpr(*(f"{a.value(n)} AS e{n}" for n, a in enumerate(group))).localCheckpoint()
        except Exception as error:
            if len(group) == 1:
                self._raises(group[0], str(error))
            else:
                self._apart(group)
            return
        self._decide(group, values, answers)

    def _apart(self, group: Sequence[Form]) -> None:
        middle = len(group) // 2
        for part in (group[:middle], group[middle:]):
            if part:
                self._group(part)

    def _decide(self, group: Sequence[Form], values: DataFrame, answers: DataFrame) -> None:
        streams = self._streams(len(group), values, answers)
        conjuncts = {n: f"(a.n <> {n} OR {form.value(n)} <=> a.e{n})" for n, form in enumerate(group)}
        refusals = self._refusals(streams, conjuncts)
        for n, reason in refusals.items():
            self._refuse(group[n], reason)
        accepted = [form for n, form in enumerate(group) if n not in refusals]
        if refusals and accepted:
            self._group(accepted)
        elif accepted:
            self._run(group, streams, " AND ".join(["a.n = b.n", *conjuncts.values()]))

    def _refusals(self, streams: Sequence[Any], conjuncts: dict[int, str]) -> dict[int, str]:
        """Which of the conjuncts are refused, and why; first asked of all together, as nearly all are taken."""
        if _refusal(streams, " AND ".join(conjuncts.values())) is None:
            return {}
        reasons = {n: _refusal(streams, conjunct) for n, conjunct in conjuncts.items()}
        refusals = {n: reason for n, reason in reasons.items() if reason is not None}
        return refusals or dict.fromkeys(conjuncts, "each is taken, but not all together")

    def _refuse(self, form: Form, reason: str) -> None:
        if form.example.function in OF_THE_SESSION:
            self.outcome.answered.append(str(form))
        else:
            self.outcome.refused.append(f"{form}: {reason}")

    def _streams(self, rows: int, values: DataFrame, answers: DataFrame) -> list[Any]:
        numbers = self.spark.range(rows, numPartitions=1).selectExpr("cast(id AS int) AS n", "timestamp_micros(0) ts")
        frames = [numbers.crossJoin(values.select(f"{stream}.*")) for stream in "ab"]
        frames[0] = frames[0].crossJoin(answers)
        return [wm.stream(name, frame, time="ts") for name, frame in zip("ab", frames, strict=True)]

    def _run(self, group: Sequence[Form], streams: Sequence[Any], where: str) -> None:
        try:
            rows = wm.join(*streams, where=where, select="a.n AS n", strategy=wm.Central()).toDF().collect()
        except Exception as error:
            if len(group) > 1:
                self._apart(group)
            else:
                self.outcome.different.append(f"{group[0]}: the join raises, Spark doesn't: {_brief(error)}")
            return
        matches = Counter(row.n for row in rows)
        for n, form in enumerate(group):
            if matches[n] == 1:
                self.outcome.answered.append(str(form))
            else:
                self.outcome.different.append(f"{form}: not Spark's answer")

    def _raises(self, form: Form, error: str) -> None:
        """Where Spark raises, so must the join."""
        values = self._values([form]).localCheckpoint()
        nothing = self.spark.range(1).selectExpr("1 AS nothing")
        streams = self._streams(1, values, nothing)
        where = f"a.n = b.n AND ({form.text()}) IS NOT NULL"
        reason = _refusal(streams, where)
        if reason is not None:
            self._refuse(form, reason)
            return
        try:
            rows = wm.join(*streams, where=where, select="a.n AS n", strategy=wm.Central()).toDF().collect()
        except Exception:
            self.outcome.raising += 1
            self.outcome.answered.append(str(form))
        else:
            self.outcome.different.append(f"{form}: Spark raises, the join gives {len(rows)} rows: {error[:200]}")


def _refusal(streams: Sequence[Any], where: str) -> str | None:
    """Why a join refuses a condition; None if it takes it."""
    try:
        wm.join(*streams, where=where, select="a.n AS n", strategy=wm.Central())
    except wm.DefinitionError as error:
        return str(error).splitlines()[0]
    except Exception as error:
        return f"{type(error).__name__} instead of a sentence: {_brief(error)}"
    return None


def _brief(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line and not line.startswith("at ")]
    return (telling[-1] if telling else lines[0] if lines else type(error).__name__)[:300]


def _has_arrow(kind: T.DataType) -> bool:
    try:
        to_arrow_schema(T.StructType([T.StructField("c", kind)]))
    except Exception:
        return False
    return True
