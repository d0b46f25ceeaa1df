"""Checks before a join starts: what would fail later, amid a stack of JVM frames, said now in a sentence."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal, get_args

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from watersmeet.arguments import is_whole, microseconds, suggest, to_python
from watersmeet.errors import DefinitionError
from watersmeet.query.query import Query
from watersmeet.spark.output.files import Folder
from watersmeet.spark.run.frames import is_local
from watersmeet.state.store.store import Store

SPARKS_LOG = "_spark_metadata"
FLAT_FORMATS = ("csv", "text")
Exchange = Literal["driver", "local", "shuffle"]
"""`driver`: as `local`, but small batches run in the driver's own process.
`local`: all tasks see the store on one host.
`shuffle`: partial results travel by a Spark shuffle per hop."""


def location(spark: SparkSession, given: str | None, name: str | None) -> str:
    """Return the checkpoint location as the user wrote it, the session's default included."""
    default = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    if given:
        return given
    if default:
        return os.path.join(default, name or str(uuid.uuid4()))
    raise DefinitionError(
        "A streaming join needs a checkpoint: .option('checkpointLocation', ...), a folder that survives a crash."
    )


def streaming(inputs: Sequence[tuple[str, DataFrame]]) -> None:
    """Refuse static inputs in a streaming join."""
    static = [name for name, frame in inputs if not frame.isStreaming]
    if len(static) == len(inputs):
        raise DefinitionError("All inputs are static: use join.toDF(); writeStream is for streaming inputs.")
    if static:
        raise DefinitionError(
            f"Stream '{static[0]}' is a static frame among streaming ones; read it with spark.readStream too, "
            f"or make it a table to look rows up in: wm.table('{static[0]}', ...)."
        )


def output(format: str | None, query: Query, select: object) -> None:
    """Refuse structs where the format has flat columns only."""
    if format in FLAT_FORMATS and not query.outputs and select is None:
        raise DefinitionError(f"format('{format}') has flat columns only: give the join a select='...' list.")


def apart(store: str, *outputs: tuple[str, str]) -> None:
    """Refuse two outputs in one folder, or one within the other, where files would mix, and any in the store.

    Args:
        store: Where state is kept.
        outputs: The folders, each with what it is for.
    """
    seen: list[tuple[str, str]] = []
    for folder, what in outputs:
        if _within(folder, store):
            raise DefinitionError(f"{what}: {folder} is where the join keeps its state; write to another folder.")
        for other, whose in seen:
            if whose == what:
                raise DefinitionError(f"{what}: two streams of different columns are called that; rename one.")
            if _within(folder, other) and _within(other, folder):
                raise DefinitionError(f"{whose} and {what} are the same folder, {folder}; give each its own.")
            if _within(folder, other) or _within(other, folder):
                raise DefinitionError(f"{whose} and {what}: of {other} and {folder}, one lies in the other; part them.")
        seen.append((folder, what))


def _within(folder: str, other: str) -> bool:
    """Tell whether a folder is another, or lies in it."""
    return f"{folder.rstrip('/')}/".startswith(f"{other.rstrip('/')}/")


def alike(streams: Sequence[tuple[str, Sequence[str]]], what: str) -> None:
    """Refuse two columns of one name where all columns of a stream are asked for.

    Args:
        streams: The streams' names, each with the names of its columns.
        what: Who asks for them, and what to do about it.
    """
    for stream, columns in streams:
        small = [column.lower() for column in columns]
        twice = next((column for at, column in enumerate(columns) if small[at] in small[:at]), None)
        if twice is not None:
            raise DefinitionError(f"Stream '{stream}' has two columns called {twice}, and {what}.")


def exchange(given: str | None, local: bool) -> Exchange:
    """Return how partial results travel: as asked, or what measures faster where the join runs."""
    known: tuple[Exchange, ...] = get_args(Exchange)
    if given is None:
        return "driver" if local else "shuffle"
    for name in known:
        if name == given:
            return name
    raise DefinitionError(f"exchange '{given}' is unknown; use one of {', '.join(known)}.")


def folder(given: Folder) -> None:
    """Refuse the output folder of Spark's own file sink: Spark reads no other files there than its log lists."""
    if given.has(SPARKS_LOG):
        raise DefinitionError(
            f"path '{given.location.spark}' was written by Spark's own file sink (it has a {SPARKS_LOG}), and Spark "
            "would not read the join's files there; use another folder."
        )


@contextmanager
def writable(given: str) -> Iterator[None]:
    """Say in a sentence that a checkpoint can't be written to."""
    try:
        yield
    except OSError as error:
        raise DefinitionError(
            f"checkpointLocation '{given}' can't be written to: {error.strerror or error}; nothing was started."
        ) from None


TRIGGERS = ("processingTime", "once", "availableNow")


def trigger(given: Mapping[str, object]) -> None:
    """Refuse what is no trigger, or several."""
    if given.get("continuous") is not None:
        raise DefinitionError("trigger(continuous=...): joins run in micro-batches; use processingTime.")
    found = {name: value for name, value in given.items() if value is not None}
    unknown = next((name for name in given if name not in (*TRIGGERS, "continuous")), None)
    if unknown is not None:
        known = ", ".join(TRIGGERS)
        raise DefinitionError(f"trigger({unknown}=...) is unknown; use one of {known}.{suggest(unknown, TRIGGERS)}")
    if len(found) != 1:
        got = " and ".join(f"{name}={value!r}" for name, value in found.items()) or "none"
        raise DefinitionError(f"trigger(...) takes exactly one of {', '.join(TRIGGERS)}; got {got}.")
    ((name, value),) = found.items()
    if name == "processingTime":
        if not isinstance(value, str):
            raise DefinitionError(f"trigger(processingTime={value!r}): write a duration such as '10 seconds'.")
        microseconds(value, "trigger(processingTime)")
    elif value is not True:
        raise DefinitionError(f"trigger({name}={value!r}): it is True, or left out.")


def final(given: str, trigger: Mapping[str, object]) -> bool:
    """Return whether everything is closed for good at the end; refused where a query may leave rows unread.

    [!] Not even `once` reads all there is: after a crash it repeats the batch that was cut, and nothing else.
    """
    wanted = switch("final", given)
    if wanted and not trigger.get("availableNow"):
        raise DefinitionError(
            "option('final', True) needs trigger(availableNow=True), which reads all there is and then ends; stop a "
            "query that runs on, and start it once more with both."
        )
    return wanted


def text(what: str, given: object, example: str) -> None:
    """Refuse what is no string, or an empty one."""
    if not isinstance(given, str) or not given:
        raise DefinitionError(f"{what}({given!r}): give a string such as '{example}'.")


def option(given: str, value: object, own: Mapping[str, str]) -> None:
    """Refuse an option that is none of ours but looks like a misspelled one, and what is no path where one is due.

    Others are the format's own.
    """
    name = own.get(given.lower(), "")
    if name.lower().endswith(("path", "location")) and not isinstance(value, str | os.PathLike | None):
        raise DefinitionError(f"option('{name}', {value!r}): give a string such as '/data/matches'.")
    near = "" if given.lower() in own else suggest(given, tuple(own.values()))
    if near:
        raise DefinitionError(f"option('{given}') is unknown.{near}")


def whole(what: str, given: str) -> int:
    """Return the whole number that an option holds."""
    if not given.isdecimal():
        raise DefinitionError(f"option('{what}', '{given}') must be a whole number, 0 or more.")
    return int(given)


def share(what: str, given: str) -> float:
    """Return the share that an option holds, from 0 to 1."""
    try:
        number = float(given)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise DefinitionError(f"option('{what}', '{given}') must be a share from 0 to 1, such as 0.05.")
    return number


def switch(name: str, given: str) -> bool:
    """Return what an option that is on or off says."""
    if given.lower() not in ("true", "false"):
        raise DefinitionError(f"option('{name}', '{given}') must be 'true' or 'false'.")
    return given.lower() == "true"


def purge_every(given: object) -> int:
    """Return a number of batches; anything else is refused."""
    found: int = to_python(given)
    if not is_whole(found):
        raise DefinitionError(f"purge_every={given!r} must be a whole number of batches, 1 or more.")
    return found


def truth(what: str, given: object) -> bool:
    """Return what is True or False; anything else is refused."""
    found = to_python(given)
    if not isinstance(found, bool):
        raise DefinitionError(f"{what}={given!r} must be True or False.")
    return found


def identity(given: object, select: Any, named: bool) -> bool:
    """Return whether results have an `_id`.

    Args:
        given: Whether the user asks for it beside one struct column per stream.
        select: The SELECT list, if there is one.
        named: Whether the list names it.
    """
    if not isinstance(given, bool):
        raise DefinitionError(f"identity={given!r} must be True or False.")
    if given and select is not None and not named:
        shown = f"'{select.strip()}'" if isinstance(select, str) else "the list of columns"
        raise DefinitionError(f"identity=True is for results without a SELECT list: add _id to {shown}.")
    return given or named


def remember(given: object) -> int | None:
    """Return for how many microseconds marks are remembered; None for ever."""
    if given is None:
        return None
    if not isinstance(to_python(given), str | timedelta) or not (found := microseconds(to_python(given), "remember")):
        raise DefinitionError(f"remember={given!r} must be a duration longer than zero, such as '1 day'.")
    return found


def samples(given: str | None, columns: Sequence[str]) -> frozenset[str] | None:
    """Return the columns that samples of late and rejected rows show, in small letters; None for all of them.

    Args:
        given: `all`, `none`, or the columns, with commas between them.
        columns: The columns of all streams.
    """
    given = "all" if given is None else given.strip()
    if given.lower() in ("all", "none"):
        return None if given.lower() == "all" else frozenset()
    wanted = [name.strip() for name in given.split(",")]
    known = {column.lower(): column for column in columns}
    for name in wanted:
        if name.lower() not in known:
            raise DefinitionError(
                f"samples '{given}': no stream has a column '{name}'; use 'all', 'none', or columns such as "
                f"'{', '.join([*known.values()][:2])}'."
            )
    return frozenset(name.lower() for name in wanted)


def partitions(wanted: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse to lay files out by a column that the results don't have."""
    known, listed = {column.lower() for column in columns}, ", ".join(columns)
    for name in wanted:
        if name.lower() not in known:
            raise DefinitionError(f"partitionBy('{name}'): the results have no such column; they have {listed}.")


def workers(spark: SparkSession, store: Store) -> None:
    """Check that Python workers can run a join and see its store, before Spark says so amid a stack of JVM frames.

    Where all tasks run on this host, workers are made this very Python unless PYSPARK_PYTHON names another.

    Raises:
        DefinitionError: If they can't; the message says what is missing where.
    """
    if not is_local(spark):
        _check_executors(spark, store)
        return
    context = spark.sparkContext
    if "PYSPARK_PYTHON" not in os.environ and context.pythonExec in ("python", "python3"):
        context.pythonExec = sys.executable
    problem = _problem_of(context.pythonExec)
    if problem:
        raise DefinitionError(
            f"Python workers run {context.pythonExec}, which {problem}; "
            f"set PYSPARK_PYTHON to a Python that can run the join, such as {sys.executable}."
        )


@lru_cache
def _problem_of(python: str) -> str | None:
    """Return what keeps another Python of this host from running tasks, or None."""
    if shutil.which(python) == sys.executable:
        return None
    try:
        done = subprocess.run([python, "-c", _IMPORTS], capture_output=True, text=True, timeout=60)
    except OSError as error:
        return f"can't be started ({error.strerror})"
    version, _, missing = done.stdout.strip().partition(" ")
    if version != _VERSION:
        return f"is Python {version or 'unknown'} while this is {_VERSION}"
    return f"can't import {missing}" if missing else None


_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_IMPORTS = """
import importlib, sys
missing = ""
for name in ("pyarrow", "duckdb", "numpy", "watersmeet"):
    try:
        importlib.import_module(name)
    except ImportError:
        missing = missing or name
print("%d.%d %s" % (sys.version_info[0], sys.version_info[1], missing))
"""


def _check_executors(spark: SparkSession, store: Store) -> None:
    context = spark.sparkContext
    marker = f"marker-{uuid.uuid4().hex}"
    store.publish(marker, b"here")
    slots = max(2, context.defaultParallelism)
    try:
        answers = context.parallelize(range(slots), slots).map(_sees(store.root, marker)).collect()
        problem = next((answer for answer in answers if answer), None)
    except Exception as error:
        problem = _of_failed(str(error))
    finally:
        store.remove([marker])
    if problem:
        raise DefinitionError(f"The checkpoint is at {store.root}, but an executor {problem}.")


def _sees(root: str, marker: str) -> Callable[[object], str | None]:
    # Takes plain strings and imports inside: an executor without watersmeet must still be able to unpickle it.
    def sees(_: object) -> str | None:
        try:
            from watersmeet.state.store.store import Store as RemoteStore
        except ImportError as error:
            return f"can't import {error.name}: install watersmeet and its dependencies there, too"
        found = RemoteStore(root).read(marker) == b"here"
        return None if found else "can't see it: use a path that all executors share"

    return sees


def _of_failed(text: str) -> str:
    """Return the one line of a failed job that says why, without the JVM's frames."""
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if "PYTHON_VERSION_MISMATCH" in line or "ModuleNotFoundError" in line]
    said = [line for line in named or lines if line and not line.startswith("at ")]
    return f"can't run Python tasks: {said[0] if said else 'it gave no reason'}"


def known_format(spark: SparkSession, source: str) -> None:
    """Refuse a format that Spark doesn't find: it would do so after the first batch.

    Raises:
        DefinitionError: If there is none of that name.
    """
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(
            source, spark._jsparkSession.sessionState().conf()
        )
    except (Py4JError, PySparkException) as error:
        if "DATA_SOURCE_NOT_" not in str(error):
            return
        known = ("parquet", "json", "csv", "orc", "delta", "console", "memory", "noop", "kafka", "jdbc")
        raise DefinitionError(
            f"format('{source}') is unknown to this session: use a format that Spark can write, or add its package "
            f"when you start it.{suggest(source, known)}"
        ) from None
