"""In which order the streams are probed."""

from watersmeet.ordering.base import JoinOrder
from watersmeet.ordering.given import GivenOrder

__all__ = ["GivenOrder", "JoinOrder"]
