"""The checks of a join before it starts, one by one."""

import numpy as np
import pytest

from tests.observe.dashboard.recorded_join import SECOND, query
from watersmeet.adapt.findings import Finding, check_definition, check_delay, check_predicate_costs, check_slots
from watersmeet.query.windows import Sliding, Window

WINDOWS = (Sliding(10 * SECOND),)


def test_a_sound_join_has_no_findings() -> None:
    assert (
        [*check_definition(query())] == [*check_slots(2, 2)] == [*check_slots(None, 2)] == [*check_slots(8, None)] == []
    )


def test_state_without_bound() -> None:
    (finding,) = check_definition(query(windows=(Window(), *WINDOWS)))
    assert (finding.severity, finding.kind) == ("warning", "state")
    assert finding.says.startswith("Stream 'a' has no window, and nothing ever removes its tuples")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "No condition of `where` ties 'a' to 'b', nor to 'c': every"),
        ("a.x < b.x", "No condition of `where` ties 'a' and 'b' to 'c': every"),
        ("a.x < c.x", "No condition of `where` ties 'a' and 'c' to 'b': every"),
        ("a.x < b.x AND b.ts < c.ts", None),
        ("a.x + b.x < c.x", None),
    ],
)
def test_streams_that_nothing_ties_to_the_others(where: str, message: str | None) -> None:
    findings = [*check_definition(query(where, WINDOWS * 3, "abc"))]
    level = "warning" if where else "note"
    assert [(finding.severity, finding.kind) for finding in findings] == ([] if message is None else [(level, "tie")])
    assert message is None or findings[0].says.startswith(message)


def test_more_nodes_than_tasks() -> None:
    (finding,) = check_slots(8, 2)
    assert str(finding).startswith("note: The strategy has 8 nodes, and 2 tasks run at once")


def test_a_delay_that_is_shorter_than_the_disorder() -> None:
    stream = query().streams[0]  # with a delay of a second
    times = np.array([0, 5, 4, 3, 6, 2, 7]) * SECOND
    (finding,) = check_delay(stream, times)
    assert (finding.severity, finding.kind) == ("warning", "delay")
    assert "up to 4 seconds after later ones" in finding.says and "2 of 7 tuples" in finding.says
    assert "delay='4 seconds'" in finding.says
    assert [*check_delay(stream, times[:3])] == [*check_delay(stream, times[:0])] == []
    (finding,) = check_delay(stream, np.array([100 * SECOND, 0]))
    assert "delay='2 minutes'" in finding.says


def test_a_predicate_that_takes_most_of_the_time() -> None:
    costs = {"near": {"pairs": 1000, "matches": 10, "ms": 800.0}, "far": {"pairs": 10, "matches": 1, "ms": 1.0}}
    (finding,) = check_predicate_costs(costs, 1.0)
    assert isinstance(finding, Finding) and finding.kind == "predicate"
    assert (
        "'near' takes 80% of the time" in finding.says
        and "800 µs a call, 1,000 calls, of which 1.0% match" in finding.says
    )
    assert (
        [*check_predicate_costs(costs, 10.0)]
        == [*check_predicate_costs({}, 1.0)]
        == [*check_predicate_costs(costs, 0.0)]
        == []
    )
