"""Auctions: what their rows promise, that they are the same however they are cut, and how they are fed."""

from __future__ import annotations

import doctest
import importlib
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from watersmeet.workload import START, auctions, feed, write_batches
from watersmeet.workload.auctions import MEAN_LIFE, PAID_AFTER, SPREAD, Batch, lives
from watersmeet.workload.tuples import SECOND, TIME

STREAMS = ("auctions", "bids", "payments")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def whole(rate: float, seconds: float, **options: Any) -> Batch:
    """All batches as one."""
    batches = list(auctions(rate, seconds, rng(), **options))
    return Batch(**{name: pa.concat_tables(batch.tables[name] for batch in batches) for name in STREAMS})


def micros(table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(table["ts"].cast(pa.int64()).to_numpy())


def frames(batch: Batch) -> list[Any]:
    """The three streams in pandas, their times in microseconds."""
    return [t.set_column(1, "ts", t["ts"].cast(pa.int64())).to_pandas() for t in batch.tables.values()]


def test_examples_in_docstrings() -> None:
    failed, tried = doctest.testmod(importlib.import_module("watersmeet.workload.auctions"))
    assert tried and not failed


def test_lives_are_lognormal() -> None:
    seconds = lives(2_000_000, rng()) / SECOND
    assert seconds.mean() == pytest.approx(MEAN_LIFE, rel=0.03)
    assert np.log(seconds).std() == pytest.approx(SPREAD, rel=0.01)
    assert seconds.min() > 0 and (seconds > 3600).mean() == pytest.approx(1 / 900, rel=0.1)


@pytest.mark.parametrize(("ids", "kind"), [("integer", pa.int64()), ("uuid", pa.string())])
def test_columns(ids: Any, kind: pa.DataType) -> None:
    batch = whole(5, 60, ids=ids)
    assert batch.auctions.schema == pa.schema(
        [("id", kind), ("ts", TIME), ("seller", pa.int32()), ("category", pa.int32())]
    )
    assert batch.bids.schema == pa.schema(
        [("auction", kind), ("ts", TIME), ("price", pa.int64()), ("bidder", pa.int32()), ("is_end", pa.bool_())]
    )
    assert batch.payments.schema == pa.schema([("auction", kind), ("ts", TIME), ("amount", pa.int64())])


def test_what_the_streams_promise_is_true() -> None:
    opens, bids, payments = frames(whole(20, 600))
    ends = bids[bids.is_end].set_index("auction")
    real = bids[~bids.is_end]
    assert opens.id.is_unique and ends.index.is_unique and payments.auction.is_unique
    assert set(bids.auction) <= set(opens.id) and set(payments.auction) <= set(ends.index)
    assert (real.ts >= opens.set_index("id").ts.loc[real.auction].to_numpy()).all()
    over = real[real.auction.isin(ends.index)]
    assert (over.ts <= ends.ts.loc[over.auction].to_numpy()).all()
    assert (payments.ts - ends.ts.loc[payments.auction].to_numpy() == PAID_AFTER * SECOND).all()
    assert (payments.set_index("auction").amount == real.groupby("auction").price.max().loc[payments.auction]).all()
    assert ends.price.isna().all() and ends.bidder.isna().all() and real.notna().all(axis=None)
    assert len(opens) == pytest.approx(12_000, rel=0.05)
    assert over.groupby("auction").size().mean() == pytest.approx(20, rel=0.02)


def test_bids_are_spread_over_the_life() -> None:
    opens, bids, _ = frames(whole(20, 600))
    ends = bids[bids.is_end].set_index("auction").ts
    real = bids[~bids.is_end & bids.auction.isin(ends.index)]
    opens = opens.set_index("id").ts.loc[real.auction].to_numpy()
    shares = np.histogram((real.ts - opens) / (ends.loc[real.auction].to_numpy() - opens), 10, (0, 1))[0] / len(real)
    assert shares == pytest.approx([0.1] * 10, abs=0.005)


def test_an_end_comes_after_all_bids_of_its_moment() -> None:
    for batch in auctions(200, 30, rng()):
        ends = batch.bids["is_end"].to_numpy()
        keys = list(zip(micros(batch.bids).tolist(), ends.tolist(), strict=True))
        assert keys == sorted(keys)


def test_auctions_without_bids_are_not_paid() -> None:
    batch = whole(20, 300, bids=0.5)
    bids = batch.bids.filter(pc.invert(batch.bids["is_end"]))
    assert set(batch.payments["auction"].to_pylist()) <= set(bids["auction"].to_pylist())
    assert batch.payments.num_rows < 0.6 * batch.auctions.num_rows


@pytest.mark.parametrize("seconds_per_batch", [1.0, 7.0, 1000.0])
def test_batches_cut_the_same_rows(seconds_per_batch: float) -> None:
    plain, parts = whole(10, 130), whole(10, 130, seconds_per_batch=seconds_per_batch)
    assert all(plain.tables[name].equals(parts.tables[name]) for name in STREAMS)


def test_batches_hold_their_stretch_of_time() -> None:
    batches = list(auctions(10, 62, rng()))
    assert len(batches) == 13
    for number, batch in enumerate(batches):
        for table in batch.tables.values():
            assert (((micros(table) - START) // (5 * SECOND)) == number).all()
    assert max(micros(table).max() for table in batches[-1].tables.values()) < START + 62 * SECOND


def test_ids_are_all_that_uuids_change() -> None:
    plain, uuids = whole(5, 130), whole(5, 130, ids="uuid")
    texts = uuids.auctions["id"].to_pylist()
    assert len(set(texts)) == len(texts)
    assert all(uuid.UUID(text).version == 4 and str(uuid.UUID(text)) == text for text in texts)
    names = dict(zip(plain.auctions["id"].to_pylist(), texts, strict=True))
    assert [names[n] for n in plain.bids["auction"].to_pylist()] == uuids.bids["auction"].to_pylist()
    for name in STREAMS:
        one, other = (batch.tables[name].drop_columns([batch.tables[name].column_names[0]]) for batch in (plain, uuids))
        assert one.equals(other)


def test_no_auctions() -> None:
    batches = list(auctions(0, 10, rng()))
    assert [sum(table.num_rows for table in batch.tables.values()) for batch in batches] == [0, 0]
    assert list(auctions(5, 0, rng())) == []


@pytest.mark.parametrize("wrong", [{"seconds_per_batch": 0}, {"bids": -1}, {"ids": "names"}])
def test_impossible_auctions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="batches longer than 0 s, at least 0 bids each and ids that are one of"):
        next(auctions(1, 10, rng(), **wrong))


def test_files_keep_the_streams_in_step(tmp_path: Path) -> None:
    rows = write_batches(auctions(10, 60, rng()), tmp_path)
    assert len(rows) == 12
    batch = whole(10, 60)
    for name in STREAMS:
        paths = sorted((tmp_path / name).iterdir())
        assert [path.name for path in paths] == [f"{number:05d}.parquet" for number in range(12)]
        assert all(p.stat().st_mtime + 0.99 < q.stat().st_mtime for p, q in pairwise(paths))
        assert pa.concat_tables(pq.read_table(path) for path in paths).equals(batch.tables[name])
    assert pq.read_table(tmp_path / "payments" / "00000.parquet").num_rows == 0


def test_files_refuse_a_used_folder(tmp_path: Path) -> None:
    write_batches(auctions(1, 5, rng()), tmp_path)
    with pytest.raises(FileExistsError, match="already holds Parquet files"):
        write_batches(auctions(1, 5, rng()), tmp_path)


def test_batches_are_fed_at_their_time(tmp_path: Path) -> None:
    now, files = [100.0], list[tuple[float, int]]()

    def sleep(seconds: float) -> None:
        files.append((now[0], len(list(tmp_path.glob("*/*.parquet")))))
        now[0] += seconds + 0.5 * (len(files) == 2)

    behind = feed(auctions(5, 20, rng()), tmp_path, speed=10, clock=lambda: now[0], sleep=sleep)
    assert files == [(100.0, 0), (100.5, 3), (101.5, 6), (101.5, 9)]
    assert now[0] == 102.0
    assert behind == 0.0
    assert len(list(tmp_path.glob("*/*"))) == 12


def test_feeding_says_how_far_it_fell_behind(tmp_path: Path) -> None:
    ticks = iter([0.0, 3.0, 9.0])
    assert feed(auctions(5, 10, rng()), tmp_path, speed=5, clock=lambda: next(ticks), sleep=lambda _: None) == 7.0


def test_feeding_refuses_no_speed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a speed above 0"):
        feed([], tmp_path, speed=0)
