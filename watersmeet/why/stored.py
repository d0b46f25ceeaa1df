"""`watersmeet why CHECKPOINT`: an answer from what stands in a checkpoint, without the program and without Spark."""

from collections.abc import Callable, Mapping

from watersmeet.errors import DefinitionError, StateError
from watersmeet.kernel.duck import Duck
from watersmeet.state import history
from watersmeet.state.manifest import Manifest
from watersmeet.state.places import store_of
from watersmeet.why.answer import Answer
from watersmeet.why.ask import Query, answered
from watersmeet.why.asked import Values, asked, chosen
from watersmeet.why.kept import Kept, read, within
from watersmeet.why.written import written


def why(checkpoint: str, given: Mapping[str, Values], clock: Callable[[], float]) -> Answer:
    """Return what became of tuples of the query that a checkpoint belongs to; it may be running meanwhile.

    Conjuncts that only Spark or a Python predicate of the program can answer stay open.

    Args:
        checkpoint: The query's `checkpointLocation`.
        given: For each stream that is asked about the values by which to find its tuple.
        clock: Returns seconds.

    Raises:
        DefinitionError: If nothing is asked, or there is no such stream, column or value.
        StateError: If there is no join there, or it has not run a batch yet.
    """
    store = store_of(checkpoint)
    joins = written(store)
    if not given:
        first = next(iter(joins.values())).query.streams[0]
        raise DefinitionError(f"Name a tuple to ask about, such as --{first.name} {first.schema.names[0]}=VALUE.")
    path = chosen({at: join.query for at, join in joins.items()}, given)
    query, outputs = joins[path].query, joins[path].outputs
    duck = Duck(query.dialect, guarded=True)
    question = asked(query, given, duck)

    def answer(state: Manifest | None) -> Answer:
        if state is None:
            raise StateError(f"The query of {checkpoint} has not run a batch yet.")
        side = query.left_from({one.stream for one in question})
        kept, told = Kept(side, store, within(state, path)), history.load(store, state.batch)
        return answered(Query(kept, duck, clock, outputs, told), question)

    return read(store, answer)
