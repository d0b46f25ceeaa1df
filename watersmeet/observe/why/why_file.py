"""`why.json`: a join described beside its state, so that the command line can answer without the program or Spark."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.metadata import constraints as metadata
from watersmeet.observe.why.output_files import OutputFiles, ResultFolder
from watersmeet.predicate import model as predicates
from watersmeet.predicate import numeric, terms
from watersmeet.predicate.model import Column
from watersmeet.query import query as queries
from watersmeet.query import windows
from watersmeet.query.query import Query
from watersmeet.state.manifest import documents
from watersmeet.state.manifest.claim import DESCRIPTION
from watersmeet.state.store.file_format import seal, unseal
from watersmeet.state.store.shape import NAMES, Misfit, Rule, check, check_fields
from watersmeet.state.store.store import Store

FILE = "why.json"
_STORED_CLASSES: dict[str, Any] = {
    "Query": queries.Query,
    "StreamSpec": queries.StreamSpec,
    "Test": queries.Test,
    "Nested": queries.NestedTimes,
    "Output": queries.Output,
    "Window": windows.Window,
    "Sliding": windows.Sliding,
    "Hopping": windows.Hopping,
    "Count": windows.Count,
    "Key": metadata.Key,
    "Clustered": metadata.Clustering,
    "Ordered": metadata.SortOrder,
    "ForeignKey": metadata.ForeignKey,
    "Pattern": metadata.Pattern,
    "Punctuated": metadata.FlaggedPunctuations,
    "Inherited": metadata.InheritedPunctuations,
    "Column": predicates.Column,
    "Conjunct": predicates.Conjunct,
    "Call": predicates.Call,
    "Argument": predicates.Argument,
    "Bound": predicates.Bound,
    "Operand": predicates.Operand,
    "Operation": predicates.Operation,
    "Hidden": predicates.HiddenColumn,
    "Order": predicates.ColumnOrder,
    "Fixed": predicates.FixedColumn,
    "Gap": predicates.Gap,
    "Compared": predicates.ComparedValue,
    "Comparing": predicates.ComparedValues,
    "Dialect": predicates.Dialect,
    "Leaf": terms.Leaf,
    "Apply": terms.MathFunction,
    "Vector": terms.VectorFunction,
    "Text": terms.TextFunction,
    "Comparison": terms.Comparison,
}
"""The classes that a join consists of, by the names that files hold; nothing else is read.

[!] Files also hold the names of their fields: one that is renamed needs an entry in `_STORED_FIELDS`."""
_STORED_NAMES = {cls: name for name, cls in _STORED_CLASSES.items()}
_STORED_FIELDS: dict[tuple[Any, str], str] = {(queries.StreamSpec, "constraints"): "promises"}
"""The fields whose names in files are not those of the classes."""
_NOT_STORED = {(predicates.Conjunct, "numeric"), (predicates.Bound, "numeric")}
"""The fields that files don't hold: what they say follows from others, and answers don't need it."""
_FIELDS = {(cls, stored): name for (cls, name), stored in _STORED_FIELDS.items()}
NAMES.update(
    Term=terms.Term,
    Comparison=terms.Comparison,
    Number=numeric.Number,
    NumericComparison=numeric.NumericComparison,
)
JoinPath = Annotated[str, Rule(re.compile(r"j(_\d{1,6})*").fullmatch, "where a join stands, such as j or j_0")]


class WhyEntry(TypedDict):
    """A join as the file holds it; see `WhyDescription`."""

    query: Mapping[str, Any]
    owner: str
    sides: Mapping[str, Mapping[str, str]]
    sink: ResultFolder | None
    shows: list[Annotated[list[int | str], Rule(lambda entry: len(entry) > 2, "a column, and where it is shown")]]


@dataclass(frozen=True, slots=True)
class WhyDescription:
    """A join as described beside its state.

    Attributes:
        query: The join, without its Python predicates.
        outputs: The files that it writes its outputs to.
    """

    query: Query
    outputs: OutputFiles


def write_descriptions(store: Store, joins: Mapping[str, WhyDescription]) -> None:
    """Replace the file by one of these joins, by path, without Python predicates; the caller must hold the lease."""
    entries = {
        path: {
            "query": _to_json(replace(join.query, predicates=())),
            "owner": join.outputs.owner,
            "sides": {kind: dict(folders) for kind, folders in join.outputs.sides.items()},
            "sink": None if join.outputs.sink is None else list(join.outputs.sink),
            "shows": [[column.stream, column.field, *names] for column, names in join.outputs.columns.items()],
        }
        for path, join in joins.items()
    }
    store.overwrite(FILE, seal(entries))


def read_descriptions(store: Store) -> dict[str, WhyDescription]:
    """Return the joins of a tree, by path.

    Raises:
        StateError: If there are none, or the file is damaged or another checkpoint's.
    """
    content = store.read(FILE)
    if not content:
        raise StateError(
            f"There is no {FILE} under {store.root}: it is not the checkpoint of a join, or one that an earlier "
            "version started last; start the query once."
        )
    subject, remedy = f"The description of the join, {store.root}/{FILE},", "start the query once, which writes it anew"
    entries = unseal(content, subject, Mapping[JoinPath, WhyEntry], remedy)
    if (name := _store_name(store)) and not {entry["owner"] for entry in entries.values()} <= {"", name}:
        raise StateError(f"{subject} is another checkpoint's; {remedy}.")
    try:
        return {path: WhyDescription(_read_query(join["query"]), _read_outputs(join)) for path, join in entries.items()}
    except Misfit as misfit:
        raise StateError(f"{subject} is not as Watersmeet writes it: {misfit}; {remedy}.") from None


def _store_name(store: Store) -> str:
    """Return the name of a store; empty if it has none that can be read."""
    try:
        return str(unseal(store.read(DESCRIPTION) or b"", "", documents.ClaimDocument)["name"])
    except StateError:
        return ""


def _read_outputs(entry: Mapping[str, Any]) -> OutputFiles:
    columns = {Column(stream, field): tuple(names) for stream, field, *names in entry["shows"]}
    sink = None if entry["sink"] is None else ResultFolder(*entry["sink"])
    return OutputFiles(entry["owner"], entry["sides"], sink, columns)


def _to_json(value: Any) -> Any:
    """Return a value as JSON; see `_build` for the way back.

    Raises:
        TypeError: If it is of a class that files don't hold.
    """
    if isinstance(value, pa.DataType):
        value = pa.schema([("type", value)])
    if isinstance(value, pa.Schema):
        return {"is": "Schema", "of": base64.b64encode(value.serialize()).decode()}
    if isinstance(value, bytes | Decimal):
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
        return {"is": type(value).__name__, "of": text}
    if is_dataclass(value):
        if type(value) not in _STORED_NAMES:
            raise TypeError(f"{type(value)} is no part of a join.")
        names = {
            field.name: _STORED_FIELDS.get((type(value), field.name), field.name)
            for field in fields(value)
            if (type(value), field.name) not in _NOT_STORED
        }
        parts = {stored: _to_json(getattr(value, name)) for name, stored in names.items()}
        return {"is": _STORED_NAMES[type(value)], "of": parts}
    return [_to_json(part) for part in value] if isinstance(value, tuple | list) else value


def _read_query(plain: Any) -> Query:
    query = _build(plain)
    check(query, Query)
    assert isinstance(query, Query)
    return query


def _build(plain: Any) -> Any:
    """Return the value that JSON stands for; types come back as a schema of one field.

    Raises:
        Misfit: If it stands for none, or a part of it does not fit.
    """
    if isinstance(plain, list):
        return tuple(_build(part) for part in plain)
    if not isinstance(plain, dict):
        return plain
    try:
        name, of = plain["is"], plain["of"]
        return _build_from_text(name, of) if isinstance(of, str) else _build_from_fields(name, of)
    except Misfit:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, pa.ArrowException):
        raise Misfit("a part of a join", plain) from None


def _build_from_text(name: str, text: str) -> Any:
    if name == "Schema":
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    return base64.b64decode(text) if name == "bytes" else Decimal(text)


def _build_from_fields(name: str, parts: Mapping[str, Any]) -> Any:
    """Return the object of a stored class that these fields describe.

    Raises:
        Misfit: If a value is not of its field's type; other errors, of unknown names, are those that `_build` catches.
    """
    cls = _STORED_CLASSES[name]
    values = {_FIELDS.get((cls, field), field): _build(value) for field, value in parts.items()}
    if any((cls, name) in _NOT_STORED for name in values):
        raise LookupError
    if cls is predicates.HiddenColumn:
        values["type"] = values["type"].field(0).type
    check_fields(values, cls)
    return cls(**values)
