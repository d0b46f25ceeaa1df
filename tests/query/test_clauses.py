"""Joins and subqueries in a join as text."""

import pytest

from watersmeet.errors import SqlError
from watersmeet.query.statement import Statement, parse_statement

STREAMS = dict.fromkeys(["orders", "payments", "refunds"])
MATCH, BACK = "payments.id = orders.id", "refunds.id = orders.id"


def parse(rest: str) -> Statement:
    return parse_statement(f"SELECT orders.id FROM orders [RANGE 10 MINUTES] {rest}", STREAMS)


def joins(statement: Statement) -> list[tuple[str, str, str]]:
    """Return what is joined, those that subqueries ask last."""
    listed = [joined for relation in statement.relations for joined in relation.joins]
    return [(joined.kind, joined.stream.name, joined.on) for joined in (*listed, *statement.subqueries)]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("JOIN", "inner"),
        ("Inner Join", "inner"),
        ("LEFT JOIN", "left"),
        ("left outer join", "left"),
        ("RIGHT JOIN", "right"),
        ("RIGHT OUTER JOIN", "right"),
        ("FULL JOIN", "full"),
        ("FULL OUTER JOIN", "full"),
        ("LEFT SEMI JOIN", "semi"),
        ("SEMI JOIN", "semi"),
        ("LEFT ANTI JOIN", "anti"),
        ("ANTI JOIN", "anti"),
        ("ASOF JOIN", "asof"),
        ("asof left join", "asof left"),
    ],
)
def test_joins(words: str, kind: str) -> None:
    statement = parse(f"{words} payments [RANGE 5 MINUTES] ON {MATCH} WHERE orders.x > 1")
    assert [stream.name for stream in statement.streams] == ["orders", "payments"]
    assert statement.streams[1].window.span == 300_000_000
    assert joins(statement) == [(kind, "payments", MATCH)]
    assert statement.where == "orders.x > 1"


def test_joins_stand_in_any_order_and_among_commas() -> None:
    statement = parse(
        "JOIN payments p ON p.id = orders.id AND left(orders.k, 2) = p.k, payments [ROWS 5], refunds r "
        "CROSS JOIN refunds LEFT ANTI JOIN orders AS o ON o.`join` = r.left"
    )
    assert [relation.first.name for relation in statement.relations] == ["orders", "payments", "r"]
    assert joins(statement) == [
        ("inner", "p", "p.id = orders.id AND left(orders.k, 2) = p.k"),
        ("inner", "refunds", ""),
        ("anti", "o", "o.`join` = r.left"),
    ]
    assert statement.where is None


def test_using() -> None:
    (joined,) = parse("FULL JOIN payments [ROWS 5] USING (id, `odd name`)").relations[0].joins
    assert (joined.kind, joined.using, joined.on) == ("full", ("id", "odd name"), "")


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (f"NOT EXISTS (SELECT 1 FROM payments WHERE {MATCH})", None),
        (f"orders.x BETWEEN 1 AND 2 AND NOT EXISTS (SELECT * FROM payments WHERE {MATCH})", "orders.x BETWEEN 1 AND 2"),
        (f"NOT EXISTS (SELECT 1 FROM payments WHERE {MATCH}) AND orders.x > 1", "orders.x > 1"),
        (
            f"CASE WHEN orders.x AND orders.y THEN 1 END = 1 AND NOT EXISTS (SELECT 1 FROM payments WHERE {MATCH})",
            "CASE WHEN orders.x AND orders.y THEN 1 END = 1",
        ),
        (
            f"orders.x > 1 AND NOT EXISTS (SELECT 1 FROM payments WHERE {MATCH}) AND (orders.y OR orders.z)",
            "orders.x > 1 AND (orders.y OR orders.z)",
        ),
    ],
)
def test_not_exists(where: str, left: str | None) -> None:
    statement = parse(f"WHERE {where}")
    assert joins(statement) == [("anti", "payments", MATCH)]
    assert statement.where == left


@pytest.mark.parametrize("item", ["1", "*", "NULL", "'x'", "payments.id", "`id`"])
def test_what_exists_selects_does_not_matter(item: str) -> None:
    assert joins(parse(f"WHERE EXISTS (SELECT {item} FROM payments WHERE {MATCH})")) == [("semi", "payments", MATCH)]


def test_exists_needs_no_condition() -> None:
    assert joins(parse("WHERE EXISTS (SELECT 1 FROM payments [ROWS 5])")) == [("semi", "payments", "")]


def test_exists_and_not_exists() -> None:
    statement = parse(
        f"WHERE EXISTS (SELECT 1 FROM payments [RANGE 1 MINUTE] WHERE {MATCH} AND payments.x IN (1, 2)) "
        f"AND NOT EXISTS (SELECT 1 FROM refunds WHERE {BACK})"
    )
    assert joins(statement) == [("semi", "payments", f"{MATCH} AND payments.x IN (1, 2)"), ("anti", "refunds", BACK)]
    assert statement.where is None


def test_in() -> None:
    """[!] NOT IN is only TRUE if nothing that is compared is NULL."""
    statement = parse("WHERE orders.x IN (SELECT id FROM payments p) AND orders.y > 2")
    assert joins(statement) == [("semi", "p", "`p`.id = (orders.x)")]
    assert statement.where == "orders.y > 2"
    statement = parse("WHERE orders.x + 1 NOT IN (SELECT r.id FROM refunds r [ROWS 5] WHERE r.y = 1)")
    same = "r.id = (orders.x + 1) OR r.id IS NULL OR (orders.x + 1) IS NULL"
    assert joins(statement) == [("anti", "r", f"({same}) AND (r.y = 1)")]


def test_not_before_the_operand_denies_in() -> None:
    assert joins(parse("WHERE NOT orders.x IN (SELECT id FROM payments)"))[0][0] == "anti"
    assert joins(parse("WHERE NOT orders.x NOT IN (SELECT id FROM payments)"))[0][0] == "semi"


def test_distinct_from_begins_no_clause() -> None:
    statement = parse(
        "LEFT JOIN payments ON payments.id IS NOT DISTINCT FROM orders.id WHERE orders.x IS DISTINCT FROM 1 AND EXISTS "
        "(SELECT 1 FROM refunds WHERE refunds.id IS DISTINCT FROM orders.id)"
    )
    assert joins(statement)[0][2] == "payments.id IS NOT DISTINCT FROM orders.id"
    assert joins(statement)[1][2] == "refunds.id IS DISTINCT FROM orders.id"
    assert statement.where == "orders.x IS DISTINCT FROM 1"


def test_exists_of_an_array_is_a_function() -> None:
    statement = parse("WHERE exists(orders.tags, tag -> tag = 'x')")
    assert joins(statement) == []
    assert statement.where == "exists(orders.tags, tag -> tag = 'x')"


APART = "must be one of the conditions that AND joins, and not in parentheses"
ONE = "asks one stream"


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("LEFT JOIN payments", "followed by a stream, its window, ON and a condition"),
        ("LEFT JOIN payments ON", "followed by a stream, its window, ON and a condition"),
        (f"LEFT JOIN ON {MATCH}", "followed by a stream, its window, ON and a condition"),
        ("JOIN", "followed by a stream"),
        (f"WHERE EXISTS (SELECT 1 FROM payments WHERE {MATCH}) OR orders.x > 1", APART),
        (f"WHERE (EXISTS (SELECT 1 FROM payments WHERE {MATCH})) AND orders.x > 1", APART),
        (f"WHERE NOT (EXISTS (SELECT 1 FROM payments WHERE {MATCH}))", APART),
        (f"WHERE orders.x = EXISTS (SELECT 1 FROM payments WHERE {MATCH})", APART),
        ("WHERE (orders.x IN (SELECT id FROM payments))", APART),
        ("WHERE orders.x IN (SELECT id FROM payments) IS NULL", APART),
        ("WHERE IN (SELECT id FROM payments)", APART),
        ("WHERE orders.y = 1 OR orders.x IN (SELECT id FROM payments)", APART),
        ("JOIN (payments JOIN refunds ON TRUE) ON TRUE", "one after the other, without parentheses"),
        (f"WHERE EXISTS (SELECT 1 FROM payments, refunds WHERE {MATCH})", ONE),
        (f"WHERE EXISTS (SELECT 1 FROM payments JOIN refunds ON {MATCH})", ONE),
        ("WHERE orders.x IN (SELECT 1)", ONE),
        *(
            (f"WHERE EXISTS (SELECT {item} FROM payments WHERE {MATCH})", "asks only whether there is a row")
            for item in ("count(*)", "1 +", "", "payments.", "max(payments.id)", "1, 2", "()")
        ),
        *(
            (f"WHERE orders.x IN (SELECT {item} FROM payments)", "selects one column of its stream")
            for item in ("1", "max(id)", "id, x", "*", "'x'", "")
        ),
        ("WHERE EXISTS (SELECT 1 FROM payments WHERE)", ONE),
        ("LEFT JOIN pay ON pay.id = orders.id", "There is no stream pay"),
    ],
)
def test_what_is_no_join_is_refused(rest: str, problem: str) -> None:
    with pytest.raises(SqlError, match=problem):
        parse(rest)


def test_a_join_needs_a_stream_before_it() -> None:
    with pytest.raises(SqlError, match="no stream before LEFT JOIN"):
        parse_statement(f"SELECT payments.id FROM LEFT JOIN payments ON {MATCH}", STREAMS)
