"""What the benches share: input files, a Spark session, progress, tables and CSV."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from watersmeet.workload import images, numbers, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
STREAMS = ("a", "b", "c")
SECONDS_PER_FILE = 5
WINDOW = 10
"""Seconds."""

console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True, slots=True)
class Task:
    """What a competitor is given.

    Attributes:
        files: Folder that holds a folder of Parquet files for each stream.
        out: Where it writes its results, as Parquet files under `results`.
        epsilon: Width of the band, for band joins.
    """

    files: Path
    out: Path
    epsilon: float = 0.0

    @property
    def results(self) -> Path:
        return self.out / "results"


def session(settings: Mapping[str, str]) -> SparkSession:
    """A local Spark on all cores, its Python workers this Python, with what helps any of the workarounds."""
    from pyspark.sql import SparkSession  # here, because memory is measured of joins without Spark too

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "8g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .config("spark.sql.streaming.metricsEnabled", "false")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def progress(title: str, steps: int) -> Iterator[Progress]:
    """A bar over the runs of a bench; the block calls `advance` and `describe` on its one task."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        bar.add_task(title, total=steps)
        yield bar


def listing(title: str, slug: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table, and write them as `<slug>.csv` under bench/results."""
    table = Table(title=title)
    for heading in rows[0]:
        table.add_column(heading.replace("_", " "))
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else _figure(value) for value in row.values()))
    console.print(table)
    save(RESULTS / f"{slug}.csv", rows)


def save(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV, with the columns of the first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _figure(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


def band_files(folder: Path, rate: float, seconds: float = 60, seed: int = 0) -> Path:
    """Three streams of numbers as Parquet files under `folder`/a, b and c; made once, then reused."""
    return _files(folder, {name: numbers(rate, seconds, _rng(seed, i)) for i, name in enumerate(STREAMS)})


def image_files(folder: Path, rate: float, seconds: float, pixels: int, seed: int = 0) -> Path:
    """Three camera streams as Parquet files under `folder`/a, b and c; made once, then reused."""
    return _files(folder, {name: images(rate, seconds, pixels, _rng(seed, i)) for i, name in enumerate(STREAMS)})


def _rng(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng((seed, stream))


def _files(folder: Path, tables: Mapping[str, pa.Table]) -> Path:
    for name, table in tables.items():
        if not any((folder / name).glob("*.parquet")):
            write(table, folder / name, SECONDS_PER_FILE)
    return folder
