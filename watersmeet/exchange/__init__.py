"""How partial results travel: what runs in a task, and how the output of one stage reaches the next. Free of Spark.

`exchanges.py` has one function for each exchange, over stages of tasks: whoever implements `Stage` can run them all.
`tasks.py` drives the nodes of `watersmeet/batch/node.py`, `message.py` is what tasks send each other. `ring.py` is the
protocol of the ring, which knows nothing of batches; `ring_task.py` drives nodes by it.

A new exchange is a function in `exchanges.py`, registered in three places: `EXCHANGES` in
`watersmeet/spark/run/spark_stages.py`, `Exchange` in `watersmeet/spark/run/checks.py`, and `Run.exchanged` in
`watersmeet/testing/run.py`.

Invariants: results and manifests are the same under every exchange; every task reports, and a missing report is an
error, never an empty one.
"""
