"""Spark's functions of two vectors, by matrix products."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.kernel.balls import Ball

Ints = NDArray[np.int64]


def vectors(function: str, left: pa.Array, right: pa.Array, left_at: Ints, right_at: Ints) -> Ball:
    """A function of vectors for pairs of rows.

    Args:
        function: vector_cosine_similarity, vector_inner_product or vector_l2_distance.
        left: Rows of type array<float>.
        right: Likewise, the second argument's.
        left_at: For each pair, its row of `left`.
        right_at: For each pair, its row of `right`.
    """
    raise NotImplementedError
