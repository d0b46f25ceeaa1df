"""How much random tests try: little in the suite, and as many times that as SEARCH says in `make test-slow`."""

import os

from hypothesis import HealthCheck, Phase, settings

_TIMES = int(os.environ.get("SEARCH", "1"))


def search(examples: int) -> settings:
    """Return the settings of a test that tries so many examples in the suite."""
    return settings(
        max_examples=examples * _TIMES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink a join takes minutes
    )


FEW = search(10)
