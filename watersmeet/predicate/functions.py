"""Spark's functions by name: what they take, what they give, and how DuckDB says it."""

from collections.abc import Callable, Sequence

from watersmeet.predicate.arithmetic import absolute
from watersmeet.predicate.expr import Expr, Refusal
from watersmeet.predicate.model import Dialect, PythonPredicate

Build = Callable[[Sequence[Expr], Dialect], Expr]

FUNCTIONS: dict[str, Build] = {
    "abs": lambda arguments, dialect: absolute(arguments[0], dialect),
}


def call_function(
    name: str, arguments: Sequence[Expr], dialect: Dialect, predicates: Sequence[PythonPredicate]
) -> Expr:
    """A call of one of Spark's functions."""
    build = FUNCTIONS.get(name.lower())
    if build is None:
        raise Refusal(f"There is no function {name} here; a Python predicate must be listed in predicates=[...].")
    return build(arguments, dialect)
