"""Propagation: a punctuation goes to the output once no stored tuple of its stream matches it.

Ding, Rundensteiner and Heineman, "MJoin", section 4: from then on no result can have a member that it speaks of. It is
judged by the state before a batch, so that it may come one batch later than it could.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa

from watersmeet.arrays import Ints
from watersmeet.metadata.closing import ClosingRules, EqualityClasses
from watersmeet.metadata.constraints import (
    Constraint,
    FlaggedPunctuations,
    ForeignKey,
    InheritedPunctuations,
    PunctuationScheme,
    fields_of,
    ranges_of,
)
from watersmeet.metadata.marks import ALWAYS
from watersmeet.metadata.stored_columns import StoredColumns
from watersmeet.predicate.model import Column
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.query.query import Query

SINCE = "since"


def is_propagated(query: Query, stream: int, constraint: FlaggedPunctuations) -> bool:
    """Tell whether the output shows every column that a punctuation speaks of."""
    return all(Column(stream, field) in query.output_columns for field in fields_of(constraint))


def inherit_punctuations(query: Query, shown: Mapping[Column, Sequence[int]]) -> Iterator[InheritedPunctuations]:
    """Yield what a join's punctuations promise of its results, as a stream of another join.

    A column stands for those that `where` equates with it, too: results are alike in them.

    Args:
        query: The join.
        shown: The positions at which its results show a column as it is.
    """
    equal = EqualityClasses(query)
    for stream, spec in enumerate(query.streams):
        for number, constraint in enumerate(spec.constraints):
            if isinstance(constraint, PunctuationScheme):
                columns = [Column(stream, field) for field in fields_of(constraint)]
                alike = [[column, *(other for other, _ in equal.equal_columns(column))] for column in columns]
                places = [[at for column in found for at in shown.get(column, ())] for found in alike]
                for fields in product(*places):
                    yield InheritedPunctuations((stream, number), fields, ranges_of(constraint))


def drop_useless_punctuations(query: Query) -> Query:
    """Return a join without what it would inherit in vain: marks are kept for ever, and nobody asked for these.

    A promise is of use if it closes its stream, can be handed on, or tells of orphans.
    """
    closings, streams = ClosingRules(query), range(len(query.streams))
    ways = [way for at in streams for way in closings.rules_for(at, [other for other in streams if other != at])]
    used = {way.depends_on for way in ways}
    goes_on = {
        constraint.source
        for constraint in inherit_punctuations(query, {output.column: [0] for output in query.outputs})
    }
    parents = {p.parent for stream in query.streams for p in stream.constraints if isinstance(p, ForeignKey)}

    def wanted(at: int, number: int, constraint: Constraint) -> bool:
        told = any(Column(at, field) in parents for field in fields_of(constraint))
        return (
            not isinstance(constraint, InheritedPunctuations)
            or told
            or (at, constraint) in used
            or (at, number) in goes_on
        )

    kept = [
        [p for n, p in enumerate(stream.constraints) if wanted(at, n, p)] for at, stream in enumerate(query.streams)
    ]
    named = zip(query.streams, kept, strict=True)
    return replace(
        query, streams=tuple(replace(stream, constraints=tuple(constraints)) for stream, constraints in named)
    )


def make_waiting_rows(
    constraint: FlaggedPunctuations, stream: int, rows: pa.RecordBatch, since: Ints | int
) -> pa.RecordBatch:
    """Return punctuations as they wait: the ends of their patterns, and since when they are in effect."""
    columns = {
        f"{end}{at}": rows.column(f"s{stream}_{getattr(pattern, end)}")
        for at, pattern in enumerate(constraint.patterns)
        for end in ("low", "high")
    }
    return pa.record_batch({**columns, SINCE: pa.array(np.broadcast_to(np.asarray(since, np.int64), rows.num_rows))})


def find_ready(
    constraint: PunctuationScheme,
    stream: int,
    waiting: pa.RecordBatch,
    stored: StoredColumns,
    watermark: int | None,
    duck: Duck,
) -> Ints:
    """Return which of the punctuations that wait may go to the output.

    Args:
        promise: The kind of punctuation.
        stream: Its stream.
        waiting: The punctuations, as `make_waiting_rows` returns them.
        stored: The tuples that are stored.
        watermark: The join's watermark; None for minus infinity.
        duck: What looks for tuples that match.
    """
    since = waiting.column(SINCE).to_numpy()
    effective = np.flatnonzero((since == ALWAYS) | (False if watermark is None else since < watermark))
    asked = waiting.take(pa.array(effective))
    live = {f"c{at}": stored.column(Column(stream, field)) for at, field in enumerate(fields_of(constraint))}
    conditions = [
        f"c{at} BETWEEN low{at} AND high{at}" if ranged else f"c{at} = low{at}"
        for at, ranged in enumerate(ranges_of(constraint))
    ]
    ends = {name: asked.column(name) for name in asked.schema.names if name != SINCE}
    return effective[duck.find_unmatched(ends, live, conditions, (len(effective), stored.rows(stream)))]


def make_inherited_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return punctuations that go to the output as they wait in an outer join: there they are in effect at once."""
    since = pa.array(np.full(rows.num_rows, ALWAYS, np.int64))
    return rows.set_column(rows.schema.get_field_index(SINCE), SINCE, since)


def make_output_rows(query: Query, stream: int, constraint: FlaggedPunctuations, rows: pa.RecordBatch) -> pa.Table:
    """Return punctuations as they are written: a column for each constant, two for each range."""
    names = query.streams[stream].schema.names
    columns: dict[str, pa.Array] = {}
    for at, pattern in enumerate(constraint.patterns):
        name = names[pattern.field]
        ends: Sequence[tuple[str, str]] = (
            [(name, f"low{at}")] if pattern.constant else [(f"{name}_low", f"low{at}"), (f"{name}_high", f"high{at}")]
        )
        columns |= {shown: rows.column(end) for shown, end in ends}
    return pa.table(columns)
