"""A join whose live state is larger than the memory that its Python workers may use.

`python bench/system/memory.py [--gigabytes 8] [--memory 4g] [--master local[2]] [--exchange local]`: two workers share
`spark.executor.pyspark.memory`, two streams of wide rows stay alive to the end, and the results are compared with what
NumPy finds. Prints what each worker took.

`python bench/system/memory.py --gigabytes 5 --width 1024 --memory none --budget 1g`: without a limit of Spark's, the
same join runs without a budget, with `wm.Spill(memory="1g")`, and with the option `openBytes`, a share of it for each
worker. Prints the most that all workers together took at one moment.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession

import watersmeet as wm
from bench.common import console, listing, session
from watersmeet.arguments import bytes_of
from watersmeet.arrays import Ints

FILES = 32
"""Of each stream; a batch reads one of each."""
STEP = 16
"""Between two neighbours' places in stream a; those of b lie anywhere."""
WORKERS = 2


def places(rows: int) -> tuple[Ints, Ints]:
    """Return the places of both streams' rows, by their ids."""
    ids = np.arange(rows)
    return STEP * ids, np.random.default_rng(1).permutation(STEP * rows)[:rows]


def payloads(ids: Ints, width: int) -> pa.Array:
    """Return each row's payload, of so many bytes: its id, over and over."""
    values = np.repeat(ids.astype("<i8"), width // 8).tobytes()
    return pa.array([values[start : start + width] for start in range(0, len(values), width)], pa.binary())


def write(folder: Path, x: Ints, width: int) -> None:
    """Write a stream's files."""
    folder.mkdir(parents=True)
    for number, ids in enumerate(np.array_split(np.arange(len(x)), FILES)):
        times = pa.array(1_700_000_000_000_000 + 1000 * ids).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"id": ids, "ts": times, "x": x[ids], "payload": payloads(ids, width)})
        pq.write_table(table, folder / f"{number:05}.parquet", compression="zstd", row_group_size=(16 << 20) // width)


def expected(a: Ints, b: Ints) -> set[tuple[int, int]]:
    """Return the pairs of ids whose places are at most 1 apart."""
    pairs = set()
    for apart in (-1, 0, 1):
        at, rest = np.divmod(b + apart, STEP)
        matches = np.flatnonzero((rest == 0) & (at < len(a)))
        pairs |= set(zip(at[matches].tolist(), matches.tolist(), strict=True))
    return pairs


def results(folder: Path, width: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs that were written, and see that their payloads are their own."""
    for rows in ds.dataset(folder, format="parquet").to_batches(batch_size=256):
        for side in ("a", "b"):
            ids = rows.column(side).to_numpy()
            assert rows.column(f"{side}_payload").equals(payloads(ids, width)), "a payload is not that of its row"
        yield from zip(rows.column("a").to_pylist(), rows.column("b").to_pylist(), strict=True)


@dataclass
class Watch:
    """Watches the Python workers while the block runs.

    Attributes:
        seen: What each worker took at most, in MB, by its process id.
        together: What all of them took at most at one moment, in MB: pages of their own (anonymous), and all pages that
            they use, files that they map included.
    """

    peaks: dict[int, dict[str, float]] = field(default_factory=dict)
    together: dict[str, float] = field(default_factory=lambda: {"anonymous_mb": 0.0, "pages_mb": 0.0})
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Watch:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            processes = []
            for process in psutil.Process().children(recursive=True):
                try:
                    if "pyspark.daemon" in process.cmdline():  # the daemon, or a worker that it forked
                        processes.append(self._look(process))
                except (psutil.Error, OSError):
                    continue  # it has ended
            for name, most in self.together.items():
                self.together[name] = max(most, sum(now[name] for now in processes))

    def _look(self, process: psutil.Process) -> dict[str, float]:
        limit = process.rlimit(psutil.RLIMIT_AS)[0]
        status = _sizes(Path(f"/proc/{process.pid}/status"))
        pages = _sizes(Path(f"/proc/{process.pid}/smaps_rollup"))
        now = {
            "limit_mb": float("inf") if limit == psutil.RLIM_INFINITY else limit / 2**20,
            "address_space_mb": status["VmPeak"],
            "resident_mb": status["VmHWM"],
            "anonymous_mb": pages["Pss_Anon"],
            "pages_mb": pages["Pss"],
        }
        before = self.peaks.setdefault(process.pid, now)
        self.peaks[process.pid] = {name: max(before[name], now[name]) for name in now}
        return now


def _sizes(path: Path) -> dict[str, float]:
    """Return the figures in kB of a file of /proc, in MB."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) / 1024 for words in lines if words[-1] == "kB"}


def run(
    spark: SparkSession,
    folder: Path,
    out: Path,
    exchange: str,
    spill: wm.Spill | None = None,
    open_bytes: str | None = None,
) -> float:
    """Join all files, and return the bytes of live state."""
    schema = "id long, ts timestamp, x long, payload binary"
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    frames = {name: reader.parquet(str(folder / name)) for name in "ab"}
    join = wm.join(
        *(wm.stream(name, frame, time="ts", window="1 day") for name, frame in frames.items()),
        where="abs(a.x - b.x) <= 1",
        select="a.id AS a, b.id AS b, a.payload AS a_payload, b.payload AS b_payload",
        strategy=wm.PSP(nodes=WORKERS),
        spill=spill,
    )
    writer = join.writeStream.option("checkpointLocation", str(out / "checkpoint")).option("exchange", exchange)
    if open_bytes is not None:
        writer = writer.option("openBytes", open_bytes)
    query = writer.trigger(availableNow=True).start(str(out / "results"))
    query.awaitTermination()
    return float(query.progress[-1]["stateBytes"])


def measure(
    options: argparse.Namespace, folder: Path, pairs: set[tuple[int, int]], name: str, **budget: Any
) -> tuple[Watch, dict[str, Any]]:
    """Run the join once, compare its results, and return what its workers took."""
    limits = {"spark.executor.cores": str(WORKERS), "spark.master": options.master}
    if options.memory != "none":
        limits["spark.executor.pyspark.memory"] = options.memory
    spark, out, start = session(limits), folder / name.replace(" ", "-"), time.monotonic()
    with Watch() as watch:
        state = run(spark, folder, out, options.exchange, **budget)
    seconds = time.monotonic() - start
    spark.stop()
    rows = list(results(out / "results", options.width))
    assert len(rows) == len(set(rows)) and set(rows) == pairs, "the results are wrong"
    shutil.rmtree(out)
    console.print(f"{name}: {state / 2**30:.2f} GiB live, {len(rows):,} results, all right, in {seconds:.0f} s")
    return watch, {"budget": name, "live_gib": state / 2**30, **watch.together, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=8, help="live state at the end")
    parser.add_argument("--width", type=int, default=64 << 10, help="bytes of a row's payload")
    parser.add_argument("--memory", default="4g", help="spark.executor.pyspark.memory, for two workers, or none")
    parser.add_argument("--budget", help="what all workers together may take, such as 1g; compared with none")
    parser.add_argument("--master", default=f"local[{WORKERS}]", help="or local-cluster[1,2,2048]")
    parser.add_argument("--exchange", default="local", choices=["local", "shuffle"])
    options = parser.parse_args()
    a, b = places(int(options.gigabytes * 2**30) // options.width // 2)
    os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))  # local-cluster asks for it
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        folder = Path(name)
        write(folder / "a", a, options.width)
        write(folder / "b", b, options.width)
        how = options, folder, expected(a, b)
        if options.budget is None:
            watch, _ = measure(*how, "no budget")
            rows = [{"worker": at} | peaks for at, peaks in watch.peaks.items()]
            listing(f"Workers, exchange {options.exchange}", "memory", rows)
            return
        each = str(bytes_of(options.budget, "--budget") // WORKERS)
        rows = [
            measure(*how, "no budget")[1],
            measure(*how, f"memory {options.budget}", spill=wm.Spill(memory=options.budget))[1],
            measure(*how, f"openBytes {options.budget} by {WORKERS}", open_bytes=each)[1],
        ]
    listing(f"All workers together, exchange {options.exchange}", "memory_budget", rows)


if __name__ == "__main__":
    main()
