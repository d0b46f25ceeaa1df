"""What state costs: stored copies a tuple, and bytes on disk against the rows' raw Arrow bytes, batch by batch."""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyspark.sql import SparkSession
from rich.table import Table

import watersmeet as wm
from bench.common import RESULTS, STREAMS, band_files, console, progress, session
from watersmeet.state.manifest.manifest import load
from watersmeet.state.store.store import Store

ROW_BYTES = 24
"""id, ts and x, eight bytes each."""
TARGET = 1.3


def run(spark: SparkSession, files: Path, out: Path, nodes: int) -> tuple[float, float, int]:
    """Return copies a tuple, disk bytes a raw byte and live chunks, after the last batch of a long window."""
    schema = spark.read.parquet(str(files / "a")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    streams = [
        wm.stream(name, reader.parquet(str(files / name)), time="ts", window="10 seconds", delay="0 seconds")
        for name in STREAMS
    ]
    where = "abs(a.x - b.x) < 0.5 AND abs(b.x - c.x) < 0.5"
    select = "a.id AS a_id, b.id AS b_id, c.id AS c_id"
    join = wm.join(*streams, where=where, select=select, strategy=wm.PSP(nodes=nodes))
    writer = join.writeStream.format("noop").option("checkpointLocation", str(out)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    last = query.progress[-1]
    # The files of the batch before are kept until the next batch starts; those that the last manifest names count.
    manifest = load(Store(f"{out}/watersmeet"), last["batchId"])
    assert manifest is not None
    disk = sum(Path(out, "watersmeet", name).stat().st_size for name in manifest.files)
    return last["stateRows"] / last["distinctRows"], disk / (ROW_BYTES * last["stateRows"]), last["stateChunks"]


def main() -> None:
    spark = session({})
    rows = []
    settings = [(rate, nodes) for rate in (100, 1000) for nodes in (1, 2, 4, 8)]
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name, progress("State", len(settings)) as bar:
        for rate, nodes in settings:
            files = band_files(Path(name) / f"files-{rate}", rate)
            rows.append((rate, nodes, *run(spark, files, Path(name) / f"state-{rate}-{nodes}", nodes)))
            bar.advance(bar.task_ids[0])
    table = Table(title="State under PSP")
    for heading in ("tuples/s", "nodes", "copies a tuple", "disk / raw Arrow", "live chunks"):
        table.add_column(heading)
    for rate, nodes, copies, disk, chunks in rows:
        table.add_row(str(rate), str(nodes), f"{copies:.2f}", f"{disk:.2f}", str(chunks))
    console.print(table)
    worst = max(disk for *_, disk, _ in rows)
    console.print(
        f"At most {worst:.2f} bytes on disk a raw byte; {TARGET} allowed: {'met' if worst <= TARGET else 'MISSED'}"
    )
    save(rows)


def save(rows: list[tuple[int, int, float, float, int]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "state.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rate", "nodes", "copies", "disk_per_raw_byte", "chunks"])
        writer.writerows(rows)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for rate in sorted({row[0] for row in rows}):
        mine = [row for row in rows if row[0] == rate]
        axes.plot([row[1] for row in mine], [row[3] for row in mine], marker="o", label=f"{rate} tuples/s")
    axes.axhline(TARGET, color="grey", linestyle="--", label="allowed")
    axes.set(xlabel="nodes", ylabel="bytes on disk / raw Arrow bytes", ylim=(0, None), title="State on disk")
    axes.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "state.png", dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
