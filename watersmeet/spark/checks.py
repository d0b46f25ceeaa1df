"""Checks before a join starts: what would fail later, amid a stack of JVM frames, said now in a sentence."""

import os
import sys
import uuid
from collections.abc import Sequence
from typing import get_args

from pyspark.sql import DataFrame, SparkSession

from watersmeet.errors import DefinitionError
from watersmeet.query import Query
from watersmeet.spark.frames import is_local
from watersmeet.spark.vocabulary import Exchange
from watersmeet.state.store import Store

FLAT_FORMATS = ("csv", "text")


def location(spark: SparkSession, given: str | None, name: str | None) -> str:
    """Return the checkpoint location, the session's default included."""
    default = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    if given:
        return given
    if default:
        return os.path.join(default, name or str(uuid.uuid4()))
    raise DefinitionError(
        "A streaming join needs a checkpoint: .option('checkpointLocation', ...), a folder that survives a crash."
    )


def streaming(frames: Sequence[DataFrame], query: Query) -> None:
    """Refuse static inputs in a streaming join."""
    static = [stream.name for stream, frame in zip(query.streams, frames, strict=True) if not frame.isStreaming]
    if len(static) == len(frames):
        raise DefinitionError("All inputs are static: use join.toDF(); writeStream is for streaming inputs.")
    if static:
        raise DefinitionError(
            f"Stream '{static[0]}' is a static frame among streaming ones; read it with spark.readStream too."
        )


def output(format: str | None, query: Query, select: str | None) -> None:
    """Refuse structs where the format has flat columns only."""
    if format in FLAT_FORMATS and not query.outputs and select is None:
        raise DefinitionError(f"format('{format}') has flat columns only: give the join a select='...' list.")


def exchange(given: str | None, local: bool) -> Exchange:
    """Return how partial results travel: as asked, or what measures faster where the join runs."""
    known: tuple[Exchange, ...] = get_args(Exchange)
    if given is None:
        return "local" if local else "shuffle"
    for name in known:
        if name == given:
            return name
    raise DefinitionError(f"exchange '{given}' is unknown; it is one of {', '.join(known)}.")


def workers(spark: SparkSession, store: Store) -> None:
    """Let Python workers be this Python where they run here; elsewhere check that executors see the store."""
    context = spark.sparkContext
    if is_local(spark):
        if "PYSPARK_PYTHON" not in os.environ and context.pythonExec in ("python", "python3"):
            context.pythonExec = sys.executable
        return
    probe = f"probe-{uuid.uuid4().hex}"
    store.publish(probe, b"here")
    slots = max(2, context.defaultParallelism)

    def sees(_: object) -> str | None:
        try:
            from watersmeet.state.store import Store as RemoteStore
        except ImportError:
            return "can't import watersmeet: install it there"
        return None if RemoteStore(store.root).read(probe) == b"here" else "can't see it: use a shared path"

    problems = [found for found in context.parallelize(range(slots), slots).map(sees).collect() if found]
    store.remove([probe])
    if problems:
        raise DefinitionError(f"The checkpoint is at {store.root}, but an executor {problems[0]}.")
