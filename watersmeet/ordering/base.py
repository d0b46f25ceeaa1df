"""The interface of a join order."""

from abc import ABC, abstractmethod


class JoinOrder(ABC):
    """Answers in which order a new tuple probes the other streams; pure, planned per batch."""

    @abstractmethod
    def order(self, origin: int, histogram_class: int = 0) -> tuple[int, ...]:
        """Return the streams other than `origin`, in the order to probe them.

        Args:
            origin: The stream of the new tuple.
            histogram_class: The class of the tuple's values, for orders chosen per class; 0 where there are none.
        """

    def classes(self, origin: int) -> int:
        """Return how many histogram classes the tuples of a stream fall into."""
        return 1
