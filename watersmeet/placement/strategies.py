"""The strategies to choose from; a new strategy is added to this list only."""

from collections.abc import Mapping

from watersmeet.placement.atr import ATR
from watersmeet.placement.central import Central
from watersmeet.placement.ctr import CTR
from watersmeet.placement.dsj import DSJ
from watersmeet.placement.hash import Hash
from watersmeet.placement.priced_strategy import PricedStrategy
from watersmeet.placement.psp import PSP

EVERY: tuple[type[PricedStrategy], ...] = (Hash, Central, PSP, DSJ, ATR, CTR)
STRATEGIES: Mapping[str, type[PricedStrategy]] = {kind.__name__: kind for kind in EVERY}
"""The strategies by name; of several with the same cost, the first is chosen."""
