"""Prices from three Kafka topics, joined live into a fourth: where did a price fall twice within three seconds?

Run it with `make demo-kafka`. It starts a broker on this machine, without a container, sends quotes of three exchanges
to three topics of two partitions each, up to a second out of order, and reads the results back from their topic as they
arrive. At the end, a brute-force check in NumPy over all quotes says whether they are right.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from numpy.typing import NDArray

import watersmeet as wm
from examples.demo import can_show, command_line, start_spark
from examples.servers.broker import Broker, connector_jars, running
from examples.servers.client import Client, Reader, Record, client
from examples.servers.fetch import MissingTool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

TOPICS = ("london", "newyork", "tokyo")
RESULTS = "falls"
PARTITIONS = 2
WINDOW, DISORDER, GAP = 3.0, 1.0, 0.6
TICK = 0.05
"""Seconds between two rounds of sending."""
QUIET = 5.0
"""How many seconds to wait for another result once everything has been sent."""


@dataclass(frozen=True)
class Settings:
    """The settings of the demo; the rate is per topic."""

    folder: Path = Path("demo-output/kafka")
    rate: float = 100.0
    seconds: float = 60.0


# -- the join: this part is what you would write yourself

WHERE = f"london.price > newyork.price + {GAP} AND newyork.price > tokyo.price + {GAP}"
SELECT = """
    _id AS key,
    to_json(struct(
        london.id AS london, newyork.id AS newyork, tokyo.id AS tokyo, _time AS time,
        greatest(london.sent, newyork.sent, tokyo.sent) AS sent
    )) AS value
"""


def quotes(spark: SparkSession, address: str, topic: str) -> DataFrame:
    """Read a topic whose values are JSON."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = records.selectExpr("from_json(string(value), 'id long, ts timestamp, price double, sent long') AS quote")
    return parsed.select("quote.*")


def make_join(topics: Mapping[str, DataFrame]) -> wm.Join:
    """Join the three topics: a price that fell from London to New York, and again from New York to Tokyo."""
    streams = (
        wm.stream(name, frame, time="ts", window=f"{WINDOW} seconds", delay="2 seconds")
        for name, frame in topics.items()
    )
    return wm.join(*streams, where=WHERE, select=SELECT)


def start(spark: SparkSession, address: str, folder: Path) -> wm.JoinQuery:
    """Start the join; its results go to a topic, each under its `_id`."""
    writer = make_join({topic: quotes(spark, address, topic) for topic in TOPICS}).writeStream
    return (
        writer.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("topic", RESULTS)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


# -- the data


@dataclass
class Feed:
    """Sends quotes at the given rate, and remembers them.

    Attributes:
        to: The client that sends them.
        settings: How many are sent, and for how long.
        sent: For each topic, time and price of the quotes sent so far, by id.
        end: Set to stop early.
    """

    to: Client
    settings: Settings
    sent: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})
    end: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Send all quotes, then return."""
        rng, start_time, offset = np.random.default_rng(0), time.time(), 0.0
        while offset < self.settings.seconds and not self.end.wait(max(0.0, start_time + offset - time.time())):
            for topic in TOPICS:
                for _ in range(rng.poisson(self.settings.rate * TICK)):
                    self._send(topic, rng)
            offset += TICK
        self.to.flush()

    def _send(self, topic: str, rng: np.random.Generator) -> None:
        now = time.time()
        moment = round(now - rng.random() * DISORDER, 3)
        price, rows = round(float(rng.normal(100, 0.2)), 2), self.sent[topic]
        row = {"id": len(rows), "ts": iso(moment), "price": price, "sent": int(now * 1000)}
        self.to.send(topic, json.dumps(row), int(rng.integers(PARTITIONS)))
        rows.append((moment, price))


def iso(moment: float) -> str:
    """Return a time as text for JSON, in UTC."""
    whole = round(moment * 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole // 1000)) + f".{whole % 1000:03d}Z"


class Fall(NamedTuple):
    """A result: the ids of its quotes."""

    london: int
    newyork: int
    tokyo: int


@dataclass
class Results:
    """The results read from their topic, and how long each took.

    Attributes:
        read: The reader of the topic.
        by_key: The results by key.
        records: How many records there were.
        latencies: When each result arrived, and the seconds since its last quote was sent.
    """

    read: Reader
    by_key: dict[str, Fall] = field(default_factory=dict)
    records: int = 0
    latencies: list[tuple[float, float]] = field(default_factory=list)

    def poll(self) -> bool:
        """Read the records that have arrived; return whether there were any."""
        records = self.read.poll()
        now = time.time()
        for record in records:
            self._take(record, now)
        return bool(records)

    def _take(self, record: Record, now: float) -> None:
        row = json.loads(record.value)
        self.records += 1
        self.by_key[record.key or ""] = Fall(row["london"], row["newyork"], row["tokyo"])
        self.latencies.append((now, now - row["sent"] / 1000))

    def percentiles(self, since: float = 0.0) -> tuple[float, float] | None:
        """Return the median and the 95th percentile of the latencies since a time, or None if there are none."""
        latencies = [latency for arrival, latency in self.latencies if arrival >= since]
        return (float(np.percentile(latencies, 50)), float(np.percentile(latencies, 95))) if latencies else None


# -- the check: brute force, straight from the definition, without any Watersmeet code


def brute_force(sent: Mapping[str, Sequence[tuple[float, float]]]) -> set[Fall]:
    """Every result; each member is less than WINDOW before the latest."""
    first, second, third = (np.array(sent[topic], dtype=np.float64).reshape(-1, 2) for topic in TOPICS)
    falls = set[Fall]()
    for middle, (moment, price) in enumerate(second):
        left = np.flatnonzero(_apart(first[:, 0], moment) & (first[:, 1] > price + GAP))
        right = np.flatnonzero(_apart(third[:, 0], moment) & (price > third[:, 1] + GAP))
        near = _apart(first[left, 0][:, None], third[right, 0][None, :])
        falls |= {Fall(int(left[a]), middle, int(right[c])) for a, c in np.argwhere(near)}
    return falls


def _apart(one: NDArray[np.float64], two: NDArray[np.float64] | float) -> NDArray[np.bool_]:
    """Tell which times are less than the window apart, to the millisecond."""
    near: NDArray[np.bool_] = np.abs(np.rint(one * 1000) - np.rint(np.asarray(two) * 1000)) < WINDOW * 1000
    return near


# -- what the terminal shows


@dataclass(frozen=True)
class View:
    """Shows progress: live in a terminal, in a line every few seconds elsewhere."""

    console: Console
    feed: Feed
    results: Results
    query: wm.JoinQuery

    def follow(self, feeding: threading.Thread) -> None:
        """Read results until all quotes are sent and no more results come."""
        with self.console.status(self.line()) as status:
            last_result = last_line = time.monotonic()
            while feeding.is_alive() or time.monotonic() - last_result < QUIET or self._behind():
                if self.results.poll() or feeding.is_alive():
                    last_result = time.monotonic()
                if not self.query.isActive:
                    return
                status.update(self.line())
                if not self.console.is_terminal and time.monotonic() - last_line > QUIET:
                    self.console.print(self.line(), soft_wrap=True)
                    last_line = time.monotonic()

    def _behind(self) -> bool:
        """Tell whether the join has yet to read some of the quotes."""
        rows_read = sum(sum(batch["inputRows"].values()) for batch in self.query.progress)
        return rows_read < sum(map(len, self.feed.sent.values()))

    def line(self) -> str:
        """Return a line with the counts so far and the latency of recent results."""
        sent = sum(map(len, self.feed.sent.values()))
        last, history = self.results.percentiles(time.time() - QUIET), self.query.progress
        latencies = f"  from quote to result: p50 {last[0]:.1f} s, p95 {last[1]:.1f} s" if last else ""
        batch = f"  last batch: {history[-1]['durationMs']['total'] / 1000:.1f} s" if history else ""
        return f"{sent:6,} quotes sent  {len(self.results.by_key):6,} results{latencies}{batch}"


def verdict(results: Results, reference: set[Fall]) -> tuple[bool, str]:
    """Compare the results with the brute-force ones; return whether they are equal, and a sentence."""
    falls = sorted(results.by_key.values())
    if falls == sorted(reference):
        return True, (
            f"The results equal the oracle's: {len(reference):,} from a brute force in NumPy over all quotes, none "
            f"missing, none under two ids; {results.records - len(falls)} records were duplicates, under the same id."
        )
    missing, extra = len(reference - {*falls}), len(falls) - len(reference & {*falls})
    return False, f"The results DIFFER from the oracle's: {missing} missing, {extra} too many."


# -- all of it


def run(settings: Settings) -> int:
    """Run the demo; return the exit code."""
    from rich.console import Console

    console = Console(highlight=False)
    folder = settings.folder.resolve()
    for part in ("broker", "checkpoint"):
        shutil.rmtree(folder / part, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    jars = connector_jars(console.print)
    console.print("Starting a Kafka broker and Spark ...")
    with running(folder / "broker", tell=console.print) as broker, client(broker) as to:
        for topic in TOPICS:
            to.make(topic, PARTITIONS)
        to.make(RESULTS, PARTITIONS, cleanup_policy="compact")
        spark = start_spark(folder / "spark.log", {"spark.jars": ",".join(map(str, jars))})
        try:
            return _run_join(console, spark, settings, broker, to)
        finally:
            spark.stop()


def _run_join(console: Console, spark: SparkSession, settings: Settings, broker: Broker, to: Client) -> int:
    start_time = time.time()
    query = start(spark, broker.address, settings.folder.resolve())
    feed, results = Feed(to, settings), Results(to.reader(RESULTS, PARTITIONS))
    feeding = threading.Thread(target=feed.run, daemon=True)
    feeding.start()
    try:
        View(console, feed, results, query).follow(feeding)
    finally:
        feed.end.set()
        feeding.join()
        query.stop()
    if query.exception() is not None:
        console.print(f"[red]{query.exception()}[/red]")
        return 1
    right, sentence = verdict(results, brute_force(feed.sent))
    console.print(f"[{'green' if right else 'red'}]{sentence}[/]")
    steady = results.percentiles(start_time + settings.seconds / 3) or (0.0, 0.0)
    late = sum(batch["lateRows"] for batch in query.progress)
    console.print(
        f"Time from sending the last quote of a result to reading the result from its topic: p50 "
        f"{steady[0]:.2f} s, p95 {steady[1]:.2f} s (leaving out the first third, in which Spark warms up). {late} "
        f"quotes were late. The results are in topic {RESULTS!r} of a broker that stops now; docs/kafka.md says how to "
        "do this with your own."
    )
    return 0 if right else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    about, rate = "Join three Kafka topics into a fourth.", (Settings.rate, "quotes per second and topic")
    options = command_line(about, rate, Settings.seconds, Settings.folder).parse_args(arguments)
    if not can_show("make demo-kafka"):
        return 2
    try:
        return run(Settings(options.output, options.rate, options.seconds))
    except MissingTool as missing:
        print(f"The demo {missing}.", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
