"""The adaptation controller: when it changes something, when it waits, what it stores."""

import json

import pytest

from watersmeet.adapt.adaptation import (
    OVERDUE,
    PATIENCE,
    REMEMBERED,
    AdaptationController,
    AdaptationRecord,
    Option,
    StrategyChange,
)
from watersmeet.errors import DefinitionError


def option(name: str, nodes: int, cost: float) -> Option:
    return Option(name, nodes, cost, None, {})


FOUR, SIX = option("PSP", 4, 1.0), option("PSP", 6, 0.5)
RESTED = AdaptationRecord(rested=100)


def through(
    controller: AdaptationController, record: AdaptationRecord, costs: list[float], overdue: int = 0
) -> list[tuple[int, AdaptationRecord]]:
    """Decide batch after batch with these costs of the better option; return the nodes and the record after each."""
    steps = []
    for batch, cost in enumerate(costs):
        choice, record = controller.decide(record, batch, FOUR, SIX._replace(cost=cost), overdue)
        record = AdaptationRecord.from_json(json.loads(json.dumps(record)))  # as the manifest stores it
        steps.append((choice.nodes, record))
    return steps


def test_a_gain_must_last() -> None:
    steps = through(AdaptationController(), RESTED, [0.5] * (PATIENCE - 1) + [0.9] + [0.5] * PATIENCE)
    assert [nodes for nodes, _ in steps] == [4] * (2 * PATIENCE - 1) + [6]
    assert [record.waiting for _, record in steps] == [1, 2, 0, 1, 2, 0]


def test_a_change_is_logged_with_its_numbers() -> None:
    *_, (_, record) = through(AdaptationController(), RESTED, [0.5] * PATIENCE)
    (change,) = record.log
    assert change[:4] == (PATIENCE - 1, "nodes", "PSP(nodes=4)", "PSP(nodes=6)") and change.made
    assert change.why == (
        "PSP(nodes=6) was predicted to take 0.5 s a second instead of 1 s with PSP(nodes=4), 3 batches in a row."
    )
    other = AdaptationController().decide(AdaptationRecord(PATIENCE, 9), 7, FOUR, option("ATR", 4, 0.1), 0)[1].log[0]
    assert other.kind == "strategy"
    same = FOUR._replace(cost=0.1, options={"segment": "1 second"})
    segment = AdaptationController().decide(AdaptationRecord(PATIENCE, 9), 7, FOUR, same, 0)[1].log[0]
    assert segment[1:4] == ("segment", "PSP(nodes=4)", "PSP(nodes=4, segment='1 second')")


def test_changes_are_never_closer_than_the_interval() -> None:
    steps = through(AdaptationController(interval=8), AdaptationRecord(), [0.5] * 40, overdue=OVERDUE)
    changes = [at for at, (nodes, _) in enumerate(steps) if nodes == 6]
    assert changes == [7, 15, 23, 31, 39]


def test_a_join_that_cannot_keep_up_does_not_wait() -> None:
    (nodes, record), *_ = through(AdaptationController(), RESTED, [0.5], overdue=OVERDUE)
    assert nodes == 6 and "after 3 batches that took too long" in record.log[0].why
    assert through(AdaptationController(), RESTED, [0.9], overdue=OVERDUE)[0][0] == 4  # there is nothing better


def test_a_dry_run_only_says_what_it_would_do() -> None:
    steps = through(AdaptationController(interval=1, dry_run=True), RESTED, [0.5] * 2 * PATIENCE)
    assert {nodes for nodes, _ in steps} == {4}
    assert [change.made for change in steps[-1][1].log] == [False, False]


def test_only_the_last_changes_are_stored() -> None:
    record = AdaptationRecord()
    for batch in range(REMEMBERED + 5):
        record = record.add(StrategyChange(batch, "nodes", "", "", ""))
    assert [change.batch for change in record.log] == list(range(5, REMEMBERED + 5))


@pytest.mark.parametrize("interval", [0, -1, 1.5, True])
def test_an_interval_is_some_batches(interval: int) -> None:
    with pytest.raises(DefinitionError, match="give the batches between two changes"):
        AdaptationController(interval)
