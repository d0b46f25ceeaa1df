"""What users give, in Python's own types: NumPy's scalars and arrays will do wherever numbers and tuples do."""

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

import numpy as np


def plain(given: Any) -> Any:
    """Return a scalar of NumPy's as Python's own, and a list or an array as a tuple; anything else as it is.

    >>> plain(np.int64(3)), plain(np.array([1.5, 2.0])), plain(np.timedelta64(5, "s")), plain("x")
    (3, (1.5, 2.0), datetime.timedelta(seconds=5), 'x')
    """
    if isinstance(given, np.timedelta64):
        return given.astype("timedelta64[us]").item()
    if isinstance(given, np.generic):
        return given.item()
    return tuple(map(plain, given)) if isinstance(given, list | tuple | np.ndarray) else given


def take_plain(made: Any) -> None:
    """Make what a frozen dataclass was given Python's own; called before it is checked."""
    for field in fields(made):
        if field.init:
            object.__setattr__(made, field.name, plain(getattr(made, field.name)))


def is_whole(given: object, least: int = 1) -> bool:
    """Tell whether something is a whole number that is not below `least`; a boolean is none."""
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def is_number(given: object) -> bool:
    """Tell whether something is a number, NaN among them; a boolean is none."""
    return isinstance(given, int | float) and not isinstance(given, bool)


def meant(given: object, known: "list[str] | tuple[str, ...]") -> str:
    """Return what was probably meant by a name, as a question with a space before it; empty if that can't be told.

    >>> meant("selectivty", ["given", "selectivity"])
    " Did you mean 'selectivity'?"
    """
    near = nearest(given, known)
    return "" if near is None else f" Did you mean {near!r}?"


def nearest(given: object, known: "list[str] | tuple[str, ...]") -> str | None:
    """Return the name that was probably meant; None if that can't be told."""
    small = {name.lower(): name for name in known}
    near = get_close_matches(str(given).lower(), small, n=1, cutoff=0.75)
    return small[near[0]] if near else None
