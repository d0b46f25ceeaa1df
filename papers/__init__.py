"""Figures of the papers again, a folder a paper: `python papers/mjoin/figures.py`; `make papers` runs all.

What they compare with is no part of the product. They share `bench.common`, and write under `bench/results/` too.
"""
