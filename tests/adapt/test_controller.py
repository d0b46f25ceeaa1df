"""The controller: when it changes something, when it waits, what it remembers."""

import json

import pytest

from watersmeet.adapt.controller import OVERDUE, PATIENCE, REMEMBERED, Controller, Decision, Memory, Option
from watersmeet.errors import DefinitionError


def option(name: str, nodes: int, cost: float) -> Option:
    return Option(name, nodes, cost, None, {})


FOUR, SIX = option("PSP", 4, 1.0), option("PSP", 6, 0.5)
RESTED = Memory(rested=100)


def through(controller: Controller, memory: Memory, costs: list[float], overdue: int = 0) -> list[tuple[int, Memory]]:
    """Judge batch after batch, the better option's cost as given; return the nodes taken and what is remembered."""
    seen = []
    for batch, cost in enumerate(costs):
        taken, memory = controller.judge(memory, batch, FOUR, SIX._replace(cost=cost), overdue)
        memory = Memory.of(json.loads(json.dumps({"memory": memory})))  # as the manifest keeps it
        seen.append((taken.nodes, memory))
    return seen


def test_a_gain_must_last() -> None:
    seen = through(Controller(), RESTED, [0.5] * (PATIENCE - 1) + [0.9] + [0.5] * PATIENCE)
    assert [nodes for nodes, _ in seen] == [4] * (2 * PATIENCE - 1) + [6]
    assert [memory.waiting for _, memory in seen] == [1, 2, 0, 1, 2, 0]


def test_a_decision_is_told_with_its_numbers() -> None:
    *_, (_, memory) = through(Controller(), RESTED, [0.5] * PATIENCE)
    (decision,) = memory.log
    assert decision[:4] == (PATIENCE - 1, "nodes", "PSP(nodes=4)", "PSP(nodes=6)") and decision.made
    assert decision.why == (
        "PSP(nodes=6) was predicted to take 0.5 s a second instead of 1 s with PSP(nodes=4), 3 batches on end."
    )
    other = Controller().judge(Memory(PATIENCE, 9), 7, FOUR, option("ATR", 4, 0.1), 0)[1].log[0]
    assert other.kind == "strategy"
    same = FOUR._replace(cost=0.1, options={"segment": "1 second"})
    segment = Controller().judge(Memory(PATIENCE, 9), 7, FOUR, same, 0)[1].log[0]
    assert segment[1:4] == ("segment", "PSP(nodes=4)", "PSP(nodes=4, segment='1 second')")


def test_changes_are_never_closer_than_the_interval() -> None:
    seen = through(Controller(interval=8), Memory(), [0.5] * 40, overdue=OVERDUE)
    changes = [at for at, (nodes, _) in enumerate(seen) if nodes == 6]
    assert changes == [7, 15, 23, 31, 39]


def test_a_join_that_cannot_keep_up_does_not_wait() -> None:
    (nodes, memory), *_ = through(Controller(), RESTED, [0.5], overdue=OVERDUE)
    assert nodes == 6 and "after 3 batches that took too long" in memory.log[0].why
    assert through(Controller(), RESTED, [0.9], overdue=OVERDUE)[0][0] == 4  # there is nothing better


def test_a_dry_run_only_says_what_it_would_do() -> None:
    seen = through(Controller(interval=1, dry_run=True), RESTED, [0.5] * 2 * PATIENCE)
    assert {nodes for nodes, _ in seen} == {4}
    assert [decision.made for decision in seen[-1][1].log] == [False, False]


def test_only_the_last_decisions_are_remembered() -> None:
    memory = Memory()
    for batch in range(REMEMBERED + 5):
        memory = memory.noting(Decision(batch, "nodes", "", "", ""))
    assert [decision.batch for decision in memory.log] == list(range(5, REMEMBERED + 5))


@pytest.mark.parametrize("interval", [0, -1, 1.5, True])
def test_an_interval_is_some_batches(interval: int) -> None:
    with pytest.raises(DefinitionError, match="give the batches between two changes"):
        Controller(interval)
