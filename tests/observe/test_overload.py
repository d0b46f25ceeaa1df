"""The warning for joins that can't keep up."""

from dataclasses import replace

from tests.adapt.test_auto import measured_state
from watersmeet.adapt.adaptation import OVERDUE
from watersmeet.adapt.auto import Auto
from watersmeet.observe.timing import MOST_NODES, describe_overload, nodes_needed
from watersmeet.placement import PSP, Central
from watersmeet.state.manifest.view import Machine

HEAVY = replace(measured_state(pair=1e-4), machine=Machine(row_seconds=1e-6, hop_seconds=0.01, overdue=OVERDUE))
"""A batch of one second of event time takes about 20 s on one node."""


def test_the_warning_after_several_late_batches_has_the_nodes_that_would_do() -> None:
    warning = describe_overload(PSP(2), HEAVY, due=5.0, seconds=10.2)
    assert warning is not None
    assert (warning["batches"], warning["nodesNeeded"]) == (OVERDUE, 5)
    assert warning["says"] == (
        "The last 3 batches took longer than the trigger's 5 s, the last one 10.2 s; "
        "5 nodes are predicted to sustain the load."
    )
    assert describe_overload(PSP(2), replace(HEAVY, machine=Machine(overdue=OVERDUE - 1)), 5.0, 10.2) is None


def test_a_load_that_no_ring_would_hold() -> None:
    warning = describe_overload(PSP(2), HEAVY, due=0.01, seconds=10.2)
    assert warning is not None and warning["nodesNeeded"] is None
    assert f"up to {MOST_NODES} nodes would not be enough" in warning["says"]


def test_a_batch_in_which_time_stood_still_counts_as_one_of_the_time_between_two() -> None:
    still = replace(HEAVY, streams=tuple(replace(stream, advance=0) for stream in HEAVY.streams))
    assert nodes_needed(PSP(2), still, 1.0) == nodes_needed(PSP(2), HEAVY, 1.0)


def test_where_few_tasks_run_at_once_no_number_of_nodes_helps() -> None:
    warning = describe_overload(PSP(2), replace(HEAVY, machine=replace(HEAVY.machine, slots=2)), due=5.0, seconds=10.2)
    assert warning is not None and warning["nodesNeeded"] is None
    assert warning["says"].endswith("; no number of nodes would be enough with 2 tasks at once.")


def test_strategies_that_have_one_node_are_measured_by_a_ring() -> None:
    assert nodes_needed(Central(), HEAVY, 5.0) == nodes_needed(Auto(), HEAVY, 5.0) == 5
