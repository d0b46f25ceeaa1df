"""What `where` says: parsed, split into conjuncts, carried over to DuckDB."""
