"""In which order the streams are probed."""

from watersmeet.arguments import suggest
from watersmeet.errors import DefinitionError
from watersmeet.ordering.base import JoinOrder, Ordering
from watersmeet.ordering.given import FixedOrder, Given, given_order
from watersmeet.ordering.histogram import Histogram
from watersmeet.ordering.selectivity import Selectivity

__all__ = ["FixedOrder", "Given", "Histogram", "JoinOrder", "Ordering", "Selectivity", "given_order", "ordering"]

ORDERINGS: dict[str, type[Ordering]] = {"given": Given, "selectivity": Selectivity, "histogram": Histogram}


def ordering(name: str) -> Ordering:
    """Return the ordering of a name.

    Raises:
        DefinitionError: If there is none of that name.
    """
    if not isinstance(name, str) or name not in ORDERINGS:
        known = ", ".join(ORDERINGS)
        raise DefinitionError(f"order={name!r} is unknown; use one of {known}.{suggest(name, [*ORDERINGS])}")
    return ORDERINGS[name]()
