"""The input and output of tasks: an attempt, blocks of Arrow rows, pickled reports, and our own errors."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.batch.worker import Worker
from watersmeet.errors import WatersmeetError
from watersmeet.limits import limits
from watersmeet.predicate.model import Column
from watersmeet.probe.chunk_table import is_bulky
from watersmeet.probe.partials import Gather, Partials
from watersmeet.query.query import Query

Blocks = Iterable[pa.RecordBatch]
RESULTS = -1
REPORT = pa.schema([("node", pa.int32()), ("body", pa.binary())])
"""The rows in which tasks send reports: the receiver, and the pickled report."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to run a task.

    Attributes:
        partition: Its number among the tasks of its stage; the node's number if tasks are nodes.
        name: Unique within the query's run; part of file names.
        number: Unique among all attempts that may run for the batch.
        worker: What its process keeps between tasks.
        cpu: Returns the CPU seconds that the process has used.
        now: Returns the time of day, in seconds since the epoch.
        watch: Called with the course and the partial results of each hop, or RESULTS and results; for tests.
    """

    partition: int
    name: str
    number: int
    worker: Worker
    cpu: Callable[[], float]
    now: Callable[[], float]
    watch: Callable[[int, Partials], None] = lambda course, partials: None


Task = Callable[[Attempt, Blocks], Iterator[pa.RecordBatch]]


def messages(rows: Iterable[tuple[int, Any]]) -> pa.RecordBatch:
    """Return (node, report) pairs as a block."""
    pairs = list(rows)
    return pa.record_batch(
        [pa.array([n for n, _ in pairs], pa.int32()), pa.array([pickle.dumps(r) for _, r in pairs], pa.binary())],
        schema=REPORT,
    )


class Failure:
    """One of our own errors, on its way to the driver."""

    def __init__(self, kind: type[WatersmeetError], message: str) -> None:
        self.kind, self.message = kind, message

    def error(self) -> WatersmeetError:
        """Return the original error, without its cause."""
        error = self.kind.__new__(self.kind)
        error.args = (self.message,)
        return error


def report_errors(task: Task, nodes: Iterable[int]) -> Task:
    """Return a task that reports our own errors to these nodes instead of raising them."""
    return send_errors(task, lambda failure: messages((node, failure) for node in nodes))


def send_errors(task: Task, encode: Callable[[Failure], pa.RecordBatch]) -> Task:
    """Return a task that sends our own errors on, as a block, instead of raising them: Spark must not retry it."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """Run the task; if an error of ours ends it, send that on instead of raising it."""
        try:
            yield from task(attempt, blocks)
        except WatersmeetError as error:
            yield encode(Failure(type(error), str(error)))

    return run


def outcome(bodies: Iterable[bytes]) -> list[Any]:
    """Return the reports that tasks sent.

    Raises:
        WatersmeetError: The first error that a task reported.
    """
    reports = [pickle.loads(body) for body in bodies]
    for report in reports:
        if isinstance(report, Failure):
            raise report.error()
    return reports


def read_reports(blocks: Blocks) -> list[Any]:
    """Return the reports in blocks of messages.

    Raises:
        WatersmeetError: The first error that a task reported.
    """
    return outcome(body.as_py() for block in blocks for body in block.column("body"))


WIDTH = 128
"""The approximate size of a row's fixed columns, in bytes."""


@dataclass(frozen=True)
class Wire:
    """The wire format between hops: bookkeeping, row references, as-of counts, columns, messages.

    Columns of variable length do not travel: a task that needs one reads the row from the store.

    Attributes:
        query: The join.
        tracked: The streams whose members' times travel.
    """

    query: Query
    tracked: tuple[int, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column that may have to travel."""
        return tuple(sorted(column for column in self.query.needed_columns if not is_bulky(self.query.type_of(column))))

    @property
    def schema(self) -> pa.Schema:
        """The columns of a block on the wire: partial results leave `body` empty, and messages all the others."""
        fields = [("node", pa.int32()), ("here", pa.int64()), ("origin", pa.int8()), ("course", pa.int16())]
        fields += [(name, pa.int64()) for name in ("moment", "high", "deadline", "batch")]
        fields += [(f"r{stream}", pa.int64()) for stream in range(len(self.query.streams))]
        fields += [(f"a{stream}", pa.int64()) for stream in self.query.counted_streams]
        fields += [(f"t{stream}", pa.int64()) for stream in self.tracked]
        fields += [(column.name, self.query.type_of(column)) for column in self.columns]
        return pa.schema([*fields, ("body", pa.binary())])

    def block(self, rows: int, values: dict[str, pa.Array]) -> pa.RecordBatch:
        """Return a block with the given columns and NULL in all others."""
        schema = self.schema
        arrays = [
            values[field.name].cast(field.type) if field.name in values else pa.nulls(rows, field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def messages(self, nodes: list[int], body: bytes) -> pa.RecordBatch:
        """Return a block that carries one message to several nodes."""
        size = len(nodes)
        return self.block(size, {"node": pa.array(nodes, pa.int32()), "body": pa.array([body] * size, pa.binary())})

    def ship(
        self, block: Partials, to: NDArray[np.bool_], course: int, carry: Sequence[Column], gather: Gather
    ) -> Iterator[pa.RecordBatch]:
        """Yield partial results of one course as rows, one for each node they must visit, in blocks of bounded size."""
        size = max(1, limits().block_bytes // (WIDTH + 16 * len(carry)))
        rows, nodes = np.nonzero(to)
        for start in range(0, len(rows), size):
            part = block.take(rows[start : start + size])
            yield self.encode(part, nodes[start : start + size], course, carry, gather)

    def encode(
        self, part: Partials, nodes: Ints, course: int, carry: Sequence[Column], gather: Gather
    ) -> pa.RecordBatch:
        """Return partial results as a block on the wire, with the columns to carry that are of fixed width."""
        values = {
            "node": pa.array(nodes, pa.int32()),
            "here": pa.array(part.here),
            "origin": pa.array(np.full(len(part), part.origin), pa.int8()),
            "course": pa.array(np.full(len(part), course), pa.int16()),
            "moment": pa.array(part.moment),
            "high": pa.array(part.high),
            "deadline": pa.array(part.deadline),
            "batch": pa.array(part.batch),
        }
        values |= {f"r{stream}": pa.array(refs) for stream, refs in part.rows.items()}
        values |= {f"a{stream}": pa.array(counts) for stream, counts in part.asof.items()}
        values |= {f"t{stream}": pa.array(times) for stream, times in part.times.items()}
        values |= {c.name: part.column(c, gather) for c in carry if not is_bulky(self.query.type_of(c))}
        return self.block(len(part), values)

    def receive(self, rows: pa.RecordBatch, joined: tuple[int, ...], carry: Sequence[Column]) -> Partials:
        """Decode rows of one origin and course into a block of partial results.

        Args:
            rows: The rows.
            joined: The streams that they have joined so far.
            carry: The columns that travelled along.
        """

        def ints(name: str) -> Ints:
            return rows.column(name).to_numpy()  # type: ignore[no-any-return]

        return Partials(
            joined=joined,
            rows={stream: ints(f"r{stream}") for stream in joined},
            moment=ints("moment"),
            high=ints("high"),
            deadline=ints("deadline"),
            here=ints("here"),
            batch=ints("batch"),
            asof={s: ints(f"a{s}") for s in self.query.counted_streams if s != joined[0]},
            times={s: ints(f"t{s}") for s in self.tracked if s in joined},
            columns={c: rows.column(c.name) for c in carry if not is_bulky(self.query.type_of(c))},
        )
