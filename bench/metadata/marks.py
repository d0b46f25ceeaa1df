"""Marks: what it takes to load a million of them from bytes, to ask about values, and to merge."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa

from bench.common import listing
from watersmeet.metadata.marks import Marks, MarkShape, build_table, merge_tables
from watersmeet.state.chunks.chunk import Place
from watersmeet.state.store.file_format import encode, read_batch

MARKS, LOOKUPS, PARTS, ROUNDS = 1_000_000, 60_000, 8, 7


def fastest(task: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Return the CPU milliseconds of the fastest of some rounds: what others do to the cores must not count."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        task()
        times.append(time.process_time() - start)
    return min(times) * 1000


def texts(dice: np.random.Generator) -> pa.Array:
    return pa.array([str(uuid.UUID(bytes=dice.bytes(16))) for _ in range(MARKS + LOOKUPS)])


def measure(name: str, values: pa.Array, dice: np.random.Generator) -> dict[str, Any]:
    """Mark all but the last values, in parts that are merged, and ask for as many again, half of which are marked."""
    shape = MarkShape((values.type,), (False,))
    size = MARKS // PARTS
    cut = [values[start : start + size] for start in range(0, MARKS, size)]
    parts = [Marks(shape, build_table(shape, [part], [part], batch)) for batch, part in enumerate(cut)]
    table = merge_tables(parts)
    data, [(offset, length, digest)] = encode([table])
    source, place = pa.py_buffer(bytes(data)), Place(name, offset, length, digest)
    marked = pa.array(dice.integers(0, MARKS, LOOKUPS // 2))
    lookups = pa.concat_arrays([values.take(marked), values[MARKS : MARKS + LOOKUPS - len(marked)]])
    marks = Marks(shape, read_batch(source, place))
    assert (marks.find([lookups]) >= 0).sum() == len(marked)
    return {
        "marks": name,
        "rows": len(marks),
        "bytes_each": marks.nbytes / len(marks),
        "load_ms": fastest(lambda: Marks(shape, read_batch(source, place, is_checked=True))),
        "load_and_check_ms": fastest(lambda: Marks(shape, read_batch(source, place))),
        "ask_ms": fastest(lambda: marks.find([lookups])),
        "batch_ms": fastest(lambda: build_table(shape, [lookups], [lookups], 0)),
        "merge_ms": fastest(lambda: merge_tables(parts), 3),
    }


def main() -> None:
    dice = np.random.default_rng(7)
    shuffled = np.append(dice.permutation(MARKS), np.arange(2 * MARKS, 2 * MARKS + LOOKUPS))
    spread = dice.choice(2**40, MARKS + LOOKUPS, replace=False) << 20
    rows = [
        measure("UUID texts", texts(dice), dice),
        measure("dense integers", pa.array(shuffled), dice),
        measure("random integers", pa.array(spread), dice),
    ]
    listing(f"{MARKS:,} marks made in {PARTS} parts, {LOOKUPS:,} values asked, CPU time", "marks", rows)


if __name__ == "__main__":
    main()
