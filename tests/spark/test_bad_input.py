"""Bad input: one sentence that says what is wrong, where, and what to do; no JVM frames."""

import re
import stat
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark.harness import Case, cuts, expected, frames, join_of, results, run, write
from watersmeet.spark.run import checks
from watersmeet.state.store.store import Store
from watersmeet.testing.oracle import Sliding, Stream

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def static(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], "id long, ts timestamp, x double, at timestamp_ntz, word string")


def stream(name: str, frame: Any, **options: Any) -> Any:
    return wm.stream(name, frame, **{"time": "ts", "window": "10 seconds", **options})


def message_of(error: BaseException) -> str:
    """Return an error's message, which must be one sentence of ours and not a stack."""
    text = str(error)
    assert "\tat " not in text and "Traceback" not in text and "JVM" not in text
    return text


# -- at definition time


def test_text_with_two_collations_is_compared_by_neither(spark: SparkSession, static: DataFrame) -> None:
    one, two = (static.selectExpr("ts", "x", f"word COLLATE {name} AS word") for name in ("UTF8_LCASE", "UNICODE"))
    with pytest.raises(wm.SqlError, match="indeterminate collation"):
        wm.join(stream("a", one), stream("b", two), where="a.word = b.word")
    wm.join(stream("a", one), stream("b", two), where="a.x = b.x")


WHERE = {
    "a.y < b.x": "Stream a has no column y; it has id, ts, x, at, word.",
    "a.x < c.x": "There is no stream c; choose from a, b.",
    "x < 1": "x is ambiguous; write a.x or b.x.",
}


@pytest.mark.parametrize("where", WHERE)
def test_names_in_where(static: DataFrame, where: str) -> None:
    with pytest.raises(wm.SqlError) as caught:
        wm.join(stream("a", static), stream("b", static), where=where)
    lines = message_of(caught.value).splitlines()
    assert lines[0] == WHERE[where]
    assert lines[1] == f"  {where}" and set(lines[2].strip()) == {"^"}


STREAMS: dict[str, tuple[dict[str, Any], str]] = {
    "a negative delay": (
        {"delay": "-1 second"},
        "delay of stream 'a': '-1 second' is negative; a duration is zero or longer.",
    ),
    "a negative idle timeout": (
        {"idle": timedelta(-1)},
        "idle timeout of stream 'a': datetime.timedelta(days=-1) is negative; a duration is zero or longer.",
    ),
    "a time that is a column": ({"time": 5}, "Stream 'a': time=5 is not the name of a column, such as time='ts'."),
    "a window that is none": (
        {"window": "10 parsecs"},
        "window of stream 'a': '10 parsecs' is not a duration; write it like '10 seconds', '500 ms' or "
        "'1 hour 30 minutes'.",
    ),
    "no time column": (
        {"time": "_time"},
        "Stream 'a' needs a time column: give time='...', one of id, ts, x, at, word.",
    ),
    "a missing time column": ({"time": "when"}, "Stream 'a' has no time column 'when'; it has id, ts, x, at, word."),
    "a bad delay": (
        {"delay": "later"},
        "delay of stream 'a': 'later' is not a duration; write it like '10 seconds', '500 ms' or '1 hour 30 minutes'.",
    ),
}


@pytest.mark.parametrize("what", STREAMS)
def test_streams(static: DataFrame, what: str) -> None:
    options, sentence = STREAMS[what]
    with pytest.raises(wm.DefinitionError) as caught:
        stream("a", static, **options)
    assert message_of(caught.value) == sentence


def test_a_stream_needs_a_name_and_a_frame(static: DataFrame) -> None:
    with pytest.raises(wm.DefinitionError, match="'a b' can't name a stream: use letters, digits and underscores"):
        stream("a b", static)
    with pytest.raises(wm.DefinitionError, match="Stream 'a' needs a Spark DataFrame, static or streaming; got a "):
        stream("a", [1, 2])
    with pytest.raises(wm.DefinitionError, match=r"wm.join takes streams made by .*, not a DataFrame; wrap it, as in"):
        wm.join(stream("a", static), static)  # type: ignore[arg-type]
    with pytest.raises(wm.DefinitionError, match=r", not a list; write wm.join\(\*streams\)"):
        wm.join([stream("a", static), stream("b", static)])  # type: ignore[arg-type]
    with pytest.raises(wm.DefinitionError, match=r"^DataFrame\[.* can't name a stream: its name comes first, as in"):
        wm.stream(static, "a", time="ts")  # type: ignore[arg-type]


def test_a_stream_may_not_have_the_name_of_the_results_time(static: DataFrame) -> None:
    for name in ("_time", "_TIME"):
        with pytest.raises(wm.DefinitionError, match=f"'{name}' can't name a stream: that name is reserved"):
            stream(name, static)
    joined = wm.join(*(stream(name, static) for name in ("_stream", "_hash", "_join", "j", "s0_1", "node")))
    assert joined.toDF().columns == ["_stream", "_hash", "_join", "j", "s0_1", "node", "_time"]


def test_columns_of_one_name(static: DataFrame) -> None:
    for again in ("x", "X"):
        twice = stream("a", static.selectExpr("id", "ts", "x", f"x AS {again}"))
        other = stream("b", static)
        how = "2 columns have that name; rename all but one" if again == "x" else "its columns differ only in case"
        used: list[dict[str, Any]] = [{"where": "a.x < b.x"}, {"select": "a.x"}, {"select": "a.x + 1 AS n"}]
        for options in used:
            with pytest.raises(wm.SqlError, match=f"a.x is ambiguous: {how}"):
                wm.join(twice, other, **options)
        with pytest.raises(
            wm.DefinitionError, match=f"Stream 'a' has two columns called {again}, and results show eve"
        ):
            wm.join(twice, other, where="a.id = b.id")
        assert wm.join(twice, other, where="a.id = b.id", select="a.id").toDF().count() == 0
    with pytest.raises(
        wm.DefinitionError, match="Stream 'a' has two columns called ts and ts; rename all but its time"
    ):
        stream("a", static.selectExpr("id", "ts", "ts"))


@pytest.mark.parametrize(
    ("set", "sentence"),
    [
        (lambda w: w.option("chekpointLocation", "x"), "option('chekpointLocation') is unknown. Did you mean 'checkpo"),
        (lambda w: w.option("nearmiss", 3), "option('nearmiss') is unknown. Did you mean 'nearMisses'?"),
        (lambda w: w.option("latepaths", "x"), "option('latepaths') is unknown. Did you mean 'latePath'?"),
        (lambda w: w.option(5, "x"), "option(5): give a string such as 'checkpointLocation'."),
        (lambda w: w.format(None), "format(None): give a string such as 'parquet'."),
        (lambda w: w.queryName(5), "queryName(5): give a string such as 'matches'."),
        (lambda w: w.partitionBy("a", None), "partitionBy(None): give a string such as 'zone'."),
        (lambda w: w.foreachBatch("f"), "foreachBatch('f'): give a function of a frame and the number of a batch."),
        (lambda w: w.toTable(None), "toTable(None): give a string such as 'matches'."),
        (lambda w: w.option("path", 5), "option('path', 5): give a string such as '/data/matches'."),
        (lambda w: w.options(LATEPATH=5), "option('latePath', 5): give a string such as '/data/matches'."),
        (lambda w: w.start(5), "start(5): give a string such as '/data/matches'."),
        (
            lambda w: w.trigger(processTime="1 s"),
            "trigger(processTime=...) is unknown; use one of proce",
        ),
        (lambda w: w.trigger(), "trigger(...) takes exactly one of processingTime, once, availableNow; got none."),
        (
            lambda w: w.trigger(once=True, availableNow=True),
            "trigger(...) takes exactly one of processingTime, once, availableNow; got once=True and availableNow=True",
        ),
        (lambda w: w.trigger(availableNow=False), "trigger(availableNow=False): it is True, or left out."),
        (lambda w: w.trigger(processingTime=5), "trigger(processingTime=5): write a duration such as '10 seconds'."),
        (lambda w: w.trigger(processingTime="soon"), "trigger(processingTime): 'soon' is not a duration; write it"),
        (
            lambda w: w.format("console").option("numRows", "x")._console_printer(),
            "option('numRows', 'x') must be a whole",
        ),
    ],
)
def test_what_the_writer_is_given(static: DataFrame, set: Any, sentence: str) -> None:
    writer = wm.join(stream("a", static), stream("b", static)).writeStream
    with pytest.raises(wm.DefinitionError) as caught:
        set(writer)
    assert message_of(caught.value).startswith(sentence)
    assert writer.option("CHECKPOINTLOCATION", Path("x")).options(compression="zstd", mergeSchema=True)._options == {
        "checkpointLocation": "x",
        "compression": "zstd",
        "mergeSchema": "true",
    }


CASTS = {
    "a.x < b.x AND a.word = b.x": "`a.word = b.x`: Spark casts a.word to double, and a text that is no double stops",
    "b.ts < a.word": "`b.ts < a.word`: Spark casts a.word to timestamp, and a text that is no timestamp stops the que",
    "a.word BETWEEN b.x AND b.x + 1": "`a.word BETWEEN b.x AND b.x + 1`: Spark casts ... to double, and a text that",
    "a.word = 5": "`a.word = 5`: Spark casts a.word to bigint",
    "a.id = 'x'": "`a.id = 'x'`: Spark casts 'x' to bigint, which it is not, and that stops the query; write a bigint,",
    "b.id IN ('1', 'x')": "`b.id IN ('1', 'x')`: Spark casts 'x' to bigint, which it is not",
    "a.ts > '2026-13-01'": "`a.ts > '2026-13-01'`: Spark casts '2026-13-01' to timestamp, which it is not",
}


@pytest.mark.parametrize("where", CASTS)
def test_texts_that_spark_casts_unasked(static: DataFrame, where: str) -> None:
    with pytest.warns(wm.DefinitionWarning) as told:
        wm.join(stream("a", static), stream("b", static), where=where)
    assert [str(warning.message)[: len(CASTS[where])] for warning in told] == [CASTS[where]]
    assert told[0].filename == __file__


def test_casts_that_someone_asked_for_are_not_warned_of(spark: SparkSession, static: DataFrame) -> None:
    asked = ["cast(a.word AS double) = b.x", "try_cast(a.word AS int) = b.x", "double(a.word) = b.x", "a.x = '5'"]
    asked += ["a.ts > '2026-12-01'", "a.id IN ('1', NULL)", "a.id = try_cast('x' AS int)"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wm.join(stream("a", static), stream("b", static), where=" AND ".join([*asked, "a.word::double < b.x"]))
        wm.join(stream("a", static), stream("b", static), where="a.word COLLATE UTF8_LCASE = b.word")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.warns(wm.DefinitionWarning, match="a text that is no double becomes NULL, which matches nothing"):
            wm.join(stream("a", static), stream("b", static), where="a.word = b.x")
        with pytest.warns(wm.DefinitionWarning, match="'x' to bigint, which it is not, and that is NULL, which matche"):
            wm.join(stream("a", static), stream("b", static), where="a.id = 'x'")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def test_joins(static: DataFrame) -> None:
    a = stream("a", static)
    with pytest.raises(wm.DefinitionError, match="its time column 'word' is of type string; an event time is a time"):
        wm.join(a, stream("b", static, time="word"))
    with pytest.raises(wm.DefinitionError, match="Two streams are called 'A'; give each a name of its own"):
        wm.join(a, stream("A", static))
    with pytest.raises(wm.DefinitionError, match="Event times of timestamp and timestamp_ntz can't be mixed"):
        wm.join(a, stream("b", static, time="at"))
    with pytest.raises(wm.DefinitionError, match=r"A join needs at least two streams"):
        wm.join(a)
    for given in (None, 1, "yes"):
        with pytest.raises(wm.DefinitionError, match=f"untrusted={given!r} must be True or False"):
            wm.join(a, stream("b", static), untrusted=given)  # type: ignore[arg-type]
    with pytest.raises(wm.DefinitionError, match="constraints must be a list, such as"):
        stream("a", static, constraints="")
    with pytest.raises(wm.DefinitionError, match=r"strategy='PSP': use wm.PSP\(nodes=...\), ATR, CTR, DSJ"):
        wm.join(a, stream("b", static), strategy="PSP")  # type: ignore[arg-type]
    with pytest.raises(wm.DefinitionError, match=r"nodes=0: a strategy runs on a whole number of nodes from 1 to"):
        wm.PSP(nodes=0)
    with pytest.raises(wm.DefinitionError, match=r"select: \[.*"):
        wm.join(a, stream("b", static), select="a.id + no_such_function(b.id) AS n")


def test_arguments_of_other_types(static: DataFrame) -> None:
    pair: Any = (stream("a", static), stream("b", static))
    given: list[tuple[dict[str, Any], str]] = [
        ({"where": static.id > 1}, "'id' is one of a DataFrame that several streams have: a, b; write it with its"),
        (
            {"where": lambda a, b: True},
            "where must be a string such as 'a.x < b.y', not a function; to use a Python function",
        ),
        ({"where": True}, "where must be a string such as 'a.x < b.y', not a bool"),
        ({"where": 5}, "where must be a string such as 'a.x < b.y', not an int"),
        ({"where": ""}, "where: the condition is empty; leave where out for every combination in the windows"),
        ({"where": " \n "}, "where: the condition is empty"),
        ({"where": [static.x > 1, static.x < 5]}, "not a list; combine conditions with AND, and columns with &"),
        ({"select": ["a.id", 5]}, r"or a list of columns such as \[a.id, b.id\]; 5 is neither"),
        ({"predicates": len}, "must be a list or a dict"),
        ({"predicates": static.x}, "must be a list or a dict"),
        ({"predicates": static.withColumn("name", static.word)}, "must be a list or a dict"),
        ({"how": static.x}, "name the optional streams"),
        ({"order": ["given"]}, r"order=\['given'\] is unknown; use one of given, selectivity, histogram"),
        ({"strategy": wm.PSP}, r"strategy=wm.PSP, without \(\): use wm.PSP\(nodes=...\)"),
    ]
    for options, sentence in given:
        with pytest.raises(wm.DefinitionError, match=sentence):
            wm.join(*pair, **options)
    frames = {"a": static, "b": static}
    statements: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((None, frames), {}, "text is None: wm.sql takes a string and a dict of frames"),
        ((static, frames), {}, "text must be a string such as 'SELECT"),
        (("SELECT * FROM a, b", [static, static]), {}, "streams is a list: wm.sql takes a string and a dict of frames"),
        (("SELECT * FROM a, b", frames), {"time": 5}, "time must be a string such as 'ts', not an int"),
    ]
    for arguments, options, sentence in statements:
        with pytest.raises(wm.DefinitionError, match=sentence):
            wm.sql(*arguments, **options)


def test_sql_without_a_time_column(static: DataFrame) -> None:
    with pytest.raises(wm.DefinitionError, match=r"Stream 'a' has no time column: pass time='...' or write WATTR"):
        wm.sql("SELECT * FROM a, b", {"a": static, "b": static})


# -- at the start

CASE = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(41, "ab", batches=3, nulls=0),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)


@pytest.fixture(scope="module")
def inputs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    folder = tmp_path_factory.mktemp("inputs")
    write(folder, CASE.batches)
    return frames(spark, folder, "ab")


def test_what_start_refuses(static: DataFrame, inputs: dict[str, DataFrame], tmp_path: Path) -> None:
    writer = join_of(CASE, inputs).writeStream
    checkpoint = str(tmp_path / "checkpoint")
    with pytest.raises(wm.DefinitionError, match=r"A streaming join needs a checkpoint: .option\('checkpointLocation'"):
        writer.start(str(tmp_path / "out"))
    writer = writer.option("checkpointLocation", checkpoint)
    with pytest.raises(wm.DefinitionError, match=r"format\('parquet'\) needs a path"):
        writer.start()
    with pytest.raises(wm.DefinitionError, match="exchange 'pigeon' is unknown; use one of driver, local, shuffle"):
        writer.option("exchange", "pigeon").start(str(tmp_path / "out"))
    with pytest.raises(wm.DefinitionError, match=r"format\('csv'\) has flat columns only: give the join a select="):
        writer.format("csv").start(str(tmp_path / "out"))
    with pytest.raises(wm.DefinitionError, match=r"format\('parqet'\) is unknown to this .* Did you mean 'parquet'\?"):
        writer.format("parqet").start(str(tmp_path / "out"))
    with pytest.raises(wm.DefinitionError, match=r"format\('memory'\) needs a name: .queryName"):
        writer.format("memory").start()
    with pytest.raises(
        wm.DefinitionError, match=r"partitionBy\('no'\): the results have no such column; they have a, b"
    ):
        writer.partitionBy("no").start(str(tmp_path / "out"))
    with pytest.raises(wm.DefinitionError, match=r"outputMode\('complete'\): a join only adds results"):
        writer.outputMode("complete")
    with pytest.raises(wm.DefinitionError, match=r"trigger\(continuous=...\): joins run in micro-batches"):
        writer.trigger(continuous="1 second")
    mixed = wm.join(stream("a", inputs["a"]), stream("b", static)).writeStream
    with pytest.raises(wm.DefinitionError, match="Stream 'b' is a static frame among streaming ones"):
        mixed.option("checkpointLocation", checkpoint).start(str(tmp_path / "out"))
    both = wm.join(stream("a", static), stream("b", static)).writeStream
    with pytest.raises(wm.DefinitionError, match=r"All inputs are static: use join.toDF\(\)"):
        both.option("checkpointLocation", checkpoint).start(str(tmp_path / "out"))
    with pytest.raises(wm.DefinitionError, match=r"toDF\(\) joins static inputs; use writeStream for streaming ones"):
        join_of(CASE, inputs).toDF()
    assert not (tmp_path / "out").exists()


# -- while it runs


@wm.predicate
def broken(x: float, ys: Any) -> Any:
    return ys.no_such_thing


@wm.predicate
def too_short(x: float, ys: Any) -> Any:
    return (ys > x)[:-1]


@wm.predicate(name="broken")
def mended(x: float, ys: Any) -> Any:
    return ys > x


def _start(spark: SparkSession, folder: Path, predicate: Any) -> Any:
    joined = join_of(
        CASE, frames(spark, folder / "in", "ab"), where=f"{predicate.name}(a.x, b.x)", predicates=[predicate]
    )
    return run(joined.writeStream, folder)


def test_a_predicate_that_raises_and_is_mended(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches)
    with pytest.raises(wm.PredicateError) as caught:
        _start(spark, tmp_path, broken)
    text = message_of(caught.value)
    assert text.startswith("Predicate 'broken' raised AttributeError: 'numpy.ndarray' object has no attribute")
    assert re.search(r"a\.x = [-.\d]+ \(double\), b\.x: ndarray of \d+", text)
    assert text.endswith("the batch was not written.")
    assert not list((tmp_path / "out").glob("part-b*"))
    _start(spark, tmp_path, mended)
    assert results(tmp_path, "ab") == expected(CASE).results


def test_a_mask_of_the_wrong_length(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches)
    with pytest.raises(
        wm.PredicateError, match=r"Predicate 'too_short' returned a mask of shape \(\d+,\); \(\d+,\) was ex"
    ):
        _start(spark, tmp_path, too_short)


def test_sql_that_raises_names_the_conjunct_and_the_values(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches)
    joined = join_of(CASE, frames(spark, tmp_path / "in", "ab"), where="a.x < 3 AND b.id / (a.x - a.x) > 1")
    with pytest.raises(wm.PredicateError) as caught:
        run(joined.writeStream, tmp_path)
    text = message_of(caught.value)
    assert "`b.id / (a.x - a.x) > 1` raised" in text and "a.x = " in text and "b.id = " in text
    assert not list((tmp_path / "out").glob("part-b*"))


# -- workers


def test_a_python_without_what_tasks_need(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')  # -S: no site-packages
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(wm.DefinitionError) as caught:
        checks.prepare_workers(spark, Store(str(tmp_path)))
    assert message_of(caught.value) == (
        f"Python workers run {bare}, which can't import pyarrow; "
        f"set PYSPARK_PYTHON to a Python that can run the join, such as {sys.executable}."
    )


def test_a_python_that_is_not_there(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    with pytest.raises(wm.DefinitionError, match=r"Python workers run /nowhere/python, which can't be started"):
        checks.prepare_workers(spark, Store(str(tmp_path)))


def test_executors_that_cannot_see_the_store(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "is_local", lambda session: False)
    checks.prepare_workers(spark, Store(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []  # the marker is gone
    monkeypatch.setattr(Store, "publish", lambda self, path, data: True)  # seen by the driver only
    with pytest.raises(wm.DefinitionError) as caught:
        checks.prepare_workers(spark, Store(str(tmp_path)))
    assert message_of(caught.value) == (
        f"The checkpoint is at {tmp_path}, but an executor can't see it: use a path that all executors share."
    )


def test_jobs_that_fail_are_told_in_a_line() -> None:
    stack = "An error\n  File x\nModuleNotFoundError: No module named 'pyarrow'\n\tat org.apache.spark.X"
    assert checks._job_problem(stack) == "can't run Python tasks: ModuleNotFoundError: No module named 'pyarrow'"


def test_rows_without_an_event_time_are_shown(spark: SparkSession, tmp_path: Path) -> None:
    batches = cuts(42, "ab", batches=1, null_times=0.5)
    write(tmp_path / "in", batches)
    query = run(join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream, tmp_path)
    rejected = sum(row["ts"] is None for rows in batches[0].values() for row in rows)
    assert query.progress[0]["rejectedRows"] == rejected > 0
    sample = query.progress[0]["samples"][0]
    assert sample["kind"] == "rejected" and sample["stream"] in "ab" and "id" in sample["row"]


@pytest.mark.parametrize(("samples", "shown"), [("none", []), ("ID, k", [["id", "k"]] * 3)])
def test_samples_show_no_more_than_they_are_asked_for(
    spark: SparkSession, tmp_path: Path, samples: str, shown: list[list[str]]
) -> None:
    write(tmp_path / "in", cuts(42, "ab", batches=1, null_times=0.5))
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream.option("samples", samples)
    query = run(writer, tmp_path, "driver")
    assert query.progress[0]["rejectedRows"] > 3
    assert [sorted(sample["row"]) for sample in query.progress[0]["samples"]] == shown


def test_samples_of_a_column_that_no_stream_has(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", cuts(42, "ab", batches=1))
    writer = join_of(CASE, frames(spark, tmp_path / "in", "ab")).writeStream.option("samples", "id, nmae")
    with pytest.raises(wm.DefinitionError) as caught:
        run(writer, tmp_path)
    assert str(caught.value) == (
        "samples 'id, nmae': no stream has a column 'nmae'; use 'all', 'none', or columns such as 'id, ts'."
    )


# -- places that can't be written to


def test_a_checkpoint_that_cannot_be_written_to(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches[:1])
    (tmp_path / "checkpoint").write_text("no folder")
    with pytest.raises(wm.DefinitionError, match=r"checkpointLocation '.*' can't be written to: ") as caught:
        run(join_of(CASE, frames(spark, tmp_path / "in", CASE.names)).writeStream, tmp_path)
    assert message_of(caught.value)


def test_an_output_folder_that_cannot_be_written_to(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", CASE.batches)
    (tmp_path / "out").write_text("no folder")
    joined = join_of(CASE, frames(spark, tmp_path / "in", CASE.names))
    with pytest.raises(wm.StateError, match="The query was not started: Cannot create directory") as caught:
        run(joined.writeStream, tmp_path)
    assert message_of(caught.value)
    (tmp_path / "out").unlink()
    run(joined.writeStream, tmp_path)
    assert results(tmp_path, CASE.names) == expected(CASE).results
