"""Spark's functions by name: their argument types, their result type, and how DuckDB computes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from watersmeet.predicate.arithmetic import absolute_value, arithmetic, ceiling, floor, negate, pmod, round_value
from watersmeet.predicate.casts import cast, coerce
from watersmeet.predicate.conditions import coalesce, extreme, if_then, like, nullif, nvl2, rlike
from watersmeet.predicate.datetimes import shift_days
from watersmeet.predicate.expr import Expr, Refusal, combine, error_sql, null_test, strict_expr
from watersmeet.predicate.model import Dialect, PythonPredicate
from watersmeet.predicate.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGRAL,
    LONG,
    ORDERED,
    SHORT,
    STRING,
    TIMESTAMP,
    Type,
    common_type,
)  # fmt: skip

SET = "array of shared elements"
OUT_OF_BOUNDS = "[INVALID_ARRAY_INDEX] The index is out of bounds."
Build = Callable[[Sequence[Expr], Dialect], Expr]


@dataclass(frozen=True, slots=True)
class Function:
    """A function that is NULL for a NULL argument: argument types, result type, DuckDB templates."""

    takes: tuple[Type, ...]
    gives: Type
    sql: str
    raises: bool = False
    unsure: str | None = None

    def __call__(self, arguments: Sequence[Expr], dialect: Dialect) -> Expr:
        """The call, with its arguments cast as Spark does implicitly; raises Refusal where Spark has no such cast."""
        values = [coerce(argument, type_, dialect) for argument, type_ in zip(arguments, self.takes, strict=True)]
        texts = [argument.sql for argument in values]
        unsure = self.unsure and self.unsure.format(*texts)
        return strict_expr(self.sql.format(*texts), self.gives, values, raises=self.raises, unsure=unsure)


def _concat(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    values = [coerce(argument, STRING, dialect) for argument in arguments]
    return strict_expr("(" + " || ".join(argument.sql for argument in values) + ")", STRING, values)


def _concat_ws(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """The other texts joined by the first; skips NULLs, but is NULL if the first is. Refuses what may raise."""
    values = [coerce(argument, STRING, dialect) for argument in arguments]
    if any(argument.raises for argument in values):
        raise Refusal("concat_ws of what may raise can't be translated.")
    return combine(f"concat_ws({', '.join(argument.sql for argument in values)})", STRING, values)


def _like(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    value, pattern = (coerce(argument, STRING, dialect) for argument in arguments)
    return like(value, pattern)


def _length(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    if arguments[0].type == BINARY:
        return strict_expr(f"CAST(octet_length({arguments[0].sql}) AS INTEGER)", INT, arguments)
    return Function((STRING,), INT, "CAST(length({0}) AS INTEGER)")(arguments, dialect)


def _date_part(part: str) -> Function:
    return Function((DATE,), INT, f"CAST({part} AS INTEGER)")


def _clock_part(part: str) -> Build:
    """Return what translates a function such as `hour`.

    It is a part of a timestamp in the session's time zone, or of a timestamp without one as it is.
    """

    def build(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
        value = arguments[0] if arguments[0].type.kind == "timestamp_ntz" else coerce(arguments[0], TIMESTAMP, dialect)
        return strict_expr(f"CAST({part}(CAST({value.sql} AS TIMESTAMP)) AS INTEGER)", INT, (value,))

    return build


def _double_function(sql: str) -> Function:
    return Function((DOUBLE,), DOUBLE, sql)


def _cast_function(type_: Type) -> Build:
    return lambda arguments, dialect: cast(arguments[0], type_, dialect)


def _shift_days(sign: str) -> Build:
    return lambda arguments, dialect: shift_days(
        sign, coerce(arguments[0], DATE, dialect), coerce(arguments[1], INT, dialect)
    )


def _bit_count(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    """The number of bits set in an integer, widened to a bigint, or in a boolean; refuses other types."""
    value = arguments[0]
    if value.type.kind not in {*INTEGRAL, "boolean"}:
        raise Refusal(f"Bit operations take integers, not {value.type}.")
    return strict_expr(f"CAST(bit_count(CAST({value.sql} AS BIGINT)) AS INTEGER)", INT, (value,))


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


_PADDED = "(CASE WHEN {2} = '' THEN left({0}, ws_not_below_0({1})) ELSE %s({0}, {1}, {2}) END)"

_LEVENSHTEIN = "CAST(levenshtein({0}, {1}) AS INTEGER)"
_BEYOND_ASCII = "(ws_beyond_ascii({0}) OR ws_beyond_ascii({1}))"

FUNCTIONS: dict[str, dict[int, Build]] = {
    # strings
    "length": {1: _length},
    "octet_length": {1: Function((STRING,), INT, "CAST(strlen({0}) AS INTEGER)")},
    "lower": {1: Function((STRING,), STRING, "lower({0})", unsure="ws_strange_lower({0})")},
    "upper": {1: Function((STRING,), STRING, "upper({0})", unsure="ws_strange_upper({0})")},
    "trim": {1: Function((STRING,), STRING, "trim({0}, ' ')")},
    "ltrim": {1: Function((STRING,), STRING, "ltrim({0}, ' ')")},
    "rtrim": {1: Function((STRING,), STRING, "rtrim({0}, ' ')")},
    "btrim": {
        1: Function((STRING,), STRING, "trim({0}, ' ')"),
        2: Function((STRING, STRING), STRING, "trim({0}, {1})"),
    },
    "instr": {2: Function((STRING, STRING), INT, "CAST(instr({0}, {1}) AS INTEGER)")},
    "locate": {2: Function((STRING, STRING), INT, "CAST(instr({1}, {0}) AS INTEGER)")},
    "startswith": {2: Function((STRING, STRING), BOOLEAN, "starts_with({0}, {1})")},
    "endswith": {2: Function((STRING, STRING), BOOLEAN, "ends_with({0}, {1})")},
    "contains": {2: Function((STRING, STRING), BOOLEAN, "contains({0}, {1})")},
    "replace": {
        2: Function((STRING, STRING), STRING, "replace({0}, {1}, '')"),
        3: Function((STRING, STRING, STRING), STRING, "replace({0}, {1}, {2})"),
    },
    "left": {2: Function((STRING, INT), STRING, "left({0}, ws_not_below_0({1}))")},
    "right": {2: Function((STRING, INT), STRING, "right({0}, ws_not_below_0({1}))")},
    "lpad": {
        2: Function((STRING, INT), STRING, "lpad({0}, {1}, ' ')"),
        3: Function((STRING, INT, STRING), STRING, _PADDED % "lpad"),
    },
    "rpad": {
        2: Function((STRING, INT), STRING, "rpad({0}, {1}, ' ')"),
        3: Function((STRING, INT, STRING), STRING, _PADDED % "rpad"),
    },
    "reverse": {1: Function((STRING,), STRING, "array_to_string(list_reverse(string_split({0}, '')), '')")},
    "levenshtein": {
        2: Function((STRING, STRING), INT, _LEVENSHTEIN, unsure=_BEYOND_ASCII),
        3: Function((STRING, STRING, INT), INT, f"ws_within({_LEVENSHTEIN}, {{2}})", unsure=_BEYOND_ASCII),
    },
    "ascii": {1: Function((STRING,), INT, "CAST(ascii({0}) AS INTEGER)")},
    "substring": {
        2: Function((STRING, INT), STRING, "ws_substring({0}, CAST({1} AS BIGINT), CAST(2147483647 AS BIGINT))"),
        3: Function((STRING, INT, INT), STRING, "ws_substring({0}, CAST({1} AS BIGINT), CAST({2} AS BIGINT))"),
    },
    "translate": {3: Function((STRING, STRING, STRING), STRING, "translate({0}, {1}, {2})")},
    "regexp_like": {2: lambda arguments, dialect: rlike(coerce(arguments[0], STRING, dialect), arguments[1])},
    "like": {2: _like},
    # conditions
    "nvl": {2: coalesce},
    "nvl2": {3: nvl2},
    "nullif": {2: nullif},
    "if": {3: if_then},
    "isnull": {1: lambda arguments, dialect: null_test(arguments[0])},
    "isnotnull": {1: lambda arguments, dialect: null_test(arguments[0], negated=True)},
    "isnan": {1: lambda arguments, dialect: _isnan(arguments, dialect)},
    # numbers; functions whose last bits are Java's own are in `terms`
    "abs": {1: lambda arguments, dialect: absolute_value(arguments[0], dialect)},
    "bit_count": {1: _bit_count},
    "negative": {1: lambda arguments, dialect: negate(arguments[0], dialect)},
    "mod": {2: lambda arguments, dialect: arithmetic("%", arguments[0], arguments[1], dialect)},
    "pmod": {2: lambda arguments, dialect: pmod(arguments[0], arguments[1], dialect)},
    "sqrt": {1: _double_function("sqrt({0})")},
    "sign": {1: _double_function("(CASE WHEN isnan({0}) THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END)")},
    "degrees": {1: _double_function("({0} * (180.0::DOUBLE / pi()))")},
    "radians": {1: _double_function("({0} * (pi() / 180.0::DOUBLE))")},
    "pi": {0: Function((), DOUBLE, "pi()")},
    "floor": {1: floor},
    "ceil": {1: ceiling},
    "round": {1: round_value, 2: round_value},
    # dates and times
    "year": {1: _date_part("year({0})")},
    "quarter": {1: _date_part("quarter({0})")},
    "month": {1: _date_part("month({0})")},
    "day": {1: _date_part("day({0})")},
    "dayofyear": {1: _date_part("dayofyear({0})")},
    "dayofweek": {1: _date_part("dayofweek({0}) + 1")},
    "weekday": {1: _date_part("isodow({0}) - 1")},
    "weekofyear": {1: _date_part("weekofyear({0})")},
    "hour": {1: _clock_part("hour")},
    "minute": {1: _clock_part("minute")},
    "second": {1: _clock_part("second")},
    "datediff": {
        2: Function(
            (DATE, DATE), INT, "TRY_CAST({0} - {1} AS INTEGER)", unsure="ws_strange_year({0}) OR ws_strange_year({1})"
        )
    },
    "date_add": {2: _shift_days("+")},
    "date_sub": {2: _shift_days("-")},
    "last_day": {1: Function((DATE,), DATE, "last_day({0})")},
    "unix_date": {1: Function((DATE,), INT, "CAST({0} - DATE '1970-01-01' AS INTEGER)")},
    "unix_micros": {1: Function((TIMESTAMP,), LONG, "epoch_us({0})")},
    "unix_millis": {1: Function((TIMESTAMP,), LONG, "ws_floor_divide(epoch_us({0}), 1000)")},
    "unix_seconds": {1: Function((TIMESTAMP,), LONG, "ws_floor_divide(epoch_us({0}), 1000000)")},
    # arrays
    "size": {1: size},
    "array_size": {1: lambda arguments, dialect: size(arguments, Dialect(ansi=True))},
    "array_contains": {2: array_contains},
    "arrays_overlap": {2: arrays_overlap},
    "array_intersect": {2: array_intersect},
    "array_position": {2: array_position},
    "element_at": {2: element_at},
    "array_max": {1: extreme_of("list_max")},
    "array_min": {1: extreme_of("list_min")},
    # casts that look like functions
    "boolean": {1: _cast_function(BOOLEAN)},
    "tinyint": {1: _cast_function(BYTE)},
    "smallint": {1: _cast_function(SHORT)},
    "int": {1: _cast_function(INT)},
    "bigint": {1: _cast_function(LONG)},
    "float": {1: _cast_function(FLOAT)},
    "double": {1: _cast_function(DOUBLE)},
    "string": {1: _cast_function(STRING)},
    "date": {1: _cast_function(DATE)},
    "timestamp": {1: _cast_function(TIMESTAMP)},
}

ALIASES = {
    "char_length": "length", "character_length": "length", "len": "length", "lcase": "lower", "ucase": "upper",
    "position": "locate", "substr": "substring", "ifnull": "nvl", "signum": "sign", "ceiling": "ceil",
    "dayofmonth": "day", "date_diff": "datediff", "dateadd": "date_add", "to_date": "date", "cardinality": "size",
    "to_unix_timestamp": "unix_seconds", "unix_timestamp": "unix_seconds", "rlike": "regexp_like",
    "regexp": "regexp_like",
}  # fmt: skip

VARIADIC: dict[str, tuple[int, Build]] = {
    "concat": (1, _concat),
    "concat_ws": (2, _concat_ws),
    "coalesce": (1, coalesce),
    "greatest": (2, extreme("greatest")),
    "least": (2, extreme("least")),
}

NONDETERMINISTIC = frozenset({
    "rand", "random", "randn", "uuid", "now", "current_timestamp", "current_date", "current_time", "localtimestamp",
    "curdate", "monotonically_increasing_id", "spark_partition_id", "input_file_name", "current_user", "shuffle",
})  # fmt: skip
AGGREGATES = frozenset({
    "count", "sum", "avg", "mean", "min", "max", "first", "last", "any_value", "stddev", "variance", "collect_list",
    "collect_set", "count_if", "bool_and", "bool_or", "every", "some", "any", "median", "percentile", "max_by",
    "min_by",     "approx_count_distinct",
})  # fmt: skip


def call_function(
    name: str, arguments: Sequence[Expr], dialect: Dialect, predicates: Sequence[PythonPredicate]
) -> Expr:
    """A call of one of Spark's functions.

    Args:
        name: The function, or an alias of it, in any case.
        arguments: Its arguments.
        dialect: The session's settings.
        predicates: The Python predicates, which a refusal may suggest.

    Raises:
        Refusal: If there is no such function here, or it doesn't take these arguments.
    """
    key = ALIASES.get(name.lower(), name.lower())
    if key in VARIADIC:
        least, build = VARIADIC[key]
        if len(arguments) < least:
            raise Refusal(f"{name} takes at least {least} argument{'s' * (least > 1)}.")
        return build(arguments, dialect)
    if key not in FUNCTIONS:
        raise Refusal(_why_refused(name, predicates))
    by_count = FUNCTIONS[key]
    if len(arguments) not in by_count:
        counts = " or ".join(map(str, by_count))
        raise Refusal(f"{name} takes {counts} argument{'s' * (counts != '1')} here, not {len(arguments)}.")
    return by_count[len(arguments)](arguments, dialect)


def _why_refused(name: str, predicates: Sequence[PythonPredicate]) -> str:
    """Return why a function can't be translated: nondeterministic, an aggregate, or unknown (with similar names)."""
    if name.lower() in NONDETERMINISTIC:
        return f"{name} would answer differently from run to run; `where` must be deterministic."
    if name.lower() in AGGREGATES:
        return f"{name} is an aggregate; `where` looks at one combination of rows."
    names = [*FUNCTIONS, *ALIASES, *VARIADIC, *(predicate.name for predicate in predicates)]
    near = get_close_matches(name.lower(), names, n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"The function {name} can't be translated; {hint}A Python predicate must be listed in predicates=[...]."


def _isnan(arguments: Sequence[Expr], dialect: Dialect) -> Expr:
    value = arguments[0] if arguments[0].type.kind == "float" else coerce(arguments[0], DOUBLE, dialect)
    return combine(f"coalesce(isnan({value.sql}), FALSE)", BOOLEAN, (value,), non_null=True)
