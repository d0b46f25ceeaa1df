"""A ring in one process: links delivered in any order that FIFO allows, and a brute-force part of the state."""

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from watersmeet.exchange.ring import Action, Completion, EndOfInputMessage, Message, Result, RingNode, Wave

FOREVER = 1 << 60


@dataclass(frozen=True)
class Row:
    """A tuple: `number` is its place in the batch's order of arrival, 0 once the batch is over."""

    id: int
    stream: int
    ts: int
    x: int
    number: int = 0


@dataclass(frozen=True)
class Case:
    """A join, and the ring that runs it."""

    streams: int
    nodes: int
    windows: tuple[int, ...]
    delay: int
    orders: tuple[tuple[int, ...], ...]
    placement: str
    interleaved: int | None

    def matches(self, rows: Iterable[Row]) -> bool:
        """Tell whether the condition holds for tuples of some streams."""
        rows = [*rows]
        return all((a.x + b.x) % 3 != 0 for at, a in enumerate(rows) for b in rows[:at])

    def admits(self, rows: Iterable[Row]) -> bool:
        """Tell whether the windows admit tuples together."""
        rows = [*rows]
        latest = max(row.ts for row in rows)
        return all(latest - row.ts < self.windows[row.stream] for row in rows)

    def end(self, stream: int, node: int) -> float:
        """Return the age at which a stream's tuples leave a node for the next one."""
        return self.windows[stream] * (node + 1) / self.nodes

    def place(self, row: Row, mark: int) -> int:
        """Return the node of a tuple of an earlier batch."""
        if self.placement == "dealt":
            return row.id % self.nodes
        return next((n for n in range(self.nodes) if mark - row.ts < self.end(row.stream, n)), self.nodes - 1)


@dataclass
class Kept:
    """A row at a node, and the waves that see it: those after `since` and before `until`."""

    row: Row
    since: int
    until: int = FOREVER


PartialRow = tuple[int, int, dict[int, Row]]
"""The number and the stream of the tuple that it began with, and its members."""


@dataclass
class SlowState:
    """A node's part of the state, by brute force."""

    case: Case
    node: int
    mark: int
    kept: list[Kept] = field(default_factory=list)
    most: int = 0
    before: int = 0

    def insert(self, rows: list[Row], since: int) -> list[Row] | None:
        here = [row for row in rows if self.case.placement != "dealt" or row.id % self.case.nodes == self.node]
        self.kept += [Kept(row, max(since, row.number - 1)) for row in here]
        self.most = max(self.most, len(self.kept))
        return [row for row in rows if row not in here] or None

    def purge(self, rows: list[Row], wave: Wave) -> Iterator[list[Row]]:
        # [!] A wave's own tuples may be older than its latest one by more than the delay: they ended nothing yet.
        self.before, self.mark = self.mark, max(self.mark, *(row.ts for row in rows))
        for stream in self.streams_to_purge(rows):
            leaving = [kept for kept in self.kept if kept.row.stream == stream and self.leaves(kept)]
            for kept in leaving:
                kept.until = wave.first
            if leaving and self.node < self.case.nodes - 1 and self.case.placement == "slices":
                yield [kept.row for kept in sorted(leaving, key=lambda kept: kept.row.ts)]
            else:
                self.ended(leaving)

    def streams_to_purge(self, rows: list[Row]) -> Iterable[int]:
        return range(self.case.streams)

    def ended(self, kept: list[Kept]) -> None:
        """What no node keeps any more."""

    def leaves(self, kept: Kept) -> bool:
        return kept.until == FOREVER and self.is_too_old(kept)

    def is_too_old(self, kept: Kept) -> bool:
        if self.node < self.case.nodes - 1 and self.case.placement == "slices":
            return self.mark - kept.row.ts >= self.case.end(kept.row.stream, self.node)
        return self.before - self.case.delay - kept.row.ts >= self.case.windows[kept.row.stream]

    def probe(self, block: list[Row] | list[PartialRow], wave: Wave) -> Iterator[list[PartialRow]]:
        for item in block:
            number, origin, members = (item.number, item.stream, {item.stream: item}) if isinstance(item, Row) else item
            target = next(stream for stream in self.case.orders[origin] if stream not in members)
            found = [
                (number, origin, members | {target: kept.row})
                for kept in self.kept
                if kept.row.stream == target and self.sees(kept, number)
                if self.admits([*members.values(), kept.row]) and self.case.matches([*members.values(), kept.row])
            ]
            if found:
                yield found

    def admits(self, rows: Iterable[Row]) -> bool:
        return self.case.admits(rows)

    def sees(self, kept: Kept, number: int) -> bool:
        return kept.since < number < kept.until

    def drop(self, number: int) -> None:
        self.kept = [kept for kept in self.kept if kept.until > number]


class Crash(Exception):
    """The ring dies."""


@dataclass
class Ring:
    """Nodes and the links between them; `node` and `state` are what mutants replace."""

    case: Case
    rows: Sequence[Row]
    mark: int
    dice: random.Random
    node: type[RingNode] = RingNode
    state: type[SlowState] = SlowState
    results: list[frozenset[int]] = field(default_factory=list)
    messages: int = 0
    left: list[Kept] = field(default_factory=list)

    def __post_init__(self) -> None:
        case = self.case
        self.states = [self.state(case, n, self.mark) for n in range(case.nodes)]
        for row in self.rows:
            self.states[case.place(row, self.mark)].kept.append(Kept(row, 0))
        self.nodes = [
            self.node(n, case.nodes, case.streams - 1, self.states[n], case.interleaved) for n in range(case.nodes)
        ]
        self.links: list[deque[Message]] = [deque() for _ in range(case.nodes)]
        self.ended: set[int] = set()

    def run(self, waves: Sequence[list[Row]], crash_after: int | None = None) -> list[Row]:
        """Join a batch, and return what the state then holds; messages arrive as the dice say.

        Raises:
            Crash: After `crash_after` messages.
        """
        waiting = deque(waves)
        while len(self.ended) < self.case.nodes:
            choices = [n for n, link in enumerate(self.links) if link]
            if waiting is not None and (not choices or self.dice.random() < 0.3):
                if waiting:
                    rows = waiting.popleft()
                    self._carry(0, self.nodes[0].enter(rows, len(rows)))
                else:
                    waiting = None  # type: ignore[assignment]
                    self._carry(0, self.nodes[0].handle(EndOfInputMessage()))
                continue
            assert choices, "the ring stands still"
            node = self.dice.choice(choices)
            self._carry(node, self.nodes[node].handle(self.links[node].popleft()))
            self.messages += 1
            if self.messages == crash_after:
                raise Crash
        assert not any(self.links), "something is under way behind the end of the batch"
        self.left = [kept for state in self.states for kept in state.kept if kept.until < FOREVER]
        self.mark = max(state.mark for state in self.states)
        return [kept.row for state in self.states for kept in state.kept if kept.until == FOREVER]

    def _carry(self, node: int, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Result):
                self.results += [frozenset(row.id for row in members.values()) for _, _, members in action.block]
            elif isinstance(action, Completion):
                self.ended.add(node)
            else:
                self.links[(node + 1) % self.case.nodes].append(action)


def random_case(
    dice: random.Random, streams: int | None = None, nodes: int | None = None, placement: str | None = None
) -> Case:
    """Return a join and a ring by dice."""
    streams, nodes = streams or dice.randint(2, 4), nodes or dice.randint(1, 5)
    windows = tuple(dice.choice((3, 6, 10)) for _ in range(streams))
    orders = []
    for origin in range(streams):
        others = [stream for stream in range(streams) if stream != origin]
        orders.append(tuple(dice.sample(others, len(others))))
    interleaved = dice.choice((None, 1, 2, 4, 9))
    placement = placement or dice.choice(("slices", "dealt"))
    return Case(
        streams,
        nodes,
        windows,
        dice.choice((0, 2, 5)),
        tuple(orders),
        placement or dice.choice(("slices", "dealt")),
        interleaved,
    )


def random_batches(dice: random.Random, case: Case, tuples: int) -> list[list[Row]]:
    """Return batches of tuples that come no later than the join's delay allows."""
    latest, rows = 0, list[Row]()
    for at in range(tuples):
        ts = max(0, latest - dice.randint(0, case.delay)) if dice.random() < 0.5 else latest + dice.randint(0, 2)
        latest = max(latest, ts)
        rows.append(Row(at, dice.randrange(case.streams), ts, dice.randrange(3) + dice.randrange(2)))
    cuts = sorted(dice.sample(range(1, tuples), min(tuples - 1, dice.randint(0, 3))))
    return [rows[low:high] for low, high in zip([0, *cuts], [*cuts, tuples], strict=True)]


def in_waves(dice: random.Random, rows: Sequence[Row], most: int) -> list[list[Row]]:
    """Number a batch's tuples by arrival, and cut them into waves."""
    numbered = [Row(row.id, row.stream, row.ts, row.x, at) for at, row in enumerate(rows, 1)]
    waves = list[list[Row]]()
    while numbered:
        size = dice.randint(1, most)
        waves.append(numbered[:size])
        numbered = numbered[size:]
    return waves


def expected(case: Case, batches: Sequence[Sequence[Row]]) -> list[frozenset[int]]:
    """Return all results, by brute force."""
    by_stream = [[row for rows in batches for row in rows if row.stream == s] for s in range(case.streams)]
    return sorted(
        (frozenset(row.id for row in rows) for rows in product(*by_stream) if case.admits(rows) and case.matches(rows)),
        key=sorted,
    )
