"""What may leave the state for good, and when: a rule each.

Work that is only put off does not leave: docs/where-things-go.md says where spilling will be.
"""

from watersmeet.retention.base import Moment, Retention, leaving
from watersmeet.retention.refreshed import Refreshed
from watersmeet.retention.windows import ByWindow

__all__ = ["ByWindow", "Moment", "Refreshed", "Retention", "leaving"]
