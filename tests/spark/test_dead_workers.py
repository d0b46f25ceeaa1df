"""Python workers killed in the midst of a batch: its job is run once again, or the query ends in a sentence."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.harness import Case, cuts, expected, frames, join_of, read, run, through, write
from watersmeet.errors import PredicateError
from watersmeet.runtime.commit_protocol import RecordIntent
from watersmeet.runtime.enact import FOLDERS
from watersmeet.spark.run.batch import BatchRunner
from watersmeet.spark.run.workers import is_death, retry_after_death
from watersmeet.testing import oracle

pytestmark = pytest.mark.spark
CASE = Case(
    [oracle.Stream(name, oracle.Sliding(12), 6) for name in "ab"],
    cuts(8, "ab", batches=3, nulls=0),
    holds=lambda a, b: a["x"] < b["x"] and a["x"] + b["x"] > 1,
)
WHERE = "fatal(a.x, b.x) AND beyond(a.x + b.x)"
SELECT = "a.id AS a, b.id AS b, same(a.id) AS again"
DIED = "a Python worker or an executor died, perhaps for lack of memory or in a function that crashed; "
DIED += "start the query again once that is fixed."


def killing(flags: Path, name: str, value: Callable[..., Any], until: int = 1) -> Callable[..., Any]:
    """Return a function that kills the worker which calls it, so many times; then, or without the folder, a value.

    Args:
        flags: A folder of files that tell how often it was done.
        name: The function's.
        value: Returns the value.
        until: How often.
    """

    def called(*arguments: Any) -> Any:
        for time in range(until):
            try:
                os.close(os.open(flags / f"{name}-{time}", os.O_CREAT | os.O_EXCL))
            except (FileExistsError, FileNotFoundError):
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return value(*arguments)

    return called


def results(out: Path, format: str = "json") -> Counter[tuple[int, ...]]:
    return Counter((row["a"], row["b"]) for row in read(out, format).to_pylist())


def expected_results() -> Counter[tuple[int, ...]]:
    counts = Counter[tuple[int, ...]]()
    for (ids, _), times in expected(CASE).results.items():
        counts[ids] += times
    return counts


def deadly(spark: SparkSession, folder: Path, flags: Path, until: int = 1, **options: Any) -> wm.Join:
    """Return the join, with a killer in the input, in the join's own tasks, in what Spark decides and in the output."""
    for name, value, kind in (("beyond", lambda sum: sum > 1, "boolean"), ("same", lambda id: id, "long")):
        spark.udf.register(name, killing(flags, name, value), kind)
    inputs = frames(spark, folder / "in", CASE.names)
    inputs["a"] = inputs["a"].withColumn("x", F.udf(killing(flags, "input", lambda x: x), "double")("x"))
    fatal = wm.predicate(name="fatal")(killing(flags, "fatal", lambda x, ys: ys > x, until))
    return join_of(CASE, inputs, where=WHERE, select=SELECT, predicates=[fatal], **options)


def flagged(folder: Path, *names: str) -> Path:
    """Return a folder of flags in which these functions have had their victim."""
    (folder / "flags").mkdir()
    for name in names:
        (folder / "flags" / f"{name}-0").touch()
    return folder / "flags"


@through("local")
def test_a_job_whose_worker_dies_is_run_again(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    """In each of the jobs of a batch: reading and joining, what Spark decides, and writing the output."""
    write(tmp_path / "in", CASE.batches)
    killed = "input" if exchange == "local" else "fatal"  # [!] in the driver's own process it would kill the tests
    flags = flagged(tmp_path, killed)
    query = run(deadly(spark, tmp_path, flags).writeStream.format("json"), tmp_path, exchange)
    assert {flag.name for flag in flags.iterdir()} == {f"{name}-0" for name in ("input", "fatal", "beyond", "same")}
    assert results(tmp_path / "out") == expected_results() and expected_results().total() > 20
    runner = query._runner
    left = {name for folder in FOLDERS[:4] for name in runner.store.names(folder)}
    left -= runner.protocol.state.files | runner.protocol._garbage
    assert len(left) <= 1, "at most what a task wrote that was still at work when its job was given up"


def test_a_worker_that_dies_again_ends_the_query_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    """The batches before stay, and the checkpoint goes on once nobody dies any more."""
    write(tmp_path / "in", CASE.batches[:1])
    run(deadly(spark, tmp_path, tmp_path / "none").writeStream.format("json"), tmp_path, "local")
    write(tmp_path / "in", CASE.batches[1:])
    flags = flagged(tmp_path, "input", "beyond", "same")
    with pytest.raises(wm.StateError) as raised:
        run(deadly(spark, tmp_path, flags, until=10).writeStream.format("json"), tmp_path, "local")
    assert str(raised.value) == f"Batch 1 was not written: {DIED}"
    run(deadly(spark, tmp_path, tmp_path / "none").writeStream.format("json"), tmp_path)
    assert results(tmp_path / "out") == expected_results()


@pytest.mark.slow
def test_a_function_that_takes_batches_is_not_called_again(spark: SparkSession, tmp_path: Path) -> None:
    """What it has done by then nobody knows: the next start calls it, as after any crash."""
    write(tmp_path / "in", CASE.batches)
    flags, batches = flagged(tmp_path, "input", "fatal", "beyond"), list[int]()

    def consume(frame: DataFrame, batch: int) -> None:
        batches.append(batch)
        frame.write.mode("overwrite").json(str(tmp_path / "out" / str(batch)))

    with pytest.raises(wm.StateError) as raised:
        run(deadly(spark, tmp_path, flags).writeStream.foreachBatch(consume), tmp_path)
    assert str(raised.value) == f"Batch 0 was not written: {DIED}" and batches == [0]
    run(deadly(spark, tmp_path, flags).writeStream.foreachBatch(consume), tmp_path)
    assert results(tmp_path / "out") == expected_results() and batches == [0, 0, 1, 2]


@pytest.mark.slow
def test_a_round_whose_worker_dies_is_run_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in", CASE.batches)
    flags, intend = tmp_path / "flags", BatchRunner.intend

    def arm(runner: BatchRunner, action: RecordIntent) -> None:
        flags.mkdir(exist_ok=True)
        intend(runner, action)

    monkeypatch.setattr(BatchRunner, "intend", arm)
    spill = wm.Spill(memory=1, partitions=4, policy="local", oldest="1 hour")
    join = deadly(spark, tmp_path, flags, strategy=wm.DSJ(2), spill=spill)
    run(join.writeStream.format("json"), tmp_path, "local")
    assert (flags / "fatal-0").exists()
    assert results(tmp_path / "out") == expected_results()


@pytest.mark.parametrize(
    ("text", "death"),
    [
        ("SparkException: Python worker exited unexpectedly (crashed). Consider setting", True),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", True),
        ("java.net.SocketException: Broken pipe\n\tat java.base/x.y(z)\n\tat org.apache.spark.api.python.P$1(P)", True),
        ("java.io.IOException: Stream closed\n\tat java.base/x.y(z)\n\tat org.apache.spark.api.python.P(P)", True),
        ("SparkException: No port number in pyspark.daemon's stdout", True),
        ("java.net.SocketException: Connection reset\n\tat org.postgresql.core.Stream.read(Stream.java)", False),
        ("org.apache.spark.api.python.PythonException: BrokenPipeError: [Errno 32] Broken pipe", False),
        ("Python worker raised", False),
    ],
)
def test_what_is_a_death(text: str, death: bool) -> None:
    assert is_death(Exception(text)) is death


def test_only_a_death_is_survived_and_only_once() -> None:
    dead, ours = RuntimeError("Python worker exited unexpectedly"), PredicateError("`where` raised")
    runs: list[BaseException] = [dead]
    cleared = list[int]()

    def job() -> str:
        if runs:
            raise runs.pop()
        return "done"

    assert retry_after_death(job, lambda: cleared.append(1)) == "done" and cleared == [1]
    runs[:] = [dead, dead]
    with pytest.raises(RuntimeError):
        retry_after_death(job, lambda: cleared.append(2))
    assert cleared == [1, 2]
    runs[:] = [ours]
    with pytest.raises(PredicateError):
        retry_after_death(job, lambda: cleared.append(3))
    assert cleared == [1, 2]
