"""The checkpoint as Spark and the join share it: its path, the lease of its store, and Spark's own logs."""
