"""What a checkpoint needs of Spark: its path, the lease of its store, Spark's own offsets and leftovers."""
