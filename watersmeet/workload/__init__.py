"""Generators of test and demo data: arrivals, numbers, keys, images, auctions, and files for Spark to stream."""

from watersmeet.workload.auctions import auctions
from watersmeet.workload.images import THRESHOLD, images, similar
from watersmeet.workload.parquet import feed, write, write_batches
from watersmeet.workload.tuples import START, arrivals, gps, numbers, zipf

__all__ = [
    "START",
    "THRESHOLD",
    "arrivals",
    "auctions",
    "feed",
    "gps",
    "images",
    "numbers",
    "similar",
    "write",
    "write_batches",
    "zipf",
]
