"""SELECT lists: plain columns, expressions, and what is refused."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.budget import one_in
from watersmeet.errors import SqlError
from watersmeet.predicate.model import Column
from watersmeet.query.query import RESULT_TIME, Output, Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.spark.sql.select import parse_select

pytestmark = pytest.mark.spark

POINT = pa.struct([("x", pa.int32()), ("y", pa.int32())])
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("point", POINT)])
OTHER = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("only", pa.string())])
QUERY = Query((StreamSpec("a", SCHEMA, 1, Window(), 0), StreamSpec("b", OTHER, 1, Window(), 0)))


def test_plain_columns_are_the_engines_own_work(spark: SparkSession) -> None:
    found = parse_select("b.id AS other, A.ID, only, a.point AS `odd name`, _time", QUERY, spark)
    assert found.plain == (
        Output("other", Column(1, 0)),
        Output("ID", Column(0, 0)),
        Output("only", Column(1, 2)),
        Output("odd name", Column(0, 2)),
        Output("_time", RESULT_TIME),
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a.*, b.only", ["id", "ts", "point", "only"]),
        ("a.* EXCEPT (ts), b.only", ["id", "point", "only"]),
        ("a.* except (a.ts, POINT)", ["id"]),
    ],
)
def test_a_streams_star(spark: SparkSession, text: str, names: list[str]) -> None:
    found = parse_select(text, QUERY, spark)
    assert found.plain is not None
    assert [output.name for output in found.plain] == names


A, B = [Column(0, at) for at in range(3)], [Column(1, at) for at in range(3)]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a.id + b.id AS n", (A[0], B[0])),
        ("a.point.x AS x", (A[2],)),
        ("upper(only) AS loud, 1 AS one", (B[2],)),
        ("a.*, b.id + 1 AS n", (*A, B[0])),
        ("a.* EXCEPT (point), b.id + 1 AS n", (*A[:2], B[0])),
        ("a.* EXCEPT (point.x)", tuple(A)),
        ("struct(a.* EXCEPT (ts)) AS s", (A[0], A[2])),
        ("transform(array(a.id), id -> id + b.id) AS s", (A[0], B[0])),
        ("transform(array(a.id), b -> b + point.x) AS s", (A[0], A[2])),
        ("a.id + 1 AS n, n + b.id AS m", (A[0], B[0])),
        ("current_timestamp AS now", ()),
    ],
)
def test_expressions_name_the_columns_they_read(spark: SparkSession, text: str, columns: tuple[Column, ...]) -> None:
    found = parse_select(text, QUERY, spark)
    assert found.plain is None
    assert found.computed.columns == columns


LIST = "select: only a list of output columns; conditions go into where."
ONE_NAME = "select: `*` would give columns of several streams the same name; write a.*, or name them."
REPLACE = "select: Spark SQL has no REPLACE here; write a.* EXCEPT (x), and the new x as an item of its own."
SUBQUERY = "select: a subquery can't be part of the list; join what it reads as a stream."


@pytest.mark.parametrize(
    ("text", "problem", "underlined"),
    [
        ("a.id, b.idd", "select: Stream b has no column idd; it has id, ts, only.", "b.idd"),
        ("1 +\n b.idd", "select: Stream b has no column idd; it has id, ts, only.", "b.idd"),
        ("'\N{GRINNING FACE}' AS g, b.idd", "select: Stream b has no column idd; it has id, ts, only.", "b.idd"),
        ("id", "select: id is ambiguous; write a.id or b.id.", "id"),
        ("c.id", "select: There is no stream c; choose from a, b.", "c.id"),
        ("a.id, nope", "select: There is no column nope; choose from a.id, a.ts, a.point, b.id, b.ts, b.only.", "nope"),
        ("a.id AS a, a + 1 AS n", None, "a"),
        ("*", ONE_NAME, "*"),
        ("struct(*) AS s", ONE_NAME, "*"),
        ("c.*", "select: There is no stream c.", "c.*"),
        ("b.* EXCEPT (no)", "select: Stream b has no column no; it has id, ts, only.", "b.* EXCEPT (no)"),
        ("b.* EXCEPT (id, ts, only)", "select: EXCEPT leaves no column of b.", "b.* EXCEPT (id, ts, only)"),
        ("a.* REPLACE (1 AS id)", REPLACE, "REPLACE"),
        ("a.id, b.id", "Two output columns are called id; name one with AS.", None),
        ("a.id FROM x", LIST, None),
        ("a.id WHERE a.id > 1", LIST, None),
        ("a.id ORDER BY 1", LIST, None),
        ("a.id as ", "select: a name is missing after AS.", "as"),
        ("a.id, (b.id", "select: this is not a SELECT list.", None),
        ("a.id,\n b.id c d", "select: this is not a SELECT list.", "d"),
        ("a.id, /* open", "select: this is not a SELECT list.", None),
        ("a.id AS i, ", "select: a column is missing after the last comma.", None),
        ("", "select: the list is empty; leave select out for one struct column per stream.", None),
        ("identifier('a.id')", "select: write the name itself in place of IDENTIFIER.", "identifier('a.id')"),
        ("(SELECT 1) AS n", SUBQUERY, "(SELECT 1)"),
        ("a.id IN (SELECT 1) AS n", SUBQUERY, "a.id IN (SELECT 1)"),
        (
            "DISTINCT a.id",
            "select: DISTINCT would apply to each batch separately; apply it to the join's output.",
            "DISTINCT",
        ),
    ],
)
def test_what_is_wrong(spark: SparkSession, text: str, problem: str | None, underlined: str | None) -> None:
    with pytest.raises(SqlError) as caught:
        parse_select(text, QUERY, spark)
    if problem is not None:
        assert caught.value.problem == problem
    if underlined is not None:
        start, end = caught.value.span
        assert text[start:end] == underlined


# -- what Spark computes


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    rows = [(1, datetime(2024, 1, 1), "x", [1, 2], (5, 6))]
    return spark.createDataFrame(rows, "id long, ts timestamp, s string, xs array<int>, p struct<x: int, y: int>")


def make_join(frame: DataFrame, select: str) -> wm.Join:
    streams = [wm.stream("a", frame, time="ts"), wm.stream("b", frame.withColumnRenamed("s", "only"), time="ts")]
    return wm.join(*streams, select=select)


@pytest.fixture
def escaped(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    yield
    spark.conf.unset("spark.sql.parser.escapedStringLiterals")


def output_of(frame: DataFrame, select: str) -> dict[str, Any]:
    (row,) = make_join(frame, select).toDF().collect()
    return dict(row.asDict(recursive=True))


@pytest.mark.parametrize(
    ("text", "wanted"),
    one_in(
        2,
        [
            ("'it''s' AS t, a.id", {"t": "it's", "id": 1}),
            (r"'a\tb' AS t, r'a\tb' AS r", {"t": "a\tb", "r": r"a\tb"}),
            ("upper(only) AS loud, concat(a.s, only) AS both", {"loud": "X", "both": "xx"}),
            ("a.* EXCEPT (ts, xs, p.x), b.id + 1 AS n", {"id": 1, "s": "x", "p": {"y": 6}, "n": 2}),
            ("a.* EXCEPT (ts, xs, p), b.id + 1 AS n", {"id": 1, "s": "x", "n": 2}),
            ("struct(a.* EXCEPT (ts, xs, p), only) AS s", {"s": {"id": 1, "s": "x", "only": "x"}}),
            ("transform(a.xs, x -> x + a.p.x) AS t", {"t": [6, 7]}),
            ("a.id + 1 AS n, n + b.id AS m", {"n": 2, "m": 3}),
            ("a.id + b.id, upper(a.s)", {"(a.id + b.id)": 2, "upper(a.s)": "X"}),
            ("CASE a.s WHEN only THEN 1 WHEN 'y' THEN 2 END AS c", {"c": 1}),
            ("1 AS one -- a comment", {"one": 1}),
        ],
        unpack=True,
    ),
)
def test_spark_computes_what_it_parsed(frame: DataFrame, text: str, wanted: dict[str, Any]) -> None:
    assert output_of(frame, text) == wanted


@pytest.mark.usefixtures("escaped")
def test_escaped_string_literals_are_the_sessions(frame: DataFrame) -> None:
    assert output_of(frame, r"'a\tb' AS t, '\d\\' AS d") == {"t": r"a\tb", "d": r"\d\\"}


@pytest.mark.parametrize(
    ("text", "problem", "underlined"),
    [
        ("count(*) AS n, max(a.id)", "count(*) is an aggregate, which would be computed for each batch", "count(*)"),
        ("upper(only) AS u, 1 + max(b.id)", "max(b.id) is an aggregate", "max(b.id)"),
        ("collect_list(only) AS l", "collect_list(only) is an aggregate", "collect_list(only)"),
        ("row_number() OVER (ORDER BY a.id) AS n", "is a window function", "row_number() OVER (ORDER BY a.id)"),
        ("sum(a.id) OVER (PARTITION BY only) AS n", "is a window function", "sum(a.id) OVER (PARTITION BY only)"),
        ("explode(a.xs) AS x", "turns one row into several; select the column itself, and explode it", "explode(a.xs)"),
        ("stack(2, a.id, b.id) AS x", "turns one row into several", "stack(2, a.id, b.id)"),
        ("window(a.ts, '2 minutes', '1 minute') AS w", "can't be computed row by row", None),
        ("upper(only) AS u, nope(a.id)", "select: [UNRESOLVED_ROUTINE] Cannot resolve routine `nope`", "nope(a.id)"),
        ("only AS u, a.id + a.p", "select: [DATATYPE_MISMATCH", "a.id + a.p"),
        ("a.id + 1 AS n, b.id AS n", "Two output columns are called n; name one with AS.", None),
    ],
)
def test_what_spark_would_not_compute_row_by_row(
    frame: DataFrame, text: str, problem: str, underlined: str | None
) -> None:
    with pytest.raises(SqlError) as caught:
        make_join(frame, text)
    assert problem in caught.value.problem
    if underlined is not None:
        start, end = caught.value.span
        assert text[start:end] == underlined


def test_a_window_of_time_is_a_value_of_each_row(frame: DataFrame) -> None:
    assert list(output_of(frame, "window(a.ts, '1 minute').start AS w")) == ["w"]
