"""How much the random tests of placements and orders try in the suite."""

from hypothesis import HealthCheck, Phase, settings

FEW = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink a join takes minutes
)
