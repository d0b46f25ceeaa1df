"""The servers create a name for one client only, and Spark can keep a checkpoint on them."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.remote.conftest import S3

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("remote")]  # one HDFS, one S3
RACERS = 8


def race(create: Callable[[int], None], taken: type[Exception]) -> list[int]:
    """Who of eight threads could create."""
    winners: list[int] = []
    failures: list[Exception] = []
    start = threading.Barrier(RACERS)

    def run(racer: int) -> None:
        start.wait()
        try:
            create(racer)
            winners.append(racer)
        except taken:
            pass
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=run, args=(racer,)) for racer in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    return winners


def test_hdfs_creates_once(hdfs: str) -> None:
    import hdfs_native as native

    clients = [native.Client(hdfs) for _ in range(RACERS)]
    clients[0].mkdirs("/once", 0o755, True)

    for round in range(10):
        name = f"/once/{round}"

        def create(racer: int, name: str = name) -> None:
            with clients[racer].create(name, native.WriteOptions(overwrite=False)) as file:
                file.write(str(racer).encode())

        (winner,) = race(create, FileExistsError)
        assert clients[0].read(name).read() == str(winner).encode()


def test_hdfs_renames_once(hdfs: str) -> None:
    import hdfs_native as native

    clients = [native.Client(hdfs) for _ in range(RACERS)]
    clients[0].mkdirs("/renamed", 0o755, True)

    for round in range(4):
        name = f"/renamed/{round}"
        for racer, client in enumerate(clients):
            with client.create(f"{name}-{racer}") as file:
                file.write(str(racer).encode())

        def rename(racer: int, name: str = name) -> None:
            clients[racer].rename(f"{name}-{racer}", name, overwrite=False)

        (winner,) = race(rename, FileExistsError)
        assert clients[0].read(name).read() == str(winner).encode()


def test_s3_creates_once(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore
    from obstore.exceptions import AlreadyExistsError
    from obstore.store import S3Store

    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    clients = [S3Store(s3.bucket) for _ in range(RACERS)]

    for round in range(30):
        name = f"once/{round}"

        def create(racer: int, name: str = name) -> None:
            obstore.put(clients[racer], name, str(racer).encode(), mode="create")

        (winner,) = race(create, AlreadyExistsError)
        assert bytes(obstore.get(clients[0], name).bytes()) == str(winner).encode()


def checkpoint(url: str, settings: dict[str, str], folder: Path) -> None:
    """A streaming query, stopped and continued, with input, output and checkpoint at that URL."""
    script = Path(__file__).with_name("checkpoint.py")
    options = [f"{name}={value}" for name, value in settings.items()]
    for rows, total in ((3, 3), (4, 7)):
        command = [sys.executable, str(script), url, str(rows), *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        assert f"ROWS {total}" in done.stdout, done.stderr[-4000:]


def test_spark_checkpoints_on_hdfs(hdfs: str, tmp_path: Path) -> None:
    checkpoint(f"{hdfs}/spark", {}, tmp_path)


def test_spark_checkpoints_on_s3(s3: S3, tmp_path: Path) -> None:
    checkpoint(f"s3a://{s3.bucket}/spark", s3.spark, tmp_path)
