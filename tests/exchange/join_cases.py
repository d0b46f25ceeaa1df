"""Joins that every exchange must run alike: streams, batches, conditions for the engine and for the oracle."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

import watersmeet as wm
from watersmeet.testing.oracle import Count, Hopping, Sliding, Stream, Unbounded

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("k", pa.string())])
SECOND = 1_000_000
START = datetime.fromtimestamp(0, UTC)

Rows = Sequence[tuple[str, dict[str, Any]]]
"""Rows with the names of their streams, event times in microseconds."""


@dataclass(frozen=True)
class JoinCase:
    """A join and its input.

    Attributes:
        streams: Windows and delays in microseconds.
        where: The condition for the engine.
        holds: The same for the oracle, over one row a stream.
        batches: The rows.
        predicates: The Python predicates that `where` calls.
        how: What is asked of optional streams.
        needs: What an exchange must be able to do to run it.
    """

    streams: Sequence[Stream]
    where: str
    holds: Callable[[Mapping[str, Any]], bool | None]
    batches: Sequence[Rows]
    predicates: Sequence[Any] = ()
    how: Mapping[str, Any] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        """The names of the streams."""
        return [stream.name for stream in self.streams]

    def table(self, rows: Rows, name: str) -> pa.Table:
        """Return the rows of one stream."""
        return pa.Table.from_pylist([row for stream, row in rows if stream == name], schema=SCHEMA)


@wm.predicate
def close(x: float, ys: Any) -> Any:
    return abs(ys - x) < 2


def cuts(seed: int, names: str, batches: int = 4, rows: int = 18) -> list[Rows]:
    """Return random batches: event time moves on by 8 s a batch, in disorder, with NULLs in columns, no ties."""
    rng, number = random.Random(seed), 0
    cut = list[Rows]()
    for batch in range(batches):
        part = list[tuple[str, dict[str, Any]]]()
        for _ in range(rows):
            ts = (batch * 8 + rng.randint(-4, 8) + 20) * SECOND + number
            row = {"id": number, "ts": ts, "x": rng.choice([None, 0.0, 1.0, 2.0, 4.0]), "k": rng.choice(["p", "q"])}
            part.append((rng.choice(names), row))
            number += 1
        cut.append(part)
    return cut


def _less(rows: Mapping[str, Any]) -> bool | None:
    x, y = rows["a"]["x"], rows["b"]["x"]
    return None if x is None or y is None else x < y


def _near(rows: Mapping[str, Any]) -> bool | None:
    x, y = rows["a"]["x"], rows["b"]["x"]
    return None if x is None or y is None else abs(x - y) < 2


def _same(one: str, other: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda rows: rows[one]["k"] == rows[other]["k"]


def _streams(names: str, *windows: Any, delay: int = 4) -> list[Stream]:
    return [Stream(name, window, delay * SECOND) for name, window in zip(names, windows, strict=True)]


SLIDING = Sliding(10 * SECOND)
CASES = {
    "sliding windows": JoinCase(_streams("ab", SLIDING, Sliding(6 * SECOND)), "a.x < b.x", _less, cuts(1, "ab")),
    "three streams": JoinCase(
        _streams("abc", SLIDING, SLIDING, SLIDING),
        "abs(a.x - b.x) < 2 AND b.k = c.k",
        lambda rows: _near(rows) and _same("b", "c")(rows),
        cuts(2, "abc"),
    ),
    "four streams": JoinCase(
        _streams("abcd", *[SLIDING] * 4),
        "a.k = b.k AND b.k = c.k AND a.x < b.x AND c.k = d.k",
        lambda rows: _less(rows) and all(_same(x, y)(rows) for x, y in ("ab", "bc", "cd")),
        cuts(3, "abcd", 3, 14),
    ),
    "hopping and unbounded windows": JoinCase(
        _streams("ab", Hopping(10 * SECOND, 5 * SECOND), Unbounded()), "a.x < b.x", _less, cuts(4, "ab")
    ),
    "count windows": JoinCase(
        _streams("abc", Count(5), SLIDING, Count(3)),
        "a.x < b.x AND b.k = c.k",
        lambda rows: _less(rows) and _same("b", "c")(rows),
        cuts(5, "abc"),
        needs=frozenset({"count windows"}),
    ),
    "rows that are late": JoinCase(_streams("ab", SLIDING, SLIDING, delay=0), "a.x < b.x", _less, cuts(6, "ab", 6)),
    "a Python predicate": JoinCase(
        _streams("ab", SLIDING, SLIDING),
        "close(a.x, b.x) AND a.k = b.k",
        lambda rows: _near(rows) and _same("a", "b")(rows),
        cuts(7, "ab"),
        predicates=(close,),
        needs=frozenset({"python predicates"}),
    ),
    "a condition that may raise": JoinCase(
        _streams("ab", SLIDING, SLIDING),
        "a.x <> 0 AND b.x / a.x > 1",
        lambda rows: None if not rows["a"]["x"] or rows["b"]["x"] is None else rows["b"]["x"] / rows["a"]["x"] > 1,
        cuts(8, "ab"),
        needs=frozenset({"conditions that raise"}),
    ),
    **{
        f"a {kind} join": JoinCase(
            _streams("ab", SLIDING, SLIDING),
            "a.k = b.k AND abs(a.x - b.x) < 2",
            lambda rows: _near(rows) and _same("a", "b")(rows),
            cuts(9, "ab", 5),
            how={"b": kind},
            needs=frozenset({"optional streams"}),
        )
        for kind in ("left", "semi", "anti")
    },
    "no rows at all": JoinCase(_streams("ab", SLIDING, SLIDING), "a.x < b.x", _less, [[]]),
}
