"""An access path proposes every row for which its conjunct is TRUE, and every row for which it raises.

Conditions of all shapes that offer bounds, over all types, with values at the edges; DuckDB says what is TRUE by the
conjunct's own SQL.
"""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import SqlError
from watersmeet.predicate.model import Bound, Column, Conjunct, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.probe.candidates import time_path, value_path
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.probe.ranges import columns_of, misses, ranges, usable
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place, Rows
from watersmeet.state.chunks.sorted_index import zone_of

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("t", pa.int8()),
        ("h", pa.int16()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.decimal128(10, 2)),
        ("e", pa.decimal128(30, 20)),
        ("day", pa.date32()),
        ("ti", pa.timestamp("us", "UTC")),
        ("tn", pa.timestamp("us")),
        ("b", pa.bool_()),
    ]
)
TIME = 0
STREAMS = [(name, SCHEMA) for name in "abc"]
NUMBERS = ["x", "f", "t", "h", "i", "l", "d", "e"]


def around(*places: int) -> list[int]:
    return [place + step for place in places for step in (-2, -1, 0, 1, 2)]


def integers(bits: int) -> list[int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    near = around(0, 0, 5, low, high, low // 2, high // 2, *((2**53, -(2**53)) if bits == 64 else ()))
    return [n for n in near if low <= n <= high]


def decimals(digits: int, scale: int) -> list[Decimal]:
    edge = 10**digits - 1
    whole = [*around(0, 10**scale, -(10**scale), 3 * 10**scale // 10), edge, -edge, edge // 7, edge // 3]
    return [Decimal(f"{n}E-{scale}") for n in whole + [n * 10 ** max(0, scale - 2) for n in (7, 57, 113, -1401)]]


FLOATS = [0.0, -0.0, 0.1, 0.07, 0.5, 1.0, -1.0, 3.0, -1e-17, 5e-324, 2.0**53, 2.0**53 + 2, 2.0**63, math.nan, math.nan]
WIDE = [1e308, -1e308, 1.7976931348623157e308, -1.7976931348623157e308, math.inf, -math.inf, math.inf, -math.inf]
NARROW = [math.inf, -math.inf, 3.4028234663852886e38, -3.4028234663852886e38]
MICROS = around(0, 1, 86_400_000_000, 2**53, 2**63 - 3, -(2**63) + 3, 2**62, -(2**62), 10**12)
VALUES: dict[str, list[Any]] = {
    "x": FLOATS + WIDE,
    "f": [float(np.float32(x)) for x in FLOATS] + NARROW,
    "t": integers(8),
    "h": integers(16),
    "i": integers(32),
    "l": integers(64),
    "d": decimals(10, 2),
    "e": decimals(30, 20),
    "day": around(0, 0, 0, 3, 20_000, 2_932_896, 2**31 - 3, -(2**31) + 2),
    "ts": MICROS,
    "ti": MICROS,
    "tn": MICROS,
    "b": [True, False],
}
AS_INTEGER = {"day": pa.int32(), "ts": pa.int64(), "ti": pa.int64(), "tn": pa.int64()}

SHAPES = [
    "{A} {op} {B}", "{A} {op} {n}", "{A} BETWEEN {B} AND {C}", "{A} BETWEEN {B} - {n} AND {B} + {C}",
    "abs({A} - {B}) {op} {n}", "abs({A} - {B}) {op} {C}", "abs({A}) {op} {B}", "abs(abs({A}) - {B}) {op} {C}",
    "{A} - {B} {op} {n}", "{A} + {B} {op} {C}", "{A} {op} {B} * {n} + {C}", "{A} + {B} - {n} {op} {C}",
    "{n} - ({A} - {B}) {op} {C}", "-{A} {op} {B}", "{A} {op} -{B}", "{A} {op} -({B} + {C})", "{A} {op} {B} * {C}",
    "{A} - {B} BETWEEN {n} AND {C}", "{C} - {A} BETWEEN -{n} AND {B}", "{A} - ({B} + {C}) {op} {n}",
    "abs({A} + {B}) {op} {C}", "{n} {op} abs({B} - {A})",
]  # fmt: skip
MOMENTS = [
    "{A} {op} {B}", "{A} - {B} {op} {I}", "{I} {op} {A} - {B}", "abs({A} - {B}) {op} {I}", "{A} {op} {B} + {I}",
    "{A} - {I} {op} {B}", "{A} BETWEEN {B} - {I} AND {B} + {I}", "{A} BETWEEN {B} AND {C} + {I}",
    "{A} - {B} + {I} {op} {I}", "{A} - {B} {op} {C} - {B}", "{A} + {I} - {B} {op} {I}", "{A} - {B} BETWEEN {I} AND {I}",
    "{I} + {A} {op} {B}", "{A} {op} {B} + {n}", "{A} {op} {B} + {M}",
]  # fmt: skip
OPERATORS = ["<", "<=", ">", ">=", "="]
INTERVALS = [
    *(f"INTERVAL {n} {unit}" for n, unit in ((0, "DAYS"), (3, "DAYS"), (-2, "DAYS"), (1, "WEEK"), (1, "HOUR"))),
    *("INTERVAL 5 SECONDS", "INTERVAL 1000000 DAYS", "INTERVAL 1 MICROSECOND"),
]
LITERALS = ["0", "1", "5", "0.3", "2", "1e0", "127", "2147483647", "9223372036854775807"]


def condition(dice: Random) -> str:
    numeric = dice.random() < 0.6
    names = NUMBERS if numeric else [dice.choice(["day", "ts", "ti", "tn", "b"])]
    if numeric and dice.random() < 0.5:
        names = [dice.choice(names)]
    streams = dice.sample("abc", 3)
    columns = {place: f"{stream}.{dice.choice(names)}" for place, stream in zip("ABC", streams, strict=True)}
    shape = dice.choice(SHAPES if numeric else MOMENTS)
    while "{I}" in shape:
        shape = shape.replace("{I}", dice.choice(INTERVALS), 1)
    return shape.format(**columns, op=dice.choice(OPERATORS), n=dice.choice(LITERALS), M="INTERVAL 1 MONTH")


def conjunct_of(dice: Random, dialect: Dialect) -> Conjunct:
    """A condition that can be carried over and offers bounds."""
    while True:
        try:
            (conjunct,) = parse_where(condition(dice), STREAMS, (), dialect)
        except SqlError:
            continue
        if conjunct.bounds:
            return conjunct


def values_of(dice: Random, name: str, size: int) -> pa.Array:
    pool = dice.sample(VALUES[name], min(3, len(VALUES[name]))) if dice.random() < 0.7 else VALUES[name]
    nulls = 0 if name == "ts" else 0.1  # event times are never NULL
    values = [None if dice.random() < nulls else dice.choice(pool) for _ in range(size)]
    kind = SCHEMA.field(name).type
    return pa.array(values, AS_INTEGER.get(name, kind)).cast(kind)


@pytest.fixture(scope="module")
def duck() -> Duck:
    return Duck(Dialect())


@pytest.mark.long
@pytest.mark.parametrize(
    ("dialect", "turns"),
    [(Dialect(), 60), (Dialect(ansi=False), 20), (Dialect("America/New_York"), 20)],
    ids=["ANSI", "plain", "New York"],
)
def test_access_paths_propose_all_that_is_true_or_raises(dialect: Dialect, turns: int) -> None:
    duck = Duck(dialect)
    for turn in range(turns):
        dice = Random(f"{dialect} {turn}")
        conjunct, size = conjunct_of(dice, dialect), dice.randint(1, 4)
        columns = [[c for c in conjunct.columns if c.stream == stream] for stream in range(3)]
        check(duck, conjunct, [{c: values_of(dice, SCHEMA.names[c.field], size) for c in of} for of in columns])


def check(duck: Duck, conjunct: Conjunct, streams: list[dict[Column, pa.Array]]) -> None:
    for bound in conjunct.bounds:
        target = bound.column.stream
        others = sorted({c.stream for c in conjunct.columns} - {target})
        sizes = {at: len(next(iter(streams[at].values()))) for at in (*others, target)}
        combos = list(product(*(range(sizes[at]) for at in others)))
        partials = {
            c.name: values.take(pa.array([combo[k] for combo in combos], pa.int64()))
            for k, at in enumerate(others)
            for c, values in streams[at].items()
        }
        pairs = proposals(duck, bound, partials, len(combos), streams[target], sizes[target])
        left, right = np.divmod(np.arange(len(combos) * sizes[target]), sizes[target])
        table = {name: values.take(pa.array(left)) for name, values in partials.items()}
        table |= {c.name: values.take(pa.array(right)) for c, values in streams[target].items()}
        denied = duck.find_denied(table, conjunct.condition, len(left))
        needed = set(zip(left.tolist(), right.tolist(), strict=True)) - {
            (int(left[at]), int(right[at])) for at in denied
        }
        assert needed <= pairs, (conjunct.text, bound, sorted(needed - pairs)[:3])


def proposals(
    duck: Duck, bound: Bound, partials: dict[str, pa.Array], size: int, stored: dict[Column, pa.Array], rows: int
) -> set[tuple[int, int]]:
    """The pairs that the bound, its zone map and its guard let through."""
    chunk, chunk_rows = chunk_of(bound.column.stream, stored, rows)
    columns = {c.name: partials[c.name] for c in columns_of([bound])}
    pairs: set[tuple[int, int]] = set()
    everything = np.full(size, np.iinfo(np.int64).min), np.full(size, np.iinfo(np.int64).max)
    asked_ranges = ranges(duck, columns, [bound], size)
    for usable_ranges, of in usable(asked_ranges, chunk, Column(bound.column.stream, TIME), size):
        whose = np.ones(size, bool) if of is None else of
        if any(misses(chunk, one) for one in usable_ranges):
            continue
        path = time_path(chunk_rows, *everything)
        path = value_path(chunk_rows, usable_ranges[0], path) if usable_ranges else path
        for partial in np.flatnonzero(whose).tolist():
            places = np.arange(path.first[partial], path.first[partial] + path.count[partial])
            matches = places if path.order is None else path.order[places]
            pairs |= {(partial, int(row)) for row in matches}
    return pairs


def chunk_of(stream: int, columns: dict[Column, pa.Array], rows: int) -> tuple[Chunk, Rows]:
    time = Column(stream, TIME)
    ts = columns[time].cast(pa.int64()) if time in columns else pa.array(range(rows), pa.int64())
    names = {c.name: values for c, values in columns.items() if c != time}
    order = pa.array(np.arange(rows))
    batch = pa.record_batch({"ts": ts, **names}).take(order)
    low, high = (int(end) for end in (min(ts.to_pylist()), max(ts.to_pylist())))
    zones = {name: zone_of(values) for name, values in names.items()}
    chunk = Chunk("c", stream, 0, 0, 0, WHOLE, rows, 0, low, high, (0,), Place("", 0, 0, ""), zones=zones)
    return chunk, Rows(batch, SCHEMA.field(TIME).type, None)


DAYS = [date(2026, 1, day) for day in (1, 3, 4, 5, 9)]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("a.day - b.day >= INTERVAL 3 DAYS", DAYS, DAYS),
        ("abs(a.day - b.day) < INTERVAL 3 DAYS", DAYS, DAYS),
        ("INTERVAL 1 DAY > b.day - a.day", DAYS, DAYS),
        ("a.ti - b.ti >= INTERVAL 3 DAYS", [EPOCH + timedelta(days=n) for n in (0, 3, 4)], [EPOCH]),
        ("abs(b.x) <= a.x", [math.nan, 1.0], [math.nan, 5.0, -5.0, math.inf, -math.inf, None]),
        ("abs(b.x - 1) <= a.x", [math.nan, 1.0], [math.nan, 5.0, -5.0, math.inf, -math.inf, None]),
        ("b.x >= -a.x", [math.nan, 1.0], [math.nan, 5.0, -5.0, math.inf, -math.inf, None]),
        ("a.d >= b.x", [Decimal("0.07"), Decimal("0.57"), Decimal("1.13")], [0.07, 0.57, 1.13]),
        ("a.l + b.l < 5", [2**63 - 1, 3, None], [2**63 - 1, -(2**63), 1, None]),
        ("abs(a.l - b.l) < 5", [-(2**63), 3, None], [2**63 - 1, -(2**63), 1, None]),
        ("abs(a.i) <= b.l", [-(2**31), 3, None], [2**63 - 1, -(2**63), 1, None]),
        ("a.l + a.l + b.l < 5", [2**62, 3, None], [2**63 - 1, -(2**63), 1, None]),
    ],
)
def test_the_edges(duck: Duck, text: str, left: list[Any], right: list[Any]) -> None:
    (conjunct,) = parse_where(text, STREAMS, (), Dialect())
    assert conjunct.bounds
    values = (left, right)
    check(
        duck,
        conjunct,
        [
            {
                c: pa.array(values[at], SCHEMA.field(c.field).type)
                for c in conjunct.columns
                if c.stream == at and at < len(values)
            }
            for at in range(3)
        ],
    )


def test_ordinary_integers_keep_their_access_path(duck: Duck) -> None:
    (conjunct,) = parse_where("abs(a.i - b.i) < 5", STREAMS, (), Dialect())
    bound = next(bound for bound in conjunct.bounds if bound.column.stream == 1)
    seconds = 1_790_000_000  # twice as much is no int
    stored = {bound.column: pa.array([0, seconds, None, seconds + 9, 2**31 - 1], pa.int32())}
    values = pa.array([seconds, seconds + 7, None], pa.int32())
    assert proposals(duck, bound, {bound.columns[0].name: values}, 3, stored, 5) == {(0, 1), (1, 3)}
