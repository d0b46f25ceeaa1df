"""The order in which the streams are probed, one ordering a file; `join_order.py` has the interface and the default.

Invariant: an order changes how much work a result takes, never which results there are.
"""

from watersmeet.arguments import suggest
from watersmeet.errors import DefinitionError
from watersmeet.ordering.histogram import Histogram
from watersmeet.ordering.join_order import FixedOrder, Given, JoinOrder, Ordering, given_order
from watersmeet.ordering.selectivity import Selectivity

__all__ = ["FixedOrder", "Given", "Histogram", "JoinOrder", "Ordering", "Selectivity", "given_order", "ordering"]

ORDERINGS: dict[str, type[Ordering]] = {"given": Given, "selectivity": Selectivity, "histogram": Histogram}


def ordering(name: str) -> Ordering:
    """Return the ordering with a name.

    Raises:
        DefinitionError: If there is none with that name.
    """
    if not isinstance(name, str) or name not in ORDERINGS:
        names = ", ".join(ORDERINGS)
        raise DefinitionError(f"order={name!r} is unknown; use one of {names}.{suggest(name, [*ORDERINGS])}")
    return ORDERINGS[name]()
