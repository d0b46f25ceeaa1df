"""What `progress` may contain, by the table of its fields."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from docs.progress_fields import FIELDS


def unknown(progress: Mapping[str, Any]) -> set[str]:
    """Return the paths of fields that the table lacks."""
    return set(_unknown(progress, ""))


def _unknown(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inside in value.items():
            yield from _unknown_key(inside, path, str(key))
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from _unknown(inside, f"{path}[]")


def _unknown_key(value: Any, path: str, key: str) -> Iterator[str]:
    under = f"{path}." if path else ""
    name = next((known for known in _children(under) if known.startswith("<")), key)
    known = under + name
    if known == "inner.<stream>":
        yield from _unknown(value, "")
    elif known not in FIELDS and not _children(f"{known}."):
        yield known
    elif not name.startswith("<") or _children(f"{known}."):
        yield from _unknown(value, known)


@cache
def _children(under: str) -> set[str]:
    """Return the keys that the table has right below a path."""
    below = {path.removeprefix(under) for path in FIELDS if path.startswith(under)}
    return {path.partition(".")[0].removesuffix("[]").partition("[]")[0] for path in below}
