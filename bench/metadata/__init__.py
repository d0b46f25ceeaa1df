"""Auctions ⋈ bids ⋈ payments without windows, and what their metadata take.

`auctions` starts `run`, or `core` without Spark, and draws with `plots`; `spark_workarounds` starts `competitor`. Both
are held to `reference`: all results, and the rows that any join must keep. `marks` measures one data structure.
"""
