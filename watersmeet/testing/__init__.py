"""For tests of your own joins and placements: exact batch boundaries, the oracle, and comparisons."""

from watersmeet.testing.compare import assert_same, brute_force, stream_batches, write_batches
from watersmeet.testing.strategy import check_strategy

__all__ = ["assert_same", "brute_force", "check_strategy", "stream_batches", "write_batches"]
