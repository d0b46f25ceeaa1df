"""One batch, whatever runs it: plan, intake, probe, fuse, commit. Spark and the tests drive the same code."""
