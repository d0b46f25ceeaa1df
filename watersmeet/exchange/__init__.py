"""How partial results travel: what runs in a task, and how the output of one stage reaches the next. Free of Spark.

`tasks.py` drives the nodes of `watersmeet/batch/node.py`; `message.py` is what tasks send each other; `stages.py` runs
tasks as stages: `inline` makes all hops in one task, `hops` each in a stage of its own. Whoever implements `Stage` can
run both.

Invariants: results and manifests are the same under every exchange; every task reports, and a missing report is an
error, never an empty one.
"""
