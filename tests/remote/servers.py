"""Start a server, wait for the port it prints, and end it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.remote import packages

HERE = Path(__file__).parent


@contextmanager
def hdfs(folder: Path) -> Iterator[int]:
    """The port of an HDFS whose files are in that folder."""
    classes = f"{packages.minicluster()}/*:{packages.spark_jars()}/*"
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-cp", classes]
    with _server([*java, str(HERE / "Hdfs.java"), str(folder / "data")], folder) as port:
        yield port


@contextmanager
def s3(folder: Path) -> Iterator[int]:
    """The port of an S3 that keeps its objects in memory."""
    with _server([str(packages.moto_python()), str(HERE / "s3.py")], folder) as port:
        yield port


@contextmanager
def _server(command: list[str], folder: Path) -> Iterator[int]:
    log = folder / "server.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            # Logging may come first; at the end of the output the server is dead.
            port = next((line.split()[1] for line in process.stdout if line.startswith("PORT ")), None)
            if port is None:
                raise RuntimeError(f"{command[0]} didn't start: {log.read_text()[-2000:]}")
            yield int(port)
        finally:
            process.kill()
