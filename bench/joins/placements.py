"""The same band join under every placement, with 2, 4 and 8 nodes, partial results travelling by Spark's shuffle.

python bench/joins/placements.py            all placements, and the cost of planning and routing
python bench/joins/placements.py --quick    4 nodes only
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from pyspark.sql import SparkSession

import watersmeet as wm
from bench.common import RESULTS, STREAMS, WINDOW, band_files, console, listing, progress, session
from watersmeet.arguments import microseconds
from watersmeet.arrays import Ints
from watersmeet.batch.meeting_nodes import Routes
from watersmeet.batch.plan import with_lead
from watersmeet.cost.equations import atr_overhead
from watersmeet.placement import Placement, Strategy
from watersmeet.probe.chunk_table import Target
from watersmeet.probe.hop_steps import Step
from watersmeet.probe.partials import Partials
from watersmeet.state.chunks.chunk import WHOLE, Chunk, Place
from watersmeet.state.manifest.view import ANYWHERE, StateView, StreamView

RATE, SECONDS, EPSILON = 100.0, 60, 2.0
TITLE = f"Band join of three streams, {RATE:g}/s, {SECONDS} s, {WINDOW} s windows, exchange shuffle"
SEGMENT = 2 * WINDOW
"""Seconds in a segment of ATR."""
WARM = 3
"""Batches left out of the figures: state is still filling up."""
TUPLES = 10_000
"""A batch of new tuples to route."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a placement did."""

    placement: str
    nodes: int
    seconds: float
    results: int
    copies: float
    expected_copies: float
    shuffled_per_result: float
    busiest_to_mean: float
    strays: int


def placements(nodes: int) -> dict[str, Strategy]:
    return {
        "PSP": wm.PSP(nodes),
        "ATR": wm.ATR(nodes, segment=f"{SEGMENT} seconds"),
        "CTR": wm.CTR(nodes),
        "CTR, 2 copies": wm.CTR(nodes, copies=2),
        "DSJ": wm.DSJ(nodes),
    }


def run(spark: SparkSession, files: Path, out: Path, strategy: Strategy) -> list[Mapping[str, Any]]:
    schema = spark.read.parquet(str(files / "a")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    streams = [
        wm.stream(n, reader.parquet(str(files / n)), time="ts", window=f"{WINDOW} seconds", delay="0 seconds")
        for n in STREAMS
    ]
    where = f"abs(a.x - b.x) < {EPSILON} AND abs(b.x - c.x) < {EPSILON}"
    join = wm.join(*streams, where=where, select="a.id AS a_id, b.id AS b_id, c.id AS c_id", strategy=strategy)
    writer = join.writeStream.option("checkpointLocation", str(out / "checkpoint")).option("exchange", "shuffle")
    query = writer.trigger(availableNow=True).start(str(out / "results"))
    query.awaitTermination()
    return query.progress


def figures(name: str, strategy: Strategy, seconds: float, batches: list[Mapping[str, Any]]) -> Figures:
    warm = batches[WARM:]
    results = sum(p["outputRows"] for p in batches)
    rows = np.array([[node["pairs"] for node in p["nodes"]] for p in warm]).sum(axis=0)
    expected = 1.0
    if isinstance(strategy, wm.ATR) and strategy.segment is not None:
        segment = microseconds(strategy.segment) / 1_000_000
        rates = [RATE] * len(STREAMS)
        expected += atr_overhead(rates, [WINDOW] * len(STREAMS), segment, 0, strategy.nodes) / sum(rates)
    return Figures(
        placement=name,
        nodes=strategy.nodes,
        seconds=round(seconds, 2),
        results=results,
        copies=round(sum(p["stateRows"] for p in warm) / sum(p["distinctRows"] for p in warm), 3),
        expected_copies=round(expected, 3),
        shuffled_per_result=round(sum(h["rowsShuffled"] for p in batches for h in p["hops"]) / results, 3),
        busiest_to_mean=round(float(rows.max() / rows.mean()), 2),
        strays=sum(p["strays"] for p in batches),
    )


def crowd(slices: int, nodes: int) -> StateView:
    """A state of many live slices on many nodes, such as a plan has to look at."""
    length, per_stream = 1_000_000, slices // 3
    chunks = tuple(
        Chunk(
            id=f"{stream}-{at}",
            stream=stream,
            batch=at,
            start=at * length,
            end=(at + 1) * length,
            bucket=WHOLE,
            rows=100,
            bytes=2400,
            low=at * length,
            high=(at + 1) * length - 1,
            owners=(at * nodes // per_stream % nodes,),
            place=Place("chunks/none.arrow", 0, 0, ""),
            sealed=True,
        )
        for stream in range(3)
        for at in range(per_stream)
    )
    span = per_stream * length
    streams = tuple(StreamView(span, span - 1, 100, length, span, 100.0) for _ in range(3))
    ties = (frozenset({0, 1}), frozenset({1, 2}))
    return StateView(streams, chunks, ties=ties)


@dataclass(frozen=True, slots=True)
class Costs:
    """What a placement costs by itself, with 64 nodes and 10,000 live slices, in steady state.

    All in CPU time, so that it matters little who shares the machine.

    Attributes:
        placement: Its name.
        planning_ms: Milliseconds to plan a batch, moves included.
        storing_us: Microseconds a tuple to find out who keeps it, in a batch of TUPLES.
        routing_us: Microseconds a tuple to find out which nodes it visits, and then one partial result of it.
    """

    placement: str
    planning_ms: float
    storing_us: float
    routing_us: float


def costs(name: str, strategy: Strategy) -> Costs:
    state, seconds = crowd(10_000, strategy.nodes), []
    for _ in range(10):
        start = time.process_time()
        layout = strategy.plan(state)
        seconds.append(1000 * (time.process_time() - start))
        state = replace(state, chunks=layout.assign_owners(state.chunks), notes=layout.keep(state))
    placement, chunks = layout.placement, state.chunks
    newest = max(chunk.high for chunk in chunks)
    ts = np.sort(newest + np.random.default_rng(0).integers(1, 1_000_000, TUPLES))
    targets = [Target(at, chunk) for at, chunk in enumerate(chunks)]
    storing = min(timeit.repeat(lambda: store(placement, ts), timer=time.process_time, number=1))
    routing = min(timeit.repeat(lambda: route(placement, ts, targets), timer=time.process_time, number=1, repeat=3))
    return Costs(name, round(min(seconds[1:]), 2), round(1e6 * storing / TUPLES, 3), round(1e6 * routing / TUPLES, 2))


def store(placement: Placement, ts: Ints) -> None:
    """Ask as intake does who keeps new tuples of the first stream."""
    for start in np.unique(placement.starts(0, ts)).tolist():
        placement.owners(0, start, WHOLE)


def route(placement: Placement, ts: Ints, targets: list[Target]) -> None:
    """Ask as a shuffle does which nodes new tuples of the first stream visit; one partial result of each goes on."""
    joined_streams: tuple[int, ...] = (0,)
    here = np.full(len(ts), ANYWHERE)
    for target in with_lead((1, 2), placement.lead(0))[: placement.stays_after()]:
        times = {stream: ts for stream in placement.tracked if stream in joined_streams}
        block = Partials(joined_streams, {}, ts, ts, ts, here, np.full(len(ts), 1 << 30), times=times)
        step = Step(joined_streams, target, len(joined_streams) == 2, (), (), (), (), (), (), ())
        probed = [t for t in targets if t.chunk.stream == target]
        visits = Routes(placement).visits(
            block, step, probed, np.zeros_like(ts), lambda block, column: np.zeros(len(block), np.uint64)
        )
        here, joined_streams = visits.argmax(axis=1), (*joined_streams, target)


def compare(title: str, runs: Sequence[tuple[str, Strategy]], files: Path, out: Path) -> list[Figures]:
    """Run the join with each strategy, one after the other in one warm session; return what each did."""
    spark, results = session({}), list[Figures]()
    with progress(title, 1 + len(runs)) as bar:
        run(spark, files, out / "warm-up", wm.PSP(2))
        bar.advance(bar.task_ids[0])
        for at, (name, strategy) in enumerate(runs):
            start = time.perf_counter()
            batches = run(spark, files, out / f"run-{at}", strategy)
            results.append(figures(name, strategy, time.perf_counter() - start, batches))
            bar.advance(bar.task_ids[0])
    return results


def report(compared: list[Figures], costly: list[Costs]) -> None:
    listing(TITLE, "placements", [asdict(one) for one in compared])
    listing("What placements cost by themselves, 64 nodes, 10,000 live slices", "planning", [asdict(c) for c in costly])
    is_met = all(c.planning_ms < 5 and c.storing_us + c.routing_us < 50 for c in costly)
    console.print(f"A batch is planned in 5 ms and a tuple routed in 50 µs: {'met' if is_met else 'MISSED'}.")
    check({one.results for one in compared})
    draw(compared)


def check(counts: set[int]) -> None:
    """Say whether all found the same number of results."""
    console.print("All found the same number of results." if len(counts) == 1 else f"RESULTS DIFFER: {counts}")


def draw(compared: list[Figures]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(one.placement for one in compared))
    nodes = sorted({one.nodes for one in compared})
    panels = {"seconds": "seconds", "copies": "stored copies a tuple", "shuffled_per_result": "rows shuffled a result"}
    figure, axes = pyplot.subplots(1, len(panels), figsize=(13, 4), constrained_layout=True)
    for axis, (field, title) in zip(axes, panels.items(), strict=True):
        for at, count in enumerate(nodes):
            heights = [next(getattr(o, field) for o in compared if (o.placement, o.nodes) == (n, count)) for n in names]
            axis.bar(np.arange(len(names)) + at * 0.8 / len(nodes), heights, 0.8 / len(nodes), label=f"{count} nodes")
        axis.set_xticks(np.arange(len(names)) + 0.3, names, rotation=30, ha="right")
        axis.set_title(title)
    axes[0].legend()
    figure.savefig(RESULTS / "placements.png", dpi=120)
    console.print(f"Written: {RESULTS / 'placements'}.csv, .png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="4 nodes only")
    sizes = [4] if parser.parse_args().quick else [2, 4, 8]
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        files = band_files(Path(name) / "files", RATE, SECONDS)
        compared = compare("Placements", [one for n in sizes for one in placements(n).items()], files, Path(name))
    report(compared, [costs(name, strategy) for name, strategy in placements(64).items()])


if __name__ == "__main__":
    main()
