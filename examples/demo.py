"""Three cameras, one join: which images of three live streams show the same scene within ten seconds?

Run it with `make demo`. The images are generated, so nothing is downloaded. They arrive as a Poisson process and up to
two seconds out of order. Spark streams them from files, Watersmeet joins them by comparing every byte of two images
(the expensive predicate of the PSP paper), and a brute-force check in plain NumPy says at the end whether the results
are right.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

import watersmeet as wm
from watersmeet.workload import START, THRESHOLD, images, write
from watersmeet.workload.images import matrix, shape, similar_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

CAMERAS = ("gate", "yard", "road")
WINDOW, DISORDER = 10, 2  # seconds
SECOND = 1_000_000
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """The settings of the demo."""

    folder: Path = Path("demo-output")
    rate: float = 5.0
    seconds: float = 38.0
    seconds_per_file: float = 4.0
    pixels: int = 10_000
    nodes: int = 4

    @property
    def batches(self) -> int:
        """How many micro-batches there will be: one per stretch of arrivals."""
        return int(np.ceil((self.seconds + DISORDER) / self.seconds_per_file))


# -- the join: this part is what you would write yourself


@wm.predicate(arrow=True)
def similar(x: bytes, ys: pa.Array) -> NDArray[np.bool_]:
    """Which of the images `ys` differ from `x` by less than the threshold, on average over all bytes."""
    return similar_rows(np.frombuffer(x, np.uint8), matrix(ys))


def make_join(cameras: Mapping[str, DataFrame], nodes: int) -> wm.Join:
    """Join the three cameras: the same scene at the gate, in the yard and on the road within ten seconds."""
    return wm.join(
        *(
            wm.stream(name, frame, time="ts", window=f"{WINDOW} seconds", delay=f"{DISORDER} seconds")
            for name, frame in cameras.items()
        ),
        where="similar(gate.img, yard.img) AND similar(yard.img, road.img)",
        select="gate.id AS gate, yard.id AS yard, road.id AS road, _time",
        predicates=[similar],
        strategy=wm.PSP(nodes=nodes),
    )


def start(spark: SparkSession, settings: Settings) -> wm.JoinQuery:
    """Start the join: one file of each camera a micro-batch, until all files are read."""
    cameras = {
        name: spark.readStream.schema("id long, ts timestamp, img binary")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(settings.folder / "cameras" / name))
        for name in CAMERAS
    }
    writer = make_join(cameras, settings.nodes).writeStream.format("parquet").trigger(availableNow=True)
    return (
        writer.option("path", str(settings.folder / "results"))
        .option("checkpointLocation", str(settings.folder / "checkpoint"))
        .start()
    )


# -- the data


def record(settings: Settings) -> int:
    """Generate the images of each camera and write them in order of arrival; return how many there are."""
    images_taken = 0
    for number, name in enumerate(CAMERAS):
        rng = np.random.default_rng(number)
        table = images(settings.rate, settings.seconds, settings.pixels, rng)
        wait = rng.integers(0, DISORDER * SECOND, table.num_rows)
        arrival = pc.cast(table["ts"], pa.int64()).to_numpy() + wait
        table = table.append_column("arrival", pa.array(arrival, pa.timestamp("us", "UTC")))
        table = table.take(pa.array(np.argsort(arrival, kind="stable")))
        write(table, settings.folder / "cameras" / name, settings.seconds_per_file, time_column="arrival")
        images_taken += table.num_rows
    return images_taken


@dataclass(frozen=True)
class Camera:
    """All images of a camera, read back from its files: position `i` is the image with id `i`."""

    ts: Ints
    pixels: NDArray[np.uint8]

    @staticmethod
    def read(folder: Path) -> Camera:
        """Read a camera's files."""
        table = ds.dataset(folder).to_table(["id", "ts", "img"]).sort_by("id").combine_chunks()
        ts = pc.cast(table["ts"], pa.int64()).to_numpy()
        return Camera(ts, np.frombuffer(b"".join(table["img"].to_pylist()), np.uint8).reshape(len(ts), -1))


# -- the check: brute force, straight from the definition, without any Watersmeet code


def brute_force(cameras: Sequence[Camera]) -> Ints:
    """Every result as (id, id, id, T), sorted: T is the latest time, and every member is less than WINDOW before it."""
    gate, yard, road = cameras
    first, second = _alike(gate, yard), _alike(yard, road)
    blocks = []
    for middle in range(len(yard.ts)):
        left, right = np.flatnonzero(first[:, middle]), np.flatnonzero(second[middle])
        a, c = (side.ravel() for side in np.meshgrid(left, right, indexing="ij"))
        times = np.stack([gate.ts[a], np.full(len(a), yard.ts[middle]), road.ts[c]])
        latest = times.max(axis=0)
        good = (latest - times < WINDOW * SECOND).all(axis=0)
        blocks.append(np.stack([a, np.full(len(a), middle), c, latest], axis=1)[good])
    return in_order(np.concatenate([np.empty((0, 4), np.int64), *blocks]))


def _alike(one: Camera, other: Camera) -> NDArray[np.bool_]:
    """For each pair of images less than WINDOW apart, whether their bytes differ by less than THRESHOLD on average."""
    alike = np.zeros((len(one.ts), len(other.ts)), dtype=bool)
    for row, image in enumerate(one.pixels):
        near = np.flatnonzero(np.abs(other.ts - one.ts[row]) < WINDOW * SECOND)
        difference = np.abs(other.pixels[near].astype(np.int16) - image.astype(np.int16))
        alike[row, near] = difference.mean(axis=1) < THRESHOLD
    return alike


def read_results(folder: Path) -> Ints:
    """The join's output as (id, id, id, T), sorted; duplicates would show."""
    if not any(folder.glob("*.parquet")):
        return np.empty((0, 4), np.int64)
    table = ds.dataset(folder).to_table()
    ids = [table[name].to_numpy() for name in CAMERAS]
    return in_order(np.stack([*ids, pc.cast(table["_time"], pa.int64()).to_numpy()], axis=1))


def in_order(rows: Ints) -> Ints:
    """Rows sorted, so that two sets of results can be compared."""
    return rows[np.lexsort(rows.T[::-1])]


# -- what the terminal shows


@dataclass
class View:
    """The live view: a panel in a terminal, a line per batch elsewhere."""

    console: Console
    settings: Settings
    lines_printed: int = 0
    start_time: float = field(default_factory=time.monotonic)

    def follow(self, query: wm.JoinQuery) -> list[Mapping[str, Any]]:
        """Show progress until the query ends; return all of it."""
        from rich.live import Live

        if not self.console.is_terminal:
            while query.isActive:
                self._lines(query.progress)
                time.sleep(0.2)
        else:
            with Live(self.panel(query.progress), console=self.console, refresh_per_second=8) as live:
                while query.isActive:
                    live.update(self.panel(query.progress))
                    time.sleep(0.12)
                live.update(self.panel(query.progress))
        query.awaitTermination()
        if not self.console.is_terminal:
            self._lines(query.progress)
        return query.progress

    def _lines(self, history: Sequence[Mapping[str, Any]]) -> None:
        for batch in history[self.lines_printed :]:
            nodes = " ".join(str(node["rows"]) for node in batch["nodes"])
            self.console.print(
                f"batch {batch['batchId']:2}  tuples {sum(batch['inputRows'].values()):3}  "
                f"results {batch['outputRows']:5}  state per node {nodes}  {batch['durationMs']['total'] / 1000:.1f} s"
            )
        self.lines_printed = len(history)

    def panel(self, history: Sequence[Mapping[str, Any]]) -> Any:
        """Return a panel with the figures so far."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        facts = Table.grid(padding=(0, 3))
        tuples = sum(sum(batch["inputRows"].values()) for batch in history)
        last = history[-1] if history else None
        facts.add_row(
            _fact("batches", f"{len(history)} of {self.settings.batches}"),
            _fact("tuples in", f"{tuples:,}"),
            _fact("results", f"{sum(batch['outputRows'] for batch in history):,}"),
            _fact("in state", f"{last['stateRows']:,} tuples" if last else "nothing yet"),
            _fact("batch time", f"{last['durationMs']['total'] / 1000:.1f} s" if last else "starting workers"),
            _fact("elapsed", f"{time.monotonic() - self.start_time:.0f} s"),
        )
        rows = [node["rows"] for node in last["nodes"]] if last else [0] * self.settings.nodes
        ring = Table.grid(padding=(0, 1))
        for node, count in enumerate(rows):
            place = " newest" if node == 0 else " oldest" if node == len(rows) - 1 else ""
            bar = ProgressBar(total=max(1, *rows), completed=count, width=36, complete_style="cyan", style="grey23")
            ring.add_row(Text(f"node {node}", "bold"), bar, Text(f"{count:4} tuples{place}", "dim"))
        spark = Text.assemble(("results per batch ", "dim"), (_sparkline([b["outputRows"] for b in history]), "green"))
        progress = ProgressBar(total=self.settings.batches, completed=len(history), width=None, complete_style="green")
        body = Group(progress, Text(), Text(), facts, Text(), ring, Text(), spark)
        return Panel(
            body,
            title="three cameras, one join",
            border_style="cyan",
            padding=(1, 2),
            width=min(100, self.console.width),
        )


def _fact(name: str, value: str) -> Any:
    from rich.text import Text

    return Text.assemble((f"{name}\n", "dim"), (value, "bold"))


def _sparkline(values: Sequence[int]) -> str:
    top = max(1, *values, 1)
    return "".join("▁▂▃▄▅▆▇█"[min(7, 8 * value // (top + 1))] for value in values)


def show_some(console: Console, results: Ints, count: int = 6) -> None:
    """Print a small table of results, spread over the run."""
    from rich.table import Table

    table = Table(title=f"{count} of {len(results):,} results", title_justify="left")
    for name in CAMERAS:
        table.add_column(f"{name} image", justify="right")
    table.add_column("time of the result", justify="right")
    by_time = results[np.argsort(results[:, 3], kind="stable")]
    for *ids, latest in by_time[np.linspace(0, len(by_time) - 1, min(count, len(by_time))).astype(int)]:
        table.add_row(*(f"#{number}" for number in ids), f"{(latest - START) / SECOND:.2f} s")
    console.print(table)


# -- the picture

INK, PAPER, FAINT = "#22303c", "#fbfaf6", "#c9ced2"
RING = ("#9ad1d4", "#4fa3b5", "#2a6f97", "#173f5f")


def draw(
    path: Path, settings: Settings, history: Sequence[Mapping[str, Any]], cameras: Sequence[Camera], results: Ints
) -> None:
    """Draw matched images, the streams with their matches, results over time, state per node and batch times."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT})
    plt.rcParams.update({"xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False})
    figure = plt.figure(figsize=(13, 9.2), facecolor=PAPER)
    edges = {"left": 0.055, "right": 0.98, "top": 0.86, "bottom": 0.06}
    rows = figure.add_gridspec(3, 1, height_ratios=(1.0, 2.5, 2.1), hspace=0.44, **edges)
    total = sum(len(camera.ts) for camera in cameras)
    figure.text(0.055, 0.95, "Three cameras, one join", fontsize=21, weight="bold")
    figure.text(
        0.055,
        0.918,
        f"{total:,} images, {len(results):,} results: the same scene at the gate, in the yard and on the road "
        f"within {WINDOW} s. PSP on {settings.nodes} nodes, local Spark.",
        fontsize=11,
    )
    _draw_matches(figure, rows[0], settings, cameras, results)
    _draw_streams(figure.add_subplot(rows[1], facecolor=PAPER), cameras, results)
    panels = rows[2].subgridspec(1, 3, wspace=0.22)
    axes = [figure.add_subplot(panels[0, at], facecolor=PAPER) for at in range(3)]
    _draw_results(axes[0], results, settings)
    _draw_state(axes[1], history)
    _draw_time(axes[2], history, settings)
    figure.savefig(path, dpi=130, facecolor=PAPER)
    plt.close(figure)


def _title(axis: Any, text: str) -> None:
    axis.set_title(text, loc="left", fontsize=10.5, weight="bold", pad=8)


def _picks(cameras: Sequence[Camera], results: Ints, count: int) -> list[Ints]:
    """Return a few results with clearly different scenes, to be drawn."""
    picks: list[Ints] = []
    colours: list[NDArray[np.float64]] = []
    for row in results[np.random.default_rng(4).permutation(len(results))[:4000]]:
        colour = _colour(cameras[0], int(row[0]))
        if all(np.abs(colour - other).max() > 0.06 for other in colours):
            picks.append(row)
            colours.append(colour)
        if len(picks) == count:
            break
    return picks


def _colour(camera: Camera, image: int) -> NDArray[np.float64]:
    """The mean colour of an image: images of one scene have nearly the same."""
    return np.asarray(camera.pixels[image].reshape(-1, 3).mean(axis=0) / 255)


def _draw_matches(figure: Any, place: Any, settings: Settings, cameras: Sequence[Camera], results: Ints) -> None:
    picks = _picks(cameras, results, 4)
    grid = place.subgridspec(1, max(1, len(picks)), wspace=0.1)
    for column, row in enumerate(picks):
        cells = grid[0, column].subgridspec(1, 3, wspace=0.04)
        times = [int(camera.ts[number]) for camera, number in zip(cameras, row[:3], strict=True)]
        for at, (name, camera) in enumerate(zip(CAMERAS, cameras, strict=True)):
            axis = figure.add_subplot(cells[0, at])
            axis.imshow(camera.pixels[row[at]].reshape(*shape(settings.pixels), 3), interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.spines[:].set_visible(False)
            axis.set_xlabel(f"{name} #{row[at]}\n{(times[at] - START) / SECOND:.1f} s", fontsize=7.5)
            if at == 0 and column == 0:
                _title(axis, "Four of the results, drawn from the images' own bytes")


def _draw_streams(axis: Any, cameras: Sequence[Camera], results: Ints) -> None:
    _title(axis, "Images over time, each a dot in its mean colour; lines are a sample of the results")
    lanes = (2.0, 1.0, 0.0)
    sample = results[np.random.default_rng(7).permutation(len(results))[:200]]
    for row in sample:
        times = [(camera.ts[number] - START) / SECOND for camera, number in zip(cameras, row[:3], strict=True)]
        axis.plot(times, lanes, color=_colour(cameras[1], int(row[1])), alpha=0.33, lw=0.9, zorder=1)
    for lane, camera in zip(lanes, cameras, strict=True):
        colours = [_colour(camera, image) for image in range(len(camera.ts))]
        moments = (camera.ts - START) / SECOND
        axis.scatter(moments, np.full(len(moments), lane), c=colours, s=34, zorder=2, edgecolors=PAPER, linewidths=0.5)
    axis.set_yticks(lanes, CAMERAS)
    axis.set_ylim(-0.3, 2.3)
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("event time, seconds")
    axis.margins(x=0.01)


def _draw_results(axis: Any, results: Ints, settings: Settings) -> None:
    _title(axis, "Results per second of event time")
    edges = np.arange(0, np.ceil(settings.seconds) + 1)
    counts, _ = np.histogram((results[:, 3] - START) / SECOND, edges)
    axis.bar(edges[:-1], counts, width=0.86, align="edge", color="#e07a5f")
    axis.axvspan(0, WINDOW, color=FAINT, alpha=0.3, zorder=0, lw=0)
    axis.text(WINDOW / 2, axis.get_ylim()[1] * 0.97, "windows fill", ha="center", va="top", fontsize=8)
    axis.set_xlabel("event time, seconds")
    axis.margins(x=0.01)


def _draw_state(axis: Any, history: Sequence[Mapping[str, Any]]) -> None:
    _title(axis, "Tuples in state, by node of the ring")
    batches = [batch["batchId"] for batch in history]
    bottom = np.zeros(len(history))
    nodes = max(len(batch["nodes"]) for batch in history)
    for node in range(nodes):
        rows = np.array([batch["nodes"][node]["rows"] for batch in history], dtype=float)
        place = " (newest)" if node == 0 else " (oldest)" if node == nodes - 1 else ""
        axis.bar(batches, rows, bottom=bottom, width=0.86, color=RING[node % len(RING)], label=f"node {node}{place}")
        bottom += rows
    axis.set_ylim(0, bottom.max() * 1.32)
    axis.legend(ncols=2, frameon=False, fontsize=7.5, loc="upper left")
    axis.set_xlabel("batch")
    axis.margins(x=0.01)


def _draw_time(axis: Any, history: Sequence[Mapping[str, Any]], settings: Settings) -> None:
    _title(axis, "Seconds a batch takes")
    batches = [batch["batchId"] for batch in history]
    seconds = [batch["durationMs"]["total"] / 1000 for batch in history]
    axis.bar(batches, seconds, width=0.86, color="#81b29a")
    axis.axhline(settings.seconds_per_file, color=INK, lw=1, ls=(0, (4, 3)))
    note = f"a batch brings {settings.seconds_per_file:g} s of events: below this line, the join keeps up"
    axis.text(len(batches) - 0.5, settings.seconds_per_file, note, fontsize=7.5, ha="right", va="bottom")
    axis.set_ylim(0, max(*seconds, settings.seconds_per_file) * 1.12)
    if seconds and seconds[0] == max(seconds):
        axis.annotate("the first batch\nstarts Python", (0.55, seconds[0] * 0.86), fontsize=7.5)
    axis.set_xlabel("batch")
    axis.margins(x=0.01)


# -- putting it together


@contextlib.contextmanager
def standard_error_to(path: Path) -> Iterator[None]:
    """Redirect standard error to a file; a JVM started meanwhile keeps writing there."""
    original = os.dup(2)
    with open(path, "ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)


def start_spark(log: Path, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start a quiet local Spark that logs to a file; `settings` are additional settings of Spark."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    with standard_error_to(log):
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("watersmeet demo")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.session.timeZone", "UTC")
            # A run this short is over before the JVM's second compiler would pay.
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config(map=dict(settings or {}))
            .getOrCreate()
        )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def verdict(results: Ints, reference: Ints) -> tuple[bool, str]:
    """Compare the join's results with the brute-force ones; return whether they are equal, and a sentence."""
    if np.array_equal(results, reference):
        return True, (
            f"The results equal the oracle's: {len(reference):,} results (three image ids and a time each) from a "
            "brute force in NumPy over the same files: identical, none missing, none duplicated."
        )
    ours, theirs = {*map(tuple, results.tolist())}, {*map(tuple, reference.tolist())}
    return False, (
        f"The results DIFFER from the oracle's: {len(results):,} results against {len(reference):,}; "
        f"{len(theirs - ours):,} are missing, {len(ours - theirs):,} are wrong, "
        f"{len(results) - len(ours):,} are duplicates."
    )


def run(settings: Settings) -> int:
    """Run the demo; return the exit code."""
    from rich.console import Console

    console, began = Console(highlight=False, soft_wrap=True), time.monotonic()
    for part in ("cameras", "results", "checkpoint"):
        shutil.rmtree(settings.folder / part, ignore_errors=True)
    settings.folder.mkdir(parents=True, exist_ok=True)
    log = settings.folder / "spark.log"
    log.unlink(missing_ok=True)
    console.print("Watersmeet demo: three camera streams, joined by image similarity on Spark.")
    taken = record(settings)
    console.print(
        f"{taken:,} images of {settings.pixels:,} pixels, {settings.rate:g} per second and camera, "
        f"up to {DISORDER} s out of order. Starting Spark ..."
    )
    try:
        spark = start_spark(log)
    except Exception as error:
        console.print(f"Spark did not start ({type(error).__name__}). It needs Java 17 or newer; see {log}.")
        return 1
    try:
        history = View(console, settings).follow(start(spark, settings))
    except wm.WatersmeetError as error:
        console.print(f"The join failed: {error} Spark's log is {log}.")
        return 1
    finally:
        spark.stop()
    results = read_results(settings.folder / "results")
    show_some(console, results)
    console.print("Checking the results by brute force ...")
    cameras = [Camera.read(settings.folder / "cameras" / name) for name in CAMERAS]
    equal, sentence = verdict(results, brute_force(cameras))
    picture = settings.folder / "demo.png"
    draw(picture, settings, history, cameras, results)
    console.print(f"Picture: {picture}   Results: {settings.folder / 'results'}   Spark's log: {log}")
    console.print(sentence, style="bold green" if equal else "bold red")
    console.print(f"Took {time.monotonic() - began:.0f} s.", style="dim")
    return 0 if equal else 1


def command_line(about: str, rate: tuple[float, str], seconds: float, folder: Path) -> argparse.ArgumentParser:
    """Return a parser for the options that all demos share.

    Args:
        about: What the demo does.
        rate: The default rate, and its unit.
        seconds: The default length in event time.
        folder: The default folder for results and picture.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rate", type=float, default=rate[0], help=rate[1])
    parser.add_argument("--seconds", type=float, default=seconds, help="length in event time")
    parser.add_argument("--output", type=Path, default=folder, help="folder for results and picture")
    return parser


def can_show(target: str) -> bool:
    """Tell whether the libraries that a demo draws with are installed; if not, print how to install them."""
    for module in ("rich", "matplotlib"):
        try:
            __import__(module)
        except ImportError:
            print(f"The demo needs {module}: run `{target}`, or pip install rich matplotlib.", file=sys.stderr)
            return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    rate = Settings.rate, "images per second and camera"
    about = "Join three camera streams by image similarity."
    parser = command_line(about, rate, Settings.seconds, Settings.folder)
    parser.add_argument("--nodes", type=int, default=Settings.nodes, help="nodes of the ring")
    options = parser.parse_args(arguments)
    if not can_show("make demo"):
        return 2
    return run(Settings(folder=options.output, rate=options.rate, seconds=options.seconds, nodes=options.nodes))


if __name__ == "__main__":
    sys.exit(main())
