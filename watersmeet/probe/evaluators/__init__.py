"""What decides conjuncts for blocks of pairs: DuckDB (`duck.py`, `sql.py`), NumPy with an error bound (`balls.py`)."""
