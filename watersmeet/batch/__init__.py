"""One batch, whatever runs it. A row's way: `intake.py` stores it, `node.py` probes the other streams, `fuse.py` makes
output rows of complete results, `operator.py` plans a batch beforehand and commits it afterwards.

Invariants: a `plan.py` is frozen and made before any row is seen; every node reports, even if it has nothing to say
(`report.py`); nothing here reads a clock or knows Spark.
"""
