"""How much tests try: little in the suite, all in `make test-slow`, and at random as many times as SEARCH says."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

_TIMES = float(os.environ.get("SEARCH", "0.25"))


def search(examples: int) -> settings:
    """Return the settings of a test that tries so many examples, times SEARCH: a quarter of them in the suite."""
    return settings(
        max_examples=max(2, round(examples * _TIMES)),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink a join takes minutes
    )


FEW = search(7)


def one_in(every: int, values: Iterable[Any], unpack: bool = False) -> list[Any]:
    """Return values for a test's parameter: all of them in the slow suite, one in so many in the quick one as well.

    With `unpack`, each value is a tuple, for a test of several parameters.
    """
    rows = [value if unpack else (value,) for value in values]
    return [pytest.param(*row, marks=pytest.mark.slow if at % every else ()) for at, row in enumerate(rows)]
