"""Spilling: work that is too much now is put off and paid for later; nothing is lost, nothing comes twice."""

from watersmeet.spilling.base import Spilling
from watersmeet.spilling.controller import Controller
from watersmeet.spilling.options import Spill
from watersmeet.spilling.paying import Paying

__all__ = ["Controller", "Paying", "Spill", "Spilling"]
