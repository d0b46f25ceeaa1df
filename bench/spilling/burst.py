"""A burst on a two-way join: how soon results come without spilling, with each policy, and what is owed meanwhile.

    python bench/spilling/burst.py                          # all policies, about ten minutes each
    python bench/spilling/burst.py --policies none local    # some of them

Two cameras, fed live: a file of each every half second, a batch every four seconds. Pictures of one region are compared
by their histograms. In a quarter of the regions there are few pictures, often of the same thing: they give half of all
results. In the others are most pictures, hardly ever alike. Rates rise six-fold for two minutes, so that there are 36
times as many pairs.

The streams go on at their old rate for five minutes, so that every run has the same input, and end when all is paid.
What is measured: response, from the moment the later of a result's two rows was readable to the moment a sink had it,
for the productive regions and for all; what was owed; CPU of all processes but the one that feeds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.common import RESULTS, console, session
from bench.measurement import UsageSampler, environment
from watersmeet.predicate.numbers import bucket

POLICIES = ("none", "random", "local", "global", "synchronized", "semantic", "punctuated")
REGIONS, FRIENDLY = 8, 2
"""Regions, and those of them that are productive."""
FRIENDLY_ROWS = 0.15
"""The share of rows in productive regions."""
WHERE = "a.region = b.region AND alike(a.histogram, b.histogram)"
BINS, ALIKE = 64, 0.02
"""Bins of a picture's histogram, and the chi-square distance below which two are alike."""
TICK, TRIGGER, FILES = 0.5, 4, 16
"""Seconds between two files of a stream, and between two batches; the most files of a stream in a batch."""
THINGS = 4000
LONG, WARM = 2.5, 25.0
"""Seconds: a step that long shows what the join can do; after so many windows are full and processes have started."""
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("sent", pa.float64()),
        ("region", pa.int64()),
        ("histogram", pa.binary()),
        ("priority", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Load:
    """What is fed.

    Attributes:
        rate: Rows a second of each stream.
        before: Seconds before the burst.
        burst: How long it lasts.
        after: Seconds after it.
        times: How many times the rate it is.
    """

    rate: int = 280
    before: float = 60.0
    burst: float = 120.0
    after: float = 240.0
    times: int = 6

    @property
    def seconds(self) -> float:
        return self.before + self.burst + self.after


def regions(partitions: int = REGIONS) -> list[int]:
    """Return numbers of regions that fall into different partitions."""
    values: dict[int, int] = {}
    number = 0
    while len(values) < partitions:
        values.setdefault(int(bucket(pa.array([number]), partitions)[0]), number)
        number += 1
    return [values[at] for at in range(partitions)]


@lru_cache
def _things() -> Any:
    return np.random.default_rng(0).random((THINGS, BINS), np.float32)


def rows(rng: np.random.Generator, count: int, end: float, length: float) -> pa.Table:
    """Return the rows of a tick that should end then, and are sent now: those of productive regions lie close together.

    Event times are the same in all runs, seen from the start, so that all have the same results.
    """
    names = np.array(regions())
    friendly = rng.random(count) < FRIENDLY_ROWS
    at = np.where(friendly, rng.integers(0, FRIENDLY, count), rng.integers(FRIENDLY, REGIONS, count))
    # Of each thing all pictures are alike: few things in productive regions, many in the others.
    few = THINGS // 12
    thing = np.where(friendly, rng.integers(0, few, count), rng.integers(few, THINGS, count))
    histograms = _things()[thing] + rng.random((count, BINS), np.float32) * np.float32(0.01)
    times = np.sort(np.round(rng.uniform(-length, 0, count) * 1e6).astype(np.int64))
    return pa.table(
        {
            "ts": pa.array(round(end * 1e6) + times).cast(pa.timestamp("us", "UTC")),
            "sent": np.full(count, time.time()),
            "region": names[at],
            "histogram": [picture.tobytes() for picture in histograms],
            "priority": friendly.astype(float),
        },
        schema=SCHEMA,
    )


def feed(folder: str, load: Load, seed: int, start_time: Any, used: Any) -> None:
    """Write files, and note when it began and what CPU time it took; runs in a process of its own."""
    rng, start = np.random.default_rng(seed), float(round(time.time()))
    start_time.value = start
    for number in range(int(load.seconds / TICK)):
        due_time = start + (number + 1) * TICK
        time.sleep(max(0.0, due_time - time.time()))
        busy = load.before <= (number + 1) * TICK < load.before + load.burst
        count = int(load.rate * TICK * (load.times if busy else 1))
        for name in "ab":
            draft = Path(folder, name, f".{number:06d}")
            pq.write_table(rows(rng, count, due_time, TICK), draft)
            draft.rename(draft.with_name(f"{number:06d}.parquet"))
        used.value = time.process_time()


def run(policy: str, load: Load, seed: int, folder: Path, within: str) -> dict[str, Any]:
    """Run the join under one policy; return what was measured."""
    import watersmeet as wm

    @wm.predicate(symmetric=True)
    def alike(x: bytes, ys: Any) -> Any:
        """Chi-square distance of histograms."""
        one, others = np.frombuffer(x, np.float32), np.frombuffer(b"".join(ys), np.float32).reshape(-1, BINS)
        return np.mean((others - one) ** 2 / (others + one + np.float32(1e-9)), axis=1) < ALIKE

    spark = session({})
    inputs = {}
    for name in "ab":
        (folder / name).mkdir(parents=True)
        pq.write_table(SCHEMA.empty_table(), folder / name / "000.parquet")
        schema = spark.read.parquet(str(folder / name)).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES)
        inputs[name] = reader.parquet(str(folder / name))
    spill = None
    if policy != "none":
        weight = "a.priority" if policy == "semantic" else None
        spill = wm.Spill(
            within=within, policy=policy, partitions=REGIONS, weight=weight, interval="20 seconds", oldest="8 minutes"
        )
    streams = [wm.stream(n, inputs[n], time="ts", window="20 seconds", delay="2 seconds") for n in "ab"]
    join = wm.join(
        *streams,
        where=WHERE,
        predicates=[alike],
        select="a.region AS region, greatest(a.sent, b.sent) AS sent",
        strategy=wm.Hash(2),
        spill=spill,
    )
    emitted: list[tuple[float, pa.Table]] = []

    def consume(frame: Any, batch: int) -> None:
        results = frame.toArrow()
        emitted.append((time.time(), results))

    start_time, used = multiprocessing.Value("d", 0.0), multiprocessing.Value("d", 0.0)
    feeder = multiprocessing.Process(target=feed, args=(str(folder), load, seed, start_time, used), daemon=True)
    with UsageSampler() as usage:
        writer = join.writeStream.foreachBatch(consume).option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(processingTime=f"{TRIGGER} seconds").start()
        feeder.start()
        steps = list[Step]()
        while feeder.is_alive():
            time.sleep(1.0)
            steps += new(query.progress, steps)
        query.processAllAvailable()
        while not steps or steps[-1].owed:
            steps += new(query.progress, steps)
            time.sleep(0.2)
        query.stop()
    spark.stop()
    return summary(policy, load, start_time.value, emitted, steps, usage.cpu_seconds - used.value)


class Step(NamedTuple):
    """A batch or a round.

    Attributes:
        batch: Its number.
        at: When it ended.
        took: How many seconds it took.
        pairs: How many pairs it looked at.
        owed: How many probes were owed then,
        since: and since when.
        round: Whether it was a round.
    """

    batch: int
    at: float
    took: float
    pairs: int
    owed: int
    since: float | None
    round: bool


def new(progress: list[Any], steps: list[Step]) -> list[Step]:
    """Return the steps that are not known yet."""
    last = steps[-1].batch if steps else -1
    return [step(one) for one in progress if one["batchId"] > last]


def step(progress: Mapping[str, Any]) -> Step:
    """Return what progress tells of a batch or a round."""
    spilling, now, seconds = progress.get("spilling", {}), time.time(), progress["durationMs"]["total"] / 1000
    pairs, age = sum(hop["pairs"] for hop in progress["hops"]) + progress["paidPairs"], spilling.get("oldestOwed")
    since = None if age is None else now - age
    return Step(progress["batchId"], now, seconds, pairs, spilling.get("owedProbes", 0), since, progress["round"])


def summary(
    policy: str,
    load: Load,
    start: float,
    emitted: list[tuple[float, pa.Table]],
    steps: list[Step],
    cpu: float,
) -> dict[str, Any]:
    """Return a run in numbers."""
    friendly = regions()[:FRIENDLY]
    at = np.concatenate([np.full(results.num_rows, when) for when, results in emitted] or [np.empty(0)])
    send_times = np.concatenate([results.column("sent").to_numpy() for _, results in emitted] or [np.empty(0)])
    region = np.concatenate([results.column("region").to_numpy() for _, results in emitted] or [np.empty(0)])
    productive = np.isin(region, friendly)
    response, when = at - send_times, send_times - start
    before = (when > WARM) & (when < load.before - 2)
    during = (when >= load.before) & (when < load.before + load.burst)

    def quantile(mask: Any, share: float) -> float | None:
        return round(float(np.quantile(response[mask], share)), 3) if np.any(mask) else None

    bins = np.arange(0, when.max(initial=0) + 5, 5)
    curve = [
        [
            float(low),
            quantile(productive & (when >= low) & (when < low + 5), 0.5),
            quantile((when >= low) & (when < low + 5), 0.5),
        ]
        for low in bins
    ]
    return {
        "policy": policy,
        "load": asdict(load),
        "results": len(response),
        "productive_share": round(float(productive.mean()), 3) if len(response) else None,
        "before": {"productive_p50": quantile(before & productive, 0.5), "all_p50": quantile(before, 0.5)},
        "burst": {
            "productive_p50": quantile(during & productive, 0.5),
            "productive_p95": quantile(during & productive, 0.95),
            "all_p50": quantile(during, 0.5),
            "all_p95": quantile(during, 0.95),
        },
        "level": level(load, start, steps),
        "paid_after_burst": round(time_to_pay(load, start, steps), 1),
        "last_result_after_burst": round(float((at - start)[during].max()) - load.before - load.burst, 1),
        "cpu_seconds": round(cpu, 1),
        "curve": curve,
        "steps": [[round(one.at - start, 1), one.owed, one.took, one.pairs, one.round] for one in steps],
    }


def time_to_pay(load: Load, start: float, steps: list[Step]) -> float:
    """Return how many seconds after the burst nothing was owed any more that had come until then."""
    end = start + load.before + load.burst
    owing = [one.at for one in steps if one.since is not None and one.since < end]
    return max(0.0, next((one.at for one in steps if not owing or one.at > owing[-1]), end) - end)


def level(load: Load, start: float, steps: list[Step]) -> float | None:
    """Return the share of the join's capacity that it uses before the burst: pairs a second, of the most there were."""
    before = sum(one.pairs for one in steps if WARM < one.at - start < load.before)
    most = max((one.pairs / one.took for one in steps if one.took > LONG), default=None)
    return round(before / (load.before - WARM) / most, 3) if most else None


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw responses and debts over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (top, middle, bottom) = pyplot.subplots(3, 1, figsize=(9, 10), sharex=True, constrained_layout=True)
    for one in runs:
        style = {"label": one["policy"], "color": "black" if one["policy"] == "none" else None, "linewidth": 1.4}
        curve = np.array([[np.nan if v is None else v for v in row] for row in one["curve"]])
        top.plot(curve[:, 0], curve[:, 1], **style)
        middle.plot(curve[:, 0], curve[:, 2], **style)
        debts = np.array([[at, owed] for at, owed, *_ in one["steps"]])
        bottom.plot(debts[:, 0], debts[:, 1], **style)
    load = runs[0]["load"]
    for axes, title in (
        (top, "productive half: p50 response, s"),
        (middle, "all results: p50 response, s"),
        (bottom, "probes owed"),
    ):
        axes.set_title(title, loc="left", fontsize=10)
        axes.axvspan(load["before"], load["before"] + load["burst"], color="0.93", zorder=0)
        axes.set_yscale("symlog" if axes is bottom else "log")
        axes.grid(alpha=0.3)
    bottom.set_ylim(bottom=0)
    top.legend(ncols=4, fontsize=8)
    bottom.set_xlabel("seconds; the burst is shaded")
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--rate", type=int, default=Load.rate, help="rows a second of each stream")
    parser.add_argument("--before", type=float, default=Load.before)
    parser.add_argument("--burst", type=float, default=Load.burst)
    parser.add_argument("--after", type=float, default=Load.after)
    parser.add_argument("--within", default="3 seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", action="store_true", help="run one policy in this process and print JSON")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    load = Load(options.rate, options.before, options.burst, options.after)
    if options.one:
        with tempfile.TemporaryDirectory(prefix="watersmeet-spill-") as folder:
            print(json.dumps(run(options.policies[0], load, options.seed, Path(folder), options.within)))
        return
    import subprocess

    runs = []
    for policy in options.policies:
        console.print(f"[bold]{policy}[/bold]: {load.seconds:.0f} s of input")
        command = [sys.executable, "-m", "bench.spilling.burst", "--one", "--policies", policy, *_same(options)]
        process = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        if process.returncode:
            console.print(process.stderr[-2000:])
            raise SystemExit(1)
        one = json.loads(process.stdout.strip().splitlines()[-1])
        runs.append(one)
        figures = {
            name: one[name]
            for name in (
                *("results", "productive_share", "level", "before", "burst"),
                *("paid_after_burst", "last_result_after_burst", "cpu_seconds"),
            )
        }
        console.print(figures)
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "spill.json").write_text(json.dumps(runs, indent=1))
        draw(runs, options.out / "spill.png")


def _same(options: Any) -> list[str]:
    names = ("rate", "before", "burst", "after", "within", "seed")
    return [part for name in names for part in (f"--{name}", str(getattr(options, name)))]


if __name__ == "__main__":
    main()
