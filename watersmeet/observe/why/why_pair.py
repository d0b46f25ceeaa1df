"""The way in: answers why tuples did or did not join.

`answer_question` takes evidence of any kind; `why_checkpoint` is `watersmeet why CHECKPOINT`, which needs neither the
program nor Spark.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from watersmeet.errors import DefinitionError, StateError
from watersmeet.observe.why.answer import Answer
from watersmeet.observe.why.evidence import MOST_TUPLES, Evidence, InnerOutcomes
from watersmeet.observe.why.join_state import JoinState, inner_state, read_newest
from watersmeet.observe.why.optional_outcome import OptionalOutcomes
from watersmeet.observe.why.output_files import OutputFiles
from watersmeet.observe.why.question import TupleSelector, Values, find_join, format_list, parse_question
from watersmeet.observe.why.state_evidence import StateEvidence
from watersmeet.observe.why.why_file import read_descriptions
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.state.manifest import history
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.file_format import consistent
from watersmeet.state.store.places import store_of
from watersmeet.state.store.store import Store

MOST_COMBINATIONS = 6
"""The most combinations that an answer mentions."""


def answer_question(evidence: Evidence, selectors: Sequence[TupleSelector]) -> Answer:
    """Return what became of tuples and of their combinations, at most `MOST_COMBINATIONS` of them.

    Args:
        evidence: What the answer is drawn from; it may read files, and call Python predicates and Spark.
        selectors: What selects the tuples, in the order of the streams.
    """
    tuples = [evidence.find_tuples(selector) for selector in selectors]
    notes = [note for pair in zip(selectors, tuples, strict=True) for note in evidence.notes(*pair)]
    first_tuples = [group[:MOST_TUPLES] for group in tuples]
    combinations = list(islice(product(*first_tuples), MOST_COMBINATIONS + 1))
    if len(combinations) > MOST_COMBINATIONS:
        notes.append(f"There are more combinations; these are the first {MOST_COMBINATIONS}.")
    query = evidence.tracer.query
    if query.filter:
        notes.append(f"Of the results, Spark keeps those with {query.filter}: not looked at here.")
    outcomes = (OptionalOutcomes if query.optional else InnerOutcomes)(evidence, selectors)
    statuses = tuple(status for group in first_tuples for status, _ in group)
    return Answer(statuses, tuple(map(outcomes.of, combinations[:MOST_COMBINATIONS])), tuple(notes))


def why_checkpoint(
    checkpoint: str, values_by_stream: Mapping[str, Values], clock: Callable[[], float], read_outputs: bool = False
) -> Answer:
    """Return what became of tuples of the query of a checkpoint, which may be running.

    Conjuncts that only Spark or a Python predicate of the program can answer stay open.

    [!] Somebody else may have written the checkpoint: nothing in it is run or believed, and nothing outside is read.

    Args:
        checkpoint: The query's `checkpointLocation`.
        values_by_stream: The values by which to find a tuple of each stream.
        clock: Returns seconds.
        read_outputs: Whether to read results and side outputs too, in the folders that the checkpoint names.

    Raises:
        DefinitionError: If the question is empty, or names an unknown stream or column, or an unfit value.
        StateError: If there is no join there, it has not run a batch yet, or its files make no sense.
    """
    store = store_of(checkpoint)
    with consistent(store.root):
        return _answer_newest(store, values_by_stream, clock, read_outputs)


def _answer_newest(
    store: Store, values_by_stream: Mapping[str, Values], clock: Callable[[], float], read_outputs: bool
) -> Answer:
    """Answer a question from the newest state, without Spark; see `why_checkpoint`.

    Raises:
        DefinitionError: If no tuple is named, or a name or value doesn't fit.
        StateError: If the query has not run a batch yet, or its files make no sense.
    """
    joins = read_descriptions(store)
    if not values_by_stream:
        first = next(iter(joins.values())).query.streams[0]
        raise DefinitionError(f"Name a tuple to ask about, such as --{first.name} {first.schema.names[0]}=VALUE.")
    path = find_join({at: join.query for at, join in joins.items()}, values_by_stream)
    query, outputs = joins[path].query, joins[path].outputs if read_outputs else OutputFiles()
    unread = joins[path].outputs.folders if not read_outputs else ()
    duck = Duck(query.dialect, untrusted=True)
    selectors = parse_question(query, values_by_stream, duck)

    def answer(manifest: Manifest | None) -> Answer:
        """Answer the question from one state.

        Raises:
            StateError: If the query has not run a batch yet.
        """
        if manifest is None:
            raise StateError(f"The query of {store.root} has not run a batch yet.")
        oriented = query.as_left_join({selector.stream for selector in selectors})
        state, progress = JoinState(oriented, store, inner_state(manifest, path)), history.load(store, manifest.batch)
        answer = answer_question(StateEvidence(state, duck, clock, outputs, progress), selectors)
        return replace(answer, notes=(*answer.notes, _note_unread(unread))) if unread else answer

    return read_newest(store, answer)


def _note_unread(folders: Sequence[str]) -> str:
    return (
        f"Results and side outputs lie outside the checkpoint, in {format_list(folders)}: --read-outputs looks there."
    )
