"""SELECT lists: plain columns, expressions, and what is refused."""

import pyarrow as pa
import pytest

from watersmeet.errors import SqlError
from watersmeet.kernel.window import Window
from watersmeet.predicate.model import Column
from watersmeet.query import Output, Query, StreamSpec
from watersmeet.select import parse_select

POINT = pa.struct([("x", pa.int32()), ("y", pa.int32())])
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("point", POINT)])
OTHER = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("only", pa.string())])
QUERY = Query((StreamSpec("a", SCHEMA, 1, Window(), 0), StreamSpec("b", OTHER, 1, Window(), 0)))


def test_plain_columns_are_the_engines_own_work() -> None:
    found = parse_select("b.id AS other, A.ID, only, a.point AS `odd name`", QUERY)
    assert found.plain == (
        Output("other", Column(1, 0)),
        Output("ID", Column(0, 0)),
        Output("only", Column(1, 2)),
        Output("odd name", Column(0, 2)),
    )


def test_a_streams_star() -> None:
    found = parse_select("a.*, b.only", QUERY)
    assert found.plain is not None
    assert [output.name for output in found.plain] == ["id", "ts", "point", "only"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a.id + b.id AS n", (Column(0, 0), Column(1, 0))),
        ("a.point.x AS x", (Column(0, 2),)),
        ("upper(only) AS loud, 1 AS one", (Column(1, 2),)),
        ("a.*, b.id + 1 AS n", (Column(0, 0), Column(0, 1), Column(0, 2), Column(1, 0))),
    ],
)
def test_expressions_name_the_columns_they_read(text: str, columns: tuple[Column, ...]) -> None:
    found = parse_select(text, QUERY)
    assert found.plain is None
    assert found.columns == columns


@pytest.mark.parametrize(
    ("text", "problem", "underlined"),
    [
        ("a.id, b.idd", "select: Stream b has no column idd; it has id, ts, only.", "b.idd"),
        ("id", "select: id is ambiguous; write a.id or b.id.", "id"),
        ("c.id", "select: There is no stream c; there is a, b.", "c.id"),
        ("a.id, nope", "select: There is no column nope; there is a.id, a.ts, a.point, b.id, b.ts, b.only.", "nope"),
        ("*", "select: `*` would give columns of several streams one name; write a.*, or name them.", None),
        ("c.*", "select: There is no stream c.", None),
        ("a.id, b.id", "Two output columns are called id; name one with AS.", None),
        ("a.id FROM x", "select: only a list of output columns; what to join goes into where.", None),
        ("a.id WHERE a.id > 1", "select: only a list of output columns; what to join goes into where.", None),
        ("a.id as ", "select: a name is missing after AS.", "as"),
        ("a.id, (b.id", "select: this is not a SELECT list.", None),
        ("", "select: the list is empty; leave select out for one struct column per stream.", None),
    ],
)
def test_what_is_wrong(text: str, problem: str | None, underlined: str | None) -> None:
    with pytest.raises(SqlError) as caught:
        parse_select(text, QUERY)
    if problem is not None:
        assert caught.value.problem == problem
    if underlined is not None:
        start, end = caught.value.span
        assert text[start:end] == underlined
