"""Arrays: their size, elements and members."""

from collections.abc import Callable, Sequence

from watersmeet.predicate.casts import cast, coerce
from watersmeet.predicate.expr import Expr, Refusal, combine, error_sql, strict_expr
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.types import BOOLEAN, INT, INTEGRAL, LONG, ORDERED, Type, common_type

SET = "array of shared elements"
OUT_OF_BOUNDS = "[INVALID_ARRAY_INDEX] The index is out of bounds."


def _element_type(array: Expr) -> Type:
    """The type of an array's elements; refused if it isn't an array, or conditions can't use its elements."""
    if array.type.element is None:
        raise Refusal(f"An array is expected here, not {array.type}.")
    if array.type.element.kind == "unsupported":
        raise Refusal(f"Elements of type {array.type.element} can't be used in `where`.")
    return array.type.element


def size(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """The number of elements; of NULL it is NULL in ANSI mode and -1 otherwise."""
    _element_type(arguments[0])
    count = f"CAST(len({arguments[0].sql}) AS INTEGER)"
    return combine(count if dialect.ansi else f"coalesce({count}, -1)", INT, arguments)


def _member(arguments: Sequence[Expr], dialect: Dialect) -> tuple[Expr, Expr]:
    """An array and a value of its element's type; Spark would also widen the array, which is refused here."""
    element = _element_type(arguments[0])
    if element.kind not in ORDERED or common_type(element, arguments[1].type, ansi=dialect.ansi) != element:
        raise Refusal(f"An element of {arguments[0].type} is expected, not {arguments[1].type}; cast it.")
    return arguments[0], cast(arguments[1], element, dialect)


def array_contains(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """Whether the value is an element; NULL if it is not, but some element is NULL."""
    array, value = _member(arguments, dialect)
    return strict_expr(f"ws_contains({array.sql}, {value.sql})", BOOLEAN, (array, value))


def array_position(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """The first place of a value, from 1; 0 if it is not there."""
    array, value = _member(arguments, dialect)
    _require_order(array)
    return strict_expr(f"CAST(ws_position({array.sql}, {value.sql}) AS BIGINT)", LONG, (array, value))


def arrays_overlap(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """Whether two arrays share an element; NULL if they share none, but some element is NULL."""
    one, two = _check_alike(arguments)
    return strict_expr(f"ws_overlap({one.sql}, {two.sql})", BOOLEAN, (one, two))


def array_intersect(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """The elements that two arrays share, each once, NULL too; in an order of DuckDB's own."""
    one, two = _check_alike(arguments)
    element = _element_type(one)
    return strict_expr(f"ws_intersect({one.sql}, {two.sql})", Type("array", element=element, name=SET), (one, two))


def _check_alike(arguments: Sequence[Expr]) -> tuple[Expr, Expr]:
    one, two = arguments
    if _element_type(one) != _element_type(two) or _element_type(one).kind not in ORDERED:
        raise Refusal(f"Two arrays of one type are expected here, not {one.type} and {two.type}; cast one.")
    return one, two


def _require_order(array: Expr) -> Expr:
    if array.type.name == SET:
        raise Refusal("The order of the elements that two arrays share can't be translated.")
    return array


def extreme_of(name: str) -> Callable[[Sequence[Expr], Dialect], Expr]:
    """Return what translates `array_max` or `array_min`: NULLs are ignored, NaN is the greatest.

    Args:
        name: The function in DuckDB.
    """

    def build(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
        element = _element_type(arguments[0])
        if element.kind not in ORDERED:
            raise Refusal(f"{element} has no order.")
        return strict_expr(f"{name}({arguments[0].sql})", element, arguments)

    return build


def item(array: Expr, index: Expr, dialect: Dialect) -> Expr:
    """`array[index]`, from 0; out of bounds is an error in ANSI mode and NULL otherwise.

    Raises:
        Refusal: If it isn't an array with an order of its own, or the index isn't an integer.
    """
    element = _element_type(_require_order(array))
    if index.type.kind not in INTEGRAL:
        raise Refusal(f"An array's index is an integer, not {index.type}.")
    place = f"CAST({index.sql} AS BIGINT)"
    outside = f"{place} < 0 OR {place} >= len({array.sql})"
    return _pick(array, index, element, outside, f"{array.sql}[{place} + 1]", dialect)


def element_at(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """`element_at(array, index)`, from 1, or from the end if negative; 0 is always an error.

    Out of bounds is an error in ANSI mode and NULL otherwise. Refused for arrays without an order of their own.
    """
    array, index = arguments[0], coerce(arguments[1], INT, dialect)
    element = _element_type(_require_order(array))
    place = f"CAST({index.sql} AS BIGINT)"
    zero = error_sql(OUT_OF_BOUNDS, element)
    outside = f"abs({place}) > len({array.sql})"
    pick = f"(CASE WHEN {place} = 0 THEN {zero} ELSE {array.sql}[{place}] END)"
    element_expr = _pick(array, index, element, outside, pick, dialect)
    return combine(element_expr.sql, element, (element_expr,), raises=True)


def _pick(array: Expr, index: Expr, element: Type, outside: str, pick: str, dialect: Dialect) -> Expr:
    otherwise = error_sql(OUT_OF_BOUNDS, element) if dialect.ansi else "NULL"
    nulls = f"{array.sql} IS NULL OR {index.sql} IS NULL"
    sql = f"(CASE WHEN {nulls} THEN NULL WHEN {outside} THEN {otherwise} ELSE {pick} END)"
    return strict_expr(sql, element, (array, index), raises=dialect.ansi)
