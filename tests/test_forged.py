"""Checkpoints that somebody has forged: `watch`, `serve` and `why` answer or say one sentence, whatever is in them.

Values and keys of every document of checkpoints of all kinds of joins are replaced by what an attacker would write
there, one at a time, and the document is sealed again; bytes of other files are, under digests that fit. Nothing
outside the checkpoint is opened, nothing is written, no other file's text shows, and nothing is printed that a terminal
obeys.
"""

import copy
import json
import random
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.chaos import joins, program
from tests.chaos.program import Spec, Steps
from tests.observe.dashboard.recorded_join import query, recorded
from tests.spark.harness import write
from watersmeet import cli
from watersmeet.errors import WatersmeetError
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointReader
from watersmeet.observe.serving import ViewCache, serve, view_json
from watersmeet.observe.why.output_files import OutputFiles, ResultFolder, columns_in_results
from watersmeet.observe.why.why_file import FILE, WhyDescription, write_descriptions
from watersmeet.state.manifest import history, leases
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.claim import DESCRIPTION
from watersmeet.state.manifest.leases import this_process
from watersmeet.state.store import file_format
from watersmeet.state.store import store as store_module
from watersmeet.state.store.file_format import digest, seal, unseal
from watersmeet.state.store.places import store_of
from watersmeet.state.store.store import Store

SECRET = "what nobody else may see"
WHERE = "abs(a.x - b.x) < 2 AND exp(a.x) < 2 + exp(b.x) AND a.id <> b.id AND 10 / (a.x + 1) > b.x - 20"
LAST = 3
ASKED = ["--a", f"id={100 * LAST + 3}", "--b", f"id={100 * (LAST - 1) + 4}"]
QUICK = "nested"
OTHERS = ("metadata", "count", "hopping", "left", "as-of", "table")
"""Kinds of joins of which real checkpoints are forged: one in the quick suite, the others in the slow one."""


class Key(str):
    """A key of an object in a document, rather than the value there."""


Place = tuple[str | int | Key, ...]


@dataclass(frozen=True)
class Forgery:
    """A checkpoint to be forged.

    Attributes:
        folder: Has the checkpoint in `ck`, and files that are none of its business.
        questions: What `why` is asked.
    """

    folder: Path
    questions: Sequence[Sequence[str]] = (ASKED,)

    @property
    def root(self) -> Path:
        return self.folder / "ck" / "watersmeet"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Forgery:
    """A checkpoint made without Spark, with all kinds of documents."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "SNAPSHOT_EVERY", 2)
        return Forgery(filled(tmp_path_factory.mktemp("forged")))


@pytest.fixture(scope="module", params=[QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)])
def real(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Forgery:
    """The checkpoint of a join of chaos, cut after a manifest: it owes what can be owed, and has files to deliver."""
    base = tmp_path_factory.mktemp(request.param)
    seed = next(seed for seed in range(1000) if joins.subject(seed).kind == request.param)
    played, steps, few = joins.subject(seed), Steps(("manifest", 4)), joins.subject(seed).batches[:4]
    write(base / "in", few, played.schema)
    spec = Spec(seed, "parquet", 1, "driver", spill=(1, "random") if played.spills else None, late=True, label="x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "SNAPSHOT_EVERY", 2)
        assert "may be committed" in program.outcome(lambda: program.begun(spark, base, spec, steps), steps)
    (base / "checkpoint-x").rename(base / "ck")
    (base / "secret").write_text(SECRET)
    ids = {name: next(row["id"] for row in few[-1][name] if row["id"] is not None) for name in "abc" if name in few[-1]}
    pair = [word for name in "ab" for word in (f"--{name}", f"id={ids[name]}")]
    alone = [["--c", f"id={ids['c']}"]] if "c" in ids else []
    return Forgery(base, [pair, *alone])


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


def documents(forgery: Forgery) -> dict[str, Any]:
    """The documents that are read, by their files."""
    names = [str(path.relative_to(forgery.root)) for path in sorted(forgery.root.rglob("*.json"))]
    names = [name for name in names if name not in manifest_names(forgery)[:-2]]
    return {name: unseal((forgery.root / name).read_bytes(), name) for name in names}


def manifest_names(forgery: Forgery) -> list[str]:
    return [str(path.relative_to(forgery.root)) for path in sorted((forgery.root / manifests.FOLDER).iterdir())]


def places(document: Any, at: Place = ()) -> Iterator[Place]:
    """Yield where values and keys are, containers among them; of lists the first of each kind, and the last."""
    yield at
    if isinstance(document, dict):
        for key in document:
            yield (*at, Key(key))
            yield from places(document[key], (*at, key))
    elif isinstance(document, list):
        kinds = {type(part): number for number, part in reversed([*enumerate(document)])}
        for number in {*kinds.values(), *range(len(document))[-1:]}:
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
    """Return a document with another value somewhere, or with another key: text only, as JSON has no others."""
    if not at:
        return value
    if isinstance(at[0], Key):
        return {str(value) if key == at[0] else key: part for key, part in document.items()}
    made = copy.copy(document)
    made[at[0]] = replaced(document[at[0]], at[1:], value)
    return made


@contextmanager
def forged(forgery: Forgery, name: str, document: Any) -> Iterator[None]:
    """Put another document in place of one; those that follow it are sealed anew."""
    root, files, chain = forgery.root, {name: seal(document)}, manifest_names(forgery)
    if name == chain[-2]:
        after = unseal((root / chain[-1]).read_bytes(), "")
        files[chain[-1]] = seal(after | {"follows": digest(files[name])})
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
ALLOWED = (
    "/proc/",
    "/sys/fs/cgroup/",
    sys.prefix,
    sys.base_prefix,
    str(Path(cli.__file__).parent),
    "/usr/share/zoneinfo",
)


def command(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run a command; return what it prints. It succeeds, or fails with a sentence."""
    code = cli.main(words)
    out, err = capsys.readouterr()
    assert (code == 0 and not err) or (code == 2 and err.startswith("watersmeet: ") and err.count("\n") == 1), err
    return [out, err]


def run(forgery: Forgery, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run all three commands; return what they print. Nothing else is opened, and nothing raises but a sentence."""
    checkpoint, printed = str(forgery.folder / "ck"), []
    opened.paths = []
    try:
        for words in (["watch", "--once", checkpoint], *(["why", checkpoint, *asked] for asked in forgery.questions)):
            printed += command(words, capsys)
        with suppress(WatersmeetError):
            printed.append(json.dumps(json.loads(ViewCache(CheckpointReader(store_of(checkpoint))).draw(view_json))))
    finally:
        paths, opened.paths = opened.paths, None
    strange = [(path, mode) for path, mode in paths if not path.startswith((checkpoint, *ALLOWED)) or mode[:1] in "wax"]
    assert not strange
    check_text("".join(printed))
    return printed


def check_text(text: str) -> None:
    """Assert that a terminal obeys nothing of a text, and that it tells no secret."""
    assert all(letter.isprintable() or letter == "\n" for letter in text) and SECRET not in text


def forgeries(forgery: Forgery, every: int, names: Sequence[str] = ()) -> Iterator[str]:
    """Forge each place with each hostile value, or with one in so many, one after the other; yield what it is."""
    values, count = hostile(forgery.folder), 0
    for name, document in documents(forgery).items():
        for at in places(document) if not names or name in names else ():
            for value in values:
                count += 1
                if count % every == 0 and (isinstance(value, str) or not isinstance(at[-1:] and at[-1], Key)):
                    with forged(forgery, name, replaced(document, at, value)):
                        yield f"{name}, {at}: {str(value)[:60]!r}"


def check(forgery: Forgery, capsys: pytest.CaptureFixture[str], every: int) -> None:
    """Run all commands on forged checkpoints, one in so many."""
    before = sorted(path for path in forgery.folder.rglob("*"))
    for what in forgeries(forgery, every):
        try:
            run(forgery, capsys)
        except BaseException as error:
            raise AssertionError(what) from error
    assert sorted(path for path in forgery.folder.rglob("*")) == before


def test_the_checkpoint_is_sound(sound: Forgery, capsys: pytest.CaptureFixture[str]) -> None:
    watched, _, told, problem, page = run(sound, capsys)
    assert "Streams, last batch" in watched and "have joined" in told and not problem and "Streams" not in page
    unread = f"lie outside the checkpoint, in {sound.folder}/late and {sound.folder}/out: --read-outputs looks there.\n"
    assert told.endswith(unread)


def test_outputs_are_read_if_that_is_asked_for(sound: Forgery, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["why", str(sound.folder / "ck"), "--read-outputs", *ASKED]) == 0
    assert "lie outside the checkpoint" not in capsys.readouterr().out


def test_nothing_that_is_forged_does_harm(sound: Forgery, capsys: pytest.CaptureFixture[str]) -> None:
    check(sound, capsys, 797)


@pytest.mark.slow
def test_nothing_that_is_forged_does_harm_wherever_it_stands(
    sound: Forgery, capsys: pytest.CaptureFixture[str]
) -> None:
    check(sound, capsys, 19)


@pytest.mark.spark
def test_nothing_forged_in_a_real_checkpoint_does_harm(real: Forgery, capsys: pytest.CaptureFixture[str]) -> None:
    _, *answers = run(real, capsys)
    assert any(answers[1::2]), "a question was answered"
    check(real, capsys, 9973)


@pytest.mark.slow
@pytest.mark.spark
def test_nothing_forged_in_a_real_checkpoint_does_harm_wherever_it_stands(
    real: Forgery, capsys: pytest.CaptureFixture[str]
) -> None:
    check(real, capsys, 397)


def test_outputs_that_are_forged_are_only_read(sound: Forgery, capsys: pytest.CaptureFixture[str]) -> None:
    """With --read-outputs, `why` opens the folders that the checkpoint names, wherever these are."""
    before = sorted(path for path in sound.folder.rglob("*"))
    for what in forgeries(sound, 197, [FILE, DESCRIPTION]):
        if "s3:" in what:  # it would look for a server
            continue
        opened.paths = []
        try:
            check_text("".join(command(["why", str(sound.folder / "ck"), "--read-outputs", *ASKED], capsys)))
        except BaseException as error:
            raise AssertionError(what) from error
        finally:
            paths, opened.paths = opened.paths, None
        assert not [path for path, mode in paths if mode[:1] in "wax"], what
    assert sorted(path for path in sound.folder.rglob("*")) == before


def test_a_forged_checkpoint_is_served(sound: Forgery) -> None:
    """Over HTTP: a view, or a sentence."""
    server = serve(str(sound.folder / "ck"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    view, codes = urlunsplit(urlsplit(server.address)._replace(path="/view.json")), set[int]()
    try:
        for what in forgeries(sound, 997):
            server.views._last = None
            try:
                with urlopen(view) as response:
                    code, body = response.status, response.read()
            except HTTPError as error:
                code, body = error.code, error.read()
            codes.add(code)
            assert code == 200 or (code == 503 and json.loads(body)["error"].endswith(".")), what
            check_text(json.dumps(json.loads(body)))
    finally:
        server.shutdown()
        server.server_close()
    assert codes == {200, 503}


# -- bytes of files that are no documents


def damage(path: Path, dice: random.Random) -> str:
    """Change bytes of a file, or its length; return how."""
    data = bytearray(path.read_bytes())
    how = dice.choice(["byte", "word", "end", "noise"])
    at = dice.randrange(len(data))
    match how:
        case "byte":
            data[at] = dice.randrange(256)
        case "word":
            data[at & ~7 : (at & ~7) + 8] = dice.choice(
                [b"\xff" * 8, b"\0" * 8, dice.randbytes(8), b"\xff" * 7 + b"\x7f"]
            )
        case "end":
            del data[at:]
        case "noise":
            data = bytearray(dice.randbytes(len(data)))
    path.write_bytes(data)
    return f"{how} at {at} of {path.name}"


def noise(forgery: Forgery, capsys: pytest.CaptureFixture[str], times: int, base: Path) -> None:
    """Damage files that are no documents, and ask all the questions, as if their digests fitted."""
    dice, allowed = random.Random(base.name), forgery.folder / "ck"
    for number in range(times):
        copied = replace(forgery, folder=base / str(number))  # under new names: files stay mapped
        shutil.copytree(allowed, copied.folder / "ck")
        files = [path for path in sorted(copied.root.rglob("*")) if path.suffix in (".arrow", ".deleted", ".ordinals")]
        what = ", ".join(damage(dice.choice(files), dice) for _ in range(3))
        try:
            run(copied, capsys)
        except BaseException as error:
            raise AssertionError(what) from error
        shutil.rmtree(copied.folder)


@pytest.fixture
def undigested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every digest for right: an attacker writes those that fit."""
    read = file_format.read_batch
    monkeypatch.setattr(store_module, "read_batch", lambda source, place, checked: read(source, place, True))
    monkeypatch.setattr(Store, "map_digested", Store._map)


@pytest.mark.usefixtures("undigested")
def test_bytes_that_are_forged_do_no_harm(sound: Forgery, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noise(sound, capsys, 20, tmp_path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("undigested")
def test_bytes_that_are_forged_in_a_real_checkpoint_do_no_harm(
    real: Forgery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise(real, capsys, 300, tmp_path)
