"""Propagation: a punctuation is emitted once no stored tuple of its stream matches it.

From then on no result can have a member that matches it (Ding, Rundensteiner and Heineman, "MJoin", section 4). This is
decided by the state before a batch, so that a punctuation may be emitted one batch later than it could be.
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
"""The column of waiting punctuations that tells when they take effect; see `marks`."""


def is_propagated(query: Query, stream: int, constraint: FlaggedPunctuations) -> bool:
    """Tell whether the output has every column that the punctuations match."""
    return all(Column(stream, field) in query.output_columns for field in fields_of(constraint))


def inherit_punctuations(query: Query, outputs: Mapping[Column, Sequence[int]]) -> Iterator[InheritedPunctuations]:
    """Yield the constraints that a join's punctuations put on its results, where these are a stream of another join.

    A column also stands for those that `where` equates with it, since results agree in them.

    Args:
        query: The join.
        outputs: The positions of a column in the results, for those that are output unchanged.
    """
    classes = EqualityClasses(query)
    for stream, spec in enumerate(query.streams):
        for number, constraint in enumerate(spec.constraints):
            if isinstance(constraint, PunctuationScheme):
                columns = [Column(stream, field) for field in fields_of(constraint)]
                alike = [[column, *(other for other, _ in classes.equal_columns(column))] for column in columns]
                places = [[at for column in equal for at in outputs.get(column, ())] for equal in alike]
                for fields in product(*places):
                    yield InheritedPunctuations((stream, number), fields, ranges_of(constraint))


def drop_useless_punctuations(query: Query) -> Query:
    """Return a join without inherited punctuations that are of no use, so that their marks are not kept.

    They are of use if they close their stream, can be inherited by an outer join, or reveal orphans.
    """
    closing_rules, streams = ClosingRules(query), range(len(query.streams))
    rules = [rule for at in streams for rule in closing_rules.rules_for(at, {*streams} - {at})]
    used = {rule.depends_on for rule in rules}
    outputs = {output.column: [0] for output in query.outputs}
    inheritable = {constraint.source for constraint in inherit_punctuations(query, outputs)}
    keys = [key for stream in query.streams for key in stream.constraints if isinstance(key, ForeignKey)]
    parents = {key.parent for key in keys}

    def is_useful(at: int, number: int, constraint: Constraint) -> bool:
        if not isinstance(constraint, InheritedPunctuations):
            return True
        reveals_orphans = any(Column(at, field) in parents for field in fields_of(constraint))
        return reveals_orphans or (at, constraint) in used or (at, number) in inheritable

    return replace(
        query,
        streams=tuple(
            replace(stream, constraints=tuple(c for n, c in enumerate(stream.constraints) if is_useful(at, n, c)))
            for at, stream in enumerate(query.streams)
        ),
    )


def make_waiting_rows(
    constraint: FlaggedPunctuations, stream: int, rows: pa.RecordBatch, since: Ints | int
) -> pa.RecordBatch:
    """Return punctuations in the form in which they wait: the ends of their patterns, and when they take effect."""
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
    """Return the positions of the waiting punctuations that may be emitted: in effect, and matching no stored tuple.

    Args:
        constraint: The constraint to which they belong.
        stream: Its stream.
        waiting: The punctuations, as `make_waiting_rows` returns them.
        stored: The stored tuples.
        watermark: The join's watermark; None for minus infinity.
        duck: Finds the tuples that match.
    """
    since = waiting.column(SINCE).to_numpy()
    effective = np.flatnonzero((since == ALWAYS) | (False if watermark is None else since < watermark))
    in_effect = waiting.take(pa.array(effective))
    live = {f"c{at}": stored.column(Column(stream, field)) for at, field in enumerate(fields_of(constraint))}
    conditions = [
        f"c{at} BETWEEN low{at} AND high{at}" if ranged else f"c{at} = low{at}"
        for at, ranged in enumerate(ranges_of(constraint))
    ]
    ends = {name: in_effect.column(name) for name in in_effect.schema.names if name != SINCE}
    return effective[duck.find_unmatched(ends, live, conditions, (len(effective), stored.rows(stream)))]


def make_inherited_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return emitted punctuations in the form in which they wait in an outer join, where they take effect at once."""
    since = pa.array(np.full(rows.num_rows, ALWAYS, np.int64))
    return rows.set_column(rows.schema.get_field_index(SINCE), SINCE, since)


def make_output_rows(query: Query, stream: int, constraint: FlaggedPunctuations, rows: pa.RecordBatch) -> pa.Table:
    """Return punctuations as they are written to the output: a column for each constant, two for each range."""
    names = query.streams[stream].schema.names
    columns: dict[str, pa.Array] = {}
    for at, pattern in enumerate(constraint.patterns):
        name = names[pattern.field]
        ends: Sequence[tuple[str, str]] = (
            [(name, f"low{at}")] if pattern.constant else [(f"{name}_low", f"low{at}"), (f"{name}_high", f"high{at}")]
        )
        columns |= {output: rows.column(end) for output, end in ends}
    return pa.table(columns)
