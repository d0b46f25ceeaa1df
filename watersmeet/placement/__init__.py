"""Where tuples are kept and which nodes partial results visit, one strategy a file.

A new strategy is a file of its own here, listed in `strategies.py`; docs/writing-placements.md shows how.
"""

from watersmeet.placement.atr import ATR
from watersmeet.placement.base import Layout, Notes, Placement, Strategy
from watersmeet.placement.central import Central
from watersmeet.placement.ctr import CTR
from watersmeet.placement.dsj import DSJ
from watersmeet.placement.hash import Hash
from watersmeet.placement.psp import PSP

__all__ = [
    "ATR",
    "CTR",
    "DSJ",
    "PSP",
    "Central",
    "Hash",
    "Layout",
    "Notes",
    "Placement",
    "Strategy",
]
