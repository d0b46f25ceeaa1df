"""`check_strategy`: tests a placement of your own by random joins under it, compared with the oracle."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pyarrow as pa

from watersmeet.batch.plan import start, view
from watersmeet.placement import Strategy
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query import windows
from watersmeet.query.query import Query, StreamSpec
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.int64()), ("k", pa.string())])
CONDITIONS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], bool]] = {
    "{0}.x < {1}.x": lambda one, two: one["x"] < two["x"],
    "abs({0}.x - {1}.x) < 3": lambda one, two: abs(one["x"] - two["x"]) < 3,
    "{0}.k = {1}.k": lambda one, two: one["k"] == two["k"],
}
"""The conditions between neighbouring streams, as SQL for the engine and as functions for the oracle."""
BATCHES, ROWS = 5, 12


def check_strategy(*strategies: Strategy, rounds: int = 20, seed: int = 0) -> None:
    """Assert that joins under these strategies, which alternate from batch to batch, give the oracle's results.

    Each round is another join of two or three streams with windows, disorder and late rows, run with the exchanges
    `local` and `shuffle`. All state goes through the store, so a strategy's notes must survive JSON.

    Args:
        strategies: The strategies.
        rounds: How many joins.
        seed: The seed of the first join; a failure names that of its join.

    Raises:
        AssertionError: If results are missing, too many or wrong; the message says which, and how to run that again.
        ValueError: If the strategies refused all joins.

    >>> from watersmeet import PSP
    >>> check_strategy(PSP(3), PSP(2), rounds=2)
    """
    served = [_round(strategies, random.Random(at), at) for at in range(seed, seed + rounds)]
    if not any(served):
        raise ValueError("The strategies refused all joins: nothing was checked.")


def _round(strategies: Sequence[Strategy], dice: random.Random, seed: int) -> bool:
    """Draw a join and rows from `dice`, run it with the strategies in turn, over two exchanges, and ask the oracle.

    Returns False, running nothing, if a strategy refuses the join. Stores are temporary folders; `seed` is only named
    in the error.

    Raises:
        AssertionError: If results are missing or too many.
    """
    names = "abc"[: dice.choice([2, 3])]
    streams = [oracle.Stream(name, _window(dice), dice.randint(0, 10)) for name in names]
    query, holds = _query(streams, dice)
    if any(strategy.refusal(view(query, start(query))) for strategy in strategies):
        return False
    batches = [_rows(names, at, dice) for at in range(BATCHES)]
    arrivals = [oracle.Arrival(at, n, r["ts"], content_key(r), r) for at, rows in enumerate(batches) for n, r in rows]
    expected = oracle.join(streams, arrivals, holds)
    for exchange in ("local", "shuffle"):
        with TemporaryDirectory(prefix="watersmeet-") as folder:
            run = Run(query, Store(folder))
            for at, rows in enumerate(batches):
                run.step(strategies[at % len(strategies)], [(names.index(n), row) for n, row in rows], exchange)
        _compare(
            run.results, expected.results, f"exchange {exchange}, {query.where!r}; seed={seed}, rounds=1 repeats it"
        )
    return True


def _compare(actual: Counter[Any], expected: Counter[Any], where: str) -> None:
    """Compare results as multisets.

    Raises:
        AssertionError: If some are missing or too many.
    """
    missing, extra = expected - actual, actual - expected
    if missing or extra:
        raise AssertionError(
            f"{missing.total()} of {expected.total()} results missing, {extra.total()} too many ({where}): "
            f"missing {list(missing)[:3]}, too many {list(extra)[:3]}"
        )


def _window(dice: random.Random) -> oracle.Window:
    """Return a random window, mostly a sliding one."""
    kinds: list[oracle.Window] = [
        oracle.Sliding(dice.randint(1, 20)),
        oracle.Count(dice.randint(1, 8)),
        oracle.Hopping(dice.randint(1, 20), dice.randint(1, 10), dice.choice(get_args(windows.Closed))),
        oracle.Unbounded(),
    ]
    return dice.choices(kinds, [4, 1, 1, 1])[0]


def _rows(names: str, batch: int, dice: random.Random) -> list[tuple[str, dict[str, Any]]]:
    """Return random rows of a batch, each with its stream: around the batch's time, some of them late."""
    return [
        (
            dice.choice(names),
            {
                "id": 1000 * batch + at,
                "ts": 8 * batch + dice.randint(-6, 8),
                "x": dice.randint(0, 9),
                "k": dice.choice("pq"),
            },
        )
        for at in range(ROWS * len(names))
    ]


def _query(streams: Sequence[oracle.Stream], dice: random.Random) -> tuple[Query, oracle.Predicate]:
    """Return a query that links each stream to the next by a random condition, and the same as a predicate."""
    pairs = [(one.name, two.name, dice.choice(list(CONDITIONS))) for one, two in pairwise(streams)]
    text = " AND ".join(condition.format(one, two) for one, two, condition in pairs)
    specs = tuple(StreamSpec(s.name, SCHEMA, 1, _to_engine_window(s.window), s.delay) for s in streams)
    conjuncts = parse_where(text, [(spec.name, spec.schema) for spec in specs], (), Dialect())

    def holds(rows: Mapping[str, Mapping[str, Any]]) -> bool:
        return all(CONDITIONS[condition](rows[one], rows[two]) for one, two, condition in pairs)

    return Query(specs, conjuncts, text), holds


def _to_engine_window(window: oracle.Window) -> windows.Window:
    """Return the engine's window for the oracle's."""
    match window:
        case oracle.Sliding(size):
            return windows.Sliding(size)
        case oracle.Count(rows):
            return windows.Count(rows)
        case oracle.Hopping(size, step, closed):
            return windows.Hopping(size, step, closed)
        case oracle.Unbounded():
            return windows.Window()
