"""A first start that is cut between any two of its files, or in the middle of one: exact, or one sentence."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.early import Cut, cuts_of, record
from tests.spark.harness import Case, cuts, expected, frames, join_of, results, run, write
from watersmeet.spark.checkpoint import lease as leases
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark

PAIR = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(32, "ab", batches=2, nulls=0),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)
KILLS = [
    "half offsets/.0.?.tmp",
    "half .metadata.?.tmp",
    "half watersmeet/query.json.?.draft",
    "half sources/1/.0.?.tmp",
    "half watersmeet/leases/000000000001.json.?.draft",
    "half watersmeet/why.json.?.draft",
    "half watersmeet/manifests/?-?-?.json.?.draft",
    "half commits/.0.?.tmp",
]
LOSSES = ["half metadata", "empty commits/0", "half offsets/0", "empty sources/0/0", "empty watersmeet/query.json"]
"""Of power: Spark does not write its files through to the disk."""


@dataclass(frozen=True)
class First:
    """A first start, of one batch, in a folder whose input has two by now."""

    folder: Path
    cuts: dict[str, Cut]
    start: Callable[[], object]

    def goes_on(self) -> None:
        """Start the join, and compare its results with the oracle's."""
        self.start()
        assert results(self.folder, "ab") == expected(PAIR).results


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> First:
    folder = tmp_path_factory.mktemp("first")

    def start() -> None:
        run(join_of(PAIR, frames(spark, folder / "in", "ab")).writeStream, folder, "driver")

    write(folder / "in", PAIR.batches[:1])
    states = record(folder, start)
    write(folder / "in", PAIR.batches[1:])
    return First(folder, cuts_of(states), start)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "EXPIRES", 0.5)  # a lease that can't be read is watched for so long


@pytest.mark.parametrize("name", one_in(2, KILLS))
def test_a_kill_in_the_middle_of_a_file(first: First, name: str) -> None:
    first.cuts[name].build(first.folder)
    first.goes_on()


@pytest.mark.parametrize("name", one_in(2, LOSSES))
def test_a_loss_of_power(first: First, name: str) -> None:
    _goes_on_once_mended(first, first.cuts[name])


@pytest.mark.slow
def test_every_moment(first: First) -> None:
    for name, cut in first.cuts.items():
        print(name)  # pytest shows the last one
        if cut.powerless:
            _goes_on_once_mended(first, cut)
        else:
            cut.build(first.folder)
            first.goes_on()


def _goes_on_once_mended(first: First, cut: Cut) -> None:
    """Start the join; if it refuses, do what its sentence says and start it again."""
    cut.build(first.folder)
    try:
        first.goes_on()
    except wm.WatersmeetError as error:
        says = str(error)
        assert says.endswith(".") and not re.search(r"\n|java|org\.apache|Error|Exception", says)
        _mend(first.folder / "checkpoint", says)
        first.goes_on()


def _mend(checkpoint: Path, says: str) -> None:
    """Do what a sentence says."""
    if "start a new checkpoint" in says:
        Cut("nothing", {}).build(checkpoint.parent)
    elif content := re.search(r"remove \.metadata\.crc, write (\{.*\}) into it and start again", says):
        (checkpoint / ".metadata.crc").unlink(missing_ok=True)
        (checkpoint / "metadata").write_text(content[1])
    else:
        path = re.search(r"Spark's file (\S+) under .*; remove it and start again", says)
        assert path, says
        (checkpoint / path[1]).unlink()


def test_what_is_no_leftover(first: First) -> None:
    files = first.cuts["half .metadata.?.tmp"].files
    for path, says in [
        (
            "offsets/notes.txt",
            r"offsets/notes.txt under .* is in the way, as Spark begins only .*; remove it and start",
        ),
        ("state/0/0/1.delta", "has state/0/0/1.delta, but no offsets; restore them or start a new checkpoint"),
    ]:
        Cut("with one more file", {**files, f"checkpoint/{path}": b"?"}).build(first.folder)
        with pytest.raises(wm.StateError, match=says):
            first.start()


def test_nothing_is_cleared_of_another_query(first: First) -> None:
    cut = first.cuts["half offsets/.0.?.tmp"]
    Cut(cut.name, {path: data for path, data in cut.files.items() if "watersmeet" not in path}).build(first.folder)
    with pytest.raises(wm.StateError, match=r"offsets/\.0\..*\.tmp under .* is in the way"):
        first.start()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["missing", "empty or cut short"])
def test_metadata_lost_after_batches(first: First, how: str) -> None:
    """Spark's id of the query is all that is in it: no result depends on it."""
    Cut("nothing", {}).build(first.folder)
    first.goes_on()
    metadata = first.folder / "checkpoint/metadata"
    metadata.unlink() if how == "missing" else metadata.write_bytes(b"")
    with pytest.raises(wm.StateError, match=rf"Spark's file metadata under .* is {how}") as told:
        first.start()
    _mend(first.folder / "checkpoint", str(told.value))
    first.goes_on()
