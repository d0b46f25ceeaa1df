"""A join of very wide rows, all in one batch, as a program of its own.

Run as `python -m tests.spark.wide_join FOLDER SPEC`, where SPEC is JSON: rows and bytes of each, memory of the driver.
Says which process ran each batch, and how many results there are.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES = 60
"""[!] Few rows in a file: Spark's own reader holds a batch of rows of one file at once."""


def write(folder: Path, name: str, rows: int, size: int) -> None:
    """Write one stream's rows: id, ts and a blob that can't be compressed."""
    (folder / name).mkdir()
    dice = np.random.default_rng(1)
    for ids in np.array_split(np.arange(rows), FILES):
        times = pa.array(ids * 1000).cast(pa.timestamp("us", "UTC"))
        made = pa.table({"id": ids, "ts": times, "blob": [dice.bytes(size) for _ in ids]})
        pq.write_table(made, folder / name / f"{ids[0]:05}.parquet", compression="none", use_dictionary=False)


def main(folder: Path, spec: dict[str, Any]) -> None:
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {spec['memory']} pyspark-shell"
    import watersmeet as wm
    from tests.spark.crashing_join import session
    from tests.spark.harness import read

    half = spec["rows"] // 2
    for name in "ab":
        write(folder, name, half, spec["bytes"])
    spark = session("local[2]", folder)
    schema = "id long, ts timestamp, blob binary"
    frames = {name: spark.readStream.schema(schema).parquet(str(folder / name)) for name in "ab"}
    streams = [wm.stream(name, frame, time="ts", window="1 hour") for name, frame in frames.items()]
    join = wm.join(*streams, where="a.id = b.id AND substring(a.blob, 1, 8) = substring(b.blob, 1, 8)",
                   select="a.id AS id, length(a.blob) AS size")  # fmt: skip
    writer = join.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination()
    error = query.exception()
    said = {"processes": [p["process"] for p in query.progress], "rows": read(folder / "out").num_rows}
    print(json.dumps(said | {"error": None if error is None else str(error)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
