"""What runs a join's batches: each exchange in one process and, over the same cases, through Spark.

An exchange that is new is one more line of `BACKENDS`; what it can't do yet is left out of its `can`.
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import watersmeet as wm
from tests.batch.test_engine import ENGINE_WINDOW
from tests.exchange.join_cases import SCHEMA, SECOND, START, JoinCase
from watersmeet.placement import Strategy
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle, stream_batches, write_batches
from watersmeet.testing.run import Run, content_key

ALL = frozenset({"count windows", "optional streams", "python predicates", "conditions that raise", "several nodes"})
"""All that a case may need."""


@dataclass(frozen=True)
class Backend(ABC):
    """One way to run batches.

    Attributes:
        exchange: How partial results travel.
        can: What it can do.
    """

    exchange: str
    can: frozenset[str] = field(default=ALL, kw_only=True)

    def __str__(self) -> str:
        return f"{self.exchange} {type(self).__name__}"

    @abstractmethod
    def results(self, case: JoinCase, strategy: Strategy, folder: Path, spark: SparkSession | None) -> Counter[Any]:
        """Return how often each result comes, as the oracle counts them."""


class InProcess(Backend):
    """The engine without Spark, task by task; every batch as if it were the first after a restart."""

    def results(self, case: JoinCase, strategy: Strategy, folder: Path, spark: SparkSession | None) -> Counter[Any]:
        """See Backend."""
        return self.run(case, strategy, folder).results

    def run(self, case: JoinCase, strategy: Strategy, folder: Path) -> Run:
        """Run a case, and return its results and progress."""
        streams = tuple(
            StreamSpec(s.name, SCHEMA, 1, ENGINE_WINDOW[type(s.window)](s.window), s.delay) for s in case.streams
        )
        conjuncts = parse_where(case.where, [(s.name, s.schema) for s in streams], case.predicates, Dialect())
        how = tuple(case.how.get(s.name, "inner") for s in streams) if case.how else ()
        run = Run(Query(streams, conjuncts, case.where, (), tuple(case.predicates), how=how), Store(str(folder)))
        for rows in case.batches:
            run.step(strategy, [(case.names.index(name), row) for name, row in rows], self.exchange)
        return run


class OnSpark(Backend):
    """Streaming from files, one batch a file."""

    def results(self, case: JoinCase, strategy: Strategy, folder: Path, spark: SparkSession | None) -> Counter[Any]:
        """See Backend."""
        assert spark is not None
        for name in case.names:
            write_batches(folder / name, [case.table(rows, name) for rows in case.batches])
        windows: dict[type, Any] = {
            oracle.Sliding: lambda w: f"{w.size // SECOND} seconds",
            oracle.Count: lambda w: wm.count(w.rows),
            oracle.Hopping: lambda w: wm.hopping(f"{w.size // SECOND} seconds", f"{w.step // SECOND} seconds"),
            oracle.Unbounded: lambda w: None,
        }
        streams = [
            wm.stream(
                s.name,
                stream_batches(spark, folder / s.name),
                time="ts",
                window=windows[type(s.window)](s.window),
                delay=f"{s.delay // SECOND} seconds",
            )
            for s in case.streams
        ]
        more: dict[str, Any] = {"how": case.how} if case.how else {}
        join = wm.join(*streams, where=case.where, predicates=case.predicates, strategy=strategy, **more)
        writer = join.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.option("exchange", self.exchange).trigger(availableNow=True).start(str(folder / "out"))
        query.awaitTermination()
        hidden = {name for name, how in case.how.items() if how in ("semi", "anti")}
        rows = spark.read.parquet(str(folder / "out")).toArrow().to_pylist() if any(case.batches) else []
        return Counter(
            (
                tuple(None if n in hidden or row[n] is None else row[n]["id"] for n in case.names),
                round((row["_time"] - START).total_seconds() * SECOND),
            )
            for row in rows
        )


def expected(case: JoinCase) -> Counter[Any]:
    """Return what the oracle makes of a case."""
    arrivals = [
        oracle.Arrival(batch, name, row["ts"], content_key(row), row)
        for batch, rows in enumerate(case.batches)
        for name, row in rows
    ]
    if not case.how:
        return oracle.join(case.streams, arrivals, case.holds).results
    on = dict.fromkeys(case.how, case.holds)
    return oracle.join(case.streams, arrivals, lambda rows: True, how=case.how, on=on).results


IN_PROCESS = [InProcess("driver"), InProcess("local"), InProcess("shuffle"), InProcess("ring")]
ON_SPARK = [OnSpark("driver"), OnSpark("local"), OnSpark("shuffle"), OnSpark("ring")]
