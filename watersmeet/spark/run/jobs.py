"""The Spark jobs of a batch: one for each join of the tree, and one more where Spark has to decide what is left."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from watersmeet.batch.fuse import RESULTS
from watersmeet.batch.plan import BatchPlan
from watersmeet.batch.report import TaskReport
from watersmeet.errors import PredicateError
from watersmeet.exchange.message import REPORT, received
from watersmeet.exchange.tasks import decided
from watersmeet.metadata.constraint_state import MARKS
from watersmeet.runtime.tree import Job, inherit
from watersmeet.spark.checkpoint.paths import Location
from watersmeet.spark.run.exchange import EXCHANGES
from watersmeet.spark.run.fetch import fetch_all
from watersmeet.spark.run.frames import spark_schema
from watersmeet.spark.run.naming import named
from watersmeet.spark.run.tasks import on_spark
from watersmeet.spark.run.tree import FrameTree
from watersmeet.spark.run.workers import is_death, survive
from watersmeet.spark.sql.catalyst import quiet, said
from watersmeet.spilling import tallies
from watersmeet.state.chunks.chunk import CHUNKS

TRIES = 4
DECIDED = "decided"
"""In the names of files of results that Spark decided."""
CANNOT_ROLL_BACK = "A shuffle map stage with indeterminate output was failed and retried"


@dataclass(frozen=True, slots=True)
class Jobs:
    """Runs the joins of a tree over one batch.

    Attributes:
        frames: The tree.
        batch: The batch.
        place: Where the store is.
        name: The store's name, which no other has.
        exchange: How partial results travel.
        everything: Whether rows come with all columns, for side outputs.
        clock: Returns seconds.
        after: Called when a join's job is done.
    """

    frames: FrameTree
    batch: DataFrame
    place: Location
    name: str
    exchange: str
    everything: bool
    clock: Callable[[], float]
    after: Callable[[], None]

    def run(self, plans: Mapping[str, BatchPlan]) -> dict[str, Job]:
        """Run all joins as planned, in this order: results of inner joins are rows of those that follow."""
        nodes = {node.path: node for node in self.frames.walk()}
        done: dict[str, Job] = {}
        for path, plan in plans.items():
            done[path] = self._job(nodes[path], plan, done)
            self.after()
        return done

    def read(self, node: FrameTree, files: Sequence[str], number: int) -> DataFrame:
        """Return all results of a join in the batch of that number, in files of the store, as a frame."""
        places = [place.spark for place in self.places(files)]
        return node.read(self.batch, places, f"{self.name} {node.path} {number}")

    def places(self, files: Sequence[str]) -> list[Location]:
        """Return where files of the store are."""
        return [self.place.inside(file) for file in files]

    def _job(self, node: FrameTree, plan: BatchPlan, done: Mapping[str, Job]) -> Job:
        results = {at: self.read(child, done[child.path].files, plan.batch) for at, child in node.inner.items()}
        rows = node.rows(self.batch, results, self.everything, plan.batch == 0)
        began = self.clock()
        streams = [stream.name for stream in plan.query.streams]
        joined, hops = f"batch {plan.batch}, join of {', '.join(streams)}", len(streams) - 1
        with named(self.batch.sparkSession, f"{joined}: intake and {hops} {'hop' if hops == 1 else 'hops'}"):
            heard = inherit(plan, {at: done[child.path] for at, child in node.inner.items()})
            reports = survive(lambda: self._exchanged(rows, heard), lambda: _clear(plan, ""))
        with named(self.batch.sparkSession, f"{joined}: conditions left to Spark"):
            self._decide(node, plan, reports)
        return Job(reports, self.clock() - began)

    def _exchanged(self, rows: DataFrame, plan: BatchPlan) -> list[TaskReport]:
        """Run a join's job, from the start again if Spark gave it up.

        [!] Reports name the files of the task attempt, so a stage that runs again (its shuffle files were lost) answers
        in other words than the first time. Spark sees that by checksum and, since it can't undo tasks that have
        finished meanwhile, gives the whole job up. A new try shares nothing with the old one: all file names are new.
        """
        for left in reversed(range(TRIES)):
            try:
                return EXCHANGES[self.exchange](rows, plan)
            except Exception as error:
                if not left or CANNOT_ROLL_BACK not in str(error):
                    raise
        raise AssertionError("unreachable")

    def _decide(self, node: FrameTree, plan: BatchPlan, reports: Sequence[TaskReport]) -> None:
        """Let Spark decide the combinations that tasks left to it; those that are results join the reports.

        Raises:
            PredicateError: If a conjunct raises.
        """
        files = [file for report in reports for file in report.results.pending]
        if not files:
            return
        keep = on_spark(decided(plan.store, node.query, f"{plan.name}-{DECIDED}"))
        try:
            with quiet():
                undecided = node.decide(self.batch, [place.spark for place in self.places(files)])
                bodies = undecided.mapInArrow(keep, spark_schema(REPORT))
                found = received(survive(lambda: fetch_all(bodies), lambda: _clear(plan, DECIDED)).to_batches())
        except (PySparkException, Py4JError) as error:
            if is_death(error):
                raise
            raise PredicateError(f"`where` raised {said(error)}; the batch was not written.") from None
        reports[0].results.rows += sum(rows for rows, _, _ in found)
        reports[0].results.files += [file for _, written, _ in found for file in written]
        tallies.decided(plan, reports, [codes for _, _, codes in found])
        plan.store.remove(files)


def _clear(plan: BatchPlan, part: str) -> None:
    """Remove what tasks of a job that was given up have written; what those still at work write, the next start does.

    Args:
        plan: The plan of the join's batch.
        part: How the names of the job's files go on after the plan's.
    """
    names = (name for folder in (CHUNKS, MARKS, RESULTS, "sides") for name in plan.store.names(folder))
    plan.store.remove([name for name in names if name.partition("/")[2].startswith(f"{plan.name}-{part}")])
