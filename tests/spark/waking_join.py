"""A join as a program of its own, which waits for more input until it fails, and says how; to be stopped meanwhile.

Run as `python -m tests.spark.waking_join FOLDER`.
"""

import sys
from pathlib import Path

import watersmeet as wm
from tests.spark.crashing_join import session
from tests.spark.harness import Case, cuts, frames, join_of
from watersmeet.testing.oracle import Sliding, Stream

CASE = Case(
    [Stream("a", Sliding(10), 5), Stream("b", Sliding(10), 5)],
    cuts(32, "ab", batches=4, nulls=0),
    "a.x < b.x",
    lambda a, b: a["x"] < b["x"],
)


def main(folder: Path) -> None:
    """Join what is there, and what comes."""
    writer = join_of(CASE, frames(session("local[2]", folder), folder / "in", CASE.names)).writeStream
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "out"))
    query.processAllAvailable()
    print("waits", flush=True)
    try:
        query.awaitTermination()
    except wm.WatersmeetError as error:
        print("refused", error, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
