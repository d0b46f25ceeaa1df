"""Spark's Python daemon for the tests' session: its workers begin with all that they would import.

Spark collects garbage after each task; what was imported is left out, which halves the time of a small task. Programs
with a session of their own keep Spark's own daemon.
"""

import gc

from pyspark.daemon import manager

import watersmeet.exchange.tasks
import watersmeet.spark.run.spark_stages  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
