"""The sorted index: the same whether a chunk stores it or is sorted when first probed."""

import pyarrow as pa
import pytest

from watersmeet.limits import limited
from watersmeet.predicate.model import Column
from watersmeet.state.chunks.sorted_index import add_sort_orders, drop_sort_orders, sort_column

X = Column(0, 1)


@pytest.mark.parametrize("stored", [False, True])
def test_values_rise_and_nulls_are_left_out(stored: bool) -> None:
    values = pa.array([3.0, None, 1.0, 2.0, 1.0])
    with limited(order_rows=1 if stored else 100):
        rows = add_sort_orders(pa.record_batch({X.name: values}), [X])
    column = sort_column(rows, X, values)
    assert column.values.tolist() == [1.0, 1.0, 2.0, 3.0]
    assert column.order.tolist() == [2, 4, 3, 0]
    assert column.nbytes == column.values.nbytes + column.order.nbytes
    assert (rows.num_columns, drop_sort_orders(rows.schema.names)) == (1 + stored, [X.name])
