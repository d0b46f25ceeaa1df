"""Makers of test and demonstration data: arrivals, numbers, keys, images, auctions, and files for Spark to stream."""

from watersmeet.workload.auctions import auctions, feed, write_batches
from watersmeet.workload.files import write
from watersmeet.workload.images import THRESHOLD, images, similar
from watersmeet.workload.keys import gps, zipf
from watersmeet.workload.numbers import numbers
from watersmeet.workload.poisson import START, arrivals

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
