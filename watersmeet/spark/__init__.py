"""Everything that knows Spark: what users call, how conditions are read, how batches run and where results go."""
