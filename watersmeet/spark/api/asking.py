"""`query.why` and `join.why`: which join of a tree is asked, what it has put out, and what only Spark can answer."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from watersmeet.errors import DefinitionError, PredicateError
from watersmeet.observe.why.answer import Answer
from watersmeet.observe.why.condition_trace import Compute, Decide
from watersmeet.observe.why.join_state import read_newest
from watersmeet.observe.why.output_files import ColumnPath, OutputFiles, ResultFolder, columns_in_results
from watersmeet.observe.why.question import Values, find_join, parse_question
from watersmeet.observe.why.state_evidence import StateEvidence
from watersmeet.observe.why.why_file import JoinDescription, write_descriptions
from watersmeet.observe.why.why_pair import answer_question
from watersmeet.predicate.model import Column, Conjunct
from watersmeet.predicate.scope import TABLE_TIME
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.spark.output.sinks import FileSink
from watersmeet.spark.sql.catalyst import said
from watersmeet.state.manifest.manifest import Manifest

if TYPE_CHECKING:
    from watersmeet.spark.api.join import Join
    from watersmeet.spark.run.batch import BatchRunner


def given_by(together: Mapping[str, Values] | None, single: Mapping[str, Values]) -> dict[str, Values]:
    """Return what is asked of streams, given together or by their names."""
    if together is not None and not isinstance(together, Mapping):
        raise DefinitionError(f"why() takes streams by name, such as why(a={{'id': 17}}); got {together!r}.")
    return {**(together or {}), **single}


def why_running(join: "Join", runner: "BatchRunner", given: Mapping[str, Values]) -> Answer:
    """Return what became of tuples of a query; it may be running meanwhile."""
    path, inside = find_join({where: part.query for where, part in _joins(join)}, given), dict(_joins(join))
    part, duck = inside[path], Duck(join.query.dialect)
    question = parse_question(part.query, given, duck)
    outputs = outputs_of(part, runner, results=path == "j")

    def answer(state: Manifest | None) -> Answer:
        side = part.query.as_left_join({one.stream for one in question})
        kept = Kept(side, runner.store, within(state or runner.tree.start(), path))
        history = list(runner.protocol.history)
        return answer_question(
            StateEvidence(state, duck, time.perf_counter, outputs, history, decider(part), computer(part)), question
        )

    return read_newest(runner.store, answer)


def _joins(join: "Join", path: str = "j") -> Iterator[tuple[str, "Join"]]:
    """Yield the joins of a tree, each with where it stands."""
    yield path, join
    for at, inner in join.inner.items():
        yield from _joins(inner, f"{path}_{at}")


def outputs_of(join: "Join", runner: "BatchRunner", results: bool) -> OutputFiles:
    """Return what a query has put out, as files tell; results are those of the outermost join."""
    sink, sides = runner.outputs.sink, runner.outputs.sides
    names = [stream.name for stream in join.query.streams]
    folders = {kind: {name: folder.inside(name).place.arrow for name in names} for kind, folder in sides.items()}
    files = sink if isinstance(sink, FileSink) and results else None
    found = ResultFolder(files.folder.place.arrow, files.format) if files else None
    return OutputFiles(runner.checkpoint.name, folders, found, shown(join))


def shown(join: "Join") -> Mapping[Column, ColumnPath]:
    """Return where results show the streams' columns as they are."""
    if join.select is None:
        return columns_in_results(join.query)
    schema = join.schema
    flat: dict[Column, ColumnPath] = {column: (schema.names[places[0]],) for column, places in join.shows.items()}
    for at, stream in enumerate(join.query.streams):
        own = [name for name in stream.schema.names if name != TABLE_TIME]
        kind = schema.field(stream.name).type if schema.names.count(stream.name) == 1 else None
        if kind is not None and pa.types.is_struct(kind) and [field.name for field in kind] == own:
            flat |= {Column(at, stream.schema.names.index(name)): (stream.name, name) for name in own}
    return flat


def decider(join: "Join") -> Decide:
    """Return what lets Spark answer a conjunct of a join."""

    def decide(conjunct: Conjunct, columns: Mapping[str, pa.Array]) -> bool | None:
        try:
            found = join.answer(conjunct, pa.table(dict(columns)))
        except PySparkException as error:
            raise PredicateError(f"`{conjunct.text}` raised {said(error)}.") from None
        return found

    return decide


def computer(join: "Join") -> Compute:
    """Return what lets Spark compute the values that a conjunct of a join compares."""

    def compute(conjunct: Conjunct, columns: Mapping[str, pa.Array]) -> Sequence[pa.Array]:
        try:
            return join.compared(conjunct, pa.table(dict(columns)))
        except PySparkException:  # the conjunct itself says so
            return ()

    return compute


def write_down(join: "Join", runner: "BatchRunner") -> None:
    """Write down beside the state what the command line needs to answer why."""
    joins = {
        path: JoinDescription(part.query, outputs_of(part, runner, results=path == "j")) for path, part in _joins(join)
    }
    try:
        write_descriptions(runner.store, joins)
    except (TypeError, ValueError) as error:  # it must not keep a query from running
        logging.getLogger("watersmeet").warning("`watersmeet why` will not know this query: %s", error)
