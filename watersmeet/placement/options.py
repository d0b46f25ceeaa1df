"""Checks of the options that users give strategies."""

from datetime import timedelta
from math import inf
from typing import Any, Literal, get_args

from watersmeet.arguments import is_number, is_whole, microseconds
from watersmeet.errors import DefinitionError

Relocation = Literal["auto", "passive", "aggressive"]
"""What happens to the state when a ring changes."""


def check_nodes(nodes: Any, limit: int = 4096, what: str = "nodes") -> int:
    """Return the number of nodes.

    Raises:
        DefinitionError: If it isn't a whole number from 1 to the limit.
    """
    if not is_whole(nodes) or nodes > limit:
        raise DefinitionError(f"{what}={nodes!r}: a strategy runs on a whole number of nodes from 1 to {limit}.")
    return int(nodes)


def check_switch(what: str, value: Any) -> None:
    """Reject a value that is neither True nor False."""
    if not isinstance(value, bool):
        raise DefinitionError(f"{what}={value!r}: it is True or False.")


def check_above_zero(what: str, value: Any, most: float = inf) -> None:
    """Reject a value that is not a number above 0 and at most `most`."""
    if not is_number(value) or not 0 < value <= most:
        limit = "" if most == inf else f", at most {most:g}"
        raise DefinitionError(f"{what} is {value!r}: give a number above 0{limit}.")


def segment_length(segment: str | timedelta | None) -> int | None:
    """Return a segment length in microseconds; None for None.

    Raises:
        DefinitionError: If it isn't longer than zero.
    """
    length = None if segment is None else microseconds(segment, "segment")
    if length is not None and length < 1:
        raise DefinitionError(f"segment={segment!r}: a segment must be longer than zero.")
    return length


def check_load(nodes: int, weights: Any, capacities: Any) -> None:
    """Check the weights and capacities that define a node's load.

    Raises:
        DefinitionError: Unless there are three weights of at least 0, not all 0, and a capacity above 0 for each node.
    """
    if not _are_amounts(weights) or len(weights) != 3 or not any(weights):
        raise DefinitionError(f"weights={weights!r}: give three numbers, for CPU, memory and network, not all 0.")
    if capacities != () and not (_are_amounts(capacities) and len(capacities) == nodes and all(capacities)):
        raise DefinitionError(f"capacities={capacities!r}: give one number above 0 for each of the {nodes} nodes.")


def _are_amounts(values: Any) -> bool:
    return isinstance(values, tuple) and all(is_number(value) and 0 <= value < inf for value in values)


def check_relocation(relocation: Any) -> None:
    """Reject an unknown relocation."""
    if relocation not in get_args(Relocation):
        raise DefinitionError(f"relocation={relocation!r}: use one of {', '.join(get_args(Relocation))}.")
