"""Upserts into a real PostgreSQL: a batch of which some was written comes again, and each result is there once."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.servers import postgres
from examples.servers.fetch import MissingTool, once, run
from tests.spark.harness import expected, write
from tests.spark.test_identity import PAIR

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ROOT = Path(__file__).parents[2]
PSYCOPG = "3.3.9"


@pytest.fixture(scope="module")
def connection() -> Iterator[str]:
    try:
        with postgres.running() as found:
            yield found
    except MissingTool as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def psycopg() -> Path:
    """A folder with psycopg, which nothing else here needs."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    return once(f"psycopg-{PSYCOPG}", lambda to: run(*pip, "--target", str(to), f"psycopg[binary]=={PSYCOPG}"))


def _query(connection: str, text: str) -> list[list[str]]:
    done = subprocess.run(
        [str(postgres.programs() / "psql"), connection, "-X", "-q", "-A", "-t", "-F", ",", "-c", text],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [line.split(",") for line in done.stdout.splitlines()]


def test_a_batch_that_is_cut_is_there_once(connection: str, psycopg: Path, tmp_path: Path) -> None:
    _query(connection, "CREATE TABLE matches (_id uuid PRIMARY KEY, a bigint, b bigint, time timestamptz)")
    write(tmp_path / "in", PAIR.batches)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{psycopg}", "PYSPARK_PYTHON": sys.executable}

    def run_join(**spec: object) -> subprocess.CompletedProcess[str]:
        given = json.dumps({"connection": connection, **spec})
        command = [sys.executable, "-m", "tests.remote.postgres_join", str(tmp_path), given]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)

    done = run_join(nodes=2, exchange="driver", exit=2)
    assert done.returncode == 3, done.stderr[-2000:]
    (some,) = _query(connection, "SELECT count(*) FROM matches")
    done = run_join(nodes=3, exchange="local")
    assert done.returncode == 0, done.stderr[-2000:]
    found = _query(connection, "SELECT a, b, (extract(epoch FROM time) * 1e6)::bigint FROM matches")
    assert Counter(((int(a), int(b)), int(time)) for a, b, time in found) == expected(PAIR).results
    assert 0 < int(some[0]) < len(found)
