"""What chooses among values: CASE, if, coalesce, nullif, greatest, least."""

from collections.abc import Callable, Sequence

from watersmeet.predicate.casts import cast
from watersmeet.predicate.expr import Expr, Refusal, combine, null_test
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.types import BOOLEAN, ORDERED, VOID, Type, common_type


def shared_type(values: Sequence[Expr], dialect: Dialect) -> Type:
    """The type in which Spark returns one of several values."""
    shared = VOID
    for value in values:
        wider = common_type(shared, value.type, ansi=dialect.ansi)
        if wider is None:
            kinds = ", ".join(dict.fromkeys(str(value.type) for value in values))
            raise Refusal(f"The values must be of one type, not {kinds}; cast them.")
        shared = wider
    return shared


def cast_alike(values: Sequence[Expr], dialect: Dialect) -> list[Expr]:
    """The values cast to their shared type."""
    type_ = shared_type(values, dialect)
    return [cast(value, type_, dialect) for value in values]


def as_condition(expr: Expr, dialect: Dialect) -> Expr:
    """The expression, which must be boolean."""
    if expr.type.kind not in {"boolean", "void"}:
        raise Refusal(f"A condition is expected here, not a value of type {expr.type}.")
    return cast(expr, BOOLEAN, dialect)


def choose(branches: Sequence[tuple[Expr, Expr]], otherwise: Expr | None, dialect: Dialect) -> Expr:
    """`CASE WHEN condition THEN value ... ELSE otherwise END`; only the branch taken is evaluated, as in Spark."""
    last = otherwise or Expr("NULL", VOID, literal=None)
    given = all(value.never_null for value in [*(value for _, value in branches), last])
    *values, last = cast_alike([*(value for _, value in branches), last], dialect)
    conditions = [as_condition(test, dialect) for test, _ in branches]
    parts = "".join(f"WHEN {test.sql} THEN {value.sql} " for test, value in zip(conditions, values, strict=True))
    return combine(f"(CASE {parts}ELSE {last.sql} END)", last.type, [*conditions, *values, last], given=given)


def if_then(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`if(condition, value, otherwise)`."""
    return choose([(arguments[0], arguments[1])], arguments[2], dialect)


def nvl2(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`nvl2(test, value if not NULL, otherwise)`."""
    return choose([(null_test(arguments[0], negated=True), arguments[1])], arguments[2], dialect)


def nullif(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`nullif(value, other)`: NULL if they are equal."""
    value = arguments[0]
    one, two = cast_alike(arguments, dialect)
    if one.type.kind not in ORDERED | {"void"}:
        raise Refusal(f"{one.type} can't be compared.")
    return combine(f"(CASE WHEN {one.sql} = {two.sql} THEN NULL ELSE {value.sql} END)", value.type, (one, two))


def coalesce(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """The first value that is not NULL."""
    made = cast_alike(arguments, dialect)
    given = any(value.never_null for value in arguments)
    return combine(f"coalesce({', '.join(value.sql for value in made)})", made[0].type, made, given=given)


def extreme(name: str) -> Callable[[Sequence[Expr], Dialect], Expr]:
    """`greatest` or `least`: NULLs are left out, NaN is the greatest."""

    def build(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
        made = cast_alike(arguments, dialect)
        if made[0].type.kind not in ORDERED | {"void"}:
            raise Refusal(f"{made[0].type} has no order.")
        given = any(value.never_null for value in arguments)
        return combine(f"{name}({', '.join(value.sql for value in made)})", made[0].type, made, given=given)

    return build
