"""Closed choices of the Spark runtime."""

from typing import Literal

Exchange = Literal["local", "shuffle"]
"""`local`: all tasks see the store on one host. `shuffle`: partial results travel by a Spark shuffle per hop."""
