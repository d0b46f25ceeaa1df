"""Hops as separate tasks: rows are diffused to nodes, each hop's task probes its node's chunks and ships on.

Everything that a later task must know, the chunks written in this batch among it, travels with the data: a task reads
the chunks of the attempt whose output it consumes.
"""

import os
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.engine.arrival import Arrivals, arrivals, as_of_all
from watersmeet.engine.intake import IntakeReport, Judge, Spool, writer
from watersmeet.engine.plan import BatchPlan
from watersmeet.engine.probe import HopWork, TaskReport, Worker, merged
from watersmeet.engine.route import Router
from watersmeet.engine.ship import Wire
from watersmeet.kernel.hop import BLOCK
from watersmeet.kernel.partials import ROW_BITS, Partials, regroup
from watersmeet.kernel.steps import Step, entry_conjuncts
from watersmeet.kernel.table import ChunkTable, Target
from watersmeet.state.chunk import HASH, TIME, Chunk

FRESH = 1 << 36
"""Numbers given in this batch begin here; below it are the positions of earlier chunks in the plan."""
ATTEMPTS, PER_ATTEMPT = 1 << 16, 1 << 20
"""Task attempts of one batch that are told apart, and the chunks each may number."""


@dataclass(slots=True)
class News:
    """What a task tells the next hop's task of the same node."""

    chunks: list[tuple[int, Chunk]] = field(default_factory=list)
    report: TaskReport | None = None
    intakes: list[IntakeReport] = field(default_factory=list)
    arrivals: dict[int, Arrivals] = field(default_factory=dict)


def first_number(attempt: int) -> int:
    """Return the first of the numbers that belong to a task attempt alone, for chunks and for rows not yet stored."""
    return FRESH + attempt % ATTEMPTS * PER_ATTEMPT


class Diffuse:
    """Sends each new row to the nodes that keep it and to those it must probe first.

    Args:
        plan: The batch's plan.
        name: Unique to this task attempt.
        attempt: The attempt's number, unique in the application.
    """

    def __init__(self, plan: BatchPlan, name: str, attempt: int) -> None:
        self._plan, self._wire, self.judge = plan, Wire(plan.query), Judge(plan, name)
        self._next = first_number(attempt) << ROW_BITS
        self._routers = {s: Router(plan, plan.steps(s)[0].target) for s in range(len(plan.query.streams))}

    def rows(self, stream: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stream for each node concerned."""
        rows = self.judge.accepted(stream, rows)
        if rows.num_rows:
            store, probe = self._nodes(stream, rows.column(TIME).to_numpy())
            at, nodes = np.nonzero(store | probe)
            refs = self._next + np.arange(rows.num_rows)
            self._next += rows.num_rows
            yield self._block(stream, rows.take(pa.array(at)), nodes, store[at, nodes], probe[at, nodes], refs[at])
        if stream in self._plan.query.counted and rows.num_rows:
            yield self._keys(stream, rows)

    def _nodes(self, stream: int, ts: Any) -> tuple[Any, Any]:
        placement = self._plan.placement
        starts = placement.starts(stream, ts)
        store = np.zeros((len(ts), placement.nodes), dtype=bool)
        for start in np.unique(starts).tolist():
            here = np.flatnonzero(starts == start)
            store[np.ix_(here, np.array(placement.owners(stream, start, 0)))] = True
        target = self._plan.query.streams[self._plan.steps(stream)[0].target].window
        deadline = self._plan.query.streams[stream].window.deadline(ts)
        return store, self._routers[stream].visits(target.earliest(ts), deadline, -1, starts)

    def _block(
        self, stream: int, rows: pa.RecordBatch, nodes: Any, store: Any, probe: Any, refs: Any
    ) -> pa.RecordBatch:
        ts = rows.column(TIME)
        window = self._plan.query.streams[stream].window
        values = {
            "node": pa.array(nodes, pa.int32()),
            "here": pa.array(np.full(len(nodes), -1), pa.int32()),
            "origin": pa.array(np.full(len(nodes), stream), pa.int8()),
            "store": pa.array(store),
            "probe": pa.array(probe),
            "hash": rows.column(HASH),
            "moment": ts,
            "high": ts,
            "deadline": pa.array(window.deadline(ts.to_numpy())),
            f"r{stream}": pa.array(refs),
        }
        for column in self._wire.columns:
            if column.stream == stream:
                is_time = self._plan.query.is_time(column)
                values[column.name] = ts.cast(self._plan.query.type_of(column)) if is_time else rows.column(column.name)
        return self._wire.block(len(nodes), values)

    def _keys(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the arrival keys of a count-windowed stream, for every node."""
        nodes = self._plan.placement.nodes
        every = np.tile(np.arange(rows.num_rows), nodes)
        keys = rows.take(pa.array(every))
        return self._wire.block(
            len(every),
            {
                "node": pa.array(np.repeat(np.arange(nodes), rows.num_rows), pa.int32()),
                "origin": pa.array(np.full(len(every), stream), pa.int8()),
                "store": pa.array(np.zeros(len(every), bool)),
                "probe": pa.array(np.zeros(len(every), bool)),
                "hash": keys.column(HASH),
                "moment": keys.column(TIME),
            },
        )

    def finish(self) -> pa.RecordBatch:
        """Return the report, for node 0."""
        return self._wire.messages([0], pickle.dumps(News(intakes=[self.judge.report])))


class Relay:
    """One hop's task on one node.

    Args:
        plan: The batch's plan.
        hop: The hop, from 0.
        node: The node.
        name: Unique to this task attempt.
        attempt: The attempt's number, unique in the application.
        worker: The process's connections.
    """

    def __init__(self, plan: BatchPlan, hop: int, node: int, name: str, attempt: int, worker: Worker) -> None:
        self._plan, self._hop, self._node, self._name = plan, hop, node, name
        self._wire, self._worker = Wire(plan.query), worker
        self._first = first_number(attempt)
        self._news = News()
        self._keys: dict[int, list[tuple[Any, Any]]] = {stream: [] for stream in plan.query.counted}
        self._spool = Spool(plan, name, node)
        self._draft: Any = None
        self._waiting = self._taken = 0
        self.report = TaskReport(node)

    # -- taking everything in before the first probe: what may be probed is known only then

    def take(self, blocks: Iterable[pa.RecordBatch]) -> None:
        """Read all input: store what is to be stored, put probing rows aside on disk, note messages."""
        with tempfile.NamedTemporaryFile(prefix="watersmeet-", suffix=".spool", delete=False) as draft:
            self._draft = draft.name
        try:
            with pa.OSFile(self._draft, "wb") as sink, pa.ipc.new_stream(sink, self._wire.schema) as aside:
                for block in blocks:
                    self._take(block, aside)
            self._stored()
        except BaseException:
            os.unlink(self._draft)
            raise

    def _take(self, block: pa.RecordBatch, aside: Any) -> None:
        body = block.column("body")
        if body.null_count < len(body):
            for found in body.drop_null():
                self._tell(pickle.loads(found.as_py()))
            block = block.filter(body.is_null())
        self._taken += block.num_rows
        if self._hop == 0:
            self._store(block)
        probing = block.filter(block.column("probe"))
        if probing.num_rows:
            self._waiting += probing.num_rows
            aside.write_batch(probing.cast(self._wire.schema))

    def _tell(self, news: Any) -> None:
        if not isinstance(news, News):
            raise news.error()
        self._news.chunks += news.chunks
        self._news.intakes += news.intakes
        self._news.arrivals |= news.arrivals
        self.report = news.report or self.report

    def _store(self, block: pa.RecordBatch) -> None:
        origins = block.column("origin").to_numpy(zero_copy_only=False)
        for stream in np.unique(origins).tolist():
            mine = block.filter(pa.array(origins == stream))
            keys = np.logical_not(_mask(mine, "store") | _mask(mine, "probe"))
            if stream in self._keys and keys.any():
                told = mine.filter(pa.array(keys))
                self._keys[stream].append((told.column("moment").to_numpy(), told.column("hash").to_numpy()))
            kept = mine.filter(mine.column("store"))
            names = [column.name for column in self._plan.query.kept[stream]]
            columns = {TIME: kept.column("moment"), HASH: kept.column("hash")} | {n: kept.column(n) for n in names}
            self._spool.add(stream, pa.record_batch(columns))

    def _stored(self) -> None:
        if self._hop:
            return
        chunks = self._spool.finish()
        for stream, keys in self._keys.items():
            self._news.arrivals[stream] = arrivals(stream, self._plan.arrived[stream], keys)
            chunks = self._numbered(stream, chunks)
        self._news.chunks = [(self._first + at, chunk) for at, chunk in enumerate(chunks)]

    def _numbered(self, stream: int, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Write the arrival ordinals of the fresh chunks of a count-windowed stream."""
        mine = [chunk for chunk in chunks if chunk.stream == stream]
        opened = [self._plan.store.open(chunk, self._plan.query.streams[stream].time_type) for chunk in mine]
        ordinals = self._news.arrivals[stream].ordinals([(rows.ts, rows.hashes) for rows in opened])
        write = writer(self._plan, self._name)
        numbered = [write.write_ordinals(chunk, found) for chunk, found in zip(mine, ordinals, strict=False)]
        return [*numbered, *(chunk for chunk in chunks if chunk.stream != stream)]

    # -- probing

    def probe(self) -> Iterator[Partials]:
        """Yield what the rows put aside become; on the last hop, results."""
        self.table = ChunkTable(self._plan.store, self._plan.query, self._targets())
        self._prober = self._worker.prober(self._plan.query, self.table)
        for origin in range(len(self._plan.query.streams)):
            steps = self._plan.steps(origin)
            blocks: Iterator[Partials] = regroup(self._received(origin, steps[self._hop]), BLOCK)
            for step in steps[self._hop : None if self.runs_to_the_end else self._hop + 1]:
                blocks = regroup(self._hops(blocks, step), BLOCK)
            yield from blocks

    @property
    def runs_to_the_end(self) -> bool:
        """Whether the remaining hops need no shuffle."""
        return self._plan.placement.stays() or self._hop == len(self._plan.query.streams) - 2

    def _hops(self, blocks: Iterable[Partials], step: Step) -> Iterator[Partials]:
        for block in blocks:
            yield from self._prober.hop(block, step)

    def _targets(self) -> list[Target]:
        old = [
            Target(at, chunk, False, self._node)
            for at, chunk in enumerate(self._plan.chunks)
            if self._node in chunk.owners
        ]
        return old + [Target(number, chunk, True, self._node) for number, chunk in self._news.chunks]

    def _received(self, origin: int, step: Step) -> Iterator[Partials]:
        if not self._waiting:
            return
        with pa.memory_map(self._draft) as source:
            for rows in pa.ipc.open_stream(source):
                mine = rows.filter(pa.array(rows.column("origin").to_numpy() == origin))
                if not mine.num_rows:
                    continue
                block = self._wire.receive(mine, step.joined)
                if self._hop == 0:
                    block.asof = as_of_all(self._news.arrivals, origin, block.moment)
                    block = self._prober.enter(block, entry_conjuncts(self._plan.query, origin))
                if len(block):
                    yield block

    def ship(self, block: Partials) -> Iterator[pa.RecordBatch]:
        """Yield a block of partial results for the next hop's nodes."""
        steps = self._plan.steps(block.origin)
        done, following = steps[self._hop], steps[self._hop + 1]
        window = self._plan.query.streams[following.target].window
        segments = self._plan.placement.starts(block.origin, block.moment)
        router = Router(self._plan, following.target)
        to = router.visits(window.earliest(block.high), block.deadline, self._node, segments)
        yield from self._wire.ship(block, to, self._node, done.carry, self.table.gather)

    def finish(self) -> None:
        """Add the hop's work to the report, which travels on, and remove what was put aside."""
        os.unlink(self._draft)
        self.report.hops[self._hop].rows_shuffled += self._taken
        work = self._prober.work
        for hop in set(work.rows_in) | set(work.pairs):
            seen = self.report.hops[hop]
            self.report.hops[hop] = HopWork(
                seen.rows_in + work.rows_in[hop],
                seen.rows_shuffled,
                seen.pairs + work.pairs[hop],
                seen.matches + work.matches[hop],
            )
        self.report.node_pairs[self._node] = self.report.node_pairs.get(self._node, 0) + sum(work.pairs.values())
        for name, cost in work.costs.items():
            self.report.costs[name] = cost.plus(self.report.costs.get(name))

    def message(self) -> pa.RecordBatch:
        """Return what the next hop's task of this node must know."""
        self._news.report = self.report
        return self._wire.messages([self._node], pickle.dumps(self._news))

    def closing(self) -> tuple[TaskReport, list[IntakeReport]]:
        """Do the node's merges; return its report, and the intake reports that came this way."""
        self.report.merged = merged(self._plan, self._node, writer(self._plan, self._name))
        self.report.chunks = [chunk for _, chunk in self._news.chunks]
        return self.report, self._news.intakes


def _mask(rows: pa.RecordBatch, name: str) -> Any:
    return rows.column(name).to_numpy(zero_copy_only=False)
