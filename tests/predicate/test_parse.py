from decimal import Decimal
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.predicate.rows import STREAMS as NASTY
from watersmeet.errors import SqlError
from watersmeet.predicate.macros import PRELUDE
from watersmeet.predicate.model import Argument, Column, Conjunct, Dialect, PythonPredicate
from watersmeet.predicate.parse import parse_where

A = pa.schema(
    [
        ("x", pa.float64()), ("i", pa.int32()), ("t", pa.int8()), ("s", pa.string()), ("only", pa.string()),
        ("img", pa.binary()), ("xs", pa.list_(pa.int32())), ("d", pa.decimal128(10, 2)), ("wide", pa.decimal128(38, 2)),
        ("ts", pa.timestamp("us", tz="UTC")), ("ntz", pa.timestamp("us")), ("day", pa.date32()), ("flag", pa.bool_()),
        ("point", pa.struct([("x", pa.float64()), ("deep", pa.struct([("y", pa.int32())]))])),
        ("m", pa.map_(pa.string(), pa.int32())), ("two words", pa.int32()),
        ("ms", pa.list_(pa.map_(pa.string(), pa.int8()))),
        ("Dup", pa.int32()), ("dup", pa.int32()), ("clash", pa.struct([("k", pa.int32()), ("K", pa.int32())])),
    ]
)  # fmt: skip
B = pa.schema([("x", pa.float64()), ("i", pa.int32()), ("img", pa.large_binary()), ("s", pa.string())])
STREAMS = [("a", A), ("b", B)]


def pretend(*args: object) -> bool:
    return True


SIMILAR = PythonPredicate("similar", pretend)


def parse(text: str | None, dialect: Dialect | None = None) -> tuple[Conjunct, ...]:
    return parse_where(text, STREAMS, [SIMILAR, PythonPredicate("Same", pretend)], dialect or Dialect())


def one(text: str, dialect: Dialect | None = None) -> Conjunct:
    (conjunct,) = parse(text, dialect)
    return conjunct


def error(text: str, dialect: Dialect | None = None) -> str:
    with pytest.raises(SqlError) as caught:
        parse(text, dialect)
    return str(caught.value)


@pytest.mark.parametrize("text", [None, "", "  ", "-- nothing\n"])
def test_nothing_gives_no_conjuncts(text: str | None) -> None:
    assert parse(text) == ()


def test_conjuncts_come_in_written_order_through_parentheses() -> None:
    text = "a.i = b.i AND (a.x < b.x AND (a.x BETWEEN 1 AND 2 OR b.i = 1)) AND NOT (a.i = 3)"
    assert [conjunct.text for conjunct in parse(text)] == [
        "a.i = b.i",
        "a.x < b.x",
        "a.x BETWEEN 1 AND 2 OR b.i = 1",
        "NOT (a.i = 3)",
    ]


def test_comments_and_lines_are_left_out() -> None:
    assert [conjunct.text for conjunct in parse("a.i = 1 -- one\n AND /* two */ b.i = 2")] == ["a.i = 1", "b.i = 2"]


def test_columns_are_named_by_position() -> None:
    conjunct = one("A.X < b.`x`")
    assert conjunct.sql == "(s0_0 < s1_0)"
    assert conjunct.columns == (Column(0, 0), Column(1, 0))
    assert conjunct.streams == {0, 1}


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("only = 'x'", "(s0_4 = 'x')"),
        ("a.`two words` = 1", "(s0_15 = CAST(1 AS INTEGER))"),
        ("a.point.X > b.x", "(struct_extract_at(s0_13, 1) > s1_0)"),
        ("a.point.deep.y = 1", "(struct_extract_at(struct_extract_at(s0_13, 2), 1) = CAST(1 AS INTEGER))"),
        ("point.x = 1e0", "(struct_extract_at(s0_13, 1) = CAST('1e0' AS DOUBLE))"),
        ("a.only = 'it\\'s'", "(s0_4 = 'it''s')"),
        ('a.only = "it\'s"', "(s0_4 = 'it''s')"),
    ],
)
def test_names_and_strings(text: str, sql: str) -> None:
    assert one(text).sql == sql


def test_a_call_alone_is_a_call() -> None:
    conjunct = one("similar(a.img, b.img)")
    assert conjunct.is_call and conjunct.sql == "p0"
    (call,) = conjunct.calls
    assert (call.name, call.predicate) == ("p0", "similar")
    assert call.arguments == (
        Argument("s0_5", (Column(0, 5),), "a.img"),
        Argument("s1_2", (Column(1, 2),), "b.img"),
    )
    assert conjunct.columns == (Column(0, 5), Column(1, 2))


def test_calls_are_named_by_where_they_stand() -> None:
    first, second = parse("similar(a.img, b.img) AND (NOT same(a.x * 2, 5) OR SIMILAR(a.img, b.img))")
    assert [call.name for call in (*first.calls, *second.calls)] == ["p0", "p31", "p51"]
    assert second.sql == "((NOT p31) OR p51)" and not second.is_call
    assert [argument.text for argument in second.calls[0].arguments] == ["a.x * 2", "5"]
    assert second.calls[0].arguments[1].columns == ()


def test_a_call_gives_no_bounds() -> None:
    assert one("a.x < if(similar(a.img, b.img), b.x, 1)").bounds == ()


def test_exact_names_of_predicates_come_first() -> None:
    predicates = [PythonPredicate("near", pretend), PythonPredicate("NEAR", pretend)]
    (conjunct,) = parse_where("NEAR(a.x, b.x)", STREAMS, predicates, Dialect())
    assert conjunct.calls[0].predicate == "NEAR"
    with pytest.raises(SqlError, match="Near could be near or NEAR"):
        parse_where("Near(a.x, b.x)", STREAMS, predicates, Dialect())


@pytest.mark.parametrize(
    "text",
    [
        "abs(a.x - b.x) < 5",
        "a.t + 5 < b.i",
        "a.x / 2 > 1",
        "a.i % 3 = 0",
        "a.d * 2 > 5",
        "a.s LIKE 'a%'",
        "a.i > 9L * 2",
    ],
)
def test_what_cannot_raise(text: str) -> None:
    assert not one(text).raises


@pytest.mark.parametrize(
    "text",
    ["a.x / b.x > 1", "a.i + b.i > 1", "a.i % b.i = 0", "a.xs[0] = 1", 
     "a.t + a.t > 1", "a.s LIKE b.s",
     "cast(a.x AS int) = 1", "-a.i > 0", "similar(1 / a.x, b.x)", "element_at(a.xs, 1) = 1"],
)  # fmt: skip
def test_what_may_raise(text: str) -> None:
    assert one(text).raises


def test_nothing_raises_without_ansi() -> None:
    assert not one("a.i + b.i > 1 / a.x", Dialect(ansi=False)).raises


def test_integers_meet_doubles_without_the_float_between() -> None:
    """As in Spark, whose optimizer leaves it out; the float of a constant is computed before that."""
    assert "FLOAT" not in str(one("cast(a.i AS float) < b.x").sql)
    assert "FLOAT" in str(one("cast(16777217 AS float) < b.x").sql)
    assert "Spark's optimizer may leave out a float" in error("abs(cast(a.i AS float)) < b.x")
    assert one("cast(a.i AS float) < b.x").bounds == ()


def test_what_is_asked_whether_it_is_null_is_computed() -> None:
    """DuckDB would not compute a sum for that, and so never learn that it overflows."""
    assert "IS NOT DISTINCT FROM" in str(one("(a.i + b.i) IS NULL").sql)
    assert one("(a.i + b.i) IS NULL").raises
    assert one("coalesce(a.i + b.i, 1) IS NOT NULL").sql == "(NOT FALSE)"  # nor does Spark compute this


def test_a_guard_comes_before_what_it_guards() -> None:
    conjunct = one("a.x = 0 OR 1 / a.x > 2")
    connection = duckdb.connect()
    for statement in PRELUDE:
        connection.execute(statement)
    connection.execute("CREATE TABLE t AS SELECT unnest([0.0, 0.25, 2.0, NULL])::DOUBLE AS s0_0")
    assert connection.execute(f"SELECT {conjunct.sql} FROM t").fetchall() == [(True,), (True,), (False,), (None,)]
    assert connection.execute(f"SELECT count(*) FROM t WHERE {conjunct.sql}").fetchall() == [(2,)]


@pytest.mark.parametrize(
    ("text", "value", "pattern", "expected"),
    [
        ("a.s LIKE b.s", "a%b\\", "a\\%_\\\\", True),
        ("a.s LIKE b.s", "a%b\\", "a\\__\\\\", False),
        ("a.s LIKE b.s", "a", None, None),
        ("a.s LIKE b.s", None, "\\", None),
        ("a.s LIKE b.s", "a", "\\", "error"),
        ("a.s LIKE b.s", "a", "\\a", "error"),
        ("a.s NOT LIKE b.s ESCAPE '/'", "%b", "/%_", False),
        ("a.s LIKE b.s ESCAPE '/'", "a", "%/b", "error"),
        ("like(a.s, concat(b.s, '%'))", "日本語", "日_", True),
    ],
)
def test_patterns_that_differ_from_row_to_row(
    text: str, value: str | None, pattern: str | None, expected: object
) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT $1::VARCHAR AS s0_3, $2::VARCHAR AS s1_3", [value, pattern])
    if expected == "error":
        with pytest.raises(duckdb.Error, match="INVALID_FORMAT"):
            connection.execute(f"SELECT {one(text).sql} FROM t").fetchall()
    else:
        assert connection.execute(f"SELECT {one(text).sql} FROM t").fetchall() == [(expected,)]


def test_no_text_of_the_user_reaches_duckdb_but_as_a_string() -> None:
    conjunct = one("a.only = 'x'' OR read_csv(''/etc/passwd'') --'")
    assert "read_csv" not in (conjunct.sql or "").replace("'x OR read_csv(/etc/passwd) --'", "")


@pytest.mark.parametrize(
    "text", ["upper(a.s) = 'SS'", "lower(a.s) = 's'", "levenshtein(a.s, 'b') < 2", "a.s ILIKE 's'"]
)
def test_a_value_on_which_the_engines_differ_is_left_to_spark(text: str) -> None:
    connection = duckdb.connect()
    for statement in PRELUDE:
        connection.execute(statement)
    connection.execute("CREATE TABLE t AS SELECT unnest(['ßΣ', 'plain', NULL]) AS s0_3")
    conjunct = one(text)
    assert not conjunct.exact and not conjunct.raises and not conjunct.bounds
    assert connection.execute(f"SELECT {conjunct.unsure} FROM t").fetchall() == [(True,), (False,), (False,)]


UNDERLINED = [
    ("a.x <", "The expression ends too early.\n  a.x <\n      ^"),
    ("a.x < )", "')' was not expected here.\n  a.x < )\n        ^"),
    ("x = 3", "x is ambiguous; write a.x or b.x.\n  x = 3\n  ^"),
    ("b.y = 2", "Stream b has no column y; it has x, i, img, s.\n  b.y = 2\n  ^^^"),
    ("a.i = 1 AND c.x = 3", "There is no stream c; choose from a, b.\n  a.i = 1 AND c.x = 3\n              ^^^"),
    ("a.x + b.x", "A condition is expected here, not a value of type double.\n  a.x + b.x\n  ^^^^^^^^^"),
    (
        "a.i = 1\nAND lenght(a.s) = 3",
        "The function lenght can't be translated; did you mean length or len or left? "
        "A Python predicate must be listed in predicates=[...].\n  AND lenght(a.s) = 3\n      ^^^^^^^^^^^",
    ),
    (
        "similar(a.x + b.x)",
        "An argument of a Python predicate reads one stream; split this one into two arguments.\n"
        "  similar(a.x + b.x)\n          ^^^^^^^^^",
    ),
    (
        "rand() < 0.5",
        "rand would answer differently from run to run; `where` must be deterministic.\n  rand() < 0.5\n  ^^^^^^",
    ),
    ("sum(a.x) > 1", "sum is an aggregate; `where` looks at one combination of rows.\n  sum(a.x) > 1\n  ^^^^^^^^"),
    ("a.flag = b.x", "boolean and double can't be compared; cast one of them.\n  a.flag = b.x\n  ^^^^^^^^^^^^"),
    ("a.day > 'soon'", "'soon' is not a date; write it as 2026-01-31.\n  a.day > 'soon'\n  ^^^^^^^^^^^^^^"),
]


@pytest.mark.parametrize(("text", "message"), UNDERLINED)
def test_errors_underline_the_span(text: str, message: str) -> None:
    assert error(text) == message


REFUSED = [
    ("a.x = 'abc", "ends inside a string"),
    ("a.x = 1 ORDER BY 3", "'ORDER BY' was not expected"),
    ("a.x = 1; DROP TABLE x", "without semicolons"),
    ("SELECT 1", "can't contain a subquery"),
    ("DROP TABLE x", "not a statement"),
    ("a.x = (SELECT 1)", "can't contain a subquery"),
    ("a.x IN (SELECT 1)", "a subquery can't be translated"),
    ("EXISTS (SELECT 1)", "can't contain a subquery"),
    ("sum(a.x) OVER () = 3", "can't use window functions"),
    ("exists(a.xs, v -> v > 1)", "Lambdas can't be translated|can't contain a subquery"),
    ("current_date = a.day", "deterministic"),
    ("current_timestamp() = a.ts", "deterministic"),
    ("a.x = ?", "Parameters are not filled in"),
    ("a.m = 1", "type map<string,int> can't be used"),
    ("a.ms[0] = 1", "can't be used in `where`"),
    ("a.dup = 1", "differ only in case"),
    ("a.clash.k = 1", "The field k is ambiguous"),
    ("a.point.z = 1", "The field z is not there; the struct has x, deep"),
    ("a.x.y = 1", "would be a field of a struct"),
    ("nothing = 1", "There is no column nothing; choose from"),
    ("a.x = b.x = TRUE", "needs parentheses"),
    ("a.x = b.x IN (1)", "needs parentheses"),
    ("a.i & 1 | 2 = 1", "need parentheses"),
    ("a.x BETWEEN SYMMETRIC 1 AND 2", "can't be translated"),
    ("a.i IS 5", "was not expected|IS is followed by"),
    ("a.s ILIKE b.s", "pattern of ILIKE must be a string literal"),
    ("a.s LIKE b.x", "string is expected here, not double"),
    ("a.s LIKE 'a\\\\b'", "may only precede"),
    ("a.s LIKE 'a' ESCAPE 'xy'", "a single character"),
    ("a.s LIKE b.s ESCAPE 'é'", "a single character"),
    ("a.s = 'a' ESCAPE '/'", "was not expected|ESCAPE follows LIKE"),
    ("a.s ILIKE 'é'", "beyond ASCII"),
    ("a.s RLIKE '(?i)a'", "RLIKE can't be translated from"),
    ("a.s RLIKE 'a++'", "RLIKE can't be translated from"),
    ("a.s RLIKE '(a'", "RLIKE: "),
    ("a.s = 'a' || 5", "string is expected here, not int"),
    ("a.x > 1234567890123456789012345678901234567890", "at most 38 digits"),
    ("a.wide * a.wide > 1", "needs more than 38 digits"),
    ("a.wide % 1.23456 > 1", "needs more than 38 digits"),
    ("a.wide / a.d > 1", "needs more than 38 digits"),
    ("a.d / cast(a.d AS decimal(15, 2)) > 1", "too many digits|more than 38 digits"),
    ("a.d div a.d = 1", "div of decimals"),
    ("pmod(a.d, 2) = 1", "pmod of decimals"),
    ("round(a.wide, 2) > 1", "more than 38 digits"),
    ("round(a.x, 2) > 1", "decimals only"),
    ("round(a.x, -1) > 1", "at least 0"),
    ("-a.flag", "A minus needs a number"),
    ("abs(a.flag) = 1", "abs takes a number"),
    ("a.flag + 1 > 1", "is not defined for"),
    ("a.x & 1 = 1", "Bit operations take integers"),
    ("~a.x = 1", "Bit operations take integers"),
    ("cast(a.x AS decimal(3, 1)) = 1", "A cast from double to decimal"),
    ("cast(a.x AS decimal(39, 1)) = 1", "at most 38 digits"),
    ("cast(a.x AS array<int>) = 1", "A cast to array"),
    ("cast(a.s AS decimal(3, 1)) = 1", "string column to decimal"),
    ("cast('x' AS decimal(3, 1)) = a.d", "is not a decimal"),
    ("cast('1234' AS decimal(3, 1)) = a.d", "does not fit"),
    ("cast(a.s AS timestamp) = a.ts", "string column to timestamp"),
    ("a.ts = 'noon'", "is not a timestamp"),
    ("a.ts = TIMESTAMP '2024-13-01 00:00:00'", "is not a timestamp"),
    ("a.ntz = TIMESTAMP_NTZ '2024-01-01 00:00:00Z'", "has a time zone"),
    ("a.ts + INTERVAL 5 FORTNIGHTS > a.ts", "An interval is a number and a unit|was not expected"),
    ("a.ts + INTERVAL '1-2' YEAR TO MONTH > a.ts", "An interval is a number and a unit"),
    ("a.day + INTERVAL 5 HOURS > a.day", "whole days"),
    ("a.ts + (a.ts - a.ts) > a.ts", "Only a literal interval"),
    ("extract(week FROM a.ts) = 1", "extract"),
    ("coalesce(a.i, a.flag) = 1", "must be of one type, not int, boolean"),
    ("coalesce() = 1", "takes at least 1 argument"),
    ("length(a.s, 1) = 1", "length takes 1 argument here, not 2"),
    ("if(a.i, 1, 2) = 1", "A condition is expected here"),
    ("nullif(a.xs, a.xs) IS NULL", "can't be compared"),
    ("greatest(a.xs, a.xs) IS NULL", "has no order"),
    ("size(a.x) = 1", "An array is expected"),
    ("a.xs['a'] = 1", "index is an integer"),
    ("a.xs[0, 1] = 1", "one index|was not expected"),
    ("array_contains(a.xs, 'a')", "An element of array<int> is expected"),
    ("array_max(a.ms) IS NULL", "can't be used|has no order"),
    ("concat_ws(',', cast(a.x / b.x AS string)) = ''", "A cast from double to string"),
    ("concat_ws(',', cast(a.i + 1 AS string)) = ''", "concat_ws of what may raise"),
    ("1 IN (a.s, 1)", "A constant IN a list"),
    ("a.x = 0 OR similar(1 / a.x, b.x)", "can't be guarded by a condition"),
    ("9223372036854775808 > a.i", "beyond the range"),
    ("a.i IN ()", "was not expected|IN is followed by"),
    ("a.s -> 'x' = 1", "can't be translated|was not expected|Lambdas"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_cannot_be_carried_over_is_refused(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        parse(text)
    start, end = caught.value.span
    assert 0 <= start < end <= len(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cast(a.x AS int) = 1", "with spark.sql.ansi.enabled off"),
        ("a.s = 1", "string and int can't be compared"),
        ("cast(cast(a.d AS decimal(20, 9)) AS string) = ''", "as text can't be translated"),
    ],
)
def test_what_is_refused_without_ansi(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse(text, Dialect(ansi=False))


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(SqlError, match="The time zone Nowhere/Land is not known"):
        parse("a.ts > TIMESTAMP '2024-01-01 00:00:00'", Dialect("Nowhere/Land"))


def test_types_that_where_may_not_use_matter_only_if_used() -> None:
    assert parse_where("a.i = b.i", NASTY, [], Dialect())


def test_products_of_decimals_have_all_their_digits() -> None:
    sql = one("a.d * a.d > 0").sql
    connection = duckdb.connect()
    connection.register("t", pa.table({"s0_7": pa.array([Decimal("99999999.99")], pa.decimal128(10, 2))}))
    assert connection.execute(f"SELECT {sql} FROM t").fetchall() == [(True,)]


def test_a_condition_is_no_number() -> None:
    assert "+ is not defined for boolean and decimal(1,1)" in error("a.flag + 0.5 > 1")


@pytest.mark.parametrize("text", ["similar()", "similar() AND a.x > 1", "NOT similar( )"])
def test_a_predicate_without_arguments_is_refused(text: str) -> None:
    assert "similar() has no arguments; pass it the columns to look at." in error(text)


def near(x: float, ys: list[float], within: float = 3) -> list[bool]:
    return [abs(x - y) < within for y in ys]


@pytest.mark.parametrize(("arguments", "count"), [("a.x", "1 argument"), ("a.x, b.x, 1, 2", "4 arguments")])
def test_a_predicate_called_with_too_few_or_too_many_arguments(arguments: str, count: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_where(f"near({arguments})", STREAMS, [PythonPredicate("near", near)], Dialect())
    assert caught.value.problem == f"near(x, ys, within) can't be called with {count}."


def test_functions_may_take_any_number_of_arguments_or_not_tell() -> None:
    takes: list[Any] = [
        near,
        lambda *values: True,
        partial(near, within=5),
        partial(pretend),
        min,
        np.isclose,
        np.less,
        dict.get,
    ]
    for function in takes:
        assert parse_where("f(a.x, b.x)", STREAMS, [PythonPredicate("f", function)], Dialect())
