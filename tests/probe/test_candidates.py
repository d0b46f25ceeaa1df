"""Pairs of an access path: all, block by block, or some from all over it."""

import numpy as np
import pytest

from watersmeet.probe.candidates import AccessPath, expand_pairs, sample_pairs


def path_of(*runs: tuple[int, int], order: list[int] | None = None) -> AccessPath:
    first, count = (np.array([run[at] for run in runs], np.int64) for at in range(2))
    return AccessPath(first, count, None if order is None else np.array(order))


@pytest.mark.parametrize("order", [None, [3, 1, 0, 2, 4]])
def test_all_pairs_if_there_are_few(order: list[int] | None) -> None:
    path = path_of((1, 2), (0, 0), (2, 3), (4, 1), (0, 0), order=order)
    every = [(int(one), int(row)) for block in expand_pairs(path, 4) for one, row in zip(*block, strict=True)]
    assert len(every) == 6
    for most in (6, 7, 100):
        partial, row = sample_pairs(path, most)
        assert [*zip(partial.tolist(), row.tolist(), strict=True)] == every
    partial, row = sample_pairs(path, 4)
    assert 2 <= len(partial) <= 4 and {*zip(partial.tolist(), row.tolist(), strict=True)} < {*every}
    assert len({*zip(partial.tolist(), row.tolist(), strict=True)}) == len(partial)


def test_no_pairs() -> None:
    for path in (path_of(), path_of((3, 0))):
        partial, row = sample_pairs(path, 5)
        assert len(partial) == len(row) == 0


def test_some_pairs_are_of_many_partial_results_and_many_rows() -> None:
    runs = 512
    partial, row = sample_pairs(path_of(*[(0, 1000)] * runs), runs)  # as many pairs as runs, all of the same length
    assert len(partial) > 0.9 * runs
    assert len(np.unique(partial)) > 0.4 * runs and len(np.unique(row)) > 0.2 * runs
    assert partial.min() < 10 and partial.max() > runs - 10 and row.min() < 50 and row.max() > 950
