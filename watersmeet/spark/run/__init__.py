"""How a batch runs on Spark: input frames, jobs, exchanges, rounds in quiet periods, errors."""
