"""Restarts: exact results; changed queries and damaged state: refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import Batches, Case, cuts, expected, frames, join_of, results, run, side_ids, through, write
from tests.spark.harness import table as to_table
from watersmeet.spark.api import writer
from watersmeet.spark.checkpoint import lease as leases
from watersmeet.spark.checkpoint.lease import Lease
from watersmeet.spark.run.versions import SPARK
from watersmeet.state.store.store import Store
from watersmeet.testing import write_batches
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark

# -- what may change between two runs, and what may not

PAIR = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(32, "ab", batches=6, nulls=0),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
    strategy=wm.PSP(3),
)


@pytest.mark.slow
@through("shuffle")
def test_nodes_and_strategy_may_change_between_runs(spark: SparkSession, tmp_path: Path, exchange: str) -> None:
    history: list[int] = []
    for at, strategy in enumerate([wm.PSP(3), wm.PSP(1), wm.Central(), wm.PSP(4)]):
        write(tmp_path / "in", PAIR.batches[at : at + 1] if at < 3 else PAIR.batches[3:])
        joined = join_of(PAIR, frames(spark, tmp_path / "in", "ab"), strategy=strategy)
        query = run(joined.writeStream, tmp_path, exchange)
        history = [p["batchId"] for p in query.progress]
        assert query.progress[-1]["strategy"] == strategy.describe()
        assert len(query.progress[-1]["nodes"]) == strategy.nodes
    assert results(tmp_path, "ab") == expected(PAIR).results
    assert history == list(range(6))  # progress is kept across restarts


def _first_run(spark: SparkSession, folder: Path, batches: int = 3, **options: Any) -> None:
    write(folder / "in", PAIR.batches[:batches])
    run(join_of(PAIR, frames(spark, folder / "in", "ab"), **options).writeStream, folder)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query that ran three batches; tests copy its checkpoint before they harm it."""
    folder = tmp_path_factory.mktemp("ran")
    _first_run(spark, folder)
    return folder


def _streams(folder: Path, spark: SparkSession, a: dict[str, Any], b: dict[str, Any]) -> list[Any]:
    inputs = frames(spark, folder / "in", "ab")
    usual: dict[str, Any] = {"time": "ts", "window": "10 seconds", "delay": "5 seconds"}
    return [wm.stream("a", inputs["a"], **usual | a), wm.stream("b", inputs["b"], **usual | b)]


CHANGED: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "where": (lambda s: wm.join(*s, where="a.x <= b.x"), "where was 'a.x < b.x' and is now 'a.x <= b.x'"),
    "select": (lambda s: wm.join(*s, where="a.x < b.x", select="a.id"), "select was '' and is now 'a.id'"),
    "computed select": (
        lambda s: wm.join(*s, where="a.x < b.x", select="a.id + b.id AS n"),
        r"select was '' and is now 'a.id \+ b.id AS n'",
    ),
    "order of streams": (
        lambda s: wm.join(*reversed(s), where="a.x < b.x"),
        r"streams was \['a', 'b'\] and is now \['b', 'a'\]",
    ),
}


@pytest.mark.parametrize("what", one_in(2, CHANGED))
def test_another_query_is_refused(spark: SparkSession, ran: Path, what: str) -> None:
    make, sentence = CHANGED[what]
    changed = make(_streams(ran, spark, {}, {}))
    with pytest.raises(wm.DefinitionError, match=sentence) as caught:
        run(changed.writeStream, ran)
    assert "belongs to another query" in str(caught.value) and "start a new checkpoint" in str(caught.value)


@pytest.mark.parametrize(
    ("a", "sentence"),
    [
        ({"window": "11 seconds"}, "window of 'a' was 'sliding 10 s' and is now 'sliding 11 s'"),
        ({"window": wm.count(5)}, "window of 'a' was 'sliding 10 s' and is now 'last 5 rows'"),
        ({"delay": "4 seconds"}, "delay of 'a' was '5 s' and is now '4 s'"),
    ],
)
def test_another_window_or_delay_is_refused(spark: SparkSession, ran: Path, a: Any, sentence: str) -> None:
    changed = wm.join(*_streams(ran, spark, a, {}), where="a.x < b.x")
    with pytest.raises(wm.DefinitionError, match=sentence):
        run(changed.writeStream, ran)


def test_another_expression_over_the_same_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    _first_run(spark, tmp_path, 1, select="a.id + b.id AS n")
    with pytest.raises(wm.DefinitionError, match=r"select was 'a.id \+ b.id AS n' and is now 'a.id - b.id AS n'"):
        _first_run(spark, tmp_path, 1, select="a.id - b.id AS n")


# -- damage


def _again(spark: SparkSession, ran: Path, folder: Path, harm: Callable[[Path], None]) -> Path:
    """Copy a run, harm the copy's store, add a batch and run again; a copy, since workers keep chunks mapped."""
    shutil.copytree(ran / "checkpoint", folder / "checkpoint")
    shutil.copytree(ran / "in", folder / "old")
    harm(folder / "checkpoint")
    for name in "ab":
        write_batches(ran / "in" / name, [to_table(PAIR.batches[3][name])])
    try:
        run(join_of(PAIR, frames(spark, ran / "in", "ab")).writeStream, folder)
    finally:
        for name in "ab":
            (ran / "in" / name / "00003.parquet").unlink()
    return folder


def _chunks(checkpoint: Path) -> list[Path]:
    return sorted((checkpoint / "watersmeet" / "chunks").glob("*.arrow"))


def test_a_missing_chunk_is_an_error(spark: SparkSession, ran: Path, tmp_path: Path) -> None:
    def harm(checkpoint: Path) -> None:
        for path in _chunks(checkpoint):
            path.unlink()

    with pytest.raises(wm.StateError, match="is missing or empty: a manifest names it"):
        _again(spark, ran, tmp_path, harm)
    assert not list((tmp_path / "out").glob("part-b*"))


def test_a_damaged_chunk_is_an_error(spark: SparkSession, ran: Path, tmp_path: Path) -> None:
    def harm(checkpoint: Path) -> None:
        for path in _chunks(checkpoint):
            data = bytearray(path.read_bytes())
            middle = len(data) // 2
            data[middle : middle + 64] = bytes(64 * [255])
            path.write_bytes(data)

    with pytest.raises(wm.StateError, match="fails its checksum"):
        _again(spark, ran, tmp_path, harm)


def test_a_chunk_cut_short_is_an_error(spark: SparkSession, ran: Path, tmp_path: Path) -> None:
    def harm(checkpoint: Path) -> None:
        for path in _chunks(checkpoint):
            path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(wm.StateError, match="is cut short"):
        _again(spark, ran, tmp_path, harm)


def test_state_ahead_of_spark_is_refused(spark: SparkSession, ran: Path, tmp_path: Path) -> None:
    def harm(checkpoint: Path) -> None:
        for log in ("offsets", "commits"):
            for batch in ("1", "2"):
                for path in (checkpoint / log).glob(f"*{batch}*"):
                    path.unlink()

    with pytest.raises(wm.StateError, match=r"Spark runs batch 1, but the newest state is of batch 2"):
        _again(spark, ran, tmp_path, harm)


def test_other_input_under_a_known_number_is_refused(spark: SparkSession, ran: Path, tmp_path: Path) -> None:
    """As after a backup that copied Spark's part of the checkpoint before the join's."""

    def harm(checkpoint: Path) -> None:
        for log in ("offsets", "commits"):
            for path in (checkpoint / log).glob("*2*"):
                path.unlink()

    with pytest.raises(wm.StateError, match=r"Batch 2 was computed from different input than Spark now has"):
        _again(spark, ran, tmp_path, harm)
    assert not list((tmp_path / "out").glob("part-b*"))


def test_spark_and_state_of_two_checkpoints_are_refused(spark: SparkSession, ran: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    _first_run(spark, other)

    def harm(checkpoint: Path) -> None:
        shutil.rmtree(checkpoint / "watersmeet")
        shutil.copytree(other / "checkpoint" / "watersmeet", checkpoint / "watersmeet")

    with pytest.raises(wm.StateError, match=r"Batch 2 was computed from different input than Spark now has"):
        _again(spark, ran, tmp_path / "mixed", harm)


def test_an_older_copy_of_the_checkpoint_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sides = {"latePath": str(tmp_path / "late"), "rejectedPath": str(tmp_path / "rejected")}

    def run_all(batches: Batches = ()) -> None:
        if batches:
            write(tmp_path / "in", batches)
        run(join_of(PAIR, frames(spark, tmp_path / "in", "ab")).writeStream.options(**sides), tmp_path)

    run_all(PAIR.batches[:2])
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
    run_all(PAIR.batches[2:])
    late = side_ids(tmp_path / "late", "ab")
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "backup", tmp_path / "checkpoint")
    run_all()
    assert results(tmp_path, "ab") == expected(PAIR).results
    assert side_ids(tmp_path / "late", "ab") == late


def test_two_runs_of_one_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """The second one is told who is at work, and changes nothing."""
    write(tmp_path / "in", PAIR.batches[:3])
    writer = join_of(PAIR, frames(spark, tmp_path / "in", "ab")).writeStream
    first = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
    try:
        first.processAllAvailable()
        with pytest.raises(wm.StateError, match="is in use by another query of this program; stop that"):
            run(writer, tmp_path)
        write(tmp_path / "in", PAIR.batches[3:])
        first.processAllAvailable()
    finally:
        first.stop()
    run(writer, tmp_path)  # once it has stopped there is no waiting
    assert results(tmp_path, "ab") == expected(PAIR).results


def test_a_run_that_lost_its_checkpoint_stops_and_shows_no_results(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", PAIR.batches[:2])
    writer = join_of(PAIR, frames(spark, tmp_path / "in", "ab")).writeStream
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
    query.processAllAvailable()
    before = results(tmp_path, "ab")
    store = query._runner.store

    def lose(step: str) -> None:
        if step == "sink":
            assert store.publish("leases/000000000099.json", b"another's")

    query._runner.after = lose
    write(tmp_path / "in", PAIR.batches[2:3])
    with pytest.raises(wm.StateError, match="Another run has taken over the checkpoint"):
        query.processAllAvailable()
    assert results(tmp_path, "ab") == before
    store.remove(["leases/000000000099.json"])
    write(tmp_path / "in", PAIR.batches[3:])
    run(writer, tmp_path)
    assert results(tmp_path, "ab") == expected(PAIR).results


def test_state_behind_spark_is_refused(spark: SparkSession, ran: Path, tmp_path: Path) -> None:
    def harm(checkpoint: Path) -> None:
        (manifest,) = (checkpoint / "watersmeet" / "manifests").glob("000000000002-*.json")
        manifest.unlink()

    with pytest.raises(wm.StateError, match=r"Spark has finished batch 2, but the newest state is of batch 1"):
        _again(spark, ran, tmp_path, harm)


def test_lost_state_is_refused(spark: SparkSession, ran: Path, tmp_path: Path) -> None:
    with pytest.raises(wm.StateError, match=r"if a join ran there, restore its folder 'watersmeet'\."):
        _again(spark, ran, tmp_path, lambda checkpoint: shutil.rmtree(checkpoint / "watersmeet"))
    assert not (tmp_path / "checkpoint" / "watersmeet").exists()


def test_a_checkpoint_of_sparks_own_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """With as many sources and no new input, nothing would ever be joined."""
    write(tmp_path / "in", PAIR.batches[:1])
    inputs = frames(spark, tmp_path / "in", "ab")
    plain = inputs["a"].union(inputs["b"]).writeStream.format("parquet").option("path", str(tmp_path / "out"))
    plain = plain.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    plain.start().awaitTermination()
    writer = join_of(PAIR, inputs).writeStream
    with pytest.raises(wm.DefinitionError, match="was written by Spark's own file sink"):
        run(writer, tmp_path)
    shutil.rmtree(tmp_path / "out")
    message = (
        rf"^Spark has finished batch 0 in the checkpoint at {tmp_path}/checkpoint, which holds no state of a join: it "
        "is that of another Spark query, so use a new checkpointLocation; "
    )
    with pytest.raises(wm.StateError, match=message):
        run(writer, tmp_path)
    assert not (tmp_path / "checkpoint" / "watersmeet").exists() and not (tmp_path / "out").exists()


def test_state_is_looked_at_again_under_the_lease(
    spark: SparkSession, ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[!] A fence from the first batch on would void whatever comes back."""

    def take_late(store: Store) -> Lease:
        lease = leases.take(store)
        store.remove(store.names("manifests"))
        return lease

    monkeypatch.setattr(writer, "take", take_late)
    with pytest.raises(wm.StateError, match=r"Spark has finished batch 2, but the newest state is missing"):
        _again(spark, ran, tmp_path, lambda checkpoint: None)
    fences = tmp_path / "checkpoint" / "watersmeet" / "fences"
    assert [path.name for path in fences.iterdir()] == [
        path.name for path in (ran / "checkpoint" / "watersmeet" / "fences").iterdir()
    ]


def test_a_restart_sweeps_what_crashes_left(spark: SparkSession, ran: Path, tmp_path: Path) -> None:
    left = ["chunks/orphan.arrow", "results/orphan.parquet", "sides/orphan.parquet", "manifests/x.json.1.draft"]

    def harm(checkpoint: Path) -> None:
        for name in left:
            path = checkpoint / "watersmeet" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"left over")

    store = _again(spark, ran, tmp_path, harm) / "checkpoint" / "watersmeet"
    assert not any((store / name).exists() for name in left)
    assert len([*(store / "manifests").glob("000000000003-*.json")]) == len([*(store / "fences").iterdir()]) == 1
    assert len(_chunks(tmp_path / "checkpoint")) > 0


FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.mark.skipif(SPARK < (4, 3), reason="the class has another name")
@pytest.mark.parametrize("own", [None, "FileContextBasedCheckpointFileManager"])
def test_sparks_part_is_written_without_a_process_for_each_file(
    spark: SparkSession, tmp_path: Path, own: str | None
) -> None:
    package = "org.apache.spark.sql.execution.streaming.checkpointing"
    chosen = None if own is None else f"{package}.{own}"
    if chosen:
        spark.conf.set(FILE_MANAGER, chosen)
    try:
        write(tmp_path / "in", PAIR.batches[:1])
        writer = join_of(PAIR, frames(spark, tmp_path / "in", "ab")).writeStream.trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
        assert spark.conf.get(FILE_MANAGER, None) == chosen
        manager = query._query._jsq.streamingQuery().offsetLog().fileManager()
        assert manager.getClass().getSimpleName() == (own or "FileSystemBasedCheckpointFileManager")
        query.awaitTermination()
    finally:
        spark.conf.unset(FILE_MANAGER)
