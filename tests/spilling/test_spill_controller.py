"""The controller with real policies: under any marks the results are the oracle's, and the marks are kept."""

from contextlib import nullcontext
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.batch.test_engine import cases, prepared
from tests.budget import search
from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.limits import limited
from watersmeet.spilling.controller import Controller
from watersmeet.spilling.options import Spill
from watersmeet.spilling.policies import POLICIES

policies = st.sampled_from([name for name in POLICIES if name != "semantic"])
spills_of = st.builds(
    Spill,
    memory=st.sampled_from([1, 500, 2000]),
    within=st.sampled_from([None, "1 microsecond", "1 second"]),
    policy=policies,
    pay=st.one_of(st.none(), policies),
    partitions=st.sampled_from([1, 8]),
    share=st.sampled_from([0.1, 0.5, 1.0]),
    interval=st.sampled_from(["0 seconds", "3 seconds"]),
    oldest=st.sampled_from(["0 seconds", "2 seconds", "10 minutes"]),
    disk=st.sampled_from([None, 400]),
)


@pytest.mark.long
@search(40)
@given(case=cases(), spill=spills_of, lulls=st.lists(st.booleans(), min_size=6, max_size=6))
def test_in_the_end_results_are_the_oracles(case: dict[str, Any], spill: Spill, lulls: list[bool]) -> None:
    with TemporaryDirectory() as folder:
        run, batches, wanted = prepared(case, folder)
        run.spilling, run.partitions = Controller(spill, "seed"), spill.partitions
        for at, rows in enumerate(batches):
            with limited(**case["limits"][at]) if "limits" in case else nullcontext():
                how = case["strategies"][at], case["exchanges"][at], case["orderings"][at] or GIVEN_ORDER
                run.step(how[0], rows, how[1], how[2], now=at * 1_000_000)
                assert run.results <= wanted.results
                assert_bounded(run.progress[-1]["spilling"], spill)
                if lulls[at]:
                    run.run_round(how[0], how[1], how[2], now=at * 1_000_000)
        while run.run_round(case["strategies"][-1], case["exchanges"][-1], all=True):
            assert run.progress[-1]["round"]
            run.spilling = Controller(Spill(memory="1 TB"))
        assert run.results == wanted.results
        assert sum(p["lateRows"] for p in run.progress) == len(wanted.late)


def assert_bounded(told: dict[str, Any], spill: Spill) -> None:
    """Above the limit, as much as necessary is spilled, or all there is."""
    decision, memory = told["decision"], spill.memory_bytes
    if memory is not None and told["hotBytes"] >= memory:
        assert decision is not None and decision["kind"] == "spill"
        assert told["hotBytes"] - decision["spilledBytes"] < memory
