"""One batch, whatever runs it.

`operator.py` plans a batch (`plan.py`) and commits it. In between, `intake.py` stores new rows, `node.py` probes the
other streams with them, `fuse.py` makes output rows of complete results, `finish.py` merges and purges, and `report.py`
tells the driver. `meeting_nodes.py` finds the node at which a partial result meets a chunk.

Invariants: a plan is frozen and made before any row is seen; every node reports, even if it did nothing; nothing here
reads a clock or knows Spark.
"""
