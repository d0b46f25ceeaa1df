"""Joins as text."""

from decimal import Decimal

import pytest

import watersmeet as wm
from watersmeet.errors import SqlError
from watersmeet.query.statement import SourceStream, parse_statement
from watersmeet.query.windows import Count, Hopping, Sliding, Window

AB = {"a": 1, "b": 2}
SECOND = 1_000_000


def test_every_window() -> None:
    text = """
        select a.id, b.id AS other
        from a [RANGE 10 SECONDS], b [Range 1 minute Slide 20 seconds WATTR at], c [rows 100], d, e [ROWS 5 WATTR seen]
        where a.x < b.y AND a.s[0] = 'FROM here, WHERE'
    """
    statement = parse_statement(text, dict.fromkeys("abcde"))
    assert statement.select == "a.id, b.id AS other"
    assert statement.where == "a.x < b.y AND a.s[0] = 'FROM here, WHERE'"
    assert statement.streams == (
        SourceStream("a", Sliding(10 * SECOND), None),
        SourceStream("b", Hopping(60 * SECOND, 20 * SECOND), "at"),
        SourceStream("c", Count(100), None),
        SourceStream("d", Window(), None),
        SourceStream("e", Count(5), "seen"),
    )


def test_windows_that_begin_at_regular_times() -> None:
    text = """SELECT * FROM a [RANGE 10 MINUTES TUMBLING], b [RANGE 10 MINUTES TUMBLING WATTR closed] AS closed,
        c [RANGE 1 MINUTE SLIDE 20 SECONDS CLOSED left], d [RANGE 1 MINUTE SLIDE 20 SECONDS closed RIGHT] tumbling"""
    statement = parse_statement(text, dict.fromkeys("abcd"))
    tumbling, size, step = Hopping(600 * SECOND, 600 * SECOND, "left"), 60 * SECOND, 20 * SECOND
    assert [(stream.name, stream.window, stream.time) for stream in statement.streams] == [
        ("a", tumbling, None),
        ("closed", tumbling, "closed"),
        ("c", Hopping(size, step, "left"), None),
        ("tumbling", Hopping(size, step), None),
    ]


@pytest.mark.parametrize(
    "window",
    [
        "RANGE 1 MINUTE TUMBLING 2 MINUTES",
        "RANGE 1 MINUTE SLIDE 20 SECONDS TUMBLING",
        "RANGE 1 MINUTE TUMBLING CLOSED LEFT",
        "RANGE 1 MINUTE CLOSED LEFT",
        "RANGE 1 MINUTE SLIDE 20 SECONDS CLOSED BOTH",
        "ROWS 5 TUMBLING",
    ],
)
def test_words_of_windows_that_do_not_go_together(window: str) -> None:
    with pytest.raises(SqlError, match="A window is "):
        parse_statement(f"SELECT * FROM a [{window}], b", dict.fromkeys("ab"))


def test_every_constraint() -> None:
    text = """SELECT * FROM
        a [PUNCTUATED BY is_end ON auction, KEY (id), ordered by seq slack 100, ORDERED BY t2 DESC SLACK 10 SECONDS],
        b [RANGE 10 SECONDS WATTR at, CLUSTERED BY zone SLACK 2, CLUSTERED BY `odd, name`, ORDERED BY p ASC SLACK 1.5],
        c [FOREIGN  KEY (auction) REFERENCES a (id), KEY x, KEY (x, `end`), WATTR seen],
        d [PUNCTUATED BY end ON (x, y = z, seq BETWEEN lo AND hi) AT WATERMARK, ROWS 5, PUNCTUATED BY f ON y AT BATCH]
    """
    a, b, c, d = parse_statement(text, dict.fromkeys("abcd")).streams
    assert a == SourceStream(
        "a",
        Window(),
        None,
        (wm.key("id"), wm.ordered("seq", 100), wm.ordered("t2", "10 seconds", falling=True)),
        (wm.punctuations(flag="is_end", on="auction"),),
    )
    clusters = (wm.clustered("zone", 2), wm.clustered("odd, name"), wm.ordered("p", Decimal("1.5")))
    assert b == SourceStream("b", Sliding(10 * SECOND), "at", clusters)
    keys = (wm.foreign_key("auction", "a.id"), wm.key("x"), wm.key("x", "end"))
    assert c == SourceStream("c", Window(), "seen", keys)
    on = {"x": "x", "y": "z", "seq": wm.between("lo", "hi")}
    ends = wm.punctuations(flag="end", on=on, effect="watermark"), wm.punctuations(flag="f", on="y")
    assert d == SourceStream("d", Count(5), None, (), ends)


def test_names_of_streams_are_the_same_in_any_case() -> None:
    statement = parse_statement("SELECT A.x FROM A [ROWS 5] LEFT JOIN Pay ON pay.x = A.x", {"a": 1, "pay": 2})
    assert [stream.name for stream in statement.streams] == ["a", "pay"]
    assert [s.name for s in parse_statement("SELECT 1 FROM b, A", {"a": 1, "A": 2, "b": 3}).streams] == ["b", "A"]
    with pytest.raises(SqlError, match="There is no stream orDers; choose from Orders, orders"):
        parse_statement("SELECT 1 FROM orDers", {"Orders": 1, "orders": 2})


def test_an_alias_stands_before_the_window_or_behind_it() -> None:
    text = "SELECT 1 FROM a [ROWS 5] AS o, A p [ROWS 5], b AS q [ROWS 5], b [ROWS 5] r, b s, b AS `rows`, c"
    streams = parse_statement(text, dict.fromkeys("abc")).streams
    assert [(stream.name, stream.key) for stream in streams] == list(
        zip([*"opqrs", "rows", "c"], "aabbbbc", strict=True)
    )
    assert [stream.window for stream in streams] == [Count(5)] * 4 + [Window()] * 3


def test_optional_streams_have_aliases() -> None:
    text = "SELECT 1 FROM a LEFT JOIN b [ROWS 5] AS o ON o.x = a.x WHERE NOT EXISTS (SELECT 1 FROM b p WHERE p.x = a.x)"
    statement = parse_statement(text, AB)
    joined = [*statement.relations[0].joins, *statement.subqueries]
    assert [(j.kind, j.stream.name, j.on) for j in joined] == [("left", "o", "o.x = a.x"), ("anti", "p", "p.x = a.x")]
    assert [stream.key for stream in statement.streams] == ["a", "b", "b"]


def test_star_is_one_struct_a_stream() -> None:
    statement = parse_statement("SELECT * FROM a, b", AB)
    assert statement.select is None and statement.where is None


def test_clauses_inside_brackets_and_quotes_are_not_clauses() -> None:
    statement = parse_statement("SELECT (a.x), 'where' AS `from` FROM a, b WHERE (a.x IN (1, 2))", AB)
    assert statement.select == "(a.x), 'where' AS `from`"
    assert statement.where == "(a.x IN (1, 2))"


def test_columns_may_be_named_like_clauses() -> None:
    where = "a.union < left.group AND offset = 1 AND a.x > limit"
    statement = parse_statement(
        f"SELECT a.limit, a.* EXCEPT (left) FROM a [ROWS 5], left WHERE {where};", {"a": 1, "left": 2}
    )
    assert statement.where == where
    assert [stream.name for stream in statement.streams] == ["a", "left"]


ONE_PART = "{} is not part of a join as text: {}."
SINGLE, FOUND = (
    "a join returns individual results; group its output",
    "results arrive as they are found; sort the output",
)
ONE, ALL = "a statement is a single join; combine the outputs", "a join returns all results; limit its output"


@pytest.mark.parametrize(
    ("rest", "problem", "underlined"),
    [
        ("GROUP BY a.x", ONE_PART.format("GROUP BY", SINGLE), "GROUP BY"),
        ("having a.x", ONE_PART.format("HAVING", SINGLE), "having"),
        ("ORDER   BY a.x", ONE_PART.format("ORDER BY", FOUND), "ORDER   BY"),
        ("LIMIT 3", ONE_PART.format("LIMIT", ALL), "LIMIT"),
        ("UNION ALL SELECT 1", ONE_PART.format("UNION", ONE), "UNION"),
        ("EXCEPT SELECT 1", ONE_PART.format("EXCEPT", ONE), "EXCEPT"),
    ],
)
@pytest.mark.parametrize("before", ["SELECT * FROM a, b", "SELECT * FROM a, b [ROWS 5] WHERE a.x = b.x"])
def test_clauses_that_a_join_has_not(before: str, rest: str, problem: str, underlined: str) -> None:
    test_what_is_wrong_is_underlined(f"{before} {rest}", problem, underlined)


CHOICES = (
    "choose from KEY (id); ORDERED BY seq [DESC] [SLACK 100]; CLUSTERED BY zone [SLACK 2]; "
    "FOREIGN KEY (auction) REFERENCES auctions (id); PUNCTUATED BY is_end ON auction [AT WATERMARK]"
)
WINDOW = (
    "A window is [RANGE 10 SECONDS], [RANGE 10 MINUTES TUMBLING], [RANGE 1 MINUTE SLIDE 20 SECONDS [CLOSED LEFT]] or "
    "[ROWS 100], optionally with WATTR column; constraints may follow, each after a comma, such as "
    "[ROWS 100, KEY (id)]."
)

NO_ALIAS = "AS is followed by a name, as in orders [RANGE 10 SECONDS] AS o."
TWO = "{} has two aliases, one and two; leave one of them out."
CALLED = "Two streams are called {}; give one an alias of its own, as in {} AS other."


@pytest.mark.parametrize(
    ("text", "problem", "underlined"),
    [
        ("SELECT * FROM a, bb", "There is no stream bb; choose from b.", "bb"),
        ("SELECT * FROM A, BB", "There is no stream BB; choose from a, b.", "BB"),
        ("SELECT * FROM a, zzz", "There is no stream zzz; choose from a, b.", "zzz"),
        ("FROM a SELECT *", "FROM was not expected here.", "FROM"),
        ("SELECT * WHERE a.x = 1", "WHERE was not expected here.", "WHERE"),
        ("SELECT * FROM a, b WHERE a.x = 1 WHERE 2", "WHERE was not expected here.", "WHERE"),
        ("a.x < b.x", "A join as text begins with SELECT.", "a"),
        ("SELECT FROM a, b", "There is no SELECT list; write SELECT .. FROM a [RANGE ..], b [RANGE ..] WHERE ..", None),
        ("SELECT *", "There is no FROM list; write SELECT .. FROM a [RANGE ..], b [RANGE ..] WHERE ..", None),
        ("", "There is no SELECT list; write SELECT .. FROM a [RANGE ..], b [RANGE ..] WHERE ..", None),
        ("SELECT * FROM a, b WHERE", "There is no condition after WHERE.", "WHERE"),
        ("SELECT * FROM a,, b", "A stream is missing between two commas.", "a,, b"),
        (
            "SELECT * FROM a [RANGE soon], b",
            "RANGE: 'soon' is not a duration; write it like '10 seconds', '500 ms' or '1 hour 30 minutes'.",
            "[RANGE soon]",
        ),
        (
            "SELECT * FROM a [RANGE 0 SECONDS], b",
            "RANGE: '0 SECONDS' is too short; it must be at least 1 microsecond.",
            "[RANGE 0 SECONDS]",
        ),
        ("SELECT * FROM a [ROWS 0], b", "A count window holds a whole number of rows, at least 1; got 0.", "[ROWS 0]"),
        ("SELECT * FROM a [ROWS many], b", WINDOW, "[ROWS many]"),
        ("SELECT * FROM a [SLIDE 5 SECONDS], b", WINDOW, "[SLIDE 5 SECONDS]"),
        ("SELECT * FROM a [10 SECONDS], b", WINDOW, "[10 SECONDS]"),
        ("SELECT * FROM a RANGE 10 SECONDS, b", WINDOW, "RANGE 10 SECONDS"),
        (
            "SELECT * FROM a NATURAL JOIN b",
            "NATURAL JOIN can't be used here; name the columns instead, as in JOIN b USING (id).",
            "NATURAL JOIN",
        ),
        ("SELECT * FROM a LEFT INNER JOIN b", "LEFT INNER JOIN can't be used here; choose another.", "LEFT INNER JOIN"),
        ("SELECT * FROM a CROSS JOIN b ON a.x = b.x", "CROSS JOIN takes no condition; write JOIN.", "ON a.x = b.x"),
        (
            "SELECT * FROM a [ROWS 5], b ON a.x = b.x",
            "ON follows a JOIN; put conditions on streams that commas separate into WHERE.",
            "ON",
        ),
        *(
            (
                f"SELECT * FROM a JOIN b USING {columns}",
                "USING is followed by columns in parentheses, as in USING (id, zone).",
                columns,
            )
            for columns in ("x", "()", "(x y)", "(x,)", "(a.x)", "('x')")
        ),
        ("SELECT * FROM a AS, b", NO_ALIAS, "AS"),
        ("SELECT * FROM a AS [ROWS 5] one, b", NO_ALIAS, "AS [ROWS 5] one"),
        ("SELECT * FROM a [ROWS 5] AS AS one, b", NO_ALIAS, "[ROWS 5] AS AS one"),
        ("SELECT * FROM a AS 'one', b", NO_ALIAS, "AS 'one'"),
        ("SELECT * FROM a one.two, b", WINDOW, "one.two"),
        ("SELECT * FROM a [ROWS 5] one [ROWS 6], b", WINDOW, "[ROWS 5] one [ROWS 6]"),
        ("SELECT * FROM a one AS two, b", TWO.format("a"), "one AS two"),
        ("SELECT * FROM a AS one [KEY (k)] two, b", TWO.format("a"), "AS one [KEY (k)] two"),
        ("SELECT * FROM a [ROWS 5] B, b AS b [ROWS 5]", CALLED.format("b", "b"), "b AS b [ROWS 5]"),
        ("SELECT * FROM a, b LEFT JOIN a [ROWS 5] ON a.x = b.x", CALLED.format("a", "a"), "a [ROWS 5]"),
        ("SELECT * FROM a, b one WHERE EXISTS (SELECT 1 FROM b a WHERE 1)", CALLED.format("a", "b"), "b a"),
        ("SELECT * FROM a [KEY ('k')], b", "a name was expected here.", "'k'"),
        (
            "SELECT * FROM a, (SELECT 1)",
            "A subquery can't be a stream: make it a frame, and give it a name in streams.",
            "(SELECT 1)",
        ),
        ("SELECT * FROM a [], b", WINDOW, "[]"),
        ("SELECT * FROM a [KEY (id),, ROWS 5], b", "Something is missing between two commas.", "KEY (id),, ROWS 5"),
        (
            "SELECT * FROM a [RAGE 10 SECONDS], b",
            "RAGE is not a window; did you mean RANGE, as in [RANGE 10 SECONDS]?",
            "RAGE 10 SECONDS",
        ),
        (
            "SELECT * FROM a [RANG 30 SECONDS, KEY (id)], b",
            "RANG is not a window; did you mean RANGE, as in [RANGE 10 SECONDS]?",
            "RANG 30 SECONDS",
        ),
        ("SELECT * FROM a [RANGE 30 SECONDS, b", "This bracket is not closed; write ] after the window.", "["),
        (
            "SELECT * FROM a [row 30], b",
            "row is not a window; did you mean ROWS, as in [ROWS 100]?",
            "row 30",
        ),
        (
            "SELECT * FROM a [TUMBLING 30 SECONDS], b",
            "TUMBLING is not a window; write [RANGE 10 SECONDS], [RANGE 1 MINUTE SLIDE 20 SECONDS], "
            "[RANGE 10 SECONDS WATTR ts], [ROWS 100].",
            "TUMBLING 30 SECONDS",
        ),
        (
            "SELECT * FROM a [KEYS (id)], b",
            f"This is not a constraint of a stream; {CHOICES}. Did you mean KEY?",
            "KEYS (id)",
        ),
        ("SELECT * FROM a [ROWS 5, `KEY` (id)], b", f"This is not a constraint of a stream; {CHOICES}.", "`KEY` (id)"),
        ("SELECT * FROM a [KEY (id) AND (x)], b", "This was not expected here; write it like KEY (id).", "AND (x)"),
        ("SELECT * FROM a [KEY ()], b", "a name was expected here.", ")"),
        ("SELECT * FROM a [KEY (id, 5)], b", "a name was expected here.", "5"),
        ("SELECT * FROM a [KEY], b", "a name was expected after this.", "KEY"),
        ("SELECT * FROM a [KEY (id x)], b", ") was expected here.", "x"),
        (
            "SELECT * FROM a [ORDERED BY x SLACK], b",
            "a number or a duration such as 10 SECONDS was expected after this.",
            "SLACK",
        ),
        (
            "SELECT * FROM a [ORDERED BY x SLACK -1], b",
            "wm.ordered('x'): slack=-1 must be zero or more, and finite.",
            "ORDERED BY x SLACK -1",
        ),
        (
            "SELECT * FROM a [ORDERED BY x SLACK some], b",
            "slack of wm.ordered('x'): 'some' is not a duration; write it like '10 seconds', '500 ms' or "
            "'1 hour 30 minutes'.",
            "ORDERED BY x SLACK some",
        ),
        (
            "SELECT * FROM a [CLUSTERED BY x SLACK 1.5], b",
            "SLACK 1.5: a slack of runs is a whole number of batches, such as 2.",
            "CLUSTERED BY x SLACK 1.5",
        ),
        ("SELECT * FROM a [FOREIGN KEY (x) b (y)], b", "REFERENCES was expected here.", "b"),
        (
            "SELECT * FROM a [FOREIGN KEY (x, z) REFERENCES b (y)], b",
            "FOREIGN KEY has one column; write several keys for several columns.",
            "FOREIGN KEY (x, z) REFERENCES b (y)",
        ),
        ("SELECT * FROM a [PUNCTUATED BY end], b", "ON was expected after this.", "end"),
        ("SELECT * FROM a [PUNCTUATED BY end ON x AT once], b", "BATCH or WATERMARK was expected here.", "once"),
        ("SELECT * FROM a [PUNCTUATED BY e ON x BETWEEN y], b", "AND was expected after this.", "y"),
        (
            "SELECT * FROM a [PUNCTUATED BY e ON (x, x = y)], b",
            "ON names x twice.",
            "PUNCTUATED BY e ON (x, x = y)",
        ),
        ("SELECT * FROM a [ROWS 5 RANGE 10 SECONDS], b", WINDOW, "[ROWS 5 RANGE 10 SECONDS]"),
        ("SELECT * FROM a [RANGE 10 SECONDS RANGE 2 SECONDS], b", WINDOW, "[RANGE 10 SECONDS RANGE 2 SECONDS]"),
    ],
)
def test_what_is_wrong_is_underlined(text: str, problem: str, underlined: str | None) -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement(text, AB)
    assert caught.value.problem == problem
    start, end = caught.value.span
    if underlined is not None:
        assert text[start:end] == underlined
