"""Closed choices of the Spark runtime."""

from typing import Literal

Exchange = Literal["driver", "local", "shuffle"]
"""`driver`: as `local`, but small batches run in the driver's own process.
`local`: all tasks see the store on one host.
`shuffle`: partial results travel by a Spark shuffle per hop."""
