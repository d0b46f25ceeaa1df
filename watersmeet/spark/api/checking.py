"""`join.check()`: what is worth knowing of a join before it starts."""

import time
from collections.abc import Iterator, Mapping
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from watersmeet.adapt.advice import check_streams
from watersmeet.adapt.auto import Auto
from watersmeet.adapt.findings import (
    Finding,
    check_definition,
    check_delay,
    check_predicate_costs,
    check_slots,
)
from watersmeet.spark.api.advise import measure, sample_rows
from watersmeet.spark.api.join import Join
from watersmeet.spark.api.samples import MOST_ROWS, sample_of, samples_of
from watersmeet.spark.run.frames import quoted
from watersmeet.state.store.store import Store


def check(join: Join, samples: Mapping[str, DataFrame] | None = None) -> list[Finding]:
    """Return what `Join.check` returns."""
    found = [*_shape(join)]
    if samples:
        check_streams("samples", samples, [stream.name for stream in join.query.streams])
        found += _sampled(join, samples)
    return found


def _shape(join: Join) -> Iterator[Finding]:
    yield from check_definition(join.query)
    if not isinstance(join.strategy, Auto):  # which takes no more nodes than are worth while
        yield from check_slots(getattr(join.strategy, "nodes", None), join.spark.sparkContext.defaultParallelism)
    for inner in join.inner.values():
        yield from _shape(inner)


def _sampled(join: Join, samples: Mapping[str, DataFrame]) -> Iterator[Finding]:
    for at, stream in enumerate(join.query.streams):
        if stream.name in samples and stream.nested is None and not stream.table:
            column = sample_of(join, at, samples[stream.name]).select(quoted(stream.schema.field(stream.time).name))
            times = column.limit(MOST_ROWS).toArrow().column(0).drop_null()
            yield from check_delay(stream, times.cast(pa.int64()).to_numpy().astype(np.int64))
    sampled = {stream.name for stream in join.query.streams if not stream.table}
    if not join.query.predicates or not sampled <= set(samples):
        return
    rows = sample_rows(join, samples_of(join, samples))
    with TemporaryDirectory(prefix="watersmeet-") as folder:
        began = time.perf_counter()
        measured = measure(join.query, join.ordering, rows, Store(folder))
        yield from check_predicate_costs(measured.predicates, time.perf_counter() - began)
