"""What is said of tuples where streams are optional: partners, what is open, what is unknown."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.batch.test_engine import SCHEMA, near
from tests.observe.why.test_why_joins import DUCK, put_out
from watersmeet.observe.why.answer import Answer
from watersmeet.observe.why.join_state import JoinState
from watersmeet.observe.why.output_files import OutputFiles, ResultFolder
from watersmeet.observe.why.question import parse_question
from watersmeet.observe.why.state_evidence import StateEvidence
from watersmeet.observe.why.why_pair import answer_question
from watersmeet.placement import Central, Layout
from watersmeet.placement.central import CentralPlacement
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import How, Query, StreamSpec
from watersmeet.query.windows import Hopping, Sliding, Window
from watersmeet.state.manifest.view import StateView
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

MINUTE = 60_000_000
Row = tuple[str, int, int, str]
"""A stream, an id, a time in minutes and a key; every second one is read by the same task, which writes one chunk."""
BATCHES: list[list[Row]] = [
    [
        *[("orders", 1, 0, "p"), ("payments", 11, 4, "p"), ("orders", 2, 1, "q"), ("payments", 12, 5, "p")],
        *[("orders", 3, 2, "r"), ("payments", 13, 20, "r"), ("orders", 4, 30, "s"), ("payments", 14, 30, "z")],
    ],
    [("orders", 5, 31, "t"), ("payments", 15, 33, "s"), ("payments", 16, 5, "q")],
]
KEYS = "orders.k = payments.k"


def query_of(where: str = KEYS, window: Window | None = None, **how: How) -> Query:
    names = ("orders", "payments", *(name for name in how if name != "payments"))
    streams = tuple(StreamSpec(name, SCHEMA, 1, window or Sliding(10 * MINUTE), MINUTE) for name in names)
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (near,), Dialect())
    return Query(streams, conjuncts, where, (), (near,), how=tuple(how.get(name, "inner") for name in names))


class Coarse(Central):
    """Keeps what came in one batch together, so that what is closed stays for a while."""

    def plan(self, state: StateView) -> Layout[CentralPlacement]:
        return Layout(CentralPlacement(tuple(1000 * MINUTE for _ in state.streams)))


def run_batches(query: Query, folder: Path, batches: list[list[Row]]) -> Run:
    run, names = Run(query, Store(str(folder / "store"))), [stream.name for stream in query.streams]
    for rows in batches:
        run.step(Coarse(), [(names.index(n), {"id": id, "ts": MINUTE * t, "x": 1.0, "k": k}) for n, id, t, k in rows])
    put_out(run, folder)
    return run


def why(run: Run, folder: Path, query: Query | None = None, sink: bool = False, **values_by_stream: Any) -> Answer:
    assert run.state is not None
    query = query or run.query
    names = [stream.name for stream in query.streams]
    sides = {"late": {name: str(folder / "late" / name) for name in names}}
    shows = {Column(at, 0): (f"{name}_id",) for at, name in enumerate(names) if at not in query.hidden_streams}
    outputs = OutputFiles("me", sides, ResultFolder(str(folder / "out"), "parquet") if sink else None, shows)
    state = JoinState(query, run.store, run.state)
    return answer_question(
        StateEvidence(state, DUCK, float, outputs, run.progress), parse_question(query, values_by_stream, DUCK)
    )


def messages_of(answer: Answer) -> list[str]:
    """What is said of the combination."""
    (combination,) = answer.combinations
    return list(combination.messages)


FIRST = "of 1970-01-01 00:04:00 (k = 'p'), which came in batch 0"
PARTNER = "of 1970-01-01 00:04:00 (id = 11, x = 1.0, k = 'p'), which came in batch 0"
UNTIL = "may come until the watermark, now at 1970-01-01 00:30:00, reaches 1970-01-01 00:4"
UNPAID = "a result at 1970-01-01 00:01:00, emitted in batch 0: it has no partner in payments."


@pytest.mark.parametrize(
    ("how", "order", "has_joined", "messages"),
    [
        ("anti", 1, False, [f"It gives no result: it has 2 partners in payments, the first {FIRST}."]),
        ("anti", 2, True, [f"It gives {UNPAID}"]),
        ("anti", 5, None, ["It is still open: it has no partner in payments so far.", f"A partner {UNTIL}1:00."]),
        (
            *("semi", 1, True),
            [
                "It gives a result at 1970-01-01 00:00:00, emitted in batch 0: it has 2 partners in payments, "
                f"the first {FIRST}."
            ],
        ),
        ("semi", 2, False, ["It gives no result: it has no partner in payments."]),
        ("semi", 5, None, ["It is still open: it has no partner in payments so far.", f"A partner {UNTIL}1:00."]),
        ("left", 1, True, [f"It gives 2 results: it has 2 partners in payments, the first {PARTNER}."]),
        ("left", 2, True, [f"It gives {UNPAID}"]),
        (
            *("left", 4, True),
            [
                "So far it gives a result at 1970-01-01 00:33:00, emitted in batch 1: it has a partner in payments, of "
                "1970-01-01 00:33:00 (id = 15, x = 1.0, k = 's'), which came in batch 1.",
                f"Another partner {UNTIL}0:00.",
            ],
        ),
    ],
)
def test_a_required_tuple(tmp_path: Path, how: How, order: int, has_joined: bool | None, messages: list[str]) -> None:
    run = run_batches(query_of(payments=how), tmp_path, BATCHES)
    answer = why(run, tmp_path, orders={"id": order})
    assert answer.joined is has_joined
    assert messages_of(answer) == messages


@pytest.mark.parametrize(
    ("how", "order", "payment", "has_joined", "messages"),
    [
        ("anti", 1, "p", False, ["payments is a partner of orders, so that orders gives no result."]),
        ("anti", 2, "q", False, ["payments is no partner of orders: it is late.", f"orders gives {UNPAID}"]),
        (
            *("anti", 3, "r", False),
            [
                "payments is no partner of orders: orders is 18 minutes older than payments, and its window is "
                "10 minutes: 8 minutes too old.",
                "orders gives a result at 1970-01-01 00:02:00, emitted in batch 0: it has no partner in payments.",
            ],
        ),
        (
            *("semi", 4, "s", True),
            [
                "payments is a partner of orders.",
                "orders gives a result at 1970-01-01 00:30:00, emitted in batch 1: it has a partner in payments, of "
                "1970-01-01 00:33:00 (k = 's'), which came in batch 1.",
            ],
        ),
        (
            *("semi", 5, "z", False),
            [
                "payments is no partner of orders: `orders.k = payments.k` is FALSE (orders.k = 't', "
                "payments.k = 'z').",
                "orders is still open: it has no partner in payments so far.",
                f"A partner {UNTIL}1:00.",
            ],
        ),
        ("left", 4, "s", True, ["They have joined: the result of 1970-01-01 00:33:00 came in batch 1."]),
    ],
)
def test_a_tuple_and_a_partner(
    tmp_path: Path, how: How, order: int, payment: str, has_joined: bool | None, messages: list[str]
) -> None:
    run = run_batches(query_of(payments=how), tmp_path, BATCHES)
    when = {"ts": "1970-01-01 00:04:00"} if payment == "p" else {}
    answer = why(run, tmp_path, orders={"id": order}, payments={"k": payment, **when})
    assert answer.joined is has_joined
    assert messages_of(answer) == messages


@pytest.mark.parametrize(
    ("how", "payment", "has_joined", "messages"),
    [
        ("anti", "s", False, "It matches 1 tuple of orders that is there now, which gives no result."),
        ("semi", "s", True, "It matches 1 tuple of orders that is there now, which gives 1 result."),
        ("left", "z", False, "No tuple of orders that is there now matches it."),
    ],
)
def test_an_optional_tuple_alone(
    tmp_path: Path, how: How, payment: str, has_joined: bool | None, messages: str
) -> None:
    run = run_batches(query_of(payments=how), tmp_path, BATCHES)
    answer = why(run, tmp_path, payments={"k": payment})
    assert answer.joined is has_joined
    assert messages_of(answer) == [messages]


def test_two_optional_streams_wait_until_all_is_closed(tmp_path: Path) -> None:
    where = f"{KEYS} AND orders.k = refunds.k"
    refunds: list[Row] = [("refunds", 21, 2, "q"), ("orders", 7, 31, "v"), ("refunds", 22, 31, "u")]
    batches = [*BATCHES[:1], [*BATCHES[1], *refunds]]
    run = run_batches(query_of(where, payments="left", refunds="anti"), tmp_path, batches)
    assert messages_of(why(run, tmp_path, orders={"id": 1})) == [
        f"It gives at least 2 results: it has 2 partners in payments that are still stored, the first {PARTNER}; "
        "it has no partner in refunds."
    ]
    refunded = why(run, tmp_path, orders={"id": 2}, refunds={"k": "q"})
    assert refunded.joined is False
    assert messages_of(refunded) == ["refunds is a partner of orders, so that orders gives no result."]
    pending = why(run, tmp_path, orders={"id": 4}, payments={"k": "s"})
    assert pending.joined is None
    assert messages_of(pending)[:2] == [
        "payments is a partner of orders.",
        "orders is still open: it has a partner in payments, of 1970-01-01 00:33:00 (id = 15, x = 1.0, k = 's'), which "
        "came in batch 1; it has no partner in refunds so far.",
    ]


def test_some_of_the_required_streams(tmp_path: Path) -> None:
    where = "orders.k = payments.k AND orders.k = parcels.k"
    batches = [[*BATCHES[0], ("parcels", 31, 1, "p"), ("parcels", 32, 30, "s"), ("parcels", 33, 31, "s")], BATCHES[1]]
    run = run_batches(query_of(where, payments="semi", parcels="inner"), tmp_path, batches)
    answer = why(run, tmp_path, orders={"id": 4})
    assert answer.joined
    assert messages_of(answer) == [
        "It is part of 2 combinations of orders and parcels that are there now: they give 2 results."
    ]
    lonely = why(run, tmp_path, orders={"id": 5})
    assert lonely.joined is False
    assert messages_of(lonely) == ["No tuple of parcels that is there now completes it."]
    answer = why(run, tmp_path, payments={"k": "s"}, parcels={"id": 33})
    assert answer.joined
    assert messages_of(answer) == [
        "They match 1 combination of orders and parcels that is there now, which gives 1 result."
    ]


@pytest.mark.parametrize(
    ("window", "until"),
    [
        (Hopping(10 * MINUTE, 10 * MINUTE), "passes 1970-01-01 00:10:00"),
        (Hopping(10 * MINUTE, 10 * MINUTE, "left"), "reaches 1970-01-01 00:10:00"),
        (Sliding(10 * MINUTE + 1), "passes 1970-01-01 00:11:00"),
        (Sliding(10 * MINUTE), "reaches 1970-01-01 00:11:00"),
    ],
)
def test_no_watermark_yet(tmp_path: Path, window: Window, until: str) -> None:
    run = run_batches(query_of(window=window, payments="anti"), tmp_path, [[("orders", 1, 1, "p")]])
    answer = messages_of(why(run, tmp_path, orders={"id": 1}))
    assert answer[1:] == [f"A partner may come until the watermark {until}; there is none yet."]


def put_results(run: Run, folder: Path) -> None:
    """Write results as a query does, all in one batch."""
    names = [stream.name for stream in run.query.streams]
    ids = [ids for ids, _ in run.results]
    (folder / "out").mkdir()
    columns = {f"{name}_id": pa.array([own[at] for own in ids], pa.int64()) for at, name in enumerate(names)}
    pq.write_table(pa.table(columns), folder / "out" / f"part-b{run.batch}-me-run-0.parquet")


def test_what_has_been_purged_is_told_by_results(tmp_path: Path) -> None:
    later: list[Row] = [("orders", 6, 90, "x"), ("payments", 17, 90, "y")]
    run = run_batches(query_of(payments="anti"), tmp_path, [*BATCHES, later])
    put_results(run, tmp_path)
    for order, has_joined in ((2, True), (1, False)):
        assert why(run, tmp_path, orders={"id": order}).joined is None
        assert why(run, tmp_path, orders={"id": order}, sink=True).joined is has_joined
    answer = why(run, tmp_path, orders={"id": 2}, sink=True)
    assert messages_of(answer) == ["The output holds 1 result with it, emitted in batch 2."]
    none = "No result in the output holds it."
    had = "Either it never arrived or, if it came and was taken, it most likely had a partner in payments."
    assert messages_of(why(run, tmp_path, orders={"id": 1}, sink=True)) == [none, had]
    assert why(run, tmp_path, orders={"id": 2}, payments={"k": "q"}, sink=True).joined is False


def test_a_purged_tuple_of_a_semi_join_without_a_result_most_likely_had_no_partner(tmp_path: Path) -> None:
    run = run_batches(
        query_of(payments="semi"), tmp_path, [*BATCHES, [("orders", 6, 90, "x"), ("payments", 17, 90, "y")]]
    )
    put_results(run, tmp_path)
    had = "Either it never arrived or, if it came and was taken, it most likely had no partner in payments."
    assert messages_of(why(run, tmp_path, orders={"id": 2}, sink=True))[1:] == [had]
    assert len(messages_of(why(run, tmp_path, orders={"id": 1}, sink=True))) == 1
    assert len(messages_of(why(run, tmp_path, orders={"id": 2}, payments={"k": "q"}, sink=True))) == 1


def test_predicates_that_are_not_at_hand(tmp_path: Path) -> None:
    run = run_batches(query_of("near(orders.x, payments.x)", payments="anti"), tmp_path, BATCHES)
    put_results(run, tmp_path)
    bare = replace(run.query, predicates=())
    told_here = "since `near(orders.x, payments.x)` can't be answered here"
    answer = why(run, tmp_path, bare, orders={"id": 5})
    assert answer.joined is None
    assert (
        messages_of(answer)[0]
        == f"State does not show whether it gives a result: partners in payments are unknown, {told_here}."
    )
    assert messages_of(answer)[2] == "It is unknown whether there is a result with it."
    assert (
        messages_of(why(run, tmp_path, bare, sink=True, orders={"id": 5}))[2]
        == "No result in the output holds it so far."
    )
    both = why(run, tmp_path, bare, orders={"id": 5}, payments={"x": 1.0, "ts": "1970-01-01 00:33:00"})
    assert both.joined is False
    assert messages_of(both)[0].startswith("It is unknown whether payments is a partner of orders: `near(orders.x")
    alone = why(run, tmp_path, bare, payments={"ts": "1970-01-01 00:33:00"})
    assert messages_of(alone) == [
        f"Whether others of orders go with it is unknown: {told_here.removeprefix('since ')}."
    ]


def test_a_stream_that_is_not_shown_is_not_looked_up_in_results(tmp_path: Path) -> None:
    run = run_batches(query_of(payments="anti"), tmp_path, BATCHES)
    put_results(run, tmp_path)
    answer = why(run, tmp_path, sink=True, payments={"id": 11})
    assert answer.tuples[0].fate == "unknown" and "state keeps ts and k" in answer.tuples[0].message
    assert answer.joined is False


def test_null_in_the_place_of_a_missing_member_is_no_tuple(tmp_path: Path) -> None:
    run = run_batches(query_of(payments="left"), tmp_path, BATCHES)
    put_results(run, tmp_path)
    assert why(run, tmp_path, sink=True, payments={"id": None}).tuples[0].fate != "joined"
