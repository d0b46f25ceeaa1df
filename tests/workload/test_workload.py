"""The data makers: their shapes, rates, and what they promise about order and similarity."""

from __future__ import annotations

import doctest
import importlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet.workload import START, THRESHOLD, arrivals, gps, images, numbers, similar, write, zipf
from watersmeet.workload.images import differences, make_scenes, matrix, shape, similar_rows
from watersmeet.workload.tuples import SECOND


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", ["images", "tuples"])
def test_examples_in_docstrings(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"watersmeet.workload.{name}"))
    assert tried and not failed


def test_arrivals_are_poisson() -> None:
    times = arrivals(100, 100, rng())
    assert times.dtype == np.int64
    assert (np.diff(times) >= 0).all()
    assert times[0] >= START and times[-1] < START + 100 * SECOND
    assert abs(len(times) - 10_000) < 400
    per_second = np.bincount((times - START) // SECOND)
    assert 0.6 < per_second.var() / per_second.mean() < 1.6
    assert arrivals(100, 100, rng()).tolist() == times.tolist()


def test_arrivals_of_nothing() -> None:
    assert len(arrivals(0, 10, rng())) == len(arrivals(10, 0, rng())) == 0
    with pytest.raises(ValueError, match="rate and a length of at least 0"):
        arrivals(-1, 10, rng())


def test_keys_are_skewed_or_not() -> None:
    skewed, even = (make(1000, 20, rng()) for make in (zipf, gps))
    for table in (skewed, even):
        assert table.schema == pa.schema(
            [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("a", pa.int32()), ("b", pa.int32())]
        )
        keys = table["a"].to_numpy()
        assert keys.min() >= 1 and keys.max() <= 3000
    shares = [float((table["a"].to_numpy() <= 30).mean()) for table in (skewed, even)]
    assert 0.2 < shares[0] < 0.5 and shares[1] == pytest.approx(0.01, abs=0.005)


def test_numbers() -> None:
    table = numbers(50, 20, rng())
    assert table.schema == pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64())])
    x = table["x"].to_numpy()
    assert 0 <= x.min() < 50 and 950 < x.max() < 1000
    assert table["id"].to_pylist() == list(range(len(table)))


def test_images_match_one_time_in_ten() -> None:
    a, b = (images(10, 20, 500, rng(seed)) for seed in (1, 2))
    assert a.schema == pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("img", pa.binary())])
    ys = np.array(b["img"].to_pylist(), dtype=object)
    assert {len(y) for y in ys} == {1500}
    share = np.mean([similar(x.as_py(), ys).mean() for x in a["img"]])
    assert 0.07 < share < 0.13


def test_images_of_another_place_never_match() -> None:
    a, b = (images(2, 20, 500, rng(place), place=place) for place in (0, 1))
    ys = b["img"].to_pylist()
    assert sum(similar(x.as_py(), ys).sum() for x in a["img"]) < len(a) * len(b) / 100


def test_images_in_more_than_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("watersmeet.workload.images"), "_BLOCK_BYTES", 1000)
    table = images(10, 2, 100, rng())
    assert table["img"].num_chunks > 3
    assert {len(x.as_py()) for x in table["img"]} == {300}


def test_no_images() -> None:
    assert images(0, 1, 10, rng()).num_rows == 0
    with pytest.raises(ValueError, match="at least one pixel and one scene"):
        images(1, 1, 0, rng())


def test_scenes_are_far_apart() -> None:
    scenes = make_scenes(10, 1000)
    for i, scene in enumerate(scenes):
        others = np.delete(scenes, i, axis=0)
        assert (differences(scene, others) >= 2 * THRESHOLD * 3000).all()


@pytest.mark.parametrize(
    ("pixels", "expected"), [(10_000, (100, 100)), (5_000, (50, 100)), (20_000, (125, 160)), (7, (1, 7))]
)
def test_shape(pixels: int, expected: tuple[int, int]) -> None:
    assert shape(pixels) == expected


def test_similar_is_the_mean_absolute_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("watersmeet.workload.images"), "_CACHE_BYTES", 300)  # several blocks
    x, *ys = (rng(high).integers(0, high, 99, dtype=np.uint8) for high in range(30, 90))
    expected = [np.abs(x.astype(int) - y.astype(int)).mean() < THRESHOLD for y in ys]
    assert 0 < sum(expected) < len(expected)
    objects = np.array([y.tobytes() for y in ys], dtype=object)
    assert similar(x.tobytes(), objects).tolist() == expected
    assert similar_rows(x, np.stack(ys)).tolist() == expected
    assert similar(x.tobytes(), []).tolist() == []


def test_similar_is_strict_at_the_threshold() -> None:
    black = bytes(10)
    assert similar(black, [bytes([THRESHOLD] * 10), bytes([THRESHOLD] * 9 + [THRESHOLD - 1])]).tolist() == [False, True]
    assert similar(bytes([255] * 10), [black]).tolist() == [False]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_matrix_sees_the_bytes_of_a_column(kind: pa.DataType) -> None:
    column = pa.array([b"abc", b"def", b"ghi"], kind)
    assert [bytes(row) for row in matrix(column)] == [b"abc", b"def", b"ghi"]
    assert [bytes(row) for row in matrix(column.slice(1, 1))] == [b"def"]
    assert matrix(column.slice(0, 0)).shape == (0, 0)


@pytest.mark.parametrize("values", [[b"a", None], [b"a", b"bc"]])
def test_matrix_refuses_what_is_no_matrix(values: list[bytes | None]) -> None:
    with pytest.raises(ValueError, match="all be present and of one size"):
        matrix(pa.array(values, pa.binary()))


def test_files_hold_consecutive_stretches_of_time(tmp_path: Path) -> None:
    table = numbers(20, 60, rng())
    paths = write(table, tmp_path / "a", 5)
    assert len(paths) == 12
    assert [p.name for p in paths] == sorted(p.name for p in paths)
    assert all(p.stat().st_mtime < q.stat().st_mtime for p, q in pairwise(paths))
    for i, path in enumerate(paths):
        times = pq.read_table(path)["ts"].cast(pa.int64()).to_numpy() - START
        assert (times // (5 * SECOND) == i).all()
    assert pa.concat_tables(pq.read_table(p) for p in paths).equals(table)


def test_stretches_without_rows_get_empty_files(tmp_path: Path) -> None:
    times = pa.array([0, 11 * SECOND, 1], pa.int64()).cast(pa.timestamp("us"))
    paths = write(pa.table({"ts": times}), tmp_path, 5)
    assert [pq.read_table(p).num_rows for p in paths] == [2, 0, 1]


def test_no_rows_no_files(tmp_path: Path) -> None:
    assert write(numbers(0, 1, rng()), tmp_path, 5) == []


def test_files_refuse_a_used_folder(tmp_path: Path) -> None:
    write(numbers(20, 2, rng()), tmp_path, 1)
    with pytest.raises(FileExistsError, match="already holds Parquet files"):
        write(numbers(20, 2, rng()), tmp_path, 1)


def test_files_refuse_null_times_and_empty_stretches(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 rows have none"):
        write(pa.table({"ts": pa.array([None], pa.timestamp("us"))}), tmp_path, 5)
    with pytest.raises(ValueError, match="must be positive"):
        write(numbers(20, 2, rng()), tmp_path, 0)
