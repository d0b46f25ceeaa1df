"""The order in which the streams were given, connected ones first."""

from dataclasses import dataclass

from watersmeet.ordering.base import JoinOrder


@dataclass(frozen=True, slots=True)
class GivenOrder(JoinOrder):
    """Probes the streams as given, but a stream that some conjunct ties to those joined before one that none does.

    Attributes:
        streams: How many streams there are.
        ties: For each conjunct over two or more streams, the streams it reads.

    >>> GivenOrder(3, (frozenset({0, 1}), frozenset({1, 2}))).order(2)
    (1, 0)
    """

    streams: int
    ties: tuple[frozenset[int], ...]

    def order(self, origin: int, histogram_class: int = 0) -> tuple[int, ...]:
        """See JoinOrder."""
        joined = [origin]
        while len(joined) < self.streams:
            rest = [stream for stream in range(self.streams) if stream not in joined]
            joined.append(next((stream for stream in rest if self._tied(stream, joined)), rest[0]))
        return tuple(joined[1:])

    def _tied(self, stream: int, joined: list[int]) -> bool:
        """Tell whether a conjunct can be decided once `stream` joins, or failing that, begins to bind."""
        return any(stream in tie and tie - {stream} <= set(joined) for tie in self.ties)
