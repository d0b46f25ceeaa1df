"""Chunks: immutable rows of one cell, with zone maps and a sorted index.

`chunk.py` describes a chunk as the manifest does, `rows.py` is an open one, `sorted_index.py` lets a probe skip rows,
and `merging.py` decides which chunks to merge.
"""
