"""Join many live streams at once, under any predicate, on Apache Spark."""
