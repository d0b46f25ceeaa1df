"""Checks before a join starts: errors in a sentence, for what would fail later in a stack of JVM frames.

What is refused, or can't be parsed, raises DefinitionError.
"""

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
Exchange = Literal["driver", "local", "shuffle", "ring"]
"""`driver`: as `local`, but small batches run in the driver's own process.
`local`: all tasks see the store on one host.
`shuffle`: partial results travel by a Spark shuffle per hop.
`ring`: tasks that run at the same time pass partial results on over connections of their own."""


def checkpoint_location(spark: SparkSession, option: str | None, name: str | None) -> str:
    """Return the checkpoint location as the user wrote it; without an option, a folder in the session's default.

    That folder has the query's name; without a name, it is a new one. Raises DefinitionError without a default.
    """
    default = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    if option:
        return option
    if default:
        return os.path.join(default, name or str(uuid.uuid4()))
    raise DefinitionError(
        "A streaming join needs a checkpoint: .option('checkpointLocation', ...), a folder that survives a crash."
    )


def require_streaming(inputs: Sequence[tuple[str, DataFrame]]) -> None:
    """Raise DefinitionError for static inputs in a streaming join."""
    static = [name for name, frame in inputs if not frame.isStreaming]
    if len(static) == len(inputs):
        raise DefinitionError("All inputs are static: use join.toDF(); writeStream is for streaming inputs.")
    if static:
        raise DefinitionError(
            f"Stream '{static[0]}' is a static frame among streaming ones; read it with spark.readStream too, "
            f"or make it a table to look rows up in: wm.table('{static[0]}', ...)."
        )


def require_flat_columns(format: str | None, query: Query, select: object) -> None:
    """Refuse structs if the format has flat columns only."""
    if format in FLAT_FORMATS and not query.outputs and select is None:
        raise DefinitionError(f"format('{format}') has flat columns only: give the join a select='...' list.")


def require_separate_folders(store: str, *outputs: tuple[str, str]) -> None:
    """Raise DefinitionError for outputs in one folder, or one within the other, where files would mix, or in the store.

    Args:
        store: The folder with the join's state.
        outputs: The folders, each with its purpose.
    """
    purposes: list[tuple[str, str]] = []
    for folder, purpose in outputs:
        if _is_within(folder, store):
            raise DefinitionError(f"{purpose}: {folder} is where the join keeps its state; write to another folder.")
        for other, others in purposes:
            if others == purpose:
                raise DefinitionError(f"{purpose}: two streams of different columns are called that; rename one.")
            if _is_within(folder, other) and _is_within(other, folder):
                raise DefinitionError(f"{others} and {purpose} are the same folder, {folder}; give each its own.")
            if _is_within(folder, other) or _is_within(other, folder):
                raise DefinitionError(
                    f"{others} and {purpose}: of {other} and {folder}, one lies in the other; part them."
                )
        purposes.append((folder, purpose))


def _is_within(folder: str, other: str) -> bool:
    """Tell whether a folder is another, or lies in it."""
    return f"{folder.rstrip('/')}/".startswith(f"{other.rstrip('/')}/")


def require_distinct_columns(streams: Sequence[tuple[str, Sequence[str]]], reason: str) -> None:
    """Raise DefinitionError for two columns of one name where all columns of a stream are needed.

    Args:
        streams: The streams' names, each with the names of its columns.
        reason: Why they are needed, and what to do about it.
    """
    for stream, columns in streams:
        small = [column.lower() for column in columns]
        twice = next((column for at, column in enumerate(columns) if small[at] in small[:at]), None)
        if twice is not None:
            raise DefinitionError(f"Stream '{stream}' has two columns called {twice}, and {reason}.")


def choose_exchange(option: str | None, local: bool) -> Exchange:
    """Return how partial results travel: the user's choice, or the one that measures faster where the join runs.

    Raises DefinitionError for an unknown choice.
    """
    names: tuple[Exchange, ...] = get_args(Exchange)
    if option is None:
        return "driver" if local else "shuffle"
    for name in names:
        if name == option:
            return name
    raise DefinitionError(f"exchange '{option}' is unknown; use one of {', '.join(names)}.")


def refuse_file_sink(folder: Folder) -> None:
    """Raise DefinitionError for a folder of Spark's own file sink: Spark reads only files there that its log lists."""
    if folder.has(SPARKS_LOG):
        raise DefinitionError(
            f"path '{folder.location.spark}' was written by Spark's own file sink (it has a {SPARKS_LOG}), and Spark "
            "would not read the join's files there; use another folder."
        )


@contextmanager
def explain_write_errors(location: str) -> Iterator[None]:
    """Turn an OSError within the context into a DefinitionError: the checkpoint can't be written to."""
    try:
        yield
    except OSError as error:
        raise DefinitionError(
            f"checkpointLocation '{location}' can't be written to: {error.strerror or error}; nothing was started."
        ) from None


TRIGGERS = ("processingTime", "once", "availableNow")


def require_one_trigger(trigger: Mapping[str, object]) -> None:
    """Raise DefinitionError for unknown triggers, none, several, or a value that one can't have."""
    if trigger.get("continuous") is not None:
        raise DefinitionError("trigger(continuous=...): joins run in micro-batches; use processingTime.")
    values = {name: value for name, value in trigger.items() if value is not None}
    unknown = next((name for name in trigger if name not in (*TRIGGERS, "continuous")), None)
    if unknown is not None:
        names = ", ".join(TRIGGERS)
        raise DefinitionError(f"trigger({unknown}=...) is unknown; use one of {names}.{suggest(unknown, TRIGGERS)}")
    if len(values) != 1:
        arguments = " and ".join(f"{name}={value!r}" for name, value in values.items()) or "none"
        raise DefinitionError(f"trigger(...) takes exactly one of {', '.join(TRIGGERS)}; got {arguments}.")
    ((name, value),) = values.items()
    if name == "processingTime":
        if not isinstance(value, str):
            raise DefinitionError(f"trigger(processingTime={value!r}): write a duration such as '10 seconds'.")
        microseconds(value, "trigger(processingTime)")
    elif value is not True:
        raise DefinitionError(f"trigger({name}={value!r}): it is True, or left out.")


def parse_final(option: str, trigger: Mapping[str, object]) -> bool:
    """Return whether everything is closed for good at the end; raises DefinitionError if rows may be left unread.

    [!] Not even `once` reads all there is: after a crash it only repeats the interrupted batch.
    """
    final = parse_switch("final", option)
    if final and not trigger.get("availableNow"):
        raise DefinitionError(
            "option('final', True) needs trigger(availableNow=True), which reads all there is and then ends; stop a "
            "query that runs on, and start it once more with both."
        )
    return final


def require_text(argument: str, value: object, example: str) -> None:
    """Refuse anything but a string that isn't empty."""
    if not isinstance(value, str) or not value:
        raise DefinitionError(f"{argument}({value!r}): give a string such as '{example}'.")


def check_option(option: str, value: object, own: Mapping[str, str]) -> None:
    """Raise DefinitionError for what looks like a misspelled option of ours, or a value of one that must be a path.

    All other options are the format's.
    """
    name = own.get(option.lower(), "")
    if name.lower().endswith(("path", "location")) and not isinstance(value, str | os.PathLike | None):
        raise DefinitionError(f"option('{name}', {value!r}): give a string such as '/data/matches'.")
    suggestion = "" if option.lower() in own else suggest(option, tuple(own.values()))
    if suggestion:
        raise DefinitionError(f"option('{option}') is unknown.{suggestion}")


def parse_whole(option: str, value: str) -> int:
    """Return an option's value as a whole number."""
    if not value.isdecimal():
        raise DefinitionError(f"option('{option}', '{value}') must be a whole number, 0 or more.")
    return int(value)


def parse_share(option: str, value: str) -> float:
    """Return an option's value as a share from 0 to 1; raises DefinitionError if it is none."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise DefinitionError(f"option('{option}', '{value}') must be a share from 0 to 1, such as 0.05.")
    return number


def parse_switch(option: str, value: str) -> bool:
    """Return an option's value as True or False."""
    if value.lower() not in ("true", "false"):
        raise DefinitionError(f"option('{option}', '{value}') must be 'true' or 'false'.")
    return value.lower() == "true"


def parse_purge_every(argument: object) -> int:
    """Return an argument as a number of batches; raises DefinitionError unless it is a whole one, 1 or more."""
    number: int = to_python(argument)
    if not is_whole(number):
        raise DefinitionError(f"purge_every={argument!r} must be a whole number of batches, 1 or more.")
    return number


def parse_bool(name: str, argument: object) -> bool:
    """Return an argument as True or False; raises DefinitionError if it is neither."""
    value = to_python(argument)
    if not isinstance(value, bool):
        raise DefinitionError(f"{name}={argument!r} must be True or False.")
    return value


def parse_identity(argument: object, select: Any, selected: bool) -> bool:
    """Return whether results have an `_id`; raises DefinitionError if a SELECT list lacks it, but it is wanted.

    Args:
        argument: Whether the user wants it beside one struct column per stream.
        select: The SELECT list, if there is one.
        selected: Whether it is in the list.
    """
    if not isinstance(argument, bool):
        raise DefinitionError(f"identity={argument!r} must be True or False.")
    if argument and select is not None and not selected:
        target = f"'{select.strip()}'" if isinstance(select, str) else "the list of columns"
        raise DefinitionError(f"identity=True is for results without a SELECT list: add _id to {target}.")
    return argument or selected


def parse_remember(argument: object) -> int | None:
    """Return for how many microseconds marks are remembered, None for ever; raises DefinitionError if invalid."""
    if argument is None:
        return None
    if not isinstance(to_python(argument), str | timedelta) or not (
        micros := microseconds(to_python(argument), "remember")
    ):
        raise DefinitionError(f"remember={argument!r} must be a duration longer than zero, such as '1 day'.")
    return micros


def parse_samples(option: str | None, columns: Sequence[str]) -> frozenset[str] | None:
    """Return the columns that samples of late and rejected rows show, in lower case; None for all of them.

    Args:
        option: `all`, `none`, or the columns, with commas between them.
        columns: The columns of all streams.

    Raises:
        DefinitionError: If no stream has one of the columns.
    """
    option = "all" if option is None else option.strip()
    if option.lower() in ("all", "none"):
        return None if option.lower() == "all" else frozenset()
    names = [name.strip() for name in option.split(",")]
    by_name = {column.lower(): column for column in columns}
    for name in names:
        if name.lower() not in by_name:
            raise DefinitionError(
                f"samples '{option}': no stream has a column '{name}'; use 'all', 'none', or columns such as "
                f"'{', '.join([*by_name.values()][:2])}'."
            )
    return frozenset(name.lower() for name in names)


def require_partition_columns(names: Sequence[str], columns: Sequence[str]) -> None:
    """Raise DefinitionError if files are to be partitioned by a column that the results don't have."""
    for name in names:
        if name.lower() not in map(str.lower, columns):
            listed = ", ".join(columns)
            raise DefinitionError(f"partitionBy('{name}'): the results have no such column; they have {listed}.")


def prepare_workers(spark: SparkSession, store: Store) -> None:
    """Check that Python workers can run a join and see its store.

    If all tasks run on this host, makes workers use this very Python unless PYSPARK_PYTHON names another; otherwise,
    runs a Spark job that reads a new file in the store.

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
    """Run another Python of this host, and return what keeps it from running tasks, or None; cached."""
    if shutil.which(python) == sys.executable:
        return None
    try:
        process = subprocess.run([python, "-c", _IMPORTS], capture_output=True, text=True, timeout=60)
    except OSError as error:
        return f"can't be started ({error.strerror})"
    version, _, missing = process.stdout.strip().partition(" ")
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
    """Run a Spark job that reads a new file in the checkpoint; raises DefinitionError if an executor can't."""
    context = spark.sparkContext
    marker = f"marker-{uuid.uuid4().hex}"
    store.publish(marker, b"here")
    slots = max(2, context.defaultParallelism)
    try:
        problems = context.parallelize(range(slots), slots).map(_marker_check(store.root, marker)).collect()
        problem = next((problem for problem in problems if problem), None)
    except Exception as error:
        problem = _job_problem(str(error))
    finally:
        store.remove([marker])
    if problem:
        raise DefinitionError(f"The checkpoint is at {store.root}, but an executor {problem}.")


def _marker_check(root: str, marker: str) -> Callable[[object], str | None]:
    """Return what an executor runs, pickled: it says why the marker can't be read there; None if it can."""

    # Takes plain strings and imports inside: an executor without watersmeet must still be able to unpickle it.
    def check(_: object) -> str | None:
        try:
            from watersmeet.state.store.store import Store as RemoteStore
        except ImportError as error:
            return f"can't import {error.name}: install watersmeet and its dependencies there, too"
        sees_marker = RemoteStore(root).read(marker) == b"here"
        return None if sees_marker else "can't see it: use a path that all executors share"

    return check


def _job_problem(text: str) -> str:
    """Return the one line of a failed job's error that says why it failed, without the JVM's frames."""
    lines = [line.strip() for line in text.splitlines()]
    causes = [line for line in lines if "PYTHON_VERSION_MISMATCH" in line or "ModuleNotFoundError" in line]
    messages = [line for line in causes or lines if line and not line.startswith("at ")]
    return f"can't run Python tasks: {messages[0] if messages else 'it gave no reason'}"


def require_format(spark: SparkSession, source: str) -> None:
    """Refuse a format that Spark doesn't find: Spark itself would do so after the first batch.

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
        formats = ("parquet", "json", "csv", "orc", "delta", "console", "memory", "noop", "kafka", "jdbc")
        raise DefinitionError(
            f"format('{source}') is unknown to this session: use a format that Spark can write, or add its package "
            f"when you start it.{suggest(source, formats)}"
        ) from None
