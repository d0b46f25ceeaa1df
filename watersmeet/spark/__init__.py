"""Everything that knows Spark.

- `api/`: what users call; `sql/`: how conditions and statements are read.
- `run/`: how batches run; `output/`: where results go; `checkpoint/`: the checkpoint as Spark and the join share it.
"""
