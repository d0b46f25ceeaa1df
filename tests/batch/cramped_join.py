"""A join whose state is larger than the address space of its process, as a program of its own.

Run as `python -m tests.batch.cramped_join FOLDER SPEC`, where SPEC is JSON: the address space, the live state at the
end and the size of a row, in bytes. Says which pairs were found, and how much state and address space was taken.
"""

import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from watersmeet.placement import Central
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Sliding
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

ROWS = 16
"""Of each stream in a batch."""
WHERE = "abs(a.x - b.x) <= 0 AND a.blob <> b.blob"
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.int64()), ("blob", pa.binary())])


def blob(at: int) -> bytes:
    """Return what a row's blob consists of."""
    return bytes([at % 251])


def pairs(rows: int) -> list[tuple[int, int]]:
    """Return the pairs that there are: every fourth row of b meets one of a, counted from the end."""
    return [(rows - 1 - at, at) for at in range(0, rows, 4) if blob(rows - 1 - at) != blob(at)]


def arrivals(ids: range, rows: int, size: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a batch."""
    for at in ids:
        common = {"id": at, "ts": at, "blob": blob(at) * size}
        yield 0, common | {"x": at}
        yield 1, common | {"x": rows - 1 - at if at % 4 == 0 else -1}


def main(folder: Path, spec: dict[str, int]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (spec["space"], spec["space"]))
    streams = tuple(StreamSpec(name, SCHEMA, 1, Sliding(1 << 40), 0) for name in "ab")
    conjuncts = parse_where(WHERE, [(stream.name, stream.schema) for stream in streams], (), Dialect())
    run = Run(Query(streams, conjuncts, WHERE), Store(str(folder)), steady=True)
    rows = spec["state"] // spec["bytes"] // 2 // ROWS * ROWS
    for first in range(0, rows, ROWS):
        run.step(Central(), [*arrivals(range(first, first + ROWS), rows, spec["bytes"])])
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    said = {"rows": rows, "pairs": sorted(ids for ids, _ in run.results.elements())}
    print(json.dumps(said | {"state": run.progress[-1]["stateBytes"], "peak": 1024 * int(status["VmPeak"].split()[0])}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
