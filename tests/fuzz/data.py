"""Random streams: their names, columns and windows, and the rows of each batch."""

import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.kinds import KINDS, Kind
from watersmeet.query.windows import Closed
from watersmeet.testing import oracle, write_batches

STREAM_NAMES = ("a", "b", "c", "d", "end", "select", "order", "Left", "größe", "CASE", "t1", "between", "x", "日本")
COLUMN_NAMES = (
    "x", "y", "k", "v", "w", "end", "case", "between", "select", "order", "from", "a b", "x.y", "we`ird", "größe",
    "Upper", "1st", "and", "null", "true", "interval", "date", "timestamp", "_c", "日本", "count", "'q'", "id_2",
)  # fmt: skip
TIME_NAMES = ("ts", "ts", "ts", "end", "time", "Timestamp", "when it was")
PLAIN_NAMES = frozenset("abcdxykvw") | {"t1", "ts", "id", "Upper", "_c", "id_2"}
STARTS = (1_700_000_000_000_000, 1_729_990_000_000_000, 0, -60_000_000_000_000_000, 253_402_300_000_000_000)
UNITS = (1, 1_000_000, 1_000_000, 1_000_000, 3_600_000_000)
CROSS = "cross.parquet"
FAR = 5_000_000_000_000_000_000


@dataclass(frozen=True)
class Column:
    """A column of a stream."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Shape:
    """A stream of a join, without its rows.

    Attributes:
        name: Its name.
        time: Its time column.
        columns: The others, but for `id`.
        window: Its window, in microseconds.
        delay: Its delay in microseconds; None for the default.
    """

    name: str
    time: str
    columns: tuple[Column, ...]
    window: oracle.Window
    delay: int | None


@dataclass(frozen=True)
class Row:
    """One row: the batch that brings it, its stream's position, its event time and its values as they are stored."""

    batch: int
    stream: int
    id: int
    ts: int | None
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Data:
    """The streams of a join with all their rows."""

    shapes: tuple[Shape, ...]
    rows: tuple[Row, ...] = field(repr=False)
    batches: int
    zoned: bool

    @property
    def combinations(self) -> int:
        """How many combinations of one row a stream there are."""
        product = 1
        for at in range(len(self.shapes)):
            product *= sum(row.stream == at for row in self.rows)
        return product

    def delays(self, by_conditions: int) -> list[int]:
        """The streams' delays, the default filled in: as far as the largest time window or, without one, conditions."""
        sizes = [
            shape.window.size for shape in self.shapes if isinstance(shape.window, oracle.Sliding | oracle.Hopping)
        ]
        return [max(sizes, default=by_conditions) if shape.delay is None else shape.delay for shape in self.shapes]


def quoted(name: str) -> str:
    """A name as Spark takes any."""
    return "`" + name.replace("`", "``") + "`"


def is_simple(name: str) -> bool:
    """Whether a name can stand without quotes behind a dot."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) is not None


class Maker:
    """Makes random streams."""

    def __init__(self, rng: random.Random, without: Collection[str] = ()) -> None:
        self.rng = rng
        self.kinds = [kind for kind in KINDS for _ in range(kind.weight) if kind.family not in without]

    def data(self) -> Data:
        """Streams and rows: few rows mostly, at times hundreds, so that paths that depend on size are taken."""
        rng = self.rng
        count = rng.choice([2, 2, 2, 2, 3, 3, 4])
        large = count == 2 and rng.random() < 0.06
        start, unit = rng.choice(STARTS) if rng.random() < 0.97 else FAR, rng.choice(UNITS)
        shapes = self._shapes(count, unit)
        batches = rng.choice([1, 2, 3, 3, 4])
        counted = any(isinstance(shape.window, oracle.Count) for shape in shapes)
        per_stream = rng.choice([320, 640, 700]) if large else {2: 26, 3: 11, 4: 6}[count]
        times = Times(rng, start, unit, batches, ties=not counted, wide=max(8, per_stream // 4))
        rows = self._rows(shapes, times, per_stream, batches)
        return Data(shapes, tuple(rows), batches, rng.random() < 0.7)

    def _shapes(self, count: int, unit: int) -> tuple[Shape, ...]:
        rng, names = self.rng, list[str]()
        pool = STREAM_NAMES if rng.random() < 0.35 else STREAM_NAMES[:4]
        for name in rng.sample(pool, len(pool)):
            if name.lower() not in {other.lower() for other in names}:
                names.append(name)
        kinds = rng.sample(self.kinds, rng.randint(2, 4))
        return tuple(self._shape(name, kinds, unit) for name in names[:count])

    def _shape(self, name: str, shared: list[Kind], unit: int) -> Shape:
        rng = self.rng
        kinds = [kind for kind in shared if rng.random() < 0.9] + rng.sample(self.kinds, rng.randint(0, 2))
        time = rng.choice(TIME_NAMES)
        pool = COLUMN_NAMES if rng.random() < 0.5 else (*COLUMN_NAMES[:5], "z", "u")
        free = [other for other in pool if other.lower() != time.lower()]
        columns = tuple(Column(n, k) for n, k in zip(rng.sample(free, len(kinds)), kinds, strict=True))
        delay = rng.choice([None, None, *(rng.randint(0, 20) * unit for _ in range(4))])
        return Shape(name, time, columns, self._window(unit), delay)

    def _window(self, unit: int) -> oracle.Window:
        rng = self.rng
        windows: list[oracle.Window] = [oracle.Sliding(rng.randint(1, 25) * unit)] * 5
        windows += [oracle.Unbounded()] * 3 + [oracle.Count(rng.choice([1, 3, 8, 40]))]
        windows += [oracle.Hopping(rng.randint(2, 20) * unit, rng.randint(1, 12) * unit, rng.choice(get_args(Closed)))]
        return rng.choice(windows)

    def _rows(self, shapes: tuple[Shape, ...], times: "Times", most: int, batches: int) -> list[Row]:
        rng, number, rows = self.rng, 0, []
        # Few values of each kind, and the same ones in all streams: else nothing would match.
        few = {kind.name: rng.sample(kind.pool, min(len(kind.pool), rng.randint(2, 7))) for kind in KINDS}
        nulls = rng.choice([0.0, 0.1, 0.1, 0.4])
        for at, shape in enumerate(shapes):
            for _ in range(rng.randint(most // 2, most)):
                batch = rng.randrange(batches)
                values = [
                    None if rng.random() < nulls else self._value(column.kind, few[column.kind.name])
                    for column in shape.columns
                ]
                row = Row(batch, at, number, times.time(batch, at), tuple(values))
                rows += [row] * (2 if rng.random() < 0.02 else 1)
                number += 1
        return rows

    def _value(self, kind: Kind, few: list[Any]) -> Any:
        rng = self.rng
        if kind.name in ("int", "bigint", "double") and rng.random() < 0.4:
            return rng.randint(-6, 12)
        return rng.choice(few)


class Times:
    """Event times that move on with the batches, in disorder."""

    def __init__(self, rng: random.Random, start: int, unit: int, batches: int, *, ties: bool, wide: int) -> None:
        self.rng, self.start, self.unit, self.ties, self.used = rng, start, unit, ties, set[tuple[int, int]]()
        self.step = rng.randint(0, 10)
        self.disorder, self.wide = rng.randint(0, 6), wide
        self.nulls = rng.choice([0.0, 0.0, 0.06])

    def time(self, batch: int, stream: int) -> int | None:
        """The event time of a new row; without ties no two of a stream are equal."""
        if self.rng.random() < self.nulls:
            return None
        ticks = batch * self.step + self.rng.randint(-self.disorder, self.wide)
        while not self.ties and (stream, ticks) in self.used:
            ticks += 1
        self.used.add((stream, ticks))
        return self.start + ticks * self.unit


def write(data: Data, folder: Path) -> None:
    """Write the rows, a folder a stream and a file a batch; and all combinations of them in one file."""
    for at, shape in enumerate(data.shapes):
        rows = [row for row in data.rows if row.stream == at]
        tables = [table(data, shape, [row for row in rows if row.batch == batch]) for batch in range(data.batches)]
        write_batches(folder / str(at), tables)
    pq.write_table(combinations(data), folder / CROSS)


def combinations(data: Data) -> pa.Table:
    """All combinations of one row a stream, the columns of stream 0 under names that begin with `s0_`."""
    tables = []
    for at, shape in enumerate(data.shapes):
        tables.append(table(data, shape, list({row.id: row for row in data.rows if row.stream == at}.values())))
    places = np.meshgrid(*(np.arange(len(one)) for one in tables), indexing="ij")
    crossed = [one.take(pa.array(taken.ravel())) for one, taken in zip(tables, places, strict=True)]
    return pa.table({f"s{at}_{name}": one.column(name) for at, one in enumerate(crossed) for name in one.column_names})


def table(data: Data, shape: Shape, rows: list[Row]) -> pa.Table:
    """Rows of one stream as they are stored: columns by position."""
    times = pa.array([row.ts for row in rows], pa.int64())
    arrays = {"id": pa.array([row.id for row in rows], pa.int64())}
    arrays["ts"] = times.cast(pa.timestamp("us", "UTC" if data.zoned else None))
    for at, column in enumerate(shape.columns):
        arrays[f"c{at}"] = _stored([row.values[at] for row in rows], column.kind.stored)
    return pa.table(arrays)


def _stored(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)
    return pa.array(values, kind)


def readers(shape: Shape, prefix: str = "") -> list[str]:
    """The expressions that make a stream's columns of what is stored."""
    made = [f"{prefix}id AS id", f"{prefix}ts AS {quoted(shape.time)}"]
    columns = enumerate(shape.columns)
    return [*made, *(f"{c.kind.read.format(f'{prefix}c{at}')} AS {quoted(c.name)}" for at, c in columns)]


def shown(data: Data) -> Mapping[str, Any]:
    """The streams and rows for people."""
    return {
        f"{shape.name} ({', '.join(f'{c.name} {c.kind.name}' for c in shape.columns)})": [
            (row.batch, row.id, row.ts, *row.values) for row in data.rows if row.stream == at
        ]
        for at, shape in enumerate(data.shapes)
    }
