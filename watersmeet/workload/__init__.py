"""Makers of test and demonstration data: Poisson arrivals, numbers, keys, images, and files for Spark to stream."""

from watersmeet.workload.files import write
from watersmeet.workload.images import THRESHOLD, images, similar
from watersmeet.workload.keys import gps, zipf
from watersmeet.workload.numbers import numbers
from watersmeet.workload.poisson import START, arrivals

__all__ = ["START", "THRESHOLD", "arrivals", "gps", "images", "numbers", "similar", "write", "zipf"]
