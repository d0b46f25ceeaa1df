"""Comparisons of real numbers that only the JVM computes to the last bit, as trees of terms.

Spark's `sin`, `exp` or `vector_cosine_similarity` may differ from any other library's in the last bits. Such a
comparison becomes a tree that `probe.evaluators.balls` evaluates with a bound on the error; Spark decides only the
pairs that are closer to the threshold than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from watersmeet.predicate.casts import cast, coerce
from watersmeet.predicate.expr import Expr, Refusal
from watersmeet.predicate.model import Column
from watersmeet.predicate.source import SqlNode
from watersmeet.predicate.translate import Translator
from watersmeet.predicate.types import DOUBLE, FLOAT, FRACTIONAL, INT, NUMERIC, STRING, Type, common_type

Sign = Literal["<", "<=", ">", ">=", "=", "<>"]

UNARY = frozenset({
    "negative", "abs", "float", "sqrt", "cbrt", "exp", "expm1", "ln", "log10", "log2", "log1p", "sin", "cos", "tan",
    "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians",
})  # fmt: skip
BINARY = frozenset({"+", "-", "*", "/", "pow", "atan2", "hypot"})
VECTORS = frozenset({"vector_cosine_similarity", "vector_inner_product", "vector_l2_distance"})

TEXTS = frozenset({"jaro_winkler_similarity", "levenshtein"})


@dataclass(frozen=True, slots=True)
class Leaf:
    """A DuckDB expression of type DOUBLE that never raises; NaN where its value can't be trusted.

    Attributes:
        sql: The expression.
        columns: The columns it reads; empty for a constant.
        error: By how much it may differ from Spark's value, absolute.
        value: The value of a constant, where known.
    """

    sql: str
    columns: tuple[Column, ...] = ()
    error: float = 0.0
    value: float | None = None


@dataclass(frozen=True, slots=True)
class MathFunction:
    """A function of terms, in double precision; `float` rounds its argument to single precision."""

    function: str
    arguments: tuple[Term, ...]

    def __post_init__(self) -> None:
        count = 1 if self.function in UNARY else 2 if self.function in BINARY else None
        if count != len(self.arguments):
            raise ValueError(f"{self.function} of {len(self.arguments)} terms is unknown.")


@dataclass(frozen=True, slots=True)
class VectorFunction:
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


@dataclass(frozen=True, slots=True)
class TextFunction:
    """A function of two columns of type string; exact, but DuckDB lacks it or takes longer.

    Attributes:
        function: jaro_winkler_similarity, a double, or levenshtein, an integer.
        left: The first argument.
        right: The second.
        limit: The greatest distance that matters; beyond it levenshtein is -1.
    """

    function: str
    left: Column
    right: Column
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.function not in TEXTS:
            raise ValueError(f"{self.function} is no function of texts.")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns it reads."""
        return (self.left, self.right)


Term = Leaf | MathFunction | VectorFunction | TextFunction
Input = Leaf | VectorFunction | TextFunction


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left sign right`, compared as doubles."""

    sign: Sign
    left: Term
    right: Term

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The terms to evaluate first, each once; without constants of known value."""
        return tuple(dict.fromkeys((*inputs_of(self.left), *inputs_of(self.right))))

    @property
    def columns(self) -> frozenset[Column]:
        """Every column it reads."""
        return frozenset(column for term in self.inputs for column in term.columns)


def inputs_of(term: Term) -> Iterator[Input]:
    """The leaves, vector and text functions of a term."""
    if isinstance(term, MathFunction):
        for argument in term.arguments:
            yield from inputs_of(argument)
    elif not isinstance(term, Leaf) or term.value is None:
        yield term


SIGNS: dict[type[SqlNode], Sign] = {
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=", exp.NEQ: "<>",
}  # fmt: skip
NEGATED: dict[Sign, Sign] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}
ARITHMETIC: dict[type[SqlNode], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
NAMES = {"power": "pow", "log": "ln"}
EXACT = frozenset({"negative", "abs", "float", "sqrt", "degrees", "radians", "+", "-", "*", "/"})
INEXACT = (UNARY | BINARY | VECTORS | TEXTS) - EXACT
"""Functions whose value may differ from Spark's in the last bits, or that DuckDB lacks."""
CASTS: dict[exp.DType, Type] = {exp.DType.DOUBLE: DOUBLE, exp.DType.FLOAT: FLOAT}


@dataclass(frozen=True, slots=True)
class _TypedTerm:
    """A term and its Spark type; `expr` is the exact expression that it stands for, if any."""

    term: Term
    type: Type
    expr: Expr | None = None


def comparison_of(node: SqlNode, translator: Translator) -> tuple[Comparison, ...] | None:
    """The comparisons that must all be TRUE for the condition to be TRUE; None if it is not such a condition.

    It must be a comparison, BETWEEN, or NOT of a comparison, with at least one inexact function and no Python
    predicate, and DuckDB must be able to compute the rest. NULL and FALSE are not distinguished.
    """
    parts = list(node.walk())
    if not any(map(_is_inexact, parts)) or any(_is_python(part, translator) for part in parts):
        return None
    try:
        comparisons = tuple(_comparisons(node, translator))
    except Refusal:
        return None
    exact = all(isinstance(side, Leaf) for comparison in comparisons for side in (comparison.left, comparison.right))
    return None if exact or not all(comparison.columns for comparison in comparisons) else comparisons


def _comparisons(node: SqlNode, translator: Translator) -> Iterator[Comparison]:
    """The comparisons that are all TRUE where a condition is; raises Refusal if it isn't a comparison."""
    bare = node.unnest()
    if type(bare) in SIGNS:
        yield _comparison(SIGNS[type(bare)], bare.this, bare.expression, translator)
    elif isinstance(bare, exp.Between) and not bare.args.get("symmetric"):
        yield _comparison(">=", bare.this, bare.args["low"], translator)
        yield _comparison("<=", bare.this, bare.args["high"], translator)
    elif isinstance(bare, exp.Not) and type(bare.this.unnest()) in SIGNS:
        inner = bare.this.unnest()
        yield _comparison(NEGATED[SIGNS[type(inner)]], inner.this, inner.expression, translator)
    else:
        raise Refusal("This is not a comparison.")


def _comparison(sign: Sign, left: SqlNode, right: SqlNode, translator: Translator) -> Comparison:
    sides = [_term_of(side, translator) for side in (left, right)]
    type_ = _comparison_type(sides[0], sides[1], translator)
    return Comparison(sign, *(_cast_to(side, type_, translator).term for side in sides))


def _is_inexact(node: SqlNode) -> bool:
    return isinstance(node, exp.Anonymous) and _name(node) in INEXACT


def _is_python(node: SqlNode, translator: Translator) -> bool:
    names = {predicate.name.lower() for predicate in translator.predicates}
    return isinstance(node, exp.Anonymous) and node.name.lower() in names


def _name(node: exp.Anonymous) -> str:
    return NAMES.get(node.name.lower(), node.name.lower())


def _term_of(node: SqlNode, translator: Translator) -> _TypedTerm:
    """Return the term of a node, and the type Spark gives it.

    A part without inexact functions stays whole, as DuckDB computes it, unless its SQL calls `error`; arithmetic,
    negation, casts to double or float, and calls are taken apart.

    Raises:
        Refusal: For anything else, at any depth; also if a part can't be translated or its type doesn't fit.
    """
    bare = node.unnest()
    if not any(_is_inexact(part) for part in bare.walk()):
        expr = translator.expr(bare)
        if not _raises_error(expr):
            return _exact_term(expr)
    if type(bare) in ARITHMETIC:
        return _arithmetic_term(ARITHMETIC[type(bare)], bare.this, bare.expression, translator)
    if isinstance(bare, exp.Neg):
        return _apply_to("negative", _term_of(bare.this, translator))
    if isinstance(bare, exp.Cast) and not bare.args.get("safe") and bare.to.this in CASTS:
        return _cast_to(_term_of(bare.this, translator), CASTS[bare.to.this], translator)
    if isinstance(bare, exp.Anonymous):
        return _call_term(bare, translator)
    raise Refusal("This is not a term.")


def _raises_error(expr: Expr) -> bool:
    """Whether it raises by a call of `error`, which DuckDB's TRY rejects; a division is then taken apart."""
    return expr.raises and "error(" in expr.sql


def _exact_term(expr: Expr) -> _TypedTerm:
    """An expression that DuckDB computes; as a term it is NaN where it raises or can't be trusted.

    Raises:
        Refusal: If it raises by a call of `error`.
    """
    if _raises_error(expr):
        raise Refusal("This may raise.")
    sql = f"CAST({expr.sql} AS DOUBLE)"
    if expr.is_literal and expr.literal is not None and expr.type.kind in NUMERIC:
        return _TypedTerm(Leaf(sql, value=float(expr.literal)), expr.type, expr)
    if expr.raises:
        sql = f"coalesce(TRY({sql}), CAST('nan' AS DOUBLE))"
    if expr.unsure:
        sql = f"(CASE WHEN {expr.unsure} THEN CAST('nan' AS DOUBLE) ELSE {sql} END)"
    return _TypedTerm(Leaf(sql, tuple(sorted(expr.columns))), expr.type, expr)


def _cast_to(typed: _TypedTerm, type_: Type, translator: Translator) -> _TypedTerm:
    """The term cast to double or float; raises Refusal if an exact part has no such cast, or one that calls `error`."""
    if typed.expr is not None:
        if type_ == DOUBLE and isinstance(typed.term, Leaf) and typed.term.value is not None:
            return _TypedTerm(typed.term, DOUBLE, typed.expr)
        to = cast if typed.type.kind in NUMERIC else coerce
        return _exact_term(to(typed.expr, type_, translator.dialect))
    if typed.type == type_ or type_ == DOUBLE:
        return _TypedTerm(typed.term, type_)
    return _TypedTerm(MathFunction("float", (typed.term,)), type_)


def _shared_type(left: _TypedTerm, right: _TypedTerm, translator: Translator) -> Type:
    type_ = common_type(left.type, right.type, ansi=translator.dialect.ansi)
    if type_ is None or type_.kind not in FRACTIONAL:
        raise Refusal("These are not real numbers.")
    return type_


def _comparison_type(left: _TypedTerm, right: _TypedTerm, translator: Translator) -> Type:
    """The type in which two terms are compared; small integers, as of distances, are compared as doubles."""
    small = {left.type.kind, right.type.kind} <= {"byte", "short", "int"}
    return DOUBLE if small else _shared_type(left, right, translator)


def _arithmetic_term(sign: str, left: SqlNode, right: SqlNode, translator: Translator) -> _TypedTerm:
    """Return the term of `left sign right`, in Spark's type; raises Refusal if that is neither double nor float.

    [!] Single precision is computed as double precision, rounded once more: the same for these operations.
    """
    sides = [_term_of(side, translator) for side in (left, right)]
    type_ = _quotient_type(sides) if sign == "/" else _shared_type(sides[0], sides[1], translator)
    term = MathFunction(sign, tuple(_cast_to(side, type_, translator).term for side in sides))
    return _TypedTerm(MathFunction("float", (term,)) if type_ == FLOAT else term, type_)


def _quotient_type(sides: Sequence[_TypedTerm]) -> Type:
    """The type in which numbers are divided: double; raises Refusal for other types, and for decimals alone."""
    kinds = {side.type.kind for side in sides}
    if not kinds <= NUMERIC or ("decimal" in kinds and not kinds & FRACTIONAL):
        raise Refusal("A quotient of decimals is left to others.")
    return DOUBLE


def _apply_to(function: str, typed: _TypedTerm) -> _TypedTerm:
    return _TypedTerm(MathFunction(function, (typed.term,)), typed.type)


def _call_term(node: exp.Anonymous, translator: Translator) -> _TypedTerm:
    """The term of a function's call; raises Refusal if it can't be computed with an error bound."""
    name, arguments = _name(node), node.expressions
    if name in VECTORS and not translator.dialect.wide_vectors:
        raise Refusal("Sums in 32 bits round and overflow in an order of their own: they are left to Spark.")
    if name in VECTORS | TEXTS:
        exprs = [translator.expr(argument.unnest()) for argument in arguments]
        if name == "levenshtein" and not all(map(_is_column, exprs[:2])):
            return _exact_term(translator.expr(node))
        return _pairwise_term(name, exprs)
    if name in {"negative", "abs"} and len(arguments) == 1:
        return _apply_to(name, _term_of(arguments[0], translator))
    if name in CAST_NAMES and len(arguments) == 1:
        return _cast_to(_term_of(arguments[0], translator), CAST_NAMES[name], translator)
    terms = tuple(_cast_to(_term_of(argument, translator), DOUBLE, translator).term for argument in arguments)
    if name == "ln" and len(terms) == 2 and node.name.lower() == "log":
        return _TypedTerm(MathFunction("/", (MathFunction("ln", terms[1:]), MathFunction("ln", terms[:1]))), DOUBLE)
    if name not in UNARY | BINARY or len(terms) != (1 if name in UNARY else 2):
        raise Refusal(f"{name} is not known here.")
    return _TypedTerm(MathFunction(name, terms), DOUBLE)


CAST_NAMES = {"double": DOUBLE, "float": FLOAT}


def _pairwise_term(name: str, arguments: Sequence[Expr]) -> _TypedTerm:
    """The term of a function of two columns; raises Refusal for arguments that would have to be computed first.

    Args:
        name: A function of vectors or of texts.
        arguments: Its arguments; a third one of levenshtein is its limit.
    """
    if len(arguments) == 3 and name == "levenshtein" and isinstance(arguments[2].literal, int):
        return _TypedTerm(TextFunction(name, *_columns(name, arguments[:2], STRING), arguments[2].literal), INT)
    if len(arguments) != 2:
        raise Refusal(f"{name} takes two arguments here.")
    if name in VECTORS:
        return _TypedTerm(VectorFunction(name, *_columns(name, arguments, FLOAT)), FLOAT)
    return _TypedTerm(TextFunction(name, *_columns(name, arguments, STRING)), INT if name == "levenshtein" else DOUBLE)


def _is_column(expr: Expr) -> bool:
    return len(expr.columns) == 1 and expr.sql == next(iter(expr.columns)).name


def _columns(name: str, arguments: Sequence[Expr], type_: Type) -> tuple[Column, Column]:
    """The columns that two arguments are; raises Refusal if one is more than a column, or of another type.

    Args:
        name: The function, for the error.
        arguments: Its arguments.
        type_: Their type; FLOAT for arrays of floats.
    """
    for argument in arguments:
        if not _is_column(argument):
            raise Refusal(f"{name} of anything but columns is left to others.")
        if (argument.type.element if type_ == FLOAT else argument.type) != type_:
            raise Refusal(f"{name} takes other types.")
    one, two = (next(iter(argument.columns)) for argument in arguments)
    return one, two
