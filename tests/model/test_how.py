"""What `how=` takes, and what it refuses."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.errors import DefinitionError
from watersmeet.explain import explain
from watersmeet.model.metadata import Key
from watersmeet.model.outer import check_outer, check_shown, hows, partners_asked, windowed
from watersmeet.model.query import Query, StreamSpec
from watersmeet.model.windows import Count, Hopping, Sliding, Window
from watersmeet.ordering import Given
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Conjunct, Dialect, Hidden
from watersmeet.predicate.parse import parse_where
from watersmeet.retention.outlook import Outlook

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def streams(*windows: Window) -> tuple[StreamSpec, ...]:
    return tuple(StreamSpec(name, SCHEMA, 1, window, 0) for name, window in zip("abc", windows, strict=False))


SLIDING: Any = (Sliding(5), Sliding(5))


def query(where: str = "a.id = b.id", how: Any = ("inner", "anti"), windows: Any = SLIDING) -> Query:
    specs = streams(*windows)
    conjuncts = parse_where(where, [(spec.name, spec.schema) for spec in specs], (), Dialect())
    return Query(specs, conjuncts, where, how=how)


def test_streams_are_optional_by_name() -> None:
    specs = streams(Window(), Window(), Window())
    assert hows({"B": "left", "c": "anti"}, specs) == ("inner", "left", "anti")
    assert hows(None, specs) == hows({}, specs) == hows({"a": "inner"}, specs) == ()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("left", "name the optional streams"),
        ({"d": "left"}, "there is no such stream; the streams are a, b"),
        ({1: "left"}, "there is no such stream"),
        ({"b": "right"}, "an optional stream is 'left', 'semi', 'anti' or 'full'; for a right join make the other"),
        ({"b": ["left"]}, "an optional stream is 'left', 'semi', 'anti' or 'full'"),
        ({"a": "left", "b": "left"}, "at least one must be required"),
    ],
)
def test_what_is_no_how_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        hows(given, streams(Window(), Window()))


def test_a_full_join_has_two_streams() -> None:
    assert hows({"b": "full"}, streams(Window(), Window())) == ("inner", "full")
    with pytest.raises(DefinitionError, match="a full join has two streams; join two of them first"):
        hows({"b": "full"}, streams(Window(), Window(), Window()))


@pytest.mark.parametrize(
    ("on", "problem"),
    [
        ("a.id = b.id", "on='a.id = b.id': name the optional streams"),
        ({"a": "TRUE"}, "on={'a': ...}: this is no optional stream; those that how= names are: b"),
        ({1: "TRUE"}, "on={1: ...}: this is no optional stream"),
    ],
)
def test_what_partners_are_is_said_of_optional_streams(on: Any, problem: str) -> None:
    assert partners_asked({"B": "TRUE"}, query()) == {1: "TRUE"}
    assert partners_asked(None, query()) == {}
    with pytest.raises(DefinitionError, match=problem):
        partners_asked(on, query())


def with_tables(made: Query, tables: set[int]) -> Query:
    """Return a join in which some streams are tables."""
    return replace(made, streams=tuple(replace(s, table=at in tables) for at, s in enumerate(made.streams)))


def test_any_time_window_on_a_required_stream_will_do() -> None:
    check_outer(query(), streaming=True, spilling=False)
    check_outer(query(windows=(Hopping(5, 2), Window())), streaming=True, spilling=False)
    check_outer(query(windows=(Window(), Window())), streaming=False, spilling=False)
    check_outer(query("a.id = b.id", (), (Count(5), Window())), streaming=True, spilling=True)
    windows = (Window(), Sliding(5), Window())
    check_outer(
        query("a.id = b.id AND b.id = c.id", ("inner", "inner", "left"), windows), streaming=True, spilling=False
    )


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (query(windows=(Count(5), Window())), "'a' has a count window"),
        (query(windows=(Sliding(5), Count(5))), "'b' has a count window"),
        (query(windows=(Window(), Sliding(5))), "Without a window on 'a' a partner may come at any time"),
        (query(how=("inner", "full"), windows=(Sliding(5), Window())), "Without a window on 'b' a partner may come"),
        (with_tables(query(how=("inner", "full")), {1}), "Table 'b' has no times"),
        (with_tables(query(windows=(Window(), Sliding(5))), {0}), "all that is required are tables"),
        (
            with_tables(query("a.id = b.id", ("inner", "left", "inner"), (Window(), Sliding(5), Window())), {0}),
            "Without a window on 'c' a partner may come at any time",
        ),
        (
            query("b.id = c.id", ("inner", "left", "left"), (Sliding(5),) * 3),
            "b.id = c.id ties b and c, which are both optional",
        ),
    ],
)
def test_what_cannot_be_decided_is_refused(made: Query, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        check_outer(made, streaming=True, spilling=False)


def test_tables_alone_give_results_no_time() -> None:
    with pytest.raises(DefinitionError, match="results would have no time: require a stream as well"):
        check_outer(with_tables(query(), {0}), streaming=False, spilling=False)


def test_where_clocks_are_changed_days_are_no_windows() -> None:
    """Spark adds days by the calendar: the reader, who wrote such a condition, is told why it does not count."""
    made = query(windows=(Window(), Window()))
    for zone, told in (("Europe/Berlin", True), ("UTC", False)):
        with pytest.raises(DefinitionError, match="Without a window on 'a'") as caught:
            check_outer(replace(made, dialect=Dialect(time_zone=zone)), streaming=True, spilling=False)
        assert ("such as this session's Europe/Berlin, intervals of a day" in str(caught.value)) is told


TEN = 600_000_000


@pytest.mark.parametrize(
    ("where", "spans"),
    [
        ("b.ts <= a.ts", (1, None)),
        ("b.ts BETWEEN a.ts AND a.later", (TEN + 1, 1)),
        ("b.ts >= a.ts", (None, 1)),
        ("b.later <= a.ts", (1, None)),
        ("b.ts < a.later AND b.ts < a.ts AND a.ts <= b.later", (1, TEN + 1)),
        ("b.ts <= a.later OR b.id = a.id", (None, None)),
        ("b.id <= a.id", (None, None)),
    ],
)
def test_conditions_on_event_times_are_windows(where: str, spans: tuple[int | None, int | None]) -> None:
    made = query("a.id = b.id", windows=(Window(), Window()))
    schema = SCHEMA.append(pa.field("later", SCHEMA.field(1).type))
    conjuncts = parse_where(where, [(name, schema) for name in "ab"], (), Dialect())
    later = Hidden("later", SCHEMA.field(1).type, moved=(1, TEN))
    made = replace(made, conjuncts=conjuncts, streams=tuple(replace(s, hidden=(later,)) for s in made.streams))
    assert tuple(stream.window.span for stream in windowed(made).streams) == spans
    assert windowed(replace(made, how=())) == replace(made, how=())
    wide = replace(made, streams=tuple(replace(s, window=Sliding(5)) for s in made.streams))
    assert windowed(wide) == wide


def test_of_several_optional_streams_the_last_to_end_counts() -> None:
    where: str = "b.ts <= a.ts AND c.ts <= a.later"
    how: Any = ("inner", "left", "anti")
    schema = SCHEMA.append(pa.field("later", SCHEMA.field(1).type))
    later = Hidden("later", SCHEMA.field(1).type, moved=(1, TEN))
    specs = tuple(replace(spec, hidden=(later,)) for spec in streams(Window(), Window(), Window()))
    for text, span in ((where, TEN + 1), ("b.ts <= a.ts", None)):
        conjuncts = parse_where(text, [(name, schema) for name in "abc"], (), Dialect())
        assert windowed(Query(specs, conjuncts, how=how)).streams[0].window.span == span
    assert windowed(Query(specs, conjuncts, how=("inner", "inner", "left"))).streams == specs


def test_work_that_is_put_off_is_refused_and_with_several_optional_streams_what_is_left_to_spark() -> None:
    with pytest.raises(DefinitionError, match="spill= can't be combined with how="):
        check_outer(query(), streaming=True, spilling=True)
    opaque = Conjunct("rlike(a.s, b.s)", None, (Column(0, 0), Column(1, 0)))
    check_outer(replace(query(), conjuncts=(opaque,)), streaming=True, spilling=False)
    several = query("a.id = b.id", ("inner", "left", "anti"), (Sliding(5),) * 3)
    with pytest.raises(DefinitionError, match=r"rlike.* is left to Spark.* with several optional streams it must"):
        check_outer(replace(several, conjuncts=(opaque,)), streaming=True, spilling=False)


def test_what_is_only_asked_for_is_not_shown() -> None:
    check_shown(query(), [Column(0, 0)])
    check_shown(query(how=("inner", "left")), [Column(1, 0)])
    with pytest.raises(DefinitionError, match=r"b\.id can't be shown, since results of an anti join"):
        check_shown(query(), [Column(1, 0)])
    with pytest.raises(DefinitionError, match="results of a semi join have no tuple of 'b'"):
        check_shown(query(how=("inner", "semi")), [Column(1, 0)])


def test_results_show_the_streams_that_they_have_tuples_of() -> None:
    assert query().output_schema.names == ["a", "_time"]
    assert query(how=("inner", "left")).output_schema.names == ["a", "b", "_time"]
    assert query().description()["how"] == {"b": "anti"}
    assert query(how=("inner", "full")).output_schema.names == ["a", "b", "_time"]
    assert "how" not in query(how=()).description()
    assert "after ON" not in query().description()


def test_what_is_asked_of_partners_alone_belongs_to_the_checkpoint() -> None:
    made = query("a.id > 5 AND a.id = b.id")
    asked = replace(made, conjuncts=tuple(conjunct.after_on([1]) for conjunct in made.conjuncts))
    assert asked.description() == made.description() | {"after ON": ["a.id > 5"]}
    assert replace(made, filter="b.id IS NULL").description() == made.description() | {"filter": "b.id IS NULL"}


def test_explain_says_how_partners_are_found() -> None:
    told = explain(query(), Central(), Given())
    assert "  b: sliding 0.000005 s on ts, delay 0 s, only asked: there must be no partner" in told
    assert "  a tuple of a whose window ends: a\n  is there a partner in b?\n    probe b by sorted index on" in told
    assert "a new tuple" not in told
    assert "  a new tuple of a: a\n" in explain(query(how=("inner", "semi")), Central(), Given())
    assert "  a new tuple of b: b -> a\n" in explain(query(how=("inner", "left")), Central(), Given())
    told = explain(replace(query(how=("inner", "full")), filter="b.id IS NULL"), Central(), Given())
    assert "  a tuple of a whose window ends: a\n  is there a partner in b?\n" in told
    assert "  a tuple of b whose window ends: b\n  is there a partner in a?\n" in told
    assert told.endswith("\n  of the results, Spark keeps those with b.id IS NULL")


def test_only_windows_let_state_go() -> None:
    made = query(windows=(Sliding(5), Window()))
    promised = replace(made, streams=(replace(made.streams[0], promises=(Key((0,)),)), made.streams[1]))
    assert [*Outlook(promised).warnings()] == [
        "Stream 'b' has no window, and nothing ever lets its tuples go: state will grow for as long as the join runs. "
        "Give it a window.",
        "Stream 'a' promises key (a.id), which lets no state go: with how=, only windows do. It only turns rows away.",
    ]
    assert not Outlook(promised).open(1)
