"""Fetches servers and connectors for demos and tests, once, with Maven, into a cache."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

DOWNLOADED = re.compile(r"Downloaded .*/(\S+\.jar \(.*\))")
"""What Maven prints when it has fetched a jar."""
CACHE = Path.home() / ".cache" / "watersmeet-tests"


class MissingTool(Exception):
    """A tool that fetching needs is not installed; the message says what to install."""


def once(name: str, make: Callable[[Path], None], tell: Callable[[str], None] = lambda line: None) -> Path:
    """Return the folder of that name in the cache; create it if it is missing, completely or not at all.

    Args:
        name: The folder's name.
        make: Fills the folder passed to it.
        tell: Receives a line when fetching begins and when it is done.
    """
    folder = CACHE / name
    marker = folder / ".done"
    if marker.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    tell(f"Fetching {name}, once, into {CACHE} ...")
    make(folder)
    marker.touch()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    tell(f"Fetched {name}: {size / 2**20:.0f} MB.")
    return folder


def maven(*arguments: str, what: str, tell: Callable[[str], None] | None = None) -> None:
    """Run Maven.

    Args:
        *arguments: Its arguments.
        what: What it fetches, for messages.
        tell: Receives a line for each download.

    Raises:
        MissingTool: If there is no Maven.
        RuntimeError: If it fails.
    """
    if shutil.which("mvn") is None:
        raise MissingTool(f"needs Maven to fetch {what}: install it (Debian and Ubuntu: maven) and run this again")
    run("mvn", "--batch-mode", *([] if tell else ["--quiet"]), *arguments, tell=tell)


def run(*command: str, tell: Callable[[str], None] | None = None) -> None:
    """Run a command in the cache.

    Raises:
        RuntimeError: If it fails; the message holds the end of its output.
    """
    output = list[str]()
    with subprocess.Popen(
        command, cwd=CACHE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            output.append(line)
            download = DOWNLOADED.search(line)
            if tell is not None and download:
                tell(f"  {download[1]}")
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {''.join(output)[-2000:]}")
