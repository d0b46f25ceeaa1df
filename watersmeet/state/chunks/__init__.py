"""Chunks: immutable rows of one cell, with zone maps and a sorted index, and when they are merged."""
