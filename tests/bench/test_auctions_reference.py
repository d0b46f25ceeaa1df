"""What a join of auctions must keep, against the rule spelled out row by row, and its results, against a plain loop."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from bench.metadata.reference import Needed, Outcome, batches, differences, needed, outcome, reference
from watersmeet.workload import auctions, write_batches
from watersmeet.workload.auctions import Batch, Ids

Row = tuple[str, int, int]
"""Stream, auction, and a number that tells rows apart."""

STREAMS = ("auctions", "bids", "payments")
events = st.tuples(st.sampled_from([*STREAMS, "ends"]), st.integers(0, 2))
stories = st.lists(st.lists(events, max_size=6), max_size=6)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def as_batch(story: list[tuple[str, int]]) -> Batch:
    keys = {kind: [key for name, key in story if name == kind] for kind in (*STREAMS, "ends")}
    flags = pa.array([None] * len(keys["bids"]) + [True] * len(keys["ends"]), pa.bool_())
    return Batch(
        pa.table({"id": pa.array(keys["auctions"], pa.int64())}),
        pa.table({"auction": pa.array(keys["bids"] + keys["ends"], pa.int64()), "is_end": flags}),
        pa.table({"auction": pa.array(keys["payments"], pa.int64())}),
    )


def is_dead(members: dict[str, Row], stored: set[Row], denied: set[tuple[str, int]]) -> bool:
    """Complete, or a stream is closed to it and every stored row of that which matches makes a dead one."""
    key = next(iter(members.values()))[1]
    return len(members) == len(STREAMS) or any(
        (name, key) in denied
        and all(is_dead({**members, name: u}, stored, denied) for u in stored if u[:2] == (name, key))
        for name in STREAMS
        if name not in members
    )


def literally(story: list[list[tuple[str, int]]]) -> list[Needed]:
    stored, denied, counts, number = set[Row](), set[tuple[str, int]](), [], 0
    for batch in story:
        closed = set(denied)
        for name, key in batch:
            number += 1
            if name == "ends":
                denied.add(("bids", key))
            elif (name, key) not in closed:
                stored.add((name, key, number))
            if name in ("auctions", "payments"):
                denied.add((name, key))
        stored -= {row for row in stored if is_dead({row[0]: row}, stored, denied)}
        tally = Counter(row[0] for row in stored)
        counts.append(Needed(*(tally[name] for name in STREAMS)))
    return counts


@settings(deadline=None)
@given(stories)
def test_needed_is_the_rule_of_dead_rows(story: list[list[tuple[str, int]]]) -> None:
    assert needed(as_batch(batch) for batch in story) == literally(story)


@pytest.mark.parametrize(
    ("story", "counts"),
    [
        ([["auctions"], ["bids", "ends"], ["payments"]], [(1, 0, 0), (1, 1, 0), (0, 0, 0)]),
        ([["auctions", "bids"], ["payments"], ["bids"], ["ends"]], [(1, 1, 0), (1, 0, 1), (1, 0, 1), (0, 0, 0)]),
        ([["auctions"], ["ends"], ["payments"]], [(1, 0, 0), (0, 0, 0), (0, 0, 0)]),
        ([["ends"], ["bids"], ["auctions"]], [(0, 0, 0), (0, 0, 0), (0, 0, 0)]),
        ([["payments"], ["bids", "ends"], ["auctions"]], [(0, 0, 1), (0, 1, 1), (0, 0, 0)]),
    ],
)
def test_stories_of_one_auction(story: list[list[str]], counts: list[tuple[int, int, int]]) -> None:
    told = needed(as_batch([(name, 7) for name in batch]) for batch in story)
    assert told == [Needed(*figures) for figures in counts]


def test_needed_of_nothing() -> None:
    assert needed([]) == []
    assert needed([as_batch([])]) == [Needed(0, 0, 0)]


def test_needed_stays_small() -> None:
    made = list(auctions(10, 1200, rng()))
    counts = needed(made)
    assert max(count.total for count in counts) < sum(t.num_rows for b in made for t in b.tables.values()) / 10
    assert {count.payments for count in counts} == {0}
    assert counts[-1].auctions == pytest.approx(10 * 75, rel=0.15)


@pytest.fixture(scope="module", params=["integer", "uuid"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    ids: Ids = request.param
    folder = tmp_path_factory.mktemp(ids)
    write_batches(auctions(2, 120, rng(), ids=ids, bids=3), folder)
    return folder


def results(folder: Path) -> list[dict[str, Any]]:
    opened, bids, paid = (pq.read_table(folder / name).to_pylist() for name in STREAMS)
    shown = []
    for a, b in product(opened, [bid for bid in bids if not bid["is_end"]]):
        for p in paid if a["id"] == b["auction"] else ():
            if a["id"] == p["auction"]:
                row = {"auction": a["id"], "seller": a["seller"], "bid_ts": b["ts"], "price": b["price"]}
                shown.append({**row, "bidder": b["bidder"], "amount": p["amount"]})
    return shown


def test_the_files_are_the_batches(files: Path) -> None:
    read = list(batches(files))
    assert len(read) == 24
    assert sum(batch.auctions.num_rows for batch in read) == pq.read_table(files / "auctions").num_rows


def test_reference_is_the_join(files: Path, tmp_path: Path) -> None:
    rows = results(files)
    pq.write_table(pa.Table.from_pylist(rows[::-1]), tmp_path / "x.parquet")
    assert reference(files) == outcome(tmp_path)
    assert reference(files).count == len(rows) > 100
    assert differences(files, tmp_path) == (0, 0)


def test_what_is_missing_or_too_many_is_seen(files: Path, tmp_path: Path) -> None:
    rows = results(files)
    pq.write_table(pa.Table.from_pylist([*rows[2:], rows[5]]), tmp_path / "x.parquet")
    assert differences(files, tmp_path) == (2, 1)
    assert outcome(tmp_path).content != reference(files).content


def test_one_value_changes_the_content(files: Path, tmp_path: Path) -> None:
    rows = results(files)
    rows[3]["price"] += 1
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    assert outcome(tmp_path) != reference(files)
    assert outcome(tmp_path).count == reference(files).count


def test_no_results(tmp_path: Path) -> None:
    write_batches(auctions(1, 5, rng()), tmp_path)
    assert reference(tmp_path) == Outcome(0, 0)
