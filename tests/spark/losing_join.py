"""A join that loses its shuffle files in mid-job, once per exchange, as a program of its own.

Run as `python -m tests.spark.losing_join FOLDER SPEC`, where SPEC is JSON: exchanges, nodes. Says how many stages ran
again.
"""

import glob
import json
import os
import sys
from pathlib import Path
from typing import Any

import watersmeet as wm
from tests.spark.crashing_join import CASE, SELECT, session
from tests.spark.harness import frames, join_of

WHERE = "losing(a.x, b.x) AND abs(b.x - c.x) < 2"


def losing(folder: Path, exchange: str) -> Any:
    """Return a predicate that deletes all shuffle files the first time a worker asks it."""
    flag, files = str(folder / f"lost-{exchange}"), f"{folder}/local/**/shuffle_*"

    def less(x: float, ys: Any) -> Any:
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return ys > x
        for path in glob.glob(files, recursive=True):
            os.unlink(path)
        return ys > x

    return wm.predicate(name="losing")(less)


def main(folder: Path, spec: dict[str, Any]) -> None:
    spark = session("local[1]", folder, 4)  # one task after the other: those after the loss find nothing to fetch
    stages = 0
    for exchange in spec["exchanges"]:
        inputs = frames(spark, folder / "in", CASE.names)
        predicate, strategy = losing(folder, exchange), wm.PSP(spec["nodes"])
        joined = join_of(CASE, inputs, where=WHERE, select=SELECT, strategy=strategy, predicates=[predicate])
        writer = joined.writeStream.option("checkpointLocation", str(folder / f"checkpoint-{exchange}"))
        writer = writer.option("exchange", exchange).trigger(availableNow=True)
        writer.start(str(folder / f"out-{exchange}")).awaitTermination()
        found = [spark.sparkContext.statusTracker().getStageInfo(stage) for stage in range(stages, stages + 500)]
        print(exchange, "again", sum(info is not None and info.currentAttemptId > 0 for info in found), flush=True)
        stages = max(info.stageId for info in found if info is not None) + 1
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
