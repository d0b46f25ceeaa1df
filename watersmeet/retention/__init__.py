"""What may leave the state, and when."""

from watersmeet.retention.base import Moment, Retention, leaving
from watersmeet.retention.windows import ByWindow

__all__ = ["ByWindow", "Moment", "Retention", "leaving"]
