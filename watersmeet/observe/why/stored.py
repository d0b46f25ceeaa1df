"""`watersmeet why CHECKPOINT`: an answer from what stands in a checkpoint, without the program and without Spark."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from watersmeet.errors import DefinitionError, StateError
from watersmeet.observe.why.answer import Answer
from watersmeet.observe.why.ask import Query, answered
from watersmeet.observe.why.asked import Values, asked, chosen, listed
from watersmeet.observe.why.kept import Kept, read, within
from watersmeet.observe.why.outputs import Outputs
from watersmeet.observe.why.written import written
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.state.manifest import history
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.formats import consistent
from watersmeet.state.store.places import store_of
from watersmeet.state.store.store import Store


def why(checkpoint: str, given: Mapping[str, Values], clock: Callable[[], float], read_outputs: bool = False) -> Answer:
    """Return what became of tuples of the query that a checkpoint belongs to; it may be running meanwhile.

    Conjuncts that only Spark or a Python predicate of the program can answer stay open.

    [!] Somebody else may have written the checkpoint: nothing in it is run or believed, and nothing outside is read.

    Args:
        checkpoint: The query's `checkpointLocation`.
        given: For each stream that is asked about the values by which to find its tuple.
        clock: Returns seconds.
        read_outputs: Whether to look at results and side outputs, too, in the folders that the checkpoint names.

    Raises:
        DefinitionError: If nothing is asked, or there is no such stream, column or value.
        StateError: If there is no join there, it has not run a batch yet, or what is there makes no sense.
    """
    store = store_of(checkpoint)
    with consistent(store.root):
        return _why(store, given, clock, read_outputs)


def _why(store: Store, given: Mapping[str, Values], clock: Callable[[], float], read_outputs: bool) -> Answer:
    joins = written(store)
    if not given:
        first = next(iter(joins.values())).query.streams[0]
        raise DefinitionError(f"Name a tuple to ask about, such as --{first.name} {first.schema.names[0]}=VALUE.")
    path = chosen({at: join.query for at, join in joins.items()}, given)
    query, outputs = joins[path].query, joins[path].outputs if read_outputs else Outputs()
    unread = joins[path].outputs.folders if not read_outputs else ()
    duck = Duck(query.dialect, untrusted=True)
    question = asked(query, given, duck)

    def answer(state: Manifest | None) -> Answer:
        if state is None:
            raise StateError(f"The query of {store.root} has not run a batch yet.")
        side = query.as_left_join({one.stream for one in question})
        kept, told = Kept(side, store, within(state, path)), history.load(store, state.batch)
        answer = answered(Query(kept, duck, clock, outputs, told), question)
        return replace(answer, notes=(*answer.notes, _unread(unread))) if unread else answer

    return read(store, answer)


def _unread(folders: Sequence[str]) -> str:
    return f"Results and side outputs lie outside the checkpoint, in {listed(folders)}: --read-outputs looks there."
