"""The settle rule: whatever is spilled and whenever it is paid, each result comes exactly once."""

from contextlib import nullcontext
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.batch.test_engine import cases, prepared
from tests.budget import search
from tests.spilling.dice import Dice
from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.limits import limited

dice_of = st.builds(
    Dice,
    st.integers(0, 10_000),
    st.sampled_from([1, 5, 40]),
    st.sampled_from([0.2, 0.6, 1.0]),
    st.sampled_from([0.1, 0.5]),
    st.booleans(),
)


@pytest.mark.long
@search(80)
@given(case=cases(), dice=dice_of, lulls=st.lists(st.booleans(), min_size=6, max_size=6))
def test_in_the_end_results_are_the_oracles(case: dict[str, Any], dice: Dice, lulls: list[bool]) -> None:
    with TemporaryDirectory() as folder:
        run, batches, wanted = prepared(case, folder)
        run.spilling = dice
        for at, rows in enumerate(batches):
            with limited(**case["limits"][at]) if "limits" in case else nullcontext():
                how = case["strategies"][at], case["exchanges"][at], case["orderings"][at] or GIVEN_ORDER
                run.step(how[0], rows, how[1], how[2])
                assert run.results <= wanted.results
                if lulls[at]:
                    run.run_round(how[0], how[1], how[2])
        run.spilling = Dice(spill=0.0)
        while run.run_round(case["strategies"][-1], case["exchanges"][-1], all=True):
            pass
        assert run.results == wanted.results
        batched = [p for p in run.progress if not p["round"]]
        assert sum(p["lateRows"] for p in run.progress) == len(wanted.late)
        assert [p["watermark"] for p in batched] == [
            wanted.watermarks.get(at, p["watermark"]) for at, p in enumerate(batched)
        ]
