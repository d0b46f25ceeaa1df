"""Great-circle distances are looked up by latitude: no pair within the limit is left out, whatever the coordinates."""

from collections import Counter
from dataclasses import replace
from math import inf, nan, pi, radians
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tests.probe.test_access_paths import proposals
from watersmeet.metadata.closing import ClosingRules
from watersmeet.metadata.constraints import SortOrder
from watersmeet.placement import PSP
from watersmeet.predicate.model import Column, Conjunct, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("lat", pa.float64()), ("lon", pa.float64())),
        *(("rlat", pa.float64()), ("rlon", pa.float64()), ("flat", pa.float32()), ("flon", pa.float32())),
        *(("dlat", pa.decimal128(9, 6)), ("dlon", pa.decimal128(9, 6)), ("reach", pa.float64())),
    ]
)
STREAMS = [("a", SCHEMA), ("b", SCHEMA)]
HAVERSINE = (
    "pow(sin(radians(b.lat - a.lat) / 2), 2) + "
    "cos(radians(a.lat)) * cos(radians(b.lat)) * pow(sin(radians(b.lon - a.lon) / 2), 2)"
)
SQUARED = (
    "cos(radians(a.lat)) * sin(radians(a.lon - b.lon) / 2) * sin(radians(a.lon - b.lon) / 2) * cos(radians(b.lat)) "
    "+ sin((radians(a.lat) - radians(b.lat)) * 0.5) * sin((radians(a.lat) - radians(b.lat)) * 0.5)"
)
BY_HAND = (
    "power(sin((b.lat - a.lat) * pi() / 180 / 2), 2) + power(sin((b.lon - a.lon) * pi() / 360), 2) "
    "* COS(b.lat * pi() / 180) * cos(a.lat * (pi() / 180))"
)
IN_RADIANS = "pow(sin((b.rlat - a.rlat) / 2), 2) + cos(a.rlat) * cos(b.rlat) * pow(sin((b.rlon - a.rlon) / 2), 2)"
COSINES = (
    "sin(radians(a.lat)) * sin(radians(b.lat)) + "
    "cos(radians(a.lat)) * cos(radians(b.lat)) * cos(radians(b.lon - a.lon))"
)
FACTORS_SWAPPED = "cos(b.rlon - a.rlon) * cos(b.rlat) * cos(a.rlat) + sin(b.rlat) * sin(a.rlat)"
VARIANTS: list[tuple[str, float]] = [
    (f"2 * 6371 * asin(sqrt({HAVERSINE})) < {{0}}", 6371),
    (f"asin(sqrt({SQUARED})) * 12742000.0 <= {{0}}", 6371000),
    (f"{{0}} > 3959 * 2 * asin(sqrt({BY_HAND}))", 3959),
    (f"6371 * 2 * atan2(sqrt({HAVERSINE}), sqrt(1 - ({HAVERSINE}))) BETWEEN 0 AND {{0}}", 6371),
    (f"2 * asin(sqrt({IN_RADIANS})) < {{0}} / 6371e0", 6371),
    (f"NOT 12742 * asin(sqrt({HAVERSINE})) > {{0}}", 6371),
    (f"NOT ({{0}} <= 12742 * asin(sqrt({HAVERSINE})))", 6371),
    (f"12742 * asin(sqrt({HAVERSINE.replace('lat', 'flat').replace('lon', 'flon')})) < {{0}}", 6371),
    (f"12742 * asin(sqrt({HAVERSINE.replace('lat', 'dlat').replace('lon', 'dlon')})) < {{0}}", 6371),
    (f"6371 * acos({COSINES}) < {{0}}", 6371),
    (f"{{0}} >= acos({FACTORS_SWAPPED}) * 6371", 6371),
    (f"degrees(acos({COSINES})) * 60 * 1.1515 * 1.609344 < {{0}}", 60 * 1.1515 * 1.609344 * 180 / pi),
    (f"CAST(12742 AS DOUBLE) * asin(sqrt({HAVERSINE})) < {{0}}", 6371),
]
OTHERS = [
    f"2 * 6371 * asin(sqrt({HAVERSINE})) > 5",
    f"2 * 6371 * asin(sqrt({HAVERSINE})) <> 5",
    f"-12742 * asin(sqrt({HAVERSINE})) < 5",
    f"12742 * asin(sqrt({HAVERSINE.replace('+', '-')})) < 5",
    f"12742 * asin({HAVERSINE}) < 5",
    f"12742 * asin(sqrt({HAVERSINE.replace('cos', 'sin')})) < 5",
    f"12742 * asin(sqrt({HAVERSINE.replace('cos(radians(a.lat))', 'a.lat')})) < 5",
    f"12742 * asin(sqrt({HAVERSINE.replace('cos(radians(a.lat))', 'cos(radians(a.lon))')})) < 5",
    f"12742 * asin(sqrt({HAVERSINE.replace('b.lat - a.lat', 'b.lat + a.lat')})) < 5",
    f"12742 * asin(sqrt({HAVERSINE.replace('b.lat - a.lat', 'b.lat - 2 * a.lat')})) < 5",
    f"12742 * asin(sqrt({HAVERSINE.replace('b.lat', 'a.flat')})) < b.lat",
    f"12742 * asin(sqrt({HAVERSINE.replace(', 2)', ', 3)', 1)})) < 5",
    f"12742 * asin(sqrt({HAVERSINE.replace('/ 2', '/ b.reach')})) < 5",
    f"12742 / b.reach * asin(sqrt({HAVERSINE})) < 5",
    f"12742 * asin(sqrt({HAVERSINE.replace('lat', 'id')})) < 5",
    f"12742 * asin(sqrt({HAVERSINE.replace('radians(b.lat - a.lat)', 'float(b.lat) * float(2) - a.flat')})) < 5",
    f"12742 * atan2(sqrt({HAVERSINE}), sqrt(1 - ({SQUARED}))) < 5",
    f"12742 * atan2(sqrt({HAVERSINE}), sqrt(2 - ({HAVERSINE}))) < 5",
    f"6371 * acos({COSINES.replace('cos(radians(a.lat))', 'cos(a.lat)')}) < 5",
    f"6371 * acos(2 * {COSINES}) < 5",
    f"6371 * acos({COSINES.replace('b.lat', 'a.flat')}) < b.lat",
    f"6371 * acos({FACTORS_SWAPPED.replace('cos(b.rlon - a.rlon)', 'a.lat')}) < 5",
    "6371 * acos(sin(a.lat) * sin(b.lat)) < 5",
    "exp(a.lat - b.lat) < 5",
]


@pytest.fixture(scope="module")
def duck() -> Duck:
    return Duck(Dialect())


def conjunct_of(text: str) -> Conjunct:
    (conjunct,) = parse_where(text, STREAMS, (), Dialect())
    return conjunct


def coordinates(dice: Random, count: int, odd: bool) -> list[tuple[float, float]]:
    """Places in clusters, about the poles and the antimeridian, and all over; odd ones are none at all."""
    centres = [(dice.uniform(-90, 90), dice.uniform(-180, 180)) for _ in range(2)]
    centres += [(90.0, 0.0), (-90.0, 100.0), (10.0, 180.0), (0.0, -180.0), (0.0, 0.0)]
    spread = 10 ** dice.uniform(-9, 1.5)
    points = []
    for _ in range(count):
        lat, lon = dice.choice(centres)
        lat, lon = dice.choice([lat, lat + dice.gauss(0, spread)]), lon + dice.gauss(0, spread)
        if not odd or dice.random() < 0.8:
            points.append((max(-90.0, min(90.0, lat)), (lon + 180) % 360 - 180))
        else:
            points.append(dice.choice([(lat + 360, lon), (180 - lat, lon + 180), (nan, lon), (lat, nan), (inf, lon)]))
    return points


def columns_of(conjunct: Conjunct, stream: int, places: list[tuple[float, float]], nulls: Random) -> dict[Column, Any]:
    lat, lon = (np.array(side) for side in zip(*places, strict=True))
    values = {"lat": lat, "lon": lon, "rlat": np.radians(lat), "rlon": np.radians(lon)}
    values |= {"flat": lat.astype(np.float32), "flon": lon.astype(np.float32)}
    whole = {"dlat": np.clip(np.nan_to_num(lat, posinf=0), -900, 900), "dlon": np.nan_to_num(lon)}
    values |= {name: np.round(numbers, 6) for name, numbers in whole.items()}
    columns = {}
    for column in (column for column in conjunct.columns if column.stream == stream):
        field = SCHEMA.field(column.field)
        field_values = [None if nulls.random() < 0.05 else value for value in values[field.name].tolist()]
        columns[column] = pa.array(field_values).cast(field.type)
    return columns


def angles(columns: list[dict[Column, Any]]) -> NDArray[np.float64]:
    """The angle of each pair, as the haversine has it for any coordinates."""
    sides = []
    for side in columns:
        values = {SCHEMA.field(column.field).name: values for column, values in side.items()}
        as_numbers = {name: np.array(values.cast(pa.float64()).to_pylist(), float) for name, values in values.items()}
        lat, lon = (
            next(
                numbers if name[0] == "r" else np.radians(numbers)
                for name, numbers in as_numbers.items()
                if name.endswith(end)
            )
            for end in ("lat", "lon")
        )
        sides.append((lat, lon))
    (lat, lon), (other_lat, other_lon) = sides
    with np.errstate(invalid="ignore"):
        half = np.sin((lat[:, None] - other_lat) / 2) ** 2
        half += np.cos(lat)[:, None] * np.cos(other_lat) * np.sin((lon[:, None] - other_lon) / 2) ** 2
        return np.asarray(2 * np.arcsin(np.sqrt(np.clip(half, 0, 1))), np.float64)


@pytest.mark.long
@pytest.mark.parametrize("at", range(len(VARIANTS)))
def test_no_pair_within_the_limit_is_left_out(duck: Duck, at: int) -> None:
    template, radius = VARIANTS[at]
    proposed_pairs = all_pairs = 0
    for turn in range(9):
        dice = Random(f"{at} {turn}")
        limit = radius * 10 ** dice.uniform(-9, 0.6)
        conjunct = conjunct_of(template.format(f"{limit!r}D"))
        assert {bound.column.stream for bound in conjunct.bounds} == {0, 1}
        count, odd = dice.randint(1, 25), turn % 3 == 0
        streams = [columns_of(conjunct, stream, coordinates(dice, count, odd), dice) for stream in range(2)]
        with np.errstate(invalid="ignore"):
            within = angles(streams) <= limit / radius * (1 + 1e-9) + 1e-7
        for bound in conjunct.bounds:
            here = bound.column.stream
            columns = {column.name: values for column, values in streams[1 - here].items()}
            pairs = proposals(duck, bound, columns, count, streams[here], count)
            needed = {(int(i), int(j)) for i, j in zip(*np.nonzero(within if here else within.T), strict=True)}
            assert needed <= pairs, (conjunct.text, bound)
            if not odd:
                proposed_pairs, all_pairs = proposed_pairs + len(pairs), all_pairs + count * count
    assert proposed_pairs < 0.7 * all_pairs  # the places are in clusters


@pytest.mark.parametrize("text", OTHERS)
def test_what_is_no_distance_on_a_great_circle_has_no_bound(text: str) -> None:
    assert not conjunct_of(text).bounds


def test_a_limit_of_one_stream_bounds_the_other(duck: Duck) -> None:
    conjunct = conjunct_of(f"12742 * asin(sqrt({HAVERSINE})) <= a.reach")
    (bound,) = conjunct.bounds
    lat, reach = Column(0, 2), Column(0, 10)
    assert (bound.column, bound.columns) == (Column(1, 2), (lat, reach))
    columns = {lat.name: pa.array([50.0] * 5), reach.name: pa.array([100.0, nan, inf, -1.0, None])}
    stored = {bound.column: pa.array([50.5, 51.5, nan])}
    counts = Counter(partial for partial, _ in proposals(duck, bound, columns, 5, stored, 3))
    assert counts[0] == 1 and counts[1] == 3 and counts[2] >= 2 and counts[3] == 0


def test_beyond_the_poles_nothing_is_looked_up(duck: Duck) -> None:
    bound = next(bound for bound in conjunct_of(VARIANTS[0][0].format(5)).bounds if bound.column.stream == 1)
    name = bound.columns[0].name
    fine, beyond = pa.array([-90.0, 10.0, 90.0]), pa.array([-90.0, 10.0, 90.0001])
    columns = {name: pa.array([10.0, 170.0])}
    assert proposals(duck, bound, columns, 2, {bound.column: fine}, 3) == {(0, 1), (1, 0), (1, 1), (1, 2)}
    assert len(proposals(duck, bound, columns, 2, {bound.column: beyond}, 3)) == 6


def run_of(folder: Path, where: str, indexed: bool) -> Run:
    streams = tuple(StreamSpec(name, SCHEMA, 1, Sliding(100), 100) for name in "ab")
    conjuncts = parse_where(where, STREAMS, (), Dialect())
    if not indexed:
        conjuncts = tuple(replace(conjunct, bounds=()) for conjunct in conjuncts)
    return Run(Query(streams, conjuncts, where), Store(str(folder)))


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("at", [0, 9])
def test_results_are_the_same_with_and_without(tmp_path: Path, at: int, odd: bool) -> None:
    template, radius = VARIANTS[at]
    where, places = template.format(repr(radius * 0.01)), coordinates(Random(f"{at} {odd}"), 240, odd)
    arrivals = [(n % 2, {"id": n, "ts": n % 50, "lat": lat, "lon": lon}) for n, (lat, lon) in enumerate(places)]
    runs = [run_of(tmp_path / f"{indexed}", where, indexed) for indexed in (True, False)]
    for run in runs:
        run.step(PSP(1), arrivals)
    one, two = runs
    assert one.results == two.results and one.results
    candidates = [sum(hop["into"] for progress in run.progress for hop in progress["funnel"]) for run in runs]
    assert candidates[0] <= candidates[1] * (1 if odd else 0.5)


def test_it_lets_no_state_go(tmp_path: Path) -> None:
    """A promise that latitudes rise says nothing of places beyond the pole, which may be near as well."""
    query = run_of(tmp_path, VARIANTS[0][0].format(2), True).query
    rising = replace(query.streams[0], constraints=(SortOrder(2),))
    assert not ClosingRules(replace(query, streams=(rising, query.streams[1]))).rules_for(0, [1])
    banded = run_of(tmp_path, "abs(a.lat - b.lat) <= 0.018", True).query
    assert ClosingRules(replace(banded, streams=(rising, banded.streams[1]))).rules_for(0, [1])


def test_the_pole_is_a_latitude() -> None:
    for text, pole in ((VARIANTS[0][0], 90.0), (VARIANTS[4][0], radians(90)), (VARIANTS[2][0], 90.0)):
        for operation in conjunct_of(text.format(5)).bounds[0].operations:
            assert pole <= operation.limit < pole * (1 + 1e-12)
