"""Checkpoints that somebody has forged: `watch`, `serve` and `why` answer or say one sentence, whatever is in them.

Every value of every document of a checkpoint is replaced by what an attacker would write there, one at a time, and the
document is sealed again. Nothing outside the checkpoint is opened, nothing is written, no other file's text shows, and
nothing is printed that a terminal obeys.
"""

import copy
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.observe.dashboard.recorded_join import query, recorded
from watersmeet import cli
from watersmeet.errors import WatersmeetError
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointReader
from watersmeet.observe.serving import ViewCache, view_json
from watersmeet.observe.why.output_files import OutputFiles, ResultFolder, columns_in_results
from watersmeet.observe.why.why_file import FILE, WhyDescription, write_descriptions
from watersmeet.state.manifest import history, leases
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.claim import DESCRIPTION
from watersmeet.state.manifest.leases import this_process
from watersmeet.state.store.file_format import digest, seal, unseal
from watersmeet.state.store.places import store_of
from watersmeet.state.store.store import Store

SECRET = "what nobody else may see"
WHERE = "abs(a.x - b.x) < 2 AND exp(a.x) < 2 + exp(b.x) AND a.id <> b.id AND 10 / (a.x + 1) > b.x - 20"
LAST = 3
ASKED = ["--a", f"id={100 * LAST + 3}", "--b", f"id={100 * (LAST - 1) + 4}"]
Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkpoint with all kinds of documents, beside files that are none of its business."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "SNAPSHOT_EVERY", 2)
        yield filled(tmp_path_factory.mktemp("forged"))


def filled(base: Path) -> Path:
    (base / "secret").write_text(SECRET)
    made, store = query(WHERE), Store(f"{base}/ck/watersmeet")
    run = recorded(base / "ck", batches=LAST + 1, where=WHERE)
    history.write_block(store, 2, run.progress[:2])
    owner = str(unseal(store.read(DESCRIPTION) or b"", "")["name"])
    outputs = OutputFiles(
        owner, {"late": {"a": f"{base}/late"}}, ResultFolder(f"{base}/out", "parquet"), columns_in_results(made)
    )
    for place in (base / "out", base / "late"):
        place.mkdir()
        pq.write_table(made.streams[0].schema.empty_table(), place / f"part-b1-{owner}-0.parquet")
    write_descriptions(store, {"j": WhyDescription(made, outputs)})
    store.publish(leases.path_of(1), seal(this_process() | {"at": store.root, "token": "x"}))
    return base


def documents(folder: Path) -> dict[str, Any]:
    """The documents that are read, by their files."""
    names = [DESCRIPTION, FILE, leases.path_of(1), history.path_of(0), manifests.path_of(2), manifests.path_of(3)]
    return {name: unseal((folder / "ck/watersmeet" / name).read_bytes(), name) for name in names}


def places(document: Any, at: Place = ()) -> Iterator[Place]:
    """Yield where values are, containers among them; of lists the first of each kind."""
    yield at
    if isinstance(document, dict):
        for key in document:
            yield from places(document[key], (*at, key))
    elif isinstance(document, list):
        kinds = {type(part): number for number, part in reversed([*enumerate(document)])}
        for number in kinds.values():
            yield from places(document[number], (*at, number))


def hostile(folder: Path) -> list[Any]:
    """What an attacker would write."""
    secret, target = folder / "secret", folder / "target"
    return [
        f"UTC'; COPY (SELECT content FROM read_text('{secret}')) TO '{target}'; SET GLOBAL TimeZone = 'UTC",
        f"(SELECT content FROM read_text('{secret}')) = ''", "getenv('HOME') = ''", f"../../{secret.name}",
        f"chunks/../../../{secret.name}", str(secret), f"{folder}/out", "s3://nowhere.invalid/x",
        "<script>alert(1)</script>",
        "\x1b]0;owned\x07\x1b[31m\x9b1m\u202e", "{0.__class__} %s %(x)s", "\ud800", "chunks/\0", "", "9" * 5000,
        -1, 1 << 31, 1 << 63, (1 << 64) - 1, 10**30, 1.5, -1e300, float("nan"), float("inf"), True, None, [], {}, [[]],
        [None], {"is": "Query", "of": {}}, {"is": "Schema", "of": "AAAA"}, {"../..": "\x1b[31m"},
    ]  # fmt: skip


def replaced(document: Any, at: Place, value: Any) -> Any:
    """Return a document with another value somewhere."""
    if not at:
        return value
    made = copy.copy(document)
    made[at[0]] = replaced(document[at[0]], at[1:], value)
    return made


@contextmanager
def forged(folder: Path, name: str, document: Any) -> Iterator[None]:
    """Put another document in place of one; those that follow it are sealed anew."""
    root = folder / "ck/watersmeet"
    files = {name: seal(document)}
    if name == manifests.path_of(2):
        after = unseal((root / manifests.path_of(3)).read_bytes(), "")
        files[manifests.path_of(3)] = seal(after | {"follows": digest(files[name])})
    before = {each: (root / each).read_bytes() for each in files}
    for each, data in files.items():
        (root / each).write_bytes(data)
    try:
        yield
    finally:
        for each, data in before.items():
            (root / each).write_bytes(data)


class Opened:
    """Which files this process opens; an audit hook can't be removed, so one serves all tests."""

    def __init__(self) -> None:
        self.paths: list[tuple[str, str]] | None = None
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if self.paths is not None and event in EVENTS:
            mode = args[1] if event == "open" and len(args) > 1 and isinstance(args[1], str) else event
            self.paths.append((str(args[0]), mode))


EVENTS = ("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "socket.connect")
opened = Opened()
ALLOWED = ("/proc/", sys.prefix, sys.base_prefix, str(Path(cli.__file__).parent), "/usr/share/zoneinfo")


def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run all three commands; return what they print. Nothing else is opened, and nothing raises but a sentence."""
    checkpoint, printed = str(folder / "ck"), []
    opened.paths = []
    try:
        for words in (["watch", "--once", checkpoint], ["why", checkpoint, *ASKED]):
            code = cli.main(words)
            out, err = capsys.readouterr()
            assert (code == 0 and not err) or (code == 2 and err.startswith("watersmeet: ") and err.count("\n") == 1)
            printed += [out, err]
        with suppress(WatersmeetError):
            printed.append(json.dumps(json.loads(ViewCache(CheckpointReader(store_of(checkpoint))).draw(view_json))))
    finally:
        paths, opened.paths = opened.paths, None
    strange = [(path, mode) for path, mode in paths if not path.startswith((checkpoint, *ALLOWED)) or mode[:1] in "wax"]
    assert not strange
    text = "".join(printed)
    assert all(letter.isprintable() or letter == "\n" for letter in text) and SECRET not in text
    return printed


def check(folder: Path, capsys: pytest.CaptureFixture[str], every: int) -> None:
    """Forge each place with each hostile value, or with one in so many."""
    values, count = hostile(folder), 0
    before = sorted(path for path in folder.rglob("*"))
    for name, document in documents(folder).items():
        for at in places(document):
            for value in values:
                count += 1
                if count % every == 0:
                    with forged(folder, name, replaced(document, at, value)):
                        try:
                            run(folder, capsys)
                        except BaseException as error:
                            raise AssertionError(f"{name}, {at}: {str(value)[:60]!r}") from error
    assert sorted(path for path in folder.rglob("*")) == before


def test_the_checkpoint_is_sound(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watched, _, told, problem, page = run(folder, capsys)
    assert "Streams, last batch" in watched and "have joined" in told and not problem and "Streams" not in page
    unread = f"lie outside the checkpoint, in {folder}/late and {folder}/out: --read-outputs looks there.\n"
    assert told.endswith(unread)


def test_outputs_are_read_if_that_is_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["why", str(folder / "ck"), "--read-outputs", *ASKED]) == 0
    assert "lie outside the checkpoint" not in capsys.readouterr().out


def test_nothing_that_is_forged_does_harm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(folder, capsys, 397)


@pytest.mark.slow
def test_nothing_that_is_forged_does_harm_wherever_it_stands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(folder, capsys, 19)
