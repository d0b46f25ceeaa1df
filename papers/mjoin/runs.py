"""Runs of MJoin and XJoin over the same feeds, measured as results come out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from papers.mjoin.binary_join import Operator
from papers.mjoin.feed import SIDES, Feed, Order, news_feed
from papers.mjoin.mjoin import MJoin, Settings
from papers.mjoin.schedule import PriorityStreams, RandomStreams, Sequential, TupleSchedule, ValueOriented
from papers.mjoin.state import Memory
from papers.mjoin.xjoin import XJoin
from watersmeet.arrays import Floats

Clock = Callable[[], float]

ORDERS: tuple[Order, ...] = ("ordered", "random")
RECORDS = 10
"""Access records between two punctuations, on average."""
QUOTAS = (100, 100 * RECORDS)
"""Of news and records: as many of each as belong together, and long against the ten items that are monitored."""
EQUAL_QUOTAS = (100, 100)
BATCH = 100
"""Punctuations until a batch purge, as in the paper."""
ROOM = 6_000
"""Tuples for which there is memory in the run in which XJoin overflows."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to join.

    Attributes:
        name: What it is called in tables and pictures.
        make: Makes its operator; the dice are for random scheduling.
    """

    name: str
    make: Callable[[Random], Operator]


@dataclass(frozen=True, slots=True)
class Trace:
    """What was measured each time so and so many results more were out; arrays of one length.

    Attributes:
        seconds: Process time since the start.
        tuples: Tuples in memory then.
        punctuations: How many punctuations had gone out.
    """

    seconds: Floats
    tuples: Floats
    punctuations: Floats


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run.

    Attributes:
        items: News items in a feed.
        marks: At which numbers of results to measure, rising; feeds must have at least as many as the last.
        seeds: Each makes a feed of each order.
        repeats: How often each contender is run on a feed; the least time counts.
    """

    items: int
    marks: Sequence[int]
    seeds: Sequence[int]
    repeats: int


def contenders() -> list[Contender]:
    """Return all that are compared."""
    return [
        Contender("priority, value-oriented", lambda dice: _prioritised(QUOTAS, ValueOriented())),
        Contender("priority, sequential", lambda dice: _prioritised(QUOTAS, Sequential())),
        Contender("priority, equal quotas", lambda dice: _prioritised(EQUAL_QUOTAS, ValueOriented())),
        Contender("random, sequential", lambda dice: MJoin(RandomStreams(dice), Sequential(), Settings(Memory()))),
        Contender("MJoin", lambda dice: _prioritised(QUOTAS, ValueOriented(), BATCH, False)),
        Contender("MJoin, purge every 1", lambda dice: _prioritised(QUOTAS, ValueOriented(), 1, False)),
        Contender(
            "MJoin, random streams",
            lambda dice: MJoin(
                RandomStreams(dice), Sequential(), Settings(Memory(), purge_every=BATCH, propagates=False)
            ),
        ),
        Contender("XJoin", lambda dice: XJoin(RandomStreams(dice), Memory())),
        Contender(f"XJoin, room for {ROOM:,}", lambda dice: XJoin(RandomStreams(dice), Memory(limit=ROOM))),
    ]


def _prioritised(quotas: tuple[int, int], tuples: TupleSchedule, every: int = 1, propagates: bool = True) -> MJoin:
    return MJoin(PriorityStreams(quotas), tuples, Settings(Memory(), every, propagates=propagates))


def measure(operator: Operator, feed: Feed, marks: Sequence[int], clock: Clock) -> Trace:
    """Let the whole feed arrive, so that the operator never waits for it, and join it.

    Args:
        operator: A new one.
        feed: What to join.
        marks: See Plan.
        clock: Tells the process time.
    """
    for side in SIDES:
        for element in feed.elements[side]:
            operator.offer(side, element)
    operator.finish()
    gc.collect()
    gc.disable()  # else the largest state would pay for collections that the paper's operators know nothing of
    try:
        return _run(operator, marks, clock)
    finally:
        gc.enable()


def _run(operator: Operator, marks: Sequence[int], clock: Clock) -> Trace:
    samples: list[tuple[float, int, int]] = []
    start = clock()
    while operator.step():
        while len(samples) < len(marks) and operator.results >= marks[len(samples)]:
            samples.append((clock() - start, operator.in_memory, len(operator.output) - operator.results))
    columns: Any = np.array(samples, dtype=np.float64).T
    return Trace(*columns)


def by_turns(plan: Plan, clock: Clock, advance: Callable[[], None]) -> dict[tuple[Order, str], list[Trace]]:
    """Run every contender on every feed, one after the other, so that what slows the machine down hits all alike.

    Args:
        plan: What to run.
        clock: See `measure`.
        advance: Called after each seed.

    Returns:
        For each order of news and each contender a trace a seed.
    """
    traces: dict[tuple[Order, str], list[Trace]] = {}
    for seed in plan.seeds:
        for order in ORDERS:
            feed = news_feed(plan.items, order, np.random.default_rng(seed), records=RECORDS)
            tries: dict[str, list[Trace]] = {}
            for _ in range(plan.repeats):
                for contender in contenders():
                    trace = measure(contender.make(Random(seed)), feed, plan.marks, clock)
                    tries.setdefault(contender.name, []).append(trace)
            for name, repeats in tries.items():
                traces.setdefault((order, name), []).append(fastest(repeats))
        advance()
    return traces


def fastest(traces: Sequence[Trace]) -> Trace:
    """Return the least time at each mark, of runs of one contender on one feed; all else is the same in each."""
    return Trace(np.min([trace.seconds for trace in traces], axis=0), traces[0].tuples, traces[0].punctuations)
