"""The paper's baselines: without their optimisations ATR and CTR are as exact, unaware routing loses results."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from bench.common import band_files
from papers.diffusion.baselines import CtrUnoptimised, RandomHoldings, atr_unoptimised, diffuse, unaware
from tests.batch.test_engine import cases, run_case
from tests.budget import FEW
from watersmeet.cost.load import NodeLoads
from watersmeet.state.manifest.view import StateView, StreamView

SECOND = 1_000_000
strategies = st.one_of(
    st.builds(CtrUnoptimised, st.integers(1, 5), st.just("5 us"), seed=st.integers(0, 99)),
    st.builds(atr_unoptimised, st.integers(1, 5), st.just("5 us")),
)


@FEW
@given(case=cases(), data=st.data())
def test_the_unoptimised_give_the_oracles_results(case: dict[str, Any], data: st.DataObject) -> None:
    case["strategies"] = [data.draw(strategies) for _ in case["batches"]]
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert run.results == wanted.results


@given(st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=4).map(tuple), max_size=20), st.integers())
def test_a_random_cover_covers(sets: list[tuple[int, ...]], seed: int) -> None:
    held = RandomHoldings(StateView((StreamView(10),)), 8, Random(seed))
    for owners in sets:
        held.add(0, owners)
    nodes, new = held.cover(0, (3,), NodeLoads((1.0,) * 8, 1.0))
    assert all(set(nodes) & set(owners) for owners in sets)
    assert len(set(nodes)) == len(nodes) and new == len(set(nodes) - {3})


def test_unaware_routing_loses_results(tmp_path: Path) -> None:
    files = band_files(tmp_path / "files", rate=10, seconds=30)
    alone, two, four = (unaware(files, tmp_path / f"{nodes}", 40.0, nodes) for nodes in (1, 2, 4))
    assert alone.matches == alone.results > 0
    assert 0 < four.matches < two.matches < alone.matches
    assert four.results == alone.results


def test_each_tuple_goes_to_the_node_that_has_looked_at_fewest_pairs() -> None:
    sent = diffuse({"a": np.array([0, 1, 2, 20 * SECOND]), "b": np.array([3])}, 2)
    assert {name: nodes.tolist() for name, nodes in sent.items()} == {"a": [0, 1, 0, 0], "b": [1]}
