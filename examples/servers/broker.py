"""A Kafka broker of one node on loopback, without a container: for the demo and for tests."""

import base64
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from examples.servers.fetch import maven, once

HERE = Path(__file__).parent
KAFKA = "4.3.1"
CONNECTOR = "4.2.0"
"""The newest connector in the registry; it serves Spark 4.3."""
START_SECONDS = 120.0
Tell = Callable[[str], None]


def broker_jars(tell: Tell = lambda line: None) -> Path:
    """Return the folder with the broker's jars; fetch them if they are missing."""
    return _jars(f"kafka-{KAFKA}", "broker.xml", f"-Dkafka.version={KAFKA}", tell)


def connector_jars(tell: Tell = lambda line: None) -> list[Path]:
    """Return the jars that Spark needs for Kafka (`spark.jars`); fetch them if they are missing."""
    folder = _jars(f"kafka-connector-{CONNECTOR}", "connector.xml", f"-Dconnector.version={CONNECTOR}", tell)
    return sorted(folder.glob("*.jar"))


def _jars(name: str, pom: str, version: str, tell: Tell) -> Path:
    def copy(to: Path) -> None:
        how = ("dependency:copy-dependencies", f"-f{HERE / pom}", version, "-DincludeScope=runtime")
        maven(*how, f"-DoutputDirectory={to}", what="Kafka's jars", tell=tell)

    return once(name, copy, tell)


@dataclass
class Broker:
    """A broker whose topics are in a folder; it can be stopped, or killed, and started again.

    Attributes:
        folder: Where it keeps everything.
        partitions: How many partitions an automatically created topic has.
        port: Where it listens, on loopback.
    """

    folder: Path
    partitions: int = 2
    port: int = field(default_factory=lambda: free_port())
    _control: int = field(default_factory=lambda: free_port())
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the broker, and wait until it listens.

        Raises:
            RuntimeError: If it does not start.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "data").exists():
            self._format()
        with self._log.open("ab") as log:
            command = [*_java(), "kafka.Kafka", str(self._properties)]
            self._process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS
        while not listens(self.port):
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"The Kafka broker didn't start: {self._log.read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Shut it down cleanly; kill it if that takes too long."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
        self.kill()

    def kill(self) -> None:
        """Kill it without a clean shutdown."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _format(self) -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._control}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._control}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "data",
            "num.partitions": self.partitions,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = [*_java(), "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(self._properties)]
        outcome = subprocess.run(tool, cwd=self.folder, capture_output=True, text=True)
        if outcome.returncode:
            shutil.rmtree(self.folder / "data", ignore_errors=True)
            raise RuntimeError(
                f"The Kafka broker's folder could not be formatted: {(outcome.stdout + outcome.stderr)[-2000:]}"
            )


@contextmanager
def running(folder: Path, partitions: int = 2, tell: Tell = lambda line: None) -> Iterator[Broker]:
    """Run a broker in an empty folder, and kill it at the end."""
    broker_jars(tell)
    broker = Broker(folder, partitions)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def java() -> str:
    """Return the Java that Spark would use."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def _java() -> list[str]:
    # The broker runs for seconds: optimising its code would take longer than running it.
    quick = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java(), *quick, "-cp", f"{broker_jars()}/*"]


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def listens(port: int) -> bool:
    """Tell whether something listens on a port of the loopback interface."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
