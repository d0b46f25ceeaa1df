"""Spilling: work that is too much now is put off and paid for later; nothing is lost, nothing comes twice."""

from watersmeet.spilling.base import Spilling

__all__ = ["Spilling"]
