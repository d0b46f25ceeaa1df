"""Trees of joins with spilling by dice on every join: properties 1, 3 and 5 of the design, against brute force."""

from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given

from tests.budget import search
from tests.spilling.dice import Dice, spilled_units, without_spilling
from tests.spilling.test_settle import dice_of
from tests.spilling.trees import brute_force, settled, started, stepped, tree_cases

pytestmark = pytest.mark.long


@search(12)
@given(case=tree_cases(), dice=dice_of)
def test_in_the_end_results_are_those_of_brute_force(case: dict[str, Any], dice: Dice) -> None:
    expected = brute_force(case["setting"], case["batches"])
    with TemporaryDirectory() as folder:
        run = started(case["setting"], folder, dice)
        for at in range(len(case["batches"])):
            stepped(run, case, at, case["lulls"][at])
            assert run.results <= expected["j"].results()
        run.spilling = without_spilling(dice)
        settled(run)
        assert run.state is not None and not any(spilled_units(run.state).values())
    assert run.results == expected["j"].results()
    for path, rows in run.within.items():
        assert sorted(map(repr, (row for _, row in expected[path].rows))) == sorted(
            repr(output_row(row)) for _, row in rows
        )
    assert run.late() == sum((found.late for found in expected.values()), type(run.results)())
    assert run.watermarks == {path: found.watermarks for path, found in expected.items()}


def output_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row in the order in which brute force shows it."""
    ids = {name: value for name, value in row.items() if name.startswith("id_")}
    return ids | {name: row[name] for name in ("at", "x", "k")}
