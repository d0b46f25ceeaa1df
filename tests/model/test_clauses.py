"""LEFT JOIN and EXISTS in a join as text."""

import pytest

from watersmeet.errors import SqlError
from watersmeet.model.statement import Statement, parse_statement

STREAMS = dict.fromkeys(["orders", "payments", "refunds"])
MATCH, BACK = "payments.id = orders.id", "refunds.id = orders.id"


def parsed(rest: str) -> Statement:
    return parse_statement(f"SELECT orders.id FROM orders [RANGE 10 MINUTES] {rest}", STREAMS)


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("LEFT JOIN", "left"),
        ("left outer join", "left"),
        ("LEFT SEMI JOIN", "semi"),
        ("LEFT ANTI JOIN", "anti"),
    ],
)
def test_left_joins(words: str, how: str) -> None:
    found = parsed(f"{words} payments [RANGE 5 MINUTES] ON {MATCH} WHERE orders.x > 1")
    assert [stream.name for stream in found.streams] == ["orders", "payments"]
    assert found.streams[1].window.span == 300_000_000
    assert found.optional == {"payments": (how, MATCH)}
    assert found.where == "orders.x > 1"
    assert found.condition == f"(orders.x > 1) AND ({MATCH})"


def test_several_left_joins() -> None:
    found = parsed(f"LEFT JOIN payments ON {MATCH} AND left(orders.k, 2) = payments.k LEFT ANTI JOIN refunds ON {BACK}")
    assert found.optional == {
        "payments": ("left", f"{MATCH} AND left(orders.k, 2) = payments.k"),
        "refunds": ("anti", BACK),
    }
    assert found.where is None


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (f"NOT EXISTS (SELECT 1 FROM payments WHERE {MATCH})", None),
        (f"orders.x BETWEEN 1 AND 2 AND NOT EXISTS (SELECT * FROM payments WHERE {MATCH})", "orders.x BETWEEN 1 AND 2"),
        (f"NOT EXISTS (SELECT 1 FROM payments WHERE {MATCH}) AND orders.x > 1", "orders.x > 1"),
        (
            f"orders.x > 1 AND NOT EXISTS (SELECT 1 FROM payments WHERE {MATCH}) AND (orders.y OR orders.z)",
            "orders.x > 1 AND (orders.y OR orders.z)",
        ),
    ],
)
def test_not_exists(where: str, left: str | None) -> None:
    found = parsed(f"WHERE {where}")
    assert found.optional == {"payments": ("anti", MATCH)}
    assert found.where == left


@pytest.mark.parametrize("asked", ["1", "*", "NULL", "'x'", "payments.id", "`id`"])
def test_what_exists_selects_does_not_matter(asked: str) -> None:
    found = parsed(f"WHERE EXISTS (SELECT {asked} FROM payments WHERE {MATCH})")
    assert found.optional == {"payments": ("semi", MATCH)}


def test_exists_and_not_exists() -> None:
    found = parsed(
        f"WHERE EXISTS (SELECT 1 FROM payments [RANGE 1 MINUTE] WHERE {MATCH} AND payments.x IN (1, 2)) "
        f"AND NOT EXISTS (SELECT 1 FROM refunds WHERE {BACK})"
    )
    assert found.optional == {"payments": ("semi", f"{MATCH} AND payments.x IN (1, 2)"), "refunds": ("anti", BACK)}
    assert found.where is None
    assert found.condition == f"({MATCH} AND payments.x IN (1, 2)) AND ({BACK})"


def test_exists_of_an_array_is_a_function() -> None:
    found = parsed("WHERE exists(orders.tags, tag -> tag = 'x')")
    assert found.optional == {}
    assert found.where == found.condition == "exists(orders.tags, tag -> tag = 'x')"


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("LEFT JOIN payments", "followed by a stream, its window, ON and a condition"),
        ("LEFT JOIN payments ON", "followed by a stream, its window, ON and a condition"),
        (f"LEFT JOIN ON {MATCH}", "followed by a stream, its window, ON and a condition"),
        (f"LEFT JOIN payments ON {MATCH}, refunds", "come first, before LEFT JOIN"),
        (f"RIGHT JOIN payments ON {MATCH}", "optional streams follow with LEFT"),
        (f"JOIN payments ON {MATCH}", "separate the streams by commas"),
        (
            f"WHERE EXISTS (SELECT 1 FROM payments WHERE {MATCH}) OR orders.x > 1",
            "one of the conditions that AND joins",
        ),
        (f"WHERE orders.x = EXISTS (SELECT 1 FROM payments WHERE {MATCH})", "one of the conditions that AND joins"),
        (f"WHERE EXISTS (SELECT 1 FROM payments, refunds WHERE {MATCH})", "takes one stream"),
        ("WHERE EXISTS (SELECT 1 FROM payments)", "takes one stream"),
        *(
            (f"WHERE EXISTS (SELECT {asked} FROM payments WHERE {MATCH})", "asks only whether there is a row")
            for asked in ("count(*)", "1 +", "", "payments.", "max(payments.id)", "1, 2", "()")
        ),
        ("WHERE EXISTS (SELECT 1 FROM payments WHERE)", "takes one stream"),
        ("LEFT JOIN pay ON pay.id = orders.id", "There is no stream pay"),
    ],
)
def test_what_is_no_optional_stream_is_refused(rest: str, problem: str) -> None:
    with pytest.raises(SqlError, match=problem):
        parsed(rest)


def test_a_left_join_needs_a_stream_before_it() -> None:
    with pytest.raises(SqlError, match="no stream before LEFT JOIN"):
        parse_statement(f"SELECT payments.id FROM LEFT JOIN payments ON {MATCH}", STREAMS)
