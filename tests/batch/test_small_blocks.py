"""Blocks of few rows, or of none: what they are decided by must not matter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import PredicateError
from watersmeet.limits import limited
from watersmeet.placement import PSP, Central, Strategy
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.probe.partials import Partials, concat, uniform
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("n", pa.int64()), ("s", pa.string())]
)
STREAMS = tuple(StreamSpec(name, SCHEMA, 1, Sliding(1000), 0) for name in "ab")
Row = tuple[int, dict[str, Any]]


def row(stream: int, id: int, ts: int, **values: Any) -> Row:
    return stream, {"id": id, "ts": ts, "x": 0.0, "n": 0, "s": ""} | values


def run_of(folder: Path, where: str, how: str = "inner", on: bool = False) -> Run:
    conjuncts = parse_where(where, [(stream.name, stream.schema) for stream in STREAMS], (), Dialect())
    if on:
        conjuncts = tuple(conjunct.after_on((0, 1)) for conjunct in conjuncts)
    return Run(Query(STREAMS, conjuncts, where, (), (), how=("inner", how)), Store(str(folder)))  # type: ignore[arg-type]


@pytest.mark.parametrize("exchange", ["driver", "local", "shuffle"])
@pytest.mark.parametrize("strategy", [Central(), PSP(2)])
def test_all_pairs_are_left_to_spark(tmp_path: Path, strategy: Strategy, exchange: str) -> None:
    """Then a condition that may raise is decided for none of them."""
    run = run_of(tmp_path, "exp(a.x) <= exp(b.x) AND 1 / (a.n + b.n) > 0")
    run.step(strategy, [row(0, 0, 1, x=1.5, n=1), row(1, 1, 2, x=1.5, n=1)], exchange)
    assert run.state is not None and not run.results


def test_blocks_of_none_are_put_together_with_others() -> None:
    def block(length: int, here: int) -> Partials:
        ts = np.arange(length)
        return Partials((0,), {0: ts}, ts, ts, ts, uniform(here, length), uniform(7, length))

    assert concat([block(0, 1), block(2, 1)]).here.tolist() == [1, 1]
    assert concat([block(2, 1), block(1, 2)]).here.tolist() == [1, 1, 2]
    assert concat([block(0, 1), block(0, 1)]).here.tolist() == []


@pytest.mark.parametrize("block_bytes", [30, 1 << 20])
def test_a_sum_that_overflows_in_a_later_piece_of_a_block_raises(tmp_path: Path, block_bytes: int) -> None:
    run = run_of(tmp_path, "a.n + b.n < 3 AND a.s = b.s")
    text, sums = "p" * 20, [1, 2**63 - 1, 2, 3]
    with limited(block_bytes=block_bytes):
        run.step(Central(), [row(0, 100 + at, 1 + at, n=5 + at, s=text) for at in range(8)])
        with pytest.raises(PredicateError, match="n"):
            run.step(Central(), [row(1, at, 50 + at, n=n, s=text) for at, n in enumerate(sums)])


@pytest.mark.parametrize("how", ["left", "anti", "semi"])
@pytest.mark.parametrize("where", ["1 > 2 AND a.x <= b.x", "5 BETWEEN 6 AND 7 AND a.x + b.x < 4"])
def test_constants_decide_about_whole_blocks(tmp_path: Path, where: str, how: str) -> None:
    run = run_of(tmp_path, where, how, on=True)
    rows: Sequence[Row] = [row(at % 2, at, at, x=None if at % 3 == 0 else float(at)) for at in range(12)]
    with limited(scan_setup=float("inf")):
        run.step(Central(), rows)
        run.finish(Central())
    assert len(run.results) == (0 if how == "semi" else 6)
