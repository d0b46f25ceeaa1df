"""The checkpoint as Spark and the join share it: its path, the lease of its store, and Spark's own logs.

- `paths.py`: a path means the same location to Spark and to Arrow, or it is rejected;
- `lease.py`: at most one run uses a store, and checks its lease before it publishes anything;
- `offsets.py`: Spark's logs of batches, and whether they belong to the join's state.
"""
