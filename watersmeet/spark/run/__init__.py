"""How batches run on Spark.

- `frames.py` and `frame_tree.py` make one input frame of all streams, with a hash of each row's content.
- `batch.py` performs the actions of the batch protocol, `jobs.py` runs a job per join through an exchange: on Spark's
  stages with tasks in `workers.py`, or in the driver's own process (`spark_stages.py`). `ring_links.py` links the tasks
  of a ring.
- `round_scheduler.py` runs rounds between batches.
- `checks.py` refuses what can't work before the start; `failures.py` explains errors after it.

Only `batch.py` talks to the protocol, and only the thread that holds its `turn` runs a batch or a round.
"""
