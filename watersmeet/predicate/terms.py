"""Comparisons of real numbers that only the JVM computes to the last bit: what they are made of.

Spark's `sin`, `exp` or `vector_cosine_similarity` may differ from any other library's in the last bits. Such a
comparison is carried over as a tree, `kernel.balls` evaluates it with a bound of the difference, and only pairs closer
to the border than that are left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from watersmeet.predicate.casts import cast, coerce
from watersmeet.predicate.expr import Expr, Refusal
from watersmeet.predicate.model import Column
from watersmeet.predicate.source import Node
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import DOUBLE, FLOAT, FRACTIONAL, NUMERIC, STRING, Type, common_type

Sign = Literal["<", "<=", ">", ">=", "=", "<>"]

UNARY = frozenset({
    "negative", "abs", "sqrt", "cbrt", "exp", "expm1", "ln", "log10", "log2", "log1p", "sin", "cos", "tan", "sec",
    "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians", "float",
})  # fmt: skip
BINARY = frozenset({"+", "-", "*", "/", "pow", "atan2", "hypot"})
VECTORS = frozenset({"vector_cosine_similarity", "vector_inner_product", "vector_l2_distance"})

JARO_WINKLER = "jaro_winkler_similarity"
JARO_WINKLER_ERROR = 1e-14


@dataclass(frozen=True, slots=True)
class Leaf:
    """A DuckDB expression of type DOUBLE that never raises; NaN also where its value can't be trusted.

    Attributes:
        sql: The expression.
        columns: The columns it reads; empty for a constant.
        error: By how much it may differ from Spark's value, absolute.
    """

    sql: str
    columns: tuple[Column, ...] = ()
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of terms, in double precision; `float` rounds its argument to single precision."""

    function: str
    arguments: tuple[Term, ...]

    def __post_init__(self) -> None:
        count = 1 if self.function in UNARY else 2 if self.function in BINARY else None
        if count != len(self.arguments):
            raise ValueError(f"{self.function} of {len(self.arguments)} terms is unknown.")


@dataclass(frozen=True, slots=True)
class Vector:
    """A function of two columns of type array<float>; its value is a float."""

    function: str
    left: Column
    right: Column

    def __post_init__(self) -> None:
        if self.function not in VECTORS:
            raise ValueError(f"{self.function} is no function of vectors.")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns it reads."""
        return (self.left, self.right)


Term = Leaf | Apply | Vector


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left sign right`, compared as doubles."""

    sign: Sign
    left: Term
    right: Term

    @property
    def inputs(self) -> tuple[Leaf | Vector, ...]:
        """The distinct leaves and vector functions, whose balls `kernel.balls.decide` needs."""
        return tuple(dict.fromkeys((*inputs(self.left), *inputs(self.right))))

    @property
    def columns(self) -> frozenset[Column]:
        """Every column it reads."""
        return frozenset(column for term in self.inputs for column in term.columns)


def inputs(term: Term) -> Iterator[Leaf | Vector]:
    """The leaves and vector functions of a term."""
    if not isinstance(term, Apply):
        yield term
        return
    for argument in term.arguments:
        yield from inputs(argument)


def comparison_of(node: Node, translator: Translator) -> tuple[Comparison, ...] | None:
    """The comparisons that must all be TRUE for the condition to be TRUE; None where it doesn't fit.

    It fits a comparison, BETWEEN, or NOT of a comparison, in which at least one function is inexact and the rest can
    be computed by DuckDB; all else is left to others. NULL and FALSE are not told apart.
    """
    raise NotImplementedError
