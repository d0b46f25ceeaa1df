"""At the end of a batch, what was heard of metadata becomes what is denied from the next one on."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from watersmeet.engine.hearing import Heard, Number
from watersmeet.engine.plan import BatchPlan
from watersmeet.model.metadata import Clustered, Ordered
from watersmeet.predicate.model import Column
from watersmeet.retention.denied import Source, shape_of
from watersmeet.retention.frontier import further
from watersmeet.state.marks import Marks, from_rows
from watersmeet.state.promised import MarkFile, Promised, Promises, at
from watersmeet.state.tables import coalesced, read_table, write_table


def marked(plan: BatchPlan, heard: Sequence[dict[Number, Heard]], name: str) -> Promises:
    """Return what the promises of all streams have come to after a batch.

    Args:
        plan: The batch's plan.
        heard: What each intake task heard.
        name: Unique to the task attempt.
    """
    return tuple(
        tuple(
            _after(plan, (stream, promise), at(plan.promises, stream, number), found, f"{name}-{stream}-{number}")
            for number, promise in enumerate(spec.promises)
            for found in [[part[stream, number] for part in heard if (stream, number) in part]]
        )
        for stream, spec in enumerate(plan.query.streams)
    )


def _after(plan: BatchPlan, source: Source, before: Promised, heard: Sequence[Heard], name: str) -> Promised:
    stream, promise = source
    files = tuple(part.file for part in heard if part.file is not None)
    if isinstance(promise, Ordered):
        kind, reached = plan.query.type_of(Column(stream, promise.field)), before.frontier
        for part in heard:
            reached = further(reached, part.frontier, kind, promise.falling)
        return before if reached == before.frontier else Promised(frontier=reached, batch=plan.batch)
    if isinstance(promise, Clustered):
        return _clustered(plan, source, promise, before, files, name) if files else before
    return _with(plan, source, before, files, name) if files else before


def _with(plan: BatchPlan, source: Source, before: Promised, files: tuple[MarkFile, ...], name: str) -> Promised:
    """Return a promise with more tables of marks; of the earlier ones those of a size are merged.

    [!] Not the new ones: no manifest names them yet, so that nobody would remove them.
    """
    shape, unique = shape_of(plan.query, source), f"{plan.name}-{name}"
    return Promised((*coalesced(plan.store, unique, before.files, shape), *files), before.runs)


def _clustered(
    plan: BatchPlan, source: Source, promise: Clustered, before: Promised, files: tuple[MarkFile, ...], name: str
) -> Promised:
    """Return a promise of clusters after a batch that brought some values.

    A value is over at the end of the (slack + 1)-th later batch that lacks it; batches that bring none don't count.
    """
    runs = (*before.runs, files)
    if len(runs) <= promise.slack + 1:
        return Promised(before.files, runs)
    shape, (oldest, *later) = shape_of(plan.query, source), runs
    values, batch = _values(plan, oldest), plan.batch
    for run in later:
        known = Marks(shape, from_rows(shape, [seen := _values(plan, run)], [seen], batch))
        values = values.take(pa.array(np.flatnonzero(known.find([values]) < 0)))
    over = Promised(before.files, tuple(later))
    if not len(values):
        return over
    table = from_rows(shape, [values], [values], batch)
    return _with(plan, source, over, (write_table(plan.store, f"{plan.name}-{name}-over", table),), name)


def _values(plan: BatchPlan, run: Sequence[MarkFile]) -> pa.Array:
    return pa.concat_arrays([read_table(plan.store, file).column(0) for file in run])
