"""A join with optional streams, cut at every step of the batch protocol: the same results in the same batches."""

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.batch import test_asof, test_optional
from tests.budget import one_in
from tests.runtime.test_cuts import STRATEGIES, Cut, Cuttable, Frail, Moments, Sink
from watersmeet.batch.operator import Operator
from watersmeet.limits import limited
from watersmeet.query.query import Query
from watersmeet.runtime.commit_protocol import BatchOffered, Protocol
from watersmeet.runtime.tree import JoinTree
from watersmeet.state.manifest import manifest as manifests
from watersmeet.testing import oracle
from watersmeet.testing.run import Run

pytestmark = pytest.mark.long
ROWS = [
    [("a", 6 * b + t, 1.0, "pqr"[(t + b) % 3]) for t in range(6)] + [("b", 6 * b + t, 1.0, "pq"[b % 2]) for t in (1, 5)]
    for b in range(6)
]


def go(case: dict[str, Any], query: Query, folder: Path, sink: Sink, batch: int, moment: int) -> None:
    """Start the query, which goes on from what it finds in the store, for one batch."""
    moments = Moments(moment)
    run = Cuttable(query, Frail(str(folder), moments=moments), sink=sink, moments=moments)
    tree = JoinTree(Operator(run.query, STRATEGIES[batch % 3], run.store, run.name, sides=True))
    ids = count(sum(map(len, case["batches"][:batch])))
    rows = [("ab".index(n), {"id": next(ids), "ts": t, "x": x, "k": k}) for n, t, x, k in case["batches"][batch]]
    run._arrivals, run._exchange = {tree.path: rows}, ("local", "shuffle")[batch % 2]
    run.offer(Protocol(tree, manifests.last(run.store) or tree.start()), BatchOffered(batch))


@pytest.mark.parametrize("how", one_in(3, ["full", "left", "semi", "anti"]))
def test_cut_in_the_midst_of_everything_it_goes_on(tmp_path: Path, how: str) -> None:
    case = test_optional.plain_case(how, ROWS)
    uncut, wanted = test_optional.run_case(case, str(tmp_path / "uncut"))
    goes_on(case, test_optional.query_of(case), tmp_path, uncut, wanted)


def test_an_as_of_join_that_is_cut_goes_on(tmp_path: Path) -> None:
    case = test_asof.plain_case(oracle.AsOf(left=True), ROWS)
    uncut = test_asof.run_case(case, str(tmp_path / "uncut"))
    goes_on(case, test_asof.query_of(case), tmp_path, uncut, test_asof.wanted_of(case))
    assert sum(p["purgedRows"] for p in uncut.progress) > 20


def goes_on(case: dict[str, Any], query: Query, folder: Path, uncut: Run, wanted: oracle.Outcome) -> None:
    """Check that a query which is cut at every step of every batch gives the same as one that isn't."""
    sink, cuts = Sink(), 0
    with limited(merged_chunks=2, tier_rows=1):
        for batch in range(len(ROWS)):
            for moment in count(1):
                try:
                    go(case, query, folder / "cut", sink, batch, moment)
                    break
                except Cut:
                    cuts += 1
    assert sum((found for found, _ in sink.values()), Counter()) == uncut.results == wanted.results
    assert [sink[batch][0].total() for batch in range(len(ROWS))] == [p["outputRows"] for p in uncut.progress]
    assert cuts > 10 * len(ROWS)
    assert len(wanted.results) > 5
