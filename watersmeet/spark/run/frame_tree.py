"""Joins of joins: one input frame for all; inner joins run first, and their results are rows of the outer one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.batch.operator import Operator
from watersmeet.batch.plan import Host
from watersmeet.exchange.tasks import TRACED
from watersmeet.ordering import Ordering
from watersmeet.placement import Strategy
from watersmeet.query.query import Query
from watersmeet.runtime.tree import JoinTree
from watersmeet.spark.output.lost_columns import FileColumns
from watersmeet.spark.run.frames import TRACE_KIND, HiddenValues, PunctuationFrame, tag_rows, union
from watersmeet.spilling.options import Spill
from watersmeet.state.store.store import Store

JOIN = "_join"
Read = Callable[[DataFrame, Sequence[str], str], DataFrame]
Decide = Callable[[DataFrame, Sequence[str]], DataFrame]


@dataclass(frozen=True)
class FrameTree:
    """The frames of a join and of the joins that are streams of it; each runs as one job a batch.

    Attributes:
        query: The join.
        frames: Its inputs by position; None where the stream is an inner join.
        strategy: The placement.
        ordering: The order in which streams are probed.
        read: Reads all result files of a batch as a frame of the output's schema, after the traces if results have
            them; its last argument is unique to the batch.
        decide: Reads files of combinations that Spark has to decide, as a frame of those that are results.
        computed: How the hidden columns of each stream are computed.
        inner: The joins that are streams of this one, by position.
        path: The join's place in the tree; part of the names of its files.
        punctuations: Punctuations from frames of their own.
        purge_every: How many batches pass between searches for dead tuples.
        remember: For how many microseconds of the watermark marks are remembered; None for ever.
        spill: When units are spilled, in the whole tree; None for never.
        tables: The frames of tables, by position; they are read in the first batch, or in each.
        columns: The columns that the files of tables read in each batch had at first, by position.
    """

    query: Query
    frames: tuple[DataFrame | None, ...]
    strategy: Strategy
    ordering: Ordering
    read: Read
    decide: Decide
    computed: Sequence[HiddenValues]
    inner: Mapping[int, "FrameTree"] = field(default_factory=dict)
    path: str = "j"
    punctuations: Sequence[PunctuationFrame] = ()
    purge_every: int = 1
    remember: int | None = None
    spill: Spill | None = None
    tables: Mapping[int, DataFrame] = field(default_factory=dict)
    columns: Mapping[int, FileColumns] = field(default_factory=dict)

    @property
    def spark(self) -> SparkSession:
        """The session of the inputs."""
        return next(frame for node in self.walk() for frame in node.frames if frame is not None).sparkSession

    def walk(self) -> Iterator["FrameTree"]:
        """Yield the joins of the tree, this one first."""
        yield self
        for node in self.inner.values():
            yield from node.walk()

    def operators(
        self,
        store: Store,
        run: str,
        host: Host,
        sides: bool = False,
        samples: frozenset[str] | None = None,
        near_misses: int = 0,
        backlog: bool = False,
    ) -> JoinTree:
        """Return the operators of the tree's joins for a run.

        Args:
            store: The store.
            run: What distinguishes the run's files from those of others.
            host: Where the joins run.
            sides: See `Operator`, as for the others.
            samples: The columns that samples of rows show; None for all.
            near_misses: How many near-misses are shown of each condition and batch.
            backlog: Whether the query reads all there is and ends.
        """
        options = (sides, samples, near_misses, backlog)
        inner = {at: child.operators(store, run, host, *options) for at, child in self.inner.items()}
        own = (self.query, self.strategy, store, f"{run}{self.path}", self.ordering)
        join = Operator(*own, host, *options, purge_every=self.purge_every, remember=self.remember)
        own_marks = (at for at in inner if (nested := self.query.streams[at].nested) and not nested.delayed)
        join = replace(join, exempt=frozenset(own_marks))
        if self.spill is not None:
            join = replace(join, tallies=True, partitions=self.spill.partitions)
        return JoinTree(join, inner, self.path)

    @property
    def has_inputs(self) -> bool:
        """Whether it has inputs beside its inner joins."""
        return any(self.frames) or bool(self.punctuations)

    def input(self, everything: bool) -> DataFrame:
        """Return all inputs of the tree as one frame, for Spark to cut into batches.

        If there are inner joins, it has a struct column per join, by path, and `JOIN` says which of them a row has.

        Args:
            everything: Whether rows come with all columns, for side outputs.
        """
        inputs = {
            node.path: union(node.query, node.frames, everything, node.computed, node.punctuations)
            for node in self.walk()
            if node.has_inputs
        }
        if not self.inner:
            return inputs[self.path]
        wrapped = [
            frame.select(F.lit(path).alias(JOIN), *(_struct(other, at, at == path) for at, other in inputs.items()))
            for path, frame in inputs.items()
        ]
        return reduce(DataFrame.union, wrapped)

    def rows(self, batch: DataFrame, results: Mapping[int, DataFrame], everything: bool, first: bool) -> DataFrame:
        """Return this join's rows of a batch: of its own inputs, its inner joins' results, and its tables.

        Args:
            batch: The batch.
            results: The results of its inner joins, by position.
            everything: Whether rows come with all columns.
            first: Whether it is the first batch, in which all tables are read.

        Raises:
            StateError: If a table's files have lost a column.
        """
        tables = self._read_tables(batch, everything, first)
        if JOIN not in batch.columns:
            return reduce(DataFrame.union, tables, batch)
        traced = {at for at, node in self.inner.items() if node.query.tracing == "results"}
        parts = [
            tag_rows(self.query, position, frame, everything, self.computed[position], position in traced)
            for position, frame in results.items()
        ]
        untraced = [F.lit(None).cast(TRACE_KIND).alias(TRACED)] if traced else []
        parts += [frame.select("*", *untraced) for frame in tables]
        if self.has_inputs:
            parts.append(batch.where(F.col(JOIN) == self.path).select(f"{self.path}.*", *untraced))
        return reduce(DataFrame.union, parts)

    def _read_tables(self, batch: DataFrame, everything: bool, first: bool) -> list[DataFrame]:
        """Return the rows of the tables that are read in this batch, all in the first one; refreshes lists of files.

        Raises:
            StateError: If a refreshed table's files have lost a column.
        """
        parts = []
        for at in (at for at in self.tables if first or self.query.streams[at].refreshed):
            table = _in_session(self.tables[at], batch)
            if at in self.columns:
                self.columns[at].check(table, partial(tag_rows, self.query, at, table, False, self.computed[at]))
            parts.append(tag_rows(self.query, at, table, everything, self.computed[at]))
        return parts


def _in_session(frame: DataFrame, batch: DataFrame) -> DataFrame:
    """Return a frame in the session of a batch, which has its own settings; its list of files is refreshed."""
    session = batch.sparkSession
    jvm: Any = session._jvm
    plan = frame._jdf.queryExecution().analyzed()
    plan.refresh()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def _struct(frame: DataFrame, path: str, own: bool) -> Column:
    """Return a join's columns as one struct; NULL in the rows of other joins."""
    value = F.struct(*(F.col(name) for name in frame.columns)) if own else F.lit(None)
    return value.cast(frame.schema).alias(path)
