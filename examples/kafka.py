"""Prices from three Kafka topics, joined live into a fourth: where did a price fall twice within three seconds?

Run it with `make demo-kafka`. It starts a broker on this machine, without a container, sends quotes of three exchanges
to three topics of two partitions each, up to a second out of order, and reads the results back from their topic as they
come. At the end a brute force in NumPy over all that was sent says whether they are right.
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
"""Seconds between two sendings."""
QUIET = 5.0
"""Seconds without a result, once all was sent, after which none is waited for any more."""


@dataclass(frozen=True)
class Settings:
    """What the demo runs on; the rate is that of each topic."""

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
    """Sends quotes at their pace, and remembers them.

    Attributes:
        to: Where they are sent.
        settings: How many, for how long.
        sent: For each topic the time and the price of what was sent, by id.
        end: Set to stop early.
    """

    to: Client
    settings: Settings
    sent: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})
    end: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Send all, then return."""
        rng, began, due = np.random.default_rng(0), time.time(), 0.0
        while due < self.settings.seconds and not self.end.wait(max(0.0, began + due - time.time())):
            for topic in TOPICS:
                for _ in range(rng.poisson(self.settings.rate * TICK)):
                    self._send(topic, rng)
            due += TICK
        self.to.flush()

    def _send(self, topic: str, rng: np.random.Generator) -> None:
        now = time.time()
        moment = round(now - rng.random() * DISORDER, 3)
        price, rows = round(float(rng.normal(100, 0.2)), 2), self.sent[topic]
        row = {"id": len(rows), "ts": iso(moment), "price": price, "sent": int(now * 1000)}
        self.to.send(topic, json.dumps(row), int(rng.integers(PARTITIONS)))
        rows.append((moment, price))


def iso(moment: float) -> str:
    """Return a time as JSON holds it, in UTC."""
    whole = round(moment * 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole // 1000)) + f".{whole % 1000:03d}Z"


class Fall(NamedTuple):
    """A result: the ids of its quotes."""

    london: int
    newyork: int
    tokyo: int


@dataclass
class Results:
    """What has come to the topic of results, with how long each took.

    Attributes:
        read: Where it is read from.
        found: The results by their keys.
        records: How many records there were.
        latencies: When each came, and the seconds since its last quote was sent.
    """

    read: Reader
    found: dict[str, Fall] = field(default_factory=dict)
    records: int = 0
    latencies: list[tuple[float, float]] = field(default_factory=list)

    def poll(self) -> bool:
        """Take what has come; return whether there was something."""
        records = self.read.poll()
        now = time.time()
        for record in records:
            self._take(record, now)
        return bool(records)

    def _take(self, record: Record, now: float) -> None:
        row = json.loads(record.value)
        self.records += 1
        self.found[record.key or ""] = Fall(row["london"], row["newyork"], row["tokyo"])
        self.latencies.append((now, now - row["sent"] / 1000))

    def percentiles(self, since: float = 0.0) -> tuple[float, float] | None:
        """Return the median and the 95th percentile of the latencies of what came since then, if anything did."""
        some = [took for came, took in self.latencies if came >= since]
        return (float(np.percentile(some, 50)), float(np.percentile(some, 95))) if some else None


# -- the check: brute force, no Watersmeet code, straight from the definition


def brute_force(sent: Mapping[str, Sequence[tuple[float, float]]]) -> set[Fall]:
    """Every result; each member is less than WINDOW before the latest."""
    first, second, third = (np.array(sent[topic], dtype=np.float64).reshape(-1, 2) for topic in TOPICS)
    found = set[Fall]()
    for middle, (moment, price) in enumerate(second):
        left = np.flatnonzero(_apart(first[:, 0], moment) & (first[:, 1] > price + GAP))
        right = np.flatnonzero(_apart(third[:, 0], moment) & (price > third[:, 1] + GAP))
        near = _apart(first[left, 0][:, None], third[right, 0][None, :])
        found |= {Fall(int(left[a]), middle, int(right[c])) for a, c in np.argwhere(near)}
    return found


def _apart(one: NDArray[np.float64], two: NDArray[np.float64] | float) -> NDArray[np.bool_]:
    """Tell which times are less than the window apart, to the millisecond."""
    near: NDArray[np.bool_] = np.abs(np.rint(one * 1000) - np.rint(np.asarray(two) * 1000)) < WINDOW * 1000
    return near


# -- what the terminal shows


@dataclass(frozen=True)
class View:
    """Says how it goes: on a terminal live, elsewhere in a line every few seconds."""

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
        """Tell whether the join has quotes to read yet."""
        read = sum(sum(batch["inputRows"].values()) for batch in self.query.progress)
        return read < sum(map(len, self.feed.sent.values()))

    def line(self) -> str:
        """Say what there is so far, and what the last results took."""
        sent = sum(map(len, self.feed.sent.values()))
        last, history = self.results.percentiles(time.time() - QUIET), self.query.progress
        took = f"  from quote to result: p50 {last[0]:.1f} s, p95 {last[1]:.1f} s" if last else ""
        batch = f"  last batch: {history[-1]['durationMs']['total'] / 1000:.1f} s" if history else ""
        return f"{sent:6,} quotes sent  {len(self.results.found):6,} results{took}{batch}"


def verdict(results: Results, wanted: set[Fall]) -> tuple[bool, str]:
    """Compare what came with what should have; return whether it is right, and a sentence."""
    found = sorted(results.found.values())
    if found == sorted(wanted):
        return True, (
            f"The results equal the oracle's: {len(wanted):,} from a brute force in NumPy over all quotes, none "
            f"missing, none under two ids; {results.records - len(found)} records came twice, under the same id."
        )
    missing, extra = len(wanted - {*found}), len(found) - len(wanted & {*found})
    return False, f"The results DIFFER from the oracle's: {missing} missing, {extra} too many."


# -- all of it


def run(settings: Settings) -> int:
    """Run the demo; return the exit code."""
    from rich.console import Console

    console = Console(highlight=False)
    folder = settings.folder.resolve()
    for made in ("broker", "checkpoint"):
        shutil.rmtree(folder / made, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    jars = connector_jars(console.print)
    console.print("Starting a Kafka broker and Spark ...")
    with running(folder / "broker", tell=console.print) as broker, client(broker) as to:
        for topic in TOPICS:
            to.make(topic, PARTITIONS)
        to.make(RESULTS, PARTITIONS, cleanup_policy="compact")
        spark = start_spark(folder / "spark.log", {"spark.jars": ",".join(map(str, jars))})
        try:
            return _joined(console, spark, settings, broker, to)
        finally:
            spark.stop()


def _joined(console: Console, spark: SparkSession, settings: Settings, broker: Broker, to: Client) -> int:
    began = time.time()
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
    steady = results.percentiles(began + settings.seconds / 3) or (0.0, 0.0)
    late = sum(batch["lateRows"] for batch in query.progress)
    console.print(
        f"From the moment the last quote of a result was sent until the result was read from its topic: p50 "
        f"{steady[0]:.2f} s, p95 {steady[1]:.2f} s (without the first third, in which Spark warms up). {late} quotes "
        f"were late. The results are in topic {RESULTS!r} of a broker that ends now; docs/kafka.md says how to do this "
        "with yours."
    )
    return 0 if right else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    about, rate = "Join three Kafka topics into a fourth.", (Settings.rate, "quotes a second and topic")
    given = command_line(about, rate, Settings.seconds, Settings.folder).parse_args(arguments)
    if not can_show("make demo-kafka"):
        return 2
    try:
        return run(Settings(given.output, given.rate, given.seconds))
    except MissingTool as missing:
        print(f"The demo {missing}.", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
