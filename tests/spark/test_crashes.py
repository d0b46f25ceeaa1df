"""Crashes at any moment, and restarts: exact results."""

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.metadata.test_denial import spoken_of
from tests.spark import harness, processes
from tests.spark.crashing_join import CASE, Steps, started
from tests.spark.harness import EXCHANGES, expected, frames, join_of, read, results, side_ids, write
from tests.spark.test_metadata_joins import promising, punctuated
from watersmeet.observe.dashboard.build import build_view
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointReader
from watersmeet.spark.run.batch import BatchRunner
from watersmeet.state.store.places import store_of

pytestmark = pytest.mark.spark
STEPS = ("job", "reports", "sink", "manifest")
SIDES = ("late", "denied", "orphan", "punctuation")
STRATEGIES = (3, -1, -1, -2, -2, 0)
"""As `crashing_join` numbers them; what decides anew before each batch also goes on with what it decided itself."""


def _setting(at: int) -> dict[str, Any]:
    return {"nodes": STRATEGIES[at % len(STRATEGIES)], "exchange": EXCHANGES[at % len(EXCHANGES)]}


def _when(at: int) -> int:
    """From the second run on the second time a step comes by, so that each finds state of the run before."""
    return 1 if at == 0 else 2


class CutShort(Exception):
    """Ends a run where a crash would."""


def _cut_short(step: str) -> None:
    raise CutShort(step)


@pytest.mark.slow
def test_errors_between_any_two_steps_lose_and_double_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run also has another exchange than the one before, and most have another strategy."""
    write(tmp_path / "in", CASE.batches)
    claim = BatchRunner.open

    def run(at: int, steps: Steps) -> None:
        monkeypatch.setattr(BatchRunner, "open", steps.watching(claim))
        (query,) = started(spark, tmp_path, {**_setting(at), "formats": ["parquet"]})
        query.awaitTermination()

    for at, step in enumerate(STEPS):
        with pytest.raises(wm.StateError, match=f"CutShort: {step}"):
            run(at, Steps([step, _when(at)], _cut_short))
    run(len(STEPS), Steps(None))
    assert processes.written(tmp_path, "parquet") == processes.wanted(tmp_path / "checkpoint-parquet")


@pytest.mark.slow
def test_errors_between_any_two_steps_with_promises(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks, runs, orders, orphans and punctuations as of a run that is never cut, and all of them the oracle's."""
    case, reference = promising(punctuated(39))
    write(tmp_path / "in", case.batches, case.schema)
    claim = BatchRunner.open

    def run(folder: Path, steps: Steps, exchange: str = "driver") -> None:
        monkeypatch.setattr(BatchRunner, "open", steps.watching(claim))
        inputs = frames(spark, tmp_path / "in", [*case.batches[0]])
        paths = {f"{kind}Path": str(folder / kind) for kind in SIDES}
        harness.run(join_of(case, inputs).writeStream.options(**paths), folder, exchange)

    for at, step in enumerate(STEPS):
        with pytest.raises(wm.StateError, match=f"CutShort: {step}"):
            run(tmp_path / "cut", Steps([step, _when(at)], _cut_short), "local" if step == "sink" else "driver")
    run(tmp_path / "cut", Steps(None))
    run(tmp_path / "uncut", Steps(None))
    wanted, last = expected(reference), len(case.batches) - 1
    assert results(tmp_path / "cut", case.names) == wanted.results
    orphans = [
        arrival for batch, arrival in wanted.orphans if batch < last
    ]  # the others would be told of a batch later
    told = {"denied": [arrival for arrival, _ in wanted.denied], "late": wanted.late, "orphan": orphans}
    for kind, arrivals in told.items():
        found = Counter((arrival.stream, arrival.row["id"]) for arrival in arrivals)
        assert found and side_ids(tmp_path / "cut" / kind, case.names) == found, kind
    for kind in SIDES:
        cut, uncut = (sorted(map(str, read(tmp_path / run / kind / "b").to_pylist())) for run in ("cut", "uncut"))
        assert cut == uncut != [], kind
    _assert_nothing_after_its_punctuation(tmp_path / "cut")


def _assert_nothing_after_its_punctuation(folder: Path) -> None:
    """From the batch that puts a punctuation out, no result has a member that it speaks of."""
    made = [*_by_batch(folder / "out")]
    for batch, said in _by_batch(folder / "punctuation" / "b"):
        assert not [row for number, row in made if number >= batch and spoken_of(row["b"], said)]


def _by_batch(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of an output folder, each with its batch."""
    for path in folder.rglob("part-b*"):
        batch = int(path.name.removeprefix("part-b").split("-")[0])
        yield from ((batch, row) for row in pq.ParquetFile(path).read().to_pylist())


@pytest.mark.slow
def test_exits_between_any_two_steps_lose_and_double_nothing(tmp_path: Path) -> None:
    """The same with a process for each run, which leaves no time to tidy up."""
    write(tmp_path / "in", CASE.batches)
    for at, step in enumerate(STEPS):
        said = processes.run(tmp_path, **_setting(at), formats=["parquet"], die=[step, _when(at)])
        assert said[-1] == f"step {step}" and "done" not in said
    assert processes.run(tmp_path, **_setting(len(STEPS)), formats=["parquet"])[-1] == "done"
    assert processes.written(tmp_path, "parquet") == processes.wanted(tmp_path / "checkpoint-parquet")


def _killed_until_done(folder: Path, seed: int, kills: int, formats: Sequence[str]) -> None:
    """Kill queries, each with a sink of its own, at once, a little after a random step of one of them."""
    write(folder / "in", CASE.batches)
    rng, said = random.Random(seed), ""
    for at in range(kills + 1):
        with processes.program(folder, **_setting(at), formats=formats) as process:
            left = rng.randint(0, 5 * len(formats))
            for said in processes.lines(process):
                left -= said.startswith("step")
                if left < 0 and at < kills:
                    time.sleep(rng.random() / 2)
                    break
        if at < kills:
            title = _verdict(folder / f"checkpoint-{formats[0]}")
            assert title == "Not running" or (title == "Stopped" and len(formats) > 1), title
    assert said == "done"
    for format in formats:
        assert processes.written(folder, format) == processes.wanted(folder / f"checkpoint-{format}"), format


def _verdict(checkpoint: Path) -> str:
    """Return what somebody is told who looks at a checkpoint for the first time."""
    read = CheckpointReader(store_of(str(checkpoint))).read(time.monotonic(), time.time())
    return build_view(read, int(time.time() * 1e6)).verdict.title


def test_a_kill_at_a_random_moment_loses_and_doubles_nothing(tmp_path: Path) -> None:
    _killed_until_done(tmp_path, 7, 1, ["parquet"])  # in the midst of the batches


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kills"), [(1, 3), *((seed, 8) for seed in range(10, 16))])
def test_kills_at_random_moments_at_length(tmp_path: Path, seed: int, kills: int) -> None:
    _killed_until_done(tmp_path, seed, kills, ["parquet", "json", "csv"])
