"""Joins through real Spark: cases as rows and batches, run from files, compared with the oracle."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.times import instant
from watersmeet.placement import Strategy
from watersmeet.query.windows import Window
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.spark.api.writer import JoinWriter
from watersmeet.spark.run.frames import content_hash
from watersmeet.testing import oracle, stream_batches, write_batches

EXCHANGES = ("driver", "local", "ring", "shuffle")
"""How partial results travel; results must not depend on it."""


def through(*quick: str) -> pytest.MarkDecorator:
    """Run a test through every exchange, in the slow suite; through some of them in the quick one as well."""
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "exchange", [found if found in quick else pytest.param(found, marks=slow) for found in EXCHANGES]
    )


SECOND = 1_000_000
EPOCH = 1_700_000_000 * SECOND
"""Where event times of cases start: a multiple of 20 s, so that hopping windows are easy to see."""
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("k", pa.string())])

Batches = Sequence[Mapping[str, Sequence[Mapping[str, Any]]]]
"""For each batch the rows of each stream; event times are seconds since EPOCH, or None."""


@dataclass(frozen=True)
class Case:
    """A join and its input.

    Attributes:
        streams: Windows and delays in whole seconds.
        batches: The rows.
        where: The predicate for the engine.
        holds: The predicate for the oracle, called with one row per stream.
        predicates: The Python predicates that `where` calls.
        strategy: Where tuples are kept.
        order: In which order streams are probed.
        schema: The columns of all streams.
        promises: What streams promise, as `wm.stream` takes it, by stream; told the frames of all inputs.
    """

    streams: Sequence[oracle.Stream]
    batches: Batches
    where: str | None = None
    holds: Callable[..., bool | None] = lambda *rows: True
    predicates: Sequence[Any] = ()
    strategy: Strategy = field(default_factory=lambda: wm.PSP(2))
    order: str = "given"
    schema: pa.Schema = SCHEMA
    promises: Callable[[Mapping[str, DataFrame]], Mapping[str, Mapping[str, Any]]] = lambda inputs: {}

    @property
    def names(self) -> list[str]:
        return [stream.name for stream in self.streams]


def cuts(
    seed: int,
    names: Sequence[str],
    batches: int = 4,
    rows: int = 8,
    *,
    step: int = 8,
    disorder: int = 4,
    null_times: float = 0.0,
    nulls: float = 0.1,
    values: int = 6,
    ties: bool = True,
) -> list[dict[str, list[dict[str, Any]]]]:
    """Return random batches: event time moves on `step` seconds a batch, rows lie up to `disorder` seconds off."""
    rng, number, made, used = random.Random(seed), 0, [], set[tuple[str, float]]()
    for batch in range(batches):
        here: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for name in names:
            for _ in range(rng.randint(rows // 2, rows)):
                ts: float | None = batch * step + rng.randint(-disorder, step)
                while not ties and (name, ts) in used:
                    ts = round((ts or 0) + 0.013, 3)
                used.add((name, ts or 0))
                ts = None if rng.random() < null_times else ts
                x = None if rng.random() < nulls else float(rng.randrange(values))
                here[name].append({"id": number, "ts": ts, "x": x, "k": rng.choice(["p", "q", None])})
                number += 1
        made.append(here)
    return made


def micros(seconds: float | None) -> int | None:
    """Return a case's time in microseconds since the epoch."""
    return None if seconds is None else EPOCH + round(seconds * SECOND)


def table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return a case's rows as Arrow."""
    times = [micros(row["ts"]) for row in rows]
    made = pa.Table.from_pylist([{**row, "ts": None} for row in rows], schema=schema)
    at = schema.get_field_index("ts")
    return made.set_column(at, schema.field(at), pa.array(times, pa.int64()).cast(schema.field(at).type))


def write(folder: Path, batches: Batches, schema: pa.Schema = SCHEMA) -> None:
    """Write a case's batches, one folder a stream."""
    for name in batches[0]:
        write_batches(folder / name, [table(batch[name], schema) for batch in batches])


def frames(spark: SparkSession, folder: Path, names: Sequence[str]) -> dict[str, DataFrame]:
    """Return the streaming frames over what `write` wrote."""
    return {name: stream_batches(spark, folder / name) for name in names}


_WINDOWS: dict[type, Callable[[Any], str | Window | None]] = {
    oracle.Sliding: lambda w: f"{w.size} seconds",
    oracle.Count: lambda w: wm.count(w.rows),
    oracle.Hopping: lambda w: wm.hopping(f"{w.size} seconds", f"{w.step} seconds", w.closed),
    oracle.Unbounded: lambda w: None,
}


def join_of(case: Case, inputs: Mapping[str, DataFrame], **options: Any) -> wm.Join:
    """Return the case's join."""
    promises = case.promises(inputs)
    streams = [
        wm.stream(
            s.name,
            inputs[s.name],
            time="ts",
            window=_WINDOWS[type(s.window)](s.window),
            delay=f"{s.delay} seconds",
            **promises.get(s.name, {}),
        )
        for s in case.streams
    ]
    given: dict[str, Any] = {"where": case.where, "predicates": case.predicates, "order": case.order}
    given |= {"strategy": case.strategy, **options}
    return wm.join(*streams, **given)


def run(writer: JoinWriter, folder: Path, exchange: str = "local") -> JoinQuery:
    """Run a join over all that is there; the output goes to `out` unless the writer says otherwise."""
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).option("exchange", exchange)
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination()
    return query


def results(folder: Path, names: Sequence[str]) -> Counter[Any]:
    """Return what a Parquet output without `select` holds, as the oracle counts results: ids and `_time`."""
    found = read(folder / "out")
    if not found.num_rows:
        return Counter()
    ids = [pc.struct_field(found.column(name), "id").to_pylist() for name in names]
    return Counter(zip(zip(*ids, strict=True), found.column("_time").cast(pa.int64()).to_pylist(), strict=True))


def read(folder: Path, format: str = "parquet") -> pa.Table:
    """Return the rows of an output folder; a folder that isn't there has none."""
    files = [str(path) for path in sorted(folder.rglob("part-*")) if path.is_file()] if folder.exists() else []
    return ds.dataset(files, format=format).to_table() if files else pa.table({})


def side_ids(folder: Path, names: Sequence[str]) -> Counter[Any]:
    """Return the ids of late, rejected or denied rows in a side folder, by stream."""
    return Counter((name, row["id"]) for name in names for row in read(folder / name).to_pylist())


def expected(case: Case, spark: SparkSession | None = None) -> oracle.Outcome:
    """Return the oracle's outcome; with a session, ties are broken by Spark's hash of the rows' content."""
    streams = [
        oracle.Stream(s.name, _scaled(s.window), s.delay * SECOND, constraints=s.constraints) for s in case.streams
    ]
    hashed = content_hashes(spark, case.batches) if spark is not None else {}
    arrivals = [
        oracle.Arrival(at, name, micros(row["ts"]), hashed.get(row["id"], row["id"] or 0), row)
        for at, batch in enumerate(case.batches)
        for name, rows in batch.items()
        for row in rows
    ]
    return oracle.join(streams, arrivals, lambda by_name: case.holds(*(by_name[name] for name in case.names)))


def content_hashes(spark: SparkSession, batches: Batches) -> dict[Any, int]:
    """Return the hash that decides the order of arrival of equal times, by id: the content hash of all columns."""
    every = [row for batch in batches for rows in batch.values() for row in rows]
    frame = spark.createDataFrame(table(every))
    hashed = content_hash([(F.col(field.name), field.dataType) for field in frame.schema])
    return {row[0]: row[1] for row in frame.select("id", hashed).collect()}


def _scaled(window: oracle.Window) -> oracle.Window:
    match window:
        case oracle.Sliding(size):
            return oracle.Sliding(size * SECOND)
        case oracle.Hopping(size, step, closed):
            return oracle.Hopping(size * SECOND, step * SECOND, closed)
        case _:
            return window


def check(spark: SparkSession, case: Case, folder: Path, exchange: str) -> JoinQuery:
    """Run a case with side outputs and assert that results, late and rejected rows are the oracle's."""
    write(folder / "in", case.batches)
    writer = join_of(case, frames(spark, folder / "in", case.names)).writeStream
    writer = writer.option("latePath", str(folder / "late")).option("rejectedPath", str(folder / "rejected"))
    query = run(writer, folder, exchange)
    wanted = expected(case, spark if any(isinstance(s.window, oracle.Count) for s in case.streams) else None)
    assert results(folder, case.names) == wanted.results
    assert side_ids(folder / "late", case.names) == Counter((a.stream, a.row["id"]) for a in wanted.late)
    assert side_ids(folder / "rejected", case.names) == Counter((a.stream, a.row["id"]) for a in wanted.rejected)
    progress = query.progress
    assert [instant(p["watermark"]) for p in progress] == [wanted.watermarks[at] for at in range(len(case.batches))]
    assert sum(p["outputRows"] for p in progress) == wanted.results.total()
    assert sum(p["lateRows"] for p in progress) == len(wanted.late)
    assert sum(p["rejectedRows"] for p in progress) == len(wanted.rejected)
    return query
