"""The plans of the spilling thesis: a linear, a semi-bushy and a bushy tree of joins of two streams each.

Jbantova, "State spilling policies for state intensive continuous query plan evaluation" (2007), chapter 5. Its drawing
of the plans is lost; what its tables say of them leaves these: six streams and five joins for the linear plan (Q^L) and
the semi-bushy one (Q^M), and the smallest full tree, four streams and three joins, for the bushy one (Q^B). Each join
has an equality of its own, and is partitioned by it; all have the same window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import OWN_TIME, RESULT_TIME, NestedTimes, Output, Query, StreamSpec
from watersmeet.query.windows import Hopping
from watersmeet.workload.tuples import TIME

Shape = Literal["linear", "semi-bushy", "bushy"]
Tree = str | tuple["Tree", "Tree"]

TREES: Mapping[Shape, Tree] = {
    "linear": ((((("a", "b"), "c"), "d"), "e"), "f"),
    "semi-bushy": ((("a", "b"), ("c", "d")), ("e", "f")),
    "bushy": (("a", "b"), ("c", "d")),
}
SYMBOLS: Mapping[Shape, str] = {"linear": "Q^L", "semi-bushy": "Q^M", "bushy": "Q^B"}
STREAM = pa.schema([("id", pa.int64()), ("ts", TIME), ("x", pa.int64()), ("y", pa.int64())])
"""A stream's columns: `x` is what its own join compares, `y` what a join further up does."""


@dataclass(frozen=True, slots=True)
class Key:
    """A column that a join compares, as the stream that has it calls it."""

    stream: str
    column: Literal["x", "y"]


@dataclass(frozen=True, slots=True)
class Join:
    """A join of a plan.

    Attributes:
        path: Where it stands, as `watersmeet.testing.run` says it.
        sides: What it joins: streams by name, joins by path.
        keys: What it compares.
    """

    path: str
    sides: tuple[str, str]
    keys: tuple[Key, Key]


def joins_of(shape: Shape) -> list[Join]:
    """Return the joins of a plan, the outermost first."""
    return list(_joins(TREES[shape], "j"))


def _joins(tree: Tree, path: str) -> Iterator[Join]:
    assert isinstance(tree, tuple)
    sides = [part if isinstance(part, str) else f"{path}_{at}" for at, part in enumerate(tree)]
    yield Join(path, (sides[0], sides[1]), (_key(tree[0], last=True), _key(tree[1], last=False)))
    for part, side in zip(tree, sides, strict=True):
        if isinstance(part, tuple):
            yield from _joins(part, side)


def _key(tree: Tree, last: bool) -> Key:
    """Return what a side is joined by: a stream's own `x`, or the `y` of the stream of a join next to the other side.

    A side that is a join of two streams has two that are free, and no stream's `y` is asked for twice.
    """
    if isinstance(tree, str):
        return Key(tree, "x")
    names = leaves(tree)
    return Key(names[-1] if last else names[0], "y")


def leaves(tree: Tree) -> list[str]:
    """Return the streams of a tree from left to right."""
    return [tree] if isinstance(tree, str) else [name for part in tree for name in leaves(part)]


def queries(shape: Shape, window: Hopping) -> dict[str, Query]:
    """Return the joins of a plan by path; their results are flat."""
    inner: dict[str, Query] = {}
    for join in reversed(joins_of(shape)):
        streams = tuple(_stream(join.path, at, side, inner, window) for at, side in enumerate(join.sides))
        names = [_name(key, stream) for key, stream in zip(join.keys, streams, strict=True)]
        where = " = ".join(f"{stream.name}.{name}" for stream, name in zip(streams, names, strict=True))
        conjuncts = parse_where(where, [(stream.name, stream.schema) for stream in streams], (), Dialect())
        inner[join.path] = Query(streams, conjuncts, where, outputs=_outputs(streams))
    return dict(reversed(inner.items()))


def _stream(path: str, at: int, side: str, inner: Mapping[str, Query], window: Hopping) -> StreamSpec:
    if side not in inner:
        return StreamSpec(side, STREAM, 1, window, 0)
    query = inner[side]
    times = NestedTimes(OWN_TIME, False)
    return StreamSpec(f"s{at}", query.output_schema, len(query.outputs) - 1, window, 0, nested=times)


def _name(key: Key, stream: StreamSpec) -> str:
    return key.column if stream.name == key.stream else f"{key.stream}_{key.column}"


def _outputs(streams: Sequence[StreamSpec]) -> tuple[Output, ...]:
    """Return the ids of all streams and what joins further up may compare, under the streams' names, and the time."""
    outputs = [
        Output(name if stream.nested else f"{stream.name}_{name}", Column(at, field))
        for at, stream in enumerate(streams)
        for field, name in enumerate(stream.schema.names)
        if field != stream.time and name != "x"
    ]
    return (*outputs, Output("at", RESULT_TIME))
