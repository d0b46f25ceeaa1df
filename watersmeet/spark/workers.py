"""The Python workers of a session, before they are started."""

from pyspark.sql import SparkSession

FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Keeps Arrow from reserving 1 GiB at once, and malloc from reserving 64 MiB for every thread that allocates."""


def save_space(spark: SparkSession) -> None:
    """Let the Python workers of a session reserve little, if `spark.executor.pyspark.memory` limits what they may.

    It limits their address space, where all that is reserved counts. What the user has set (`spark.executorEnv`) stays.
    """
    context = spark.sparkContext
    if context.getConf().get("spark.executor.pyspark.memory") is not None:
        for name, value in FRUGAL.items():
            context.environment.setdefault(name, value)
