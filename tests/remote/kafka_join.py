"""The join of docs/kafka.md, in a process of its own: `python -m tests.remote.kafka_join <folder> <address> <spec>`.

The spec is JSON: `nodes`, and perhaps `exit`: the batch whose results are written before the process ends, and which is
not committed.
"""

import json
import os
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

import watersmeet as wm
from examples.servers.broker import connector_jars
from tests.test_docs import ROOT, examples
from watersmeet.spark.run.batch import BatchRunner


def page() -> dict[str, Any]:
    """Return what the code of the page defines."""
    names: dict[str, Any] = {}
    for text, _, line in examples(ROOT / "docs" / "kafka.md"):
        exec(compile("\n" * line + text, "docs/kafka.md", "exec"), names)
    return names


def main(folder: str, address: str, spec: str) -> None:
    given, names = json.loads(spec), page()
    names["wm"] = SimpleNamespace(stream=wm.stream, join=partial(wm.join, strategy=wm.PSP(given["nodes"])))
    publish = BatchRunner.publish

    def cut(runner: BatchRunner, action: Any) -> Any:
        done = publish(runner, action)
        if action.batch == given.get("exit"):
            os._exit(3)
        return done

    setattr(BatchRunner, "publish", cut)  # noqa: B010
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", ",".join(map(str, connector_jars())))
        .getOrCreate()
    )
    names["results"](spark, address, folder).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
