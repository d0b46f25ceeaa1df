"""The load of a node: a weighted sum of what its tasks really used.

`w = w1 * cpu + w2 * memory + w3 * network`: equation 1 of the paper on ATR and CTR, equation 2 of the one on DSJ. Each
resource counts as the node's share of what all nodes used, so that the weights compare like with like.
"""

from collections.abc import Sequence

from watersmeet.state.manifest.view import Usage

ROW_SECONDS = 2e-6
"""To send a row and receive it, as a shuffle on one host takes; it only steers."""
DECAY = 0.5
"""How much of the usage remembered still counts after one more batch."""


def loads(
    usage: Sequence[Usage], nodes: int, weights: Sequence[float] = (1, 1, 1), capacities: Sequence[float] = ()
) -> list[float]:
    """Return the load of each node, relative to its capacity; 0 for nodes that nothing is known of.

    >>> loads([Usage(3, 10, 0), Usage(1, 10, 0)], 3)
    [1.25, 0.75, 0.0]
    """
    totals = [sum(getattr(used, name) for used in usage) or 1.0 for name in ("cpu", "memory", "network")]
    found = [0.0] * nodes
    for node, used in enumerate(usage[:nodes]):
        parts = zip(weights, (used.cpu, used.memory, used.network), totals, strict=True)
        found[node] = sum(weight * part / total for weight, part, total in parts) / (capacities or [1.0] * nodes)[node]
    return found


def smoothed(old: float | None, new: float) -> float:
    """Return a figure to remember after a batch: one of the last batches, the latest most.

    >>> smoothed(None, 3), smoothed(1, 3)
    (3, 2.0)
    """
    return new if old is None else DECAY * old + (1 - DECAY) * new


def remembered(before: Sequence[Usage], now: Sequence[Usage]) -> list[Usage]:
    """Return the usage to remember after a batch; what all nodes used together is smoothed, too, if nodes come or go.

    >>> remembered([Usage(8.0)], [Usage(2.0), Usage(2.0)])
    [Usage(cpu=5.0, memory=0.0, network=0.0), Usage(cpu=1.0, memory=0.0, network=0.0)]
    """
    if not before:
        return list(now)
    columns = [_remembered([getattr(u, n) for u in before], [getattr(u, n) for u in now]) for n in Usage.__slots__]
    return [Usage(*values) for values in zip(*columns, strict=True)]


def _remembered(before: Sequence[float], now: Sequence[float]) -> list[float]:
    known = [*before, *[0.0] * (len(now) - len(before))]
    each = [smoothed(old, new) for old, new in zip(known, now, strict=False)]
    part = smoothed(sum(before), sum(now)) / (sum(each) or 1.0)
    return [part * value for value in each]
