"""Kafka: three topics joined into a fourth, by a real broker, through crashes of the join and of the broker."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.servers import broker as brokers
from examples.servers.client import Client, Reader, client
from examples.servers.fetch import MissingTool
from watersmeet.testing import brute_force

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ROOT = Path(__file__).parents[2]
TOPICS, RESULTS, WINDOW = "abc", "matches", 10
PARTITIONS = 2
START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = 400.0
"""How long results are waited for."""
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    try:
        brokers.connector_jars()
        with brokers.running(tmp_path_factory.mktemp("kafka") / "broker", PARTITIONS) as running:
            yield running
    except MissingTool as missing:
        pytest.skip(str(missing))


def make_rows(phase: int, count: int = 24) -> Rows:
    """Rows of a phase, up to some seconds out of order; some come twice."""
    rng, rows = random.Random(phase), Rows()
    for name in TOPICS:
        rows[name] = []
        for at in range(count):
            moment = START + timedelta(seconds=phase * 8 + at * 8 / count - rng.random() * 6)
            row = {"id": phase * 1000 + at, "ts": moment.isoformat(timespec="milliseconds"), "x": rng.randrange(60)}
            rows[name] += [row] * (2 if at % 8 == 0 else 1)
    return rows


def send(to: Client, rows: Rows) -> None:
    """Send rows to partitions by dice, so that one is ahead of the other."""
    rng = random.Random(1)
    for name, given in rows.items():
        for row in given:
            to.send(name, json.dumps(row), rng.randrange(PARTITIONS))
    to.flush()


def expected_results(phases: Sequence[Rows]) -> Counter[tuple[int, ...]]:
    every = {
        name: [{**row, "ts": datetime.fromisoformat(row["ts"])} for rows in phases for row in rows[name]]
        for name in TOPICS
    }
    size = dict.fromkeys(TOPICS, timedelta(seconds=WINDOW))
    found = brute_force(every, lambda a, b, c: a["x"] < b["x"] and abs(b["x"] - c["x"]) < 1.5, windows=size)
    return Counter(tuple(row[name]["id"] for name in TOPICS) for row in found)


class Compacted:
    """A topic as compaction would leave it: the last value of each key."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self.records, self.values = reader, 0, dict[str, tuple[int, ...]]()

    def poll(self) -> Counter[tuple[int, ...]]:
        for record in self._reader.poll():
            self.records += 1
            row = json.loads(record.value)
            value = tuple(row[name] for name in TOPICS)
            assert record.key is not None and self.values.get(record.key, value) == value, "a key of two results"
            self.values[record.key] = value
        return Counter(self.values.values())

    def reaches(self, goal: Counter[tuple[int, ...]]) -> None:
        """Wait for exactly these results."""
        until = time.monotonic() + SECONDS
        while self.poll() != goal:
            assert time.monotonic() < until, f"{len(self.values)} results, {goal.total()} wanted"


@contextmanager
def joining(folder: Path, address: str, **spec: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run the join in a process group of its own; whatever is left of it is killed at the end."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "tests.remote.kafka_join", str(folder / "checkpoint"), address, json.dumps(spec)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_through_crashes_and_restarts(broker: brokers.Broker, tmp_path: Path) -> None:
    phases = [make_rows(phase) for phase in range(3)]
    with client(broker) as to:
        for topic in (*TOPICS, RESULTS):
            to.make(topic, PARTITIONS)
        results = Compacted(to.reader(RESULTS, PARTITIONS))
        send(to, phases[0])
        with joining(tmp_path, broker.address, nodes=2, exit=0) as process:
            assert process.wait(SECONDS) == 3, (tmp_path / "log").read_text()[-2000:]
        send(to, phases[1])
        results.poll()
        with joining(tmp_path, broker.address, nodes=3):
            results.reaches(expected_results(phases[:2]))
            broker.kill()
            broker.start()
            send(to, phases[2])
            results.reaches(expected_results(phases))
        assert max(expected_results(phases).values()) > 1  # results that are alike are told apart
        assert results.records > len(results.values)  # the batch that was cut was really written twice


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    try:
        brokers.broker_jars()
    except MissingTool as missing:
        pytest.skip(str(missing))
    taken = brokers.Broker(tmp_path / "broker", PARTITIONS)
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "data").mkdir()
    (tmp_path / "broker" / "server.properties").write_text("node.id=nonsense\n")
    with pytest.raises(RuntimeError, match="The Kafka broker didn't start"):
        taken.start()
    with pytest.raises(RuntimeError, match="could not be formatted"):
        brokers.Broker(tmp_path / "other", partitions=0).start()
