"""What policies rank by, each by an example of its own."""

from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.metadata.constraints import FlaggedPunctuations, Pattern
from watersmeet.placement import Hash
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.numbers import bucket
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.spilling.controller import Controller
from watersmeet.spilling.options import POLICY_NAMES, Spill
from watersmeet.spilling.parts import Part
from watersmeet.spilling.policies import POLICIES, Links
from watersmeet.spilling.policies.punctuated import PunctuatedPolicy
from watersmeet.spilling.policies.synchronized import SynchronizedPolicy
from watersmeet.spilling.units import Group, Tally
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run


def part(name: str, tally: Tally = Tally(), join: str = "j", **more: object) -> Part:  # noqa: B008
    group = Group(8, int(name[1:]), 0)
    return Part(join, group, (name,), 10, 100, 0, 10, tally, **more)  # type: ignore[arg-type]


def order(policy: str, *parts: Part) -> list[int]:
    return [found.group.partition for found in POLICIES[policy]().lowest(parts)]


def test_local_goes_by_a_joins_own_results_and_global_by_those_of_the_plan() -> None:
    one, two = part("p1", Tally(0, 100, 2, 10)), part("p2", Tally(0, 20, 15, 10))
    assert order("local", one, two) == [2, 1]
    assert order("global", one, two) == [1, 2]


def test_results_on_the_way_count_against_a_part() -> None:
    many, few = part("p1", Tally(0, 40, 20, 10)), part("p2", Tally(0, 22, 20, 10))
    assert order("global", few, many) == [1, 2]


def test_chance_is_the_same_for_the_same_seed() -> None:
    parts = [part(f"p{at}") for at in range(8)]
    seeds = [[found.name for found in POLICIES["random"](seed=seed).lowest(parts)] for seed in "aab"]
    assert seeds[0] == seeds[1] != seeds[2]


def test_weight_comes_before_results() -> None:
    heavy, light = part("p1", Tally(0, 0, 0, 10), weight=3.0), part("p2", Tally(0, 90, 90, 10), weight=1.0)
    assert order("semantic", heavy, light) == [2, 1]


def test_parents_follow_up_to_the_root() -> None:
    links = Links.of({"j_0": "j", "j_0_0": "j_0"}, {("j_0_0", 1, 4): 9, ("j_0_0", 1, 5): 1, ("j_0", 4, 7): 1})
    good = Tally(0, 9, 9, 10)
    child, middle = part("p1", join="j_0_0"), [part("p4", good, join="j_0"), part("p5", good, join="j_0")]
    parts = [part("p7", good), part("p6", Tally(0, 5, 5, 10)), child, *middle]

    def spilled(some: list[Part], correlation: float = 0.1) -> list[int]:
        return [one.group.partition for one in SynchronizedPolicy(correlation=correlation, links=links).lowest(some)]

    assert spilled(parts) == [1, 4, 5, 7, 6]
    assert spilled(parts, correlation=0.2) == [1, 4, 7, 6, 5]
    later = Part("j_0", Group(8, 4, 0), (), 1, 1, 11, 12, good)
    assert spilled([child, later, parts[1]]) == [1, 6, 4]


def test_parents_are_paid_with_what_feeds_them() -> None:
    links = Links.of({"j_0": "j"}, {("j_0", 1, 4): 9})
    parts = [part("p1", Tally(0, 9, 9, 10), join="j_0"), part("p4", Tally(0, 1, 1, 10)), part("p6", Tally(0, 5, 5, 10))]
    assert [one.group.partition for one in SynchronizedPolicy(links=links).highest(parts)] == [1, 4, 6]
    assert [one.group.partition for one in SynchronizedPolicy().highest(parts)] == [1, 6, 4]


def test_what_a_punctuation_closed_is_paid_first_then_streams_take_turns() -> None:
    closed = part("p0", closed=True)
    ones = [part(f"p{at}", stream_rows={0: at}) for at in (1, 2, 3)]
    many = [part(f"p{at}", stream_rows={1: at}) for at in (4, 5)]
    policy = PunctuatedPolicy(quotas={("j", 0): 4, ("j", 1): 1})
    paid = [found.group.partition for found in policy.highest([*ones, *many, closed])]
    assert paid == [0, 3, 2, 5, 1, 4]


@pytest.mark.long
def test_a_punctuation_closes_the_partition_of_its_value(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("end", pa.bool_())])
    ends = FlaggedPunctuations(3, (Pattern(2, 2, 2),))
    streams = tuple(StreamSpec(name, schema, 1, Window(), 1000, constraints=(ends,)) for name in "ab")
    query = Query(streams, parse_where("a.k = b.k", [(s.name, s.schema) for s in streams], (), Dialect()), "a.k = b.k")
    run = Run(query, Store(str(tmp_path)), partitions=4)
    run.spilling = Controller(Spill(memory=1, partitions=4, policy="punctuated", oldest="1 hour"))
    for at in range(3):
        rows = [(s, {"id": 10 * at + k + 5 * s, "ts": at, "k": k, "end": False}) for s in (0, 1) for k in range(5)]
        run.step(Hash(2), rows)
    run.step(Hash(2), [(0, {"id": 99, "ts": 4, "k": 3, "end": True})])
    assert run.state is not None
    assert run.state.ledger.closed == {(4, int(bucket(pa.array([3]), 4)[0]))}
    while run.run_round(Hash(2), all=True):
        pass
    assert not run.state.ledger.closed and run.results.total() == 5 * 9
    assert not any(len(ids) == 2 and 99 in ids for ids, _ in run.results)


def test_users_can_choose_each_policy_by_its_name() -> None:
    assert tuple(POLICIES) == POLICY_NAMES
    assert all(policy.name == name for name, policy in POLICIES.items())
