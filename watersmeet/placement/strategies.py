"""The strategies that there are to choose from: whoever adds one enters it here, and nowhere else."""

from collections.abc import Mapping

from watersmeet.placement.atr import ATR
from watersmeet.placement.central import Central
from watersmeet.placement.ctr import CTR
from watersmeet.placement.dsj import DSJ
from watersmeet.placement.hash import Hash
from watersmeet.placement.priced import Priced
from watersmeet.placement.psp import PSP

EVERY: tuple[type[Priced], ...] = (Hash, Central, PSP, DSJ, ATR, CTR)
STRATEGIES: Mapping[str, type[Priced]] = {kind.__name__: kind for kind in EVERY}
"""Each by its name; where costs are equal, the earlier one is taken."""
