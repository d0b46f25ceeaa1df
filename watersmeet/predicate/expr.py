"""A typed DuckDB expression, and the order of evaluation that Spark promises for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.predicate.model import Column
from watersmeet.predicate.types import BOOLEAN, INTEGRAL, VOID, Type, integer_range

NOT_LITERAL: Any = object()


class Refusal(Exception):
    """SQL that can't be translated; the caller that knows the place turns it into a SqlError.

    Attributes:
        problem: One sentence.
        node: The sqlglot node to underline, once known.
    """

    def __init__(self, problem: str, node: Any = None) -> None:
        super().__init__(problem)
        self.problem, self.node = problem, node


@dataclass(frozen=True, slots=True)
class Expr:
    """A DuckDB expression that means what Spark means.

    Attributes:
        sql: The expression, safe to put inside any other (an identifier, a call, or in parentheses).
        type: Its Spark type.
        columns: The columns it reads.
        raises: Whether evaluating it may raise.
        literal: The value, of a constant known when the join is defined (None is NULL).
        span: The values an integer can take, where narrower than its type's.
        or_null: An expression of the same value that is NULL where this one raises; None if there is none.
        unsure: A condition, never NULL, under which DuckDB's answer can't be trusted; None if it always can.
        fails: Whether Spark may raise for it where DuckDB's answer can't be trusted.
        non_null: Whether Spark knows that it is never NULL, and so never computes it to find out.
        integer: If it is a float and nothing but a cast of an integer read from columns, that integer.
        rough: Whether it is such a float, or computed from one.
    """

    sql: str
    type: Type
    columns: frozenset[Column] = frozenset()
    raises: bool = False
    literal: Any = NOT_LITERAL
    span: tuple[int, int] | None = None
    or_null: str | None = None
    unsure: str | None = None
    fails: bool = False
    non_null: bool = False
    integer: "Expr | None" = None
    rough: bool = False

    @property
    def is_literal(self) -> bool:
        """Whether the value is known when the join is defined."""
        return self.literal is not NOT_LITERAL

    @property
    def never_null(self) -> bool:
        """Whether Spark knows that it is never NULL."""
        return self.non_null or (self.is_literal and self.literal is not None)

    @property
    def is_null(self) -> str:
        """DuckDB's condition that it is NULL; it raises where the expression does.

        [!] DuckDB doesn't compute a sum to decide `IS NULL`, and so doesn't notice that it overflows.
        """
        if self.never_null:
            return "FALSE"
        return (
            f"({self.sql} IS NOT DISTINCT FROM CAST(NULL AS {self.type.duckdb}))"
            if self.raises
            else f"({self.sql} IS NULL)"
        )

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value of an integer."""
        return self.span or integer_range(self.type.kind)


NULL = Expr("NULL", VOID, literal=None)


def quote(text: str) -> str:
    """A DuckDB string literal; user text reaches DuckDB in no other way.

    >>> quote("it's")
    "'it''s'"
    >>> quote("a\\0b")
    "('a' || chr(0) || 'b')"
    """
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def error_sql(message: str, type_: Type) -> str:
    """An expression that raises once it is evaluated for a row."""
    return f"CAST(error({quote(message)}) AS {type_.duckdb})"


def strict_expr(
    sql: str,
    type_: Type,
    arguments: Sequence[Expr],
    *,
    raises: bool = False,
    unsure: str | None = None,
    fails: bool = False,
) -> Expr:
    """An expression that is NULL if any argument is; arguments are evaluated in order. For the options see `combine`.

    Spark doesn't evaluate the arguments after a NULL, so a later one that raises needs a guard. A literal NULL as an
    argument makes the whole a literal NULL.
    """
    if any(argument.is_literal and argument.literal is None for argument in arguments):
        return Expr(f"CAST(NULL AS {type_.duckdb})", type_, literal=None)
    expr = combine(sql, type_, arguments, raises=raises, unsure=unsure, fails=fails)
    last = max((index for index, argument in enumerate(arguments) if argument.raises), default=0)
    guards = [argument.is_null for argument in arguments[:last] if not argument.is_literal]
    if not guards:
        return expr
    return replace(expr, sql=f"(CASE {''.join(f'WHEN {guard} THEN NULL ' for guard in guards)}ELSE {sql} END)")


def combine(
    sql: str,
    type_: Type,
    arguments: Sequence[Expr],
    *,
    raises: bool = False,
    unsure: str | None = None,
    fails: bool = False,
    non_null: bool = False,
) -> Expr:
    """An expression made of others: it reads their columns, raises if one of them does, and shares their doubts.

    Args:
        sql: The expression.
        type_: Its type.
        arguments: The others.
        raises: Whether it may raise even if they don't.
        unsure: Under which condition of its own it can't be trusted; NULL counts as FALSE.
        fails: Whether Spark may raise for it then.
        non_null: Whether Spark knows that it is never NULL.
    """
    columns = frozenset[Column]().union(*(argument.columns for argument in arguments))
    own = [f"coalesce({unsure}, FALSE)"] if unsure else []
    doubts = list(dict.fromkeys([*own, *(argument.unsure for argument in arguments if argument.unsure)]))
    return Expr(
        sql,
        type_,
        columns,
        raises or any(argument.raises for argument in arguments),
        unsure=f"({' OR '.join(doubts)})" if doubts else None,
        fails=fails or any(argument.fails for argument in arguments),
        non_null=non_null,
        rough=type_.kind == "float" and any(argument.rough for argument in arguments),
    )


def null_test(value: Expr, *, negated: bool = False) -> Expr:
    """`value IS NULL`, or `value IS NOT NULL`."""
    sql = f"(NOT {value.is_null})" if negated else value.is_null
    return combine(sql, BOOLEAN, () if value.never_null else (value,), non_null=True)


def guard(sql: str, type_: Type, arguments: Sequence[Expr]) -> Expr:
    """An expression computed beforehand from the arguments' `or_null`: it raises where one of the arguments does.

    Arguments without `or_null` have raised beforehand.
    """
    expr = combine(sql, type_, arguments)
    failing = [argument.sql for argument in arguments if argument.or_null is not None]
    if not failing:
        return expr
    checks = "".join(f"WHEN {argument} IS NULL THEN {sql} " for argument in failing)
    return replace(expr, sql=f"(CASE {checks}ELSE {sql} END)")


def fits(span: tuple[int, int], type_: Type) -> bool:
    """Whether the type holds every integer of the span."""
    low, high = integer_range(type_.kind)
    return type_.kind in INTEGRAL and low <= span[0] and span[1] <= high
