"""The final round, cut at every moment: what comes of it is the same, and nothing of the state is left behind."""

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.batch.test_optional import plain_case, query_of, run_case
from tests.budget import one_in
from tests.metadata.test_corners import unneeded
from tests.runtime.test_cuts import STRATEGIES, Cut, Cuttable, Frail, Moments, Sink
from tests.runtime.test_optional_cuts import ROWS, go
from watersmeet.batch.operator import Operator
from watersmeet.errors import StateError
from watersmeet.runtime.commit_protocol import BatchOffered, Protocol, QuietPeriod
from watersmeet.runtime.tree import JoinTree
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest import rounds

pytestmark = pytest.mark.long
UNCUT = 1 << 30


def finish(case: dict[str, Any], folder: Path, sink: Sink, moment: int, tries: int) -> None:
    """Start the query, which goes on from what it finds in the store, and close it for good."""
    moments = Moments(moment)
    run = Cuttable(query_of(case), Frail(str(folder), moments=moments), sink=sink, moments=moments)
    tree = JoinTree(Operator(run.query, STRATEGIES[tries % 3], run.store, run.name, sides=True))
    state = manifests.last(run.store) or tree.start()
    protocol = Protocol(tree, state, begun=rounds.read_intent(run.store, state.batch + 1))
    run._exchange = ("local", "shuffle")[tries % 2]
    run.offer(protocol, QuietPeriod(final=True))
    with pytest.raises(StateError, match="closed for good"):
        run.offer(protocol, BatchOffered(len(ROWS)))


@pytest.mark.parametrize("how", one_in(2, ["left", "semi", "anti"]))
def test_cut_in_the_midst_of_the_final_round_it_goes_on(tmp_path: Path, how: str) -> None:
    case, sink, cuts = plain_case(how, ROWS), Sink(), 0
    uncut, wanted = run_case(case, str(tmp_path / "uncut"), final=True)
    for batch in range(len(ROWS)):
        go(case, query_of(case), tmp_path / "cut", sink, batch, UNCUT)
    for moment in count(1):
        try:
            finish(case, tmp_path / "cut", sink, moment, cuts)
            break
        except Cut:
            cuts += 1
    assert sum((found for found, _ in sink.values()), Counter()) == uncut.results == wanted.results
    assert sink[len(ROWS)][0].total() == uncut.progress[-1]["outputRows"] == {"left": 4, "semi": 0, "anti": 4}[how]
    assert cuts > 8
    store = Frail(str(tmp_path / "cut"))
    state = manifests.last(store)
    assert state is not None and state.final and unneeded(store, state) == set()
