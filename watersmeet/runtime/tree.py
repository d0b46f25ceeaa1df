"""The joins of a query as a tree: a join's streams may be joins, planned and committed together. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from watersmeet.batch.operator import Operator
from watersmeet.batch.plan import BatchPlan, Kind
from watersmeet.batch.report import IntakeReport, TaskReport
from watersmeet.metadata.constraints import ConstraintId, InheritedPunctuations, MarkFile
from watersmeet.observe.progress import include_inner
from watersmeet.observe.warnings import Notice
from watersmeet.spilling.plan import SpillingReport
from watersmeet.spilling.tallies import codes_of
from watersmeet.spilling.units import Group, Tally
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.manifest.rounds import SpillPlan


class Job(NamedTuple):
    """The outcome of one join's job in a batch.

    Attributes:
        reports: The reports of its tasks.
        seconds: How long the job took, from start to end; None if unknown.
    """

    reports: Sequence[TaskReport]
    seconds: float | None = None

    @property
    def files(self) -> list[str]:
        """The files that hold its results."""
        return [file for report in self.reports for file in report.results.files]

    @property
    def state_files(self) -> frozenset[str]:
        """The files of state that it wrote; the manifest may not name all, since state may expire in the same batch."""
        chunks = (chunk for report in self.reports for chunk in report.state.chunks)
        constraints = (one for report in self.reports for stream in report.metadata.constraints for one in stream)
        propagated = (file.path for _, file in self.propagated)
        return frozenset(propagated).union(*(chunk.files for chunk in chunks), *(one.paths for one in constraints))

    @property
    def propagated(self) -> list[tuple[ConstraintId, MarkFile]]:
        """The punctuations for the enclosing join, each with the constraint that it comes from."""
        return [pair for report in self.reports for pair in report.metadata.propagated]

    @property
    def groups(self) -> dict[Group, Tally]:
        """The tallies of its groups of chunks."""
        return self._spilling.groups

    @property
    def credits(self) -> dict[int, int]:
        """How many results came from groups of inner joins, by code; see `SpillingReport`."""
        return self._spilling.credits

    @property
    def crossings(self) -> dict[tuple[int, int], int]:
        """How many results of inner joins went from a group, by code, to a partition; see `SpillingReport`."""
        return self._spilling.crossings

    @property
    def _spilling(self) -> SpillingReport:
        total = SpillingReport()
        for report in self.reports:
            total.add(report.spilling)
        return total

    @property
    def intakes(self) -> list[IntakeReport]:
        """The reports of its intake tasks."""
        return [intake for report in self.reports for intake in report.intakes]

    @property
    def reads(self) -> list[tuple[float, int]]:
        """For each block of input, when it was read by its host's clock, and its number of rows."""
        return [block for intake in self.intakes for block in intake.reads]


def inherit(plan: BatchPlan, inner: Mapping[int, Job]) -> BatchPlan:
    """Return the plan of a join, completed by the punctuations that its inner joins emitted in the same batch.

    Args:
        plan: The plan.
        inner: The finished jobs of its inner joins, by position.
    """
    inherited = {
        (at, number): tuple(file for source, file in job.propagated if source == constraint.source)
        for at, job in inner.items()
        for number, constraint in enumerate(plan.query.streams[at].constraints)
        if isinstance(constraint, InheritedPunctuations)
    }
    files = {number: files for number, files in inherited.items() if files}
    return replace(plan, metadata=replace(plan.metadata, inherited=files))


@dataclass(frozen=True)
class JoinTree:
    """A join and the joins that are streams of it.

    Attributes:
        operator: The join.
        inner: The joins that are streams of this one, by position.
        path: Its path in the tree: `j` is the root, `j_0` the join that is its first stream.
    """

    operator: Operator
    inner: Mapping[int, "JoinTree"] = field(default_factory=dict)
    path: str = "j"

    def walk(self) -> Iterator["JoinTree"]:
        """Yield the joins of the tree, this one first."""
        yield self
        for child in self.inner.values():
            yield from child.walk()

    @property
    def traced(self) -> frozenset[int]:
        """The streams whose rows carry the groups of inner joins that they came from."""
        return frozenset(at for at, child in self.inner.items() if child.operator.query.tracing == "results")

    def start(self) -> Manifest:
        """Return the state before the first batch."""
        return self.operator.start()

    def states(self, state: Manifest) -> Iterator[tuple["JoinTree", Manifest]]:
        """Yield each join with its part of the state, this one first."""
        yield self, state
        for at, child in self.inner.items():
            yield from child.states(state.inner.get(at) or child.start())

    def plan(self, before: Manifest, now: int | None, kind: Kind = "rows") -> dict[str, BatchPlan]:
        """Return each join's plan of the next batch, by path; inner joins come before those that read them.

        Args:
            before: The state.
            now: The driver's clock, in microseconds; None for a batch in which no event time is too far ahead.
            kind: What the batch is for.
        """
        outer = {
            child.path: tree.operator.query.streams[at] for tree in self.walk() for at, child in tree.inner.items()
        }
        plans = {}
        for tree, part in self.states(before):
            plan = tree.operator.plan(part, now, kind)
            propagated = outer[tree.path].inherited_punctuations if tree.path in outer else frozenset()
            plans[tree.path] = replace(
                plan,
                metadata=replace(plan.metadata, propagated=propagated),
                spilling=replace(plan.spilling, path=tree.path, traced=tree.traced),
            )
        return dict(reversed(plans.items()))

    def commit(self, before: Manifest, plans: Mapping[str, BatchPlan], jobs: Mapping[str, Job], now: int) -> Manifest:
        """Return the state after a batch.

        Args:
            before: The state before it.
            plans: The plan of each join, by path.
            jobs: The finished job of each join, by path.
            now: The driver's clock, in microseconds.

        Raises:
            StateError: If a node's report is missing.
        """
        inner = {
            at: child.commit(before.inner.get(at) or child.start(), plans, jobs, now)
            for at, child in self.inner.items()
        }
        job = jobs[self.path]
        after = self.operator.commit(before, plans[self.path], job.reports, now, inner, job.seconds)
        if job.credits or job.crossings:
            after = self._record_fed(self._credit_groups(after, job.credits), job.crossings)
        names = {self.operator.query.streams[at].name: part.progress for at, part in inner.items()}
        return replace(after, progress=include_inner(after.progress, names))

    def _credit_groups(self, state: Manifest, credits: Mapping[int, int]) -> Manifest:
        """Return a state in which inner joins credit results to the groups that they came from."""
        inner = {}
        for at, child in self.inner.items():
            own = child._credit_groups(state.inner[at], credits)
            groups = codes_of(child.path, own.ledger.worth)
            final = {groups[code]: count for code, count in credits.items() if code in groups}
            inner[at] = replace(own, ledger=own.ledger.with_credits(final))
        return replace(state, inner=inner)

    def _record_fed(self, state: Manifest, crossings: Mapping[tuple[int, int], int]) -> Manifest:
        """Return a state that records into which of its partitions the results of inner joins went."""
        ledger = state.ledger
        for at, child in self.inner.items():
            groups = codes_of(child.path, state.inner[at].ledger.worth)
            ledger = ledger.with_crossings(child.path, groups, crossings)
        return replace(state, ledger=ledger)

    def decided(self, state: Manifest, choices: Mapping[str, SpillPlan]) -> Manifest:
        """Return a state with decisions, by path, on what the next batch spills and which owed probes it makes."""
        inner = {at: child.decided(state.inner.get(at) or child.start(), choices) for at, child in self.inner.items()}
        return (choices.get(self.path) or SpillPlan()).apply(replace(state, inner=inner))

    def notices(self, state: Manifest) -> list[Notice]:
        """Return the warnings of all joins; their kinds contain the join's path."""
        return [
            Notice(f"{kind} in {tree.path}", message)
            for tree, part in self.states(state)
            for kind, message in zip(part.learned.warned, part.progress["warnings"], strict=True)
        ]

    def sides(self, jobs: Mapping[str, Job]) -> dict[str, dict[str, list[str]]]:
        """Return the files of side outputs, by kind and stream; streams of several joins may share a name."""
        by_kind: dict[str, dict[str, list[str]]] = {}
        for tree in self.walk():
            job = jobs[tree.path]
            sides = [side for intake in job.intakes for side in intake.files]
            sides += [side for report in job.reports for side in report.metadata.sides]
            for kind, stream, file in sides:
                by_kind.setdefault(kind, {}).setdefault(tree.operator.query.streams[stream].name, []).append(file)
        return by_kind
