"""A join written down beside its state, so that the command line can answer why without the program or Spark."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.model import metadata, windows
from watersmeet.model import query as queries
from watersmeet.model.query import Query
from watersmeet.predicate import model as predicates
from watersmeet.predicate import terms
from watersmeet.predicate.model import Column
from watersmeet.state.claim import DESCRIPTION
from watersmeet.state.sealed import seal, unseal
from watersmeet.state.store import Store
from watersmeet.why.outputs import Outputs, Sink

FILE = "why.json"
_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(queries.Query, queries.StreamSpec, queries.Test, queries.Nested, queries.Output),
        *(windows.Window, windows.Sliding, windows.Hopping, windows.Count),
        *(metadata.Key, metadata.Clustered, metadata.Ordered, metadata.ForeignKey, metadata.Pattern),
        *(metadata.Punctuated, metadata.Inherited),
        *(predicates.Column, predicates.Conjunct, predicates.Call, predicates.Argument, predicates.Bound),
        *(predicates.Operand, predicates.Operation, predicates.Hidden, predicates.Order, predicates.Fixed),
        *(predicates.Gap, predicates.Compared, predicates.Comparing),
        *(predicates.Dialect, terms.Leaf, terms.Apply, terms.Vector, terms.Text, terms.Comparison, Sink),
    )
}
"""What a join is made of; nothing else is read back."""


@dataclass(frozen=True, slots=True)
class Written:
    """A join as it stands beside its state.

    Attributes:
        query: The join; Python predicates are left out.
        outputs: What it has put out, as files tell.
    """

    query: Query
    outputs: Outputs


def write(store: Store, joins: Mapping[str, Written]) -> None:
    """Write the joins of a tree down, by where they stand in it; who does so must hold the store's lease."""
    made = {
        path: {
            "query": _plain(replace(written.query, predicates=())),
            "owner": written.outputs.owner,
            "sides": {kind: dict(streams) for kind, streams in written.outputs.sides.items()},
            "sink": None if written.outputs.sink is None else list(written.outputs.sink),
            "shows": [[column.stream, column.field, *names] for column, names in written.outputs.shows.items()],
        }
        for path, written in joins.items()
    }
    store.overwrite(FILE, seal(made))


def written(store: Store) -> dict[str, Written]:
    """Return the joins of a tree, by where they stand in it.

    Raises:
        StateError: If there are none, or what stands there is damaged, or another checkpoint's.
    """
    data = store.read(FILE)
    if not data:
        raise StateError(
            f"There is no {FILE} under {store.root}: it is not the checkpoint of a join, or one that an earlier "
            "version started last; start the query once."
        )
    what, remedy = f"The description of the join, {store.root}/{FILE},", "start the query once, which writes it anew"
    found = unseal(data, what, remedy)
    if (name := _name_of(store)) and not {part["owner"] for part in found.values()} <= {"", name}:
        raise StateError(f"{what} is another checkpoint's; {remedy}.")
    return {path: Written(_made(part["query"]), _outputs(part)) for path, part in found.items()}


def _name_of(store: Store) -> str:
    """Return the name of a store; empty if it has none, or nobody can read it."""
    try:
        return str(unseal(store.read(DESCRIPTION) or b"", "")["name"])
    except StateError:
        return ""


def _outputs(part: Mapping[str, Any]) -> Outputs:
    shows = {Column(stream, field): tuple(names) for stream, field, *names in part["shows"]}
    return Outputs(part["owner"], part["sides"], None if part["sink"] is None else Sink(*part["sink"]), shows)


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it."""
    if isinstance(value, pa.DataType):
        value = pa.schema([("type", value)])
    if isinstance(value, pa.Schema):
        return {"is": "Schema", "of": base64.b64encode(value.serialize()).decode()}
    if isinstance(value, bytes | Decimal):
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
        return {"is": type(value).__name__, "of": text}
    if is_dataclass(value):
        name = type(value).__name__
        if _KINDS.get(name) is not type(value):
            raise TypeError(f"{type(value)} is no part of a join.")
        return {"is": name, "of": {part.name: _plain(getattr(value, part.name)) for part in fields(value)}}
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def _made(plain: Any) -> Any:
    """Return what `_plain` was given; types come as a schema of one field."""
    if isinstance(plain, list):
        return tuple(_made(part) for part in plain)
    if not isinstance(plain, dict):
        return plain
    kind, of = plain["is"], plain["of"]
    if kind == "Schema":
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(of)))
    if kind in ("bytes", "Decimal"):
        return base64.b64decode(of) if kind == "bytes" else Decimal(of)
    made = {name: _made(part) for name, part in of.items()}
    if kind == "Hidden":
        made["type"] = made["type"].field(0).type
    return _KINDS[kind](**made)
