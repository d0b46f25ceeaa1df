"""A typed DuckDB expression, and the order of evaluation that Spark promises for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.predicate.model import Column
from watersmeet.predicate.types import BOOLEAN, INTEGRAL, VOID, Type, integer_range

NOT_LITERAL: Any = object()


class Refusal(Exception):
    """SQL that can't be translated; whoever walks the tree adds the place and makes a SqlError of it.

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
        plain: The same as it is where it does not raise, and NULL where it does; None where that can't be told apart.
        unsure: A condition, never NULL, under which DuckDB's answer is not to be trusted; None if it always is.
        fails: Whether Spark may raise for it where DuckDB's answer is not to be trusted.
        given: Whether Spark knows that it is never NULL, and so never computes it to find out.
        whole: The integer, read from columns, that it is cast from, if it is a float and nothing else.
        rough: Whether it is such a float, or one made of such ones.
    """

    sql: str
    type: Type
    columns: frozenset[Column] = frozenset()
    raises: bool = False
    literal: Any = NOT_LITERAL
    span: tuple[int, int] | None = None
    plain: str | None = None
    unsure: str | None = None
    fails: bool = False
    given: bool = False
    whole: "Expr | None" = None
    rough: bool = False

    @property
    def is_literal(self) -> bool:
        """Whether the value is known when the join is defined."""
        return self.literal is not NOT_LITERAL

    @property
    def never_null(self) -> bool:
        """Whether Spark knows that it is never NULL."""
        return self.given or (self.is_literal and self.literal is not None)

    @property
    def is_null(self) -> str:
        """DuckDB's condition that it is NULL; raises where it does.

        [!] DuckDB doesn't compute a sum to learn whether it is NULL, and so never learns that it overflows.
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
    """A DuckDB string literal; the only way in which text of the user's reaches DuckDB.

    >>> quote("it's")
    "'it''s'"
    >>> quote("a\\0b")
    "('a' || chr(0) || 'b')"
    """
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def error_sql(code: str, type_: Type) -> str:
    """An expression that raises once a row reaches it."""
    return f"CAST(error({quote(code)}) AS {type_.duckdb})"


def strict_expr(
    sql: str,
    type_: Type,
    arguments: Sequence[Expr],
    *,
    raises: bool = False,
    unsure: str | None = None,
    fails: bool = False,
) -> Expr:
    """An expression that is NULL if any argument is, its arguments evaluated in the given order.

    Spark doesn't evaluate what follows a NULL argument, so a later one that raises needs a guard.
    """
    if any(argument.is_literal and argument.literal is None for argument in arguments):
        return Expr(f"CAST(NULL AS {type_.duckdb})", type_, literal=None)
    made = combine(sql, type_, arguments, raises=raises, unsure=unsure, fails=fails)
    last = max((index for index, argument in enumerate(arguments) if argument.raises), default=0)
    guards = [argument.is_null for argument in arguments[:last] if not argument.is_literal]
    if not guards:
        return made
    return replace(made, sql=f"(CASE {''.join(f'WHEN {guard} THEN NULL ' for guard in guards)}ELSE {sql} END)")


def combine(
    sql: str,
    type_: Type,
    arguments: Sequence[Expr],
    *,
    raises: bool = False,
    unsure: str | None = None,
    fails: bool = False,
    given: bool = False,
) -> Expr:
    """An expression made of others: it reads what they read, raises if one of them does, and is as little sure.

    Args:
        sql: The expression.
        type_: Its type.
        arguments: The others.
        raises: Whether it may raise of itself.
        unsure: When it is not to be trusted of itself; may be NULL, which counts as FALSE.
        fails: Whether Spark may raise for it then.
        given: Whether Spark knows that it is never NULL.
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
        given=given,
        rough=type_.kind == "float" and any(argument.rough for argument in arguments),
    )


def null_test(value: Expr, *, negated: bool = False) -> Expr:
    """`value IS NULL`, or `value IS NOT NULL`."""
    sql = f"(NOT {value.is_null})" if negated else value.is_null
    return combine(sql, BOOLEAN, () if value.never_null else (value,), given=True)


def guard(sql: str, type_: Type, arguments: Sequence[Expr]) -> Expr:
    """An expression computed from the arguments beforehand, as they are where they don't raise; else it raises.

    Only arguments that know when they raise are looked at: others raise beforehand.
    """
    made = combine(sql, type_, arguments)
    failing = [argument.sql for argument in arguments if argument.plain is not None]
    if not failing:
        return made
    checks = "".join(f"WHEN {argument} IS NULL THEN {sql} " for argument in failing)
    return replace(made, sql=f"(CASE {checks}ELSE {sql} END)")


def fits(span: tuple[int, int], type_: Type) -> bool:
    """Whether every integer of the span is a value of the type."""
    low, high = integer_range(type_.kind)
    return type_.kind in INTEGRAL and low <= span[0] and span[1] <= high
