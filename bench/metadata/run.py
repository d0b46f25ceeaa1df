"""Run auctions ⋈ bids ⋈ payments without windows on Spark, with metadata or without, and write what each batch took.

python -m bench.metadata.run metadata --files FOLDER --out FOLDER --seconds 600
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from bench import measurement
from bench.common import session
from bench.metadata.reference import STREAMS

Kind = Literal["metadata", "none", "windows"]
"""What lets state go: what the streams declare, nothing, or one-hour windows."""

WHERE = "auctions.id = bids.auction AND auctions.id = payments.auction"
SELECT = (
    "auctions.id AS auction, auctions.seller AS seller, bids.ts AS bid_ts, bids.price AS price, "
    "bids.bidder AS bidder, payments.amount AS amount"
)
WINDOW = "1 hour"
CONSTRAINTS: Mapping[str, Mapping[str, Any]] = {
    "auctions": {"constraints": [wm.key("id")]},
    "bids": {"punctuations": wm.punctuations(flag="is_end", on="auction")},
    "payments": {"constraints": [wm.key("auction")]},
}


@dataclass(frozen=True, slots=True)
class Figures:
    """What `progress` says of one batch; times are in milliseconds, `cpu_ms` includes `purge_ms`."""

    batch: int
    rows: int
    results: int
    live: int
    purged: int
    chunks: int
    state_bytes: int
    merges: int
    marks: int
    mark_bytes: int
    ms: float
    cpu_ms: float
    purge_ms: float
    process: str


def figures(progress: Mapping[str, Any]) -> Figures:
    """Return what a bench needs of a batch's progress."""
    return Figures(
        batch=progress["batchId"],
        rows=sum(progress["inputRows"].values()),
        results=progress["outputRows"],
        live=progress["distinctRows"],
        purged=progress["purgedRows"],
        chunks=progress["stateChunks"],
        state_bytes=progress["stateBytes"],
        merges=progress["merges"],
        marks=sum(one["marks"] for one in progress["promises"].values()),
        mark_bytes=sum(one["bytes"] for one in progress["promises"].values()),
        ms=progress["durationMs"]["total"],
        cpu_ms=sum(node["cpuMs"] for node in progress["nodes"]),
        purge_ms=progress["purgeMs"],
        process=progress["process"],
    )


def make_join(frames: Mapping[str, DataFrame], kind: Kind, purge_every: int = 1) -> wm.Join:
    """Join the streams; without metadata the ends of auctions are no rows."""
    if kind != "metadata":
        frames = {**frames, "bids": frames["bids"].where("NOT is_end")}
    constraints = CONSTRAINTS if kind == "metadata" else {}
    window = WINDOW if kind == "windows" else None
    # Files are in order of time: no row comes late without a delay, and windows end as early as they can.
    how: Mapping[str, Any] = {"time": "ts", "delay": "0 seconds", "window": window}
    streams = [wm.stream(name, frames[name], **how, **constraints.get(name, {})) for name in STREAMS]
    return wm.join(*streams, where=WHERE, select=SELECT, purge_every=purge_every)


def read(spark: SparkSession, files: Path) -> dict[str, DataFrame]:
    """Return the streams, a file of each in a batch."""
    schemas = {name: spark.read.parquet(str(files / name)).schema for name in STREAMS}
    readers = {name: spark.readStream.schema(schema) for name, schema in schemas.items()}
    return {name: r.option("maxFilesPerTrigger", 1).parquet(str(files / name)) for name, r in readers.items()}


def start(spark: SparkSession, files: Path, out: Path, kind: Kind, purge_every: int = 1) -> wm.JoinQuery:
    """Start the join over finished files; it ends with them."""
    writer = make_join(read(spark, files), kind, purge_every).writeStream.format("parquet")
    writer = writer.option("path", str(out / "results")).option("checkpointLocation", str(out / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def follow(query: wm.JoinQuery, seconds: float) -> Iterator[Figures]:
    """Yield every batch as it is done, for some seconds at most; `progress` itself forgets all but the last."""
    last, end = -1, time.monotonic() + seconds
    while True:
        active = query.isActive and time.monotonic() < end
        for progress in query.progress:
            if progress["batchId"] > last:
                last = progress["batchId"]
                yield figures(progress)
        if not active:
            break
        time.sleep(0.2)
    if query.isActive:
        query.stop()
    else:
        query.awaitTermination()


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run, write and print."""
    parser = measurement.arguments(__doc__)
    parser.add_argument("kind", choices=get_args(Kind))
    parser.add_argument("--seconds", type=float, required=True, help="of the clock, after which it is stopped")
    parser.add_argument("--purge-every", type=int, default=1, help="batches")
    options = parser.parse_args(arguments)
    spark = session({})

    def batches() -> list[dict[str, Any]]:
        query = start(spark, options.files, options.out, options.kind, options.purge_every)
        return [asdict(batch) for batch in follow(query, options.seconds)]

    measurement.measure(options.out, batches)


if __name__ == "__main__":
    main()
