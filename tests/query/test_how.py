"""What `how=` takes, and what it refuses."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.errors import DefinitionError
from watersmeet.metadata.constraints import Key
from watersmeet.metadata.outlook import Outlook
from watersmeet.observe.explain import explain
from watersmeet.ordering import Given
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Conjunct, Dialect, Gap
from watersmeet.predicate.parse import parse_where
from watersmeet.query.optional_streams import (
    apply_tolerances,
    asof,
    check_optional,
    check_selected_columns,
    derive_windows,
    read_how,
    read_on,
)
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Count, Hopping, Sliding, Window

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
    assert read_how({"B": "left", "c": "anti"}, specs) == ("inner", "left", "anti")
    assert read_how(None, specs) == read_how({}, specs) == read_how({"a": "inner"}, specs) == ()


def test_as_of_streams_have_windows_as_long_as_their_tolerance() -> None:
    specs = streams(Window(), Window(), Window())
    how: dict[str, Any] = {"B": asof("5 minutes", left=True), "c": "asof"}
    assert read_how(how, specs) == ("inner", "asof left", "asof")
    assert [spec.window for spec in apply_tolerances(specs, how)] == [Window(), Sliding(300_000_001), Window()]
    assert apply_tolerances(specs, None) == specs
    assert apply_tolerances(specs, {"b": asof(timedelta(0))})[1].window == Sliding(1)
    with pytest.raises(DefinitionError, match="Stream 'b' has both a window and a tolerance"):
        apply_tolerances(streams(Window(), Sliding(5), Window()), how)


def test_what_as_of_does_not_take_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"tolerance of wm\.asof: 'soon' is not a duration"):
        asof("soon")
    wrong: Any = 1
    with pytest.raises(DefinitionError, match="left must be True or False"):
        asof(left=wrong)


def test_as_of_joins_need_no_windows_but_times() -> None:
    join = query(how=("inner", "asof"), windows=(Window(), Window()))
    assert [stream.window for stream in derive_windows(join).streams] == [Sliding(1), Window()]
    check_optional(derive_windows(join), streaming=True, spilling=False)
    several = query("a.id = b.id AND b.id = c.id", ("inner", "inner", "asof left"), (Window(),) * 3)
    assert derive_windows(several) == several
    check_optional(several, streaming=True, spilling=False)
    with pytest.raises(DefinitionError, match="Table 'b' has no times, so that none of its rows is the newest"):
        check_optional(with_tables(join, {1}), streaming=True, spilling=False)
    beside = query("a.id = b.id AND a.id = c.id", ("inner", "asof", "left"), (Window(),) * 3)
    with pytest.raises(DefinitionError, match="Without a window on 'a' a partner may come at any time"):
        check_optional(derive_windows(beside), streaming=True, spilling=False)


def test_as_of_joins_say_what_they_keep() -> None:
    by_key = derive_windows(query(how=("inner", "asof"), windows=(Window(), Window())))
    assert [*Outlook(by_key).warn_of_growth()] == []
    lines = explain(by_key, Central(), Given())
    assert (
        "  b: unbounded on ts, delay 0 seconds, as of: the newest partner no later, without one there is no result"
        in lines
    )
    assert "    a tuple leaves once a newer one with the same b.id supersedes it" in lines
    assert "  a tuple of a that the watermark passes: a\n  which is the newest partner in b?\n" in lines
    assert by_key.description()["how"] == {"b": "asof"}
    (warning,) = Outlook(derive_windows(query("a.id < b.id", ("inner", "asof"), (Window(), Window())))).warn_of_growth()
    assert warning.endswith("Give it a tolerance, such as wm.asof('5 minutes'), or a window.")


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("left", "name the optional streams"),
        ({"d": "left"}, "there is no such stream; the streams are a, b"),
        ({1: "left"}, "there is no such stream"),
        ({"b": "right"}, "an optional stream is 'left', 'semi', 'anti', 'full', 'asof' or"),
        ({"b": ["left"]}, "an optional stream is 'left', 'semi', 'anti', 'full', 'asof' or"),
        ({"a": "left", "b": "left"}, "at least one must be required"),
    ],
)
def test_what_is_no_how_is_refused(how: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        read_how(how, streams(Window(), Window()))


def test_a_full_join_has_two_streams() -> None:
    assert read_how({"b": "full"}, streams(Window(), Window())) == ("inner", "full")
    with pytest.raises(DefinitionError, match="a full join has two streams; join two of them first"):
        read_how({"b": "full"}, streams(Window(), Window(), Window()))


@pytest.mark.parametrize(
    ("on", "problem"),
    [
        ("a.id = b.id", "on='a.id = b.id': name the optional streams"),
        ({"a": "TRUE"}, "on={'a': ...}: this is no optional stream; those that how= names are: b"),
        ({1: "TRUE"}, "on={1: ...}: this is no optional stream"),
    ],
)
def test_what_partners_are_is_said_of_optional_streams(on: Any, problem: str) -> None:
    assert read_on({"B": "TRUE"}, query()) == {1: "TRUE"}
    assert read_on(None, query()) == {}
    with pytest.raises(DefinitionError, match=problem):
        read_on(on, query())


def with_tables(join: Query, tables: set[int]) -> Query:
    """Return a join in which some streams are tables."""
    return replace(join, streams=tuple(replace(s, table=at in tables) for at, s in enumerate(join.streams)))


def test_any_time_window_on_a_required_stream_will_do() -> None:
    check_optional(query(), streaming=True, spilling=False)
    check_optional(query(windows=(Hopping(5, 2), Window())), streaming=True, spilling=False)
    check_optional(query(windows=(Window(), Window())), streaming=False, spilling=False)
    check_optional(query("a.id = b.id", (), (Count(5), Window())), streaming=True, spilling=True)
    windows = (Window(), Sliding(5), Window())
    check_optional(
        query("a.id = b.id AND b.id = c.id", ("inner", "inner", "left"), windows), streaming=True, spilling=False
    )


@pytest.mark.parametrize(
    ("join", "problem"),
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
def test_what_cannot_be_decided_is_refused(join: Query, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        check_optional(join, streaming=True, spilling=False)


def test_tables_alone_give_results_no_time() -> None:
    with pytest.raises(DefinitionError, match="results would have no time: require a stream as well"):
        check_optional(with_tables(query(), {0}), streaming=False, spilling=False)


def with_gaps(*gaps: Gap, how: Any = ("inner", "anti"), streams_of: int = 2) -> Query:
    """Return a join whose streams are bound by nothing but how far apart their event times are."""
    specs = streams(*(Window(),) * streams_of)
    conjuncts = (
        Conjunct(f"{gap}", "TRUE", (Column(gap.later, 1), Column(gap.earlier, 1)), gaps=(gap,)) for gap in gaps
    )
    return Query(specs, tuple(conjuncts), how=how)


def windows_of(join: Query) -> list[str]:
    return [stream.window.describe() for stream in derive_windows(join).streams]


TEN = 600_000_000


@pytest.mark.parametrize(
    ("gaps", "windows"),
    [
        ([Gap(1, 0, 0)], ["sliding 0 seconds, inclusive", "unbounded"]),
        ([Gap(1, 0, TEN), Gap(0, 1, 0)], ["sliding 10 minutes, inclusive", "sliding 0 seconds, inclusive"]),
        ([Gap(1, 0, TEN - 1)], ["sliding 10 minutes", "unbounded"]),
        ([Gap(0, 1, 5)], ["unbounded", "sliding 6 microseconds"]),
        ([Gap(1, 0, -TEN)], ["sliding 0 seconds, inclusive", "unbounded"]),
        ([Gap(1, 0, 2 * TEN), Gap(1, 0, TEN)], ["sliding 10 minutes, inclusive", "unbounded"]),
        ([], ["unbounded", "unbounded"]),
    ],
)
def test_conditions_on_event_times_are_windows(gaps: list[Gap], windows: list[str]) -> None:
    join = with_gaps(*gaps)
    assert windows_of(join) == windows
    assert [stream.derived for stream in derive_windows(join).streams] == [text != "unbounded" for text in windows]
    assert derive_windows(replace(join, how=())) == replace(join, how=())
    wide = replace(join, streams=tuple(replace(s, window=Sliding(5)) for s in join.streams))
    assert derive_windows(wide) == wide


def test_of_several_optional_streams_the_last_to_end_counts() -> None:
    how: Any = ("inner", "left", "anti")
    assert (
        windows_of(with_gaps(Gap(1, 0, 0), Gap(2, 0, TEN), how=how, streams_of=3))[0] == "sliding 10 minutes, inclusive"
    )
    assert windows_of(with_gaps(Gap(1, 0, 0), how=how, streams_of=3))[0] == "unbounded"


def test_several_required_streams_have_windows_if_conditions_bind_them_together() -> None:
    """One that is bound to the optional stream alone may be seen with another required one at any time."""
    how: Any = ("inner", "inner", "left")
    bound = Gap(1, 0, TEN), Gap(0, 1, 0), Gap(2, 1, TEN), Gap(1, 2, 0)
    minutes = ["sliding 20 minutes, inclusive", "sliding 10 minutes, inclusive", "sliding 0 seconds, inclusive"]
    assert windows_of(with_gaps(*bound, how=how, streams_of=3)) == minutes
    loose = Gap(2, 0, TEN), Gap(0, 2, 0), Gap(2, 1, TEN), Gap(1, 2, 0)
    assert windows_of(with_gaps(*loose, how=how, streams_of=3)) == [
        "unbounded",
        "unbounded",
        "sliding 0 seconds, inclusive",
    ]


def test_a_condition_on_an_optional_stream_says_nothing_of_the_required_ones() -> None:
    how: Any = ("inner", "inner", "left")
    join = with_gaps(Gap(1, 0, TEN), Gap(0, 1, TEN), Gap(2, 1, TEN), how=how, streams_of=3)
    first = replace(join.conjuncts[0], columns=(*join.conjuncts[0].columns, Column(2, 0)))
    assert windows_of(replace(join, conjuncts=(first, *join.conjuncts[1:])))[0] == "unbounded"


def test_work_that_is_put_off_is_refused_and_with_several_optional_streams_what_is_left_to_spark() -> None:
    with pytest.raises(DefinitionError, match="spill= can't be combined with how="):
        check_optional(query(), streaming=True, spilling=True)
    opaque = Conjunct("rlike(a.s, b.s)", None, (Column(0, 0), Column(1, 0)))
    check_optional(replace(query(), conjuncts=(opaque,)), streaming=True, spilling=False)
    several = query("a.id = b.id", ("inner", "left", "anti"), (Sliding(5),) * 3)
    with pytest.raises(DefinitionError, match=r"rlike.* is left to Spark.* with several optional streams it must"):
        check_optional(replace(several, conjuncts=(opaque,)), streaming=True, spilling=False)


def test_what_is_only_asked_for_is_not_shown() -> None:
    check_selected_columns(query(), [Column(0, 0)])
    check_selected_columns(query(how=("inner", "left")), [Column(1, 0)])
    with pytest.raises(DefinitionError, match=r"b\.id can't be shown, since results of an anti join"):
        check_selected_columns(query(), [Column(1, 0)])
    with pytest.raises(DefinitionError, match="results of a semi join have no tuple of 'b'"):
        check_selected_columns(query(how=("inner", "semi")), [Column(1, 0)])


def test_results_show_the_streams_that_they_have_tuples_of() -> None:
    assert query().output_schema.names == ["a", "_time"]
    assert query(how=("inner", "left")).output_schema.names == ["a", "b", "_time"]
    assert query().description()["how"] == {"b": "anti"}
    assert query(how=("inner", "full")).output_schema.names == ["a", "b", "_time"]
    assert "how" not in query(how=()).description()
    assert "after ON" not in query().description()


def test_what_is_asked_of_partners_alone_belongs_to_the_checkpoint() -> None:
    join = query("a.id > 5 AND a.id = b.id")
    after_on = replace(join, conjuncts=tuple(conjunct.after_on([1]) for conjunct in join.conjuncts))
    assert after_on.description() == join.description() | {"after ON": ["a.id > 5"]}
    assert replace(join, filter="b.id IS NULL").description() == join.description() | {"filter": "b.id IS NULL"}


def test_explain_says_how_partners_are_found() -> None:
    lines = explain(query(), Central(), Given())
    assert "  b: sliding 5 microseconds on ts, delay 0 seconds, tested only: there must be no partner" in lines
    assert "  a tuple of a whose window ends: a\n  is there a partner in b?\n    probe b by sorted index on" in lines
    assert "a new tuple" not in lines
    assert "  a new tuple of a: a\n" in explain(query(how=("inner", "semi")), Central(), Given())
    assert "  a new tuple of b: b -> a\n" in explain(query(how=("inner", "left")), Central(), Given())
    lines = explain(replace(query(how=("inner", "full")), filter="b.id IS NULL"), Central(), Given())
    assert "  a tuple of a whose window ends: a\n  is there a partner in b?\n" in lines
    assert "  a tuple of b whose window ends: b\n  is there a partner in a?\n" in lines
    assert lines.endswith("\n  of the results, Spark keeps those with b.id IS NULL")


def test_only_windows_let_state_go() -> None:
    join = query(windows=(Sliding(5), Window()))
    constrained = replace(join, streams=(replace(join.streams[0], constraints=(Key((0,)),)), join.streams[1]))
    assert [*Outlook(constrained).warn()] == [
        "Stream 'b' has no window, and nothing ever removes its tuples: state will grow for as long as the join runs. "
        "Give it a window.",
        "Stream 'a' declares key (a.id), which removes no state: with how=, only windows do. It only denies rows.",
    ]
    assert not Outlook(constrained).is_never_closed(1)
