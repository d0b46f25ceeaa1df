"""Auctions, their bids and their payments, joined without windows: the streams declare what can no longer come.

Run it with `make demo-auctions`. Two hours of events are replayed in two minutes, into three joins side by side: one
knows that ids are keys and that a bid flagged `is_end` is the last of its auction, one knows nothing, and one has
one-hour windows. At the end, a plain join over the same rows shows which of them found everything.
"""

from __future__ import annotations

import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

import watersmeet as wm
from examples.demo import FAINT, INK, PAPER, can_show, command_line, start_spark
from watersmeet.workload import START, auctions, feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

SPEED = 60
"""Seconds of event time in a second of the clock."""
FILES = 4
"""The most files in a batch, so that the batch after a slow one, such as the first, does not grow without limit."""
SCHEMAS = {
    "auctions": "id long, ts timestamp, seller int, category int",
    "bids": "auction long, ts timestamp, price long, bidder int, is_end boolean",
    "payments": "auction long, ts timestamp, amount long",
}
MINUTE = 60_000_000
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """The settings of the demo; times are event times."""

    folder: Path = Path("demo-output/auctions")
    rate: float = 1.0
    seconds: float = 7200.0
    seconds_per_file: float = 60.0


# -- the joins: this part is what you would write yourself

WHERE = "auctions.id = bids.auction AND auctions.id = payments.auction"
SELECT = "auctions.id AS auction, bids.ts AS bid_ts, bids.price AS price, payments.amount AS amount"


def with_metadata(frames: Mapping[str, DataFrame]) -> wm.Join:
    """Join without windows, and declare what is known about the streams."""
    declarations: dict[str, dict[str, Any]] = {
        "auctions": {"constraints": [wm.key("id")]},
        "bids": {"punctuations": wm.punctuations(flag="is_end", on="auction")},
        "payments": {"constraints": [wm.key("auction")]},
    }
    streams = (
        wm.stream(name, frame, time="ts", delay="0 seconds", **declarations[name]) for name, frame in frames.items()
    )
    return wm.join(*streams, where=WHERE, select=SELECT)


def without_metadata(frames: Mapping[str, DataFrame], window: str | None = None) -> wm.Join:
    """Join without declaring anything; without a window, all rows are kept forever."""
    frames = {**frames, "bids": frames["bids"].where("NOT is_end")}
    streams = (wm.stream(name, frame, time="ts", delay="0 seconds", window=window) for name, frame in frames.items())
    return wm.join(*streams, where=WHERE, select=SELECT)


KINDS: dict[str, Callable[[Mapping[str, DataFrame]], wm.Join]] = {
    "with metadata": with_metadata,
    "no metadata, no window": without_metadata,
    "one-hour windows": lambda frames: without_metadata(frames, "1 hour"),
}
METADATA = next(iter(KINDS))
COLOURS = dict(zip(KINDS, ("#2a6f97", "#e07a5f", "#81b29a"), strict=True))


def start(spark: SparkSession, settings: Settings) -> dict[str, wm.JoinQuery]:
    """Start all joins over the folders that are fed."""
    queries = {}
    for number, (kind, make) in enumerate(KINDS.items()):
        frames = {
            name: spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", FILES)
            .parquet(str(settings.folder / "fed" / name))
            for name, schema in SCHEMAS.items()
        }
        writer = make(frames).writeStream.format("parquet").option("path", str(results_of(settings, kind)))
        queries[kind] = writer.option("checkpointLocation", str(settings.folder / "checkpoints" / str(number))).start()
    return queries


def results_of(settings: Settings, kind: str) -> Path:
    """Where a join writes its results."""
    return settings.folder / "results" / kind.replace(",", "").replace(" ", "-")


# -- the data


def make_folders(settings: Settings) -> None:
    """Create empty folders, so that the joins can watch them from the start."""
    for part in ("fed", "results", "checkpoints"):
        shutil.rmtree(settings.folder / part, ignore_errors=True)
    for name in SCHEMAS:
        (settings.folder / "fed" / name).mkdir(parents=True)


def feed_all(settings: Settings) -> float:
    """Feed all events at the chosen speed; return by how many seconds feeding fell behind."""
    batches = auctions(
        settings.rate, settings.seconds, np.random.default_rng(0), seconds_per_batch=settings.seconds_per_file
    )
    return feed(batches, settings.folder / "fed", seconds_per_batch=settings.seconds_per_file, speed=SPEED)


# -- the check: a plain join of all rows, without any Watersmeet code


def offline(settings: Settings) -> Ints:
    """Every result as (auction, time of the bid, price, amount), sorted."""
    auction_rows, bids, payments = (ds.dataset(settings.folder / "fed" / name).to_table() for name in SCHEMAS)
    bids = bids.filter(pc.invert(bids["is_end"])).select(["auction", "ts", "price"])
    sold = bids.join(auction_rows.select(["id"]), "auction", "id", "inner")
    return _rows(sold.join(payments.select(["auction", "amount"]), "auction", join_type="inner"), "ts")


def read_results(folder: Path) -> Ints:
    """The same from what a join wrote; duplicates would show."""
    if not any(folder.glob("*.parquet")):
        return np.empty((0, 4), np.int64)
    return _rows(ds.dataset(folder).to_table(), "bid_ts")


def _rows(table: pa.Table, time_column: str) -> Ints:
    columns = [table[name].cast(pa.int64()).to_numpy() for name in ("auction", time_column, "price", "amount")]
    rows = np.stack(columns, axis=1)
    return rows[np.lexsort(rows.T[::-1])]


# -- what the terminal shows

History = Mapping[str, Sequence[Mapping[str, Any]]]


def minutes_of(batch: Mapping[str, Any]) -> float:
    """How many minutes of events a join has seen completely."""
    if batch["watermark"] is None:
        return 0.0
    return max(0.0, (datetime.fromisoformat(batch["watermark"]).timestamp() * 1e6 - START) / MINUTE)


@dataclass
class View:
    """The live view: a table in a terminal, a line every few seconds elsewhere."""

    console: Console
    settings: Settings
    every: float = 5.0
    start_time: float = field(default_factory=time.monotonic)

    def follow(self, queries: Mapping[str, wm.JoinQuery], feeding: threading.Thread) -> History:
        """Show progress until everything has been fed and joined; return all of it."""
        from rich.live import Live

        if self.console.is_terminal:
            with Live(self.table(_progress(queries)), console=self.console, refresh_per_second=4) as live:
                while feeding.is_alive() and all(query.isActive for query in queries.values()):
                    live.update(self.table(_progress(queries)))
                    time.sleep(0.25)
        else:
            while feeding.is_alive() and all(query.isActive for query in queries.values()):
                self.console.print(self.line(_progress(queries)))
                feeding.join(self.every)
        for query in queries.values():
            query.processAllAvailable()
        history = _progress(queries)
        self.console.print(self.table(history) if self.console.is_terminal else self.line(history))
        return history

    def line(self, history: History) -> str:
        """Return the size of each join's state in one line."""
        sizes = (f"{kind}: {batches[-1]['distinctRows']:,} rows" for kind, batches in history.items() if batches)
        return f"{time.monotonic() - self.start_time:4.0f} s  " + ("   ".join(sizes) or "starting")

    def table(self, history: History) -> Any:
        """Return a table of what each join has read, found and kept."""
        from rich.table import Table

        table = Table(title=f"auctions, {time.monotonic() - self.start_time:.0f} s", title_justify="left", width=96)
        for heading in ("join", "minutes of events", "results", "rows in state", "batch"):
            table.add_column(heading, justify="left" if heading == "join" else "right")
        for kind, batches in history.items():
            table.add_row(kind, *(self._figures(batches) if batches else ["starting"]))
        return table

    def _figures(self, batches: Sequence[Mapping[str, Any]]) -> list[str]:
        last, results = batches[-1], sum(batch["outputRows"] for batch in batches)
        minutes = f"{minutes_of(last):.0f} of {self.settings.seconds / 60:.0f}"
        return [minutes, f"{results:,}", f"{last['distinctRows']:,}", f"{last['durationMs']['total'] / 1000:.1f} s"]


def _progress(queries: Mapping[str, wm.JoinQuery]) -> History:
    return {kind: query.progress for kind, query in queries.items()}


# -- the picture


def draw(path: Path, history: History, counts: Mapping[str, int], total: int, title: str) -> None:
    """Draw the rows in state over time, and how many results each join found."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT})
    plt.rcParams.update({"xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False})
    figure = plt.figure(figsize=(13, 5.6), facecolor=PAPER)
    parts = figure.add_gridspec(1, 2, width_ratios=(1.7, 1), left=0.06, right=0.97, top=0.76, bottom=0.1, wspace=0.1)
    figure.text(0.06, 0.92, "Auctions ⋈ bids ⋈ payments", fontsize=21, weight="bold")
    figure.text(0.06, 0.86, title, fontsize=11)
    _draw_state(figure.add_subplot(parts[0], facecolor=PAPER), history)
    _draw_counts(figure.add_subplot(parts[1], facecolor=PAPER), counts, total)
    figure.savefig(path, dpi=130, facecolor=PAPER)
    plt.close(figure)


def _draw_state(axis: Any, history: History) -> None:
    axis.set_title("Rows in state", loc="left", fontsize=10.5, weight="bold", pad=8)
    for kind, batches in history.items():
        dated = [batch for batch in batches if batch["watermark"] is not None]
        rows = [batch["distinctRows"] for batch in dated]
        if rows:
            label = f"{kind}: {rows[-1]:,} at the end"
            axis.plot([minutes_of(batch) for batch in dated], rows, color=COLOURS[kind], lw=2, label=label)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("event time, minutes")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.legend(frameon=False, loc="upper left")
    axis.margins(x=0.01)


def _draw_counts(axis: Any, counts: Mapping[str, int], total: int) -> None:
    axis.set_title(f"Results found, of {total:,}", loc="left", fontsize=10.5, weight="bold", pad=8)
    kinds = [*counts][::-1]
    bars = axis.barh(kinds, [counts[kind] for kind in kinds], color=[COLOURS[kind] for kind in kinds], height=0.55)
    labels = ["all" if counts[kind] == total else f"{total - counts[kind]:,} lost" for kind in kinds]
    names = [f"{kind}: {label}" for kind, label in zip(kinds, labels, strict=True)]
    axis.bar_label(bars, names, label_type="center", color="white", weight="bold")
    axis.set_yticks([])
    axis.set_xlim(0, max(1, total) * 1.02)
    axis.locator_params(axis="x", nbins=4)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


# -- putting it together


def verdict(results: Mapping[str, Ints], reference: Ints) -> tuple[bool, str]:
    """Compare the results with metadata to those of the plain join; return whether they are equal, and a sentence."""
    equal = np.array_equal(results[METADATA], reference)
    others = "; ".join(f"{kind} finds {len(rows):,}" for kind, rows in results.items() if kind != METADATA)
    how = "equal those of a plain join over all rows" if equal else "DIFFER from those of a plain join"
    return equal, f"The {len(results[METADATA]):,} results with metadata {how}, {len(reference):,}; {others}."


def join_live(spark: SparkSession, settings: Settings, view: View) -> History:
    """Feed events while the joins run; return the progress of the joins."""
    make_folders(settings)
    queries = start(spark, settings)
    feeding = threading.Thread(target=feed_all, args=(settings,), daemon=True)
    feeding.start()
    try:
        return view.follow(queries, feeding)
    finally:
        for query in queries.values():
            query.stop()


def run(settings: Settings) -> int:
    """Run the demo; return the exit code."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    settings.folder.mkdir(parents=True, exist_ok=True)
    hours, clock = settings.seconds / 3600, math.ceil(settings.seconds / SPEED)
    console.print(f"Auctions, bids and payments: {hours:g} h of events, fed in {clock} s. Starting Spark ...")
    spark = start_spark(settings.folder / "spark.log")
    try:
        history = join_live(spark, settings, View(console, settings))
    except wm.WatersmeetError as error:
        console.print(f"A join failed: {error} Spark's log is {settings.folder / 'spark.log'}.")
        return 1
    finally:
        spark.stop()
    reference = offline(settings)
    results = {kind: read_results(results_of(settings, kind)) for kind in KINDS}
    equal, sentence = verdict(results, reference)
    picture = settings.folder / "auctions.png"
    title = (
        f"{hours:g} hours of events, {settings.rate:g} new auctions a second, fed {SPEED} times as fast; local Spark."
    )
    draw(picture, history, {kind: len(rows) for kind, rows in results.items()}, len(reference), title)
    console.print(f"Picture: {picture}   Results: {settings.folder / 'results'}")
    console.print(sentence, style="bold green" if equal else "bold red")
    return 0 if equal else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    about = "Join auctions, bids and payments without windows."
    rate = Settings.rate, "auctions a second of event time"
    options = command_line(about, rate, Settings.seconds, Settings.folder).parse_args(arguments)
    if not can_show("make demo-auctions"):
        return 2
    return run(Settings(folder=options.output, rate=options.rate, seconds=options.seconds))


if __name__ == "__main__":
    sys.exit(main())
