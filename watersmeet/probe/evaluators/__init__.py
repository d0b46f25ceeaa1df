"""What decides conjuncts for blocks of pairs: DuckDB (`duck.py`, `sql.py`), NumPy with a bound of the error (`balls.py`)."""
