"""Spark's functions of two vectors, by matrix products.

Spark adds up doubles and rounds the result to a float. Here rows of length 1 are multiplied as floats, with a radius
that covers the rounding of every sum; pairs that this can't decide are recomputed in double precision, which leaves
hardly any open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.arrays import Floats, Ints, Mask
from watersmeet.probe.evaluators.balls import FUNCTIONS, Ball, Positions

Singles = NDArray[np.float32]

CELLS = 1 << 20
"""Cells of a product at a time."""
DENSE = 1 / 24
"""From this share of all pairs of rows on, a matrix product is faster than single pairs."""
GATHERED = 1 << 12
"""Pairs at a time if their rows are gathered."""
LEAST_FLOAT = 2.0**-149
MOST_FLOAT = 3.4028234e38


def vectors(function: str, left: pa.Array, right: pa.Array, left_at: Ints, right_at: Ints) -> Ball:
    """A function of vectors for pairs of rows, with a `finer` ball in double precision.

    It is unknown for rows that differ in length, have NULL or non-finite elements, or none.

    Args:
        function: vector_cosine_similarity, vector_inner_product or vector_l2_distance.
        left: Rows of the first argument, of type array<float>.
        right: Rows of the second one.
        left_at: For each pair, its row of `left`.
        right_at: For each pair, its row of `right`.
    """
    (left, left_at), (right, right_at) = (
        _select_used(left, left_at, len(right)),
        _select_used(right, right_at, len(left)),
    )
    dimension = _dimension(left)
    one, two = _VectorRows.of(left, dimension), _VectorRows.of(right, dimension)
    product = _product(one.unit, two.unit, left_at, right_at)
    rough = ROUGH[function](product, one, two, left_at, right_at)
    rough = _mark_nulls(rough, function, one, two, left_at, right_at)

    def finer(pairs: Positions) -> Ball:
        at, by = left_at[pairs], right_at[pairs]
        return _mark_nulls(_fine_ball(function, one, two, at, by), function, one, two, at, by)

    return Ball(rough.value, rough.radius, rough.valid, finer)


def _select_used(values: pa.Array, at: Ints, others: int) -> tuple[pa.Array, Ints]:
    """Return the rows that pairs refer to, if that may save work, and the pairs' positions among them.

    Args:
        values: The rows of one side.
        at: For each pair, its row.
        others: How many rows the other side has.
    """
    if len(values) * max(1, others) <= 2 * len(at):
        return values, at
    mask = np.zeros(len(values), dtype=bool)
    mask[at] = True
    if mask.all():
        return values, at
    return values.filter(pa.array(mask)), (np.cumsum(mask) - 1)[at]


def _dimension(values: pa.Array) -> int:
    """The length that most rows have."""
    lengths = pc.list_value_length(values).drop_null().to_numpy()
    return int(np.bincount(lengths).argmax()) if len(lengths) else 0


@dataclass(frozen=True, slots=True)
class _VectorRows:
    """The rows of one side.

    Attributes:
        rows: Their elements; zeros for a row that is left out.
        squares: Per row, the sum of the squares of its elements.
        unit: The rows, each divided by its length.
        null: Which rows are NULL.
        odd: Which rows are left out for another reason.
    """

    rows: Singles
    squares: Floats
    unit: Singles
    null: Mask
    odd: Mask

    @property
    def lengths(self) -> Floats:
        """The length of each row."""
        return np.sqrt(self.squares)

    @classmethod
    def of(cls, values: pa.Array, dimension: int) -> _VectorRows:
        """The rows of an Arrow column; those of another dimension are left out."""
        null = values.is_null().to_numpy(zero_copy_only=False)
        rows, odd = _matrix(values, dimension)
        wide = rows.astype(np.float64)
        with np.errstate(all="ignore"):
            squares = np.einsum("ij,ij->i", wide, wide)
            odd |= ~np.isfinite(squares)
            if odd.any():
                rows = np.where(odd[:, None], np.float32(0), rows)
                wide[odd], squares[odd] = 0, 0
            wide /= np.sqrt(np.where(squares > 0, squares, 1.0))[:, None]
        return cls(rows, squares, wide.astype(np.float32), null, odd & ~null)


def _matrix(values: pa.Array, dimension: int) -> tuple[Singles, Mask]:
    """The rows as a matrix, and which of them don't fit in: these are zeros."""
    lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    flat, odd = values.flatten(), (lengths != dimension) | (dimension == 0)
    numbers = (flat.fill_null(np.nan) if flat.null_count else flat).to_numpy(zero_copy_only=False)
    if not odd.any():
        return numbers.reshape(len(values), dimension), odd
    starts = np.cumsum(lengths) - lengths
    rows = np.zeros((len(values), dimension), dtype=np.float32)
    rows[~odd] = numbers[starts[~odd][:, None] + np.arange(dimension)]
    return rows, odd


def _product(left: Singles, right: Singles, left_at: Ints, right_at: Ints) -> Singles:
    """Return the inner products of pairs of rows in single precision, by the way that is fastest for their number."""
    products = np.empty(len(left_at), dtype=np.float32)
    cells = len(left) * len(right)
    if not cells:
        return products
    if len(products) < DENSE * cells:
        for start in range(0, len(products), GATHERED):
            block = slice(start, start + GATHERED)
            products[block] = np.einsum("ij,ij->i", left[left_at[block]], right[right_at[block]])
        return products
    if _is_all(left_at, right_at, len(left), len(right)):
        np.matmul(left, right.T, out=products.reshape(len(left), len(right)))
        return products
    return _pick_products(left, right, left_at, right_at, products)


def _is_all(left_at: Ints, right_at: Ints, lefts: int, rights: int) -> bool:
    """Whether the pairs are all there are, row by row."""
    if len(left_at) != lefts * rights or not len(left_at):
        return False
    rows, columns, step = (
        left_at.reshape(lefts, rights),
        right_at.reshape(lefts, rights),
        max(1, 4 * GATHERED // rights),
    )
    each, numbers = np.arange(rights), np.arange(lefts)[:, None]
    blocks = (slice(start, start + step) for start in range(0, lefts, step))
    return all((rows[block] == numbers[block]).all() and (columns[block] == each).all() for block in blocks)


def _pick_products(left: Singles, right: Singles, left_at: Ints, right_at: Ints, products: Singles) -> Singles:
    """Fill in and return `products`: blocks of rows are multiplied with the other side, and those of pairs picked."""
    order = None if (left_at[1:] >= left_at[:-1]).all() else np.argsort(left_at, kind="stable")
    rows, columns = (left_at, right_at) if order is None else (left_at[order], right_at[order])
    step = max(1, CELLS // len(right))
    starts = np.arange(0, len(left), step)
    edges = np.searchsorted(rows, np.append(starts, len(left)))
    for start, first, last in zip(starts, edges[:-1], edges[1:], strict=True):
        block = (left[start : start + step] @ right.T).ravel()
        place = rows[first:last] - start
        place *= len(right)
        place += columns[first:last]
        values = block.take(place, mode="clip")
        if order is None:
            products[first:last] = values
        else:
            products[order[first:last]] = values
    return products


def _float_error(dimension: int) -> float:
    """The bound on the error of an inner product of two rows of length 1, computed in floats."""
    return (dimension + 8) * 2.0**-24 * 1.01


def _rough_cosine(product: Singles, one: _VectorRows, two: _VectorRows, left_at: Ints, right_at: Ints) -> Ball:
    return Ball(product, np.asarray(_float_error(one.rows.shape[1])), np.asarray(True))


def _rough_inner(product: Singles, one: _VectorRows, two: _VectorRows, left_at: Ints, right_at: Ints) -> Ball:
    scale = one.lengths[left_at] * two.lengths[right_at]
    value, radius = product * scale, _float_error(one.rows.shape[1]) * scale + LEAST_FLOAT
    return Ball(value, np.where(np.abs(value) + radius < MOST_FLOAT, radius, np.inf), np.asarray(True))


def _rough_distance(product: Singles, one: _VectorRows, two: _VectorRows, left_at: Ints, right_at: Ints) -> Ball:
    """Return Euclidean distances from inner products computed in floats, with a bound on their error."""
    scale = 2 * one.lengths[left_at] * two.lengths[right_at]
    together = one.squares[left_at] + two.squares[right_at]
    square, off = together - scale * product, _float_error(one.rows.shape[1]) * scale + 2.0**-48 * together
    value = np.sqrt(np.maximum(square, 0))
    below, above = np.sqrt(np.maximum(square - off, 0)), np.sqrt(np.maximum(square + off, 0))
    radius = np.maximum(above - value, value - below) + 2.0**-22 * above + LEAST_FLOAT
    return Ball(value, np.where(above < MOST_FLOAT, radius, np.inf), np.asarray(True))


ROUGH: dict[str, Callable[[Singles, _VectorRows, _VectorRows, Ints, Ints], Ball]] = {
    "vector_cosine_similarity": _rough_cosine,
    "vector_inner_product": _rough_inner,
    "vector_l2_distance": _rough_distance,
}


def _fine_ball(function: str, one: _VectorRows, two: _VectorRows, left_at: Ints, right_at: Ints) -> Ball:
    """The function in double precision, then rounded to a float as Spark rounds it."""
    value, radius = np.empty(len(left_at)), np.empty(len(left_at))
    for start in range(0, len(left_at), GATHERED):
        block = slice(start, start + GATHERED)
        value[block], radius[block] = FINE[function](one, two, left_at[block], right_at[block])
    with np.errstate(all="ignore"):
        return FUNCTIONS["float"](Ball(value, radius, np.asarray(True)))


def _double_error(dimension: int) -> float:
    return (dimension + 16) * 2.0**-51


def _dots(one: _VectorRows, two: _VectorRows, left_at: Ints, right_at: Ints) -> Floats:
    wide = one.rows[left_at].astype(np.float64)
    dots: Floats = np.einsum("ij,ij->i", wide, two.rows[right_at].astype(np.float64))
    return dots


def _fine_cosine(one: _VectorRows, two: _VectorRows, left_at: Ints, right_at: Ints) -> tuple[Floats, Floats]:
    below = np.sqrt(one.squares[left_at] * two.squares[right_at])
    value = _dots(one, two, left_at, right_at) / np.where(below > 0, below, 1.0)
    return value, np.full(len(value), _double_error(one.rows.shape[1]))


def _fine_inner(one: _VectorRows, two: _VectorRows, left_at: Ints, right_at: Ints) -> tuple[Floats, Floats]:
    scale = one.lengths[left_at] * two.lengths[right_at]
    return _dots(one, two, left_at, right_at), _double_error(one.rows.shape[1]) * scale


def _fine_distance(one: _VectorRows, two: _VectorRows, left_at: Ints, right_at: Ints) -> tuple[Floats, Floats]:
    apart = one.rows[left_at].astype(np.float64) - two.rows[right_at]
    value = np.sqrt(np.einsum("ij,ij->i", apart, apart))
    return value, _double_error(one.rows.shape[1]) * value


FINE: dict[str, Callable[[_VectorRows, _VectorRows, Ints, Ints], tuple[Floats, Floats]]] = {
    "vector_cosine_similarity": _fine_cosine,
    "vector_inner_product": _fine_inner,
    "vector_l2_distance": _fine_distance,
}


def _mark_nulls(ball: Ball, function: str, one: _VectorRows, two: _VectorRows, left_at: Ints, right_at: Ints) -> Ball:
    """The ball with NULL and unknown for rows that are NULL or left out; the cosine with a row of zeros is NULL."""
    radius, valid = ball.radius, ball.valid
    null = _either_mask(one.null, two.null, left_at, right_at)
    if one.odd.any() or two.odd.any():
        radius = np.where(_either_mask(one.odd, two.odd, left_at, right_at), np.inf, radius)
    radius = np.where(null, 0.0, radius) if null.any() else radius
    if function == "vector_cosine_similarity":
        null = null | _either_mask(one.squares == 0, two.squares == 0, left_at, right_at)
    return Ball(ball.value, radius, ~null if null.any() else valid)


def _either_mask(one: Mask, two: Mask, left_at: Ints, right_at: Ints) -> Mask:
    if not one.any() and not two.any():
        return np.asarray(False)
    return one[left_at] | two[right_at]
