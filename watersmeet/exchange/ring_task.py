"""A task of the ring exchange: the nodes that it hosts, what travels on their links, and the results that they write.

New tuples are stored before the ring starts, and chunks stay where they are during a batch. What travels are probes and
partial results (`watersmeet/exchange/ring.py`); the head reads the tuples that probe from their chunks. Columns of
variable length stay behind, as on every wire.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from watersmeet.batch.node import Arrived, Emit, EndOfBatch, Node, Partial, Share, Ship
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import IntakeReport, TaskReport
from watersmeet.exchange.message import Attempt, Blocks, Task, Wire, messages, read_reports, report_errors
from watersmeet.exchange.ring import (
    Action,
    BuildMessage,
    Completion,
    EndOfInputMessage,
    Message,
    PartialMessage,
    ProbeMessage,
    ReleaseMessage,
    Result,
    RingNode,
    Wave,
)
from watersmeet.exchange.tasks import NodeOutput, finish
from watersmeet.limits import adopt, limits
from watersmeet.probe.partials import Partials

WAVES_UNDER_WAY = 2
"""How many waves a node may have under way on average, unless the strategy says how many tuples."""


class Travelling(NamedTuple):
    """Tuples or partial results of one course, about to make a hop."""

    course: int
    hop: int
    rows: Partials


class BrokenLink(Exception):
    """A neighbour is gone: it has failed, and reports why, or its process has died."""


class RingLinks(Protocol):
    """Carries frames between the nodes of a ring; what one node sends to another arrives in the same order."""

    def send(self, node: int, frame: bytes) -> None:
        """Send a frame to a node. Never waits for the node to take it."""

    def receive(self) -> tuple[int, bytes]:
        """Return the next frame for a node of this task; waits for it.

        Raises:
            BrokenLink: If a neighbour is gone.
        """


Connect = Callable[[Attempt, Sequence[int]], AbstractContextManager[RingLinks]]
"""Links a task that hosts some nodes to the tasks that host their neighbours; called in each task."""


def ring_task(plan: BatchPlan, tasks: int, connect: Connect) -> Task:
    """Return the task that hosts its share of a ring, writes the results to the store and reports.

    All tasks must run at the same time. Errors of ours are sent to the driver; a broken link ends a task without a
    report.

    Args:
        plan: The batch's plan.
        tasks: How many tasks share the ring.
        connect: Links a task to those of the neighbouring nodes.
    """

    def run(attempt: Attempt, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """Adopt the plan's limits, run the hosted nodes and yield their reports.

        Yields nothing if a neighbour is gone, which the driver notices.
        """
        adopt(plan.limits)
        started = attempt.cpu()
        nodes = hosted_nodes(plan.placement.nodes, attempt.partition, tasks)
        intakes = read_reports(blocks)
        try:
            with connect(attempt, nodes) as links:
                reports = RingTask(plan, attempt, nodes, links).run(intakes)
        except BrokenLink:
            return  # [!] without a report, which the driver misses; the task that has failed says why
        finish(reports[0], attempt, started)
        yield messages((report.node, report) for report in reports)

    return report_errors(run, [-1])


def hosted_nodes(nodes: int, task: int, tasks: int) -> range:
    """Return the nodes that a task hosts: neighbours, so that most links stay within a task.

    >>> [[*hosted_nodes(5, task, 2)] for task in range(2)]
    [[0, 1], [2, 3, 4]]
    """
    return range(nodes * task // tasks, nodes * (task + 1) // tasks)


class StoredChunks:
    """A node's part of the state: the chunks that it owns, which don't move during a batch; a `RingState`."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def insert(self, rows: Travelling, since: int) -> None:
        """Do nothing: new tuples are in chunks already."""

    def purge(self, rows: Travelling, wave: Wave) -> Iterable[Travelling]:
        """Move nothing."""
        return ()

    def probe(self, block: Travelling, wave: Wave) -> Iterator[Travelling | Emit]:
        """Make a hop over the chunks that are probed at this node; yield and count longer partial results, or results.

        [!] All chunks of the batch are seen: which tuples had arrived is told by the arrival order, not by the wave.
        """
        course, hop, rows = block
        for action in self._node.handle(Partial(rows.origin, course, hop, [rows])):
            if isinstance(action, Emit):
                yield action
            elif isinstance(action, Ship):
                longer = Travelling(action.course, action.hop, action.block)
                count_entering(self._node, longer)
                yield longer

    def drop(self, number: int) -> None:
        """Drop nothing."""


def count_entering(node: Node, block: Travelling) -> None:
    """Count tuples or partial results that are about to make a hop, once: where they set out."""
    course, hop, rows = block
    node.work.of(node.courses(rows.origin)[course][hop]).rows_in += len(rows)


class RingTask:
    """Some nodes of a ring during a batch, in one task.

    Args:
        plan: The batch's plan.
        attempt: The task attempt.
        nodes: The nodes that the task hosts, in order.
        links: Carries what they send.
    """

    def __init__(self, plan: BatchPlan, attempt: Attempt, nodes: Sequence[int], links: RingLinks) -> None:
        self._plan, self._links = plan, links
        self._attempts = {node: replace(attempt, partition=node, name=f"{attempt.name}n{node}") for node in nodes}
        size = plan.placement.nodes
        self._nodes = {node: Node(plan, attempt.worker, Share(node, size, node)) for node in nodes}
        self._ring = {
            number: RingNode(number, size, plan.stages, StoredChunks(node), self._interleaved)
            for number, node in self._nodes.items()
        }
        self._outputs = {node: NodeOutput(plan, attempt, self._nodes[node]) for node, attempt in self._attempts.items()}
        self._wire = Wire(plan.query, plan.placement.tracked)
        self._ended: set[int] = set()
        self._sent = dict.fromkeys(nodes, (0, 0))

    @property
    def _interleaved(self) -> int:
        """How many tuples may be under way at once."""
        tuples = self._plan.placement.interleaved
        return self._wave_rows * WAVES_UNDER_WAY * self._plan.placement.nodes if tuples is None else tuples

    @property
    def _wave_rows(self) -> int:
        """How many tuples a wave has at most."""
        tuples = self._plan.placement.interleaved
        return limits().block_rows if tuples is None else min(tuples, limits().block_rows)

    def run(self, intakes: Sequence[IntakeReport]) -> list[TaskReport]:
        """Run the batch on these nodes, write its results and state, and return their reports.

        Raises:
            BrokenLink: If a neighbour is gone.
        """
        for node in self._nodes.values():
            for _ in node.handle(Arrived(intakes, probe=False)):
                raise AssertionError("Nothing has probed yet.")
        waves = self._waves() if 0 in self._nodes else None
        while len(self._ended) < len(self._nodes):
            if waves is not None and self._ring[0].can_take_wave:
                wave = next(waves, None)
                head, waves = self._ring[0], waves if wave else None
                if wave:
                    count_entering(self._nodes[0], wave)
                self._carry_out(0, head.enter(wave, len(wave.rows)) if wave else head.handle(EndOfInputMessage()))
                continue
            number, frame = self._links.receive()
            self._carry_out(number, self._ring[number].handle(self._read_message(number, frame)))
        return [self._report(node) for node in self._nodes]

    def _waves(self) -> Iterator[Travelling]:
        """Yield all tuples that probe, read from their chunks course by course, in waves of at most `_wave_rows`."""
        head = self._nodes[0]
        for origin in range(len(self._plan.query.streams)):
            for course in range(len(head.courses(origin))):
                for block in head.probing_tuples(origin, course):
                    for start in range(0, len(block), self._wave_rows):
                        yield Travelling(course, 0, block.slice(start, min(self._wave_rows, len(block) - start)))

    def _carry_out(self, number: int, actions: Iterable[Action]) -> None:
        """Send a node's messages and count them, write its results, and end its batch once the ring has ended."""
        for action in actions:
            match action:
                case Result(block):
                    self._outputs[number].take(block)
                case Completion():
                    self._ended.add(number)
                    attempt = self._attempts[number]
                    for last in self._nodes[number].handle(EndOfBatch(attempt.name, attempt.cpu)):
                        self._outputs[number].take(last)
                case _:
                    frame, (messages, size) = self._to_frame(number, action), self._sent[number]
                    self._sent[number] = messages + 1, size + len(frame)
                    self._links.send((number + 1) % self._plan.placement.nodes, frame)

    def _report(self, number: int) -> TaskReport:
        """Close a node's output, and return its report with the messages and bytes that it sent."""
        (report,) = self._outputs[number].close()
        report.work.messages, report.work.sent_bytes = self._sent[number]
        return report

    # -- frames: a header in JSON, and Arrow rows

    def _to_frame(self, number: int, message: Message) -> bytes:
        """Return a node's message as it travels; the inverse of `_read_message`."""
        match message:
            case ProbeMessage(wave, rows):
                return self._pack_rows(number, {"probe": [*wave]}, rows)
            case PartialMessage(wave, level, block, maker, end):
                return self._pack_rows(number, {"partial": [*wave], "level": level, "maker": maker, "end": end}, block)
            case ReleaseMessage(wave):
                return _pack({"release": [*wave]}, b"")
            case EndOfInputMessage():
                return _pack({"end": True}, b"")
            case BuildMessage():
                raise AssertionError("Chunks don't move during a batch.")

    def _pack_rows(self, number: int, header: dict[str, Any], block: Travelling | None) -> bytes:
        """Return a frame of a header and rows with the columns that their next hops need; extends the header."""
        if block is None:
            return _pack(header, b"")
        course, hop, rows = block
        steps = self._nodes[number].courses(rows.origin)[course]
        carry = steps[hop - 1].carry if hop else ()
        body = self._wire.encode(rows, np.zeros(len(rows), np.int64), course, carry, self._nodes[number].table.gather)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, body.schema) as writer:
            writer.write_batch(body)
        header |= {"origin": rows.origin, "course": course, "hop": hop}
        return _pack(header, sink.getvalue())

    def _read_message(self, number: int, frame: bytes) -> Message:
        """Return the message of a frame that has come for a node; the inverse of `_to_frame`."""
        header, body = _unpack(frame)
        block = self._read_rows(number, header, body) if len(body) else None
        if "probe" in header:
            return ProbeMessage(Wave(*header["probe"]), block)
        if "release" in header:
            return ReleaseMessage(Wave(*header["release"]))
        if "partial" in header:
            return PartialMessage(Wave(*header["partial"]), header["level"], block, header["maker"], header["end"])
        return EndOfInputMessage()

    def _read_rows(self, number: int, header: dict[str, Any], body: pa.Buffer) -> Travelling:
        """Return the rows of a frame and the hop that they make next, as its header says; counts them as shuffled."""
        origin, course, hop = header["origin"], header["course"], header["hop"]
        steps = self._nodes[number].courses(origin)[course]
        carry = steps[hop - 1].carry if hop else ()
        rows = pa.ipc.open_stream(body).read_next_batch()
        self._nodes[number].work.of(steps[hop]).shuffled += rows.num_rows
        return Travelling(course, hop, self._wire.receive(rows, steps[hop].joined, carry))


def _pack(header: dict[str, Any], body: bytes | pa.Buffer) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + bytes(body)


def _unpack(frame: bytes) -> tuple[dict[str, Any], pa.Buffer]:
    (size,) = struct.unpack_from(">I", frame)
    return json.loads(frame[4 : 4 + size]), pa.py_buffer(frame).slice(4 + size)
