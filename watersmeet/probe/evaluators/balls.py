"""Ball arithmetic: real numbers with a radius, a bound on how far Spark's own value may lie from ours.

Addition, multiplication, division and square roots are the same everywhere if their operands are. Transcendental
functions are not: NumPy may be off by 4 units in the last place and Java by 2.5, so 16 are allowed for. What a ball
can't hold (NaN, infinities, a divisor that may be 0, the edge of a domain) has an infinite radius, and Spark decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Floats, Mask
from watersmeet.predicate.terms import Comparison, Input, Leaf, MathFunction, Sign, Term

Positions = NDArray[np.intp]

UNIT = 2.0**-52
FUNCTION_ERROR = 16 * UNIT
"""The relative error allowed for a transcendental function."""
TINY = 2.0**-1020
"""Below this a number may be flushed to 0."""
SLACK = 1 + 8 * UNIT
"""Radii are computed with rounding too."""
FAR = 2.0**20
"""Beyond this angle a reduction by multiples of pi is not trusted."""
BLOCK = 1 << 15
"""Pairs at a time: as many as fit into the processor's cache."""


@dataclass(frozen=True, slots=True)
class Ball:
    """Values of pairs, each with a bound on its error; arrays with an element per pair, or 0-dimensional if constant.

    Attributes:
        value: Our value; doubles, or floats if the radius covers that.
        radius: The largest distance of Spark's value; infinite if nothing is known: it may be NULL, NaN, or raise.
        valid: FALSE if the value is certainly NULL, unless the radius is infinite.
        finer: Returns a slower ball with smaller radii for some of the pairs, if there is one.
    """

    value: NDArray[Any]
    radius: Floats
    valid: Mask
    finer: Callable[[Positions], Ball] | None = None

    def take(self, pairs: Positions | slice) -> Ball:
        """The ball of some of the pairs."""
        value, radius, valid = self.value, self.radius, self.valid
        return Ball(
            value[pairs] if value.ndim else value,
            radius[pairs] if radius.ndim else radius,
            valid[pairs] if valid.ndim else valid,
        )

    @property
    def size(self) -> int | None:
        """The number of pairs; None for a constant."""
        return next((len(part) for part in (self.value, self.radius, self.valid) if part.ndim), None)


def ball_of(values: pa.Array, error: float = 0.0) -> Ball:
    """The ball of a leaf, from an Arrow array of doubles; a single value stands for all pairs."""
    if len(values) == 1:
        number = values[0].as_py()
        ball = constant(0.0 if number is None else number)
        return Ball(ball.value, ball.radius + error, np.asarray(number is not None))
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    numbers = np.asarray(values.fill_null(0.0).to_numpy(zero_copy_only=False), dtype=np.float64)
    finite = np.isfinite(numbers)
    radius = np.float64(error) if finite.all() else np.where(finite, error, np.inf)
    return Ball(np.where(finite, numbers, 0.0), np.asarray(radius), np.asarray(True) if valid.all() else valid)


def constant(value: float) -> Ball:
    """The ball of a number that is the same for all pairs."""
    finite = bool(np.isfinite(value))
    return Ball(np.asarray(value if finite else 0.0), np.asarray(0.0 if finite else np.inf), np.asarray(True))


def decide(comparison: Comparison, balls: Mapping[Input, Ball]) -> tuple[Mask, Mask]:
    """Return for each pair whether the comparison may be TRUE, and whether it certainly is.

    Pairs for which these differ are decided anew with finer balls, if there are any.

    Args:
        comparison: The comparison.
        balls: The balls of its `inputs`.
    """
    possible, sure = _decide_in_blocks(comparison, balls)
    open_ = np.flatnonzero(possible != sure)
    if len(open_) and any(ball.finer for ball in balls.values()):
        finer = {term: ball.finer(open_) if ball.finer else ball.take(open_) for term, ball in balls.items()}
        possible[open_], sure[open_] = _decide_in_blocks(comparison, finer)
    return possible, sure


def _decide_in_blocks(comparison: Comparison, balls: Mapping[Input, Ball]) -> tuple[Mask, Mask]:
    """Return where a comparison may be TRUE and where it surely is, computed in blocks that fit the CPU's cache."""
    size = next((ball.size for ball in balls.values() if ball.size is not None), 1)
    if not isinstance(comparison.left, MathFunction) and not isinstance(comparison.right, MathFunction):
        return _decide_block(comparison, balls, size)  # no intermediate results that the cache should hold
    possible, sure = np.empty(size, dtype=bool), np.empty(size, dtype=bool)
    for start in range(0, size, BLOCK):
        block = slice(start, start + BLOCK)
        parts = {term: ball.take(block) for term, ball in balls.items()}
        possible[block], sure[block] = _decide_block(comparison, parts, len(possible[block]))
    return possible, sure


def _decide_block(comparison: Comparison, balls: Mapping[Input, Ball], size: int) -> tuple[Mask, Mask]:
    """Return where a comparison may be TRUE and where it surely is, all at once."""
    with np.errstate(all="ignore"):
        left, right = evaluate(comparison.left, balls), evaluate(comparison.right, balls)
        if _is_single(left) and not right.value.ndim and not right.radius.ndim:
            return _decide_float_block(comparison.sign, left, right)
        ahead = np.subtract(right.value, left.value, dtype=np.float64)
        apart = (left.radius + right.radius) * (1 + 2.0**-48)
        sure, not_sure = _holds(comparison.sign, ahead, apart), _holds(OPPOSITE[comparison.sign], ahead, apart)
    null = ~(left.valid & right.valid) & (apart < np.inf)
    return _broadcast(~(not_sure | null), size), _broadcast(sure & ~null, size)


def _broadcast(mask: Mask, size: int) -> Mask:
    """One answer per pair, also if there is only one for all."""
    return mask if mask.ndim else np.full(size, mask)


def _is_single(ball: Ball) -> bool:
    return ball.value.dtype == np.float32 and not ball.radius.ndim


def _decide_float_block(sign: Sign, left: Ball, right: Ball) -> tuple[Mask, Mask]:
    """`_decide_block` for floats of one radius against a constant: compared as floats, thresholds moved outwards."""
    apart = float(left.radius + right.radius) * (1 + 2.0**-48)
    borders = [np.float32(float(right.value) + side * apart) for side in (-1, 1)]
    low, high = np.nextafter(borders[0], np.float32(-np.inf)), np.nextafter(borders[1], np.float32(np.inf))
    possible, sure = SINGLE[sign](left.value, low, high)
    null = ~(left.valid & right.valid)
    return (possible & ~null, sure & ~null) if null.any() else (possible, sure)


SINGLE: dict[Sign, Callable[[NDArray[Any], np.float32, np.float32], tuple[Mask, Mask]]] = {
    "<": lambda value, low, high: (value <= high, value < low),
    "<=": lambda value, low, high: (value <= high, value < low),
    ">": lambda value, low, high: (value >= low, value > high),
    ">=": lambda value, low, high: (value >= low, value > high),
    "=": lambda value, low, high: ((value >= low) & (value <= high), np.zeros(value.shape, dtype=bool)),
    "<>": lambda value, low, high: (np.ones(value.shape, dtype=bool), (value < low) | (value > high)),
}
"""Whether a comparison may be TRUE and whether it certainly is, for floats against a threshold between two others."""
OPPOSITE: dict[Sign, Sign] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


def _holds(sign: Sign, ahead: Floats, apart: Floats) -> Mask:
    """Whether the comparison is TRUE for all operands within their radii; `ahead` is right minus left."""
    return HOLDS[sign](ahead, apart)


HOLDS: dict[Sign, Callable[[Floats, Floats], Mask]] = {
    "<": lambda ahead, apart: ahead > apart,
    "<=": lambda ahead, apart: ahead >= apart,
    ">": lambda ahead, apart: ahead < -apart,
    ">=": lambda ahead, apart: ahead <= -apart,
    "=": lambda ahead, apart: (ahead == 0) & (apart == 0),
    "<>": lambda ahead, apart: np.abs(ahead) > apart,
}


def evaluate(term: Term, balls: Mapping[Input, Ball]) -> Ball:
    """The ball of a term from those of its inputs."""
    if isinstance(term, Leaf) and term.value is not None:
        return constant(term.value)
    if not isinstance(term, MathFunction):
        return balls[term]
    arguments = [_double(evaluate(argument, balls)) for argument in term.arguments]
    return FUNCTIONS[term.function](*arguments)


def _double(ball: Ball) -> Ball:
    return ball if ball.value.dtype == np.float64 else replace(ball, value=ball.value.astype(np.float64))


def _combine(value: Floats, radius: Floats, *operands: Ball) -> Ball:
    """A ball computed from others: NULL if one is, and unknown if one is unknown."""
    valid, is_known = operands[0].valid, operands[0].radius < np.inf
    for operand in operands[1:]:
        valid, is_known = valid & operand.valid, is_known & (operand.radius < np.inf)
    good = np.isfinite(value) & (radius < np.inf)
    bounded = np.where(good, radius, np.inf if valid.all() else np.where(valid, np.inf, 0.0))
    return Ball(np.where(good, value, 0.0), np.where(is_known, bounded, np.inf), valid)


def _rounded_radius(value: Floats, radius: Floats, inexact: Mask) -> Floats:
    """The radius of an exact operation: where operands may differ, rounding may too."""
    return np.where(inexact, radius * SLACK + 2 * UNIT * np.abs(value) + TINY, 0.0)


def _ends(x: Ball) -> tuple[Floats, Floats]:
    """Two numbers that enclose the ball."""
    reach = np.where(x.radius > 0, x.radius * SLACK + UNIT * np.abs(x.value), 0.0)
    return x.value - reach, x.value + reach


def negative(x: Ball) -> Ball:
    """`-x`."""
    return Ball(-x.value, x.radius, x.valid)


def absolute(x: Ball) -> Ball:
    """`abs(x)`."""
    return Ball(np.abs(x.value), x.radius, x.valid)


def add(x: Ball, y: Ball) -> Ball:
    """`x + y`."""
    value, radius = x.value + y.value, x.radius + y.radius
    return _combine(value, _rounded_radius(value, radius, radius > 0), x, y)


def subtract(x: Ball, y: Ball) -> Ball:
    """`x - y`."""
    return add(x, negative(y))


def multiply(x: Ball, y: Ball) -> Ball:
    """`x * y`; exactly 0 if one of them is."""
    value = x.value * y.value
    radius = np.abs(x.value) * y.radius + np.abs(y.value) * x.radius + x.radius * y.radius
    zero = ((x.value == 0) & (x.radius == 0)) | ((y.value == 0) & (y.radius == 0))
    return _combine(value, _rounded_radius(value, radius, ((x.radius > 0) | (y.radius > 0)) & ~zero), x, y)


def divide(x: Ball, y: Ball) -> Ball:
    """`x / y`; unknown if y may be 0, since that raises or gives NULL."""
    value, least = x.value / y.value, np.abs(y.value) - y.radius
    radius = (x.radius + np.abs(value) * y.radius) / least
    zero = (x.value == 0) & (x.radius == 0)
    inexact = ((x.radius > 0) | (y.radius > 0)) & ~zero
    return _combine(value, np.where(least > 0, _rounded_radius(value, radius, inexact), np.inf), x, y)


def rising(
    function: Callable[[Floats], Floats],
    *,
    least: float = -np.inf,
    most: float = np.inf,
    sure: float | None = None,
    null: float = -np.inf,
) -> Callable[[Ball], Ball]:
    """Return a monotone function as a function of balls; its last bits depend on the implementation.

    Args:
        function: The function.
        least: The least number of its domain.
        most: The greatest number of its domain.
        sure: The number at which Java guarantees the exact value that NumPy gives.
        null: Up to this number Spark's function is NULL.
    """

    def apply(x: Ball) -> Ball:
        value, (low, high) = function(x.value), _ends(x)
        if x.radius.any():
            below, above = function(low), function(high)
            spread = np.maximum(np.abs(above - value), np.abs(value - below))
            size = np.maximum(np.abs(value), np.maximum(np.abs(below), np.abs(above)))
            radius = spread * SLACK + FUNCTION_ERROR * size + TINY
        else:
            radius = FUNCTION_ERROR * np.abs(value) + TINY
        if sure is not None:
            radius = np.where((x.value == sure) & (x.radius == 0), 0.0, radius)
        ball = _combine(value, np.where((low >= least) & (high <= most), radius, np.inf), x)
        nothing = (high <= null) & (x.radius < np.inf)
        return (
            ball if not nothing.any() else Ball(ball.value, np.where(nothing, 0.0, ball.radius), ball.valid & ~nothing)
        )

    return apply


def same(function: Callable[[Floats], Floats], rounding: float) -> Callable[[Ball], Ball]:
    """Return a monotone function as a function of balls; exact: for the same argument it gives the same everywhere.

    Args:
        function: The function.
        rounding: The relative error by which its values may be rounded.
    """

    def apply(x: Ball) -> Ball:
        value = function(x.value)
        if not x.radius.any():
            return _combine(value, np.zeros_like(value), x)
        below, above = (function(end) for end in _ends(x))
        spread = np.maximum(np.abs(above - value), np.abs(value - below))
        radius = np.where(x.radius > 0, spread * SLACK + rounding * np.abs(above), 0.0)
        return _combine(value, radius, x)

    return apply


def _round_to_float(x: Floats) -> Floats:
    return x.astype(np.float32).astype(np.float64)


def sine(x: Ball) -> Ball:
    """`sin(x)`; a small angle needs no reduction, so its error is small too."""
    value = np.sin(x.value)
    error = np.where(np.abs(x.value) < 0.5, FUNCTION_ERROR * np.abs(value), FUNCTION_ERROR) + TINY
    error = np.where((x.value == 0) & (x.radius == 0), 0.0, error)
    return _combine(value, np.where(np.abs(x.value) < FAR, x.radius * SLACK + error, np.inf), x)


def cosine(x: Ball) -> Ball:
    """`cos(x)`."""
    return _combine(np.cos(x.value), np.where(np.abs(x.value) < FAR, x.radius * SLACK + FUNCTION_ERROR, np.inf), x)


def tangent(x: Ball) -> Ball:
    """`tan(x)`; unknown if a pole may be in the ball: none is nearer than cos(x)."""
    value, room = np.tan(x.value), np.abs(np.cos(x.value)) / 2
    steep = (1 + value * value) * np.where(np.abs(x.value) < 0.5, 0.0, 1.0)
    below, above = (np.tan(end) for end in _ends(x))
    spread = np.where(x.radius > 0, np.maximum(np.abs(above - value), np.abs(value - below)), 0.0)
    error = FUNCTION_ERROR * (np.maximum(np.abs(above), np.abs(below)) + steep) + TINY
    error = np.where((x.value == 0) & (x.radius == 0), 0.0, error)
    good = (np.abs(x.value) < FAR) & (np.abs(value) < FAR) & (x.radius < room)
    return _combine(value, np.where(good, spread * SLACK + error, np.inf), x)


def hyperbolic_cosine(x: Ball) -> Ball:
    """`cosh(x)`, nowhere steeper than sinh at the far end."""
    value, far = np.cosh(x.value), np.abs(x.value) + x.radius * SLACK
    spread = np.where(x.radius > 0, x.radius * np.sinh(far) * (1 + 2 * FUNCTION_ERROR), 0.0)
    return _combine(value, spread * SLACK + FUNCTION_ERROR * np.cosh(far), x)


def angle(y: Ball, x: Ball) -> Ball:
    """`atan2(y, x)`; unknown if the ball may contain the origin or the negative x-axis."""
    value = np.arctan2(y.value + 0.0, x.value + 0.0)
    reach = x.radius + y.radius
    distance = np.hypot(x.value, y.value) * (1 - FUNCTION_ERROR) - reach * SLACK
    across = (np.abs(y.value) <= y.radius) & (x.value - x.radius <= 0) & (y.radius > 0)
    zero = (y.value == 0) & (y.radius == 0) & ((x.value > x.radius) | ((x.value == 0) & (x.radius == 0)))
    spread = np.where(reach > 0, reach / distance * (1 + FUNCTION_ERROR), 0.0)
    radius = np.where(zero, 0.0, spread * SLACK + FUNCTION_ERROR * (np.abs(value) + spread) + TINY)
    return _combine(value, np.where(((distance > 0) & ~across) | zero, radius, np.inf), y, x)


def hypotenuse(x: Ball, y: Ball) -> Ball:
    """`hypot(x, y)`."""
    value, reach = np.hypot(x.value, y.value), (x.radius + y.radius) * SLACK
    zero = (value == 0) & (reach == 0)
    return _combine(value, np.where(zero, 0.0, reach + FUNCTION_ERROR * (value + reach) + TINY), x, y)


def power(x: Ball, y: Ball) -> Ball:
    """`pow(x, y)`: with a positive base its extremes are in the corners; a negative one needs a whole exponent."""
    value, (low, high), (least, most) = np.power(x.value, y.value), _ends(x), _ends(y)
    corners = [np.power(base, exponent) for base in (low, high) for exponent in _distinct_ends(y, least, most)]
    smallest, largest = _extremes(corners)
    whole = (y.radius == 0) & (y.value == np.rint(y.value)) & (np.abs(y.value) < FAR)
    crosses = (low <= 0) & (high >= 0)
    smallest = np.where(crosses, np.minimum(smallest, 0.0), smallest)  # for an even power
    largest = np.where(crosses, np.maximum(largest, 0.0), largest)
    spread = np.maximum(largest - value, value - smallest)
    error = FUNCTION_ERROR * np.maximum(np.abs(largest), np.abs(smallest)) + TINY
    zero = (x.value == 0) & (x.radius == 0) & (y.value > y.radius)
    good = (low > 0) | (whole & (~crosses | (y.value > 0))) | zero
    radius = np.where(zero, 0.0, np.maximum(spread, 0.0) * SLACK + error)
    return _combine(value, np.where(good, radius, np.inf), x, y)


def _distinct_ends(y: Ball, least: Floats, most: Floats) -> Iterator[Floats]:
    yield least
    if y.radius.any():
        yield most


def _extremes(values: list[Floats]) -> tuple[Floats, Floats]:
    return np.asarray(np.minimum.reduce(values)), np.asarray(np.maximum.reduce(values))


def _reciprocal(function: Callable[[Ball], Ball]) -> Callable[[Ball], Ball]:
    return lambda x: divide(constant(1.0), function(x))


DEGREES, RADIANS = constant(57.29577951308232), constant(0.017453292519943295)
"""Java's factors between the two."""

FUNCTIONS: dict[str, Callable[..., Ball]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "negative": negative,
    "abs": absolute,
    "float": same(_round_to_float, 0.0),
    "sqrt": same(np.sqrt, 2 * UNIT),
    "cbrt": rising(np.cbrt, sure=0.0),
    "exp": rising(np.exp),
    "expm1": rising(np.expm1, sure=0.0),
    "ln": rising(np.log, least=TINY, sure=1.0, null=0.0),
    "log10": rising(np.log10, least=TINY, sure=1.0, null=0.0),
    "log2": rising(np.log2, least=TINY, sure=1.0, null=0.0),
    "log1p": rising(np.log1p, least=-1 + UNIT, sure=0.0, null=-1.0),
    "sin": sine,
    "cos": cosine,
    "tan": tangent,
    "csc": _reciprocal(sine),
    "sec": _reciprocal(cosine),
    "cot": _reciprocal(tangent),
    "asin": rising(np.arcsin, least=-1.0, most=1.0, sure=0.0),
    "acos": rising(np.arccos, least=-1.0, most=1.0, sure=1.0),
    "atan": rising(np.arctan, sure=0.0),
    "sinh": rising(np.sinh, sure=0.0),
    "cosh": hyperbolic_cosine,
    "tanh": rising(np.tanh, sure=0.0),
    "degrees": lambda x: multiply(x, DEGREES),
    "radians": lambda x: multiply(x, RADIANS),
    "pow": power,
    "atan2": angle,
    "hypot": hypotenuse,
}
