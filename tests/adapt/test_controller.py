"""The controller: when it changes something, when it waits, what it remembers."""

import json

import pytest

from watersmeet.adapt.adaptation import OVERDUE, PATIENCE, REMEMBERED, Controller, Decision, Option, Record
from watersmeet.errors import DefinitionError


def option(name: str, nodes: int, cost: float) -> Option:
    return Option(name, nodes, cost, None, {})


FOUR, SIX = option("PSP", 4, 1.0), option("PSP", 6, 0.5)
RESTED = Record(rested=100)


def through(controller: Controller, record: Record, costs: list[float], overdue: int = 0) -> list[tuple[int, Record]]:
    """Judge batch after batch, the better option's cost as given; return the nodes taken and what is remembered."""
    seen = []
    for batch, cost in enumerate(costs):
        taken, record = controller.judge(record, batch, FOUR, SIX._replace(cost=cost), overdue)
        record = Record.from_json(json.loads(json.dumps(record)))  # as the manifest keeps it
        seen.append((taken.nodes, record))
    return seen


def test_a_gain_must_last() -> None:
    seen = through(Controller(), RESTED, [0.5] * (PATIENCE - 1) + [0.9] + [0.5] * PATIENCE)
    assert [nodes for nodes, _ in seen] == [4] * (2 * PATIENCE - 1) + [6]
    assert [record.waiting for _, record in seen] == [1, 2, 0, 1, 2, 0]


def test_a_decision_is_told_with_its_numbers() -> None:
    *_, (_, record) = through(Controller(), RESTED, [0.5] * PATIENCE)
    (decision,) = record.log
    assert decision[:4] == (PATIENCE - 1, "nodes", "PSP(nodes=4)", "PSP(nodes=6)") and decision.made
    assert decision.why == (
        "PSP(nodes=6) was predicted to take 0.5 s a second instead of 1 s with PSP(nodes=4), 3 batches on end."
    )
    other = Controller().judge(Record(PATIENCE, 9), 7, FOUR, option("ATR", 4, 0.1), 0)[1].log[0]
    assert other.kind == "strategy"
    same = FOUR._replace(cost=0.1, options={"segment": "1 second"})
    segment = Controller().judge(Record(PATIENCE, 9), 7, FOUR, same, 0)[1].log[0]
    assert segment[1:4] == ("segment", "PSP(nodes=4)", "PSP(nodes=4, segment='1 second')")


def test_changes_are_never_closer_than_the_interval() -> None:
    seen = through(Controller(interval=8), Record(), [0.5] * 40, overdue=OVERDUE)
    changes = [at for at, (nodes, _) in enumerate(seen) if nodes == 6]
    assert changes == [7, 15, 23, 31, 39]


def test_a_join_that_cannot_keep_up_does_not_wait() -> None:
    (nodes, record), *_ = through(Controller(), RESTED, [0.5], overdue=OVERDUE)
    assert nodes == 6 and "after 3 batches that took too long" in record.log[0].why
    assert through(Controller(), RESTED, [0.9], overdue=OVERDUE)[0][0] == 4  # there is nothing better


def test_a_dry_run_only_says_what_it_would_do() -> None:
    seen = through(Controller(interval=1, dry_run=True), RESTED, [0.5] * 2 * PATIENCE)
    assert {nodes for nodes, _ in seen} == {4}
    assert [decision.made for decision in seen[-1][1].log] == [False, False]


def test_only_the_last_decisions_are_remembered() -> None:
    record = Record()
    for batch in range(REMEMBERED + 5):
        record = record.noting(Decision(batch, "nodes", "", "", ""))
    assert [decision.batch for decision in record.log] == list(range(5, REMEMBERED + 5))


@pytest.mark.parametrize("interval", [0, -1, 1.5, True])
def test_an_interval_is_some_batches(interval: int) -> None:
    with pytest.raises(DefinitionError, match="give the batches between two changes"):
        Controller(interval)
