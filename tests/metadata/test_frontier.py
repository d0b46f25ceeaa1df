"""Frontiers of orders, where values are as large as their types allow."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.metadata.constraints import SortOrder
from watersmeet.metadata.spans import compute_threshold, lie_beyond, pick_further, to_plain

LONG = 12345678901234567890123456789012345678
"""[!] Whole: Decimal would round what is added to it or taken from it."""
CENTS = Decimal("9999999999999999999999999999.9999999999")


@pytest.mark.parametrize(
    ("kind", "frontier", "slack", "falling", "values", "wanted"),
    [
        (pa.decimal128(38, 0), Decimal(LONG), Decimal(1), False, [*map(Decimal, (LONG - 2, LONG - 1))], [True, False]),
        (pa.decimal128(38, 0), Decimal(LONG), Decimal(1), True, [*map(Decimal, (LONG + 2, LONG + 1))], [True, False]),
        (pa.decimal128(38, 10), CENTS, Decimal("1e-20"), False, [CENTS], [False]),
        (pa.decimal128(38, 10), CENTS.copy_negate(), Decimal(1), False, [CENTS.copy_negate()], [False]),
        (pa.decimal128(5, 2), Decimal("1.00"), Decimal("0.005"), False, [Decimal("0.99"), Decimal(1)], [True, False]),
        (pa.decimal128(5, 2), Decimal("1.00"), Decimal("0.005"), True, [Decimal("1.01"), Decimal(1)], [True, False]),
        (
            pa.decimal128(5, 2),
            Decimal("1.00"),
            Decimal("0.015"),
            False,
            [Decimal("0.98"), Decimal("0.99")],
            [True, False],
        ),
        (pa.int64(), 2**53 + 1, 1, False, [2**53 - 1, 2**53], [True, False]),
        (pa.int8(), -127, 5, False, [-128], [False]),
        (pa.bool_(), True, 0, False, [True, False], [False, True]),
    ],
)
def test_what_lies_beyond(
    kind: pa.DataType, frontier: Any, slack: Any, falling: bool, values: list[Any], wanted: list[bool]
) -> None:
    promise = SortOrder(0, falling, slack)
    limit = compute_threshold(promise, to_plain(pa.scalar(frontier, kind)), kind)
    found = [False] * len(values) if limit is None else lie_beyond(pa.array(values, kind), promise, limit).tolist()
    assert found == wanted


def test_times_that_python_has_not() -> None:
    kind, late = pa.timestamp("us", "UTC"), 2**61
    assert pick_further(5, late, kind, falling=False) == late
    assert pick_further(5, -late, kind, falling=True) == -late
