"""Evaluating conjuncts for blocks of pairs: DuckDB (`duck.py`, `sql.py`), NumPy with error bounds (`balls.py`)."""
