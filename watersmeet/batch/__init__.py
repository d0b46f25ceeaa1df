"""One batch, whatever runs it. The path of a row: `late_rows.py` admits it or not, `intake.py` stores it, `node.py`
probes the other streams, `outer_joins.py` looks for missing partners, `fuse.py` turns complete results into output
rows. `operator.py` plans a batch beforehand and commits it afterwards.

Invariants: the plan (`plan.py`) is frozen, and made before any row is read; every node reports, even if it has nothing
to report (`report.py`); nothing here reads a clock or knows Spark.
"""
