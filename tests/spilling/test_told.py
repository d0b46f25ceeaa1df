"""What people are told before the start of what will be put off."""

from watersmeet.spilling.options import Spill
from watersmeet.spilling.told import planned


def test_limits_policies_and_units_are_told() -> None:
    assert planned(Spill(memory="2 GB", within="500 milliseconds", pay="local", disk=5000, share=0.5), 8) == [
        "  once hot state takes 2 GB or batches take longer than 500 milliseconds, about 50% of the state is put off, "
        "by policy 'synchronized', paid by 'local': 8 partitions of the values, cut by slices of time",
        "  below 85% of that it comes back, at most every 2 minutes; what is owed for 10 minutes is paid at once, "
        "and the oldest of it once cold state takes 5 kB",
    ]
    one, two = planned(Spill(within="1 second", policy="local", pay="local"), 1)
    assert one.endswith("longer than 1 second, about 30% of the state is put off, by policy 'local': slices of time")
    assert two.endswith("paid at once")
