"""The cost of a result on one core: the join alone, without Spark, against the same join in plain NumPy.

python bench/system/kernel.py                both sizes
python bench/system/kernel.py --rate 1000    one of them

Both read the same Parquet files batch by batch and write the results as Parquet; they take turns, and CPU time is
counted, so that other work on the machine matters little. NumPy's is no join that one could use: it knows this one
predicate, keeps all rows in memory and recovers from nothing. It is the floor.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.common import SECONDS_PER_FILE, STREAMS, WINDOW, band_files, listing
from bench.metadata.core import CoreRun, block_of
from watersmeet.arrays import Floats, Ints
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Output, Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.workload.tuples import SECOND

WIDTHS = {100.0: 5.0, 1000.0: 0.5}
"""The width of the band at each rate, in tuples a second: ten times the tuples, as many results for each."""
BLOCK = 1 << 17
RowNumbers = NDArray[np.int32]


def batches(files: Path) -> list[dict[str, pa.Table]]:
    """Return the rows of each batch, by stream."""
    names = {stream: sorted((files / stream).glob("*.parquet")) for stream in STREAMS}
    return [
        {stream: pq.read_table(path) for stream, path in zip(STREAMS, paths, strict=True)}
        for paths in zip(*names.values(), strict=True)
    ]


# -- ours


def run_join(inputs: Sequence[dict[str, pa.Table]], width: float, out: Path) -> None:
    """Join with the product's own code, in one process."""
    schemas = [inputs[0][name].schema for name in STREAMS]
    streams = tuple(
        StreamSpec(name, schema, 1, Sliding(WINDOW * SECOND), 0) for name, schema in zip(STREAMS, schemas, strict=True)
    )
    where = f"abs(a.x - b.x) < {width!r} AND abs(b.x - c.x) < {width!r}"
    conjuncts = parse_where(where, list(zip(STREAMS, schemas, strict=True)), (), Dialect())
    outputs = tuple(Output(f"{name}_id", Column(at, 0)) for at, name in enumerate(STREAMS))
    (out / "results").mkdir(parents=True)
    query = Query(streams, conjuncts, where, outputs=outputs)
    run = CoreRun(query, Store(str(out / "state")), steady=True, results_to=out / "results")
    for tables in inputs:
        run.block = block_of([tables[name] for name in STREAMS])
        run.step(Central(), [])


# -- the floor


@dataclass
class Rows:
    """The rows of a stream so far, sorted by time."""

    ids: Ints
    ts: Ints
    x: Floats


def run_numpy(inputs: Sequence[dict[str, pa.Table]], width: float, out: Path) -> None:
    """Join in NumPy: sorted probes, row numbers as int32, small blocks, ids gathered last."""
    out.mkdir(parents=True)
    everything = [
        Rows(*(pa.concat_tables([t[name] for t in inputs]).column(c).cast(k).to_numpy() for c, k in COLUMNS))
        for name in STREAMS
    ]
    for batch in range(len(inputs)):
        ends = [sum(tables[name].num_rows for tables in inputs[: batch + 1]) for name in STREAMS]
        starts = [end - inputs[batch][name].num_rows for end, name in zip(ends, STREAMS, strict=True)]
        oldest = [int(everything[at].ts[start]) - WINDOW * SECOND for at, start in enumerate(starts)]
        state = [(int(np.searchsorted(rows.ts, min(oldest))), end) for rows, end in zip(everything, ends, strict=True)]
        schema = pa.schema([(f"{name}_id", pa.int64()) for name in STREAMS])
        with pq.ParquetWriter(
            out / f"{batch:06d}.parquet", schema, compression="none", use_dictionary=False, write_statistics=False
        ) as writer:
            for origin, order in enumerate(((1, 2), (0, 2), (1, 0))):
                _probe(everything, state, origin, order, starts[origin], ends[origin], width, writer)


COLUMNS = (("id", pa.int64()), ("ts", pa.int64()), ("x", pa.float64()))


def _probe(
    streams: Sequence[Rows],
    state: Sequence[tuple[int, int]],
    origin: int,
    order: Sequence[int],
    start: int,
    end: int,
    width: float,
    writer: pq.ParquetWriter,
) -> None:
    """Join the new rows of one stream with those of the others that came before them, and write what results."""
    new = np.arange(start, end, dtype=np.int32)
    new = new[np.argsort(streams[origin].x[new])]
    first, second = order
    sorted_rows = {at: _by_value(streams[at], *state[at]) for at in order}
    left = 1 if first == 1 else origin  # the stream whose x the second hop's condition reads
    for pair in _matches(streams, sorted_rows[first], origin, first, {origin: new}, origin, width):
        for triple in _matches(streams, sorted_rows[second], origin, second, pair, left, width):
            writer.write_batch(
                pa.record_batch({f"{name}_id": streams[at].ids[triple[at]] for at, name in enumerate(STREAMS)})
            )


def _by_value(rows: Rows, start: int, end: int) -> tuple[Floats, RowNumbers]:
    order = np.argsort(rows.x[start:end], kind="stable").astype(np.int32)
    return rows.x[start:end][order], order + np.int32(start)


def _matches(
    streams: Sequence[Rows],
    index: tuple[Floats, RowNumbers],
    origin: int,
    target: int,
    partials: dict[int, RowNumbers],
    left: int,
    width: float,
) -> Iterator[dict[int, RowNumbers]]:
    """Yield longer partial results in blocks."""
    values, order = index
    x = streams[left].x[partials[left]]
    low = np.searchsorted(values, x - width, "left").astype(np.int32)
    count = np.searchsorted(values, x + width, "right").astype(np.int32) - low
    ends = np.cumsum(count)
    at = 0
    while at < len(ends):
        before = int(ends[at - 1]) if at else 0
        stop = max(at + 1, int(np.searchsorted(ends, before + BLOCK, "right")))
        counts = count[at:stop]
        partial = np.repeat(np.arange(at, stop, dtype=np.int32), counts)
        row = np.arange(int(counts.sum()), dtype=np.int32)
        row += np.repeat(low[at:stop] - (ends[at:stop] - counts - before).astype(np.int32), counts)
        row = order[row]
        when, moment = streams[target].ts[row], streams[origin].ts[partials[origin][partial]]
        latest = when <= moment if target < origin else when < moment
        mask = latest & (moment - when < WINDOW * SECOND)
        mask &= np.abs(x[partial] - streams[target].x[row]) < width
        partial, row = partial[mask], row[mask]
        yield {**{stream: rows[partial] for stream, rows in partials.items()}, target: row}
        at = stop


# -- comparing


def checksum(folder: Path) -> tuple[int, int]:
    """Return the number of results, and a sum over their ids that depends on which go together."""
    rows, total = 0, 0
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path)
        a, b, c = (table.column(at).to_numpy().astype(np.uint64) for at in range(3))
        total += int((a * np.uint64(1_000_003) ^ b * np.uint64(10_007) ^ c * np.uint64(101)).sum(dtype=np.uint64))
        rows += table.num_rows
    return rows, total % (1 << 64)


def bench(rate: float, rounds: int, folder: Path) -> None:
    """Run both by turns, and print what a result takes."""
    inputs, width = batches(band_files(folder / f"files-{rate:g}", rate)), WIDTHS[rate]
    contenders: dict[str, Callable[[Sequence[dict[str, pa.Table]], float, Path], None]] = {
        "watersmeet": run_join,
        "numpy": run_numpy,
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    found: dict[str, tuple[int, int]] = {}
    for turn in range(rounds):
        for name, run in contenders.items():
            out = folder / f"{rate:g}-{name}-{turn}"
            wall, cpu = time.perf_counter(), time.process_time()
            run(inputs, width, out)
            seconds[name].append((time.process_time() - cpu, time.perf_counter() - wall))
            found[name] = checksum(out / "results" if name == "watersmeet" else out)
    assert len(set(found.values())) == 1, f"the results differ: {found}"
    results = found["numpy"][0]
    rows = [
        {
            "join": name,
            "results": results,
            "cpu_s": min(cpu for cpu, _ in runs),
            "us_a_result": min(cpu for cpu, _ in runs) / results * 1e6,
            "wall_s": min(wall for _, wall in runs),
        }
        for name, runs in seconds.items()
    ]
    listing(f"{rate:g} tuples/s a stream, {SECONDS_PER_FILE} s a batch, one core", f"kernel-{rate:g}", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, choices=list(WIDTHS), help="one size")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="watersmeet-kernel-") as folder:
        for rate in [options.rate] if options.rate else list(WIDTHS):
            bench(rate, options.rounds, Path(folder))


if __name__ == "__main__":
    main()
