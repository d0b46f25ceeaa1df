"""In which order the streams are probed."""

from watersmeet.ordering.base import JoinOrder, Ordering
from watersmeet.ordering.given import FixedOrder, Given, given_order

__all__ = ["FixedOrder", "Given", "JoinOrder", "Ordering", "given_order"]
