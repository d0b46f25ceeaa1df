"""What tasks are given and what they send: an attempt, blocks of Arrow rows, pickled reports, errors of ours."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.batch.worker import Worker
from watersmeet.errors import WatersmeetError
from watersmeet.probe.partials import Partials

Blocks = Iterable[pa.RecordBatch]
RESULTS = -1
REPORT = pa.schema([("node", pa.int32()), ("body", pa.binary())])
"""The rows that tasks send reports in: whom they are for, and the report."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A task at work.

    Attributes:
        partition: Its number among the tasks of its stage; the node's where tasks are nodes.
        name: A name unique to it within the query's run.
        number: A number unique to it among all that may be at work for the batch.
        worker: What its process keeps between tasks.
        cpu: Returns the CPU seconds that the process has used.
        now: Returns the time of day, in seconds since the epoch.
        watch: Called with what each hop finds on a course, RESULTS for results; tests look at it.
    """

    partition: int
    name: str
    number: int
    worker: Worker
    cpu: Callable[[], float]
    now: Callable[[], float]
    watch: Callable[[int, Partials], None] = lambda course, found: None


Task = Callable[[Attempt, Blocks], Iterator[pa.RecordBatch]]


def messages(rows: Iterable[tuple[int, Any]]) -> pa.RecordBatch:
    """Return (node, report) pairs as a block."""
    pairs = list(rows)
    return pa.record_batch(
        [pa.array([n for n, _ in pairs], pa.int32()), pa.array([pickle.dumps(r) for _, r in pairs], pa.binary())],
        schema=REPORT,
    )


def guarded(task: Task, nodes: Iterable[int]) -> Task:
    """Return a task that sends an error of ours on as a report: nobody need try again what can't succeed."""

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(attempt, blocks)
        except WatersmeetError as error:
            error.__cause__ = error.__context__ = None
            yield messages((node, Failure(type(error), str(error))) for node in nodes)

    return run


class Failure:
    """An error of ours on its way to the driver."""

    def __init__(self, kind: type[WatersmeetError], message: str) -> None:
        self.kind, self.message = kind, message

    def error(self) -> WatersmeetError:
        """Return the error as it was."""
        error = self.kind.__new__(self.kind)
        error.args = (self.message,)
        return error


def outcome(bodies: Iterable[bytes]) -> list[Any]:
    """Return the reports that tasks sent.

    Raises:
        WatersmeetError: The first error that a task reported.
    """
    found = [pickle.loads(body) for body in bodies]
    for report in found:
        if isinstance(report, Failure):
            raise report.error()
    return found


def received(blocks: Blocks) -> list[Any]:
    """Return the reports in blocks of messages.

    Raises:
        WatersmeetError: The first error that a task reported.
    """
    return outcome(body.as_py() for block in blocks for body in block.column("body"))
