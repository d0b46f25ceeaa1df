"""One join under random circumstances: made, run, and compared with the reference."""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.fuzz.conditions import Conditions, select_list
from tests.fuzz.data import Data, Maker, shown, write
from tests.fuzz.reference import NotSpark, Reference, TooMany, Truth, frames
from tests.times import instant
from watersmeet.placement import Strategy
from watersmeet.query.windows import Window
from watersmeet.testing import oracle

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe")
EXCHANGES = ("driver", "driver", "driver", "driver", "local", "ring", "shuffle")
ORDERS = ("given", "given", "selectivity", "histogram")
CONDITIONS = 3
"""Conditions tried on one set of rows."""


@wm.predicate
def py_near(x: float, ys: Any) -> Any:
    return abs(ys - x) < 3


@wm.predicate(form="matrix")
def py_less(xs: Any, ys: Any) -> Any:
    return xs[:, None] < ys[None, :]


@wm.predicate(form="pair")
def py_first(one: str, other: str) -> bool:
    return one[:1] == other[:1]


@wm.predicate(form="pair", nulls=True)
def py_no_value(one: str | None, other: str | None) -> bool:
    return one is None and other is None


PREDICATES = (py_near, py_less, py_first, py_no_value)


@dataclass(frozen=True)
class Case:
    """A join and its circumstances.

    Attributes:
        seed: What it was made from.
        data: Streams and rows.
        conjuncts: The condition.
        select: The items of the SELECT list; None for whole rows.
        strategy: Where tuples are kept.
        order: In which order streams are probed.
        exchange: How partial results travel; None for a static join.
        ansi: The session's mode.
        zone: The session's time zone.
    """

    seed: str
    data: Data
    conjuncts: tuple[str, ...]
    select: tuple[str, ...] | None
    strategy: Strategy
    order: str
    exchange: str | None
    ansi: bool
    zone: str

    @property
    def where(self) -> str | None:
        return " AND ".join(f"({text})" if " OR " in text else text for text in self.conjuncts) or None

    def __str__(self) -> str:
        streams = "\n".join(
            f"  {s.name}: time {s.time}, {s.window}, delay {s.delay}, "
            + ", ".join(f"{column.name} {column.kind.name}" for column in s.columns)
            for s in self.data.shapes
        )
        rows = "\n".join(f"    {name}: {rows}" for name, rows in shown(self.data).items())
        few = len(self.data.rows) <= 40
        return (
            f"{'ANSI' if self.ansi else 'not ANSI'}, {self.zone}, {self.strategy.describe()}, order {self.order}, "
            f"{'static' if self.exchange is None else self.exchange}, {self.data.batches} batches, "
            f"{'timestamp' if self.data.zoned else 'timestamp_ntz'}\n{streams}\n  where {self.where}\n"
            f"  select {self.select}" + (f"\n  rows (batch, id, time, values)\n{rows}" if few else "")
        )


@dataclass(frozen=True)
class Verdict:
    """What became of a case: `ok`, `refused`, `not Spark`, `skipped` or `failed`, and why."""

    kind: str
    said: str = ""


def cases(seed: int, without: Collection[str] = ()) -> Iterator[Case]:
    """Yield the cases of a seed: several conditions over one set of rows, without columns of some families."""
    rng = random.Random(seed)
    data = Maker(rng, without).data()
    ansi, zone = rng.random() < 0.6, rng.choice(ZONES)
    for at in range(CONDITIONS):
        yield _case(random.Random(f"{seed}:{at}"), f"{seed}:{at}", data, ansi, zone)


def _case(rng: random.Random, seed: str, data: Data, ansi: bool, zone: str) -> Case:
    conjuncts = Conditions(rng, data.shapes).conjuncts()
    while not conjuncts and data.combinations > 20_000:
        conjuncts = Conditions(rng, data.shapes).conjuncts()
    nodes = rng.choice([1, 2, 3])
    strategies: list[Strategy] = [
        wm.PSP(nodes), wm.PSP(nodes), wm.ATR(nodes), wm.CTR(nodes), wm.DSJ(nodes), wm.Hash(nodes), wm.Central(),
        wm.Auto(),
    ]  # fmt: skip
    return Case(
        seed=seed,
        data=data,
        conjuncts=tuple(conjuncts),
        select=tuple(select_list(rng, data.shapes)) if rng.random() < 0.5 else None,
        strategy=rng.choice(strategies),
        order=rng.choice(ORDERS),
        exchange=None if rng.random() < 0.35 else rng.choice(EXCHANGES),
        ansi=ansi,
        zone=zone,
    )


class Runner:
    """Runs cases in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._last: tuple[Case, Reference, Path] | None = None

    def run(self, case: Case) -> Verdict:
        """Run a case and compare it with the reference."""
        with _session(self.spark, case.ansi, case.zone), _folder() as folder:
            reference, source = self._reference(case)
            try:
                reference.evaluate(case.conjuncts, case.select)
            except NotSpark as error:
                return self._refused_too(case, source, str(error))
            try:
                join = self._join(case, source)
            except wm.DefinitionError as error:
                return Verdict("refused", str(error).splitlines()[0])
            except Exception as error:
                return Verdict("failed", f"defining the join: {_describe_error(error)}")
            try:
                truth = reference.truth(case.conjuncts, case.select)
            except TooMany:
                return Verdict("skipped", "raises among too many combinations")
            except Exception as error:
                return Verdict("skipped", f"the reference itself: {_describe_error(error)}")
            return _Comparison(case, truth, join).verdict(self.spark, folder)

    def _reference(self, case: Case) -> tuple[Reference, Path]:
        """Spark's answers for the rows of a case, kept for the next one over the same rows."""
        if self._last is None or self._last[0].data is not case.data or self._last[0].zone != case.zone:
            self.close()
            folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
            write(case.data, folder)
            self._last = (case, Reference(self.spark, case.data, folder), folder)
        return self._last[1], self._last[2]

    def close(self) -> None:
        """Remove what was written."""
        if self._last is not None:
            shutil.rmtree(self._last[2], ignore_errors=True)
            self._last = None

    def _refused_too(self, case: Case, source: Path, why: str) -> Verdict:
        """What Spark refuses the join refuses too, in a sentence."""
        try:
            self._join(replace(case, strategy=wm.Central()), source)
        except wm.DefinitionError:
            return Verdict("not Spark", why)
        except Exception as error:
            return Verdict("failed", f"defining what Spark refuses: {_describe_error(error)}")
        return Verdict("not Spark", f"taken by the join: {why}")

    def _join(self, case: Case, source: Path) -> wm.Join:
        made = frames(self.spark, case.data, source, streaming=case.exchange is not None)
        try:
            return join_of(case, made)
        except wm.DefinitionError:
            plain = replace(case, strategy=wm.Central())
            return join_of(plain, made)  # a strategy may have its own reasons


def join_of(case: Case, inputs: Sequence[DataFrame]) -> wm.Join:
    """The join of a case."""
    streams = [
        wm.stream(
            shape.name,
            frame,
            time=shape.time,
            window=_window(shape.window),
            delay=_duration(shape.delay),
            ahead=None,  # some cases are of the year 9999 as a whole
        )
        for shape, frame in zip(case.data.shapes, inputs, strict=True)
    ]
    select = None if case.select is None else ", ".join(case.select)
    return wm.join(
        *streams, where=case.where, select=select, predicates=PREDICATES, strategy=case.strategy, order=case.order
    )


def _window(window: oracle.Window) -> timedelta | Window | None:
    match window:
        case oracle.Sliding(size):
            return timedelta(microseconds=size)
        case oracle.Count(rows):
            return wm.count(rows)
        case oracle.Hopping(size, step, closed):
            return wm.hopping(timedelta(microseconds=size), timedelta(microseconds=step), closed)
        case _:
            return None


def _duration(micros: int | None) -> timedelta | None:
    return None if micros is None else timedelta(microseconds=micros)


class _Comparison:
    """Runs a join and compares all it gives with what it must give."""

    def __init__(self, case: Case, truth: Truth, join: wm.Join) -> None:
        self.case, self.truth, self.join = case, truth, join
        data = case.data
        by_conditions = [stream.delay for stream in join.query.streams if stream.delay_from == "conditions"]
        self.streams = [
            oracle.Stream(shape.name, shape.window, delay)
            for shape, delay in zip(data.shapes, data.delays(max(by_conditions, default=0)), strict=True)
        ]
        static = case.exchange is None
        self.arrivals = [
            oracle.Arrival(0 if static else row.batch, data.shapes[row.stream].name, row.ts, row.id, {"id": row.id})
            for row in data.rows
        ]

    def outcome(self, holding: set[tuple[int, ...]]) -> oracle.Outcome:
        names = [stream.name for stream in self.streams]
        if not holding:
            return oracle.join(self.streams, self.arrivals, lambda rows: False)
        return oracle.join(self.streams, self.arrivals, lambda rows: tuple(rows[n]["id"] for n in names) in holding)

    def verdict(self, spark: SparkSession, folder: Path) -> Verdict:
        must = bool(self.truth.raises) and bool(self.outcome(self.truth.raises).results)
        may = must or (bool(self.truth.may_raise) and bool(self.outcome(self.truth.may_raise).results))
        try:
            found, progress = self._run_case(spark, self.join, folder)
        except Exception as error:
            # A static frame is Spark's own: what it raises is Spark's error, ours inside of one.
            if may and isinstance(error, PySparkException if self.case.exchange is None else wm.WatersmeetError):
                return Verdict("ok", "raises")
            return Verdict("failed", f"{'raises without a sentence' if may else 'raises'}: {_describe_error(error)}")
        if must:
            return Verdict("failed", f"does not raise, as it must for {sorted(self.truth.raises)[:3]}")
        return self._compared(found, progress)

    def _run_case(self, spark: SparkSession, join: wm.Join, folder: Path) -> tuple[pa.Table | None, Any]:
        progress = None
        if self.case.exchange is None:
            frame = join.toDF()
        else:
            progress, written = self._streamed(spark, join, folder)
            if written is None:
                return None, progress
            frame = written
        names = [shape.name for shape in self.case.data.shapes]
        if self.case.select is None:
            ids = [f"`{name}`.id AS id{at}" for at, name in enumerate(names)]
        else:
            ids = [f"id{at}" for at in range(len(names))]
        return frame.selectExpr(*ids, "_time", "make_valid_utf8(cast(struct(*) AS string)) AS _s").toArrow(), progress

    def _streamed(self, spark: SparkSession, join: wm.Join, folder: Path) -> tuple[Any, DataFrame | None]:
        writer = join.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        writer = writer.option("exchange", self.case.exchange).trigger(availableNow=True)
        query = writer.start(str(folder / "out"))
        query.awaitTermination()
        written = list((folder / "out").rglob("part-*"))
        return query.progress, spark.read.parquet(*map(str, written)) if written else None

    def _compared(self, found: pa.Table | None, progress: Any) -> Verdict:
        wanted = self.outcome(self.truth.holds)
        results = Counter({
            (ids, time, self.truth.body[ids]): count for (ids, time), count in wanted.results.items()
        })  # fmt: skip
        here: Counter[Any] = Counter()
        if found is not None:
            columns = [found.column(f"id{at}").to_pylist() for at in range(len(self.streams))]
            times = found.column("_time").cast(pa.int64()).to_pylist()
            here = Counter(zip(zip(*columns, strict=True), times, found.column("_s").to_pylist(), strict=True))
        missing, extra = results - here, here - results
        if missing or extra:
            return Verdict(
                "failed",
                f"{here.total()} results, {results.total()} wanted; {missing.total()} missing: "
                f"{list(missing)[:2]}; {extra.total()} too many: {list(extra)[:2]}",
            )
        return self._progress(wanted, progress)

    def _progress(self, wanted: oracle.Outcome, progress: Any) -> Verdict:
        if progress is not None:
            told = [sum(p[name] for p in progress) for name in ("outputRows", "lateRows", "rejectedRows")]
            right = [wanted.results.total(), len(wanted.late), len(wanted.rejected)]
            if told != right:
                return Verdict("failed", f"output, late and rejected rows are told as {told}, but are {right}")
            marks = [instant(p["watermark"]) for p in progress]
            known = [wanted.watermarks.get(at) for at in range(len(marks))]
            if any(one != other for one, other in zip(marks, known, strict=True) if other is not None):
                return Verdict("failed", f"watermarks are {marks}, not {known}")
        return Verdict("ok", f"{wanted.results.total()} results")


@contextmanager
def _session(spark: SparkSession, ansi: bool, zone: str) -> Iterator[None]:
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    spark.conf.set("spark.sql.session.timeZone", zone)
    yield


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _describe_error(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.strip().startswith("at ")]
    telling = [line for line in lines if "Error:" in line or "Exception:" in line]
    return f"{type(error).__name__}: {(telling[-1:] or lines[:1] or [''])[0][:300]}"
