"""The end of a batch on a node: chunks are merged, dead rows purged and constraints updated."""

from collections.abc import Iterable, Mapping, Sequence

from watersmeet.arrays import Ints
from watersmeet.batch.intake import writer
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import StateReport
from watersmeet.batch.worker import Clock
from watersmeet.metadata.collector import CollectedMetadata
from watersmeet.metadata.constraint_updater import ConstraintUpdater
from watersmeet.metadata.constraints import ConstraintId
from watersmeet.metadata.dead_rule import find_dead_rows
from watersmeet.metadata.expiry import find_superseded
from watersmeet.metadata.plan import MetadataReport
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.store.chunk_writer import mark_dead


class Finish:
    """Writes what a task attempt adds to the state at the end of a batch; it counts once a manifest names it.

    Args:
        plan: The batch's plan.
        duck: Evaluates conditions over stored tuples.
        name: Unique to the task attempt.
        cpu: Returns the CPU seconds that the process has used.
    """

    def __init__(self, plan: BatchPlan, duck: Duck, name: str, cpu: Clock) -> None:
        self._plan, self._duck, self._name, self._cpu = plan, duck, name, cpu

    def store(self, node: int) -> StateReport:
        """Merge a node's chunks as planned, and if the batch purges, write which rows have become dead; report both."""
        report, name = StateReport(), f"{self._name}n{node}"
        started = self._cpu()
        dead = self.dead(node) if self._plan.metadata.purge else {}
        report.purging += self._cpu() - started
        write = writer(self._plan, name)
        merges = [merge for merge in self._plan.merges if merge.node == node]
        chunks = [(write.merge(merge, at, dead), merge.chunks) for at, merge in enumerate(merges)]
        report.merged = [(chunk, tuple(old.id for old in parts)) for chunk, parts in chunks if chunk is not None]
        if dead:
            started = self._cpu()
            report.purged = self._write_deletions(report, dead, name)
            report.purging += self._cpu() - started
        return report

    def dead(self, node: int) -> dict[str, Ints]:
        """Return the rows of a node's chunks that have become dead, or superseded by newer ones, by the chunks' ids."""
        plan = self._plan
        own = [chunk for chunk in plan.chunks if chunk.owners[0] == node]
        if plan.query.optional:
            return find_superseded(plan.query, plan.store, plan.chunks, own, plan.times.settled)
        return find_dead_rows(plan.query, plan.store, plan.chunks, own, plan.closed(), self._duck)

    def _write_deletions(self, report: StateReport, dead: Mapping[str, Ints], name: str) -> list[Chunk]:
        """Write which rows of unmerged chunks are dead, and return these chunks; merging drops dead rows anyway."""
        replaced = {key for _, parts in report.merged for key in parts}
        rest = [chunk for chunk in self._plan.chunks if chunk.id in dead and chunk.id not in replaced]
        return mark_dead(self._plan.store, rest, f"{self._plan.name}-{name}", dead)

    def fresh(self, chunks: Iterable[Chunk], ordinals: Mapping[str, Ints]) -> list[Chunk]:
        """Return the batch's chunks, after writing the arrival ordinals of those that have any."""
        write = writer(self._plan, self._name)
        return [write.write_ordinals(c, ordinals[c.id]) if c.id in ordinals else c for c in chunks]

    def mark(self, marks: Sequence[Mapping[ConstraintId, CollectedMetadata]]) -> MetadataReport:
        """Write and report the new state of constraints, from what intake tasks collected; does nothing in a round."""
        if not self._plan.query.constrained_streams or self._plan.kind == "round":
            return MetadataReport()
        return ConstraintUpdater(self._plan, self._name, self._duck).update(marks)
