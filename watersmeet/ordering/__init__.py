"""In which order the streams are probed."""

from watersmeet.errors import DefinitionError
from watersmeet.ordering.base import JoinOrder, Ordering
from watersmeet.ordering.given import FixedOrder, Given, given_order

__all__ = ["FixedOrder", "Given", "JoinOrder", "Ordering", "given_order", "ordering"]

ORDERINGS: dict[str, type[Ordering]] = {"given": Given}


def ordering(name: str) -> Ordering:
    """Return the ordering of a name.

    Raises:
        DefinitionError: If there is none of that name.
    """
    if name not in ORDERINGS:
        raise DefinitionError(f"order={name!r} is unknown; it is one of {', '.join(ORDERINGS)}.")
    return ORDERINGS[name]()
