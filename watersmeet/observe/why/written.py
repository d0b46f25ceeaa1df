"""A join written down beside its state, so that the command line can answer why without the program or Spark."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.metadata import constraints as metadata
from watersmeet.observe.why.outputs import Outputs, Sink
from watersmeet.predicate import model as predicates
from watersmeet.predicate import terms
from watersmeet.predicate.model import Column
from watersmeet.query import query as queries
from watersmeet.query import windows
from watersmeet.query.query import Query
from watersmeet.state.manifest import documents
from watersmeet.state.manifest.claim import DESCRIPTION
from watersmeet.state.store.formats import seal, unseal
from watersmeet.state.store.shape import NAMES, Misfit, Rule, check, check_fields
from watersmeet.state.store.store import Store

FILE = "why.json"
_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(queries.Query, queries.StreamSpec, queries.Test, queries.Output),
        *(windows.Window, windows.Sliding, windows.Hopping, windows.Count),
        *(metadata.Key, metadata.Clustered, metadata.Ordered, metadata.ForeignKey, metadata.Pattern),
        *(metadata.Punctuated, metadata.Inherited),
        *(predicates.Column, predicates.Conjunct, predicates.Call, predicates.Argument, predicates.Bound),
        *(predicates.Operand, predicates.Operation, predicates.Gap, predicates.Dialect),
        *(terms.Leaf, terms.Comparison, Sink),
    )
} | {
    "Nested": queries.NestedTimes,
    "Hidden": predicates.HiddenColumn,
    "Order": predicates.ColumnOrder,
    "Fixed": predicates.FixedColumn,
    "Compared": predicates.ComparedValue,
    "Comparing": predicates.ComparedValues,
    "Apply": terms.MathFunction,
    "Vector": terms.VectorFunction,
    "Text": terms.TextFunction,
}
"""What a join is made of, by the names in the file; nothing else is read back."""
_NAMES = {kind: name for name, kind in _KINDS.items()}
NAMES.update(Term=terms.Term, Comparison=terms.Comparison)
Path = Annotated[str, Rule(re.compile(r"j(_\d{1,6})*").fullmatch, "where a join stands, such as j or j_0")]


class Part(TypedDict):
    """A join as the file has it; see `Written`."""

    query: Mapping[str, Any]
    owner: str
    sides: Mapping[str, Mapping[str, str]]
    sink: Sink | None
    shows: list[Annotated[list[int | str], Rule(lambda shown: len(shown) > 2, "a column, and where it is shown")]]


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
    parts = unseal(data, what, Mapping[Path, Part], remedy)
    if (name := _name_of(store)) and not {part["owner"] for part in parts.values()} <= {"", name}:
        raise StateError(f"{what} is another checkpoint's; {remedy}.")
    try:
        return {path: Written(_query(part["query"]), _outputs(part)) for path, part in parts.items()}
    except Misfit as misfit:
        raise StateError(f"{what} is not as Watersmeet writes it: {misfit}; {remedy}.") from None


def _name_of(store: Store) -> str:
    """Return the name of a store; empty if it has none, or nobody can read it."""
    try:
        return str(unseal(store.read(DESCRIPTION) or b"", "", documents.ClaimDocument)["name"])
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
        if (name := _NAMES.get(type(value))) is None:
            raise TypeError(f"{type(value)} is no part of a join.")
        return {"is": name, "of": {part.name: _plain(getattr(value, part.name)) for part in fields(value)}}
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def _query(plain: Any) -> Query:
    query = _made(plain)
    check(query, Query)
    assert isinstance(query, Query)
    return query


def _made(plain: Any) -> Any:
    """Return what `_plain` was given; types come as a schema of one field.

    Raises:
        Misfit: If it was given nothing, or no part has what it needs.
    """
    if isinstance(plain, list):
        return tuple(_made(part) for part in plain)
    if not isinstance(plain, dict):
        return plain
    try:
        kind, of = plain["is"], plain["of"]
        return _of_text(kind, of) if isinstance(of, str) else _of_parts(kind, of)
    except Misfit:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, pa.ArrowException):
        raise Misfit("a part of a join", plain) from None


def _of_text(kind: str, text: str) -> Any:
    if kind == "Schema":
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    return base64.b64decode(text) if kind == "bytes" else Decimal(text)


def _of_parts(name: str, parts: Mapping[str, Any]) -> Any:
    kind, made = _KINDS[name], {part: _made(value) for part, value in parts.items()}
    if kind is predicates.HiddenColumn:
        made["type"] = made["type"].field(0).type
    check_fields(made, kind)
    return kind(**made)
