"""Sizes as people write them: `512 MB`, `2g`, `1.5 GiB`; units are powers of 1024, as in Spark's settings."""

import re
from fractions import Fraction

from watersmeet.errors import DefinitionError

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)


def bytes_of(size: object, what: str = "size") -> int:
    """Return a size in bytes.

    Args:
        size: A text such as `"512 MB"`; longer than zero.
        what: How an error calls it.

    Raises:
        DefinitionError: If it isn't a size, or is zero.

    >>> bytes_of("512 MB"), bytes_of("2g"), bytes_of("1.5 KiB"), bytes_of("4096")
    (536870912, 2147483648, 1536, 4096)
    >>> bytes_of("plenty", "option 'openBytes'")
    Traceback (most recent call last):
    watersmeet.errors.DefinitionError: option 'openBytes': 'plenty' is not a size of 1 byte or more; write it like '512 MB' or '2 GB'.
    """  # noqa: E501
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    number = int(Fraction(found[1]) * 1024 ** _UNITS[found[2].lower()]) if found else 0
    if not number:
        raise DefinitionError(f"{what}: {size!r} is not a size of 1 byte or more; write it like '512 MB' or '2 GB'.")
    return number
