"""What users need to test their own joins: sources with exact batch cuts, and a brute-force join to compare with."""

from watersmeet.testing.compare import assert_same, brute_force
from watersmeet.testing.source import stream_batches, write_batches

__all__ = ["assert_same", "brute_force", "stream_batches", "write_batches"]
