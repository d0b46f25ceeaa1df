"""One batch, whatever runs it: plan, intake, hops, fuse, commit. Spark and the tests drive the same code."""
