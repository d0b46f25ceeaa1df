"""The Python workers of a session: what they reserve, and what follows when one dies."""

import logging
import re
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import SparkSession

FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Keeps Arrow from reserving 1 GiB at once, and malloc from reserving 64 MiB for every thread that allocates."""
DIED = "a Python worker or an executor died, perhaps for lack of memory or in a function that crashed"
_DEATHS = re.compile(
    r"Python worker exited unexpectedly|Python worker failed to connect back|ExecutorLostFailure"
    r"|No port number in [\w.]+'s stdout"
    r"|java\.(net\.SocketException|io\.IOException): (Connection reset|Broken pipe|Stream closed)[^\n]*\n"
    r"(\s+at [^\n]*\n)*\s+at org\.apache\.spark\.api\.python\."
)
"""What Spark says when a process that ran a task is gone; what a function raises it calls a PythonException."""

T = TypeVar("T")


def save_address_space(spark: SparkSession) -> None:
    """Let the Python workers of a session reserve little, if `spark.executor.pyspark.memory` limits what they may.

    It limits their address space, where all that is reserved counts. What the user has set (`spark.executorEnv`) stays.
    """
    context = spark.sparkContext
    if context.getConf().get("spark.executor.pyspark.memory") is not None:
        for name, value in FRUGAL.items():
            context.environment.setdefault(name, value)


def is_death(error: BaseException) -> bool:
    """Tell whether Spark gave a job up because a process that ran one of its tasks died, and not for what it ran."""
    return _DEATHS.search(str(error)) is not None


def survive(job: Callable[[], T], clear: Callable[[], None] = lambda: None) -> T:
    """Run a job, and once again if a Python worker or an executor dies in it: on `local[N]` Spark repeats no task.

    Args:
        job: What is run; it shares nothing with its first run, whose tasks may still be at work.
        clear: Removes what the first run left.
    """
    try:
        return job()
    except Exception as error:
        if not is_death(error):
            raise
    logging.getLogger("watersmeet").warning("A Python worker or an executor died; its job is run again.")
    clear()
    return job()
