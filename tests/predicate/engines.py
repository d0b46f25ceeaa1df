"""The same expressions evaluated by Spark and, through `parse_where`, by DuckDB."""

from dataclasses import dataclass, field
from typing import Any, Literal

import duckdb
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from tests.predicate.rows import STREAMS, flat, rows, structs
from watersmeet.errors import SqlError
from watersmeet.predicate.macros import PRELUDE
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where

Answer = bool | None | Literal["raises", "not carried"]
BATCH = 60
SIMPLIFICATIONS = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in (
        "BooleanSimplification", "ConstantFolding", "NullPropagation", "OptimizeIn", "SimplifyBinaryComparison",
        "SimplifyConditionals", "UnwrapCastInBinaryComparison", "ReplaceNullWithFalseInPredicate",
        "PushFoldableIntoBranches",
        "LikeSimplification", "SimplifyCasts", "ReorderAssociativeOperator", "ConstantPropagation",
    )
)  # fmt: skip


@dataclass
class Outcome:
    """What became of a list of expressions."""

    compared: int = 0
    refused: list[str] = field(default_factory=list)
    not_spark: list[str] = field(default_factory=list)
    raising: int = 0
    disagreements: list[str] = field(default_factory=list)


def connect(table: pa.Table, time_zone: str = "UTC") -> duckdb.DuckDBPyConnection:
    """A connection set up as the kernel's, with the rows as table `t`."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute(f"SET TimeZone = '{time_zone}'")
    for statement in PRELUDE:
        connection.execute(statement)
    connection.register("given", table)
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    return connection


class Duck:
    """Answers of DuckDB, row by row."""

    def __init__(self, table: pa.Table, dialect: Dialect) -> None:
        self.connection, self.dialect, self.count = connect(table, dialect.time_zone), dialect, table.num_rows

    def answers(self, text: str) -> list[Answer]:
        """TRUE, FALSE, NULL or that it raises, for each row; a SqlError if the text is refused."""
        (conjunct,) = parse_where(f"({text}) OR FALSE", STREAMS, [], self.dialect)
        answer, unsure = f"CAST({conjunct.sql} AS VARCHAR)", conjunct.unsure or "FALSE"
        query = f"SELECT CASE WHEN {unsure} THEN 'not carried' ELSE {answer} END FROM t"
        try:
            return [_read(answer) for (answer,) in self.connection.execute(f"{query} ORDER BY id").fetchall()]
        except duckdb.Error as error:
            if not conjunct.raises:
                raise AssertionError(f"{text}: raises unannounced: {error}") from None
            try:
                self.connection.execute(f"PREPARE one AS {query} WHERE id = $1")
            except duckdb.Error:  # a constant, computed beforehand
                return ["raises"] * self.count
            return [self._one(f"EXECUTE one({row})") for row in range(self.count)]

    def _one(self, query: str) -> Answer:
        try:
            value = self.connection.execute(query).fetchall()[0][0]
        except duckdb.Error:
            return "raises"
        return _read(value)


def _read(value: str | None) -> Answer:
    answers: dict[str | None, Answer] = {"true": True, "false": False, None: None, "not carried": "not carried"}
    return answers[value]


class Comparison:
    """Compares the two engines on one table of rows."""

    def __init__(self, spark: Any, dialect: Dialect, *, count: int = 40, seed: int = 1, probes: int = 1) -> None:
        self.spark, self.probes = spark, probes
        spark.conf.set("spark.sql.ansi.enabled", str(dialect.ansi).lower())
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        # Spark evaluates what occurs twice behind an AND or OR before it, which defeats the guard.
        spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
        sample = rows(count, seed)
        self.duck = Duck(flat(sample), dialect)
        table = structs(sample)
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
        self.frame = spark.createDataFrame(table, schema).coalesce(1).cache()
        self.frame.count()
        spark.conf.set("spark.sql.session.timeZone", dialect.time_zone)

    def run(self, texts: list[str]) -> Outcome:
        """Compare every expression on every row."""
        outcome = Outcome()
        by_text = []
        for text in texts:
            try:
                answers = self.duck.answers(text)
            except SqlError as error:
                outcome.refused.append(f"{text}: {error.problem}")
                continue
            except AssertionError as error:
                outcome.disagreements.append(str(error))
                continue
            by_text.append((text, answers))
        for start in range(0, len(by_text), BATCH):
            self._batch(by_text[start : start + BATCH], outcome)
        for text, answers in by_text:
            self._probe(text, answers, outcome)
        outcome.compared = len(by_text) - len(outcome.not_spark)
        return outcome

    def _batch(self, by_text: list[tuple[str, list[Answer]]], outcome: Outcome) -> None:
        """Rows on which DuckDB answers: Spark must answer the same, all expressions in one go."""
        try:
            frame = self.frame.selectExpr(
                "id", *(_guarded(text, answers, n) for n, (text, answers) in enumerate(by_text))
            ).collect()
        except Exception as error:
            if len(by_text) == 1 and type(error).__name__ in {"AnalysisException", "ParseException"}:
                outcome.not_spark.append(f"{by_text[0][0]}: {str(error)[:300]}")
                return
            if len(by_text) == 1:
                outcome.disagreements.append(f"{by_text[0][0]}: Spark raises, DuckDB doesn't: {str(error)[:300]}")
                return
            middle = len(by_text) // 2
            self._batch(by_text[:middle], outcome)
            self._batch(by_text[middle:], outcome)
            return
        for n, (text, answers) in enumerate(by_text):
            wrong = [
                (row["id"], row[f"e{n}"], answers[row["id"]])
                for row in frame
                if isinstance(answers[row["id"]], bool | None) and row[f"e{n}"] != answers[row["id"]]
            ]
            if wrong:
                outcome.disagreements.append(
                    f"{text}: row {wrong[0][0]}: Spark {wrong[0][1]}, DuckDB {wrong[0][2]} ({len(wrong)} rows)"
                )

    def _probe(self, text: str, answers: list[Answer], outcome: Outcome) -> None:
        """Rows on which DuckDB raises: Spark must raise too."""
        raising = [row for row, answer in enumerate(answers) if answer == "raises"]
        outcome.raising += bool(raising)
        for row in raising[:: max(1, len(raising) // self.probes)][: self.probes]:
            if not self._spark_raises(text, row) and not self._raises_as_written(text, row):
                outcome.disagreements.append(f"{text}: row {row}: DuckDB raises, Spark doesn't")

    def _raises_as_written(self, text: str, row: int) -> bool:
        """Whether Spark raises once its optimizer keeps what it could do without (`1/0 > 1 OR TRUE`)."""
        self.spark.conf.set("spark.sql.optimizer.excludedRules", SIMPLIFICATIONS)
        try:
            return self._spark_raises(text, row)
        finally:
            self.spark.conf.unset("spark.sql.optimizer.excludedRules")

    def _spark_raises(self, text: str, row: int) -> bool:
        try:
            self.frame.where(f"id = {row}").selectExpr(f"({text}) AS e").collect()
        except Exception:
            return True
        return False


def _guarded(text: str, answers: list[Answer], number: int) -> str:
    rows_left = [str(row) for row, answer in enumerate(answers) if isinstance(answer, bool | None)]
    if len(rows_left) == len(answers):
        return f"({text}) AS e{number}"
    return f"CASE WHEN id IN ({', '.join(rows_left) or '-1'}) THEN ({text}) END AS e{number}"
