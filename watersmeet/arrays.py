"""The NumPy array types that signatures name, and small conversions of columns."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def to_mask(values: pa.Array) -> Mask:
    """Return where a boolean column of Arrow is TRUE; NULL counts as FALSE."""
    mask: Mask = values.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def cast_column(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as one of a type."""
    return values if values.type == kind else values.cast(kind)
