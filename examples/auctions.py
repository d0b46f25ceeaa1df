"""Auctions, their bids and their payments, joined with no window: the streams themselves say what can no longer come.

Run it with `make demo-auctions`. Two hours of events are fed live in two minutes, to three joins side by side: one that
is told that ids are keys and that a bid flagged `is_end` is the last of its auction, one that is told nothing, and one
with one-hour windows. At the end a plain join over all that was fed says which of them found everything.
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
"""The most in a batch: one that takes long, as the first does, makes the next no larger than that."""
SCHEMAS = {
    "auctions": "id long, ts timestamp, seller int, category int",
    "bids": "auction long, ts timestamp, price long, bidder int, is_end boolean",
    "payments": "auction long, ts timestamp, amount long",
}
MINUTE = 60_000_000
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """What the demo runs on; times are of events."""

    folder: Path = Path("demo-output/auctions")
    rate: float = 1.0
    seconds: float = 7200.0
    seconds_per_file: float = 60.0


# -- the joins: this part is what you would write yourself

WHERE = "auctions.id = bids.auction AND auctions.id = payments.auction"
SELECT = "auctions.id AS auction, bids.ts AS bid_ts, bids.price AS price, payments.amount AS amount"


def with_metadata(frames: Mapping[str, DataFrame]) -> wm.Join:
    """Join with no window, and tell what is known of the streams."""
    told: dict[str, dict[str, Any]] = {
        "auctions": {"constraints": [wm.key("id")]},
        "bids": {"punctuations": wm.punctuations(flag="is_end", on="auction")},
        "payments": {"constraints": [wm.key("auction")]},
    }
    streams = (wm.stream(name, frame, time="ts", delay="0 seconds", **told[name]) for name, frame in frames.items())
    return wm.join(*streams, where=WHERE, select=SELECT)


def untold(frames: Mapping[str, DataFrame], window: str | None = None) -> wm.Join:
    """Join and tell nothing; without a window all rows are kept for ever."""
    frames = {**frames, "bids": frames["bids"].where("NOT is_end")}
    streams = (wm.stream(name, frame, time="ts", delay="0 seconds", window=window) for name, frame in frames.items())
    return wm.join(*streams, where=WHERE, select=SELECT)


KINDS: dict[str, Callable[[Mapping[str, DataFrame]], wm.Join]] = {
    "with metadata": with_metadata,
    "no metadata, no window": untold,
    "one-hour windows": lambda frames: untold(frames, "1 hour"),
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
    """Begin with empty folders, which the joins can watch from the start."""
    for made in ("fed", "results", "checkpoints"):
        shutil.rmtree(settings.folder / made, ignore_errors=True)
    for name in SCHEMAS:
        (settings.folder / "fed" / name).mkdir(parents=True)


def feed_all(settings: Settings) -> float:
    """Feed all events at their pace; return by how many seconds that fell behind."""
    given = auctions(
        settings.rate, settings.seconds, np.random.default_rng(0), seconds_per_batch=settings.seconds_per_file
    )
    return feed(given, settings.folder / "fed", seconds_per_batch=settings.seconds_per_file, speed=SPEED)


# -- the check: a plain join of all that was fed, no Watersmeet code


def offline(settings: Settings) -> Ints:
    """Every result as (auction, time of the bid, price, amount), sorted."""
    opened, bids, paid = (ds.dataset(settings.folder / "fed" / name).to_table() for name in SCHEMAS)
    bids = bids.filter(pc.invert(bids["is_end"])).select(["auction", "ts", "price"])
    found = bids.join(opened.select(["id"]), "auction", "id", "inner")
    return _rows(found.join(paid.select(["auction", "amount"]), "auction", join_type="inner"), "ts")


def read_results(folder: Path) -> Ints:
    """The same from what a join wrote; duplicates, if there were any, would show."""
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
    """How many minutes of events a join has seen the whole of."""
    if batch["watermark"] is None:
        return 0.0
    return max(0.0, (datetime.fromisoformat(batch["watermark"]).timestamp() * 1e6 - START) / MINUTE)


@dataclass
class View:
    """The live view: a table on a terminal, a line every few seconds elsewhere."""

    console: Console
    settings: Settings
    every: float = 5.0
    began: float = field(default_factory=time.monotonic)

    def follow(self, queries: Mapping[str, wm.JoinQuery], feeding: threading.Thread) -> History:
        """Show progress until all was fed and joined; return all of it."""
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
        """Say in a line what each join has in state."""
        shown = (f"{kind}: {found[-1]['distinctRows']:,} rows" for kind, found in history.items() if found)
        return f"{time.monotonic() - self.began:4.0f} s  " + ("   ".join(shown) or "starting")

    def table(self, history: History) -> Any:
        """Draw what each join has read, found and kept."""
        from rich.table import Table

        table = Table(title=f"auctions, {time.monotonic() - self.began:.0f} s", title_justify="left", width=96)
        for heading in ("join", "minutes of events", "results", "rows in state", "batch"):
            table.add_column(heading, justify="left" if heading == "join" else "right")
        for kind, found in history.items():
            table.add_row(kind, *(self._figures(found) if found else ["starting"]))
        return table

    def _figures(self, found: Sequence[Mapping[str, Any]]) -> list[str]:
        last, results = found[-1], sum(batch["outputRows"] for batch in found)
        seen = f"{minutes_of(last):.0f} of {self.settings.seconds / 60:.0f}"
        return [seen, f"{results:,}", f"{last['distinctRows']:,}", f"{last['durationMs']['total'] / 1000:.1f} s"]


def _progress(queries: Mapping[str, wm.JoinQuery]) -> History:
    return {kind: query.progress for kind, query in queries.items()}


# -- the picture


def draw(path: Path, history: History, found: Mapping[str, int], wanted: int, title: str) -> None:
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
    _draw_found(figure.add_subplot(parts[1], facecolor=PAPER), found, wanted)
    figure.savefig(path, dpi=130, facecolor=PAPER)
    plt.close(figure)


def _draw_state(axis: Any, history: History) -> None:
    axis.set_title("Rows in state", loc="left", fontsize=10.5, weight="bold", pad=8)
    for kind, batches in history.items():
        seen = [batch for batch in batches if batch["watermark"] is not None]
        rows = [batch["distinctRows"] for batch in seen]
        if rows:
            label = f"{kind}: {rows[-1]:,} at the end"
            axis.plot([minutes_of(batch) for batch in seen], rows, color=COLOURS[kind], lw=2, label=label)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("event time, minutes")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.legend(frameon=False, loc="upper left")
    axis.margins(x=0.01)


def _draw_found(axis: Any, found: Mapping[str, int], wanted: int) -> None:
    axis.set_title(f"Results found, of {wanted:,}", loc="left", fontsize=10.5, weight="bold", pad=8)
    kinds = [*found][::-1]
    bars = axis.barh(kinds, [found[kind] for kind in kinds], color=[COLOURS[kind] for kind in kinds], height=0.55)
    labels = ["all" if found[kind] == wanted else f"{wanted - found[kind]:,} lost" for kind in kinds]
    names = [f"{kind}: {label}" for kind, label in zip(kinds, labels, strict=True)]
    axis.bar_label(bars, names, label_type="center", color="white", weight="bold")
    axis.set_yticks([])
    axis.set_xlim(0, max(1, wanted) * 1.02)
    axis.locator_params(axis="x", nbins=4)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


# -- putting it together


def verdict(found: Mapping[str, Ints], wanted: Ints) -> tuple[bool, str]:
    """Compare the results with metadata to the plain join's; return whether they are equal, and a sentence."""
    equal = np.array_equal(found[METADATA], wanted)
    others = "; ".join(f"{kind} finds {len(rows):,}" for kind, rows in found.items() if kind != METADATA)
    how = "equal those of a plain join of all that was fed" if equal else "DIFFER from those of a plain join"
    return equal, f"The {len(found[METADATA]):,} results with metadata {how}, {len(wanted):,}; {others}."


def join_live(spark: SparkSession, settings: Settings, view: View) -> History:
    """Feed events and join them meanwhile; return what the joins did."""
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
    wanted = offline(settings)
    found = {kind: read_results(results_of(settings, kind)) for kind in KINDS}
    equal, sentence = verdict(found, wanted)
    picture = settings.folder / "auctions.png"
    title = (
        f"{hours:g} hours of events, {settings.rate:g} new auctions a second, fed {SPEED} times as fast; local Spark."
    )
    draw(picture, history, {kind: len(rows) for kind, rows in found.items()}, len(wanted), title)
    console.print(f"Picture: {picture}   Results: {settings.folder / 'results'}")
    console.print(sentence, style="bold green" if equal else "bold red")
    return 0 if equal else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    about = "Join auctions, bids and payments with no window."
    rate = Settings.rate, "auctions a second of event time"
    given = command_line(about, rate, Settings.seconds, Settings.folder).parse_args(arguments)
    if not can_show("make demo-auctions"):
        return 2
    return run(Settings(folder=given.output, rate=given.rate, seconds=given.seconds))


if __name__ == "__main__":
    sys.exit(main())
