"""What MJoin and XJoin share: queues in, a queue out, and stages of which the next runs only when the last can't."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence

from papers.mjoin.feed import MANY, ONE, Element, Punctuation, Row, Side
from papers.mjoin.schedule import StreamSchedule

Result = tuple[Row, Row]


class Operator(ABC):
    """A binary join that does a little work at each step.

    `offer` elements as they arrive, call `step` as often as there is time, and `finish` when no more will arrive. What
    comes out is appended to `output`.
    """

    def __init__(self, streams: StreamSchedule) -> None:
        self.queues: tuple[deque[Element], deque[Element]] = (deque(), deque())
        self.output: list[Result | Punctuation] = []
        self.results = 0
        """How many of the output are results."""
        self.finished = False
        self.streams = streams

    def offer(self, side: Side, element: Element) -> None:
        """Let an element arrive."""
        self.queues[side].append(element)

    def finish(self) -> None:
        """Say that nothing else will arrive."""
        self.finished = True

    def step(self) -> bool:
        """Do one piece of the most urgent work; return False if there is none."""
        ready = bool(self.queues[ONE]), bool(self.queues[MANY])
        if ready[ONE] or ready[MANY]:
            side = self._choose(ready)
            self._take(side, self.queues[side].popleft())
            return True
        return any(stage() for stage in self._stages())

    def run(self) -> None:
        """Work until there is nothing to do."""
        while self.step():
            pass

    def _choose(self, ready: tuple[bool, bool]) -> Side:
        return self.streams.pick(ready)

    @abstractmethod
    def _take(self, side: Side, element: Element) -> None:
        """Process an element that was retrieved from its queue."""

    @abstractmethod
    def _stages(self) -> Sequence[Callable[[], bool]]:
        """What to do while the queues are empty, the most urgent first; each says whether it had something to do."""

    def _emit(self, one: Row, many: Row) -> None:
        self.output.append((one, many))
        self.results += 1

    @property
    @abstractmethod
    def in_memory(self) -> int:
        """How many tuples are kept in memory."""

    @property
    @abstractmethod
    def on_disk(self) -> int:
        """How many tuples are kept on disk."""
