"""Attributes that are computed once, at their first use."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

Value = TypeVar("Value")

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(Generic[Value]):
        """As in functools, but without a lock: threads that come at the same time each compute the value.

        [!] Before Python 3.12, functools' holds a lock while it computes, one for an attribute of all objects of a
        class. Two queries in one process, whose threads need two such attributes in opposite order, wait for ever.
        """

        def __init__(self, compute: Callable[[Any], Value]) -> None:
            self._compute, self.__doc__ = compute, compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Value | Self:
            """Compute the value and keep it in the object, where it is found from then on."""
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value
