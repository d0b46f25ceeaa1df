"""Blocks between hops: DuckDB's results may be open while others are asked for, and no block takes too many bytes."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.batch.extremes import ALWAYS_SCAN, NEVER_SCAN
from tests.budget import one_in
from watersmeet.errors import PredicateError
from watersmeet.limits import limited
from watersmeet.placement import Central, Hash
from watersmeet.predicate.model import Column, Conjunct, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.predicate.python import predicate
from watersmeet.probe import candidates, search
from watersmeet.probe.chunk_table import ChunkTable
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.partials import BlockBuffer, Partials
from watersmeet.query.query import Output, Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.state.chunks.chunk import widths
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.budget import AddressSpace
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.int32()), ("t", pa.string())])


@predicate(form="matrix")
def above(xs: Any, ys: Any) -> Any:
    return xs[:, None] + ys[None, :] > 0


def run_of(folder: Path, where: str, names: str) -> Run:
    streams = tuple(StreamSpec(name, SCHEMA, 1, Window(), 0) for name in names)
    conjuncts = parse_where(where, [(s.name, s.schema) for s in streams], (above,), Dialect())
    outputs = (Output("id", Column(0, 0)), Output("t", Column(1, 3)))
    return Run(Query(streams, conjuncts, where, outputs, (above,)), Store(str(folder)))


def rows_of(*sizes: int, text: str = "") -> list[tuple[int, dict[str, Any]]]:
    return [(s, {"id": n, "ts": n, "x": n, "t": f"{text}{n}"}) for s, size in enumerate(sizes) for n in range(size)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "sizes", "results"),
    [
        ("a.x < b.x AND b.x <> c.x", (600, 600, 2), 600 * 599 // 2 * 2 - 1),
        ("a.x <> b.x AND 1 / (b.x + a.x + 1) > 0", (400, 400), 400 * 399),
        ("a.x <> b.x AND above(a.x + 1, b.x + 1)", (600, 600), 600 * 599),
    ],
    ids=["a later hop", "a conjunct that may raise", "a predicate over an expression"],
)
def test_a_block_is_worked_on_while_its_scan_is_open(
    tmp_path: Path, where: str, sizes: tuple[int, ...], results: int
) -> None:
    run = run_of(tmp_path, where, "abc"[: len(sizes)])
    run.step(Central(), rows_of(*sizes))
    assert run.progress[0]["outputRows"] == results


def test_scans_can_be_open_at_once_and_are_closed_with_their_readers() -> None:
    duck = Duck(Dialect(time_zone="Asia/Tokyo"))
    column = {"x": pa.array(range(3000))}
    other = {"y": pa.array(range(3000))}
    one, two = (duck.join(column, other, ["x < y"], (3000, 3000)) for _ in range(2))
    assert len(next(one)[0]) and len(next(two)[0])
    assert duck.filter(column, ["x < 2"], 3000).tolist() == [0, 1]
    del one
    assert sum(len(left) for left, _ in two) > 0
    noon = {"t": pa.array([0], pa.timestamp("us", "UTC"))}
    assert [left.tolist() for left, _ in duck.join(noon, {}, ["hour(t) = 9"], (1, 1))] == [[0]]  # a cursor's zone, too


def test_an_error_of_the_one_who_reads_a_scan_is_his_own() -> None:
    pairs = Duck(Dialect()).join({"x": pa.array([1])}, {"y": pa.array([2])}, ["x < y"], (1, 1))
    with pytest.raises(pa.ArrowInvalid, match="mine"):
        for _ in pairs:
            raise pa.ArrowInvalid("mine")


def test_what_is_no_fault_of_a_conjunct_is_not_blamed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise duckdb.OutOfMemoryException("no more")

    duck = Duck(Dialect())
    monkeypatch.setattr(duck, "filter", full)
    conjunct = Conjunct("x > 0", "x > 0", (Column(0, 0),), raises=True)
    with pytest.raises(duckdb.OutOfMemoryException, match="no more"):
        duck.check({"x": pa.array([1])}, conjunct, 1, {})
    with pytest.raises(duckdb.OutOfMemoryException, match="no more"):
        duck.attempt({"x": pa.array([1])}, ["x > 0"], 1)


def test_a_scan_that_raises_says_so() -> None:
    pairs = Duck(Dialect()).join({"x": pa.array(["1", "no"])}, {"y": pa.array([2])}, ["x::INT < y"], (2, 1))
    with pytest.raises(PredicateError, match=r"`where` raised .*no.*; the batch was not written"):
        list(pairs)


SIZE, LONG, MOST = 16, 1000, 5000


@pytest.mark.long
@pytest.mark.parametrize("scans", [ALWAYS_SCAN, NEVER_SCAN], ids=["scan", "no scan"])
@pytest.mark.parametrize(
    ("where", "results"),
    [
        ("length(a.t) > 5", SIZE * SIZE),
        ("a.t = b.t", SIZE),
        ("a.t >= b.t AND a.t <= b.t", SIZE),
        ("length(concat(a.t, b.t)) > 5 AND a.x = b.x", SIZE),
        ("length(concat(a.t, b.t)) / a.x > 0", SIZE * SIZE - SIZE),
        ("(above(a.x, b.x) OR a.t < b.t) AND a.x = b.x", SIZE - 1),
    ],
)
@pytest.mark.parametrize("exchange", one_in(2, ["local", "shuffle"]))
def test_blocks_are_cut_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, results: int, scans: dict[str, Any], exchange: str
) -> None:
    sizes: list[int] = []
    gather = ChunkTable.gather

    def watched(self: ChunkTable, column: Column, refs: Any) -> pa.Array:
        values = gather(self, column, refs)
        sizes.append(values.nbytes if pa.types.is_string(values.type) else 0)
        return values

    monkeypatch.setattr(ChunkTable, "gather", watched)
    run = run_of(tmp_path, where, "ab")
    rows = rows_of(SIZE, SIZE, text="é" * (LONG // 2))
    if "/" in where:
        rows = [(s, row) for s, row in rows if s or row["x"]]
    with limited(block_bytes=MOST, output_bytes=MOST, **scans):
        run.step(Hash(2) if where == "a.t = b.t" else Central(), rows, exchange)
    assert run.progress[0]["outputRows"] == results
    assert LONG < max(sizes) <= MOST + 4 * MOST // LONG + 8  # the texts, and where each begins


def test_candidates_are_made_by_the_bytes_that_they_carry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    pairs = candidates.expand_pairs

    def watched(path: Any, most: int) -> Any:
        for block in pairs(path, most):
            sizes.append(len(block[0]))
            yield block

    monkeypatch.setattr(search, "expand_pairs", watched)
    run = run_of(tmp_path, "a.x <> b.x", "ab")
    with limited(block_bytes=MOST, **NEVER_SCAN):
        run.step(Central(), rows_of(100, 100))
    assert run.progress[0]["outputRows"] == 100 * 99
    assert 1 < max(sizes) <= MOST // search.FIXED


def test_blocks_are_full_by_rows_or_by_bytes() -> None:
    zeros = np.zeros(4, np.int64)
    block = Partials(
        (0,), {0: zeros}, zeros, zeros, zeros, zeros, zeros, columns={Column(0, 3): pa.array(["x" * LONG] * 4)}
    )
    for limit, full in (({"block_rows": 8}, True), ({"block_bytes": 8 * LONG}, True), ({"block_rows": 9}, False)):
        with limited(**limit):
            waiting = BlockBuffer()
            assert not waiting.add(block) and waiting.add(block) == full
            assert len(waiting.drain()) == 8 and not waiting


def test_new_rows_are_spooled_by_bytes(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a.t = b.t", "ab")
    with limited(spool_bytes=MOST, block_bytes=MOST):
        run.step(Central(), rows_of(SIZE, SIZE, text="x" * LONG))
    manifest = manifests.load(run.store, 0)
    assert manifest is not None and max(chunk.bytes for chunk in manifest.chunks.values()) < MOST + 100


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array(["", "é", None, "abc"]), [0, 2, 0, 3]),
        (pa.array([b"xy", b""], pa.large_binary()), [2, 0]),
        (pa.array([[1.0] * 100, [], None]), [900, 0, 0]),
        (pa.array([{"t": "abcd", "n": 1}, {"t": "", "n": 2}]), [13, 9]),
    ],
    ids=str,
)
def test_widths_of_values(values: pa.Array, expected: list[int]) -> None:
    sizes = widths(values, np.arange(len(values)))
    assert (abs(sizes - np.array(expected)) <= np.array(expected) // 4 + 2).all(), sizes
    again = widths(values.slice(1), np.arange(len(values) - 1))
    assert pa.types.is_nested(values.type) or again.tolist() == sizes[1:].tolist()


# -- DuckDB's memory


@pytest.mark.parametrize(
    ("limited", "expected"),
    [(None, 256_000_000), (AddressSpace(2 << 30, 1 << 30), 256_000_000), (AddressSpace(1 << 30, 768 << 20), 64 << 20),
     (AddressSpace(1 << 30, 1 << 30), 32_000_000)],
)  # fmt: skip
def test_duckdb_takes_no_more_than_a_part_of_a_limited_address_space(
    monkeypatch: pytest.MonkeyPatch, limited: AddressSpace | None, expected: int
) -> None:
    monkeypatch.setattr("watersmeet.probe.evaluators.duck.address_space", lambda: limited)
    limit = Duck(Dialect())._connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]
    assert float(limit.removesuffix(" MiB")) * 2**20 == pytest.approx(expected, rel=0.01)


def test_what_duckdb_has_no_memory_for_goes_to_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watersmeet.probe.evaluators.duck.MEMORY", 24_000_000)
    rows, folder = 400_000, tmp_path / "made" / "duckdb"
    duck, values = Duck(Dialect(), folder), pa.array([f"{number:060}" for number in range(400_000)])
    pairs = duck.join({"x": values}, {"y": values}, ["x = y"], (rows, rows))
    assert len(next(pairs)[0]) and any(folder.iterdir())
    assert sum(len(left) for left, _ in pairs)


def test_duckdb_starts_no_threads() -> None:
    before = len([*Path("/proc/self/task").iterdir()])
    duck = Duck(Dialect())
    assert duck.filter({"x": pa.array([1, 2])}, ["x > 1"], 2).tolist() == [1]
    assert len([*Path("/proc/self/task").iterdir()]) == before
