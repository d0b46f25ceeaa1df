"""Stages in one process: tasks run one after the other, blocks are handed on as Spark's shuffle would."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

import pyarrow as pa

from watersmeet.batch.worker import Worker
from watersmeet.exchange.message import Attempt, Task
from watersmeet.exchange.stages import Stage
from watersmeet.probe.partials import Partials

WORKER = Worker(time.perf_counter)


class Here(Stage):
    """Blocks in this process, partition by partition.

    Args:
        partitions: The blocks of each.
        number: Which stage of its job it is.
    """

    def __init__(self, partitions: Sequence[list[pa.RecordBatch]], number: int = 0) -> None:
        self._partitions, self._number = partitions, number

    def run(self, task: Task, schema: pa.Schema) -> Self:
        """Run a task over each partition; after each hop, every partial result must be found on exactly one node."""
        seen: Counter[Any] = Counter()
        made = [list(task(self._attempt(at, seen), blocks)) for at, blocks in enumerate(self._partitions)]
        twice = [found for found, times in seen.items() if times > 1]
        assert not twice, f"found on more than one node: {twice[:3]}"
        assert all(block.schema == schema for blocks in made for block in blocks)
        return type(self)(made, self._number + 1)

    def _attempt(self, at: int, seen: Counter[Any]) -> Attempt:
        def watch(course: int, found: Partials) -> None:
            streams = sorted(found.rows)
            members = zip(*(found.rows[s] for s in streams), strict=True)
            seen.update((course, tuple(streams), *refs) for refs in members)

        return attempt(at, f"s{self._number}p{at}", watch)

    def dealt(self, partitions: int) -> Self:
        """Hand each row to the partition that it names."""
        blocks = [block for found in self._partitions for block in found]
        named = [(block, block.column("node").to_numpy()) for block in blocks]
        dealt = [[block.filter(pa.array(nodes == at)) for block, nodes in named] for at in range(partitions)]
        return type(self)(dealt, self._number)

    def collect(self) -> list[pa.RecordBatch]:
        """Return the blocks of all partitions."""
        return [block for blocks in self._partitions for block in blocks]


def attempt(
    partition: int = 0, name: str = "here", watch: Callable[[int, Partials], None] = lambda course, found: None
) -> Attempt:
    """Return a task attempt of this process."""
    return Attempt(partition, name, partition, WORKER, time.process_time, time.time, watch)
