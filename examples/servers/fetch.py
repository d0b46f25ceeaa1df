"""Servers and connectors from the package registries: fetched once with Maven, kept in a cache, for demos and tests."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

DOWNLOADED = re.compile(r"Downloaded .*/(\S+\.jar \(.*\))")
"""What Maven says of a jar that it has fetched."""
CACHE = Path.home() / ".cache" / "watersmeet-tests"


class MissingTool(Exception):
    """Something that is needed to fetch is not installed; the message says what to install."""


def once(name: str, make: Callable[[Path], None], tell: Callable[[str], None] = lambda line: None) -> Path:
    """Return the folder of that name in the cache; made if it is not there yet, whole or not at all.

    Args:
        name: The folder's name.
        make: Fills the folder it is given.
        tell: Told that it is made, and when it is done.
    """
    folder = CACHE / name
    done = folder / ".done"
    if done.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    tell(f"Fetching {name}, once, into {CACHE} ...")
    make(folder)
    done.touch()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    tell(f"Fetched {name}: {size / 2**20:.0f} MB.")
    return folder


def maven(*arguments: str, what: str, tell: Callable[[str], None] | None = None) -> None:
    """Run Maven.

    Args:
        *arguments: Its arguments.
        what: What it fetches, for people.
        tell: Told what is downloaded, as it is.

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
        RuntimeError: If it fails, with the end of what it said.
    """
    said = list[str]()
    with subprocess.Popen(
        command, cwd=CACHE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            said.append(line)
            found = DOWNLOADED.search(line)
            if tell is not None and found:
                tell(f"  {found[1]}")
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {''.join(said)[-2000:]}")
