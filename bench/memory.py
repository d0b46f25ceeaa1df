"""A join whose live state is larger than the address space of the Python workers that do it.

`python bench/memory.py [--gigabytes 8] [--memory 4g] [--master local[2]] [--exchange local]`: two workers share
`spark.executor.pyspark.memory`, two streams of wide rows stay alive to the end, and the results are compared with what
NumPy finds. Prints what each worker took.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyspark
from numpy.typing import NDArray
from pyspark.sql import SparkSession

import watersmeet as wm
from bench.baselines import session
from bench.common import console, listing

WIDTH = 64 << 10
"""Bytes of a row's payload."""
FILES = 32
"""Of each stream; a batch reads one of each."""
STEP = 16
"""Between two neighbours' places in stream a; those of b lie anywhere."""
WORKERS = 2
Ints = NDArray[np.int64]


def places(rows: int) -> tuple[Ints, Ints]:
    """Return the places of both streams' rows, by their ids."""
    ids = np.arange(rows)
    return STEP * ids, np.random.default_rng(1).permutation(STEP * rows)[:rows]


def payloads(ids: Ints) -> pa.Array:
    """Return each row's payload: its id, over and over."""
    values = np.repeat(ids.astype("<i8"), WIDTH // 8).tobytes()
    return pa.array([values[start : start + WIDTH] for start in range(0, len(values), WIDTH)], pa.binary())


def write(folder: Path, x: Ints) -> None:
    """Write a stream's files."""
    folder.mkdir(parents=True)
    for number, ids in enumerate(np.array_split(np.arange(len(x)), FILES)):
        times = pa.array(1_700_000_000_000_000 + 1000 * ids).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"id": ids, "ts": times, "x": x[ids], "payload": payloads(ids)})
        pq.write_table(table, folder / f"{number:05}.parquet", compression="zstd", row_group_size=256)


def expected(a: Ints, b: Ints) -> set[tuple[int, int]]:
    """Return the pairs of ids whose places are at most 1 apart."""
    pairs = set()
    for apart in (-1, 0, 1):
        at, rest = np.divmod(b + apart, STEP)
        found = np.flatnonzero((rest == 0) & (at < len(a)))
        pairs |= set(zip(at[found].tolist(), found.tolist(), strict=True))
    return pairs


def results(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield the pairs that were written, and see that their payloads are their own."""
    for rows in ds.dataset(folder, format="parquet").to_batches(batch_size=256):
        for side in ("a", "b"):
            ids = rows.column(side).to_numpy()
            assert rows.column(f"{side}_payload").equals(payloads(ids)), "a payload is not that of its row"
        yield from zip(rows.column("a").to_pylist(), rows.column("b").to_pylist(), strict=True)


@dataclass
class Watch:
    """Watches the Python workers while the block runs.

    Attributes:
        seen: What each worker took at most, in MB, by its process id.
    """

    seen: dict[int, dict[str, float]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Watch:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for process in psutil.Process().children(recursive=True):
                try:
                    self._look(process)
                except (psutil.Error, OSError):
                    continue  # it has ended

    def _look(self, process: psutil.Process) -> None:
        limit = process.rlimit(psutil.RLIMIT_AS)[0]
        if limit == psutil.RLIM_INFINITY:
            return  # not a worker: the JVM, or the daemon that forks workers
        status = _sizes(Path(f"/proc/{process.pid}/status"))
        pages = _sizes(Path(f"/proc/{process.pid}/smaps_rollup"))
        now = {
            "limit_mb": limit / 2**20,
            "address_space_mb": status["VmPeak"],
            "resident_mb": status["VmHWM"],
            "anonymous_mb": pages["Pss_Anon"],
        }
        before = self.seen.setdefault(process.pid, now)
        self.seen[process.pid] = {name: max(before[name], now[name]) for name in now}


def _sizes(path: Path) -> dict[str, float]:
    """Return the figures in kB of a file of /proc, in MB."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) / 1024 for words in lines if words[-1] == "kB"}


def run(spark: SparkSession, folder: Path, exchange: str) -> float:
    """Join all files, and return the bytes of live state."""
    schema = "id long, ts timestamp, x long, payload binary"
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    frames = {name: reader.parquet(str(folder / name)) for name in "ab"}
    join = wm.join(
        *(wm.stream(name, frame, time="ts", window="1 day") for name, frame in frames.items()),
        where="abs(a.x - b.x) <= 1",
        select="a.id AS a, b.id AS b, a.payload AS a_payload, b.payload AS b_payload",
        strategy=wm.PSP(nodes=WORKERS),
    )
    writer = join.writeStream.option("checkpointLocation", str(folder / "checkpoint")).option("exchange", exchange)
    query = writer.trigger(availableNow=True).start(str(folder / "results"))
    query.awaitTermination()
    return float(query.progress[-1]["stateBytes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=8, help="live state at the end")
    parser.add_argument("--memory", default="4g", help="spark.executor.pyspark.memory, for two workers")
    parser.add_argument("--master", default=f"local[{WORKERS}]", help="or local-cluster[1,2,2048]")
    parser.add_argument("--exchange", default="local", choices=["local", "shuffle"])
    options = parser.parse_args()
    a, b = places(int(options.gigabytes * 2**30) // WIDTH // 2)
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        folder = Path(name)
        write(folder / "a", a)
        write(folder / "b", b)
        memory = {"spark.executor.pyspark.memory": options.memory, "spark.executor.cores": str(WORKERS)}
        os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))  # local-cluster asks for it
        spark = session(memory | {"spark.master": options.master})
        began = time.monotonic()
        with Watch() as watch:
            state = run(spark, folder, options.exchange)
        took = time.monotonic() - began
        spark.stop()
        found = list(results(folder / "results"))
    assert len(found) == len(set(found)) and set(found) == expected(a, b), "the results are wrong"
    listing(
        f"Workers, exchange {options.exchange}", "memory", [{"worker": at} | seen for at, seen in watch.seen.items()]
    )
    console.print(f"{state / 2**30:.2f} GiB live, {len(found):,} results, all right, in {took:.0f} s")


if __name__ == "__main__":
    main()
