"""The ring: nodes that pass tuples and partial results on to their neighbours, each holding a part of the state.

The protocol of PSP and PSP-I (paper on PSP, sections 4.1, 4.2 and 4.4) as a pure state machine: `RingNode.handle`
takes a message and yields what follows from it, lazily. Links are first in, first out, and lead from each node to the
next and from the last to the first. Node 0 is the head, where tuples enter; the last node is the tail. Whoever drives
the nodes carries the messages; what a node's part of the state is, and how it is probed, is injected as a `RingState`.

Tuples enter in waves: consecutive tuples in the order of arrival. A wave of one tuple, and one wave at a time, is the
paper's PSP; several waves at a time is PSP-I. What a message carries is opaque here: a `Block` of rows or of partial
results.

In micro-batches, chunks don't move: `StoredChunks` (`ring_task.py`) inserts, purges and drops nothing. Build messages
and purging are thus exercised only by the tests, and by any state that is to live longer than a batch.

Where the paper, read as printed, loses or doubles results, the rules here differ:

- [!] A partial result that comes home is not passed on, but it is probed with like any other.
- [!] A probe purges the state of every stream, not only of the one that it probes next.
- [!] What a wave's partial results see at a node is what its probe saw there, however far the state has moved since:
  rows that came after the probe passed are not seen, and rows that later probes handed on are. Age would not tell.
- [!] A row that was handed on is handed on once, and dropped here only when no wave that may see it is under way.
- [!] The tail drops rows by the same rule as the other nodes, not at once.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

Block = Any
"""Rows, or partial results: known to the state only."""


class Wave(NamedTuple):
    """Tuples that enter the ring together: the numbers of the first and the last, counted from 1 in a batch."""

    first: int
    last: int


class BuildMessage(NamedTuple):
    """Rows to be kept; a neighbour handed them on, or they are new."""

    rows: Block


class ProbeMessage(NamedTuple):
    """New tuples that look for partners at each node, once round the ring."""

    wave: Wave
    rows: Block


class PartialMessage(NamedTuple):
    """Partial results on their way round the ring, back to the node that made them.

    Attributes:
        wave: The tuples that they began with.
        level: How many streams those have been joined with.
        block: The partial results; None if this is only an END.
        maker: The node that made them; it doesn't pass them on.
        end: The paper's END flag: behind this, the head gets no partial result of that level from this wave.
    """

    wave: Wave
    level: int
    block: Block | None
    maker: int
    end: bool = False


class ReleaseMessage(NamedTuple):
    """All of a wave's results have been found; rows that were kept only for it may go."""

    wave: Wave


class EndOfInputMessage(NamedTuple):
    """No more tuples enter in this batch; once all waves are done, each node ends the batch."""


class Result(NamedTuple):
    """Complete results; they leave the ring where they are found."""

    block: Block


class Completion(NamedTuple):
    """A node has ended the batch: everything that was to pass it has passed."""


Message = BuildMessage | ProbeMessage | PartialMessage | ReleaseMessage | EndOfInputMessage
"""What travels on a link."""
Action = Message | Result | Completion
"""What follows from a message: messages to the next node, in this order, or results that leave the ring."""


class RingState(Protocol):
    """A node's part of the state. Rows know the number of their tuple, 0 for those of earlier batches."""

    def insert(self, rows: Block, since: int) -> Block | None:
        """Keep rows, and return those that are to be kept at a later node instead; None if there are none.

        Waves from `since + 1` on see them, but no wave before their own.

        Args:
            rows: The rows.
            since: The last tuple whose probe has passed here.
        """

    def purge(self, rows: Block, wave: Wave) -> Iterable[Block]:
        """Move slices and the watermark on, and mark the rows that leave.

        Waves before `wave` still see them until `drop`. Yields those that the next node is to keep, oldest first; what
        the tail yields is ignored.

        [!] May be lazy: the caller must consume it before it probes.

        Args:
            rows: The tuples of the wave, which move slices and the watermark on.
            wave: The wave that probes next.
        """

    def probe(self, block: Block, wave: Wave) -> Iterable[Block]:
        """Join tuples or partial results of a wave with the next stream, over the rows kept at this node.

        Only rows that the wave's probe saw when it passed here count, so that no result is found twice.

        Args:
            block: Tuples or partial results of the wave.
            wave: The wave.

        Yields:
            The longer partial results.
        """

    def drop(self, number: int) -> None:
        """Drop rows that no wave can see that contains the tuple of this number or a later one."""


class RingNode:
    """One node of a ring.

    Args:
        number: Its number, from 0, the head.
        nodes: How many nodes the ring has.
        last_level: How many probes turn a tuple into a result: one for each other stream, at least 1.
        state: Its part of the state.
        interleaved: How many tuples may be under way at once (PSP-I); None for one wave at a time. For the head only.
    """

    def __init__(
        self, number: int, nodes: int, last_level: int, state: RingState, interleaved: int | None = None
    ) -> None:
        self.number, self._last_level = number, last_level
        self._is_head, self._is_tail = number == 0, number == nodes - 1
        self._state = state
        self._passed = 0
        self._under_way: deque[Wave] = deque()
        self._interleaved = interleaved
        self._waiting: deque[tuple[Wave, Block]] = deque()
        self._is_admitting = False
        self._ending = False

    def enter(self, rows: Block, size: int) -> Iterator[Action]:
        """Let tuples enter at the head, now or once those before them are done, and yield what follows.

        [!] Lazy: nothing is queued until the first action is asked for, and all of them must be consumed.

        Args:
            rows: The tuples, in the order of arrival.
            size: How many they are.
        """
        first = (self._waiting[-1][0].last if self._waiting else self._passed) + 1
        self._waiting.append((Wave(first, first + size - 1), rows))
        yield from self._admit()

    @property
    def can_take_wave(self) -> bool:
        """Whether no wave waits at the head, so that its driver may read the next one."""
        return not self._waiting

    def handle(self, message: Message) -> Iterator[Action]:
        """Yield what follows from a message; the caller takes it all before it hands over the next message."""
        match message:
            case BuildMessage(rows):
                yield from self._build(rows)
            case ProbeMessage(wave, rows):
                yield from self._probe(wave, rows)
            case PartialMessage():
                yield from self._continue(message)
            case ReleaseMessage(wave):
                yield from self._finish_wave(wave)
            case EndOfInputMessage():
                self._ending = True
                if self._is_head:
                    yield from self._admit()
                else:
                    yield from self._end()

    def _build(self, rows: Block) -> Iterator[Action]:
        """Keep rows here, and send those that belong to a later node on (1-1 of figure 3)."""
        elsewhere = self._state.insert(rows, self._passed)
        if elsewhere is not None:
            yield BuildMessage(elsewhere)

    def _probe(self, wave: Wave, rows: Block) -> Iterator[Action]:
        """Purge, pass the probe on, and probe here with its tuples; the wave is under way until it is finished.

        Rows that purging moves go ahead of the probe; partial results follow it (2-1 to 2-4 of figure 3, and figure 5).
        The tail passes neither those rows nor the probe on; the head marks its last partial result with END, or sends
        END alone. If this was the last level, results follow instead, and at the head the wave is finished. Lazy.
        """
        for moved in self._state.purge(rows, wave):
            if not self._is_tail:
                yield BuildMessage(moved)
        if not self._is_tail:
            yield ProbeMessage(wave, rows)
        self._passed = wave.last
        self._under_way.append(wave)
        yield from self._ship(wave, 1, self._state.probe(rows, wave), end=self._is_head)

    def _continue(self, partial: PartialMessage) -> Iterator[Action]:
        """Pass partial results on, unless they are back where they were made; in both cases probe here with them.

        What that finds is shipped at the next level. An END that is back at the head is renewed for that level (3-1 to
        3-3 of figure 3).
        """
        is_home = partial.maker == self.number
        if not is_home:
            yield partial
        longer = () if partial.block is None else self._state.probe(partial.block, partial.wave)
        yield from self._ship(partial.wave, partial.level + 1, longer, partial.end and is_home)

    def _ship(self, wave: Wave, level: int, blocks: Iterable[Block], end: bool) -> Iterator[Action]:
        """Yield blocks as partial results, the last with an END if due; or as results once they are complete.

        At that level, an END finishes the wave instead.
        """
        if level == self._last_level:
            yield from map(Result, blocks)
            if end:  # Theorem 1: of this wave, the head gets nothing more
                yield from self._finish_wave(wave)
            return
        before: Block | None = None
        for block in blocks:
            if before is not None:
                yield PartialMessage(wave, level, before, self.number)
            before = block
        if before is not None or end:
            yield PartialMessage(wave, level, before, self.number, end)

    def _finish_wave(self, wave: Wave) -> Iterator[Action]:
        """Forget a wave whose results are all found: drop rows kept only for it, and tell the next node.

        The head then admits waiting waves, or ends the batch.
        """
        self._under_way.remove(wave)
        self._state.drop(self._under_way[0].first if self._under_way else self._passed + 1)
        if not self._is_tail:
            yield ReleaseMessage(wave)
        if self._is_head:
            yield from self._admit()

    def _admit(self) -> Iterator[Action]:
        """Let waiting waves in at the head while those under way leave room; end the batch once all are done."""
        if self._is_admitting:  # the wave that was let in is done already: the loop below goes on
            return
        self._is_admitting = True
        while self._waiting and self._has_room(self._waiting[0][0]):
            wave, rows = self._waiting.popleft()
            yield from self._build(rows)
            yield from self._probe(wave, rows)
        self._is_admitting = False
        if self._ending and not self._waiting and not self._under_way:
            yield from self._end()

    def _has_room(self, wave: Wave) -> bool:
        """Tell whether a wave may enter: nothing is under way, or not too much for interleaving."""
        if not self._under_way:
            return True
        return self._interleaved is not None and wave.last - self._under_way[0].first < self._interleaved

    def _end(self) -> Iterator[Action]:
        """End the batch: behind this, nothing comes on the link, since all waves are done."""
        if not self._is_tail:
            yield EndOfInputMessage()
        yield Completion()
