"""What users test their own joins with."""

import doctest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet import testing
from watersmeet.placement import Hash, Layout, Placement, Strategy
from watersmeet.predicate.model import Column
from watersmeet.state.chunks.chunk import Bucket
from watersmeet.state.manifest.view import StateView
from watersmeet.testing import check_strategy, compare


def test_the_examples_hold() -> None:
    assert doctest.testmod(compare).failed == 0


def test_files_come_in_the_order_written_also_when_more_are_added(tmp_path: Path) -> None:
    made = testing.write_batches(tmp_path, [pa.table({"x": [1]}), pa.table({"x": pa.array([], pa.int64())})])
    made += testing.write_batches(tmp_path, [pa.table({"x": [3]})])
    assert [path.name for path in made] == ["00000.parquet", "00001.parquet", "00002.parquet"]
    by_age = sorted(tmp_path.glob("*"), key=lambda path: path.stat().st_mtime)
    assert by_age == made
    assert [pq.read_table(path)["x"].to_pylist() for path in made] == [[1], [], [3]]
    assert compare.__doc__


class Mistaken(Strategy):
    """Believes every pair of streams to be joined by an equality."""

    nodes = 3

    def plan(self, state: StateView) -> Layout[Placement]:
        return Layout(_Mistaken(self.nodes))


class _Mistaken(Placement):
    def __init__(self, nodes: int) -> None:
        self.nodes = nodes

    def slice_length(self, stream: int) -> int:
        return 10

    def owners(self, stream: int, start: int, bucket: Bucket) -> tuple[int, ...]:
        return (bucket.number % self.nodes,)

    def stored_by(self, stream: int) -> tuple[Column, ...]:
        return (Column(stream, 2),)

    def probed_by(self, target: int, joined: frozenset[int]) -> tuple[Column, Column] | None:
        return Column(target, 2), Column(min(joined), 2)


@pytest.mark.long
def test_a_strategy_that_loses_results_is_found() -> None:
    with pytest.raises(AssertionError, match=r"results missing, 0 too many .*seed=\d+, rounds=1 repeats it"):
        check_strategy(Mistaken(), rounds=6)


@pytest.mark.long
def test_a_strategy_that_serves_nothing_was_not_checked() -> None:
    with pytest.raises(ValueError, match="refused all joins"):
        check_strategy(Hash(2), rounds=1, seed=next(at for at in range(20) if not _equal(at)))


def _equal(seed: int) -> bool:
    try:
        check_strategy(Hash(2), rounds=1, seed=seed)
    except ValueError:
        return False
    return True
