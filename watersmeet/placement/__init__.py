"""Where tuples are kept and which nodes partial results visit, one strategy a file.

A strategy plans a layout before each batch (`base.py`), and prices itself for `Auto` (`priced_strategy.py`). Owners
belong to chunks, so a layout can be wasteful but never loses a result. A new strategy is a file of its own here, listed
in `strategies.py`; docs/writing-placements.md shows how.

- PSP: `psp.py`, with `slices_by_age.py` (the ring, and the balance of its work)
- ATR: `atr.py`, with `segments.py`
- CTR: `ctr.py`, with `set_cover.py`
- DSJ, Hash and Central: one file each
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
