"""Chunks: immutable rows of one cell, with zone maps and a sorted index.

`chunk.py` has a chunk as the manifest describes it and the rows of an open one, `sorted_index.py` lets a probe skip
rows, and `merging.py` decides which chunks to merge.
"""
