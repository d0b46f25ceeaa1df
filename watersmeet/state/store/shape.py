"""The shape of documents: what is read back must be of the type that is meant, checked once, where it is read.

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
"""Whole numbers are smaller: times, counts and sizes are, and differences of two of them."""


class Misfit(ValueError):
    """A value that is not what its place asks for.

    Args:
        wanted: What is expected there.
        value: What is there.
    """

    def __init__(self, wanted: str, value: Any) -> None:
        self.place, self.wanted, self.value = "", wanted, value

    def within(self, place: str) -> "Misfit":
        """Return it as it is seen from further outside."""
        self.place = f"{place}{self.place}"
        return self

    def __str__(self) -> str:
        return f"{self.place.lstrip('.') or 'it'} is {shorten(self.value)}, and {self.wanted} was expected"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value must be besides its type: `Annotated[int, Rule(lambda n: n > 0, "a positive number")]`."""

    holds: Callable[[Any], bool]
    wanted: str


def check(value: Any, kind: Any) -> None:
    """Raise a Misfit if a value is not of a type."""
    _check(kind)(value)


def check_fields(values: Mapping[str, Any], kind: type) -> None:
    """Raise a Misfit if a dataclass can't be made of values by the names of its fields."""
    _object(_fields(kind), _needed(kind))(values)


@cache
def _check(kind: Any) -> Check:
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: None
    if origin is NotRequired:
        return _check(parts[0])
    if origin is Annotated:
        return _ruled(parts[0], parts[1:])
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


def _leaf(holds: Callable[[Any], bool], wanted: str) -> Check:
    def check(value: Any) -> None:
        if not holds(value):
            raise Misfit(wanted, value)

    return check


def _instance(kind: type) -> Check:
    return _leaf(lambda value: isinstance(value, kind), f"a value of type {kind.__name__}")


def _ruled(kind: Any, rules: Sequence[Rule]) -> Check:
    def check(value: Any) -> None:
        _check(kind)(value)
        for rule in rules:
            if not rule.holds(value):
                raise Misfit(rule.wanted, value)

    return check


def _either(kinds: Sequence[Any]) -> Check:
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
        raise Misfit(" or ".join(misfit.wanted for misfit in reversed(misfits)), value)

    return check


def _list(kind: Any) -> Check:
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
    """Check an object or, where keys are more than texts, a list of pairs."""
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


def _object(kinds: Mapping[str, Any], needed: frozenset[str]) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, dict) or not needed <= value.keys():
            lacking = sorted(needed - value.keys()) if isinstance(value, dict) else []
            raise Misfit(f"an object with {', '.join(lacking)}" if lacking else "an object", value)
        for name, kind in kinds.items():
            if name in value:
                try:
                    _check(kind)(value[name])
                except Misfit as misfit:
                    raise misfit.within(f".{name}") from None

    return check


def _record(kind: Any) -> Check:
    """Check a dataclass or a NamedTuple: made already, as an object, or as a list of the values of its fields."""
    kinds, needed = _fields(kind), _needed(kind)
    by_name, in_order = _object(kinds, needed), _row([*kinds.items()], len(needed))

    def check(value: Any) -> None:
        if not isinstance(value, kind):
            (by_name if isinstance(value, dict) else in_order)(value)

    return check


NAMES: dict[str, Any] = {}
"""Types that hints name and their modules import for type checkers only."""


def _fields(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind, localns=NAMES, include_extras=True)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", hints)
    return {name: hints[name] for name in names}


def _needed(kind: Any) -> frozenset[str]:
    if not is_dataclass(kind):
        return frozenset(kind._fields) - frozenset(kind._field_defaults)
    return frozenset(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)
