"""Where tuples are kept and whom partial results must visit, one strategy a file."""

from watersmeet.placement.base import HopView, Placement, StateView, Strategy, StreamView, Usage
from watersmeet.placement.central import Central
from watersmeet.placement.psp import PSP

__all__ = ["PSP", "Central", "HopView", "Placement", "StateView", "Strategy", "StreamView", "Usage"]
