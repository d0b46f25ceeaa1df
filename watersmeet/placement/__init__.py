"""Where tuples are kept and whom partial results must visit, one strategy a file.

A new one is a file of its own here, and is entered in `strategies.py`; docs/writing-placements.md shows how.
"""

from watersmeet.placement.atr import ATR
from watersmeet.placement.base import Layout, Placement, Strategy
from watersmeet.placement.central import Central
from watersmeet.placement.ctr import CTR
from watersmeet.placement.dsj import DSJ
from watersmeet.placement.hash import Hash
from watersmeet.placement.psp import PSP
from watersmeet.placement.strategy_notes import Notes

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
