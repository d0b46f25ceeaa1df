"""What removes state and what never will, as messages say it; and constraints in words."""

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from watersmeet.metadata.constraints import (
    Clustering,
    Constraint,
    FlaggedPunctuations,
    ForeignKey,
    Key,
    Pattern,
    SortOrder,
)
from watersmeet.metadata.outlook import Outlook
from watersmeet.observe.explain import explain
from watersmeet.ordering import Given
from watersmeet.placement import PSP
from watersmeet.predicate.model import Column, Dialect, HiddenColumn
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Count, Sliding, Window

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", TIME), ("k", pa.int64()), ("n", pa.int32()), ("end", pa.bool_()), ("d", pa.date32())]
)
HIDDEN = (
    HiddenColumn("a frame of their own", pa.bool_(), punctuation=True),
    HiddenColumn("lo", pa.int64(), punctuation=True),
)


def query(where: str, window: Window | None = None, **promises: tuple[Constraint, ...]) -> Query:
    streams = tuple(
        StreamSpec(name, SCHEMA, 1, window or Window(), 5, hidden=HIDDEN, constraints=promises.get(name, ()))
        for name in "ab"
    )
    return Query(streams, parse_where(where, [(s.name, s.schema) for s in streams], (), Dialect()), where)


def warned(where: str, window: Window | None = None, **promises: tuple[Constraint, ...]) -> list[str]:
    return list(Outlook(query(where, window, **promises)).warn())


GROWS = "has no window, and nothing ever removes its tuples: state will grow for as long as the join runs."


def test_state_that_nothing_lets_go() -> None:
    assert warned("a.k = b.k") == [
        f"Stream 'a' {GROWS} Give it a window, or declare a key of, or punctuations on, b.k.",
        f"Stream 'b' {GROWS} Give it a window, or declare a key of, or punctuations on, a.k.",
    ]
    assert warned("a.k < b.id") == [
        f"Stream 'a' {GROWS} Give it a window, or declare that b.id falls.",
        f"Stream 'b' {GROWS} Give it a window, or declare that a.k rises.",
    ]
    near = "declare that {0} rises or falls, or declare punctuations on ranges of {0}"
    assert warned("abs(a.k - b.k) <= 5") == [
        f"Stream 'a' {GROWS} Give it a window, or {near.format('b.k')}.",
        f"Stream 'b' {GROWS} Give it a window, or {near.format('a.k')}.",
    ]
    assert warned("a.k % 2 = b.k % 3") == [f"Stream '{name}' {GROWS} Give it a window." for name in "ab"]


@pytest.mark.parametrize("window", [Sliding(5), Count(5)])
def test_windows_end_by_themselves(window: Window) -> None:
    assert warned("a.k = b.k", window) == []


def test_constraints_that_let_all_go() -> None:
    assert warned("a.k = b.k", a=(Key((2,)),), b=(FlaggedPunctuations(4, (Pattern(2, 2, 2),)),)) == []
    assert warned("a.ts <= b.ts AND b.ts <= a.ts + INTERVAL 1 HOUR") == []
    assert len(warned("a.k = b.k", a=(Clustering(2),))) == 1


@pytest.mark.parametrize(
    ("promise", "said"),
    [
        (Key((0,)), "key (a.id), which removes no state: `where` equates a.id with no column"),
        (
            Key((2, 3)),
            "key (a.k, a.n), which removes no state: `where` equates a.n with no column of another stream of ",
        ),
        (SortOrder(0), "a.id rising, slack 0, which removes no state: `where` bounds a.id with no column"),
        (SortOrder(1, slack=2_500_000), "a.ts rising, slack 2.5 s, which removes no state"),
        (Clustering(5, 2), "a.d clustered, slack 2, which removes no state: `where` equates a.d"),
        (
            FlaggedPunctuations(4, (Pattern(2, 2, 2), Pattern(0, 0, 2))),
            "a.end on a.k and a.id between a.id and a.k, effect by batch",
        ),
    ],
)
def test_constraints_that_let_nothing_go(promise: Constraint, said: str) -> None:
    found = warned("a.k = b.k", Sliding(5), a=(promise,))
    assert len(found) == 1 and found[0].startswith(f"Stream 'a' declares {said}")
    assert found[0].endswith("It only denies rows.")


RANGES = FlaggedPunctuations(4, (Pattern(2, 2, 0),))


def test_ranges_let_go_what_is_bounded_on_both_sides() -> None:
    assert warned("abs(a.k - b.k) <= 5", Sliding(5), a=(RANGES,), b=(Key((2,)),)) == []
    assert warned("a.k % 2 = b.k % 3", Sliding(5), a=(RANGES,)) == [
        "Stream 'a' declares a.end on a.k between a.k and a.id, effect by batch, which removes no state: `where` "
        "equates a.k with no column of another stream of the same type (bigint), and with no constant, nor "
        "does it bound it. It only denies rows."
    ]
    told = explain(query("abs(a.k - b.k) <= 5", b=(RANGES,)), PSP(1), Given()).splitlines()
    assert "    closed by `abs(a.k - b.k) <= 5` and punctuations of b.k" in told


def test_a_foreign_key_lets_nothing_go_and_that_is_known() -> None:
    assert warned("a.k = b.k", Sliding(5), a=(ForeignKey(2, Column(1, 2)),), b=(SortOrder(2),)) == []


TWO = FlaggedPunctuations(4, (Pattern(2, 2, 2), Pattern(3, 3, 3)))


@pytest.mark.parametrize("given", [(), (Key((2,)),), (Clustering(2),), (TWO,)])
def test_a_foreign_key_that_finds_no_orphans(given: tuple[Constraint, ...]) -> None:
    """A key denies values that came, so it tells nothing of those that never did."""
    found = warned("a.k = b.k AND a.n = b.n", Sliding(5), a=(ForeignKey(2, Column(1, 2)),), b=given)
    assert [text.partition(", by which ")[2] for text in found] == [
        "no orphans will be found: nothing says that a value of b.k can no longer come if it never came. Declare an "
        "order of, or punctuations on, b.k."
    ]


def test_a_foreign_key_of_a_table_finds_no_orphans() -> None:
    made = query("a.k = b.k", Sliding(5), a=(ForeignKey(2, Column(1, 2)),))
    made = replace(made, streams=(made.streams[0], replace(made.streams[1], table=True, window=Window())))
    assert list(Outlook(made).warn_of_useless()) == [
        "Stream 'a' declares foreign key (a.k) references b.k, by which no orphans will be found: b is a table, which "
        "declares nothing. To find rows without a row of b, use Spark's own left anti join."
    ]


def test_what_closes_a_stream_is_explained() -> None:
    told = explain(query("a.k = b.k", a=(Key((2,)),), b=(SortOrder(0, True),)), PSP(1), Given()).splitlines()
    assert told[told.index("  a: unbounded on ts, delay 5 microseconds") + 1 :][:3] == [
        "    constraint: key (a.k)",
        "    closed by `a.k = b.k` and the key of a.k",
        "    its tuples are kept forever",
    ]
    assert told[told.index("  b: unbounded on ts, delay 5 microseconds") + 1 :][:2] == [
        "    constraint: b.id falling, slack 0",
        "    nothing ever closes it",
    ]


def test_constraints_belong_to_the_description() -> None:
    frame = FlaggedPunctuations(6, (Pattern(2, 7, 7),), "watermark")
    given = (Key((0,)), SortOrder(5, slack=3), SortOrder(2, True, Decimal("0.5")), ForeignKey(2, Column(1, 0)), frame)
    found = query("a.k = b.k", a=given).description()
    assert found["constraints of 'a'"] == [
        "key (a.id)",
        "a.d rising, slack 3 days",
        "a.k falling, slack 0.5",
        "foreign key (a.k) references b.id",
    ]
    assert found["punctuations of 'a'"] == ["a frame of their own on a.k = lo, effect by watermark"]
    assert found["computed of 'a'"] == []
    assert "constraints of 'b'" not in found
