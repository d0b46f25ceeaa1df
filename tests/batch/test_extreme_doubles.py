"""Doubles near the largest, the smallest, infinities and NaN: no warning anywhere, and the oracle's results."""

from math import inf, isnan, nan
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from tests.batch.extremes import EXTREMES
from tests.batch.test_engine import ORDERINGS, PREDICATES, THIRD, run_case
from tests.budget import search
from watersmeet.ordering import Histogram
from watersmeet.ordering.histogram import EquiWidth, merge_zones
from watersmeet.placement import PSP
from watersmeet.predicate.numbers import hashes
from watersmeet.state.chunks.sorted_index import BINS, zone_of
from watersmeet.testing import oracle

LARGEST, SMALLEST = 1.7976931348623157e308, 5e-324
DOUBLES = st.sampled_from(
    [LARGEST, -LARGEST, 1.7e308, -1.7e308, 9e307, inf, -inf, SMALLEST, -SMALLEST, 2e-308, 0.0, -0.0, 1.0, 2.0]
)


def _less(one: float | None, two: float | None) -> bool | None:
    """Compare as Spark does, with NaN above all."""
    return None if one is None or two is None else not isnan(one) and (isnan(two) or one < two)


def _equal(one: float | None, two: float | None) -> bool | None:
    return None if one is None or two is None else one == two or (isnan(one) and isnan(two))


def _band(one: float | None, two: float | None) -> bool | None:
    return None if one is None or two is None else _less(abs(one - two), 1e308)


LESS, EQUAL = "a.x < b.x + 0.0", "a.x = b.x AND a.id <> b.id"
BAND, LAST = "abs(a.x - b.x) < 1e308", "b.x <= c.x"


def _last(r: Any) -> bool | None:
    less = _less(r["c"]["x"], r["b"]["x"])
    return None if less is None else not less


OWN: dict[str, Any] = {
    LESS: lambda r: _less(r["a"]["x"], r["b"]["x"]),
    EQUAL: lambda r: _equal(r["a"]["x"], r["b"]["x"]),
    BAND: lambda r: _band(r["a"]["x"], r["b"]["x"]),
}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    values = st.one_of(DOUBLES, st.none(), st.just(nan))
    row = st.tuples(st.sampled_from("abc"), st.integers(0, 5), values, st.just("p"))
    batches = [draw(st.lists(row, min_size=1, max_size=16)) for _ in range(3)]
    where = draw(st.sampled_from(sorted(OWN)))
    orderings = [draw(st.sampled_from([*ORDERINGS, Histogram()])) for _ in batches]
    return {
        "streams": [oracle.Stream(name, oracle.Sliding(20), 20) for name in "abc"],
        "batches": batches,
        "where": [where, LAST],
        "exchanges": ["local"] * 3,
        "strategies": [PSP(2)] * 3,
        "orderings": orderings,
        "limits": [draw(st.sampled_from(EXTREMES)) for _ in batches],
        "near_misses": 2,
    }


@pytest.mark.long
@search(20)
@given(case=cases())
def test_joins_of_extreme_doubles(case: dict[str, Any]) -> None:
    known = patch.dict(PREDICATES, OWN), patch.dict(THIRD, {LAST: _last})
    with known[0], known[1], TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert run.results == wanted.results


# -- histograms


@search(60)
@given(st.lists(st.one_of(DOUBLES, st.floats()), min_size=BINS, max_size=2 * BINS), st.lists(DOUBLES, min_size=2))
def test_histograms_of_extreme_doubles(values: list[float], asked: list[float]) -> None:
    zones = [(zone_of(pa.array(part, pa.float64())), len(part)) for part in (values, values[:3], asked)]
    found = merge_zones(zones, pa.float64())
    if found is None:
        return
    low, high = np.minimum(asked[:-1], asked[1:]), np.maximum(asked[:-1], asked[1:])
    assert np.isfinite(found.middles).all()
    assert ((found.low <= found.middles) & (found.middles <= found.high)).all()
    assert np.isfinite(found.within(low, high)).all()


def test_middles_of_the_largest_doubles_are_no_infinities() -> None:
    found = EquiWidth(1.6e308, 1.7e308, np.ones(4)).middles
    assert np.allclose(found / 1e308, [1.6125, 1.6375, 1.6625, 1.6875])
    assert EquiWidth(0.0, SMALLEST, np.ones(4)).middles.max() <= SMALLEST


def test_every_nan_has_one_hash() -> None:
    signalling = pa.array(np.array([0x7FF0000000000001, 0xFFF0000000000001], np.uint64).view(np.float64))
    assert {*hashes(signalling).tolist(), *hashes(pa.array([nan])).tolist()} == {int(hashes(pa.array([nan]))[0])}
    assert zone_of(signalling).nan
