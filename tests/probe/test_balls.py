"""Balls hold what any other library would compute, and decide nothing that they don't know."""

import math
import operator
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from watersmeet.predicate.model import Column
from watersmeet.predicate.terms import BINARY, UNARY, Comparison, Leaf, MathFunction, Sign, Term
from watersmeet.probe.evaluators.balls import FUNCTIONS, Ball, ball_of, constant, decide, evaluate

X, Y = Leaf("x", (Column(0, 0),)), Leaf("y", (Column(1, 0),))

reals = st.floats(allow_nan=False, allow_infinity=False, width=64)
ordinary = st.floats(min_value=-50, max_value=50)
shares = st.floats(min_value=-1, max_value=1)
radii = st.sampled_from([0.0, 0.0, 1e-15, 1e-9, 0.01, 1.0])


def ball(value: float, radius: float) -> Ball:
    return Ball(np.array([value]), np.array([radius]), np.array([True]))


def inside(value: float, radius: float, share: float) -> float:
    """A number within the ball."""
    value_inside = value + share * radius
    return value_inside if abs(Fraction(value_inside) - Fraction(value)) <= Fraction(radius) else value


def apply(name: str, *balls: Ball) -> Ball:
    with np.errstate(all="ignore"):
        return FUNCTIONS[name](*balls)


def assert_holds(ball: Ball, other: float) -> None:
    value, radius = float(ball.value[0]), float(ball.radius[0])
    if math.isinf(radius):
        return
    assert math.isfinite(other)
    assert abs(Fraction(other) - Fraction(value)) <= Fraction(radius)


def test_every_function_of_a_term_has_a_ball() -> None:
    assert set(FUNCTIONS) == UNARY | BINARY


ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(ARITHMETIC)), reals, radii, shares, reals, radii, shares)
def test_arithmetic(name: str, x: float, x_radius: float, dx: float, y: float, y_radius: float, dy: float) -> None:
    answer = apply(name, ball(x, x_radius), ball(y, y_radius))
    one, two = inside(x, x_radius, dx), inside(y, y_radius, dy)
    if name == "/" and two == 0:
        assert answer.radius[0] == np.inf
    else:
        assert_holds(answer, ARITHMETIC[name](one, two))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(ARITHMETIC)), ordinary, ordinary)
def test_arithmetic_of_exact_numbers_is_exact(name: str, x: float, y: float) -> None:
    assume(name != "/" or y == 0 or abs(y) > 1e-300)
    answer = apply(name, ball(x, 0), ball(y, 0))
    assert answer.radius[0] == (np.inf if name == "/" and y == 0 else 0)


UNARY_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt, "cbrt": math.cbrt, "exp": math.exp, "expm1": math.expm1, "ln": math.log, "log10": math.log10,
    "log2": math.log2, "log1p": math.log1p, "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin,
    "acos": math.acos, "atan": math.atan, "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh, "abs": abs,
    "csc": lambda x: 1 / math.sin(x), "sec": lambda x: 1 / math.cos(x), "cot": lambda x: 1 / math.tan(x),
    "degrees": lambda x: x * 57.29577951308232, "radians": lambda x: x * 0.017453292519943295,
    "negative": operator.neg, "float": lambda x: float(np.float32(x)),
}  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(list(UNARY_FUNCTIONS)), st.one_of(ordinary, reals, st.floats(-1, 1)), radii, shares)
def test_functions(name: str, x: float, radius: float, share: float) -> None:
    answer = apply(name, ball(x, radius))
    try:
        with np.errstate(all="ignore"):
            other = UNARY_FUNCTIONS[name](inside(x, radius, share))
    except (ValueError, OverflowError, ZeroDivisionError):
        assert answer.radius[0] == np.inf or not answer.valid[0]
        return
    assert_holds(answer, other)


BINARY_FUNCTIONS: dict[str, Callable[[float, float], float]] = {
    "pow": math.pow, "atan2": lambda x, y: math.atan2(x + 0.0, y + 0.0), "hypot": math.hypot,
}  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(["pow", "atan2", "hypot"]),
    st.one_of(ordinary, reals),
    radii,
    shares,
    st.one_of(ordinary, st.integers(-6, 6).map(float)),
    radii,
    shares,
)
def test_functions_of_two(name: str, x: float, rx: float, dx: float, y: float, ry: float, dy: float) -> None:
    function = BINARY_FUNCTIONS[name]
    answer = apply(name, ball(x, rx), ball(y, ry))
    try:
        other = function(inside(x, rx, dx), inside(y, ry, dy))
    except (ValueError, OverflowError):
        assert answer.radius[0] == np.inf
        return
    assert_holds(answer, other)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["exp", "ln", "log10", "sqrt"]), st.floats(min_value=1e-6, max_value=600))
def test_functions_against_long_decimals(name: str, x: float) -> None:
    answer = apply(name, ball(x, 0))
    with localcontext() as context:
        context.prec = 50
        exact: Decimal = getattr(Decimal(x), name)()
    off = abs(Fraction(exact) - Fraction(float(answer.value[0])))
    assert off <= max(Fraction(float(answer.radius[0])), Fraction(math.ulp(float(answer.value[0]))))


SIGNS: dict[Sign, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "<>": operator.ne,
}  # fmt: skip


def decide_one(sign: Sign, left: Ball, right: Ball) -> tuple[bool, bool]:
    possible, sure = decide(Comparison(sign, X, Y), {X: left, Y: right})
    return bool(possible[0]), bool(sure[0])


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(list(SIGNS)), st.one_of(reals, st.just(1.0)), radii, shares, st.just(1.0), radii, shares)
def test_what_is_decided_holds(sign: Sign, x: float, rx: float, dx: float, y: float, ry: float, dy: float) -> None:
    possible, sure = decide_one(sign, ball(x, rx), ball(y, ry))
    truth = SIGNS[sign](inside(x, rx, dx), inside(y, ry, dy))
    assert possible or not truth
    assert truth or not sure
    if rx == ry == 0:
        assert possible == sure


def test_floats_against_a_constant_are_decided_as_carefully() -> None:
    values = np.array([0.1, 0.2, 0.3, 0.30001, 0.4], dtype=np.float32)
    left = Ball(values, np.asarray(1e-4), np.asarray(True))
    for sign, truth in SIGNS.items():
        possible, sure = decide(Comparison(sign, X, Leaf("", value=0.3)), {X: left})
        assert possible.tolist() == [bool(truth(v, 0.3)) or abs(v - 0.3) < 1e-4 for v in values.tolist()]
        assert sure.tolist() == [bool(truth(v, 0.3)) and abs(v - 0.3) > 1e-4 for v in values.tolist()]
    null = Ball(values, np.asarray(1e-4), np.array([True, False, True, True, False]))
    possible, sure = decide(Comparison(">", X, Leaf("", value=0.0)), {X: null})
    assert possible.tolist() == sure.tolist() == [True, False, True, True, False]


def test_null_is_never_true_unless_something_else_may_raise() -> None:
    values = ball_of(pa.array([None, 1.0, float("nan"), float("inf"), 2.0]))
    possible, sure = decide(Comparison(">", MathFunction("exp", (X,)), Leaf("", value=5.0)), {X: values})
    assert (possible.tolist(), sure.tolist()) == ([False, False, True, True, True], [False] * 4 + [True])
    quotient = Comparison(">", MathFunction("+", (X, MathFunction("/", (Leaf("", value=1.0), Y)))), Leaf("", value=0.0))
    possible, sure = decide(
        quotient, {X: ball_of(pa.array([None, None], pa.float64())), Y: ball_of(pa.array([0.0, 1.0]))}
    )
    assert (possible.tolist(), sure.tolist()) == ([True, False], [False, False])


def test_a_logarithm_of_what_is_surely_not_positive_is_null() -> None:
    for name, values in (("ln", [-1.0, 0.0]), ("log10", [0.0, -5.0]), ("log1p", [-1.0, -2.0])):
        answer = apply(name, ball_of(pa.array(values)))
        assert answer.valid.tolist() == [False, False]
        assert answer.radius.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("asin", [1.0000001]),
        ("sqrt", [-1.0]),
        ("sin", [1e9]),
        ("tan", [1.5707963267948966]),
        ("exp", [800.0]),
        ("pow", [-2.0, 0.5]),
        ("pow", [0.0, -1.0]),
        ("float", [1e39]),
        ("ln", [float("nan")]),
        ("csc", [0.0]),
    ],
)
def test_what_a_ball_cannot_hold_is_left_open(name: str, values: list[float]) -> None:
    assert apply(name, *(ball_of(pa.array([value])) for value in values)).radius == np.inf


def test_angles_near_the_cut_are_left_open() -> None:
    assert apply("atan2", ball(0, 1e-9), ball(-1, 0)).radius[0] == np.inf
    assert apply("atan2", ball(1e-3, 1e-9), ball(-1, 0)).radius[0] < 1e-8
    assert apply("atan2", ball(0, 0), ball(-1, 0)).value[0] == pytest.approx(math.pi)
    assert apply("atan2", ball(0, 1e-9), ball(0, 1e-9)).radius[0] == np.inf


def great_circle(dlat: float, dlon: float, cosine: float) -> Ball:
    def squared(term: Term) -> Term:
        return MathFunction(
            "pow", (MathFunction("sin", (MathFunction("/", (term, Leaf("", value=2.0))),)), Leaf("", value=2.0))
        )

    around = MathFunction("*", (Leaf("", value=cosine), squared(Y)))
    term = MathFunction("asin", (MathFunction("sqrt", (MathFunction("+", (squared(X), around)),)),))
    with np.errstate(all="ignore"):
        return evaluate(term, {X: ball_of(pa.array([dlat])), Y: ball_of(pa.array([dlon]))})


def test_the_distance_of_a_point_to_itself_is_exactly_0() -> None:
    distance = great_circle(0.0, 0.0, 0.5)
    assert (float(distance.value), float(distance.radius)) == (0.0, 0.0)
    assert great_circle(1e-9, 0.0, 0.5).radius < 1e-20


def test_pairs_still_open_are_asked_again_more_finely() -> None:
    finer_pairs: list[Any] = []

    def finer(pairs: Any) -> Ball:
        finer_pairs.append(pairs.tolist())
        return Ball(np.full(len(pairs), 0.5), np.asarray(0.0), np.asarray(True))

    rough = Ball(np.array([0.1, 0.49, 0.9]), np.asarray(0.1), np.asarray(True), finer)
    possible, sure = decide(Comparison(">=", X, Y), {X: rough, Y: ball_of(pa.array([0.5, 0.5, 0.5]))})
    assert finer_pairs == [[1]]
    assert (possible.tolist(), sure.tolist()) == ([False, True, True], [False, True, True])


def test_a_constant_that_is_no_number_decides_nothing() -> None:
    assert constant(float("nan")).radius == np.inf
    possible, sure = decide(Comparison("<", X, Leaf("", value=float("inf"))), {X: ball_of(pa.array([1.0]))})
    assert (possible.tolist(), sure.tolist()) == ([True], [False])
