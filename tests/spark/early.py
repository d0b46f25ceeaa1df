"""The files of a first start in the order in which they appear, so that it can be cut between any two of them."""

import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from watersmeet.state.store.local_files import files_below

Files = Mapping[str, bytes]
"""The files below a folder, by path."""
FOLDERS = ("checkpoint", "out")
SPARKS = re.compile(r"checkpoint/(metadata|offsets/\d+|commits/\d+|sources/\d+/\d+)")
"""A file of Spark's logs."""
SEALED = re.compile(r"checkpoint/watersmeet/(leases/|fences/|manifests/|progress/|rounds/|query\.json|why\.json)")
"""A file of the store that is written under another name first."""
UNIQUE = "5b83f0d0-1543-48f1-ad04-f2a2c97fa2bd"


@dataclass(frozen=True)
class Cut:
    """What a kill leaves.

    Attributes:
        name: The file that was being written, or had just appeared, and how it was cut; ids are left out.
        files: All files.
        powerless: Whether only a loss of power leaves it.
    """

    name: str
    files: Files
    powerless: bool = False

    def build(self, folder: Path) -> None:
        """Put the files into a folder instead of those that are there."""
        for name in FOLDERS:
            shutil.rmtree(folder / name, ignore_errors=True)
        for path, data in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)


def record(folder: Path, run: Callable[[], object]) -> list[Files]:
    """Run something; return the files below a folder each time that they were seen to have changed."""
    states, over = list[Files]([{}]), threading.Event()
    watch = threading.Thread(target=lambda: states.extend(_changes(folder, over)))
    watch.start()
    try:
        run()
    finally:
        over.set()
        watch.join()
    return states


def _changes(folder: Path, over: threading.Event) -> Iterator[Files]:
    before = _listing(folder)
    while not over.wait(0.0005):
        now = _listing(folder)
        if now == before:
            continue
        try:
            files = {path: (folder / path).read_bytes() for path in now}
        except FileNotFoundError:
            continue
        if _listing(folder) == now:  # else no moment had just these files
            before = now
            yield files


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in (Path(path) for name in FOLDERS for path in files_below(str(folder / name))):
        with suppress(FileNotFoundError):
            found[str(path.relative_to(folder))] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


def cuts_of(states: list[Files]) -> dict[str, Cut]:
    """Return what a kill of a run leaves that was in these states, by name."""
    named: dict[str, Cut] = {}
    for cut in _cuts(states):
        named.setdefault(cut.name, cut)
    return named


def _cuts(states: list[Files]) -> Iterator[Cut]:
    """Yield what a kill leaves: the states themselves, and each with the next file half written, or empty."""
    for before, after in pairwise(states):
        new = [path for path in after if path not in before]
        for path in (path for path in new if not path.startswith("out/")):  # there, a name appears with all its bytes
            for how, part in (("half", after[path][: len(after[path]) // 2]), ("empty", b"")):
                yield Cut(f"{how} {_plain(_draft(path))}", {**before, _draft(path): part})
                if _draft(path) != path:
                    yield Cut(f"{how} {_plain(path)}", {**after, path: part}, powerless=True)
        changed = new or [path for path in after if before.get(path) != after[path]]
        yield Cut(f"after {', '.join(map(_plain, changed)) or 'a removal'}", after)


def _draft(path: str) -> str:
    """Return where a file is written before it has its name."""
    folder, _, name = path.rpartition("/")
    if SPARKS.fullmatch(path):
        return f"{folder}/.{name}.{UNIQUE}.tmp"
    return f"{path}.{UNIQUE.replace('-', '')}.draft" if SEALED.match(path) and not path.endswith(".draft") else path


def _plain(path: str) -> str:
    return _IDS.sub("?", path.removeprefix("checkpoint/"))


_IDS = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{12}j?(?=-)|[0-9a-f]{8}(?=-)"
    r"|(?<=-)[0-9a-f]{8}(?=\.)"
)
