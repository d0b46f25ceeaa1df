"""Run one of Spark's ways to join auctions, bids and payments without windows, and print what it took as a JSON line.

python -m bench.metadata.competitor TTL --files FOLDER --out FOLDER --ttl 120 --pace 3
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from bench import measurement
from bench.common import session
from watersmeet.workload import auctions, write_batches

SECONDS_PER_BATCH = 5
"""Event time in a file of the input."""

RESULT_SCHEMA = "auction LONG, seller INT, bid_ts TIMESTAMP, price LONG, bidder INT, amount LONG"
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
"""The only state store with which `transformWithState` runs."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a competitor is run.

    Attributes:
        files: Folder with a folder of Parquet files for each stream.
        ttl: For how long state lives, in seconds of event time.
        pace: Seconds of the clock from the start of a batch to that of the next, for what depends on the clock.
        files_per_trigger: Files of each stream in a batch.
    """

    files: Path
    ttl: float
    pace: float
    files_per_trigger: int = 1

    @property
    def ttl_ms(self) -> int:
        """The same in milliseconds of Spark's clock, by which a batch takes `pace` seconds."""
        return round(1000 * self.ttl * self.pace / (SECONDS_PER_BATCH * self.files_per_trigger))


class Auction(StatefulProcessor):
    """One auction's join: keeps its row, its bids and its payment.

    Args:
        ttl_ms: After how long Spark drops each of them; None: never.
        clears: Whether to drop all once an auction is over and paid, which is what its end and its keys say.
    """

    def __init__(self, ttl_ms: int | None, clears: bool) -> None:
        self.ttl_ms = ttl_ms
        self.clears = clears

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.opened = handle.getValueState("opened", "seller INT", self.ttl_ms)
        self.paid = handle.getValueState("paid", "amount LONG", self.ttl_ms)
        self.bids = handle.getListState("bids", "ts TIMESTAMP, price LONG, bidder INT", self.ttl_ms)
        self.over = handle.getValueState("over", "over BOOLEAN", self.ttl_ms) if self.clears else None

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        new: dict[str, list[Any]] = {"auction": [], "bid": [], "end": [], "payment": []}
        for row in rows:
            new[row.kind].append(row)
        old_seller, old_amount = self.opened.get(), self.paid.get()
        seller = (new["auction"][0].person,) if new["auction"] else old_seller
        amount = (new["payment"][0].money,) if new["payment"] else old_amount
        bids = [(row.ts, row.money, row.person) for row in new["bid"]]
        if seller and amount:
            is_joined = old_seller is not None and old_amount is not None
            for ts, price, bidder in bids if is_joined else [*self.bids.get(), *bids]:
                yield Row(auction=key[0], seller=seller[0], bid_ts=ts, price=price, bidder=bidder, amount=amount[0])
        self._keep(new, seller, amount, bids)

    def _keep(self, new: Mapping[str, Sequence[Any]], seller: Any, amount: Any, bids: list[Any]) -> None:
        if self.over is not None:
            if seller and amount and (new["end"] or self.over.exists()):
                for state in (self.opened, self.paid, self.bids, self.over):
                    state.clear()
                return
            if new["end"]:
                self.over.update((True,))
        if new["auction"]:
            self.opened.update(seller)
        if new["payment"]:
            self.paid.update(amount)
        if bids:
            self.bids.appendList(bids)

    def close(self) -> None:
        pass


def stream(spark: SparkSession, setting: Setting, name: str) -> DataFrame:
    folder = str(setting.files / name)
    reader = spark.readStream.schema(spark.read.parquet(folder).schema)
    return reader.option("maxFilesPerTrigger", setting.files_per_trigger).parquet(folder)


def join_bids_last(spark: SparkSession, setting: Setting) -> DataFrame:
    """Spark's own join in the order that keeps least: no bid is in its state twice."""
    opened, bids, paid = _inputs(spark, setting)
    return opened.join(paid, "auction").join(bids, "auction")


def join_bids_first(spark: SparkSession, setting: Setting) -> DataFrame:
    """Spark's own join as one would write it: bids are kept alone and with their auctions."""
    opened, bids, paid = _inputs(spark, setting)
    return opened.join(bids, "auction").join(paid, "auction")


def _inputs(spark: SparkSession, setting: Setting) -> tuple[DataFrame, DataFrame, DataFrame]:
    opened = stream(spark, setting, "auctions").selectExpr("id AS auction", "seller")
    bids = stream(spark, setting, "bids").where("NOT is_end")
    paid = stream(spark, setting, "payments").select("auction", "amount")
    return opened, bids.selectExpr("auction", "ts AS bid_ts", "price", "bidder"), paid


def with_ttl(spark: SparkSession, setting: Setting) -> DataFrame:
    """A processor in Python whose state Spark drops after a while."""
    return _processed(spark, setting, Auction(setting.ttl_ms, clears=False))


def by_hand(spark: SparkSession, setting: Setting) -> DataFrame:
    """A processor in Python that knows this one join and drops an auction once it is over and paid."""
    return _processed(spark, setting, Auction(None, clears=True))


def _processed(spark: SparkSession, setting: Setting, processor: Auction) -> DataFrame:
    null = "CAST(NULL AS {}) AS {}"
    opened = stream(spark, setting, "auctions").selectExpr(
        "id AS auction", "'auction' AS kind", "ts", null.format("LONG", "money"), "seller AS person"
    )
    bids = stream(spark, setting, "bids").selectExpr(
        "auction", "IF(is_end, 'end', 'bid') AS kind", "ts", "price AS money", "bidder AS person"
    )
    paid = stream(spark, setting, "payments").selectExpr(
        "auction", "'payment' AS kind", "ts", "amount AS money", null.format("INT", "person")
    )
    grouped = opened.unionByName(bids).unionByName(paid).groupBy("auction")
    return grouped.transformWithState(processor, RESULT_SCHEMA, "Append", "ProcessingTime")


@dataclass(frozen=True, slots=True)
class Competitor:
    """A way to do the join in Spark; `paced` if its results depend on the clock."""

    join: Callable[[SparkSession, Setting], DataFrame]
    settings: Mapping[str, str] = field(default_factory=dict)
    paced: bool = False


COMPETITORS = {
    "join, bids last": Competitor(join_bids_last),
    "join, bids first": Competitor(join_bids_first),
    "TTL": Competitor(with_ttl, ROCKSDB, paced=True),
    "by hand": Competitor(by_hand, ROCKSDB),
}


def run(competitor: Competitor, spark: SparkSession, setting: Setting, out: Path) -> StreamingQuery:
    """Stream the results to Parquet until the input is used up."""
    names = [column.split()[0] for column in RESULT_SCHEMA.split(", ")]
    writer = competitor.join(spark, setting).select(*names).writeStream.format("parquet")
    writer = writer.option("path", str(out / "results")).option("checkpointLocation", str(out / "checkpoint"))
    if not competitor.paced:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query
    query = writer.trigger(processingTime=f"{round(1000 * setting.pace)} milliseconds").start()
    query.processAllAvailable()
    query.stop()
    return query


def warm_up(competitor: Competitor, spark: SparkSession, setting: Setting) -> None:
    """Run on a few rows first: a first batch that takes a minute would outlive a TTL."""
    with TemporaryDirectory(prefix="watersmeet-bench-") as folder:
        write_batches(auctions(1, 2 * SECONDS_PER_BATCH, np.random.default_rng(0)), Path(folder) / "files")
        few = replace(setting, files=Path(folder) / "files", files_per_trigger=1)
        run(replace(competitor, paced=False), spark, few, Path(folder) / "out")


def batch_figures(progress: Mapping[str, Any], setting: Setting) -> dict[str, float]:
    """What Spark says of one batch; `files` is how many of each stream it had read by then.

    `state_rows` of a join are the rows it has buffered, on all sides. Those of a processor are keys of its state store,
    where all bids for an auction are one.
    """
    operators = progress["stateOperators"]
    return {
        "files": (progress["batchId"] + 1) * setting.files_per_trigger,
        "input_rows": progress["numInputRows"],
        "ms": progress["durationMs"]["triggerExecution"],
        "state_rows": sum(operator["numRowsTotal"] for operator in operators),
        "state_bytes": sum(operator["memoryUsedBytes"] for operator in operators),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run, print."""
    parser = measurement.arguments(__doc__)
    parser.add_argument("name", choices=list(COMPETITORS))
    parser.add_argument("--ttl", type=float, default=120, help="seconds of event time")
    parser.add_argument("--pace", type=float, default=3, help="seconds of the clock a batch")
    parser.add_argument("--files-per-trigger", type=int, default=1)
    options = parser.parse_args(arguments)
    competitor = COMPETITORS[options.name]
    setting = Setting(options.files.resolve(), options.ttl, options.pace, options.files_per_trigger)
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.numRecentProgressUpdates": "100000"}
    spark = session({**settings, **competitor.settings})
    warm_up(competitor, spark, setting)

    def batches() -> list[dict[str, float]]:
        recent = run(competitor, spark, setting, options.out).recentProgress
        return [batch_figures(progress, setting) for progress in recent if progress["numInputRows"]]

    measurement.measure(options.out, batches)


if __name__ == "__main__":
    main()
