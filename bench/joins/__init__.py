"""Joins of three streams or more, measured against Spark's workarounds or against each other.

`band3` and `images3` start `competitor` in a process for each way to join: `ours`, Spark's `baselines`, and
`references`, which know all rows from the start.
"""
