"""What is found before a join starts, one by one."""

import numpy as np
import pytest

from tests.observe.dashboard.recorded_join import SECOND, query
from watersmeet.adapt.findings import Finding, costly, defined, disordered, placed
from watersmeet.query.windows import Sliding, Window

WINDOWS = (Sliding(10 * SECOND),)


def test_a_sound_join_has_no_findings() -> None:
    assert [*defined(query())] == [*placed(2, 2)] == [*placed(None, 2)] == [*placed(8, None)] == []


def test_state_without_bound() -> None:
    (found,) = defined(query(windows=(Window(), *WINDOWS)))
    assert (found.severity, found.kind) == ("warning", "state")
    assert found.says.startswith("Stream 'a' has no window, and nothing ever lets its tuples go")


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("", "No condition of `where` ties 'a' to 'b', nor to 'c': whatever"),
        ("a.x < b.x", "No condition of `where` ties 'a' and 'b' to 'c': whatever"),
        ("a.x < c.x", "No condition of `where` ties 'a' and 'c' to 'b': whatever"),
        ("a.x < b.x AND b.ts < c.ts", None),
        ("a.x + b.x < c.x", None),
    ],
)
def test_streams_that_nothing_ties_to_the_others(where: str, says: str | None) -> None:
    found = [*defined(query(where, WINDOWS * 3, "abc"))]
    level = "warning" if where else "note"
    assert [(finding.severity, finding.kind) for finding in found] == ([] if says is None else [(level, "tie")])
    assert says is None or found[0].says.startswith(says)


def test_more_nodes_than_tasks() -> None:
    (found,) = placed(8, 2)
    assert str(found).startswith("note: The strategy has 8 nodes, and 2 tasks run at once")


def test_a_delay_that_is_shorter_than_the_disorder() -> None:
    stream = query().streams[0]  # with a delay of a second
    times = np.array([0, 5, 4, 3, 6, 2, 7]) * SECOND
    (found,) = disordered(stream, times)
    assert (found.severity, found.kind) == ("warning", "delay")
    assert "up to 4 seconds after later ones" in found.says and "2 of 7 tuples" in found.says
    assert "delay='4 seconds'" in found.says
    assert [*disordered(stream, times[:3])] == [*disordered(stream, times[:0])] == []
    (found,) = disordered(stream, np.array([100 * SECOND, 0]))
    assert "delay='2 minutes'" in found.says


def test_a_predicate_that_takes_most_of_the_time() -> None:
    costs = {"near": {"pairs": 1000, "matches": 10, "ms": 800.0}, "far": {"pairs": 10, "matches": 1, "ms": 1.0}}
    (found,) = costly(costs, 1.0)
    assert isinstance(found, Finding) and found.kind == "predicate"
    assert (
        "'near' takes 80% of the time" in found.says and "800 µs a call, 1,000 calls, of which 1.0% match" in found.says
    )
    assert [*costly(costs, 10.0)] == [*costly({}, 1.0)] == [*costly(costs, 0.0)] == []
