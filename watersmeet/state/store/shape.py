"""The shape of documents: whether values read from JSON have an expected type, checked once, where they are read.

A type is a class or a hint: `int`, `str | None`, `tuple[int, ...]`, a TypedDict for an object, a dataclass or a
NamedTuple for an object of its fields or for a list of their values, as manifests write them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from watersmeet.formatting import shorten

Check = Callable[[Any], None]
LARGEST = 1 << 64
"""The bound of whole numbers: times, counts, sizes and their differences are smaller."""


class Misfit(ValueError):
    """A value of the wrong type.

    Args:
        expected: What was expected in its place.
        value: The value.
    """

    def __init__(self, expected: str, value: Any) -> None:
        self.place, self.expected, self.value = "", expected, value

    def within(self, place: str) -> "Misfit":
        """Add the enclosing place to the path of the value, and return this error."""
        self.place = f"{place}{self.place}"
        return self

    def __str__(self) -> str:
        return f"{self.place.lstrip('.') or 'it'} is {shorten(self.value)}, and {self.expected} was expected"


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a value besides its type: `Annotated[int, Rule(lambda n: n > 0, "a positive number")]`."""

    holds: Callable[[Any], bool]
    expected: str


def check(value: Any, kind: Any) -> None:
    """Raise a Misfit if a value doesn't have a type."""
    _check(kind)(value)


def check_fields(values: Mapping[str, Any], kind: type) -> None:
    """Raise a Misfit if values, by the names of fields, don't make a dataclass."""
    _object(_fields(kind), _required_fields(kind))(values)


@cache
def _check(kind: Any) -> Check:
    """Return what raises Misfit for a value that isn't of a type, by its hints; made once for each type."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: None
    if origin is NotRequired:
        return _check(parts[0])
    if origin is Annotated:
        return _check_rules(parts[0], parts[1:])
    if origin in (Union, UnionType):
        return _either(parts)
    if origin is Literal:
        return _leaf(lambda value: value in parts and isinstance(value, str), " or ".join(map(repr, parts)))
    if origin is tuple and parts[-1:] != (...,):
        return _row([("", part) for part in parts], len(parts))
    if origin in (tuple, list, frozenset, Sequence):
        return _list(parts[0])
    if origin in (dict, Mapping):
        return _mapping(*parts)
    if is_typeddict(kind):
        return _object(_fields(kind), kind.__required_keys__)
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _record(kind)
    return _leaf(*_LEAVES[kind]) if kind in _LEAVES else _instance(kind)


def _is_whole(value: Any) -> bool:
    return type(value) is int and -LARGEST < value < LARGEST


_LEAVES: dict[Any, tuple[Callable[[Any], bool], str]] = {
    int: (_is_whole, "a whole number"),
    float: (lambda value: type(value) is float or _is_whole(value), "a number"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    str: (lambda value: isinstance(value, str), "text"),
    None: (lambda value: value is None, "null"),
    NoneType: (lambda value: value is None, "null"),
}


def _leaf(holds: Callable[[Any], bool], expected: str) -> Check:
    """Return the check of a value by one condition."""

    def check(value: Any) -> None:
        if not holds(value):
            raise Misfit(expected, value)

    return check


def _instance(kind: type) -> Check:
    return _leaf(lambda value: isinstance(value, kind), f"a value of type {kind.__name__}")


def _check_rules(kind: Any, rules: Sequence[Rule]) -> Check:
    """Return the check of a type and of the rules that annotate it."""

    def check(value: Any) -> None:
        _check(kind)(value)
        for rule in rules:
            if not rule.holds(value):
                raise Misfit(rule.expected, value)

    return check


def _either(kinds: Sequence[Any]) -> Check:
    """Return the check of a union; of several misfits it raises the one found deepest inside the value."""

    def check(value: Any) -> None:
        misfits = []
        for kind in sorted(kinds, key=lambda kind: kind is not NoneType):
            try:
                return _check(kind)(value)
            except Misfit as misfit:
                misfits.append(misfit)
        deepest = max(misfits, key=lambda misfit: len(misfit.place))
        if deepest.place:
            raise deepest
        raise Misfit(" or ".join(misfit.expected for misfit in reversed(misfits)), value)

    return check


def _list(kind: Any) -> Check:
    """Return the check of a list, each element of one type."""

    def check(value: Any) -> None:
        if not isinstance(value, list | tuple):
            raise Misfit("a list", value)
        each = _check(kind)
        for at, part in enumerate(value):
            try:
                each(part)
            except Misfit as misfit:
                raise misfit.within(f"[{at}]") from None

    return check


def _row(kinds: Sequence[tuple[str, Any]], least: int) -> Check:
    """Return the check of a list of values of these names and types; those after the first `least` may be absent."""

    def check(value: Any) -> None:
        if not isinstance(value, list | tuple) or not least <= len(value) <= len(kinds):
            raise Misfit(f"a list of {len(kinds)} values", value)
        for at, (part, (name, kind)) in enumerate(zip(value, kinds, strict=False)):
            try:
                _check(kind)(part)
            except Misfit as misfit:
                raise misfit.within(f".{name}" if name else f"[{at}]") from None

    return check


def _mapping(keys: Any, values: Any) -> Check:
    """Return the check of an object or, if keys are not texts, of a list of pairs."""
    if keys is not str and get_origin(keys) is not Annotated:
        return _list(tuple[keys, values])

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Misfit("an object", value)
        for key, part in value.items():
            try:
                _check(keys)(key)
                _check(values)(part)
            except Misfit as misfit:
                raise misfit.within(f"[{shorten(key)}]") from None

    return check


def _object(kinds: Mapping[str, Any], required: frozenset[str]) -> Check:
    """Return the check of an object with these fields, of which some are required; others are ignored."""

    def check(value: Any) -> None:
        if not isinstance(value, dict) or not required <= value.keys():
            lacking = sorted(required - value.keys()) if isinstance(value, dict) else []
            raise Misfit(f"an object with {', '.join(lacking)}" if lacking else "an object", value)
        for name, kind in kinds.items():
            if name in value:
                try:
                    _check(kind)(value[name])
                except Misfit as misfit:
                    raise misfit.within(f".{name}") from None

    return check


def _record(kind: Any) -> Check:
    """Return the check of a dataclass or a NamedTuple: an instance, an object, or a list of its fields' values."""
    kinds, required = _fields(kind), _required_fields(kind)
    by_name, in_order = _object(kinds, required), _row([*kinds.items()], len(required))

    def check(value: Any) -> None:
        if not isinstance(value, kind):
            (by_name if isinstance(value, dict) else in_order)(value)

    return check


NAMES: dict[str, Any] = {}
"""Types in hints that their modules import for type checkers only."""


def _fields(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind, localns=NAMES, include_extras=True)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", hints)
    return {name: hints[name] for name in names}


def _required_fields(kind: Any) -> frozenset[str]:
    if not is_dataclass(kind):
        return frozenset(kind._fields) - frozenset(kind._field_defaults)
    return frozenset(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)
