"""A PostgreSQL server in a folder of its own, on a Unix socket: for tests."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from examples.servers.fetch import MissingTool

PLACES = "/usr/lib/postgresql"
USER = "postgres"
START_SECONDS = 60.0


def programs() -> Path:
    """Return the folder with the programs of the newest PostgreSQL.

    Raises:
        MissingTool: If it is not installed.
    """
    servers = sorted(Path(PLACES).glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if servers:
        return servers[-1].parent
    other = shutil.which("postgres")
    if other is None:
        raise MissingTool("needs PostgreSQL: install it (Debian and Ubuntu: postgresql) and run this again")
    return Path(other).parent


@contextmanager
def running() -> Iterator[str]:
    """Run a server; yield psycopg's connection string.

    PostgreSQL does not run as root. For root, its files belong to the user that the package has created.
    """
    tools, folder = programs(), Path(tempfile.mkdtemp(prefix="watersmeet-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        owner = pwd.getpwnam(USER)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    data = folder / "data"
    try:
        _run([str(tools / "initdb"), "-A", "trust", "-U", USER, "-D", str(data), "--no-sync"], folder)
        server = [str(tools / "postgres"), "-D", str(data), "-k", str(folder), "-c", "listen_addresses=", "-F"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(_as_owner(server), cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _wait(tools, folder, process)
            yield f"host={folder} user={USER} dbname=postgres"
        finally:
            process.terminate()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(tools: Path, folder: Path, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while subprocess.run([str(tools / "pg_isready"), "-q", "-h", str(folder)]).returncode:
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"PostgreSQL didn't start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.1)


def _as_owner(command: Sequence[str]) -> list[str]:
    return ["runuser", "-u", USER, "--", *command] if os.geteuid() == 0 else [*command]


def _run(command: Sequence[str], folder: Path) -> None:
    outcome = subprocess.run(_as_owner(command), cwd=folder, capture_output=True, text=True)
    if outcome.returncode:
        raise RuntimeError(f"{command[0]} failed: {outcome.stdout}{outcome.stderr}")
