"""`query.why`: which join of a tree is asked, what it has written, and what only Spark can decide or compute."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException

from watersmeet.errors import DefinitionError, PredicateError
from watersmeet.observe.why.answer import Answer
from watersmeet.observe.why.condition_trace import Compute, Decide
from watersmeet.observe.why.join_state import JoinState, inner_state, read_newest
from watersmeet.observe.why.output_files import ColumnPath, OutputFiles, ResultFolder, columns_in_results
from watersmeet.observe.why.question import Values, find_join, parse_question
from watersmeet.observe.why.state_evidence import StateEvidence
from watersmeet.observe.why.why_file import WhyDescription, write_descriptions
from watersmeet.observe.why.why_pair import answer_question
from watersmeet.predicate.model import Column, Conjunct
from watersmeet.predicate.scope import TABLE_TIME
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.spark.api.definition import JoinDefinition
from watersmeet.spark.output.sinks import FileSink
from watersmeet.spark.run.batch import BatchRunner
from watersmeet.spark.sql.catalyst import error_sentence
from watersmeet.state.manifest.manifest import Manifest


def merge_values(together: Mapping[str, Values] | None, single: Mapping[str, Values]) -> dict[str, Values]:
    """Merge the values by which to find tuples, passed as one dict and as arguments by stream.

    Raises:
        DefinitionError: If the dict is none.
    """
    if together is not None and not isinstance(together, Mapping):
        raise DefinitionError(f"why() takes streams by name, such as why(a={{'id': 17}}); got {together!r}.")
    return {**(together or {}), **single}


def why_running(join: JoinDefinition, runner: BatchRunner, values: Mapping[str, Values]) -> Answer:
    """Return what became of tuples of a query, which may be running meanwhile.

    Reads its newest state and its output files; may call Python predicates, and run Spark jobs.

    Raises:
        DefinitionError: If there is no such stream, column or value.
    """
    joins = dict(_joins(join))
    path = find_join({path: part.query for path, part in joins.items()}, values)
    part, duck = joins[path], Duck(join.query.dialect)
    question = parse_question(part.query, values, duck)
    outputs = outputs_of(part, runner, results=path == "j")

    def answer(manifest: Manifest | None) -> Answer:
        """Answer the question from one state; None before the first batch."""
        side = part.query.as_left_join({one.stream for one in question})
        state = JoinState(side, runner.store, inner_state(manifest or runner.tree.start(), path))
        history = list(runner.protocol.history)
        return answer_question(
            StateEvidence(state, duck, time.perf_counter, outputs, history, decider(part), computer(part)), question
        )

    return read_newest(runner.store, answer)


def _joins(join: JoinDefinition, path: str = "j") -> Iterator[tuple[str, JoinDefinition]]:
    """Yield the joins of a tree with their paths."""
    yield path, join
    for at, inner in join.inner.items():
        yield from _joins(inner, f"{path}_{at}")


def outputs_of(join: JoinDefinition, runner: BatchRunner, results: bool) -> OutputFiles:
    """Return what finds rows in the output files of a query; reads none yet.

    Args:
        join: One of its joins.
        runner: The query.
        results: Whether the query's results are those of this join, the outermost.
    """
    sink, sides = runner.outputs.sink, runner.outputs.sides
    names = [stream.name for stream in join.query.streams]
    folders = {kind: {name: folder.inside(name).location.arrow for name in names} for kind, folder in sides.items()}
    files = sink if isinstance(sink, FileSink) and results else None
    own = ResultFolder(files.folder.location.arrow, files.format) if files else None
    return OutputFiles(runner.checkpoint.name, folders, own, output_paths(join))


def output_paths(join: JoinDefinition) -> Mapping[Column, ColumnPath]:
    """Return where in the results columns of streams appear unchanged: each as a column, or as a field in a struct."""
    if join.select is None:
        return columns_in_results(join.query)
    schema = join.schema
    flat: dict[Column, ColumnPath] = {
        column: (schema.names[positions[0]],) for column, positions in join.output_positions.items()
    }
    for at, stream in enumerate(join.query.streams):
        own = [name for name in stream.schema.names if name != TABLE_TIME]
        kind = schema.field(stream.name).type if schema.names.count(stream.name) == 1 else None
        if kind is not None and pa.types.is_struct(kind) and [field.name for field in kind] == own:
            flat |= {Column(at, stream.schema.names.index(name)): (stream.name, name) for name in own}
    return flat


def decider(join: JoinDefinition) -> Decide:
    """Return a function by which Spark decides a conjunct of a join for one combination, in a job of its own.

    It raises PredicateError if the conjunct raises.
    """

    def decide(conjunct: Conjunct, columns: Mapping[str, pa.Array]) -> bool | None:
        try:
            return join.answer(conjunct, pa.table(dict(columns)))
        except PySparkException as error:
            raise PredicateError(f"`{conjunct.text}` raised {error_sentence(error)}.") from None

    return decide


def computer(join: JoinDefinition) -> Compute:
    """Return a function by which Spark computes the values that a conjunct compares, in a job; none if that raises."""

    def compute(conjunct: Conjunct, columns: Mapping[str, pa.Array]) -> Sequence[pa.Array]:
        try:
            return join.compute_sides(conjunct, pa.table(dict(columns)))
        except PySparkException:  # deciding the conjunct raises the same
            return ()

    return compute


def store_description(join: JoinDefinition, runner: BatchRunner) -> None:
    """Store beside the state what `watersmeet why` needs to answer; a failure is logged."""
    joins = {
        path: WhyDescription(part.query, outputs_of(part, runner, results=path == "j")) for path, part in _joins(join)
    }
    try:
        write_descriptions(runner.store, joins)
    except (TypeError, ValueError) as error:  # no reason to keep a query from running
        logging.getLogger("watersmeet").warning("`watersmeet why` will not know this query: %s", error)
