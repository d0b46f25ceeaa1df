"""Hash: which attributes streams are stored by, what one hop and several hops visit, and exactness among strategies."""

from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from tests.batch.scatter import Scatter, ScatterOrdering
from tests.batch.test_engine import SCHEMA, cases, run_case, scattered
from tests.budget import FEW
from watersmeet.errors import DefinitionError
from watersmeet.placement import PSP
from watersmeet.placement.hash import Hash, HashPlacement, attributes, choose_attributes
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.numbers import bucket, hashes
from watersmeet.predicate.parse import parse_where
from watersmeet.query import windows
from watersmeet.query.query import Query, StreamSpec
from watersmeet.state.chunks.chunk import WHOLE, Bucket, Chunk, Place
from watersmeet.state.manifest.view import LONGEST_SLICE, StateView, StreamView
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run

A, B, C, D = (Column(stream, 2) for stream in range(4))
B2, C2, D2 = (Column(stream, 3) for stream in (1, 2, 3))


def view(streams: int, *equalities: tuple[Column, Column], chunks: tuple[Chunk, ...] = ()) -> StateView:
    names = tuple("abcd"[:streams])
    return StateView(tuple(StreamView(40) for _ in range(streams)), chunks, equalities=equalities, names=names)


def plan(nodes: int, state: StateView) -> HashPlacement:
    return Hash(nodes).plan(state).placement


def bucket_of(of: int, number: int) -> Bucket:
    return Bucket(2, of, number, (2,))


def chunk(name: str, bucket: Bucket, *owners: int) -> Chunk:
    return Chunk(name, 0, 0, 0, 10, bucket, 1, 8, 0, 9, owners, Place("p", 0, 0, ""))


# -- attributes


def test_equalities_are_followed_from_column_to_column() -> None:
    assert attributes([(A, B), (C, D), (B, C)]) == [(A, B, C, D)]
    assert attributes([(A, B), (B2, C)]) == [(A, B), (B2, C)]


def test_of_two_columns_of_a_stream_in_one_attribute_the_first_is_stored_by() -> None:
    assert attributes([(A, B), (A, B2)]) == [(A, B)]


def test_a_shared_attribute_makes_all_others_needless() -> None:
    assert choose_attributes(attributes([(B2, C2), (A, B), (B, C)])) == ((A, B, C),)


def test_an_attribute_that_would_close_a_circle_is_not_stored_by() -> None:
    assert choose_attributes([(A, B), (B2, C), (C2, Column(0, 3))]) == ((A, B), (B2, C))
    assert choose_attributes([(A, B), (C2, D2), (B2, C)]) == ((A, B), (C2, D2), (B2, C))


# -- one shared attribute


def test_on_a_shared_attribute_each_stream_is_stored_once_and_partial_results_stay() -> None:
    placement = plan(4, view(3, (A, B), (B, C)))
    assert [placement.stored_by(stream) for stream in range(3)] == [(A,), (B,), (C,)]
    assert placement.stays_after() == 1
    assert [placement.lead(stream) for stream in range(3)] == [(), (), ()]
    assert placement.probed_by(2, frozenset({0})) == (C, A)  # not tied by a conjunct, but equal all the same
    assert placement.probed_by(0, frozenset({1, 2})) == (A, B)
    assert [placement.owners(0, 0, bucket_of(4, number)) for number in range(4)] == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize(
    "bucket, stays",
    [
        (WHOLE, None),
        (bucket_of(4, 1), 1),
        (bucket_of(8, 5), 1),
        (bucket_of(3, 1), None),
        (bucket_of(2, 1), None),
        (Bucket(4, 4, 1, (4,)), None),
    ],
)
def test_partial_results_stay_unless_chunks_lie_where_hashes_do_not_say(bucket: Bucket, stays: int | None) -> None:
    assert plan(4, view(2, (A, B), chunks=(chunk("x", bucket, 1),))).stays_after() == stays
    assert plan(1, view(2, (A, B), chunks=(chunk("x", bucket, 0),))).stays_after() == 1


def test_chunks_go_to_their_buckets_owner_and_others_keep_one() -> None:
    chunks = (
        chunk("at home", bucket_of(4, 3), 3),
        chunk("astray", bucket_of(4, 3), 1),
        chunk("of eight", bucket_of(8, 6), 6),
        chunk("whole", WHOLE, 2),
        chunk("copied", WHOLE, 7, 1),
    )
    state = view(2, (A, B), chunks=chunks)
    assert Hash(4).plan(state).moves == {"astray": (3,), "of eight": (2,), "copied": (3,)}


# -- different attributes


def test_a_stream_with_two_attributes_is_stored_by_both() -> None:
    placement = plan(3, view(3, (A, B), (B2, C2)))
    assert [placement.stored_by(stream) for stream in range(3)] == [(A,), (B, B2), (C2,)]
    assert placement.stays_after() is None
    assert placement.probed_by(1, frozenset({0})) == (B, A)
    assert placement.probed_by(1, frozenset({2})) == (B2, C2)
    assert placement.probed_by(1, frozenset({0, 2})) == (B, A)
    assert placement.probed_by(2, frozenset({0})) is None


def test_an_order_begins_so_that_each_hop_has_an_equality_to_go_by() -> None:
    chain = plan(3, view(4, (A, B), (B2, C2), (C, D)))
    assert [chain.lead(origin) for origin in range(4)] == [(1, 2), (2,), (1,), (2, 1)]
    star = plan(3, view(4, (A, B), (Column(0, 3), C), (Column(0, 4), D)))
    assert [star.lead(origin) for origin in range(4)] == [(), (0,), (0,), (0,)]
    apart = plan(3, view(4, (A, B), (C, D)))
    assert [apart.lead(origin) for origin in range(4)] == [(), (), (), ()]


# -- the rest


def test_slices_follow_the_time_that_tuples_are_kept() -> None:
    state = StateView((StreamView(40), StreamView(1), StreamView(None)), equalities=((A, B),))
    placement = plan(2, state)
    assert [placement.slice_length(stream) for stream in range(3)] == [10, 1, LONGEST_SLICE]
    assert [placement.owners(2, start * LONGEST_SLICE, WHOLE) for start in (-1, 0, 1)] == [(1,), (0,), (1,)]


def test_joins_without_equalities_are_refused() -> None:
    assert Hash(2).refusal(view(2, (A, B))) is None
    assert "no such equality" in (Hash(2).refusal(view(2)) or "")
    assert "has none for 'c'" in (Hash(2).refusal(view(3, (A, B))) or "")


def test_nodes_are_checked() -> None:
    with pytest.raises(DefinitionError, match="nodes=0"):
        Hash(0)


# -- through the engine

STREAMS = tuple(StreamSpec(name, SCHEMA, 1, windows.Sliding(1000), 0) for name in "abc")


def run_of(text: str, folder: str, streams: tuple[StreamSpec, ...] = STREAMS) -> Run:
    conjuncts = parse_where(text, [(s.name, s.schema) for s in streams], (), Dialect())
    return Run(Query(streams, conjuncts, text), Store(folder))


def rows(first: int, count: int) -> list[tuple[int, dict[str, Any]]]:
    return [
        (at % 3, {"id": at, "ts": at, "x": float(at * 7 % 11), "k": "pqrstuv"[at * 5 % 7]})
        for at in range(first, first + count)
    ]


def test_on_a_shared_attribute_no_partial_result_travels_after_the_first_hop(tmp_path: Any) -> None:
    run = run_of("a.k = b.k AND b.k = c.k", str(tmp_path))
    for batch in range(4):
        run.step(Hash(3), rows(30 * batch, 30), "shuffle")
    assert [p["strays"] for p in run.progress] == [0] * 4
    assert [p["stateRows"] - p["distinctRows"] for p in run.progress] == [0] * 4
    assert [hop["rowsShuffled"] for hop in run.progress[-1]["hops"]][1:] == [0]
    keys = [row["k"] for _, row in rows(0, 120)]
    expected = sum(a == b == c for a in keys[0::3] for b in keys[1::3] for c in keys[2::3])
    assert sum(p["outputRows"] for p in run.progress) == expected > 0


@pytest.mark.long
def test_after_another_number_of_nodes_partial_results_travel_until_the_old_chunks_are_gone(tmp_path: Any) -> None:
    streams = tuple(replace(stream, window=windows.Sliding(40)) for stream in STREAMS)
    run = run_of("a.k = b.k AND b.k = c.k", str(tmp_path), streams)
    hops = []
    for batch, strategy in enumerate([PSP(2), *[Hash(3)] * 5]):
        run.step(strategy, rows(30 * batch, 30), "shuffle")
        hops.append(run.progress[-1]["hops"][1]["rowsShuffled"] > 0)
    assert hops == [True, True, True, False, False, False]
    assert [p["strays"] for p in run.progress] == [0] * 6


@pytest.mark.long
@pytest.mark.parametrize("exchange", ["local", "shuffle"])
def test_of_a_chain_with_two_attributes_the_middle_is_kept_twice(tmp_path: Any, exchange: str) -> None:
    run = run_of("a.k = b.k AND b.x = c.x", str(tmp_path))
    for batch in range(3):
        run.step(Hash(3), rows(30 * batch, 30), exchange)
    assert [p["distinctRows"] for p in run.progress] == [30, 60, 90]
    assert [p["stateRows"] for p in run.progress] == [40, 80, 120]
    fields = [row for _, row in rows(0, 90)]
    expected = sum(
        a["k"] == b["k"] and b["x"] == c["x"] for a in fields[0::3] for b in fields[1::3] for c in fields[2::3]
    )
    assert sum(p["outputRows"] for p in run.progress) == expected > 0


def test_each_partial_result_visits_one_node_a_hop(tmp_path: Any) -> None:
    run = run_of("a.k = b.k AND b.x = c.x", str(tmp_path))
    run.step(Hash(4), rows(0, 90), "shuffle")
    first, second = run.progress[0]["hops"]
    assert first["rowsIn"] <= 90  # one visit for each new tuple, at most
    assert second["rowsIn"] <= first["matches"]


def test_text_is_hashed_whole() -> None:
    assert len(set(hashes(pa.array([f"https://example.com/{number}" for number in range(1000)])).tolist())) == 1000


def test_equal_texts_have_equal_hashes_whatever_stands_beside_them() -> None:
    texts = ["a", "a\0", "\0a", "", "\0", "a\0b", "é" * 200, "é" * 201, "x" * 256, "x" * 257, "12345678", "123456789"]
    alone = [hashes(pa.array([text])).tolist()[0] for text in texts]
    assert hashes(pa.array(texts)).tolist() == alone
    assert hashes(pa.array(["other", *texts, None]).slice(1, len(texts))).tolist() == alone
    assert hashes(pa.array([text.encode() for text in texts])).tolist() == alone
    assert len(set(alone)) == len(texts)
    assert len(hashes(pa.array([], pa.string()))) == 0


def test_text_with_nul_is_joined_under_hash(tmp_path: Any) -> None:
    run = run_of("a.k = b.k AND b.k = c.k", str(tmp_path))
    texts = ["a", "a\0", "b"]
    input_rows = [(s, {"id": 10 * s + n, "ts": n, "x": 0.0, "k": k}) for n, k in enumerate(texts) for s in range(3)]
    run.step(Hash(5), input_rows[:4])
    for row in input_rows[4:]:
        run.step(Hash(5), [row])
    assert sum(p["outputRows"] for p in run.progress) == 3


def test_text_and_numbers_of_different_types_meet() -> None:
    assert bucket(pa.array([1, 2], pa.int32()), 5).tolist() == bucket(pa.array([1.0, 2.0]), 5).tolist()
    assert bucket(pa.array(["p", "q"]), 5).tolist() == bucket(pa.array(["p", "q"]), 5).tolist()


strategies_of = st.one_of(
    st.integers(1, 5).map(Hash),
    st.integers(1, 5).map(Hash),
    st.integers(1, 4).map(PSP),
    st.builds(Scatter, st.integers(1, 5), st.integers(0, 1000)),
)


@st.composite
def equality_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Cases with equalities, on shared and on different attributes, under Hash and others by turns."""
    case: dict[str, Any] = draw(st.one_of(cases(), scattered()))
    third = ["", "b.x = c.x", "a.k = c.k AND near(b.x, c.x)"] if len(case["streams"]) > 2 else [""]
    case["where"] = [draw(st.sampled_from(["a.k = b.k", "a.k = b.k", ""])), draw(st.sampled_from(third))]
    case["strategies"] = [draw(strategies_of) for _ in case["batches"]]
    case["orderings"] = [draw(st.sampled_from([None, ScatterOrdering()])) for _ in case["batches"]]
    return case


@pytest.mark.long
@FEW
@given(case=equality_cases())
def test_hash_gives_the_oracles_results(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results


@pytest.mark.long
@FEW
@given(case=scattered(), nodes=st.lists(st.integers(1, 5), min_size=4, max_size=4), exchange=st.booleans())
def test_no_strays_on_a_shared_attribute(case: dict[str, Any], nodes: list[int], exchange: bool) -> None:
    case |= {"where": ["a.k = b.k", "a.k = c.k AND near(b.x, c.x)"], "orderings": [None] * len(case["batches"])}
    case["streams"] = [oracle.Stream(name, oracle.Sliding(5), 3) for name in "abc"]
    case["strategies"] = [Hash(count) for count in nodes[: len(case["batches"])]]
    with TemporaryDirectory() as folder:
        run, expected = run_case(case, folder)
        assert run.results == expected.results
        assert all(p["strays"] == 0 and p["stateRows"] == p["distinctRows"] for p in run.progress)
